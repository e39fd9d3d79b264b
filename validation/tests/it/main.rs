//! Promises of the validation crate.
#![allow(clippy::unwrap_used)]
use std::path::{Path, PathBuf};
use trinity_validation::runs::{Run, Set};
use trinity_validation::validate::{Truth, ValidationRequest, validate};

fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/runs").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here", path.display());
    None
}

fn breached(assignments: &[String]) -> Vec<String> {
    let request = ValidationRequest { assignments: assignments.to_vec(), ..ValidationRequest::default() };
    let outcome = validate(&Truth::read(&request).unwrap()).unwrap();
    outcome.breaches.iter().map(ToString::to_string).collect()
}

#[test]
fn the_committed_data_breach_no_bar() {
    assert_eq!(breached(&[]), Vec::<String>::new());
}

/// A physical constant that is off by a fifth must not pass unnoticed.
#[test]
fn a_constant_off_by_a_fifth_breaches_a_bar() {
    let truth = Truth::read(&ValidationRequest::default()).unwrap();
    let now = truth.calibrations.get("a100.gpu.gemm_efficiency").unwrap();
    for factor in [0.8, 1.2] {
        let changed = format!("a100.gpu.gemm-efficiency={}", now * factor);
        assert!(!breached(std::slice::from_ref(&changed)).is_empty(), "{changed}");
    }
}

#[test]
fn a_malformed_row_is_counted_and_the_rest_is_scored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.csv");
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/published_runs.csv");
    let published = std::fs::read_to_string(published).unwrap();
    let mut lines: Vec<String> = published.lines().map(str::to_owned).collect();
    let rows = lines.len();
    lines[2] = lines[2].replacen(",30,", ",thirty,", 1);
    lines[3] = "short,row".to_owned();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let truth = Truth::read(&ValidationRequest { runs: vec![path], ..ValidationRequest::default() }).unwrap();
    let mut places: Vec<(usize, usize)> = truth.malformed.iter().map(|p| (p.line, p.column)).collect();
    places.sort_unstable();
    assert_eq!(places.iter().map(|place| place.0).collect::<Vec<_>>(), [3, 4], "{:?}", truth.malformed);
    assert!(truth.malformed.iter().any(|problem| problem.message.contains("`thirty`")));
    // Every other row is a committed one again, or too incomplete in both.
    let incomplete = truth.incomplete.len() / 2;
    assert_eq!(truth.repeated, rows - 1 - 2 - incomplete);
}

#[test]
#[ignore = "takes long: cargo xtask test --all"]
fn every_bar_holds_on_the_shared_runs() {
    let (Some(runs), Some(oom), Some(collectives)) =
        (shared("training_runs.csv"), shared("oom.csv"), shared("collectives.csv"))
    else {
        return;
    };
    let request = ValidationRequest {
        runs: vec![runs],
        oom: vec![oom],
        collectives: vec![collectives],
        ..ValidationRequest::default()
    };
    let truth = Truth::read(&request).unwrap();
    assert!(truth.malformed.is_empty());
    let outcome = validate(&truth).unwrap();
    assert!(outcome.breaches.is_empty(), "{:?}", outcome.breaches);
}

#[test]
fn a_stray_assignment_is_an_error() {
    let request =
        ValidationRequest { assignments: vec!["b200.gpu.x=1".to_owned()], ..ValidationRequest::default() };
    assert!(Truth::read(&request).unwrap_err().to_string().contains("b200.gpu.x"));
}

/// What answers is what was checked: a row written as a study and read back
/// through the path of `trinity estimate` has `validate`'s number.
#[test]
fn every_row_as_a_study_gives_the_number_of_validate_to_the_last_digit() {
    let tables = ["training_runs.csv", "modern/training.csv"];
    let runs = tables.iter().filter_map(|name| shared(name)).collect();
    let truth = Truth::read(&ValidationRequest { runs, ..ValidationRequest::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut checked, mut answered) = (0, 0);
    // Rows of the large old sets are written alike: a few of each stand for all; every one with TRINITY_GRID=full.
    let step = if std::env::var("TRINITY_GRID").is_ok_and(|grid| grid == "full") { 1 } else { 29 };
    let recent = |run: &Run| matches!(run.set, Set::MegatronBridge | Set::MlperfTraining | Set::Nemo);
    let asked = |(at, run): &(usize, &Run)| at % step == 0 || *at < 60 || recent(run);
    for (at, run) in truth.runs.iter().enumerate().filter(asked) {
        let Ok(expected) = trinity_validation::training::predict(&truth.calibrations, run) else { continue };
        let document = trinity_config::Document::parse("row", &run.text).unwrap();
        for part in ["cluster", "job"] {
            assert!(document.table(part).is_some(), "row {at}: no {part}");
        }
        let path = folder.path().join(format!("{at}.toml"));
        let sweep = format!(
            "title = \"row {at}\"\nobjectives = [\"max tokens-per-s\"]\n{}",
            run.text.replace("[cluster]", "[study.cluster]").replace("[job", "[study.job")
        );
        std::fs::write(&path, sweep).unwrap();
        let name = path.to_str().unwrap().to_owned();
        let request = trinity_study::estimate::EstimateRequest {
            cluster: trinity_study::estimate::Part::OfSweep(name.clone()),
            job: trinity_study::estimate::Part::OfSweep(name),
            overrides: Vec::new(),
        };
        let study = trinity_study::estimate::Study::load(&request).unwrap();
        // Runs of which the model says that they did not fit had the memory all the same.
        let mut point = study.point;
        match study.outcome() {
            Ok(outcome) => {
                assert_eq!(outcome.estimate.iteration_s.to_bits(), expected.to_bits(), "row {at}");
                answered += 1;
            }
            Err(why) => {
                assert!(!recent(run), "row {at}, {}: {why}", run.describe());
                point.cluster.gpu.memory_bytes = f64::MAX;
            }
        }
        let point = point.chosen().unwrap();
        let found = trinity_sim::time(&point.cluster, &point.job).unwrap().total_s();
        assert_eq!(found.to_bits(), expected.to_bits(), "row {at}, {}", run.describe());
        checked += 1;
    }
    assert!(checked > 30 && 2 * answered > checked, "{answered} of {checked} rows answered");
}

/// Llama 3 405B on 8,192 H100 was 18 % too slow for want of a GB: it had no room
/// for interleaved stages.
#[test]
fn twelve_well_known_runs_are_within_fifteen_percent() {
    let truth = Truth::read(&ValidationRequest::default()).unwrap();
    let table = trinity_validation::well_known::table(&truth.calibrations).unwrap();
    assert_eq!(table.len(), 12);
    for run in &table {
        assert!(run.error.abs() < 0.15, "{}: {:+.1} %", run.run, 100.0 * run.error);
    }
}

#[test]
fn what_ran_of_the_recent_runs_fits_and_what_ran_out_of_memory_does_not() {
    let (Some(runs), Some(recent), Some(oom)) =
        (shared("training_runs.csv"), shared("modern/training.csv"), shared("oom.csv"))
    else {
        return;
    };
    let request =
        ValidationRequest { runs: vec![runs, recent], oom: vec![oom], ..ValidationRequest::default() };
    let truth = Truth::read(&request).unwrap();
    let capacity = trinity_validation::capacity::score(&truth.calibrations, &truth.runs, &truth.failures);
    let accuracy = capacity.balanced_accuracy().unwrap();
    assert!(accuracy >= 0.95, "{accuracy}");
    assert!(capacity.wrong_fits.iter().all(|wrong| wrong.starts_with("Llama-")), "{:?}", capacity.wrong_fits);
}
