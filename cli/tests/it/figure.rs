//! What sources claim, judged by recordings and by runs.

use crate::support::{Desk, trinity};
use serde_json::Value;

/// Every figure and table of the paper, and its relatives' headlines.
const ALL: &str = "2b 2b-inter 3 4 5 6 7 8 9 10 11 12 13 14a 14b 15a 15b 16a 16b 16b-bound table-1 table-2 table-3 \
                   70b-edge nvenc-kv nvenc-wires nvenc-pca sparse-delta sparse-delta-large";

fn figures() -> Vec<Value> {
    let found = trinity(["figure", "--json"]).json();
    found["figures"].as_array().unwrap().clone()
}

#[test]
fn every_figure_has_a_verdict_with_its_numbers() {
    let found = figures();
    let ids: Vec<&str> = found.iter().map(|figure| figure["id"].as_str().unwrap()).collect();
    for id in ALL.split_whitespace() {
        assert!(ids.contains(&id), "{id} is not judged");
    }
    for figure in &found {
        let claims = figure["claims"].as_array().unwrap();
        let (id, verdict) = (&figure["id"], figure["verdict"].as_str().unwrap());
        assert_eq!(claims.is_empty(), verdict == "out-of-scope", "{id}: {verdict}");
        assert!(!claims.is_empty() || figure["why"].is_string(), "{id} is left out without a reason");
        for claim in claims {
            assert!(
                !claim["quote"].as_str().unwrap().is_empty() && !claim["found"].as_str().unwrap().is_empty(),
                "{claim}"
            );
        }
    }
}

/// A figure whose commands take a second is run, and gives the verdict of its recording, unless that is stale.
#[test]
fn runs_of_quick_figures_give_the_verdicts_of_their_recordings() {
    let desk = Desk::new();
    for figure in
        figures().iter().filter(|figure| figure["seconds"].as_u64().is_some_and(|seconds| seconds <= 2))
    {
        let id = figure["id"].as_str().unwrap();
        let run = desk.json(format!("figure {id} --run --json -q"));
        let run = &run["figures"][0];
        if figure["stale"].is_null() {
            assert_eq!(run["verdict"], figure["verdict"], "{id}");
        }
        assert!(run["stale"].is_null(), "{id}: {}", run["stale"]);
        assert!(!run["claims"].as_array().unwrap().is_empty(), "{id}");
    }
}

/// A verdict is what its numbers say: with a rule the other way round the same run gives the opposite.
#[test]
fn a_rule_the_other_way_round_gives_the_opposite_verdict() {
    let desk = Desk::new();
    let text = |rule: &str| {
        format!(
            "# f\ntitle = \"t\"\n[[figures]]\nid = \"x\"\ntitle = \"x\"\ncited = \"s\"\nexact = true\n\
             commands = {{ run = \"sweep sweeps/llama-7b --points none\" }}\ncells = {{ gain = {{ at = \"headline.speedup\" }} }}\n\
             [[figures.claims]]\nsays = \"faster\"\nquote = \"q\"\nours = \"gain\"\nrule = {{ {rule} = \"1.1\" }}\n"
        )
    };
    let verdict = |rule: &str| {
        desk.write("f.toml", text(rule));
        let said = desk.json("figure x --run --figures f.toml --json -q --force");
        said["figures"][0]["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("above"), "reproduced");
    assert_eq!(verdict("below"), "contradicted");
    let said = desk.ok("figure x --figures f.toml");
    assert!(said.contains("not decided") && said.contains("never run"), "{said}");
}

#[test]
fn a_run_is_recorded_and_judged_again_from_there() {
    let desk = Desk::new();
    desk.ok("figure 16a --run --record r.json -q");
    let kept: Value = serde_json::from_slice(&desk.read("r.json")).unwrap();
    assert!(kept["16a"]["cells"]["speedup"]["values"][0].as_f64().unwrap() > 1.0);
    assert!(kept["16a"]["when"].as_str().unwrap().starts_with("20"));
}

/// A quick run judges on the built-in tensors, says so beside what the recording judged on, and does not take its place.
#[test]
fn a_run_on_less_than_the_recording_says_so_and_is_not_recorded() {
    let desk = Desk::new();
    desk.write("f.toml", "# f\ntitle = \"t\"\n[[figures]]\nid = \"x\"\ntitle = \"x\"\ncited = \"s\"\nseconds = 1\nby = [\"tensor\"]\nover = \"tensors\"\n\
         commands = { run = \"compare {captured} --codecs rtn --bits 4\" }\n\
         cells = { bits = { at = \"[codec=rtn].bits_per_value\" } }\n\
         [[figures.claims]]\nsays = \"few\"\nquote = \"q\"\nours = \"bits\"\nrule = { below = \"5\" }\n");
    std::fs::create_dir(desk.at("captured")).unwrap();
    let small = "../models/lm/tests/data/qwen2/model.safetensors";
    let small = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(small);
    std::fs::copy(small, desk.at("captured/mine.safetensors")).unwrap();
    let with = |line: &str| desk.run(format!("{line} --figures f.toml --record r.json --force"));
    with("figure x --run --data captured").ok();
    let kept = desk.read("r.json");
    let quick = with("figure --run");
    let said = quick.ok();
    assert!(said.contains("run now, a file of") && said.contains("recorded 20"), "{said}");
    assert!(quick.stderr().contains("was run on less than its recording has"), "{}", quick.stderr());
    assert_eq!(desk.read("r.json"), kept);
    // Asked for by name, it is what was asked for.
    with("figure x --run").ok();
    assert_ne!(desk.read("r.json"), kept);
    desk.write("r.json", "[]");
    assert!(with("figure x --run").refused().contains("holds no recordings"));
    with("figure x --run --data nowhere").refused();
}

/// Both kinds of claims are drawn: a source's number beside ours, and ours beside what it is held against.
#[test]
fn the_page_draws_every_claim_that_has_numbers() {
    let desk = Desk::new();
    desk.ok("figure --out o -q");
    let page = desk.text("o/report.html");
    for drawn in [r#""claim":"16a: speed at 50,000 mm² over the uncompressed cluster""#, r#""claim":"10: "#]
    {
        assert!(page.contains(drawn), "{drawn} is not drawn");
    }
    let compared = figures().into_iter().flat_map(|figure| figure["claims"].as_array().unwrap().clone());
    let pairs = compared.filter(|claim| !claim["difference"].is_null()).count();
    let drawn = page.matches(r#""claim":""#).count();
    assert!(pairs > 50 && drawn >= pairs, "{drawn} drawn, {pairs} pairs");
}

#[test]
fn what_cannot_be_judged_says_why_and_a_typo_is_met() {
    let said = trinity(["figure", "13"]).ok();
    assert!(said.contains("out of scope") && said.contains("nothing to measure"), "{said}");
    assert!(trinity(["figure", "16aa"]).refused().contains("did you mean `16a`?"));
    let said = trinity(["figure", "5", "--run"]).refused();
    assert!(said.contains("the command needs") && said.contains("--data"), "{said}");
    let said = trinity(["figure", "--run", "--data", "nowhere"]).refused();
    assert!(said.contains("--data nowhere is no folder"), "{said}");
}

/// The document is what the command prints; marks of staleness aside, which come with any change of the model.
#[test]
fn the_document_is_what_the_command_prints() {
    let strip = |text: &str| -> String {
        let lines = text.lines().filter(|line| !line.contains(" reproduced, "));
        let unmarked = |line: &str| match line.split_once(" (stale:") {
            Some((before, mark)) => {
                format!("{before}{}\n", mark.split_once(')').map_or("", |(_, after)| after))
            }
            None => format!("{line}\n"),
        };
        lines.map(unmarked).collect()
    };
    let printed = trinity(["figure", "--markdown"]).ok();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures.md");
    if std::env::var_os("TRINITY_BLESS").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(strip(&kept), strip(&printed), "TRINITY_BLESS=1 writes docs/figures.md anew");
}
