//! `cargo xtask peers weights`: what a model loses when its linear weights are coded for a text, by rate, for the Trinity
//! codec and for quantizers of the field.
//!
//! The same calibrating text and the same held-out text for all, one evaluator, files as `trinity encode` writes them;
//! embeddings and output layers are kept as they are by all. Points are kept under `target/peers/weights` until the
//! program changes, so that a run that was stopped goes on.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench;
use super::kv::{is_newer, read_csv, texts};
use crate::{
    models, tools,
    workspace::{root, target},
};
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "cargo xtask peers weights [--only MODEL] [--windows N] [--trinity PROGRAM]";

/// Codecs, and the rates of each: those of whole bits have room for their scales.
const CODECS: [(&str, bool, &[&str]); 6] = [
    ("trinity", true, &["2", "2.5", "3", "4"]),
    ("qtip", true, &["2", "3", "4"]),
    ("watersic", true, &["2", "2.5", "3", "4"]),
    ("gptq-128g", true, &["2.15", "3.16", "4.17"]),
    ("awq-128g", true, &["2.15", "3.16", "4.17"]),
    ("trinity", false, &["2", "2.5", "3", "4"]),
];
/// The columns of the table, by the rate they begin at.
const COLUMNS: [f64; 4] = [2.0, 2.5, 3.0, 4.0];

struct Model {
    name: &'static str,
    path: PathBuf,
    /// What is kept as it is.
    exclude: &'static str,
    windows: usize,
}

struct Point {
    column: usize,
    asked: f64,
    lost: f64,
    half: f64,
}

pub fn run(args: &[&str]) -> Result<(), String> {
    let (mut only, mut windows, mut program) = (None, None, None);
    let mut words = args.iter();
    while let Some(&word) = words.next() {
        let value = words.next().ok_or(format!("{word} wants a value: {USAGE}"))?;
        match word {
            "--only" => only = Some(*value),
            "--windows" => windows = Some(value.parse::<usize>().map_err(|_| "--windows wants a number")?),
            "--trinity" => program = Some(PathBuf::from(value)),
            _ => return Err(format!("`{word}`: expected {USAGE}")),
        }
    }
    let trinity = match program {
        Some(path) => std::fs::canonicalize(&path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => bench::build_trinity()?,
    };
    let tiny = root().join("models/lm/data/tiny.safetensors");
    let all = [
        Model { name: "tiny", path: tiny, exclude: "embed*", windows: 16 },
        Model {
            name: "smollm2-135m",
            path: models::cache().join("smollm2-135m.gguf"),
            exclude: "token_embd*",
            windows: 4,
        },
    ];
    let scratch = bench::Scratch::new("peers-weights")?;
    let texts = texts(&scratch.path)?;
    for model in all.iter().filter(|model| only.is_none_or(|only| only == model.name)) {
        if !model.path.exists() {
            eprintln!("left out: {} ({} is not there)", model.name, model.path.display());
            continue;
        }
        table(&trinity, model, &texts, windows.unwrap_or(model.windows))?;
    }
    Ok(())
}

fn table(trinity: &Path, model: &Model, texts: &[PathBuf; 2], windows: usize) -> Result<(), String> {
    println!("\n{}, linear weights alone, {windows} windows:\n", model.name);
    println!("| codec | {} |", COLUMNS.map(|bits| format!("{bits} bits")).join(" | "));
    println!("|---|{}", "---|".repeat(COLUMNS.len()));
    for (codec, calibrated, rates) in CODECS {
        let points = rates
            .iter()
            .map(|rate| point(trinity, model, texts, windows, (codec, calibrated, rate)))
            .collect::<Result<Vec<Point>, String>>()?;
        let cell = |column: usize| {
            let found = points.iter().find(|point| point.column == column);
            found.map_or(String::new(), |point| {
                let at = if point.asked == COLUMNS[column] {
                    String::new()
                } else {
                    format!(" at {}", point.asked)
                };
                format!("{:.3} ± {:.3}{at}", point.lost, point.half)
            })
        };
        let cells: Vec<String> = (0..COLUMNS.len()).map(cell).collect();
        println!("| `{codec}`{} | {} |", if calibrated { ", calibrated" } else { "" }, cells.join(" | "));
    }
    Ok(())
}

fn point(
    trinity: &Path,
    model: &Model,
    texts: &[PathBuf; 2],
    windows: usize,
    (codec, calibrated, rate): (&str, bool, &str),
) -> Result<Point, String> {
    let said = if calibrated { "calibrated" } else { "plain" };
    let folder = target().join(format!("peers/weights/{}-{windows}-{codec}-{said}-{rate}", model.name));
    let csv = folder.join("eval.csv");
    if !is_newer(&csv, trinity) {
        eprintln!("{}: {codec} at {rate} bits, {said}", model.name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
        let coded = folder.join("coded.tri");
        let mut encode = Command::new(trinity);
        encode.arg("encode").arg(&model.path).args(["--codec", codec, "--bits", rate, "--force", "--quiet"]);
        encode.args(["--exclude", model.exclude, "-o"]).arg(&coded);
        if calibrated {
            encode.arg("--calibrate").arg(&texts[1]);
        }
        tools::succeed(encode.stdout(std::process::Stdio::null()))?;
        let mut eval = Command::new(trinity);
        eval.arg("eval").arg(&coded).arg("--original").arg(&model.path).arg("--text").arg(&texts[0]);
        eval.args(["--windows", &windows.to_string(), "--force", "--quiet", "--out"]).arg(&folder);
        tools::succeed(eval.stdout(std::process::Stdio::null()))?;
    }
    let rows = read_csv(&csv, ["delta_bits_per_byte", "delta_ci95"])?;
    let &[lost, half] = rows.last().ok_or("eval.csv has no row of the file")?;
    let asked: f64 = rate.parse().map_err(|_| format!("{rate} is no rate"))?;
    let column = COLUMNS.iter().rposition(|&from| from <= asked).unwrap_or(0);
    Ok(Point { column, asked, lost, half })
}
