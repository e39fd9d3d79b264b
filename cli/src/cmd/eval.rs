//! `trinity eval`: what a bit rate does to a language model.

use crate::{
    context::Context,
    failure::Failure,
    output,
    plot::{Axis, Mark, Plot, Series},
    report::Report,
    table::{Table, sig3},
};
use serde::Serialize;
use std::path::PathBuf;
use trinity_lm::{
    Checkpoint, Error, Model, NoHooks, Score, Text, builtin,
    coding::{CodedPaths, Coding, code_weights},
    score,
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
/// `hadamard+CODEC` rotates weights first, as QuaRot does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity eval                                          the built-in model and text
  trinity eval --weights h265@3
  trinity eval small.safetensors --text eval.txt --kv trinity@2.9 --windows 8
  trinity eval --activations rtn@4 --stages 4
  trinity eval --sweep 2,2.5,3,3.5,4 --codecs trinity,h265,rtn-128g --out curve")]
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
    #[arg(long, value_name = "CODEC@BITS")]
    kv: Option<String>,
    /// Code the residual stream between pipeline stages
    #[arg(long, value_name = "CODEC@BITS")]
    activations: Option<String>,
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
    sweep: Vec<f64>,
    /// Codecs of --sweep
    #[arg(
        long,
        value_name = "CODEC,…",
        value_delimiter = ',',
        default_value = "trinity,h265,h264,rtn,rtn-128g,mxfp4,uniform+ac,hadamard+h265"
    )]
    codecs: Vec<String>,
    /// Write eval.csv and report.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Tokens a window: what the models were trained with.
const WINDOW: usize = 1024;

/// One scored configuration, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
struct Row {
    weights: Option<String>,
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

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let bench = Bench::open(args)?;
    let rows = if args.sweep.is_empty() { single(args, &bench, ctx)? } else { sweep(args, &bench, ctx)? };
    if let Some(out) = &args.out {
        write(&rows, &bench, out, ctx)?;
    }
    if ctx.json {
        // One configuration is one object; a curve is a list.
        return if args.sweep.is_empty() {
            ctx.print_json(&rows[rows.len() - 1])
        } else {
            ctx.print_json(&rows)
        };
    }
    ctx.print(table(&rows).render(ctx.colour))
}

/// Model, text, and the score without any codec.
struct Bench {
    model: Model,
    text: Text,
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
        text.windows.truncate(args.windows.unwrap_or(usize::MAX).max(1));
        let name = args.model.as_ref().map_or("tiny (built in)".into(), |p| p.display().to_string());
        Ok(Self { model: Model::load(&checkpoint).map_err(failure)?, text, name })
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

    fn row(&self, scored: &Score, baseline: f64, weights: Option<(&Coding, f64, f64)>) -> Row {
        let (linear, rest) = self.sizes();
        let bits = weights.map_or(16.0, |w| w.1);
        Row {
            weights: weights.map(|w| format!("{}@{}", w.0.name(), w.0.bits())),
            kv: None,
            activations: None,
            bits_per_byte: scored.bits_per_byte,
            delta_bits_per_byte: scored.bits_per_byte - baseline,
            perplexity: scored.perplexity,
            weights_bits_per_value: weights.map(|w| w.1),
            weights_nmse: weights.map(|w| w.2),
            kv_bits_per_value: scored.kv_bits_per_value,
            activations_bits_per_value: scored.activation_bits_per_value,
            weight_mib: (linear * bits + rest * 16.0) / 8.0 / f64::from(1 << 20),
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

fn coding(text: &Option<String>, option: &str) -> Result<Option<Coding>, Failure> {
    text.as_ref()
        .map(|t| t.parse::<Coding>().map_err(|e| Failure::input(format_args!("{option}: {e}"))))
        .transpose()
}

fn single(args: &Args, bench: &Bench, ctx: &Context) -> Result<Vec<Row>, Failure> {
    let weights = coding(&args.weights, "--weights")?;
    let paths = CodedPaths {
        kv: coding(&args.kv, "--kv")?,
        activations: coding(&args.activations, "--activations")?,
        stages: args.stages.into(),
        block: args.block as usize,
    };
    let baseline = bench.score(&bench.model, None, ctx, "uncompressed")?;
    let mut rows = vec![bench.row(&baseline, baseline.bits_per_byte, None)];
    let on_the_way = paths.kv.is_some() || paths.activations.is_some();
    if weights.is_none() && !on_the_way {
        return Ok(rows);
    }
    let mut model = bench.model.clone();
    let coded = match &weights {
        Some(coding) => {
            let coded = code_weights(&mut model, coding, args.allocation).map_err(failure)?;
            Some((coding, coded.bits_per_value, coded.nmse))
        }
        None => None,
    };
    let scored = bench.score(&model, on_the_way.then_some(&paths), ctx, "coded")?;
    let mut row = bench.row(&scored, baseline.bits_per_byte, coded);
    row.kv = args.kv.clone();
    row.activations = args.activations.clone();
    rows.push(row);
    Ok(rows)
}

fn sweep(args: &Args, bench: &Bench, ctx: &Context) -> Result<Vec<Row>, Failure> {
    let baseline = bench.score(&bench.model, None, ctx, "uncompressed")?;
    let mut rows = vec![bench.row(&baseline, baseline.bits_per_byte, None)];
    for name in &args.codecs {
        // A name nobody knows is found before hours are spent on the others.
        Coding::new(name, args.sweep[0]).map_err(|e| Failure::input(format_args!("--codecs: {e}")))?;
    }
    for name in &args.codecs {
        for &bits in &args.sweep {
            let coding = Coding::new(name, bits).map_err(|e| Failure::input(format_args!("--sweep: {e}")))?;
            let mut model = bench.model.clone();
            match code_weights(&mut model, &coding, args.allocation) {
                Ok(coded) => {
                    let scored = bench.score(&model, None, ctx, &format!("{name}@{bits}"))?;
                    let row = bench.row(
                        &scored,
                        baseline.bits_per_byte,
                        Some((&coding, coded.bits_per_value, coded.nmse)),
                    );
                    rows.push(row);
                }
                // A rate below a codec's least is a gap in its curve, said aloud.
                Err(error) => ctx.remark(format!("{name}@{bits}: {error}")),
            }
        }
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
            text(&row.weights),
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

fn write(rows: &[Row], bench: &Bench, out: &std::path::Path, ctx: &Context) -> Result<(), Failure> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in rows {
        csv.serialize(row).map_err(|e| Failure::run(format_args!("eval.csv: {e}")))?;
    }
    let bytes = csv.into_inner().map_err(|e| Failure::run(format_args!("eval.csv: {e}")))?;
    output::write(&out.join("eval.csv"), &bytes)?;
    let mut report = Report::new(format!("What bits do to a language model: {}", bench.name));
    let names: Vec<&str> =
        rows.iter().filter_map(|r| r.weights.as_deref()?.rsplit_once('@').map(|w| w.0)).collect();
    let mut unique: Vec<&str> = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    let mut series: Vec<Series> = unique
        .iter()
        .map(|name| Series {
            name: (*name).to_string(),
            points: rows
                .iter()
                .filter(|r| {
                    r.weights.as_deref().and_then(|w| w.rsplit_once('@')).is_some_and(|w| w.0 == *name)
                })
                .filter_map(|r| Some((r.weights_bits_per_value?, r.bits_per_byte)))
                .collect(),
            mark: Mark::Line,
        })
        .collect();
    let span: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).collect();
    if let (Some(low), Some(high)) =
        (span.iter().copied().reduce(f64::min), span.iter().copied().reduce(f64::max))
    {
        series.push(Series {
            name: "uncompressed".into(),
            points: vec![(low, rows[0].bits_per_byte), (high, rows[0].bits_per_byte)],
            mark: Mark::Reference,
        });
    }
    report.plot(
        "Bits per byte of text against bits per value of the weights (everything counted); lower is better",
        &Plot { x: Axis::linear("bits per value"), y: Axis::log("bits per byte"), series },
    );
    let table = table(rows);
    report.table("Every point", table.headers(), table.rows());
    report.write(&out.join("report.html"))?;
    ctx.remark(format!("wrote {}", out.join("{eval.csv,report.html}").display()));
    Ok(())
}
