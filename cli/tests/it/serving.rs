//! Serving studies as a user runs them: answers in words, files, mistakes with
//! their places.

use crate::support::trinity_in;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A small one: two caches, two engine sizes.
pub const STUDY: &str = r#"title = "a service"
axes = [{ path = "job.parallelism.tensor", values = [2, 4] }, { path = "serving.prompt.median", values = [500, 1000] }]
scenarios = [{ name = "16 bits" }, { name = "3 bits", set = ["cluster.codec.extends=codecs/line-lanes", "cluster.codecs-per-gpu=256", "job.compression.kv=3"] }]
[study.cluster]
extends = "clusters/dgx-h100"
[study.job]
phase = "decode"
sequence = 1024
llm = { extends = "llms/llama-3-70b" }
[study.serving]
rate = 2
requests = 400
gpus = 8
ttft-p99 = "4 s"
tpot-p99 = "100 ms"
usd-per-gpu-hour = 3
prompt = { distribution = "log-normal", median = 500, sigma = 0.5, most = 8192 }
output = { distribution = "exponential", mean = 1000 }
"#;

fn outcome(folder: &Path, args: &[&str]) -> Value {
    let args = ["sweep", "study.toml", "--json", "-q"].iter().chain(args).copied();
    serde_json::from_str(&trinity_in(folder, args).ok()).unwrap()
}

#[test]
fn a_smaller_cache_is_compared_at_equal_promises() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("study.toml"), STUDY).unwrap();
    let found = outcome(folder.path(), &[]);
    assert_eq!(found["points"].as_array().unwrap().len(), 8);
    for point in found["points"].as_array().unwrap() {
        let goodput = &point["goodput"];
        assert!(goodput["served"]["ttft"]["p99_s"].as_f64().unwrap() <= 4.0, "{point}");
        assert!(goodput["served"]["tpot"]["p99_s"].as_f64().unwrap() <= 0.1, "{point}");
        let little = &goodput["served"]["little"];
        let sides = ["mean_present", "rate_times_latency"].map(|side| little[side].as_f64().unwrap());
        assert!((sides[0] / sides[1] - 1.0).abs() < 1e-9, "{point}");
    }
    for workload in found["workloads"].as_array().unwrap() {
        // Two GPUs have little room beside the weights: there the cache decides.
        let small = &workload["choices"][1]["machine_by_machine"][0];
        assert_eq!(small["machine"]["job.parallelism.tensor"], "2");
        assert!(small["over_baseline"].as_f64().unwrap() > 1.2, "{workload}");
    }
    let said = trinity_in(folder.path(), ["sweep", "study.toml"]).ok();
    assert!(
        said.contains("3 bits:") && said.contains("the requests") && said.contains("of 16 bits"),
        "{said}"
    );
    let csv = fs::read_to_string(folder.path().join("out/sweep/study/serving.csv")).unwrap();
    assert_eq!(csv.lines().count(), 17);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(
        fs::read_to_string(folder.path().join("out/sweep/study/report.html"))
            .unwrap()
            .contains("Most requests")
    );
}

#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("study.toml"), STUDY).unwrap();
    let [one, three] = ["1", "3"].map(|threads| outcome(folder.path(), &["--threads", threads]));
    assert_eq!(one, three);
}

#[test]
fn a_trace_takes_the_place_of_distributions() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = "rate = 2\nrequests = 400\n";
    let (start, _) = STUDY.split_at(STUDY.find("prompt = {").unwrap());
    let text = start
        .replace(drawn, "trace = \"mine.csv\"\n")
        .replace(", { path = \"serving.prompt.median\", values = [500, 1000] }", "");
    fs::create_dir(folder.path().join("deep")).unwrap();
    fs::write(folder.path().join("deep/study.toml"), &text).unwrap();
    let rows: String =
        (0..50).map(|at| format!("{},{},{}\n", f64::from(at) * 0.4, 300 + at, 20 + at)).collect();
    let trace = folder.path().join("deep/mine.csv");
    fs::write(&trace, format!("arrival_s,prompt_tokens,output_tokens\n{rows}")).unwrap();
    // A path is relative to the study's folder.
    let run = trinity_in(folder.path(), ["sweep", "deep/study.toml", "--json", "-q"]);
    let found: Value = serde_json::from_str(&run.ok()).unwrap();
    assert!((found["points"][0]["arriving_per_s"].as_f64().unwrap() - 2.5).abs() < 1e-9);
    assert_eq!(found["points"][0]["at_rate"]["requests"], 50);
    fs::write(&trace, "arrival_s,prompt_tokens,output_tokens\n0,5,9\n1,none,9\n").unwrap();
    let run = trinity_in(folder.path(), ["sweep", "deep/study.toml", "--force"]);
    assert_eq!(run.code(), 2);
    assert!(
        run.stderr().contains("mine.csv:3:3") && run.stderr().contains("`none` is no count"),
        "{}",
        run.stderr()
    );
    fs::remove_file(&trace).unwrap();
    let run = trinity_in(folder.path(), ["sweep", "deep/study.toml", "--force"]);
    assert_eq!(run.code(), 2);
    assert!(
        run.stderr().contains("study.toml:11:") && run.stderr().contains("cannot read the trace"),
        "{}",
        run.stderr()
    );
}

#[test]
fn mistakes_are_shown_where_they_were_made() {
    let folder = tempfile::tempdir().unwrap();
    for (was, is, said) in [
        ("gpus = 8", "gpus = 8\ngpu = 8", "did you mean `gpus`?"),
        ("gpus = 8", "gpus = 7", "7 GPUs do not make engines of 2"),
        ("ttft-p99 = \"4 s\"", "ttft-p99 = \"4 kg\"", "study.toml:14:"),
        ("requests = 400", "requests = 0", "study.toml:12:"),
        ("rate = 2\n", "", "`rate`, `prompt` and `output`, or a `trace`"),
        ("mean = 1000", "median = 1000", "expected `mean`, more than zero"),
        ("usd-per-gpu-hour = 3", "usd-per-gpu-hour = 3\ntransfer-bits = 3", "nothing is sent between pools"),
        ("usd-per-gpu-hour = 3", "usd-per-gpu-hour = 3\nprefill-gpus = 8", "leave none to decode"),
    ] {
        fs::write(folder.path().join("study.toml"), STUDY.replacen(was, is, 1)).unwrap();
        let run = trinity_in(folder.path(), ["sweep", "study.toml", "--force"]);
        assert_eq!(run.code(), 2, "{is}: {}", run.stderr());
        assert!(run.stderr().contains(said), "{is}: {}", run.stderr());
    }
    fs::write(folder.path().join("study.toml"), STUDY).unwrap();
    let run = trinity_in(folder.path(), ["sweep", "study.toml", "--shard", "0/2"]);
    assert_eq!(run.code(), 2);
}

#[test]
fn a_calibration_brings_the_curves_of_the_gpu_it_was_made_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/h200/calibration.toml");
    let text = STUDY.replace("clusters/dgx-h100", "clusters/dgx-h200");
    fs::write(folder.path().join("study.toml"), text).unwrap();
    let plain = outcome(folder.path(), &[]);
    let measured = outcome(folder.path(), &["--calibration", file, "--out", "measured"]);
    let paths: Vec<&str> =
        measured["calibration"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    for curve in ["gemm", "memory", "attention"] {
        assert!(paths.contains(&format!("cluster.gpu.{curve}-efficiency").as_str()), "{paths:?}");
    }
    assert_ne!(plain["points"][0]["at_rate"]["ttft"], measured["points"][0]["at_rate"]["ttft"]);
    // Another GPU keeps its own.
    fs::write(folder.path().join("study.toml"), STUDY).unwrap();
    let run = trinity_in(folder.path(), ["sweep", "study.toml", "--force", "--calibration", file]);
    assert!(run.code() == 2 && run.stderr().contains("measured on NVIDIA H200"), "{}", run.stderr());
}
