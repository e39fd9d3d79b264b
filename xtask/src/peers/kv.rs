//! `cargo xtask peers kv`: what a model loses when its KV cache alone is coded, by rate, for the Trinity codec and for
//! the field's quantizers of caches.
//!
//! One evaluator (`trinity eval`), one text to score and another to calibrate on, every bit counted. Models are those of
//! `docs/language_models.md` that are at hand; who is missing is said. Tables are
//! Markdown. Points are kept under `target/peers/kv` until the program changes, so that a run that was stopped goes on.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench;
use super::gap;
use crate::{
    files, models, tools,
    workspace::{root, target},
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "cargo xtask peers kv [--quick] [--only MODEL] [--windows N] [--context TOKENS] [--rates BITS,…] [--trinity PROGRAM]";

/// Bits per value of codecs that have any.
const RATES: &str = "1,1.5,2,2.5,3,3.5,4,4.5";
const QUICK_RATES: &str = "1.5,2.5,3.5";
/// Rates at which codecs of whole bits have room for their scales, and the column each is shown in.
const KIVI: &str = "1.6,2.6,3.6,4.6";
const KVQUANT: &str = "1.25,2.25,3.25,4.25";
const KVQUANT_APART: &str = "1.6,2.6,3.6,4.6";

/// Codecs without a calibration, and with one: their rates where they are not all.
const PLAIN: [(&str, Option<&str>); 6] = [
    ("trinity", None),
    ("pre-rope/trinity", None),
    ("kivi-64g", Some(KIVI)),
    ("kvquant", Some(KVQUANT)),
    ("kvquant-1p", Some(KVQUANT_APART)),
    ("turboquant", None),
];
const CALIBRATED: [(&str, Option<&str>); 2] = [("pre-rope/trinity", None), ("kvtc", None)];
/// Tokens at the beginning that stay as they are, as KVTC has them.
const SINK: &str = "4";
/// Tokens of a window, unless asked otherwise.
const CONTEXT: usize = 1024;

struct Model {
    name: &'static str,
    path: PathBuf,
    /// Windows that are scored.
    windows: usize,
}

struct Options {
    quick: bool,
    only: Option<String>,
    windows: Option<usize>,
    /// Tokens of a window, 1,024 where it is not said.
    context: Option<usize>,
    /// Rates of codecs that have any.
    rates: Option<String>,
    trinity: Option<PathBuf>,
}

fn options(args: &[&str]) -> Result<Options, String> {
    let mut options =
        Options { quick: false, only: None, windows: None, context: None, rates: None, trinity: None };
    let mut words = args.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value: {USAGE}"));
        match word {
            "--quick" => options.quick = true,
            "--only" => options.only = Some((*value()?).into()),
            "--rates" => options.rates = Some((*value()?).into()),
            "--trinity" => options.trinity = Some((*value()?).into()),
            "--windows" | "--context" => {
                let count = value()?.parse().ok().filter(|&count| count > 0);
                let count = Some(count.ok_or_else(|| format!("{word} wants a number above 0"))?);
                if word == "--windows" { options.windows = count } else { options.context = count }
            }
            _ => return Err(format!("`{word}`: expected {USAGE}")),
        }
    }
    Ok(options)
}

pub fn run(args: &[&str]) -> Result<(), String> {
    let options = options(args)?;
    let models = at_hand(&options)?;
    let trinity = match &options.trinity {
        Some(path) => std::fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => bench::build_trinity()?,
    };
    let scratch = bench::Scratch::new("peers-kv")?;
    let texts = texts(&scratch.path)?;
    for model in models {
        let windows = options.windows.unwrap_or(if options.quick { 2 } else { model.windows });
        let rows = measure(&trinity, &model, &texts, windows, &options)?;
        print(&model, windows, options.context.unwrap_or(CONTEXT), &rows);
    }
    Ok(())
}

/// The models that are there; the others are named.
fn at_hand(options: &Options) -> Result<Vec<Model>, String> {
    let shared = root().join("../shared/lm");
    let all = [
        Model { name: "tiny", path: root().join("models/lm/data/tiny.json"), windows: 8 },
        Model { name: "small", path: shared.join("small.json"), windows: 8 },
        Model { name: "smollm2-135m", path: models::cache().join("smollm2-135m.gguf"), windows: 4 },
        Model { name: "gemma3-270m", path: models::cache().join("gemma3-270m.gguf"), windows: 4 },
    ];
    let names = all.each_ref().map(|model| model.name);
    if let Some(only) = options.only.as_deref().filter(|only| !names.contains(only)) {
        return Err(format!("there is no model `{only}`; expected one of: {}", names.join(", ")));
    }
    let asked = all.into_iter().filter(|model| options.only.as_ref().is_none_or(|only| only == model.name));
    let (found, missing): (Vec<Model>, Vec<Model>) = asked.partition(|model| model.path.exists());
    for Model { name, path, .. } in missing {
        eprintln!("left out: {name} ({} is not there; `cargo xtask models`)", path.display());
    }
    if found.is_empty() {
        Err("no model to evaluate; `cargo xtask models` fetches some".into())
    } else {
        Ok(found)
    }
}

/// A text to score and one to calibrate on: halves of the text of the small models.
pub(super) fn texts(folder: &Path) -> Result<[PathBuf; 2], String> {
    let shared = root().join("../shared/lm/eval.txt");
    let own = root().join("models/lm/data/eval.txt");
    let path = if shared.exists() { shared } else { own };
    let text = files::bytes(&path)?;
    let (first, second) = text.split_at(text.len() / 2);
    let names = ["a.txt", "b.txt"].map(|name| folder.join(name));
    for (path, half) in names.iter().zip([first, second]) {
        files::write(path, half)?;
    }
    Ok(names)
}

/// One line of `eval.csv` that is of use here.
struct Row {
    codec: String,
    asked: f64,
    bits: f64,
    lost: f64,
    half: f64,
    /// Kullback–Leibler divergence from the uncoded model's predictions, nats.
    divergence: f64,
    uncoded: f64,
}

/// One command for each codec; what an earlier run of the same program left is taken as it is.
fn measure(
    trinity: &Path,
    model: &Model,
    texts: &[PathBuf; 2],
    windows: usize,
    options: &Options,
) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let all = options.rates.as_deref().unwrap_or(if options.quick { QUICK_RATES } else { RATES });
    for (codecs, calibrated) in [(&PLAIN[..], false), (&CALIBRATED[..], true)] {
        for &(codec, own) in codecs {
            let rates = own.unwrap_or(all);
            let codings: Vec<String> = rates.split(',').map(|rate| format!("{codec}@{rate}")).collect();
            let codings = codings.join(",");
            let said = if calibrated { "calibrated" } else { "plain" };
            let context = options.context.map(|context| format!("-of-{context}")).unwrap_or_default();
            let name =
                format!("{}-{windows}{context}-{said}-{}", model.name, codings.replace(['/', ',', '@'], "-"));
            let out = target().join("peers/kv").join(name);
            let csv = out.join("eval.csv");
            // A run that was stopped leaves the first row alone.
            let is_whole = || read(&csv, calibrated).is_ok_and(|rows| rows.len() == rates.split(',').count());
            if !is_newer(&csv, trinity) || !is_whole() {
                let mut command = Command::new(trinity);
                command.arg("eval").arg(&model.path).arg("--text").arg(&texts[0]).args(["--kv", &codings]);
                command
                    .args(["--windows", &windows.to_string(), "--sink", SINK, "--force", "--out"])
                    .arg(&out);
                if let Some(context) = options.context {
                    command.args(["--context", &context.to_string()]);
                }
                if calibrated {
                    command.arg("--calibrate").arg(&texts[1]);
                }
                command.stdout(std::process::Stdio::null());
                eprintln!("{}: {codings}, {said}", model.name);
                tools::succeed(&mut command)?;
            }
            rows.extend(read(&csv, calibrated)?);
        }
    }
    Ok(rows)
}

/// Whether a file was written after another.
pub(super) fn is_newer(file: &Path, than: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    written(file).zip(written(than)).is_some_and(|(own, other)| own > other)
}

/// Numbers of some columns of a CSV whose cells hold no commas; NaN where a cell has none.
pub(super) fn read_csv<const N: usize>(path: &Path, columns: [&str; N]) -> Result<Vec<[f64; N]>, String> {
    let numbers = |cells: Vec<String>| std::array::from_fn(|at| cells[at].parse().unwrap_or(f64::NAN));
    Ok(cells_of(path, &columns)?.into_iter().map(numbers).collect())
}

/// Cells of some columns, row by row.
fn cells_of(path: &Path, columns: &[&str]) -> Result<Vec<Vec<String>>, String> {
    let text = files::text(path)?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &&str| {
        let found = header.iter().position(|own| own == name);
        found.ok_or_else(|| format!("{} has no column {name}", path.display()))
    };
    let places: Vec<usize> = columns.iter().map(place).collect::<Result<_, _>>()?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        places.iter().map(|&at| cells.get(at).copied().unwrap_or_default().to_owned()).collect()
    };
    Ok(lines.map(row).collect())
}

/// Rows whose cache was coded.
fn read(path: &Path, calibrated: bool) -> Result<Vec<Row>, String> {
    let columns = ["kv_bits_per_value", "delta_bits_per_byte", "delta_ci95", "kl_nats", "bits_per_byte"];
    let numbers = read_csv(path, columns)?;
    let codings = cells_of(path, &["kv"])?;
    let mut rows = Vec::new();
    for (coding, [bits, lost, half, divergence, whole]) in codings.iter().flatten().zip(numbers) {
        let Some((codec, asked)) = coding.rsplit_once('@') else { continue };
        let asked = asked.parse().map_err(|_| format!("{}: `{coding}` has no rate", path.display()))?;
        let codec = if calibrated { format!("`{codec}`, calibrated") } else { format!("`{codec}`") };
        rows.push(Row { codec, asked, bits, lost, half, divergence, uncoded: whole - lost });
    }
    Ok(rows)
}

/// A table a model: a line a codec, a column for every half bit, and the column's least divergence in bold.
fn print(model: &Model, windows: usize, context: usize, rows: &[Row]) {
    let uncoded = rows.first().map_or(f64::NAN, |row| row.uncoded);
    let column = |row: &Row| (2.0 * row.asked + 1e-6).floor() as i64;
    let mut best: BTreeMap<i64, f64> = BTreeMap::new();
    for row in rows {
        let least = best.entry(column(row)).or_insert(f64::INFINITY);
        *least = least.min(row.divergence);
    }
    println!(
        "\n{}, {uncoded:.4} bits per byte uncoded, {windows} windows of {context} tokens; bits per byte lost, nats of divergence, bits per value:\n",
        model.name
    );
    let heads: Vec<String> = best.keys().map(|half| format!("{}", *half as f64 / 2.0)).collect();
    println!("| codec | {} |", heads.join(" | "));
    println!("|---|{}", "---|".repeat(heads.len()));
    let mut codecs: Vec<&str> = rows.iter().map(|row| row.codec.as_str()).collect();
    codecs.dedup();
    for codec in codecs {
        let cell = |(half, least): (&i64, &f64)| {
            let found = rows.iter().find(|row| row.codec == codec && column(row) == *half);
            found.map_or(String::new(), |row| {
                let text = format!("{:.3} ± {:.3}, {}", row.lost, row.half, three_digits(row.divergence));
                let text = if row.divergence <= *least { format!("**{text}**") } else { text };
                format!("{text} at {:.2}", row.bits)
            })
        };
        println!("| {codec} | {} |", best.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    println!("\n{}", wins(rows));
}

fn three_digits(number: f64) -> String {
    let places = 2.0 - number.abs().max(1e-9).log10().floor();
    format!("{number:.*}", places.clamp(0.0, 9.0) as usize)
}

/// Peers that have less divergence than `trinity` has at their bits, on the line between its points.
fn wins(rows: &[Row]) -> String {
    let curve = |codec: &str| -> Vec<gap::Point> {
        rows.iter().filter(|row| row.codec == codec).map(|row| (row.bits, row.divergence)).collect()
    };
    let mut ours: Vec<&str> =
        rows.iter().map(|row| row.codec.as_str()).filter(|name| is_ours(name)).collect();
    ours.dedup();
    let curves: Vec<Vec<gap::Point>> = ours.into_iter().map(curve).collect();
    let peers = rows.iter().filter(|row| !is_ours(&row.codec));
    let wins = peers.filter_map(|row| {
        let beside = curves.iter().filter_map(|curve| gap::divergence_at(curve, row.bits));
        let least = beside.fold(f64::INFINITY, f64::min);
        (least.is_finite() && row.divergence < least).then(|| {
            let [theirs, ours] = [row.divergence, least].map(three_digits);
            format!("{} at {:.2} ({theirs}, {ours})", row.codec, row.bits)
        })
    });
    match wins.collect::<Vec<_>>() {
        none if none.is_empty() => "At equal bits no peer has less divergence than `trinity`.".into(),
        some => format!("At equal bits less divergence than `trinity`: {}.", some.join(", ")),
    }
}

/// Whether a row is of the Trinity codec.
fn is_ours(codec: &str) -> bool {
    codec.contains("trinity`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_wins_where_it_has_less_divergence_than_ours_at_its_bits() {
        let row = |codec: &str, bits: f64, divergence: f64| Row {
            codec: codec.into(),
            asked: bits,
            bits,
            lost: 0.0,
            half: 0.0,
            divergence,
            uncoded: 1.0,
        };
        let mut rows =
            vec![row("`trinity`", 2.0, 0.16), row("`trinity`", 4.0, 0.01), row("`kvtc`", 3.0, 0.05)];
        assert!(wins(&rows).contains("no peer"), "{}", wins(&rows));
        rows.push(row("`kivi-64g`", 3.0, 0.03));
        assert!(wins(&rows).ends_with("`kivi-64g` at 3.00 (0.0300, 0.0400)."), "{}", wins(&rows));
    }

    #[test]
    fn an_unknown_model_is_refused_with_those_there_are() {
        let refused = options(&["--only", "nothing"]).and_then(|own| at_hand(&own)).err().unwrap();
        assert!(
            refused.contains("there is no model `nothing`") && refused.contains("gemma3-270m"),
            "{refused}"
        );
    }
}
