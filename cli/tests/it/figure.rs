//! The paper, figure by figure.

use crate::support::{trinity, trinity_in};

/// Every figure of the paper, and its tables.
const ALL: [&str; 24] = [
    "2b",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "10",
    "11",
    "12",
    "13",
    "14a",
    "14b",
    "15a",
    "15b",
    "16a",
    "16b",
    "16b-bound",
    "table-1",
    "table-2",
    "table-3",
    "nvenc-kv",
    "sparse-delta",
];

fn figures() -> Vec<serde_json::Value> {
    let found: serde_json::Value = serde_json::from_str(&trinity(["figure", "--json"]).ok()).unwrap();
    found["figures"].as_array().unwrap().clone()
}

#[test]
fn every_figure_is_judged() {
    let found = figures();
    for id in ALL {
        assert!(found.iter().any(|figure| figure["id"] == id), "{id} is not judged");
    }
    for figure in &found {
        let judged = ["reproduced", "contradicted", "out-of-scope"];
        assert!(judged.contains(&figure["verdict"].as_str().unwrap()), "{figure}");
        assert!(figure["verdict"] == "reproduced" || figure["why"].is_string(), "no reason: {figure}");
    }
}

/// A figure whose command takes seconds is run, and its verdict must stand.
#[test]
fn verdicts_of_quick_figures_stand() {
    let folder = tempfile::tempdir().unwrap();
    let quick = |figure: &&serde_json::Value| figure["seconds"].as_u64().is_some_and(|seconds| seconds <= 3);
    for figure in figures().iter().filter(quick) {
        let id = figure["id"].as_str().unwrap();
        let said = trinity_in(folder.path(), ["figure", id, "-q"]).ok();
        assert!(said.contains(figure["paper"].as_str().unwrap()), "{id}: {said}");
    }
}

/// What decides Figure 16(b), as its verdict has it.
#[test]
fn energy_of_training_rests_on_what_a_rank_computes_between_exchanges() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["sweep", "sweeps/figure-16b-bound", "--points", "all", "--out", "s", "-q"];
    trinity_in(folder.path(), args).ok();
    let mut reader = csv::Reader::from_path(folder.path().join("s/points.csv")).unwrap();
    let points: Vec<std::collections::HashMap<String, String>> =
        reader.deserialize().map(Result::unwrap).collect();
    let least = |scenario: &str, model: &str, batch: &str| {
        let of = |point: &&std::collections::HashMap<String, String>| {
            point["scenario"] == scenario
                && point["status"] == "ok"
                && point["job.llm.extends"] == model
                && point["job.replica-batch"] == batch
        };
        let energies =
            points.iter().filter(of).map(|point| point["energy_j_per_token"].parse::<f64>().unwrap());
        energies.fold(f64::MAX, f64::min)
    };
    for model in ["llms/pythia-160m", "llms/llama-2-7b", "llms/llama-3-70b"] {
        let gain = |batch: &str| least("uncompressed", model, batch) / least("three-in-one", model, batch);
        assert!(gain("1") > 2.3, "{model}: {}", gain("1"));
        assert!(gain("64") < 1.2, "{model}: {}", gain("64"));
    }
}

#[test]
fn a_figure_without_a_command_says_why_and_a_typo_is_met() {
    let said = trinity(["figure", "13"]).refused();
    assert!(said.contains("out of scope") && said.contains("nothing to measure"), "{said}");
    assert!(trinity(["figure", "16aa"]).refused().contains("did you mean `16a`?"));
}
