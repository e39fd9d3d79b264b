//! What `--json` prints keeps its shape: each command's is written down in
//! `docs/json`, and a change of it is a change of that file.
//!
//! `TRINITY_BLESS=1 cargo test -p trinity json` writes the files anew.

use crate::support::{Desk, npy, pgm};
use serde_json::{Map, Value, json};
use std::{fs, path::Path};

/// The JSON schema of a value: its keys and their types, and nothing of what
/// they happen to be.
fn schema(value: &Value) -> Value {
    match value {
        Value::Null => json!({ "type": "null" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(number) => json!({ "type": if number.is_f64() { "number" } else { "integer" } }),
        Value::String(_) => json!({ "type": "string" }),
        Value::Array(items) => {
            let items = items.iter().map(schema).reduce(merged);
            json!({ "type": "array", "items": items.unwrap_or_else(|| json!({})) })
        }
        Value::Object(fields) => {
            let properties: Map<String, Value> =
                fields.iter().map(|(key, value)| (key.clone(), schema(value))).collect();
            let required: Vec<&String> = fields.keys().collect();
            json!({ "type": "object", "properties": properties, "required": required })
        }
    }
}

/// A schema that both values keep to.
fn merged(a: Value, b: Value) -> Value {
    if a == b || b == json!({}) {
        return a;
    }
    if a == json!({}) {
        return b;
    }
    let kinds = |schema: &Value| match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    let mut all = kinds(&a);
    all.extend(kinds(&b).into_iter().filter(|kind| !kinds(&a).contains(kind)));
    if all.contains(&json!("number")) {
        all.retain(|kind| kind != "integer");
    }
    let mut schema = Map::new();
    schema.insert("type".into(), if all.len() == 1 { all[0].clone() } else { json!(all) });
    for side in [&a, &b] {
        if let Some(items) = side.get("items") {
            let items = schema.get("items").map_or(items.clone(), |own| merged(own.clone(), items.clone()));
            schema.insert("items".into(), items);
        }
    }
    let properties: Vec<&Map<String, Value>> =
        [&a, &b].iter().filter_map(|side| side.get("properties")?.as_object()).collect();
    if let [first, rest @ ..] = properties.as_slice() {
        let mut own = (*first).clone();
        for (key, value) in rest.iter().flat_map(|fields| fields.iter()) {
            let value = own.get(key).map_or(value.clone(), |own| merged(own.clone(), value.clone()));
            own.insert(key.clone(), value);
        }
        let in_all = |key: &&String| properties.iter().all(|fields| fields.contains_key(*key));
        let required: Vec<&String> = own.keys().filter(in_all).collect();
        schema.insert("required".into(), json!(required));
        schema.insert("properties".into(), Value::Object(own.clone()));
    }
    Value::Object(schema)
}

fn ordered(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            keys.into_iter().map(|key| (key.clone(), ordered(&fields[key]))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(ordered).collect(),
        other => other.clone(),
    }
}

/// Whether a schema is the one written down. Of an empty list nothing is known: where a machine has
/// no other decoders, `validate` has none to list. What may be null is null everywhere at times, and
/// nowhere at others: no recording of `figure` is stale, or some are.
fn is_written(written: &str, schema: &Value) -> bool {
    fn same(written: &Value, found: &Value) -> bool {
        match (written, found) {
            (Value::Object(own), Value::Object(other)) => {
                own.len() == other.len()
                    && own.iter().all(|(key, value)| match other.get(key) {
                        Some(unknown) if key == "items" && *unknown == json!({}) => true,
                        Some(found) => same(value, found),
                        None => false,
                    })
            }
            (Value::Array(kinds), kind @ Value::String(_)) => {
                kinds.contains(&json!("null")) && kinds.contains(kind)
            }
            (Value::Array(own), Value::Array(other)) => {
                own.len() == other.len() && own.iter().all(|item| other.contains(item))
            }
            (own, other) => own == other,
        }
    }
    serde_json::from_str(written).is_ok_and(|written: Value| same(&written, schema))
}

/// Runs a command and holds what it prints against what is written down.
fn held(name: &str, command: &str, printed: &str, wrong: &mut Vec<String>) {
    let value: Value = match serde_json::from_str(printed) {
        Ok(value) => value,
        Err(error) => return wrong.push(format!("{command}: no JSON ({error}): {printed}")),
    };
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("trinity {command} --json"),
    });
    document.as_object_mut().unwrap().extend(schema(&value).as_object().unwrap().clone());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/json/{name}.json"));
    let text = serde_json::to_string_pretty(&ordered(&document)).unwrap() + "\n";
    if is_written(&fs::read_to_string(&path).unwrap_or_default(), &ordered(&document)) {
        return;
    }
    if std::env::var_os("TRINITY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    } else {
        wrong.push(format!("{command}: docs/json/{name}.json is not what it prints, which is\n{text}"));
    }
}

/// An f32 npy of 32 by 64 values.
fn matrix(path: &Path, scale: f32) {
    npy(path, (32, 64), |at| ((at * 37 % 101) as f32 - 50.0) * scale);
}

pub const STUDY: &str = r#"
title = "a study"
axes = [{ path = "job.parallelism.data", values = [2, 4] }, { path = "cluster.nic.bandwidth", values = ["100 Gbit/s"] }]
scenarios = [{ name = "plain" }, { name = "coded", set = ["cluster.codec.extends=codecs/three-in-one"] }]
[study]
cluster = { extends = "clusters/rtx3090-cx5" }
[study.job]
phase = "training"
sequence = 2048
replica-batch = 4
recompute = "full"
llm = { extends = "llms/llama-2-7b" }
parallelism = { pipeline = 8, zero = 1 }
compression = { activations = 3.5 }
[headline]
baseline = "plain"
candidate = "coded"
budget = "50000 mm2"
performance = 1.1
unit-area = "20000 mm2"
"#;

/// The name of each schema, and the command whose output it describes.
const CASES: &[(&str, &str)] = &[
    ("config-list", "config list gpus"),
    ("config-show", "config show study.toml"),
    ("config-check", "config check study.toml --kind sweeps"),
    ("config-schema-out", "config schema --out schemas"),
    ("explore", "explore --codecs line,three-in-one --study study.toml --draws 131 --cells 3 --out explore"),
    (
        "explore-budget",
        "explore --codecs line --study study.toml --budget 50000mm2 --draws 131 --cells 3 --out within",
    ),
    ("estimate", "estimate dgx-h100 llama-3-8b --set job.parallelism.tensor=8"),
    ("figure", "figure"),
    ("figure-run", "figure 16a --run --out figure"),
    ("sweep", "sweep study.toml --out sweep"),
    ("sweep-shard", "sweep study.toml --out shards --shard 0/1"),
    ("sweep-merge", "sweep merge shards --out merged"),
    ("sweep-explain", "sweep explain 0 study.toml"),
    ("sweep-serving", "sweep serving.toml --out serving"),
    ("sweep-bench", "sweep bench study.toml --seconds 0.1 --turns 1 --threads 1"),
    (
        "serve-search",
        "serve search Qwen3-32B --gpu h100-sxm --precision bf16 --gpus 2 --top 2 --most-concurrency 32",
    ),
    ("serve-play", "serve play Qwen3-32B --gpu h100-sxm --precision bf16 --tensor 2 --concurrency 4"),
    (
        "serve-codec",
        "serve codec Qwen3-32B --gpu h100-sxm --precision bf16 --tensor 2 --contexts 1024 --concurrencies 4",
    ),
    ("serve-bench", "serve bench --seconds 0.05"),
    ("tensors-info", "tensors info m.npy"),
    ("tensors-basis", "tensors basis m.npy --group 16 -o m.basis"),
    ("compare", "compare m.npy --codecs rtn,h265 --bits 0.01,3"),
    ("compare-stages", "compare m.npy --stages --codecs trinity-lite --bits 3"),
    ("compare-wire", "compare m.npy --codecs rtn,h264 --bits 3 --wire 100Gbit/s"),
    ("compare-shard", "compare m.npy --codecs rtn --bits 3 --out parts --shard 0/1"),
    ("compare-merge", "compare m.npy --codecs rtn --bits 3 --out parts --merge"),
    ("compare-ablate", "compare m.npy --ablate --sample 1024"),
    ("compare-blocks", "compare m.npy --blocks --sample 1024"),
    ("compare-show", "compare m.npy --show m --sample 1024"),
    ("encode", "encode m.npy --bits 3 -o m.tri"),
    ("encode-shard", "encode m.npy --bits 3 -o parted.tri --shard 0/1"),
    ("encode-merge", "encode m.npy --bits 3 -o parted.tri --merge"),
    ("decode", "decode m.tri -o back.safetensors"),
    ("delta-make", "delta make m.npy tuned/m.npy -o d.tri"),
    ("delta-apply", "delta apply m.npy d.tri -o applied.safetensors"),
    ("encode-picture", "encode p.pgm --bits 2 -o p.trp"),
    ("decode-picture", "decode p.trp -o back.pgm"),
    ("h264-encode", "h264 encode p.pgm --qp 30 -o p.264"),
    ("h264-decode", "h264 decode p.264 -o p264.yuv"),
    ("h264-info", "h264 info p.264"),
    ("h265-encode", "h265 encode p.pgm --qp 30 -o p.265"),
    ("h265-decode", "h265 decode p.265 --md5 -o p265.yuv"),
    ("h265-info", "h265 info p.265"),
    ("eval", "eval --windows 1 --weights rtn@4"),
    ("eval-shard", "eval --windows 1 --sweep 4 --codecs rtn --out curve --shard 0/1"),
    ("eval-merge", "eval --windows 1 --sweep 4 --codecs rtn --out curve --merge"),
    ("measure", "measure --replay recording.json --out measured"),
    ("validate", "validate"),
    ("validate-constants", "validate --constants"),
    ("validate-fit", "validate --fit"),
    ("completions", "completions bash"),
    ("man", "man"),
    ("man-out", "man --out man"),
    ("web", "web -o page.html"),
];

#[test]
fn what_each_command_prints_as_json_is_written_down() {
    let desk = Desk::new();
    matrix(&desk.at("m.npy"), 0.01);
    matrix(&desk.at("tuned/m.npy"), 0.011);
    desk.write("study.toml", STUDY);
    desk.write("serving.toml", crate::serving::STUDY);
    desk.write("p.pgm", pgm(32, 32, |at| (at * 7 % 251) as u8));
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/h200/recording.json");
    fs::copy(recording, desk.at("recording.json")).unwrap();
    let mut wrong = Vec::new();
    for (name, command) in CASES {
        let run = desk.run(format!("{command} --json -q"));
        // A command may be built without the page, which needs Node and the wasm32 target.
        if *name == "web" && run.code() == 1 {
            eprintln!("SKIPPED: {command}: {}", run.stderr());
            continue;
        }
        if run.code() != 0 {
            wrong.push(format!("{command}: {}", run.stderr()));
            continue;
        }
        held(name, command, &run.stdout(), &mut wrong);
    }
    let run = desk.run("config check study.toml --kind gpus --json");
    held("error", "COMMAND … (on stderr, exit 1 or 2)", &run.stderr(), &mut wrong);
    assert!(wrong.is_empty(), "{}\n\nTRINITY_BLESS=1 writes docs/json anew", wrong.join("\n\n"));
}

/// Whether a command does something itself, rather than by its subcommands alone.
fn does_something(path: &[String]) -> bool {
    let usage = format!("Usage: trinity {} [OPTIONS] <COMMAND>", path.join(" "));
    !path.is_empty() && !crate::help::help_of(path).lines().any(|line| line == usage)
}

#[test]
fn every_command_has_a_schema_and_every_schema_a_command() {
    for path in crate::help::commands().iter().filter(|path| does_something(path)) {
        let words = path.join(" ");
        let own = |command: &str| command == words || command.starts_with(&format!("{words} "));
        assert!(CASES.iter().any(|(_, command)| own(command)), "no schema of `trinity {words} --json`");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json");
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".json").unwrap_or(&file);
        let known = name == "error" || CASES.iter().any(|(own, _)| *own == name);
        assert!(known, "docs/json/{file} describes no command that the test runs");
    }
}
