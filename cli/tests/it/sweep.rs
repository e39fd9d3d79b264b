//! `trinity sweep`: the paper's study, shards, resuming, and nonsense.

use crate::support::Desk;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn the_papers_study_runs_without_arguments_and_reaches_its_headlines() {
    let desk = Desk::new();
    let stdout = desk.ok("sweep");
    for number in ["1.70×", "1.60×", "31.7×", "4.32×", "376×", "4.93×"] {
        assert!(stdout.contains(number), "{number} is missing:\n{stdout}");
    }
    let out = desk.at("out/sweep/llama-7b");
    let pareto = fs::read_to_string(out.join("pareto.csv")).unwrap();
    let header = "scenario,index,area_mm2,tokens_per_s,normalized_performance,energy_j_per_token,";
    assert!(pareto.starts_with(header), "{pareto}");
    assert!(fs::read_to_string(out.join("points.csv")).unwrap().lines().count() > 2000);
    assert!(out.join("report.html").exists());
    let result = desk.json("sweep --json --quiet");
    for (ours, paper) in [("speedup", 1.7), ("area_saving", 1.6)] {
        let ours = result["headline"][ours].as_f64().unwrap();
        assert!((ours / paper - 1.0).abs() < 0.15, "{ours} instead of {paper}");
    }
}

#[test]
fn shards_merge_to_the_same_bytes_for_any_number() {
    let desk = Desk::new();
    let sweep = "sweeps/figure-15";
    desk.ok(format!("sweep {sweep} --out whole -q --threads 2"));
    for count in [2, 7] {
        let shards = format!("shards-{count}");
        for index in 0..count {
            let shard = format!("{index}/{count}");
            desk.ok(format!("sweep {sweep} --out {shards} --shard {shard} -q --threads 1"));
        }
        let merged = format!("merged-{count}");
        desk.ok(format!("sweep merge {shards} --out {merged} -q"));
        for file in ["points.csv", "pareto.csv", "axes.csv", "report.html"] {
            let (a, b) = (desk.at(format!("whole/{file}")), desk.at(format!("{merged}/{file}")));
            assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{file} differs for {count} shards");
        }
    }
    fs::remove_file(desk.at("shards-7/shard-00003-of-00007.json")).unwrap();
    let stderr = desk.refused("sweep merge shards-7 --out never");
    assert!(stderr.contains("are missing"), "{stderr}");
}

/// A study of 156,600 points: a few seconds of work for a test build.
const LONG: &str = "sweep sweeps/llama-7b-wide --set axes.1.values=[8] \
    --set 'axes.0.range={ from = 1, to = 1, step = 1 }'";

#[test]
fn a_killed_run_goes_on_where_it_stopped() {
    let desk = Desk::new();
    let line = |out: &str| format!("{LONG} --points all --out {out}");
    desk.ok(line("whole"));
    // Killed, not asked to stop, as soon as it has written down where it is.
    let once = format!("{} -q --threads 1", line("killed"));
    let mut running = desk.command(&once).stdout(Stdio::null()).spawn().unwrap();
    let state = desk.at("killed/shard-00000-of-00001.json");
    while !state.exists() && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    running.kill().unwrap();
    assert!(!running.wait().unwrap().success(), "it was done before it could be killed");
    assert!(!desk.at("killed/pareto.csv").exists(), "a killed run left a result");
    let resumed = desk.run(line("killed"));
    resumed.ok();
    let stderr = resumed.stderr();
    let at = stderr.split_once("going on at point ").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0;
    assert!(at.parse::<u64>().unwrap() > 0, "{stderr}");
    for file in ["points.csv", "pareto.csv", "axes.csv", "report.html"] {
        let read = |out: &str| desk.read(format!("{out}/{file}"));
        assert!(read("whole") == read("killed"), "{file} differs");
    }
    assert!(!state.exists(), "a finished run needs no checkpoint");
}

#[test]
fn a_damaged_checkpoint_is_noticed() {
    let desk = Desk::new();
    let shard = "sweep sweeps/figure-15 --out s --shard 0/2";
    desk.ok(shard);
    let path = desk.at("s/shard-00000-of-00002.json");
    let whole = fs::read(&path).unwrap();
    // Digits of the tally: another digit is as good a number as the one that was there.
    let tally = whole.windows(7).position(|found| found == b"\"tally\"").unwrap();
    let digits: Vec<usize> = (tally..whole.len()).filter(|&at| whole[at].is_ascii_digit()).collect();
    for &at in digits.iter().step_by(digits.len().div_ceil(12)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let stderr = desk.refused(shard);
        assert!(stderr.contains("checksum"), "byte {at}: {stderr}");
        let stderr = desk.refused("sweep merge s --out merged");
        assert!(stderr.contains("checksum"), "byte {at}: {stderr}");
    }
    fs::write(&path, &whole).unwrap();
    let again = desk.run(shard);
    assert!(again.code() == 0 && again.stderr().contains("going on"), "{}", again.stderr());
}

#[test]
fn rows_written_after_the_last_checkpoint_are_not_written_twice() {
    let desk = Desk::new();
    let sweep = "sweeps/figure-15";
    let shard = |out: &str| desk.run(format!("sweep {sweep} --out {out} --shard 0/1"));
    shard("whole").ok();
    // What a kill leaves: a state that lags behind the rows.
    fs::create_dir(desk.at("killed")).unwrap();
    let name = "shard-00000-of-00001";
    let text = desk.text(format!("whole/{name}.json"));
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = desk.read(format!("whole/{name}.rows"));
    desk.ok(format!("sweep {sweep} --out first --shard 0/2"));
    let half = desk.text("first/shard-00000-of-00002.json");
    let half: serde_json::Value = serde_json::from_str(&half).unwrap();
    // Written by hand, as before there were checksums.
    state.as_object_mut().unwrap().remove("checksum").unwrap();
    for key in ["next", "rows_bytes", "tally"] {
        state[key] = half[key].clone();
    }
    desk.write(format!("killed/{name}.json"), state.to_string());
    desk.write(format!("killed/{name}.rows"), &rows[..rows.len() * 3 / 4]);
    let resumed = shard("killed");
    assert_eq!(resumed.code(), 0);
    assert!(resumed.stderr().contains("going on at point"), "{}", resumed.stderr());
    for out in ["whole", "killed"] {
        desk.ok(format!("sweep merge {out} --out {out}-merged"));
    }
    for file in ["points.csv", "pareto.csv"] {
        let read = |out: &str| desk.read(format!("{out}/{file}"));
        assert!(read("whole-merged") == read("killed-merged"), "{file} differs");
    }
}

#[test]
fn explain_shows_the_formula_behind_each_line() {
    let desk = Desk::new();
    let stdout = desk.ok("sweep explain 0 sweeps/slow-wires --trace trace.json");
    for word in ["forward", "bubble", "iteration", "sum of the lines above", "mm²"] {
        assert!(stdout.contains(word), "{word} is missing:\n{stdout}");
    }
    let trace = desk.text("trace.json");
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 8);
    desk.refused("sweep explain 99999999");
}

#[test]
fn nonsense_gets_one_diagnostic_and_exit_2() {
    let desk = Desk::new();
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
    desk.write("study.toml", text);
    desk.ok("sweep study.toml");
    fs::remove_dir_all(desk.at("out")).unwrap();
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
        desk.write("wrong.toml", text.replace(right, wrong));
        let stderr = desk.refused("sweep wrong.toml -q");
        assert_eq!(stderr.matches("error:").count(), 1, "{stderr}");
        for part in ["wrong.toml:", "^", expected] {
            assert!(stderr.contains(part), "{part} is missing: {stderr}");
        }
    }
    for (assignment, expected) in cases {
        let stderr = desk.refused(format!("sweep study.toml -q --set '{assignment}' --out out"));
        assert_eq!(stderr.matches("error:").count(), 1, "{stderr}");
        assert!(stderr.contains(expected), "{assignment}: {stderr}");
        assert!(!desk.at("out/pareto.csv").exists(), "{assignment} left half a result");
    }
}

#[test]
fn a_calibration_replaces_what_was_configured_and_says_so() {
    let desk = Desk::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/h200/calibration.toml");
    let plain = desk.json("sweep sweeps/kv-spill --json -q");
    let measured = desk.json(format!("sweep sweeps/kv-spill --json -q --out measured --calibration {file}"));
    assert_eq!(plain["calibration"].as_array().unwrap().len(), 0);
    let replaced = measured["calibration"].as_array().unwrap();
    let decoder = replaced.iter().find(|r| r["path"] == "cluster.codec.decoder.throughput").unwrap();
    assert_eq!(decoder["scenario"], "nvdec");
    assert!(decoder["source"].as_str().unwrap().contains("NVIDIA H200"), "{decoder}");
    // The scenario with its own silicon keeps it; all share the host's wire.
    let touched = |name: &str| replaced.iter().filter(|r| r["scenario"] == name).count();
    assert!(touched("nvdec") > touched("three-in-one") && touched("raw") == touched("three-in-one"));
    assert_ne!(plain["fronts"][1], measured["fronts"][1]);
    let page = desk.text("measured/report.html");
    assert!(page.contains("Measured values in use"));

    let stdout = desk.ok(format!("sweep explain 100 sweeps/kv-spill --calibration {file}"));
    assert!(stdout.contains("one of 7 hevc decoders"), "{stdout}");
    let stderr = desk.refused(format!("sweep sweeps/figure-15 --calibration {file}"));
    assert!(stderr.contains("engine"), "{stderr}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_names_the_feature_before_it_sweeps() {
    let desk = Desk::new();
    let stderr = desk.refused("sweep --format parquet");
    assert!(stderr.contains("--features parquet"), "{stderr}");
    assert!(!desk.at("out").exists());
}

#[cfg(feature = "parquet")]
#[test]
fn points_in_parquet_are_those_of_the_csv_for_any_number_of_shards() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let desk = Desk::new();
    // 69,600 of its points fill more than a row group.
    let fewer = "--set axes.1.values=[8] --set 'axes.2.values=[\"none\", \"full\"]' \
        --set 'axes.4.range={ from = 0.5, to = 0.8, step = 0.1 }'";
    let long = |more: &str| desk.ok(format!("{LONG} {fewer} -q --out {more}"));
    long("whole");
    long("whole --format parquet");
    for shard in ["0/3", "1/3", "2/3"] {
        long(&format!("parts --shard {shard}"));
    }
    desk.ok("sweep merge parts --out merged --format parquet -q");
    let read = |name: &str| desk.read(name);
    assert!(read("whole/points.parquet") == read("merged/points.parquet"), "shards show in the file");

    let table = SerializedFileReader::new(fs::File::open(desk.at("whole/points.parquet")).unwrap()).unwrap();
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
