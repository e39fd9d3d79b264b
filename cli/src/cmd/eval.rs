//! `trinity eval`: what a bit rate does to a language model.

mod page;
mod sweep;
mod table;

use crate::{context::Context, device::DeviceArgs, failure::Failure, row_cache::RowCache, shards::ShardArgs};
use std::path::PathBuf;
pub use table::table;
use trinity_lm::coding::{CodedPaths, Coding};
use trinity_study::evaluate::{CODECS, Curve, Evaluation, EvaluationRequest, EvaluationRow, Run};
use trinity_tensor::allocate::Allocation;

/// Score a language model with its weights, KV cache or activations coded
///
/// Runs a Llama, SmolLM2, Qwen 2 or 3 or Gemma 3 model over a text and prints
/// bits per byte, uncompressed and with codecs in the loop, with the 95 %
/// confidence interval of the difference, the KL divergence from the
/// uncompressed model's predictions (nats per token) and how often both hold
/// the same token likeliest. A model is a folder with config.json, a GGUF file,
/// a configuration (tiny.json), a safetensors file beside one, or a .tri file;
/// without MODEL, the tiny model that comes with the project. What is scored is
/// what `trinity encode` writes: --weights encodes the model in memory, embedding
/// and output layer with the rest, and its bits and MiB are the file's. Quantizers
/// that make no file (rtn@B with a whole B: B-bit integers, one scale a row on
/// top; gptq-128g, awq-128g, nvfp4 and K-quants) replace linear weights alone, as
/// published. A coding is CODEC@BITS; every bit counts. `hadamard/CODEC` rotates
/// rows first, as QuaRot does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--sweep takes rates as a list, or as a progression: 2,2.25,…,4.5. Without --codecs it compares
H.265, H.264, RTN per row, RTN with groups of 128, MXFP4, the best of the paper's eight
baselines {INT, MXFP} x {Huffman, Deflate, LZ4, CABAC} at each rate (best-baseline), the
uniform quantizer with arithmetic coding, and the Trinity codec, with and without Hadamard.

With --out DIR, eval.csv grows with each row; the same command run again goes on where it stopped.

--traffic codes the KV cache at 2.9 bits and the activations between pipeline stages at 3.5,
each beside RTN at 3 and 4 (the paper's Figure 8).

--kv and --activations take one coding, or several separated by commas: then each is tried by
itself. --allocation is that of `trinity encode --allocate`.

Codecs of --kv also are kivi-64g, kvquant, kvquant-1p (1 % of values apart), turboquant and kvtc, as
published; kvtc codes in a basis across heads that --calibrate learns. pre-rope/CODEC codes keys
before rotary positions, as kvquant and kvtc do by themselves.

--original names the model that MODEL was made from: its configuration and tokenizer are taken,
and MODEL, a .tri file or a decoded folder, is held against it.

Examples:
  trinity eval                                          the built-in model and text
  trinity eval --weights h265@3 --allocation equal-slope
  trinity eval small.safetensors --text eval.txt --kv trinity@2.9 --windows 8
  trinity eval --activations rtn@4 --stages 4
  trinity eval --traffic --windows 8
  trinity eval --calibrate eval.txt --weights trinity@3 --kv trinity@2.5 --windows 8
  trinity eval --sweep 2,2.25,…,4.5 --out curve
  trinity eval small.tri --original small.safetensors --text eval.txt --windows 1

Codecs of a sweep on many machines, then one result:
  Slurm array:  trinity eval --sweep 2,3,4 --out curve --shard slurm
  elsewhere:    trinity eval --sweep 2,3,4 --out curve --shard 0/12
  then          trinity eval --sweep 2,3,4 --out curve --merge")]
pub struct Args {
    /// The model (default: the built-in tiny one)
    model: Option<PathBuf>,
    /// The model that MODEL was made from
    #[arg(long, value_name = "MODEL", requires = "model", conflicts_with_all = ["weights", "sweep", "traffic"])]
    original: Option<PathBuf>,
    /// The text to predict (default: 64 KB that come with the tiny model)
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Code the weights as `trinity encode` does
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
    /// Tokens at the start of each window whose K and V stay as they are, counted at 16 bits
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    sink: u32,
    /// A text, other than the one that is scored, of which 65,536 tokens are read:
    /// codecs that can (trinity, gptq-128g, awq-128g) weigh errors in weights by
    /// the inputs it brings; trinity also moves bits to the weights that need
    /// them, and weighs errors in K and V by queries and outputs
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Score the first N windows only
    #[arg(long, value_name = "N")]
    windows: Option<usize>,
    /// Tokens of a window that is scored (default: 1024)
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Bits per value of the weights to try, for every codec of --codecs
    #[arg(long, value_name = "BITS,…", value_delimiter = ',', conflicts_with_all = ["weights", "kv", "activations"])]
    sweep: Vec<String>,
    /// Codecs of --sweep
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',', default_values_t = CODECS.map(String::from))]
    codecs: Vec<String>,
    /// Write eval.csv and report.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    parts: ShardArgs,
}

/// What `--traffic` compares: Figure 8's rates, and plain rounding beside.
const TRAFFIC_KV: [&str; 5] = ["rtn@3", "rtn@4", "h265@2.9", "hadamard/h265@2.9", "trinity@2.9"];
const TRAFFIC_ACTIVATIONS: [&str; 5] = ["rtn@3", "rtn@4", "h265@3.5", "hadamard/h265@3.5", "trinity@3.5"];

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    // What cannot be read is said before a model is loaded.
    let rates = sweep::rates(&args.sweep)?;
    let plan = plan(args)?;
    let own = |(at, codec): (usize, &String)| {
        args.parts.shard.is_none_or(|shard| shard.takes(at)).then(|| codec.clone())
    };
    let mut curve = Curve {
        codecs: args.codecs.iter().enumerate().filter_map(own).collect(),
        rates,
        allocation: args.allocation,
        earlier: Vec::new(),
        only_earlier: args.parts.merge,
    };
    curve.check().map_err(|error| Failure::input(format_args!("--codecs: {error}")))?;
    let is_curve = !curve.rates.is_empty();
    if args.parts.are_asked_for() && (args.out.is_none() || !is_curve) {
        return Err(Failure::input("parts are of a --sweep, and left in a folder")
            .help("trinity eval --sweep 2,3,4 --out DIR --shard 0/4"));
    }
    let read = args.model.iter().chain(&args.original).chain(&args.text).chain(&args.calibrate);
    read.for_each(|path| crate::output::protect(path));
    let request = EvaluationRequest {
        model: args.model.clone(),
        original: args.original.clone(),
        text: args.text.clone(),
        windows: args.windows,
        context: args.context,
        calibrate: args.calibrate.clone(),
    };
    let device = args.device.open(named(args, &plan), ctx)?;
    let evaluation = Evaluation::open(&request)?;
    evaluation.remark.iter().for_each(|said| ctx.remark(format!("warning: {said}")));
    let first = evaluation.uncompressed(&ctx.watch())?;
    // Points of an earlier run stand only beside the score that they were held against.
    let belongs = |rows: &[EvaluationRow]| rows.first().is_some_and(|row| row.is_at(&first));
    if let Some(folder) = &args.out {
        let model =
            args.model.as_ref().map_or("of the tiny model".into(), |path| crate::json_path::spelled(path));
        crate::output::lock(folder, &format!("eval {model}"))?;
    }
    let name = args.parts.growing("eval.csv");
    let kept: RowCache<EvaluationRow> = RowCache::open(args.out.as_deref(), &name, belongs)?;
    let parts: Vec<EvaluationRow> = args.parts.rows(args.out.as_deref())?;
    if let Some(other) = parts.iter().find(|row| row.weights.is_none() && !row.is_at(&first)) {
        let (theirs, ours) = (other.bits_per_byte, first.bits_per_byte);
        return Err(Failure::input(format_args!(
            "a part is of another model or text: {theirs:.5} bits per byte uncoded, and here {ours:.5}"
        ))
        .help("make all parts with the arguments that the merge has"));
    }
    if kept.earlier().is_empty() {
        kept.add(&first);
    }
    let rows = if is_curve {
        curve.earlier = if args.parts.merge { parts } else { kept.earlier().to_vec() };
        evaluation.curve(&curve, first, &|row| kept.add(row), &ctx.watch())?
    } else {
        let judged = evaluation.judged(&first, &ctx.watch())?;
        let mut rows: Vec<EvaluationRow> = std::iter::once(first).chain(judged).collect();
        let keep = |row: &EvaluationRow| kept.add(row);
        rows.extend(evaluation.runs(&plan, &rows[0], kept.earlier(), &keep, &ctx.watch())?);
        rows
    };
    device.remark(ctx);
    if let Some(shard) = args.parts.shard {
        return kept.finish_part(shard, &rows, ctx);
    }
    kept.finish(&rows)?;
    if let Some(out) = &args.out {
        page::write(&rows, &evaluation.name, out, ctx)?;
    }
    let text = || table(&rows).render(ctx.colour);
    // One configuration is one object; several are a list.
    if is_curve || plan.len() > 1 { ctx.show(&rows, text) } else { ctx.show(&rows[rows.len() - 1], text) }
}

/// The runs that the options ask for. One coding a place is one run with all
/// of them; several are a run each.
fn plan(args: &Args) -> Result<Vec<Run>, Failure> {
    let list = |given: &[String], preset: &[&str]| -> Vec<String> {
        if args.traffic { preset.iter().map(|&text| text.into()).collect() } else { given.to_vec() }
    };
    let kv = list(&args.kv, &TRAFFIC_KV);
    let activations = list(&args.activations, &TRAFFIC_ACTIVATIONS);
    let one = |kv: Option<&String>, activations: Option<&String>| -> Result<Run, Failure> {
        Ok(Run {
            weights: coding(args.weights.as_ref(), "--weights")?,
            allocation: args.allocation,
            paths: CodedPaths {
                kv: coding(kv, "--kv")?,
                activations: coding(activations, "--activations")?,
                stages: args.stages.into(),
                block: args.block as usize,
                sink: args.sink as usize,
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

/// The codecs that will be in the loop.
fn named<'a>(args: &'a Args, plan: &'a [Run]) -> Vec<&'a str> {
    if !args.sweep.is_empty() {
        return args.codecs.iter().map(String::as_str).collect();
    }
    let codings = |run: &'a Run| [&run.weights, &run.paths.kv, &run.paths.activations].into_iter().flatten();
    plan.iter().flat_map(codings).map(Coding::name).collect()
}

fn coding(text: Option<&String>, option: &str) -> Result<Option<Coding>, Failure> {
    text.map(|t| t.parse::<Coding>().map_err(|e| Failure::input(format_args!("{option}: {e}")))).transpose()
}
