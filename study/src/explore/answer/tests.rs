//! Every sentence, on rows that bear it out and on rows that do not.

use super::*;
use crate::explore::baseline_study::Fixed;
use crate::explore::certainty::Certainty;
use crate::explore::chance::{Chance, Decides, Spread};
use crate::explore::ranking::{Chosen, Part, PerWatt, Steps, WinningInterval};
use crate::explore::recorded::Trained;
use crate::explore::regime::{Mark, Ruler};
use crate::explore::setting::Setting;
use crate::explore::silicon::{Block, Silicon};
use crate::explore::vary::{End, Turn};
use trinity_tensor::Class;

fn ranking(
    scenario: &str,
    value: Option<f64>,
    over_baseline: Option<f64>,
    over_next: Option<f64>,
) -> Ranking {
    Ranking {
        scenario: scenario.into(),
        best: None,
        value,
        over_baseline,
        over_next,
        energy_j_per_token: value.map(|value| 1000.0 / value),
        split: None,
        time: vec![Part { name: "compute", share: 0.8 }, Part { name: "data parallelism", share: 0.2 }],
        layout: None,
        chosen: Vec::new(),
    }
}

/// `line` ahead of `h264` ahead of no codec.
fn found() -> Exploration {
    Exploration {
        title: String::new(),
        study: "sweeps/llama-7b".into(),
        quality: "NMSE 0.01".into(),
        budget_mm2: Some(50_000.0),
        fixed: Vec::new(),
        rank_by: "max tokens-per-s".into(),
        answer: Vec::new(),
        setting: None,
        tolerance: 0.001,
        steps: None,
        per_watt: None,
        odds: None,
        regime: None,
        best: "line".into(),
        baseline: "uncompressed".into(),
        bits: Vec::new(),
        trained: Vec::new(),
        opening: 0,
        silicon: Vec::new(),
        rankings: vec![
            ranking("line", Some(180.0), Some(1.8), Some(1.2)),
            ranking("h264", Some(150.0), Some(1.5), Some(1.5)),
            ranking("uncompressed", Some(100.0), Some(1.0), None),
        ],
        winning_intervals: vec![
            WinningInterval { scenario: "h264".into(), from_mm2: 1_000.0, to_mm2: Some(9_000.0) },
            WinningInterval { scenario: "line".into(), from_mm2: 9_000.0, to_mm2: Some(801_234.0) },
        ],
        limits: Vec::new(),
        sensitivities: vec![
            sensitivity("goodput", 1.6, 2.0, "line", "line"),
            sensitivity("area of a NIC", 1.7, 1.8, "line", "line"),
        ],
        certainty: vec![Certainty { link: MODEL.into(), error: Some(0.075), basis: "runs".into() }],
        left_out: Vec::new(),
        fronts: Vec::new(),
        sweep_toml: String::new(),
    }
}

fn sensitivity(name: &str, low: f64, high: f64, low_best: &str, high_best: &str) -> AssumptionSensitivity {
    let end = |value: &str, gain: f64, best: &str| End {
        value: value.into(),
        best: Some(best.into()),
        over_baseline: Some(gain),
    };
    AssumptionSensitivity {
        assumption: name.into(),
        low: end("low", low, low_best),
        high: end("high", high, high_best),
    }
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
    none.rankings = vec![
        ranking("uncompressed", Some(100.0), Some(1.0), Some(1.02)),
        ranking("line", Some(98.0), Some(0.98), None),
    ];
    none.best = "uncompressed".into();
    let sentence = best(&none).unwrap();
    assert!(sentence.contains("build no codec") && !sentence.contains("times as good"), "{sentence}");
    // Equals are called so, and nobody comes next.
    let mut equal = found();
    equal.rankings[0].over_next = Some(1.002);
    let sentence = best(&equal).unwrap();
    assert!(sentence.contains("a tie") && !sentence.contains("comes next"), "{sentence}");
    let mut alone = found();
    alone.rankings.truncate(1);
    alone.rankings[0].over_next = None;
    assert!(!best(&alone).unwrap().contains(';'));
    alone.rankings[0].value = None;
    assert_eq!(best(&alone), None, "nothing fits");
}

#[test]
fn the_workload_is_told_where_the_study_has_several() {
    let mut found = found();
    assert_eq!(asked(&found), None);
    let fixed = |path: &str, value| Fixed { path: path.into(), value, unit: "" };
    found.fixed = vec![fixed("job.kv-spill", 1.0), fixed("job.sequence", 65536.0)];
    assert_eq!(
        asked(&found).unwrap(),
        "That is for job.kv-spill = 1 and job.sequence = 65536; `--set study.job.kv-spill=…` asks for another."
    );
}

#[test]
fn energy_is_told_beside_that_without_a_codec_and_not_of_it() {
    assert_eq!(energy(&found()).unwrap(), "A token takes 5.56 J, 10.0 without a codec.");
    let mut none = found();
    none.best.clone_from(&none.baseline);
    assert_eq!(energy(&none), None);
}

#[test]
fn the_time_goes_where_the_rows_say() {
    let mut all = found();
    assert!(bottleneck(&all).unwrap().contains("compute (80 %), then data parallelism (20 %)"));
    all.rankings[0].time.reverse();
    assert!(bottleneck(&all).unwrap().starts_with("Its time goes into data parallelism"));
    all.rankings[0].time.clear();
    assert_eq!(bottleneck(&all), None);
}

#[test]
fn budgets_at_which_another_is_best_are_told() {
    let mut all = found();
    assert_eq!(
        budgets(&all).unwrap(),
        "It is the best from 9,000 to 800,000 mm²; below that, h264 is.",
        "two figures are enough"
    );
    all.winning_intervals.remove(0);
    assert_eq!(budgets(&all).unwrap(), "It stays the best at every budget from 9,000 to 800,000 mm².");
    all.winning_intervals[0].to_mm2 = Some(60_000.0);
    all.winning_intervals.push(WinningInterval { scenario: "h264".into(), from_mm2: 60_000.0, to_mm2: None });
    assert_eq!(budgets(&all).unwrap(), "It is the best from 9,000 to 60,000 mm²; above that, h264 is.");
    all.budget_mm2 = None;
    assert_eq!(budgets(&all), None);
    let mut other = found();
    other.winning_intervals[1].scenario = "h264".into();
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
    let same = stops(&all, &limit(Some((0.25, "h265")), Some((3.0, "h265"))));
    assert!(same.ends_with("below and above that h265 is."), "{same}");
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
    all.sensitivities = vec![sensitivity("goodput", 1.8, 1.801, "line", "line")];
    assert_eq!(sensitive(&all), None);
    let mut none = found();
    none.best = "uncompressed".into();
    assert_eq!(sensitive(&none), None, "there is no gain to rest on anything");
}

#[test]
fn assumptions_that_change_the_best_alone_are_named_with_who_is() {
    let mut all = found();
    assert_eq!(turned(&all), None, "that none does so alone says nothing of all together");
    all.sensitivities[1].high.best = Some("h265".into());
    assert_eq!(
        turned(&all).unwrap(),
        "Alone, 1 of the 2 assumptions, at an end of its range, makes another the best: area of a NIC (h265 at high)."
    );
    all.sensitivities.clear();
    assert_eq!(turned(&all), None);
}

/// Odds of `line`, the best in `best` of the draws, with a codec that pays in `pays` of them.
fn drawn(pays: f64, best: f64) -> Odds {
    let spread = Spread { median: 1.31, low: 1.05, high: 1.62 };
    let chance = |scenario: &str, best: f64| Chance { scenario: scenario.into(), best, gain: spread };
    let decides = |input: &str, share: f64| Decides { input: input.into(), share };
    Odds {
        draws: 1021,
        failed: 0,
        seed: 1,
        candidate: "line".into(),
        gain: spread,
        quantiles: Vec::new(),
        pays,
        any_pays: pays,
        chances: vec![chance("line", best), chance("h264", 1.0 - best), chance("uncompressed", 0.0)],
        decides: vec![decides("goodput", 0.41), decides("batch", 0.22), decides("area", 0.04)],
        inputs: Vec::new(),
        correlations: Vec::new(),
    }
}

#[test]
fn sure_is_a_word_for_19_draws_of_20_and_odds_are_printed_below() {
    for pays in [0.0, 0.02, 0.05, 0.3, 0.5, 0.8, 0.9, 0.949, 0.95, 0.97, 1.0] {
        let said = super::pays(&drawn(pays, 0.5));
        let (codec, none) =
            (said.contains("That a codec pays is sure"), said.contains("no codec pays is sure"));
        assert_eq!(codec, pays >= 0.95, "{pays}: {said}");
        assert_eq!(none, pays <= 0.05, "{pays}: {said}");
        assert!(codec || none || said.contains(&format!("in {:.0} % of the draws", pays * 100.0)), "{said}");
    }
    for best in [0.4, 0.6, 0.94, 0.95, 0.99] {
        let said = who(&drawn(1.0, best)).unwrap();
        assert_eq!(said.contains("sure"), best >= 0.95, "{best}: {said}");
        assert!(said.contains(&format!("{:.0} %", best * 100.0)), "{said}");
    }
    let said = who(&drawn(1.0, 0.62)).unwrap();
    assert_eq!(said, "line is the best in 62 % of them, h264 in 38 %.");
    // Without draws nobody speaks of odds.
    let said = answer(&found()).0.join(" ");
    assert!(!said.contains("sure") && !said.contains("draws"), "{said}");
}

#[test]
fn the_gain_is_told_with_its_range_and_what_decides_it() {
    let mut all = found();
    all.odds = Some(drawn(0.97, 0.62));
    let said = odds(&all).join(" ");
    assert!(
        said.contains("line gains 1.31 times (median; 90 % of 1,021 draws between 1.050 and 1.62)"),
        "{said}"
    );
    assert!(
        said.contains("What decides it: goodput (41 % of the variance of the gain) and batch (22 %)."),
        "{said}"
    );
    let mut flat = drawn(0.97, 0.62);
    flat.decides.iter_mut().for_each(|one| one.share = 0.01);
    assert_eq!(decides(&flat), None, "nothing decides what nothing moves");
    let mut failed = drawn(0.97, 0.62);
    failed.failed = 21;
    all.odds = Some(failed);
    let said = odds(&all).join(" ");
    assert!(said.contains("1,000 draws") && said.contains("In 21 of 1021 draws nothing could run"), "{said}");
}

#[test]
fn a_codec_that_leads_against_the_odds_is_not_built() {
    let mut all = found();
    all.best = "uncompressed".into();
    all.odds = Some(drawn(0.23, 0.2));
    let said = best(&all).unwrap();
    assert!(said.contains("build no codec: 100 tokens/s"), "{said}");
    assert!(said.contains("line would gain 80 % as assumed, and pays in 23 % of the draws"), "{said}");
    assert!(!said.contains("build line"), "{said}");
}

#[test]
fn without_a_budget_it_is_for_each_mm2_and_each_watt() {
    let mut all = found();
    all.budget_mm2 = None;
    all.per_watt = Some(PerWatt { scenario: "line".into(), over_baseline: 1.2 });
    assert!(best(&all).unwrap().starts_with("For each mm², build line"));
    assert_eq!(per_watt(&all).unwrap(), "For each watt line is best, 1.20 times as good as uncompressed.");
    all.per_watt = Some(PerWatt { scenario: "uncompressed".into(), over_baseline: 1.0 });
    assert!(!per_watt(&all).unwrap().contains("times"));
    all.per_watt = None;
    assert_eq!(per_watt(&all), None);
}

/// Gains at budgets around the one that was asked for.
fn around(least: f64, mean: f64, most: f64) -> Steps {
    Steps { around: 0.1, least, mean, most, dealt: false, gpus: 4, baseline_gpus: 1 }
}

fn chosen(value: &str, beyond: Option<f64>, at_end: bool) -> Chosen {
    Chosen { path: "cluster.codecs-per-gpu".into(), value: value.into(), beyond, at_end }
}

#[test]
fn ends_of_axes_and_steps_are_told_where_they_matter() {
    let mut all = found();
    assert!(ends(&all).is_empty() && stepped(&all).is_none());
    all.rankings[0].chosen = vec![chosen("12", Some(8.0), false)];
    let said = ends(&all).join(" ");
    assert!(
        said.contains("beyond the study's axes: cluster.codecs-per-gpu of line at 12 (8.00 is listed)"),
        "{said}"
    );
    all.rankings[0].chosen = vec![chosen("8", None, true)];
    let said = ends(&all).join(" ");
    assert!(said.contains("with no way on: cluster.codecs-per-gpu of line (8)"), "{said}");
    all.steps = Some(around(1.5, 1.7, 1.9));
    let said = stepped(&all).unwrap();
    assert!(said.contains("of 4 GPUs with line and of 1 GPU without;"), "{said}");
    assert!(
        said.contains("up to 10 % away it gains between 1.50 and 1.90 times, 1.70 in the mean"),
        "{said}"
    );
    all.steps = Some(Steps { dealt: true, ..around(1.5, 1.8, 1.9) });
    assert!(
        stepped(&all).unwrap().contains("that divide the batch"),
        "the mean is its own, the range is wide"
    );
    all.steps = Some(around(1.795, 1.801, 1.81));
    assert_eq!(stepped(&all), None, "steps that move nothing are not told");
}

fn ruler(name: &'static str, unit: &'static str) -> Ruler {
    Ruler { name, unit, values: vec![0.1, 1.0] }
}

fn mark(name: &str, gain: Option<f64>) -> Mark {
    Mark { name: name.into(), x: 0.5, y: 8192.0, gain }
}

fn regime(edge: Edge, marks: Vec<Mark>) -> Regime {
    Regime {
        x: ruler("wire speed", "Gbit/s a TFLOP/s"),
        y: ruler("batch of a rank", "tokens"),
        candidate: "line".into(),
        gains: Vec::new(),
        here: mark("this cluster", Some(1.2)),
        marks,
        edge,
        holes: 0,
        why: None,
    }
}

fn setting(line: &str) -> Setting {
    let (gpu, nic, llm) = ("h100".into(), "cx7".into(), "m".into());
    Setting { line: line.into(), gpu, nic, llm, gpus: 8, nodes: 1 }
}

#[test]
fn the_map_is_told_as_it_is() {
    let mut all = found();
    all.regime = Some(regime(Edge::Below(0.7), vec![mark("A", Some(1.3)), mark("B", Some(1.005))]));
    assert_eq!(
        map(&all).unwrap(),
        "At 8,192 tokens (batch of a rank), line pays below 0.700 Gbit/s a TFLOP/s; this cluster has 0.500. Where 2 \
         well-known ones lie, it pays for 1: A."
    );
    let mut served = regime(Edge::Everywhere, Vec::new());
    (served.x.name, served.y, served.here.y) = (CONTEXT, ruler("concurrency", "sequences"), 1.0);
    all.regime = Some(served);
    let said = map(&all).unwrap();
    assert!(said.starts_with("At 1 sequence (concurrency)") && said.contains("this workload has"), "{said}");
    all.regime = Some(regime(Edge::Nowhere, vec![mark("A", None)]));
    let said = map(&all).unwrap();
    assert!(said.contains("pays at no wire speed") && said.contains("it pays for none"), "{said}");
    assert_eq!(holes(&all), None, "a map without holes has none to explain");
    let mut torn = regime(Edge::Nowhere, Vec::new());
    (torn.gains, torn.holes) = (vec![vec![None, Some(1.0)], vec![Some(1.0); 2]], 1);
    torn.why = Some("93 GB needed, 80 GB there".into());
    all.regime = Some(torn);
    assert_eq!(holes(&all).unwrap(), "1 of the 4 places on the map cannot run (93 GB needed, 80 GB there).");
    all.regime = None;
    assert_eq!((map(&all), holes(&all)), (None, None));
}

#[test]
fn bits_of_runs_are_told_with_the_run_and_only_where_runs_decide() {
    let mut all = found();
    assert_eq!(trained(&all), None, "bits of tensors are not called recorded");
    let block = Block { area_mm2: 1.0, power_w: 1.0, throughput_gbps: 100.0, pj_per_bit: 1.0 };
    all.silicon = vec![Silicon::plain("line", "line-rtl", block)];
    let row = |class: Class, bits: Option<f64>| Trained {
        class,
        coder: "line-rtl".into(),
        bits_per_value: bits,
        run: bits.map(|_| "t2.6".into()),
        lost: Some(-0.012),
        interval: Some(0.009),
        runs: 1,
        source: String::new(),
        charge: None,
    };
    all.trained = vec![row(Class::WeightGradient, Some(2.6)), row(Class::Weight, None)];
    assert_eq!(
        trained(&all).unwrap(),
        "Bits of line are those of recorded training runs: weight-gradient at 2.60 (run t2.6, -1.2 ± 0.9 % of loss); sent \
         as it is, as no recorded run stood it coded: weight."
    );
    all.trained.truncate(1);
    assert!(!trained(&all).unwrap().contains("as it is"));
}

/// What an exploration is changed to so that a sentence does not belong.
type Unfit = fn(&mut Exploration);

/// Rows, odds and a map under which every sentence belongs.
fn everything() -> Exploration {
    let mut all = found();
    all.setting = Some(setting("8 × h100"));
    all.odds = Some(drawn(0.97, 0.62));
    all.fixed = vec![Fixed { path: "job.sequence".into(), value: 8192.0, unit: "" }];
    all.regime = Some(Regime {
        gains: vec![vec![Some(1.2), None]],
        holes: 1,
        why: Some("too large".into()),
        ..regime(Edge::Below(0.7), vec![mark("A", Some(1.2))])
    });
    all.rankings[0].layout = Some("data 8".into());
    all.rankings[0].chosen = vec![chosen("12", Some(8.0), false)];
    all.steps = Some(around(1.5, 1.6, 1.8));
    all.limits = vec![limit(None, Some((3.0, "uncompressed")))];
    all.sensitivities[1].high.best = Some("h265".into());
    all
}

#[test]
fn each_sentence_has_distributions_under_which_it_does_not_appear() {
    let unfit: [(&str, Unfit); 19] = [
        ("8 × h100.", |all| all.setting = None),
        ("build line:", |all| all.best = "uncompressed".into()),
        ("times as good as uncompressed", |all| all.best = "uncompressed".into()),
        ("comes next", |all| all.rankings[0].over_next = Some(1.001)),
        ("drawn together", |all| all.odds = None),
        ("That a codec pays is sure", |all| all.odds = Some(drawn(0.94, 0.62))),
        ("in 62 % of them", |all| all.odds = Some(drawn(0.97, 0.96))),
        ("What decides it: goodput", |all| {
            all.odds.iter_mut().flat_map(|odds| &mut odds.decides).for_each(|one| one.share = 0.04);
        }),
        ("That is for job.sequence", |all| all.fixed.clear()),
        ("pays below 0.700", |all| all.regime.as_mut().unwrap().edge = Edge::Here),
        ("it pays for 1: A", |all| all.regime.as_mut().unwrap().marks[0].gain = Some(1.005)),
        ("cannot run (too large)", |all| all.regime.as_mut().unwrap().why = None),
        ("beyond the study's axes", |all| all.rankings[0].chosen.clear()),
        ("Part of that is whole steps", |all| all.steps = Some(around(1.8, 1.8, 1.8))),
        ("without a codec.", |all| all.best = "uncompressed".into()),
        ("It is the best from 9,000 to 800,000 mm²", |all| all.budget_mm2 = None),
        ("With network cards at 300 Gbit/s or more", |all| all.limits.clear()),
        ("rests most on the goodput", |all| {
            all.sensitivities
                .iter_mut()
                .for_each(|sensitivity| sensitivity.low.over_baseline = sensitivity.high.over_baseline);
        }),
        ("makes another the best", |all| all.sensitivities[1].high.best = Some("line".into())),
    ];
    let whole = answer(&everything()).0.join("\n");
    for (sentence, change) in unfit {
        assert!(whole.contains(sentence), "never said: {sentence}\n{whole}");
        let mut all = everything();
        change(&mut all);
        let said = answer(&all).0.join("\n");
        assert!(!said.contains(sentence), "said all the same: {sentence}\n{said}");
    }
}

#[test]
fn cluster_answer_odds_and_map_open_it() {
    let (said, opening) = answer(&everything());
    let opened = said[..opening].join("\n");
    for part in ["8 × h100.", "build line", "drawn together", "well-known ones"] {
        assert!(opened.contains(part), "{opened}");
    }
    assert!(!opened.contains("Its time goes into") && said.len() > opening, "{opened}");
}

#[test]
fn the_first_line_is_the_cluster() {
    let mut all = found();
    all.setting = Some(setting("8 × h100, 8 a node"));
    assert_eq!(answer(&all).0[0], "8 × h100, 8 a node.");
}

#[test]
fn what_the_model_was_off_by_is_told_where_it_was_measured() {
    let mut all = found();
    assert_eq!(model(&all).unwrap(), "The cluster model was off by 7.5 % on runs.");
    all.certainty.clear();
    assert_eq!(model(&all), None, "nothing was measured");
}
