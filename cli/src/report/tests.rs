use super::*;

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
    let html = sample().html();
    assert!(html.contains("a &lt; b") && html.contains("<td>&lt;/script&gt;</td>"));
    assert!(!html.contains("alert(1)\"") || html.contains("\\u003c/script>\\u003cscript>alert(1)"));
    assert_eq!(html.matches("<script>").count(), 4, "three libraries and the charts");
}

#[test]
fn a_report_without_charts_carries_no_library() {
    let mut report = Report::new("Small");
    report.paragraph("text");
    assert!(report.html().len() < 4096);
}

#[test]
fn numbers_stand_at_the_right() {
    assert!(sample().html().contains("<td class=\"number\">2.90</td>"));
}
