//! A page in a real browser: what it draws, what it complains about, and
//! whether it asks for anything. Shared by the tests of reports and of commands.

/// What a headless browser made of a page.
pub struct Visit {
    pub dom: String,
    /// What went wrong: errors and warnings of the console.
    pub console: String,
    /// What the page asked for over the network.
    pub requests: Vec<String>,
}

/// Opens `html` from `file://` in Chromium; `None` where there is no Chromium.
pub fn visit(html: &str) -> Option<Visit> {
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
        console: stderr.lines().filter(|line| is_of_the_page(line)).collect::<Vec<_>>().join("\n"),
        requests: requests(&net_log),
    })
}

/// Every URL the page asked for. The browser asks for some on its own account;
/// those have no origin in its network log.
fn requests(net_log: &str) -> Vec<String> {
    let log: serde_json::Value = serde_json::from_str(net_log).unwrap();
    let events = log["events"].as_array().unwrap();
    let by_page = |params: &&serde_json::Value| {
        params["initiator"].as_str().is_some_and(|origin| origin != "not an origin")
    };
    let urls = events
        .iter()
        .map(|event| &event["params"])
        .filter(by_page)
        .filter_map(|params| params["url"].as_str());
    urls.map(str::to_string).collect()
}

/// Whether a line is the page's word on the console: without a network the browser's own pages complain, too.
fn is_of_the_page(line: &str) -> bool {
    line.contains("CONSOLE") && !line.contains("source: chrome://")
}
