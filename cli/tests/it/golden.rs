//! Results stay as they are: the JSON and the tables of commands, and the
//! checkpoints of sweeps that a user may have on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::trinity_in;

#[path = "../../../models/bits/tests/support/pins.rs"]
#[allow(dead_code)] // the command stores no streams of its own
mod pins;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

const SWEEPS: [&str; 6] =
    ["llama-7b", "figure-15", "figure-16b", "kv-spill", "slow-wires", "llama-3-70b-edge"];

#[test]
fn no_number_of_a_sweep_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = BTreeMap::new();
    for sweep in SWEEPS {
        let (name, out) = (format!("sweeps/{sweep}"), format!("out-{sweep}"));
        let json = trinity_in(folder.path(), ["sweep", &name, "--out", &out, "-q", "--json"]).ok();
        found.insert(format!("{sweep} json"), pins::fingerprint(json.as_bytes()));
        for table in ["points.csv", "pareto.csv", "axes.csv"] {
            let bytes = fs::read(folder.path().join(&out).join(table)).unwrap();
            found.insert(format!("{sweep} {table}"), pins::fingerprint(&bytes));
        }
    }
    pins::hold(&golden("sweeps.txt"), &found);
}

/// A file of rows with much in common, the same on every machine.
fn npy(path: &Path, rows: usize, cols: usize) {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    header.push_str(&" ".repeat(127 - 10 - header.len()));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    let value = |i: usize| {
        let noise = ((i as u32).wrapping_mul(2_654_435_761) >> 20) as f32 / 4096.0 - 0.5;
        noise * (1 + i % cols % 7) as f32 + ((i / cols) % 11) as f32 / 16.0
    };
    file.extend((0..rows * cols).flat_map(|i| value(i).to_le_bytes()));
    fs::write(path, file).unwrap();
}

/// Takes out what differs from run to run or from one version of the codecs to the next:
/// speeds, and the keys of rows.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !key.ends_with("_mb_s") && key != "key");
            map.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[test]
fn no_number_of_a_report_changes() {
    let folder = tempfile::tempdir().unwrap();
    npy(&folder.path().join("w.npy"), 48, 64);
    let codecs = "trinity,trinity-lite,uniform+ac,rtn-128g,int+zstd,mxfp4,h264-fast,h265-fast";
    let commands: [(&str, &[&str]); 8] = [
        ("kv-spill", &["sweep", "sweeps/kv-spill", "--top", "3"]),
        ("explain", &["sweep", "explain", "0", "sweeps/kv-spill"]),
        ("info", &["tensors", "info", "w.npy"]),
        ("compare", &["compare", "w.npy", "--codecs", codecs, "--bits", "3,4"]),
        ("compare-nmse", &["compare", "w.npy", "--codecs", "trinity,uniform+ac", "--nmse", "0.01"]),
        ("stages", &["compare", "w.npy", "--stages", "--bits", "3"]),
        ("encode", &["encode", "w.npy", "--bits", "3", "-o", "w.tri"]),
        ("basis", &["tensors", "basis", "w.npy", "--group", "16", "-o", "w.basis"]),
    ];
    let mut wrong = String::new();
    for (name, args) in commands {
        let said = trinity_in(folder.path(), args.iter().copied().chain(["--json", "-q"])).ok();
        let mut value: Value = serde_json::from_str(&said).unwrap();
        strip(&mut value);
        let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
        let path = golden(&format!("{name}.json"));
        if std::env::var_os("TRINITY_BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        let first = kept.lines().zip(text.lines()).position(|(kept, now)| kept != now);
        if kept != text {
            let line = first.unwrap_or(kept.lines().count().min(text.lines().count()));
            let at = |text: &str| text.lines().nth(line).unwrap_or("(its end)").trim().to_owned();
            wrong += &format!("{name}.json:{}: `{}`, pinned as `{}`\n", line + 1, at(&text), at(&kept));
        }
    }
    assert!(
        wrong.is_empty(),
        "tests/golden holds other results; where the change is meant, write them anew with TRINITY_BLESS=1:\n{wrong}"
    );
}

/// Shards of an earlier version, with the fingerprint that today's version gives the sweep:
/// what else a checkpoint says must still be understood.
#[test]
fn checkpoints_of_every_version_merge() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = "sweeps/llama-3-70b-edge";
    for (version, shards) in [("checkpoint-v1", 2)] {
        let stem = |index: usize| format!("shard-{index:05}-of-{shards:05}.rows");
        for index in 0..shards {
            let (shard, rows) = (format!("{index}/{shards}"), stem(index));
            let state = rows.replace(".rows", ".json");
            let (old, new) = (folder.path().join(version), folder.path().join("today"));
            fs::create_dir_all(&old).unwrap();
            trinity_in(folder.path(), ["sweep", sweep, "--shard", &shard, "--out", "today", "-q"]).ok();
            let read = |path: PathBuf| -> Value {
                serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
            };
            let today = read(new.join(&state));
            let mut kept = read(golden(version).join(&state));
            kept["fingerprint"] = today["fingerprint"].clone();
            fs::write(old.join(&state), kept.to_string()).unwrap();
            fs::copy(golden(version).join(&rows), old.join(&rows)).unwrap();
        }
        trinity_in(folder.path(), ["sweep", "merge", version, "--out", "merged", "-q"]).ok();
        let points = fs::read_to_string(folder.path().join("merged/points.csv")).unwrap();
        let rows = |index| fs::read_to_string(golden(version).join(stem(index))).unwrap();
        let kept: String = (0..shards).map(rows).collect();
        assert!(points.ends_with(&kept) && points.lines().count() == kept.lines().count() + 1, "{version}");
        assert!(fs::read_to_string(folder.path().join("merged/pareto.csv")).unwrap().lines().count() > 1);
    }
}
