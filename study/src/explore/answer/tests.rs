//! Every sentence, on rows that bear it out and on rows that do not.

use super::*;
use crate::explore::certainty::Certainty;
use crate::explore::ground::Held;
use crate::explore::standing::{Part, Reign};
use crate::explore::vary::{End, Turn};

fn standing(
    scenario: &str,
    value: Option<f64>,
    over_baseline: Option<f64>,
    over_next: Option<f64>,
) -> Standing {
    Standing {
        scenario: scenario.into(),
        best: None,
        value,
        over_baseline,
        over_next,
        energy_j_per_token: value.map(|value| 1000.0 / value),
        split: None,
        time: vec![Part { name: "compute", share: 0.8 }, Part { name: "data parallelism", share: 0.2 }],
    }
}

/// `line` ahead of `h264` ahead of no codec.
fn found() -> Exploration {
    Exploration {
        title: String::new(),
        study: "sweeps/llama-7b".into(),
        quality: "NMSE 0.01".into(),
        budget_mm2: Some(50_000.0),
        held: Vec::new(),
        rank_by: "max tokens-per-s".into(),
        answer: Vec::new(),
        best: "line".into(),
        baseline: "uncompressed".into(),
        bits: Vec::new(),
        silicon: Vec::new(),
        standings: vec![
            standing("line", Some(180.0), Some(1.8), Some(1.2)),
            standing("h264", Some(150.0), Some(1.5), Some(1.5)),
            standing("uncompressed", Some(100.0), Some(1.0), None),
        ],
        reigns: vec![
            Reign { scenario: "h264".into(), from_mm2: 1_000.0, to_mm2: Some(9_000.0) },
            Reign { scenario: "line".into(), from_mm2: 9_000.0, to_mm2: None },
        ],
        limits: Vec::new(),
        swings: vec![
            swing("goodput", 1.6, 2.0, "line", "line"),
            swing("area of a NIC", 1.7, 1.8, "line", "line"),
        ],
        certainty: vec![Certainty { link: MODEL.into(), error: Some(0.075), basis: "runs".into() }],
        left_out: Vec::new(),
        fronts: Vec::new(),
        sweep_toml: String::new(),
    }
}

fn swing(name: &str, low: f64, high: f64, low_best: &str, high_best: &str) -> Swing {
    let end = |value: &str, gain: f64, best: &str| End {
        value: value.into(),
        best: Some(best.into()),
        over_baseline: Some(gain),
    };
    Swing { assumption: name.into(), low: end("low", low, low_best), high: end("high", high, high_best) }
}

#[test]
fn the_best_is_named_with_its_gain_and_the_next() {
    let all = found();
    let sentence = best(&all).unwrap();
    assert_eq!(
        sentence,
        "Within 50,000 mm², build line: 180 tokens/s, 1.80 times as good as uncompressed; h264 comes next, 17 % behind."
    );
    // Where no codec is best, none is to be built.
    let mut none = found();
    none.standings = vec![
        standing("uncompressed", Some(100.0), Some(1.0), Some(1.02)),
        standing("line", Some(98.0), Some(0.98), None),
    ];
    none.best = "uncompressed".into();
    let sentence = best(&none).unwrap();
    assert!(sentence.contains("build no codec") && !sentence.contains("times as good"), "{sentence}");
    // Equals are called so, and nobody comes next.
    let mut equal = found();
    equal.standings[0].over_next = Some(1.002);
    let sentence = best(&equal).unwrap();
    assert!(sentence.contains("a tie") && !sentence.contains("comes next"), "{sentence}");
    let mut alone = found();
    alone.standings.truncate(1);
    alone.standings[0].over_next = None;
    assert!(!best(&alone).unwrap().contains(';'));
    alone.standings[0].value = None;
    assert_eq!(best(&alone), None, "nothing fits");
}

#[test]
fn the_workload_is_told_where_the_study_has_several() {
    let mut found = found();
    assert_eq!(asked(&found), None);
    let held = |path: &str, value| Held { path: path.into(), value };
    found.held = vec![held("job.kv-spill", 1.0), held("job.sequence", 65536.0)];
    assert_eq!(
        asked(&found).unwrap(),
        "That is for job.kv-spill = 1 and job.sequence = 65536; `--set study.job.kv-spill=…` asks for another."
    );
}

#[test]
fn energy_is_told_beside_that_without_a_codec_and_not_of_it() {
    assert_eq!(energy(&found()).unwrap(), "A token takes 5.56 J, 10.0 without a codec.");
    let mut none = found();
    none.standings.rotate_right(1);
    assert_eq!(energy(&none), None);
}

#[test]
fn the_time_goes_where_the_rows_say() {
    let mut all = found();
    assert!(bottleneck(&all).unwrap().contains("compute (80 %), then data parallelism (20 %)"));
    all.standings[0].time.reverse();
    assert!(bottleneck(&all).unwrap().starts_with("Its time goes into data parallelism"));
    all.standings[0].time.clear();
    assert_eq!(bottleneck(&all), None);
}

#[test]
fn budgets_at_which_another_is_best_are_told() {
    let mut all = found();
    assert_eq!(budgets(&all).unwrap(), "From 9,000 mm² on it is the best; below that, h264 is.");
    all.reigns.remove(0);
    assert_eq!(budgets(&all).unwrap(), "It is the best at every budget at which anything fits.");
    all.reigns[0].to_mm2 = Some(60_000.0);
    all.reigns.push(Reign { scenario: "h264".into(), from_mm2: 60_000.0, to_mm2: None });
    assert_eq!(budgets(&all).unwrap(), "Up to 60,000 mm² it is the best; above that, h264 is.");
    all.budget_mm2 = None;
    assert_eq!(budgets(&all), None);
    let mut other = found();
    other.reigns[1].scenario = "h264".into();
    assert_eq!(budgets(&other), None, "who reigns at the budget is not the best");
}

fn limit(below: Option<(f64, &str)>, above: Option<(f64, &str)>) -> Limit {
    let turn = |(factor, scenario): (f64, &str)| Turn { factor, scenario: scenario.into() };
    Limit {
        what: "network cards".into(),
        path: Some("cluster.nic.bandwidth".into()),
        value: Some(100.0),
        unit: "Gbit/s",
        below: below.map(turn),
        above: above.map(turn),
        from: 0.0625,
        to: 16.0,
    }
}

#[test]
fn where_it_stops_being_the_best_is_told_and_only_there() {
    let all = found();
    assert_eq!(
        stops(&all, &limit(None, Some((3.0, "uncompressed")))),
        "With network cards at 300 Gbit/s or more, uncompressed is the best."
    );
    assert_eq!(
        stops(&all, &limit(Some((0.25, "h265")), None)),
        "With network cards at 25.0 Gbit/s or less, h265 is the best."
    );
    let both = stops(&all, &limit(Some((0.25, "h265")), Some((3.0, "uncompressed"))));
    assert!(both.contains("between 25.0 Gbit/s and 300 Gbit/s") && both.contains("h265"), "{both}");
    let never = stops(&all, &limit(None, None));
    assert_eq!(never, "With network cards from 6.25 Gbit/s to 1,600 Gbit/s it stays the best.");
    let bits = Limit {
        what: "bits of line".into(),
        path: None,
        value: None,
        unit: "",
        from: 1.0,
        to: 2.0,
        ..limit(None, Some((1.3, "h264")))
    };
    assert_eq!(stops(&all, &bits), "Were the bits of line 1.30 times as many, h264 would be the best.");
    let enough = Limit { above: None, ..bits };
    assert_eq!(stops(&all, &enough), "With bits of line 2.00 times as many it stays the best.");
}

#[test]
fn the_widest_swing_is_named_and_none_where_nothing_moves() {
    let mut all = found();
    let sentence = sensitive(&all).unwrap();
    assert!(
        sentence.contains("rests most on the goodput: 1.60 times at low, 2.00 times at high"),
        "{sentence}"
    );
    all.swings = vec![swing("goodput", 1.8, 1.801, "line", "line")];
    assert_eq!(sensitive(&all), None);
    let mut none = found();
    none.best = "uncompressed".into();
    assert_eq!(sensitive(&none), None, "there is no gain to rest on anything");
}

#[test]
fn assumptions_that_change_the_best_are_named_with_who_is() {
    let mut all = found();
    assert_eq!(
        turned(&all).unwrap(),
        "None of the 2 assumptions, at either end of its range, makes another the best."
    );
    all.swings[1].high.best = Some("h265".into());
    assert_eq!(
        turned(&all).unwrap(),
        "1 of the 2 assumptions, at an end of its range, makes another the best: area of a NIC (h265 at high)."
    );
    all.swings.clear();
    assert_eq!(turned(&all), None);
}

#[test]
fn it_is_sure_where_the_lead_is_more_than_the_error() {
    let mut all = found();
    let sentence = sure(&all).unwrap();
    assert!(sentence.contains("a codec pays is sure") && sentence.contains("is sure, too"), "{sentence}");
    all.standings[0].over_next = Some(1.02);
    let sentence = sure(&all).unwrap();
    assert!(
        sentence.contains("a codec pays is sure") && sentence.contains("h264 is not: its lead is 2.0 %"),
        "{sentence}"
    );
    all.standings[0].over_baseline = Some(1.03);
    assert!(sure(&all).unwrap().contains("a codec pays is not sure"));
    all.certainty.clear();
    assert_eq!(sure(&all), None, "nothing was measured");
}
