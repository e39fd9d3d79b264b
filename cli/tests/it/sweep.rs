//! `trinity sweep`: the paper's study, shards, resuming, and nonsense.

use crate::support::trinity_in;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs the command in an empty folder; gives exit code, stdout and stderr.
fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let run = trinity_in(folder, args.iter().copied());
    (run.code(), run.stdout(), run.stderr())
}

#[test]
fn the_papers_study_runs_without_arguments_and_reaches_its_headlines() {
    let folder = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = run(folder.path(), &["sweep"]);
    assert_eq!(code, 0, "{stderr}");
    for number in ["1.70×", "1.60×", "31.7×", "4.32×", "376×", "4.93×"] {
        assert!(stdout.contains(number), "{number} is missing:\n{stdout}");
    }
    let out = folder.path().join("out/sweep/llama-7b");
    let pareto = fs::read_to_string(out.join("pareto.csv")).unwrap();
    let header = "scenario,index,area_mm2,tokens_per_s,normalized_performance,energy_j_per_token,";
    assert!(pareto.starts_with(header), "{pareto}");
    assert!(fs::read_to_string(out.join("points.csv")).unwrap().lines().count() > 2000);
    assert!(out.join("report.html").exists());
    let (_, stdout, _) = run(folder.path(), &["sweep", "--json", "--quiet"]);
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    for (ours, paper) in [("speedup", 1.7), ("area_saving", 1.6)] {
        let ours = result["headline"][ours].as_f64().unwrap();
        assert!((ours / paper - 1.0).abs() < 0.15, "{ours} instead of {paper}");
    }
}

#[test]
fn shards_merge_to_the_same_bytes_for_any_number() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = "sweeps/figure-15";
    assert_eq!(run(folder.path(), &["sweep", sweep, "--out", "whole", "-q", "--threads", "2"]).0, 0);
    for count in [2, 7] {
        let shards = format!("shards-{count}");
        for index in 0..count {
            let shard = format!("{index}/{count}");
            let args = ["sweep", sweep, "--out", &shards, "--shard", &shard, "-q", "--threads", "1"];
            assert_eq!(run(folder.path(), &args).0, 0);
        }
        let merged = format!("merged-{count}");
        let (code, _, stderr) = run(folder.path(), &["sweep", "merge", &shards, "--out", &merged, "-q"]);
        assert_eq!(code, 0, "{stderr}");
        for file in ["points.csv", "pareto.csv", "axes.csv", "report.html"] {
            let (a, b) = (folder.path().join("whole").join(file), folder.path().join(&merged).join(file));
            assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{file} differs for {count} shards");
        }
    }
    fs::remove_file(folder.path().join("shards-7/shard-00003-of-00007.json")).unwrap();
    let (code, _, stderr) = run(folder.path(), &["sweep", "merge", "shards-7", "--out", "never"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("are missing"), "{stderr}");
}

/// A study of 156,600 points: a few seconds of work for a test build.
const LONG: [&str; 6] = [
    "sweep",
    "sweeps/llama-7b-wide",
    "--set",
    "axes.0.range={ from = 1, to = 1, step = 1 }",
    "--set",
    "axes.1.values=[8]",
];

#[test]
fn a_killed_run_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let args = |out: &'static str| LONG.into_iter().chain(["--points", "all", "--out", out]);
    assert_eq!(trinity_in(folder.path(), args("whole")).code(), 0);
    // Killed, not asked to stop, as soon as it has written down where it is.
    let mut running = Command::new(env!("CARGO_BIN_EXE_trinity"))
        .args(args("killed").chain(["-q", "--threads", "1"]))
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let state = folder.path().join("killed/shard-00000-of-00001.json");
    while !state.exists() && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    running.kill().unwrap();
    assert!(!running.wait().unwrap().success(), "it was done before it could be killed");
    assert!(!folder.path().join("killed/pareto.csv").exists(), "a killed run left a result");
    let resumed = trinity_in(folder.path(), args("killed"));
    assert_eq!(resumed.code(), 0);
    let stderr = resumed.stderr();
    let at = stderr.split_once("going on at point ").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0;
    assert!(at.parse::<u64>().unwrap() > 0, "{stderr}");
    for file in ["points.csv", "pareto.csv", "axes.csv", "report.html"] {
        let read = |out: &str| fs::read(folder.path().join(out).join(file)).unwrap();
        assert!(read("whole") == read("killed"), "{file} differs");
    }
    assert!(!state.exists(), "a finished run needs no checkpoint");
}

#[test]
fn a_damaged_checkpoint_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["sweep", "sweeps/figure-15", "--out", "s", "--shard", "0/2"];
    assert_eq!(run(folder.path(), &args).0, 0);
    let path = folder.path().join("s/shard-00000-of-00002.json");
    let whole = fs::read(&path).unwrap();
    // Digits of the tally: another digit is as good a number as the one that was there.
    let tally = whole.windows(7).position(|found| found == b"\"tally\"").unwrap();
    let digits: Vec<usize> = (tally..whole.len()).filter(|&at| whole[at].is_ascii_digit()).collect();
    for &at in digits.iter().step_by(digits.len().div_ceil(12)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let (code, _, stderr) = run(folder.path(), &args);
        assert!(code == 2 && stderr.contains("checksum"), "byte {at}: {stderr}");
        let (code, _, stderr) = run(folder.path(), &["sweep", "merge", "s", "--out", "merged"]);
        assert!(code == 2 && stderr.contains("checksum"), "byte {at}: {stderr}");
    }
    fs::write(&path, &whole).unwrap();
    let (code, _, stderr) = run(folder.path(), &args);
    assert!(code == 0 && stderr.contains("going on"), "{stderr}");
}

#[test]
fn rows_written_after_the_last_checkpoint_are_not_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = "sweeps/figure-15";
    let shard = |out: &str| run(folder.path(), &["sweep", sweep, "--out", out, "--shard", "0/1"]);
    assert_eq!(shard("whole").0, 0);
    // What a kill leaves: a state that lags behind the rows.
    fs::create_dir(folder.path().join("killed")).unwrap();
    let name = "shard-00000-of-00001";
    let text = fs::read_to_string(folder.path().join(format!("whole/{name}.json"))).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = fs::read(folder.path().join(format!("whole/{name}.rows"))).unwrap();
    let one = run(folder.path(), &["sweep", sweep, "--out", "first", "--shard", "0/2"]);
    assert_eq!(one.0, 0);
    let half = fs::read_to_string(folder.path().join("first/shard-00000-of-00002.json")).unwrap();
    let half: serde_json::Value = serde_json::from_str(&half).unwrap();
    // Written by hand, as before there were checksums.
    state.as_object_mut().unwrap().remove("checksum").unwrap();
    for key in ["next", "rows_bytes", "tally"] {
        state[key] = half[key].clone();
    }
    fs::write(folder.path().join(format!("killed/{name}.json")), state.to_string()).unwrap();
    fs::write(folder.path().join(format!("killed/{name}.rows")), &rows[..rows.len() * 3 / 4]).unwrap();
    let (code, _, stderr) = shard("killed");
    assert_eq!(code, 0);
    assert!(stderr.contains("going on at point"), "{stderr}");
    for out in ["whole", "killed"] {
        let (code, _, stderr) =
            run(folder.path(), &["sweep", "merge", out, "--out", &format!("{out}-merged")]);
        assert_eq!(code, 0, "{stderr}");
    }
    for file in ["points.csv", "pareto.csv"] {
        let read = |out: &str| fs::read(folder.path().join(out).join(file)).unwrap();
        assert!(read("whole-merged") == read("killed-merged"), "{file} differs");
    }
}

#[test]
fn explain_shows_the_formula_behind_each_line() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["sweep", "explain", "0", "sweeps/slow-wires", "--trace", "trace.json"];
    let (code, stdout, stderr) = run(folder.path(), &args);
    assert_eq!(code, 0, "{stderr}");
    for word in ["forward", "bubble", "iteration", "sum of the lines above", "mm²"] {
        assert!(stdout.contains(word), "{word} is missing:\n{stdout}");
    }
    let trace = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 8);
    assert_eq!(run(folder.path(), &["sweep", "explain", "99999999"]).0, 2);
}

#[test]
fn nonsense_gets_one_diagnostic_and_exit_2() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("study.cluster.nic.area=-1 mm2", "-1 mm2"),
        ("study.job.parallelism.tensor=3", "does not divide the 32 heads"),
        ("study.job.llm.layers=1", "only 1 layers"),
        ("study.cluster.nics-per-gpu=0", "no NIC"),
        ("study.cluster.nic.bandwith=1 Gbit/s", "bandwidth"),
        ("study.job.parallelism.zero=4", "no ZeRO stage 4"),
    ];
    let text = "
title = \"a study\"
axes = [{ path = \"job.parallelism.pipeline\", values = [2, 4] }, { path = \"job.parallelism.data\", values = [2, 4] }]
scenarios = [{ name = \"plain\" }]
[study]
cluster = { extends = \"clusters/rtx3090-cx5\" }
[study.job]
phase = \"training\"
sequence = 2048
replica-batch = 8
recompute = \"full\"
llm = { extends = \"llms/llama-2-7b\" }
parallelism = { zero = 1 }
";
    fs::write(folder.path().join("study.toml"), text).unwrap();
    assert_eq!(run(folder.path(), &["sweep", "study.toml"]).0, 0);
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    // The same mistakes written into the file are shown there, with a caret.
    let cluster = "\"clusters/rtx3090-cx5\" }";
    let stages = "job.parallelism.pipeline\", values = [2, 4]";
    for (right, wrong, expected) in [
        (cluster, "\"clusters/rtx3090-cx5\", nic = { area = \"-1 mm2\" } }", "-1 mm2"),
        (cluster, "\"clusters/rtx3090-cx5\", nics-per-gpu = 0 }", "no NIC"),
        ("zero = 1 }", "zero = 1, tensor = 3 }", "32 heads"),
        (stages, "job.parallelism.pipeline\", values = [64, 128]", "only 32 layers"),
    ] {
        assert!(text.contains(right));
        fs::write(folder.path().join("wrong.toml"), text.replace(right, wrong)).unwrap();
        let (code, _, stderr) = run(folder.path(), &["sweep", "wrong.toml", "-q"]);
        assert_eq!(code, 2, "{expected}: {stderr}");
        assert_eq!(stderr.matches("error:").count(), 1, "{stderr}");
        for part in ["wrong.toml:", "^", expected] {
            assert!(stderr.contains(part), "{part} is missing: {stderr}");
        }
    }
    for (assignment, expected) in cases {
        let (code, _, stderr) =
            run(folder.path(), &["sweep", "study.toml", "-q", "--set", assignment, "--out", "out"]);
        assert_eq!(code, 2, "{assignment}: {stderr}");
        assert_eq!(stderr.matches("error:").count(), 1, "{stderr}");
        assert!(stderr.contains(expected), "{assignment}: {stderr}");
        assert!(!folder.path().join("out/pareto.csv").exists(), "{assignment} left half a result");
    }
}

#[test]
fn a_calibration_replaces_what_was_configured_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/h200/calibration.toml");
    let best = |args: &[&str]| {
        let (code, stdout, stderr) = run(folder.path(), args);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<serde_json::Value>(&stdout).unwrap()
    };
    let plain = best(&["sweep", "sweeps/kv-spill", "--json", "-q"]);
    let measured =
        best(&["sweep", "sweeps/kv-spill", "--json", "-q", "--out", "measured", "--calibration", file]);
    assert_eq!(plain["calibration"].as_array().unwrap().len(), 0);
    let replaced = measured["calibration"].as_array().unwrap();
    let decoder = replaced.iter().find(|r| r["path"] == "cluster.codec.decoder.throughput").unwrap();
    assert_eq!(decoder["scenario"], "nvdec");
    assert!(decoder["source"].as_str().unwrap().contains("NVIDIA H200"), "{decoder}");
    // The scenario with its own silicon keeps it; all share the host's wire.
    let touched = |name: &str| replaced.iter().filter(|r| r["scenario"] == name).count();
    assert!(touched("nvdec") > touched("three-in-one") && touched("raw") == touched("three-in-one"));
    assert_ne!(plain["fronts"][1], measured["fronts"][1]);
    let page = fs::read_to_string(folder.path().join("measured/report.html")).unwrap();
    assert!(page.contains("Measured values in use"));

    let (code, stdout, _) =
        run(folder.path(), &["sweep", "explain", "100", "sweeps/kv-spill", "--calibration", file]);
    assert!(code == 0 && stdout.contains("one of 7 hevc decoders"), "{stdout}");
    let (code, _, stderr) = run(folder.path(), &["sweep", "sweeps/figure-15", "--calibration", file]);
    assert!(code == 2 && stderr.contains("engine"), "{stderr}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_names_the_feature_before_it_sweeps() {
    let folder = tempfile::tempdir().unwrap();
    let stderr = trinity_in(folder.path(), ["sweep", "--format", "parquet"]).refused();
    assert!(stderr.contains("--features parquet"), "{stderr}");
    assert!(!folder.path().join("out").exists());
}

#[cfg(feature = "parquet")]
#[test]
fn points_in_parquet_are_those_of_the_csv_for_any_number_of_shards() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let run = trinity_in(folder.path(), args.iter().copied().chain(["-q"]));
        assert_eq!(run.code(), 0, "{}", run.stderr());
    };
    // 69,600 of its points fill more than a row group.
    let fewer = [
        "--set",
        "axes.1.values=[8]",
        "--set",
        "axes.2.values=[\"none\", \"full\"]",
        "--set",
        "axes.4.range={ from = 0.5, to = 0.8, step = 0.1 }",
    ];
    let long = |more: &[&'static str]| run(&[&LONG[..], &fewer, more].concat());
    long(&["--out", "whole"]);
    long(&["--out", "whole", "--format", "parquet"]);
    for shard in ["0/3", "1/3", "2/3"] {
        long(&["--out", "parts", "--shard", shard]);
    }
    run(&["sweep", "merge", "parts", "--out", "merged", "--format", "parquet"]);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("whole/points.parquet") == read("merged/points.parquet"), "shards show in the file");

    let table =
        SerializedFileReader::new(fs::File::open(folder.path().join("whole/points.parquet")).unwrap())
            .unwrap();
    assert!(table.metadata().num_row_groups() > 1);
    let csv = String::from_utf8(read("whole/points.csv")).unwrap();
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut rows = 0;
    for (line, row) in lines.zip(table.get_row_iter(None).unwrap()) {
        let row = row.unwrap();
        for ((name, field), (cell, column)) in row.get_column_iter().zip(line.split(',').zip(&header)) {
            let same = match field {
                Field::Null => cell.is_empty(),
                Field::Str(text) => text == cell,
                Field::Long(value) => cell.parse() == Ok(*value),
                Field::Double(value) => cell.parse() == Ok(*value),
                _ => false,
            };
            assert!(name == column && same, "row {rows}, {name}: {field} is not {cell}");
        }
        rows += 1;
    }
    assert_eq!(rows, csv.lines().count() - 1);
    let types = table.metadata().file_metadata().schema_descr().columns().to_vec();
    let of = |name: &str| types.iter().find(|c| c.name() == name).unwrap().physical_type().to_string();
    assert_eq!(of("job.parallelism.data"), "INT64");
    assert_eq!(of("cluster.nics-per-gpu"), "DOUBLE");
    assert_eq!(of("job.recompute"), "BYTE_ARRAY");
}
