use super::*;
use crate::plot::{Axis, Mark, Series};

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
    assert!(html.contains("\\u003c/script>\\u003cscript>alert(1)"));
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

/// What a headless browser made of a page.
struct Visit {
    dom: String,
    console: String,
    requests: Vec<String>,
}

/// Opens `html` from `file://` in Chromium; `None` where there is no Chromium.
fn visit(html: &str) -> Option<Visit> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let runs = |browser: &&str| std::process::Command::new(browser).arg("--version").output().is_ok();
    let Some(browser) = browsers.into_iter().find(runs) else {
        eprintln!("SKIPPED: no Chromium, so no page was opened; `cargo xtask test` installs it");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let (page, net_log) = (folder.path().join("report.html"), folder.path().join("net.json"));
    std::fs::write(&page, html).unwrap();
    let output = std::process::Command::new(browser)
        .args("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run".split(' '))
        .args("--disable-background-networking --disable-component-update --disable-sync".split(' '))
        .args("--disable-dev-shm-usage --window-size=390,844 --virtual-time-budget=20000".split(' '))
        // A proxy that is not there: nothing the browser does on its own leaves this machine.
        .args("--proxy-server=127.0.0.1:9 --enable-logging=stderr --dump-dom".split(' '))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--log-net-log={}", net_log.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let net_log = std::fs::read_to_string(net_log).unwrap();
    Some(Visit {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: stderr.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n"),
        requests: requests(&net_log),
    })
}

/// Every URL the page asked for. The browser asks for some on its own account;
/// those have no origin in its network log.
fn requests(net_log: &str) -> Vec<String> {
    let log: Value = serde_json::from_str(net_log).unwrap();
    let events = log["events"].as_array().unwrap();
    let by_page =
        |params: &&Value| params["initiator"].as_str().is_some_and(|origin| origin != "not an origin");
    let urls = events
        .iter()
        .map(|event| &event["params"])
        .filter(by_page)
        .filter_map(|params| params["url"].as_str());
    urls.map(str::to_string).collect()
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
    let Some(visit) = visit(&report.html()) else { return };
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
