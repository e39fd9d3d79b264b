//! `cargo xtask peers weights`: what a model loses when its linear weights are coded for a text, by rate, for the Trinity
//! codec, for quantizers of the field, for llama.cpp, EXL3, AutoRound and GPTQModel, and for the rate–distortion bound.
//!
//! What a cell says is the Kullback–Leibler divergence from the uncoded model's predictions, and in brackets the bits per byte
//! lost, each with half of its 95 % interval. The same calibrating text and the same held-out text for all, one evaluator, files as `trinity encode` writes them;
//! embeddings and output layers are kept as they are by all. Points are kept under `target/peers/weights` until the
//! program changes, so that a run that was stopped goes on.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench;
use super::chart::{self, Line};
use super::gap;
use super::kv::{is_newer, read_csv, texts};
use crate::{
    environment, files,
    json::member,
    models, tools,
    workspace::{root, target},
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: &str = "cargo xtask peers weights [--only MODEL] [--windows N] [--codec NAME] [--rates RATE,…] [--chart FILE.svg] [--trinity PROGRAM] [--kept]";

/// Who makes a point of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Maker {
    /// A codec of files, with the calibrating text or without it.
    Codec { name: &'static str, calibrated: bool },
    /// llama.cpp with an importance matrix of the calibrating text; its rate is its own.
    Llama,
    /// A quantizer of PyPI with its defaults and the calibrating text; its rate is that of its integers.
    Package(&'static str),
    /// Errors of the rate–distortion bound, with all that a calibration knows.
    Bound,
}

/// Rows of the table, and the rates of each: codecs of whole bits have room for their scales.
const ROWS: [(Maker, &[&str]); 11] = [
    (Maker::Codec { name: "trinity", calibrated: true }, &["2", "2.5", "3", "3.5", "4"]),
    (Maker::Codec { name: "watersic", calibrated: true }, &["2", "2.5", "3", "4"]),
    (Maker::Codec { name: "qtip", calibrated: true }, &["2", "3", "4"]),
    (Maker::Llama, &["IQ1_M", "IQ2_XXS", "IQ2_M", "IQ3_XXS", "IQ3_M", "Q3_K_M", "IQ4_XS", "Q4_K_M"]),
    (Maker::Package("exl3"), &["2", "2.5", "3", "4"]),
    (Maker::Package("autoround"), &["2", "3", "4"]),
    (Maker::Package("gptqmodel"), &["2", "3", "4"]),
    (Maker::Codec { name: "gptq-128g", calibrated: true }, &["2.15", "3.16", "4.17"]),
    (Maker::Codec { name: "awq-128g", calibrated: true }, &["2.15", "3.16", "4.17"]),
    (Maker::Codec { name: "trinity", calibrated: false }, &["2", "2.5", "3", "4"]),
    (Maker::Bound, &["1.5", "2", "2.5", "3", "4"]),
];
/// The columns of the table, by the rate they begin at.
const COLUMNS: [f64; 6] = [0.0, 2.0, 2.5, 3.0, 3.5, 4.0];

struct Model {
    name: &'static str,
    path: PathBuf,
    /// What is kept as it is.
    exclude: &'static str,
    windows: usize,
    /// Which programs of others quantize it.
    others: &'static [&'static str],
}

struct Point {
    bits: f64,
    /// Bits per byte, and half of their interval.
    lost: [f64; 2],
    /// Nats of a token, and half of their interval.
    divergence: [f64; 2],
}

#[derive(Default)]
struct Options {
    only: Option<String>,
    windows: Option<usize>,
    /// The one codec whose points are made.
    codec: Option<String>,
    /// The rates of it, as [`ROWS`] has them; all where none is said.
    rates: Vec<String>,
    chart: Option<PathBuf>,
    trinity: Option<PathBuf>,
    /// Whether only points that earlier runs left are shown, whatever program made them.
    kept: bool,
}

fn options(args: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = args.iter();
    while let Some(&word) = words.next() {
        if word == "--kept" {
            options.kept = true;
            continue;
        }
        let mut value = || words.next().ok_or(format!("{word} wants a value: {USAGE}"));
        match word {
            "--only" => options.only = Some((*value()?).into()),
            "--codec" => options.codec = Some(codec(value()?)?),
            "--rates" => options.rates = value()?.split(',').map(String::from).collect(),
            "--chart" => options.chart = Some(value()?.into()),
            "--windows" => {
                let count = value()?.parse().ok().filter(|&count| count > 0);
                options.windows = Some(count.ok_or("--windows wants a number above 0")?);
            }
            "--trinity" => options.trinity = Some(value()?.into()),
            _ => return Err(format!("`{word}`: expected {USAGE}")),
        }
    }
    let known: Vec<&str> = ROWS.iter().flat_map(|(_, rates)| *rates).copied().collect();
    if let Some(rate) = options.rates.iter().find(|rate| !known.contains(&rate.as_str())) {
        return Err(format!("no codec has the rate `{rate}`; expected some of: {}", listed(known)));
    }
    if options.chart.is_some() && options.only.is_none() {
        return Err(format!("a chart is of one model; name it with --only: {USAGE}"));
    }
    Ok(options)
}

fn codec(name: &str) -> Result<String, String> {
    let known: Vec<&str> = ROWS.iter().map(|(maker, _)| maker.name()).collect();
    if known.contains(&name) {
        return Ok(name.into());
    }
    Err(format!("there is no codec `{name}`; expected one of: {}", listed(known)))
}

/// Each name once, in order.
fn listed(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn models() -> [Model; 5] {
    let tiny = root().join("models/lm/data/tiny.safetensors");
    let small = root().join("../shared/lm/small.json");
    let gguf = |name: &str| models::cache().join(format!("{name}.gguf"));
    let reference = models::cache().join("reference/reference.safetensors");
    let model = |name, path, exclude, windows, others| Model { name, path, exclude, windows, others };
    [
        model("tiny", tiny, "embed*", 16, &["autoround", "gptqmodel"] as &[_]),
        model("small", small, "embed*", 8, &["autoround", "gptqmodel"]),
        model("smollm2-135m", gguf("smollm2-135m"), "token_embd*", 4, &["llama.cpp"]),
        model("reference", reference, "embed*", 8, &["llama.cpp", "exl3"]),
        model("gemma3-270m", gguf("gemma3-270m"), "token_embd*", 4, &[]),
    ]
}

/// The models of that name, or all.
fn chosen(all: [Model; 5], only: Option<&str>) -> Result<Vec<Model>, String> {
    let names = all.each_ref().map(|model| model.name).join(", ");
    let own: Vec<Model> = all.into_iter().filter(|own| only.is_none_or(|only| only == own.name)).collect();
    match only {
        Some(only) if own.is_empty() => Err(format!("there is no model `{only}`; expected one of: {names}")),
        _ => Ok(own),
    }
}

pub fn run(args: &[&str]) -> Result<(), String> {
    let options = options(args)?;
    let chosen = chosen(models(), options.only.as_deref())?;
    let trinity = match &options.trinity {
        None if options.kept => PathBuf::new(),
        Some(path) => std::fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => bench::build_trinity()?,
    };
    let scratch = bench::Scratch::new("peers-weights")?;
    let texts = texts(&scratch.path)?;
    for model in &chosen {
        if !model.path.exists() && !options.kept {
            let (name, path) = (model.name, model.path.display());
            eprintln!(
                "left out: {name} ({path} is not there; `cargo xtask models` fetches what packages have)"
            );
            continue;
        }
        let run = Run {
            trinity: &trinity,
            model,
            texts: &texts,
            windows: options.windows.unwrap_or(model.windows),
            kept: options.kept,
        };
        run.table(&options)?;
    }
    Ok(())
}

/// One model under all who are compared.
struct Run<'a> {
    trinity: &'a Path,
    model: &'a Model,
    texts: &'a [PathBuf; 2],
    windows: usize,
    kept: bool,
}

impl Run<'_> {
    fn table(&self, options: &Options) -> Result<(), String> {
        println!("\n{}, linear weights alone, {} windows:\n", self.model.name, self.windows);
        println!(
            "| codec | below 2 bits | {} |",
            COLUMNS[1..].iter().map(|bits| format!("{bits} bits")).collect::<Vec<_>>().join(" | ")
        );
        println!("|---|{}", "---|".repeat(COLUMNS.len()));
        let mut lines = Vec::new();
        for (maker, rates) in ROWS {
            let wanted = options.codec.as_ref().is_none_or(|only| *only == maker.name());
            if !wanted || maker.is_other() && !self.model.others.contains(&maker.name()) {
                continue;
            }
            let there = |rate: &&&str| !self.kept || is_made(maker, &self.folder(maker, rate));
            let asked =
                |rate: &&&str| options.rates.is_empty() || options.rates.iter().any(|own| own == **rate);
            let made = rates.iter().filter(asked).filter(there).map(|rate| self.point(maker, rate));
            let points = made.collect::<Result<Vec<Point>, String>>()?;
            if points.is_empty() {
                continue;
            }
            let cell = |column: usize| {
                let own = points.iter().filter(|point| column_of(point.bits) == column);
                own.map(|point| {
                    let at = if point.bits == COLUMNS[column] {
                        String::new()
                    } else {
                        format!(" at {:.2}", point.bits)
                    };
                    let ([lost, half], [nats, within]) = (point.lost, point.divergence);
                    format!("{nats:.4} ± {within:.4} ({lost:.4} ± {half:.4}){at}")
                })
                .collect::<Vec<_>>()
                .join("; ")
            };
            let cells: Vec<String> = (0..COLUMNS.len()).map(cell).collect();
            println!("| {} | {} |", maker.title(), cells.join(" | "));
            let points = points.iter().map(|point| (point.bits, point.divergence[0])).collect();
            let name = maker.title().replace('`', "");
            lines.push(Line { name, points, is_bound: maker == Maker::Bound });
        }
        if lines.is_empty() {
            eprintln!("no point of {} was {}", self.model.name, if self.kept { "kept" } else { "asked for" });
            return Ok(());
        }
        said_of(&lines).into_iter().for_each(|sentence| println!("\n{sentence}"));
        match &options.chart {
            None => Ok(()),
            Some(path) => {
                let title = format!("{}: linear weights coded for a text", self.model.name);
                files::write(path, chart::svg(&title, &lines))
            }
        }
    }

    /// Where a point is kept.
    fn folder(&self, maker: Maker, rate: &str) -> PathBuf {
        let (model, windows) = (self.model.name, self.windows);
        target().join(format!("peers/weights/{model}-{windows}-{}-{rate}", maker.folder()))
    }

    /// One point, made now or by an earlier run of the same program.
    fn point(&self, maker: Maker, rate: &str) -> Result<Point, String> {
        let folder = self.folder(maker, rate);
        let csv = folder.join("eval.csv");
        // What another program makes does not change with ours.
        let kept = self.kept || is_made(maker, &folder) && (maker.is_other() || is_newer(&csv, self.trinity));
        let stale = !kept;
        files::folder(&folder)?;
        if stale {
            eprintln!("{}: {} at {rate}", self.model.name, maker.title());
        }
        let bits = match maker {
            Maker::Codec { name, calibrated } => {
                if stale {
                    self.encode(name, calibrated, rate, &folder)?;
                }
                Some(coded_bits(&folder.join("encode.json"))?)
            }
            Maker::Llama | Maker::Package(_) => Some(self.other(maker, rate, &folder, stale)?),
            Maker::Bound => {
                if stale {
                    let coding = format!("bound@{rate}");
                    let mut eval = Command::new(self.trinity);
                    eval.arg("eval").arg(&self.model.path).args(["--weights", &coding]);
                    self.eval(eval.arg("--calibrate").arg(&self.texts[1]), &folder)?;
                }
                None
            }
        };
        let [lost, half, nats, within] =
            scored(&csv)?.ok_or_else(|| format!("{} has no row of the file", csv.display()))?;
        let asked = || rate.parse().map_err(|_| format!("{rate} is no rate"));
        Ok(Point { bits: bits.map_or_else(asked, Ok)?, lost: [lost, half], divergence: [nats, within] })
    }

    fn encode(&self, codec: &str, calibrated: bool, rate: &str, folder: &Path) -> Result<(), String> {
        let coded = folder.join("coded.tri");
        let mut encode = Command::new(self.trinity);
        encode
            .arg("encode")
            .arg(&self.model.path)
            .args(["--codec", codec, "--bits", rate, "--force", "--quiet", "--json"]);
        encode.args(["--exclude", self.model.exclude, "-o"]).arg(&coded);
        if calibrated {
            encode.arg("--calibrate").arg(&self.texts[1]);
        }
        let said = tools::succeed_with_output(&mut encode)?;
        files::write(&folder.join("encode.json"), said)?;
        let mut eval = Command::new(self.trinity);
        self.eval(eval.arg("eval").arg(&coded).arg("--original").arg(&self.model.path), folder)
    }

    /// Has the evaluator score what the command names.
    fn eval(&self, eval: &mut Command, folder: &Path) -> Result<(), String> {
        eval.arg("--text").arg(&self.texts[0]);
        eval.args(["--windows", &self.windows.to_string(), "--force", "--quiet", "--out"]).arg(folder);
        tools::succeed(eval.stdout(Stdio::null()))
    }

    /// Has a program of others quantize the model; answers the bits of a weight.
    fn other(&self, maker: Maker, rate: &str, folder: &Path, stale: bool) -> Result<f64, String> {
        let said = folder.join("said.json");
        if stale || !said.exists() {
            let mut quantize = match maker {
                Maker::Package(name) => self.package(name, rate)?,
                _ => self.llama(rate)?,
            };
            let made = quantize.stderr(Stdio::null()).output();
            let made = made.map_err(|e| format!("{}: {e}", maker.name()))?;
            if !made.status.success() {
                return Err(format!("{} could not quantize {} to {rate}", maker.name(), self.model.name));
            }
            files::write(&said, made.stdout)?;
        }
        let text = files::text(&said)?;
        let bits = member(&text, "bits").and_then(|bits| bits.parse().ok());
        let all = member(&text, "quantized").zip(member(&text, "original")).zip(bits);
        let ((quantized, original), bits) = all.ok_or(format!("{} says nothing", said.display()))?;
        if stale {
            let mut eval = Command::new(self.trinity);
            self.eval(eval.arg("eval").arg(quantized).arg("--original").arg(original), folder)?;
        }
        Ok(bits)
    }

    fn llama(&self, kind: &str) -> Result<Command, String> {
        let missing = tools::ensure(&[tools::CMAKE]);
        if let Some((tool, why)) = missing.first() {
            return Err(format!("llama.cpp is built with {}, and {why}", tool.package));
        }
        let python = environment::virtual_environment(".venv-llama", &["xtask/src/peers/llama.txt"])?;
        Ok(self.quantizer(&python, "llama", kind))
    }

    /// A script beside this file, its folder, and what it quantizes with the calibrating text.
    fn quantizer(&self, python: &Path, script: &str, kind: &str) -> Command {
        let mut quantize = Command::new(python);
        quantize
            .arg(root().join(format!("xtask/src/peers/{script}.py")))
            .arg(target().join("peers").join(script));
        quantize.arg(&self.model.path).arg(&self.texts[1]).arg(kind);
        quantize
    }

    fn package(&self, name: &str, bits: &str) -> Result<Command, String> {
        let (script, python) = match name {
            // With PyTorch of its own: what runs on a GPU is no matter of a list of packages.
            "exl3" => (name, tools::find("python3").ok_or("no python3 on this machine")?),
            _ => {
                let list = "python/requirements-weights-peers.txt";
                ("rounding", environment::virtual_environment(".venv-peers", &[list])?)
            }
        };
        Ok(self.quantizer(&python, script, &format!("{name}-{bits}")))
    }
}

impl Maker {
    /// Whether a program of others makes it, which does not change with ours.
    fn is_other(self) -> bool {
        matches!(self, Self::Llama | Self::Package(_))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Codec { name, .. } => name,
            Self::Llama => "llama.cpp",
            Self::Package(name) => name,
            Self::Bound => "bound",
        }
    }

    fn title(self) -> String {
        match self {
            Self::Codec { name, calibrated: true } => format!("`{name}`, calibrated"),
            Self::Codec { name, calibrated: false } => format!("`{name}`"),
            Self::Llama => "llama.cpp, calibrated".into(),
            Self::Package("exl3") => "EXL3, calibrated".into(),
            Self::Package("autoround") => "AutoRound, calibrated".into(),
            Self::Package(_) => "GPTQModel, calibrated".into(),
            Self::Bound => "rate–distortion bound".into(),
        }
    }

    fn folder(self) -> String {
        match self {
            Self::Codec { name, calibrated } => {
                format!("{name}-{}", if calibrated { "calibrated" } else { "plain" })
            }
            Self::Llama => "llama".into(),
            _ => self.name().into(),
        }
    }
}

/// What was lost and by how much predictions moved, each with its interval: the last row, where it is not the first, which
/// is of the model as it is.
fn scored(csv: &Path) -> Result<Option<[f64; 4]>, String> {
    let rows = read_csv(csv, ["delta_bits_per_byte", "delta_ci95", "kl_nats", "kl_ci95"])?;
    Ok(rows.get(1..).and_then(<[_]>::last).copied())
}

/// Bits of a weight that was coded, by what `trinity encode --json` said: all that its stream takes.
fn coded_bits(said: &Path) -> Result<f64, String> {
    let text = files::text(said)?;
    let coded = text.split_once("\"coded\"").map_or("", |(_, rest)| rest);
    let number = |name: &str| member(coded, name)?.parse::<f64>().ok();
    match number("bytes").zip(number("values")) {
        Some((bytes, values)) if values > 0.0 => Ok(8.0 * bytes / values),
        _ => Err(format!("{} does not say what was coded", said.display())),
    }
}

/// Whether a point was made to its end: a run that was stopped leaves the row of the model as it is.
fn is_made(maker: Maker, folder: &Path) -> bool {
    let has_bits = !matches!(maker, Maker::Codec { .. }) || folder.join("encode.json").exists();
    has_bits && is_whole(&folder.join("eval.csv"))
}

/// Whether a point was scored to its end.
fn is_whole(csv: &Path) -> bool {
    matches!(scored(csv), Ok(Some(_)))
}

/// Who moves predictions less than calibrated Trinity at the same bits, and how far each is from the bound.
fn said_of(lines: &[Line]) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(ours) = lines.iter().find(|line| line.name == "trinity, calibrated") {
        let others = lines.iter().filter(|line| !line.is_bound && line.name != ours.name);
        let better = others.flat_map(|line| {
            let beside =
                |&(bits, own): &gap::Point| Some((bits, own, gap::divergence_at(&ours.points, bits)?));
            let less = line.points.iter().filter_map(beside).filter(|&(_, own, ours)| own < ours);
            less.map(|(bits, own, ours)| format!("{} at {bits:.2} ({own:.4}, {ours:.4})", line.name))
        });
        let better: Vec<String> = better.collect();
        said.push(match better.is_empty() {
            true => "At equal bits nobody here has less divergence than calibrated `trinity`.".into(),
            false => {
                format!("At equal bits less divergence than calibrated `trinity`: {}.", better.join(", "))
            }
        });
    }
    if let Some(bound) = lines.iter().find(|line| line.is_bound) {
        let gaps = lines.iter().filter(|line| !line.is_bound).filter_map(|line| {
            let above = |&(bits, own): &gap::Point| {
                Some(format!("{:.2} at {bits:.2}", bits - gap::bits_at(&bound.points, own)?))
            };
            let own: Vec<String> = line.points.iter().filter_map(above).collect();
            (!own.is_empty()).then(|| format!("- {}: {}", line.name, own.join(", ")))
        });
        let gaps: Vec<String> = gaps.collect();
        if !gaps.is_empty() {
            said.push(format!("Bits above the bound of equal divergence:\n\n{}", gaps.join("\n")));
        }
    }
    said
}

fn column_of(bits: f64) -> usize {
    COLUMNS.iter().rposition(|&from| from <= bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_refused_with_what_there_is() {
        let model = chosen(models(), Some("nothing")).err().unwrap();
        assert!(model.contains("there is no model `nothing`") && model.contains("smollm2-135m"), "{model}");
        assert_eq!(chosen(models(), Some("small")).unwrap().len(), 1);
        let refused = |words: &[&str]| options(words).err().unwrap();
        let codec = refused(&["--codec", "nothing"]);
        assert!(codec.contains("there is no codec `nothing`") && codec.contains("watersic"), "{codec}");
        for words in
            [&["--only"][..], &["--windows", "0"], &["--rates", "2,9"], &["--chart", "a.svg"], &["nothing"]]
        {
            assert!(!refused(words).is_empty(), "{words:?}");
        }
    }

    #[test]
    fn a_point_whose_run_was_stopped_is_made_again() {
        let scratch = bench::Scratch::new("peers-weights-test").unwrap();
        let csv = scratch.path.join("eval.csv");
        assert!(!is_whole(&csv));
        let head = "key,delta_bits_per_byte,delta_ci95,kl_nats,kl_ci95\na,0,,,\n";
        std::fs::write(&csv, head).unwrap();
        assert!(!is_whole(&csv), "the model as it is alone");
        std::fs::write(&csv, format!("{head}b,0.1,0.01,0.2,0.02\n")).unwrap();
        assert!(is_whole(&csv));
        assert_eq!(scored(&csv), Ok(Some([0.1, 0.01, 0.2, 0.02])));
    }

    #[test]
    fn bits_are_those_of_what_was_coded_and_of_nothing_else() {
        let scratch = bench::Scratch::new("peers-weights-bits").unwrap();
        let said = scratch.path.join("encode.json");
        let text = "{\"bytes\": 900, \"coded\": {\"bytes\": 25, \"tensors\": 2, \"values\": 100}, \"exact\": {\"values\": 7}}";
        std::fs::write(&said, text).unwrap();
        assert_eq!(coded_bits(&said), Ok(2.0));
        std::fs::write(&said, "{}").unwrap();
        assert!(coded_bits(&said).unwrap_err().contains("does not say"));
    }

    #[test]
    fn who_moves_predictions_less_is_said_first_and_then_what_the_bound_leaves() {
        let line = |name: &str, points: &[gap::Point], is_bound| Line {
            name: name.into(),
            points: points.to_vec(),
            is_bound,
        };
        let ours = line("trinity, calibrated", &[(2.0, 0.4), (4.0, 0.025)], false);
        let bound = line("rate–distortion bound", &[(1.0, 0.8), (3.0, 0.05)], true);
        let said = said_of(&[ours.clone(), line("other", &[(3.0, 0.09), (4.0, 0.03)], false), bound.clone()]);
        assert!(
            said[0].contains("less divergence") && said[0].contains("other at 3.00 (0.0900, 0.1000)"),
            "{said:?}"
        );
        assert!(
            !said[0].contains("4.00") && said[1].contains("- trinity, calibrated: 0.50 at 2.00"),
            "{said:?}"
        );
        assert!(said_of(&[ours, bound.clone()])[0].contains("nobody"));
        assert!(said_of(&[bound]).is_empty());
    }
}
