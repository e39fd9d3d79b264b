//! Results stay as they are: the JSON and the tables of commands, and the
//! checkpoints of sweeps that a user may have on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Desk, npy};

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
    let desk = Desk::new();
    let mut found = BTreeMap::new();
    for sweep in SWEEPS {
        let (name, out) = (format!("sweeps/{sweep}"), format!("out-{sweep}"));
        let json = desk.ok(format!("sweep {name} --out {out} -q --json"));
        found.insert(format!("{sweep} json"), pins::fingerprint(json.as_bytes()));
        for table in ["points.csv", "pareto.csv", "axes.csv"] {
            let bytes = desk.read(format!("{out}/{table}"));
            found.insert(format!("{sweep} {table}"), pins::fingerprint(&bytes));
        }
    }
    pins::hold(&golden("sweeps.txt"), &found);
}

/// A file of rows with much in common, the same on every machine.
fn furnish(path: &Path) {
    npy(path, (48, 64), |i| {
        let noise = ((i as u32).wrapping_mul(2_654_435_761) >> 20) as f32 / 4096.0 - 0.5;
        noise * (1 + i % 64 % 7) as f32 + ((i / 64) % 11) as f32 / 16.0
    });
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
    let desk = Desk::new();
    furnish(&desk.at("w.npy"));
    let codecs = "trinity,trinity-lite,uniform+ac,rtn-128g,int+zstd,mxfp4,h264-fast,h265-fast";
    let compare = format!("compare w.npy --codecs {codecs} --bits 3,4");
    let commands = [
        ("kv-spill", "sweep sweeps/kv-spill --top 3"),
        ("explain", "sweep explain 0 sweeps/kv-spill"),
        ("info", "tensors info w.npy"),
        ("compare", &compare),
        ("compare-nmse", "compare w.npy --codecs trinity,uniform+ac --nmse 0.01"),
        ("stages", "compare w.npy --stages --bits 3"),
        ("encode", "encode w.npy --bits 3 -o w.tri"),
        ("basis", "tensors basis w.npy --group 16 -o w.basis"),
    ];
    let mut wrong = String::new();
    for (name, line) in commands {
        let mut value = desk.json(format!("{line} --json -q"));
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

/// Shards of an earlier version in `old`, with the fingerprint that today's version gives the
/// sweep, which may have moved on since; their rows as one text.
pub fn shards_of(desk: &Desk, version: &str) -> String {
    let read = |path: PathBuf| -> Value { serde_json::from_str(&desk.text(path)).unwrap() };
    let rows = (0..2).map(|index| {
        desk.ok(format!("sweep sweeps/llama-3-70b-edge --shard {index}/2 --out today -q"));
        let stem = format!("shard-{index:05}-of-00002");
        let state = format!("{stem}.json");
        let mut kept = read(golden(version).join(&state));
        kept["fingerprint"] = read(Path::new("today").join(&state))["fingerprint"].clone();
        desk.write(format!("old/{state}"), kept.to_string());
        let rows = desk.text(golden(version).join(format!("{stem}.rows")));
        desk.write(format!("old/{stem}.rows"), &rows);
        rows
    });
    rows.collect()
}

/// What else a checkpoint says must still be understood.
#[test]
fn checkpoints_of_every_version_merge() {
    let desk = Desk::new();
    let kept = shards_of(&desk, "checkpoint-v1");
    desk.ok("sweep merge old --out merged -q");
    let points = desk.text("merged/points.csv");
    assert!(points.ends_with(&kept) && points.lines().count() == kept.lines().count() + 1);
    assert!(desk.text("merged/pareto.csv").lines().count() > 1);
}
