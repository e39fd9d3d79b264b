//! `trinity eval`: what a bit rate does to a language model.

mod page;
mod sweep;

use crate::{
    context::Context,
    failure::Failure,
    kept::Kept,
    table::{Table, sig3},
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use trinity_lm::{
    Checkpoint, Error, Model, NoHooks, Score, Text, builtin,
    coding::{CodedPaths, Coding},
    score,
    weights::{Calibration, code_weights},
};
use trinity_tensor::allocate::Allocation;

/// Score a language model with its weights, KV cache or activations coded
///
/// Runs a Llama-style model over a text and prints bits per byte, uncompressed
/// and with codecs in the loop. A model is a folder with config.json, a
/// configuration (tiny.json), or a safetensors file beside one; without MODEL,
/// the tiny model that comes with the project. A coding is CODEC@BITS; every
/// bit counts, scales and headers included, except that rtn@B with a whole B
/// is plain round-to-nearest: B-bit integers, one scale a row on top.
/// `hadamard/CODEC` rotates rows first, as QuaRot does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--sweep takes rates as a list, or as a progression: 2,2.25,…,4.5. Without --codecs it compares
H.265, H.264, RTN per row, RTN with groups of 128, MXFP4, the best of the paper's eight
baselines {INT, MXFP} x {Huffman, Deflate, LZ4, CABAC} at each rate (best-baseline), the
uniform quantizer with arithmetic coding, and the Trinity codec, with and without Hadamard.

With --out DIR, eval.csv grows as a sweep goes; the same command run again goes on where it
stopped.

--traffic codes the KV cache at 2.9 bits and the activations between pipeline stages at 3.5,
each beside RTN at 3 and 4 (the paper's Figure 8).

--kv and --activations take one coding, or several separated by commas: then each is tried by
itself. --allocation equal-slope measures what an error in each weight costs the model on the
last windows of the text, and moves bits to where they save most.

Examples:
  trinity eval                                          the built-in model and text
  trinity eval --weights h265@3 --allocation equal-slope
  trinity eval small.safetensors --text eval.txt --kv trinity@2.9 --windows 8
  trinity eval --activations rtn@4 --stages 4
  trinity eval --traffic --windows 8
  trinity eval --sweep 2,2.25,…,4.5 --out curve")]
pub struct Args {
    /// The model (default: the built-in tiny one)
    model: Option<PathBuf>,
    /// The text to predict (default: 64 KB that come with the tiny model)
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Code the linear weights
    #[arg(long, value_name = "CODEC@BITS")]
    weights: Option<String>,
    /// How weight bits are shared among tensors: equal, linear or equal-slope
    #[arg(long, value_name = "HOW", default_value = "equal")]
    allocation: Allocation,
    /// Code K and V of every layer
    #[arg(long, value_name = "CODEC@BITS", value_delimiter = ',')]
    kv: Vec<String>,
    /// Code the residual stream between pipeline stages
    #[arg(long, value_name = "CODEC@BITS", value_delimiter = ',')]
    activations: Vec<String>,
    /// KV cache at 2.9 bits and activations at 3.5 beside RTN at 3 and 4
    #[arg(long, conflicts_with_all = ["weights", "kv", "activations", "sweep"])]
    traffic: bool,
    /// Pipeline stages, for --activations
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    stages: u16,
    /// Tokens coded together in a cache or an activation
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    block: u32,
    /// Score the first N windows of 1,024 tokens only
    #[arg(long, value_name = "N")]
    windows: Option<usize>,
    /// Bits per value of the weights to try, for every codec of --codecs
    #[arg(long, value_name = "BITS,…", value_delimiter = ',', conflicts_with_all = ["weights", "kv", "activations"])]
    sweep: Vec<String>,
    /// Codecs of --sweep
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',', default_values_t = sweep::CODECS.map(String::from))]
    codecs: Vec<String>,
    /// Write eval.csv and report.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Tokens a window: what the models were trained with.
const WINDOW: usize = 1024;
/// Windows that a calibration looks at.
const CALIBRATION_WINDOWS: usize = 6;
/// What `--traffic` compares: Figure 8's rates, and plain rounding beside.
const TRAFFIC_KV: [&str; 5] = ["rtn@3", "rtn@4", "h265@2.9", "hadamard/h265@2.9", "trinity@2.9"];
const TRAFFIC_ACTIVATIONS: [&str; 5] = ["rtn@3", "rtn@4", "h265@3.5", "hadamard/h265@3.5", "trinity@3.5"];

/// One scored configuration, as `--json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    weights: Option<String>,
    /// The codec that was used, where the name stands for a choice.
    codec: Option<String>,
    /// How the weights' bits were shared out.
    allocation: Option<String>,
    kv: Option<String>,
    activations: Option<String>,
    bits_per_byte: f64,
    delta_bits_per_byte: f64,
    perplexity: f64,
    weights_bits_per_value: Option<f64>,
    weights_nmse: Option<f64>,
    kv_bits_per_value: Option<f64>,
    activations_bits_per_value: Option<f64>,
    /// Linear weights at their bits, the rest as stored (16 bit).
    weight_mib: f64,
}

impl Row {
    /// The codec of the weights, by name, and its rate.
    fn point(&self) -> Option<(&str, f64)> {
        let (name, rate) = self.weights.as_deref()?.rsplit_once('@')?;
        Some((name, rate.parse().ok()?))
    }

    /// Whether both score an uncoded model, the same on the same text.
    fn is_at(&self, other: &Self) -> bool {
        let coded = |row: &Self| row.weights.is_some() || row.kv.is_some() || row.activations.is_some();
        !coded(self) && !coded(other) && (self.bits_per_byte - other.bits_per_byte).abs() < 1e-9
    }
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    // What cannot be read is said before a model is loaded.
    let rates = sweep::rates(&args.sweep)?;
    let plan = plan(args)?;
    let bench = Bench::open(args)?;
    let baseline = bench.score(&bench.model, None, ctx, "uncompressed")?;
    let first = bench.row(&baseline, baseline.bits_per_byte, None);
    // Points of an earlier run stand only beside the score that they were held against.
    let belongs = |rows: &[Row]| rows.first().is_some_and(|row| row.is_at(&first));
    let kept: Kept<Row> = Kept::open(args.out.as_deref(), "eval.csv", belongs)?;
    if kept.earlier().is_empty() {
        kept.add(&first);
    }
    let rows = if rates.is_empty() {
        configurations(args, &plan, &bench, first, ctx)?
    } else {
        sweep::run(args, &rates, &bench, first, &kept, ctx)?
    };
    kept.finish(&rows)?;
    if let Some(out) = &args.out {
        page::write(&rows, &bench.name, out, ctx)?;
    }
    if ctx.json {
        // One configuration is one object; several are a list.
        return if rates.is_empty() && plan.len() <= 1 {
            ctx.print_json(&rows[rows.len() - 1])
        } else {
            ctx.print_json(&rows)
        };
    }
    ctx.print(table(&rows).render(ctx.colour))
}

/// Where codecs stand in one run.
#[derive(Debug)]
struct Plan {
    weights: Option<Coding>,
    paths: CodedPaths,
}

/// The runs that the options ask for. One coding a place is one run with all
/// of them; several are a run each.
fn plan(args: &Args) -> Result<Vec<Plan>, Failure> {
    let list = |given: &[String], preset: &[&str]| -> Vec<String> {
        if args.traffic { preset.iter().map(|&text| text.into()).collect() } else { given.to_vec() }
    };
    let kv = list(&args.kv, &TRAFFIC_KV);
    let activations = list(&args.activations, &TRAFFIC_ACTIVATIONS);
    let one = |kv: Option<&String>, activations: Option<&String>| -> Result<Plan, Failure> {
        Ok(Plan {
            weights: coding(args.weights.as_ref(), "--weights")?,
            paths: CodedPaths {
                kv: coding(kv, "--kv")?,
                activations: coding(activations, "--activations")?,
                stages: args.stages.into(),
                block: args.block as usize,
            },
        })
    };
    if kv.len() <= 1 && activations.len() <= 1 {
        let idle = args.weights.is_none() && kv.is_empty() && activations.is_empty();
        return if idle { Ok(Vec::new()) } else { Ok(vec![one(kv.first(), activations.first())?]) };
    }
    let caches = kv.iter().map(|kv| one(Some(kv), None));
    caches.chain(activations.iter().map(|activations| one(None, Some(activations)))).collect()
}

fn coding(text: Option<&String>, option: &str) -> Result<Option<Coding>, Failure> {
    text.map(|t| t.parse::<Coding>().map_err(|e| Failure::input(format_args!("{option}: {e}")))).transpose()
}

/// Model, text, and the score without any codec.
struct Bench {
    model: Model,
    text: Text,
    /// The last windows of the whole text, for a calibration.
    calibration: Text,
    name: String,
}

impl Bench {
    fn open(args: &Args) -> Result<Self, Failure> {
        let checkpoint = match &args.model {
            Some(path) => Checkpoint::open(path).map_err(failure)?,
            None => builtin::tiny().map_err(failure)?,
        };
        let bytes = match &args.text {
            Some(path) => std::fs::read(path)
                .map_err(|e| Failure::input(format_args!("cannot read {}: {e}", path.display())))?,
            None => builtin::text().to_vec(),
        };
        let mut text = Text::new(&bytes, &checkpoint, WINDOW).map_err(failure)?;
        let calibration =
            Text { windows: text.windows[text.windows.len().saturating_sub(CALIBRATION_WINDOWS)..].to_vec() };
        text.windows.truncate(args.windows.unwrap_or(usize::MAX).max(1));
        let name = args.model.as_ref().map_or("tiny (built in)".into(), |p| p.display().to_string());
        Ok(Self { model: Model::load(&checkpoint).map_err(failure)?, text, calibration, name })
    }

    fn score(
        &self,
        model: &Model,
        paths: Option<&CodedPaths>,
        ctx: &Context,
        what: &str,
    ) -> Result<Score, Failure> {
        let bar = ctx.progress(self.text.windows.len() as u64, what);
        let step = || bar.inc(1);
        let outcome = match paths {
            Some(paths) => score(model, &self.text, paths, &step),
            None => score(model, &self.text, &NoHooks, &step),
        };
        bar.finish_and_clear();
        outcome.map_err(failure)
    }

    /// Values in linear weights, and in everything else.
    fn sizes(&self) -> (f64, f64) {
        let linear: usize = self.model.weights().iter().map(|w| w.values.len()).sum();
        let config = self.model.config();
        let heads = if config.tie_word_embeddings { 1 } else { 2 };
        let norms = (2 * config.num_hidden_layers + 1) * config.hidden_size;
        (linear as f64, (heads * config.vocab_size * config.hidden_size + norms) as f64)
    }

    /// What an error in each weight costs, where an allocation asks for it.
    fn calibration(&self, allocation: Allocation) -> Result<Option<Calibration>, Failure> {
        if allocation != Allocation::EqualSlope {
            return Ok(None);
        }
        Calibration::measure(&self.model, &self.calibration).map(Some).map_err(failure)
    }

    /// Linear weights at so many bits, the rest as stored.
    fn mib(&self, bits: f64) -> f64 {
        let (linear, rest) = self.sizes();
        (linear * bits + rest * 16.0) / 8.0 / f64::from(1 << 20)
    }

    fn row(&self, scored: &Score, baseline: f64, weights: Option<(&Coding, f64, f64)>) -> Row {
        Row {
            weights: weights.map(|w| format!("{}@{}", w.0.name(), w.0.bits())),
            codec: None,
            allocation: None,
            kv: None,
            activations: None,
            bits_per_byte: scored.bits_per_byte,
            delta_bits_per_byte: scored.bits_per_byte - baseline,
            perplexity: scored.perplexity,
            weights_bits_per_value: weights.map(|w| w.1),
            weights_nmse: weights.map(|w| w.2),
            kv_bits_per_value: scored.kv_bits_per_value,
            activations_bits_per_value: scored.activation_bits_per_value,
            weight_mib: self.mib(weights.map_or(16.0, |w| w.1)),
        }
    }
}

/// A damaged checkpoint or text is the user's to mend.
fn failure(error: Error) -> Failure {
    match error {
        Error::Hook { .. } => Failure::run(error),
        other => Failure::input(other),
    }
}

fn configurations(
    args: &Args,
    plan: &[Plan],
    bench: &Bench,
    first: Row,
    ctx: &Context,
) -> Result<Vec<Row>, Failure> {
    let known = first.bits_per_byte;
    let mut rows = vec![first];
    for Plan { weights, paths } in plan {
        let mut model = bench.model.clone();
        let coded = match weights {
            Some(coding) => {
                let calibration = bench.calibration(args.allocation)?;
                let coded = code_weights(&mut model, coding, args.allocation, calibration.as_ref());
                let coded = coded.map_err(failure)?;
                Some((coding, coded.bits_per_value, coded.nmse))
            }
            None => None,
        };
        let label = |coding: &Option<Coding>| coding.as_ref().map(|c| format!("{}@{}", c.name(), c.bits()));
        let (kv, activations) = (label(&paths.kv), label(&paths.activations));
        let on_the_way = kv.is_some() || activations.is_some();
        let what = kv.as_deref().or(activations.as_deref()).unwrap_or("coded");
        let scored = bench.score(&model, on_the_way.then_some(paths), ctx, what)?;
        let allocation = coded.map(|_| args.allocation.to_string());
        rows.push(Row { kv, activations, allocation, ..bench.row(&scored, known, coded) });
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "weights",
        "kv",
        "activations",
        "bits/byte",
        "change",
        "perplexity",
        "weight bits",
        "kv bits",
        "activation bits",
        "weights MiB",
    ]);
    let text = |t: &Option<String>| t.clone().unwrap_or_else(|| "as stored".into());
    let bits = |b: Option<f64>| b.map_or(String::new(), sig3);
    for row in rows {
        table.row([
            match (&row.weights, &row.codec) {
                (Some(weights), Some(codec)) => format!("{weights} ({codec})"),
                (weights, _) => text(weights),
            },
            text(&row.kv),
            text(&row.activations),
            format!("{:.5}", row.bits_per_byte),
            format!("{:+.5}", row.delta_bits_per_byte),
            sig3(row.perplexity),
            bits(row.weights_bits_per_value),
            bits(row.kv_bits_per_value),
            bits(row.activations_bits_per_value),
            sig3(row.weight_mib),
        ]);
    }
    table
}
