#[path = "../../tests/it/browser.rs"]
mod browser;

use super::*;
use crate::plot::{Axis, Mark, Series};
use browser::visit;

fn sample() -> Report {
    let mut report = Report::new("Rate & distortion");
    report.paragraph("a < b").table("Results", ["codec", "bits"], [["h265", "2.90"], ["</script>", "-"]]);
    let values = json!([{ "bits": 2, "nmse": 0.1, "codec": "</script><script>alert(1)" }, { "bits": 3, "nmse": 0.02, "codec": "b" }]);
    report.chart(
        "Rate–distortion",
        json!({
            "data": { "values": values }, "mark": { "type": "line", "point": true },
            "encoding": {
                "x": { "field": "bits", "type": "quantitative" },
                "y": { "field": "nmse", "type": "quantitative", "scale": { "type": "log" } },
                "color": { "field": "codec", "type": "nominal" },
            },
        }),
    );
    report
}

#[test]
fn text_and_specs_cannot_break_out_of_their_element() {
    let html = sample().html().unwrap();
    assert!(html.contains("a &lt; b") && html.contains("<td>&lt;/script&gt;</td>"));
    assert!(html.contains("\\u003c/script>\\u003cscript>alert(1)"));
    assert_eq!(html.matches("<script>").count(), 4, "three libraries and the charts");
}

#[test]
fn a_report_without_charts_carries_no_library() {
    let mut report = Report::new("Small");
    report.paragraph("text");
    assert!(report.html().unwrap().len() < 4096);
}

#[test]
fn numbers_stand_at_the_right() {
    assert!(sample().html().unwrap().contains("<td class=\"number\">2.90</td>"));
}

#[test]
fn a_browser_draws_every_chart_without_errors_or_network() {
    let mut report = sample();
    let points = vec![(1.0, 10.0), (2.0, 100.0)];
    let series = [Mark::Line, Mark::Points, Mark::Reference].map(|mark| Series {
        name: format!("{mark:?}"),
        points: points.clone(),
        mark,
    });
    let plot = Plot { x: Axis::linear("area (mm²)"), y: Axis::log("tokens/s"), series: series.into() };
    report.plot("A plot", &plot);
    let Some(visit) = visit(&report.html().unwrap()) else { return };
    assert!(visit.dom.contains("data-drawn=\"2\""), "a chart was not drawn: {}", visit.console);
    assert!(visit.dom.contains("mark-line") && visit.dom.contains("mark-symbol"), "a chart is empty");
    assert_eq!(visit.console, "", "the console is not empty");
    assert_eq!(visit.requests, Vec::<String>::new(), "the page asked for something");
}

#[test]
fn a_browser_says_so_when_a_page_misbehaves() {
    let html = "<!doctype html><script>console.error('wrong'); fetch('https://example.invalid/x').catch(() => 0)</script>";
    let Some(visit) = visit(html) else { return };
    assert!(visit.console.contains("wrong"), "{}", visit.console);
    assert!(visit.requests.iter().any(|url| url.contains("example.invalid")), "{:?}", visit.requests);
}
