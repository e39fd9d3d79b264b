//! What a training run sent, and how fast it coded, is what a sweep computes with.

use crate::says;
use std::fs;
use std::path::Path;
use trinity_sim::sweep::Point;
use trinity_study::calibration::Measurements;
use trinity_study::sweep::{Study, SweepRequest};

const RECORDING: &str = include_str!("../../../validation/data/training/runs.csv");
const SUMMARY: &str = r#"{"seed": 1, "valid_bits_per_byte": 1.7, "bits_per_value": 1.25, "activation_bits": 0.0,
 "gradient_bits": 0.0, "encode_values_per_s": 2e9, "decode_values_per_s": 3e9, "choices": {"text": 0.5}}"#;

/// A sweep in which one scenario's line about its run is `run`.
fn sweep(run: &str) -> String {
    format!(
        "extends = \"sweeps/trained-gradients\"\nscenarios = [\n  {{ name = \"uncoded\" }},\n  {{ name = \"coded\", {run}, \
         set = [\"cluster.codec.extends=codecs/line-h200\"] }},\n]\n"
    )
}

fn load(path: &Path) -> Result<Study, trinity_study::Error> {
    Study::load(&SweepRequest { sweep: path.display().to_string(), ..SweepRequest::default() })
}

fn point(study: &Study, scenario: &str) -> Point {
    study.plan.space.scenarios().iter().find(|one| one.name == scenario).unwrap().base
}

/// The mean of a column over the rows of a run, by hand.
fn recorded(run: &str, column: &str) -> f64 {
    let mut lines = RECORDING.lines();
    let at = lines.next().unwrap().split(',').position(|name| name == column).unwrap();
    let fields = lines.map(|line| line.split(',').collect::<Vec<_>>()).filter(|fields| fields[0] == run);
    let numbers: Vec<f64> = fields.map(|fields| fields[at].parse().unwrap()).collect();
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn close(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 1e-4, "{found} in place of {wanted}");
}

#[test]
fn the_built_in_sweep_uses_what_the_recording_has() {
    let study =
        Study::load(&SweepRequest { sweep: "sweeps/trained-gradients".into(), ..SweepRequest::default() })
            .unwrap();
    for (scenario, run) in [("line-1.4", "t1.4-v"), ("line-0.8", "t0.8-v"), ("loop-1.4", "t1.4-v")] {
        let bits = point(&study, scenario).job.compression.weight_gradient_bits.unwrap();
        close(bits, recorded(run, "bits_per_value"));
    }
    assert_eq!(point(&study, "uncoded").job.compression.weight_gradient_bits, None);
    let cluster = point(&study, "loop-1.4").cluster;
    let codec = cluster.codec;
    close(codec.encode_values_per_s, recorded("timing-85M-t1.4-v", "encode_values_per_s"));
    close(codec.decode_values_per_s, recorded("timing-85M-t1.4-v", "decode_values_per_s"));
    close(codec.gpu_share * cluster.codecs_per_gpu, 1.0);
    // Slower, at the joules that were measured of the codec alone.
    let line = point(&study, "line-1.4").cluster.codec;
    close(codec.encode_j_per_value, line.encode_j_per_value);
    let said = study.replaced.iter().find(|one| one.scenario == "line-0.8").unwrap();
    assert_eq!((said.path.as_str(), said.before.as_str()), ("job.compression.weight-gradients", "not said"));
    assert!(said.source.contains("runs.csv, run t0.8-v, mean of"), "{}", said.source);
}

#[test]
fn a_run_of_ones_own_is_seen_from_the_sweeps_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("run")).unwrap();
    fs::write(folder.path().join("run/summary.json"), SUMMARY).unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, sweep("trained = \"run/summary.json\", timed = \"run/summary.json\"")).unwrap();
    let coded = point(&load(&file).unwrap(), "coded");
    close(coded.job.compression.weight_gradient_bits.unwrap(), 1.25);
    close(coded.cluster.codec.encode_values_per_s, 2e9);
    close(coded.cluster.codec.decode_values_per_s, 3e9);
}

#[test]
fn a_summary_is_a_calibration_of_every_scenario_that_codes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary.json");
    fs::write(&path, SUMMARY).unwrap();
    let load =
        |sweep: &str| Study::load(&SweepRequest { sweep: sweep.into(), ..SweepRequest::default() }).unwrap();
    let study = load("sweeps/trained-gradients").calibrated(Measurements::read(&path).unwrap()).unwrap();
    assert_eq!(point(&study, "uncoded").job.compression.weight_gradient_bits, None);
    for scenario in ["line-1.4", "line-0.8", "loop-1.4"] {
        close(point(&study, scenario).job.compression.weight_gradient_bits.unwrap(), 1.25);
        close(point(&study, scenario).cluster.codec.encode_values_per_s, 2e9);
    }
    // Varied, it stays calibrated.
    let varied = study.with("study.job.parallelism.data=128").unwrap();
    close(point(&varied, "line-0.8").job.compression.weight_gradient_bits.unwrap(), 1.25);
    let refused = load("sweeps/kv-spill").calibrated(Measurements::read(&path).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("no scenario of this sweep has a codec for what"), "{refused}");
    fs::write(&path, "{").unwrap();
    assert!(Measurements::read(&path).unwrap_err().to_string().contains("summary.json:1:1"));
}

#[test]
fn a_run_that_is_not_there_is_pointed_at() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    for (run, parts) in [
        ("trained = \"t1.4-w\"", &["mine.toml:4:", "has no run `t1.4-w`", "did you mean `t1.4-v`?"][..]),
        ("trained = \"none\"", &["mine.toml:4:", "sent everything as it is"]),
        ("trained = \"run/summary.json\"", &["mine.toml:4:", "cannot read"]),
        ("timed = \"t1.4-v\"", &["mine.toml:4:", "has no seconds of coding"]),
    ] {
        fs::write(&file, sweep(run)).unwrap();
        let said = load(&file).expect_err("no such run").to_string();
        let help = load(&file).unwrap_err().help().unwrap_or_default().to_owned();
        says(format!("{said}\n{help}"), parts);
    }
}
