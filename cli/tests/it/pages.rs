//! The pages that commands leave, opened in a real browser and used: every
//! chart drawn, nothing on the console, nothing asked of the network.

use crate::browser::{Visit, visit};
use crate::support::Desk;
use std::fs;
use std::path::Path;

const TENSORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../study/data/tensors.safetensors");
/// The most a page may weigh.
const MOST_BYTES: usize = 1_500_000;

/// What a reader would do: click a point, sort a table, turn an axis, and note
/// in the page what came of it.
const READER: &str = r#"<script>
const wait = setInterval(() => {
  if (document.body.dataset.drawn === undefined) return;
  clearInterval(wait);
  const point = [...document.querySelectorAll("svg .mark-symbol path")].find((path) => typeof explanations !== "undefined" && explanations[path.__data__?.datum?.index]);
  point?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  const head = document.querySelector("details.table th");
  head?.click(); head?.click();
  document.body.dataset.sorted = head?.getAttribute("aria-sort");
  const button = [...document.querySelectorAll(".tools button")].find((own) => own.textContent.startsWith("x: "));
  button?.click();
  document.body.dataset.axis = button?.textContent;
  document.querySelectorAll("details.table button").length && (document.body.dataset.downloads = document.querySelectorAll("details.table button").length);
}, 50);
</script>"#;

/// Opens a page as a reader would; nothing where there is no browser.
fn read(page: &Path) -> Option<Visit> {
    let html = fs::read_to_string(page).unwrap();
    assert!(html.len() < MOST_BYTES, "{} weighs {} bytes", page.display(), html.len());
    // The last of them: the libraries speak of others.
    let end = html.rfind("</body>").unwrap();
    let visit = visit(&format!("{}{READER}{}", &html[..end], &html[end..]))?;
    assert_eq!(visit.console, "", "{}: the console is not empty", page.display());
    assert_eq!(visit.requests, Vec::<String>::new(), "{}: the page asked for something", page.display());
    assert!(visit.dom.contains("data-drawn="), "{}: no chart was drawn", page.display());
    assert!(!visit.dom.contains(">This chart could not be drawn"), "{}", page.display());
    Some(visit)
}

#[test]
fn a_sweeps_page_opens_on_the_budget_and_explains_what_is_clicked() {
    let desk = Desk::new();
    desk.ok("sweep --out s --budget '40000 mm2' --points none -q");
    let Some(visit) = read(&desk.at("s/report.html")) else { return };
    for wanted in [
        "budget 40000 mm²",
        "× as fast",
        "× smaller",
        "class=\"bars\"",
        "id=\"explain\"",
        "data-sorted=\"descending\"",
    ] {
        assert!(visit.dom.contains(wanted), "no {wanted}");
    }
    assert!(visit.dom.contains("data-axis=\"x: log\"") && visit.dom.contains("data-downloads="));
    // The panel holds lines of `sweep explain`.
    let panel = &visit.dom[visit.dom.find("id=\"explain\"").unwrap()..];
    assert!(panel.contains("forward") && panel.contains("class=\"formula\""), "the panel is empty");
}

#[test]
fn best_points_keep_to_the_budget() {
    let desk = Desk::new();
    let found = desk.json("sweep --out s --budget '30000 mm2' --points none --json -q");
    let top = found["top"].as_array().unwrap();
    assert!(!top.is_empty());
    for point in top {
        assert!(point["area_mm2"].as_f64().unwrap() <= 30_000.0, "{point}");
    }
    assert_eq!(found["headline"]["budget_mm2"], 30_000.0);
    let said = desk.refused("sweep --budget '30000 apples'");
    assert!(said.contains("an area"), "{said}");
}

#[test]
fn a_comparisons_page_names_winners_and_draws_one_rate_as_bars() {
    let desk = Desk::new();
    let compare = |out: &str, rates: &str| {
        let codecs = "rtn,uniform+ac,mxfp4";
        let tensor = format!("{TENSORS} --tensor k_proj.weight");
        desk.ok(format!("compare {tensor} --codecs {codecs} --bits {rates} --out {out}"));
    };
    compare("one", "3");
    compare("many", "2,3,4");
    let Some(one) = read(&desk.at("one/report.html")) else { return };
    let many = read(&desk.at("many/report.html")).unwrap();
    assert!(one.dom.contains("dB above") && one.dom.contains("mark-rect"), "no bars");
    assert!(!one.dom.contains("mark-line"), "one rate is no curve");
    assert!(many.dom.contains("mark-line") && many.dom.contains("who is best"));
}

#[test]
fn an_explorations_page_answers_first() {
    let desk = Desk::new();
    let codecs = "three-in-one,line";
    desk.ok(format!("explore --study sweeps/llama-7b --codecs {codecs} --draws 48 --cells 3 --out e -q"));
    let Some(visit) = read(&desk.at("e/report.html")) else { return };
    let answer = visit.dom.find("class=\"answer\"").unwrap();
    let places = ["The odds", "Where it pays", "What it rests on, in words", "Over the budget"];
    let places =
        places.map(|part| visit.dom.find(&format!("{part}</h2>")).unwrap_or_else(|| panic!("{part}")));
    assert!(answer < places[0] && places.is_sorted(), "{answer} {places:?}");
    // The cluster is the first line, and what opens the page does not say all of it.
    let opening = &visit.dom[answer..places[0]];
    assert!(opening.find("rtx3090") < opening.find("Within 50,000 mm²"), "{opening}");
    assert!(opening.contains("drawn together") && !opening.contains("Its time goes into"), "{opening}");
    for wanted in [
        "rtx3090",
        "Within 50,000 mm²",
        "this cluster",
        "id=\"explain\"",
        "class=\"bars\"",
        "How sure each link is",
    ] {
        assert!(visit.dom.contains(wanted), "no {wanted}");
    }
}
