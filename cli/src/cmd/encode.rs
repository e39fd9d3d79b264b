//! `trinity encode`: a tensor file to a `.tri` container, pictures to a stream.

mod job;
mod parts;

use std::path::{Path, PathBuf};

use serde::Serialize;
pub use trinity_study::encode::default_codec;
use trinity_study::encode::{Calibration, Request};
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::Metrics;
use trinity_tensor::codec::{Basis, Target, codec};
use trinity_tensor::pipeline::{EncodedFile, Encoding, OnNonFinite, Summary, encode_to};
use trinity_tensor::{Class, Entry, Error};

use job::Job;

use super::pictures::{self, Motion};
use crate::context::Context;
use crate::device::{Chosen, DeviceArgs, Used};
use crate::failure::Failure;
use crate::json_path::JsonPath;
use crate::output::{self, Named, Spool};
use crate::shards::ShardArgs;
use crate::table::{Table, sig3};
use crate::tensor_files::{not_written, open, sentence, unknown_codec};
use crate::video_io::RawFormat;

/// Compress a tensor file into a .tri container; an image or a video, too
///
/// Tensors are coded slab by slab, so files larger than memory are fine.
/// Norms, biases and other vectors stay exact, and so do tensors of fewer than
/// 256 values: they are few, and a model feels each of them. --all codes them,
/// and integers, which stay exact, too. A tensor with NaN or an infinity is kept
/// to the bit and named; booleans and formats that no codec knows are carried as
/// they are. The error printed is measured on what decoding gives.
///
/// Pictures (.png, .pgm, .y4m, .yuv, .gray) go through the same pipeline, every
/// frame on its own: with `trinity`, `trinity-static`, `trinity-max`, `lossless`
/// or a profile of yours to a .trp stream, with `paper` and `paper-cabac` to a
/// plain H.264 stream that any player opens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Targets:
  --bits      bits per value of the whole file: scales, tables, index and checksums counted;
              met within 1 % and never exceeded, but by what is kept exact, which is said
              (--strict fails); bits per sample of pictures
  --nmse      squared error over energy, for every tensor
  --qp        a fixed quantization parameter, for video codecs and pictures
  --lossless  every bit back (codec zstd unless another is named)

Codecs: see trinity compare --help; or a profile of the Trinity codec, as FILE.toml (examples in configs/profiles).
trinity-lite:4096 holds every tile to 4096 bytes, so that pages of a cache fit.
--device cuda codes trinity-lite on a GPU: the same bytes, so that a file decodes anywhere.

Examples:
  trinity encode model.safetensors --bits 2.9 -o model.tri
  trinity encode kv.npy --nmse 0.001 --codec uniform+ac -o kv.tri
  trinity encode model.safetensors --lossless -o model.tri
  trinity encode kv.npy --bits 2.5 --codec my-design.toml -o kv.tri
  trinity encode kv.npy --bits 2.5 --basis kv.basis -o kv.tri
  trinity encode kv.npy --bits 3 --codec trinity-lite --device auto -o kv.tri
  trinity encode small.safetensors --bits 3 --calibrate eval.txt -o small.tri
  trinity encode photo.png --bits 1.5 --codec paper -o photo.264
  trinity encode scan.pgm --bits 1 -o scan.trp

A large checkpoint on many machines, then one file, the same bytes for any number of parts:
  Slurm array:  trinity encode big.safetensors --bits 3 -o big.tri --shard slurm
  elsewhere:    trinity encode big.safetensors --bits 3 -o big.tri --shard 0/16
  then          trinity encode big.safetensors --bits 3 -o big.tri --merge")]
pub struct Args {
    /// Tensor file: safetensors (or its index.json), a model's folder, npy, npz,
    /// PyTorch .pt, GGUF or .tri; or pictures: .png, .pgm, .y4m, .yuv, .gray, which
    /// may come from stdin as `-`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write, `-` for stdout; the input's name with .tri (.trp or .264
    /// for pictures) where not given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Codec of every tensor, by name or as the TOML of a profile
    #[arg(long, value_name = "CODEC")]
    codec: Option<String>,
    /// Turn rows by this basis first (see trinity tensors basis); decoding takes
    /// the same file, whose bits are reported and not part of the rate
    #[arg(long, value_name = "FILE")]
    basis: Option<PathBuf>,
    /// A text such as the model will see (some pages): it is run over the text, and
    /// errors in its linear weights go where their outputs feel them least. The
    /// file is decoded as any other; NMSE rises, what the model loses falls
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["basis", "shard", "merge", "all", "class"])]
    calibrate: Option<PathBuf>,
    /// Treat every tensor as of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// How a bit budget is shared out: equal, linear (the paper's k·l + b over
    /// layers l), or equal-slope (least total relative error; with --calibrate, least
    /// divergence of the model's predictions, and the default there). Otherwise equal
    #[arg(long, value_name = "HOW", requires = "bits")]
    allocate: Option<Allocation>,
    /// Code norms, biases and vectors too, which otherwise stay exact
    #[arg(long)]
    all: bool,
    /// Refuse a file in which a tensor holds NaN or an infinity, where a loss is asked for,
    /// and fail where the result takes more bits than asked for
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// Whether frames of a video may refer to each other; `inter` is modelled
    /// in silicon only, and refused
    #[arg(long, value_name = "HOW", default_value = "intra")]
    motion: Motion,
    #[command(flatten)]
    raw: RawFormat,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    parts: ShardArgs,
}

/// What an encoding has to reach; exactly one is given.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct TargetArgs {
    /// Bits per value, as a fraction if you like
    #[arg(long, value_name = "BITS", value_parser = positive)]
    bits: Option<f64>,
    /// Normalized mean squared error
    #[arg(long, value_name = "NMSE", value_parser = positive)]
    nmse: Option<f64>,
    /// Fixed quantization parameter
    #[arg(long, value_name = "QP", allow_negative_numbers = true, value_parser = quantization_parameter)]
    qp: Option<f64>,
    /// Every bit back
    #[arg(long)]
    lossless: bool,
}

impl TargetArgs {
    pub fn target(&self) -> Target {
        match (self.bits, self.nmse, self.qp) {
            (Some(bits), _, _) => Target::Bits(bits),
            (_, Some(nmse), _) => Target::Nmse(nmse),
            (_, _, Some(qp)) => Target::Qp(qp),
            _ => Target::Lossless,
        }
    }
}

/// A finite number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number above zero".into()),
    }
}

/// A quantization parameter: no codec has a step for others.
fn quantization_parameter(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (-100.0..=100.0).contains(&value) => Ok(value),
        _ => Err("expected a number from -100 to 100; H.264 and H.265 have -6 * (depth - 8) to 51".into()),
    }
}

/// Checks a codec's name before any work is done.
pub fn known_codec(name: &str) -> Result<(), Failure> {
    codec(name).map(|_| ()).map_err(|error| match error {
        Error::UnknownCodec { name, .. } => unknown_codec(&name),
        Error::Profile(diagnostic) => Failure::from(*diagnostic),
        other => Failure::input(other),
    })
}

#[derive(Debug, Serialize)]
struct Outcome {
    output: JsonPath,
    bytes: u64,
    values: usize,
    bits_per_value: f64,
    /// Whether that is more than was asked for.
    over_target: bool,
    /// Bits of the basis, which is a file of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    basis_bits: Option<usize>,
    /// Over all tensors, weighted by their energy.
    #[serde(flatten)]
    metrics: Metrics,
    /// Who coded.
    device: Used,
    /// The tensor with the largest relative error, where there is one.
    worst_tensor: Option<String>,
    tensors: Vec<Summary>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let target = args.target.target();
    args.codec.iter().for_each(|profile| output::protect(Path::new(profile)));
    if pictures::is_picture(&args.file) {
        let in_parts = args.parts.shard.is_some() || args.parts.merge;
        args.device.open(["a codec of pictures"], ctx)?;
        let of_tensors = args.class.is_some() || args.basis.is_some() || args.calibrate.is_some();
        if of_tensors || args.allocate.is_some() || in_parts {
            return Err(Failure::input(
                "--class, --allocate, --basis, --calibrate, --shard and --merge are for tensors, \
                 and this is a picture",
            ));
        }
        let job = pictures::Job {
            input: &args.file,
            output: args.output.as_deref(),
            codec: args.codec.as_deref(),
            target,
            motion: args.motion,
            strict: args.strict,
            raw: &args.raw,
        };
        return pictures::encode(&job, ctx);
    }
    let codec_name = args.codec.as_deref().unwrap_or_else(|| default_codec(target));
    known_codec(codec_name)?;
    let device = args.device.open([codec_name], ctx)?;
    let basis = args.basis.as_deref().map(open_basis).transpose()?;
    let mut file = open(&args.file)?;
    if let Some(class) = args.class {
        file = file.with_class(class);
    }
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("tri"));
    output.named_as(&["tri"])?;
    ctx.may_write(&output)?;
    // Where a text tells what bits are worth, they go there.
    let by_default = if args.calibrate.is_some() { Allocation::EqualSlope } else { Allocation::Equal };
    let allocation = args.allocate.unwrap_or(by_default);
    let request = Request {
        codec: codec_name,
        target,
        allocation: if args.calibrate.is_some() { Allocation::Equal } else { allocation },
        all: args.all,
        basis: basis.as_ref(),
    };
    let choices = request.choices(&file, &args.file.display().to_string())?;
    let choice = |entry: &Entry| choices.of(entry);
    let on_non_finite = if args.strict { OnNonFinite::Refuse } else { OnNonFinite::KeepExact };
    let job = Job { path: &args.file, file: &file, request: &request, choice: &choice, on_non_finite };
    if let Some(shard) = args.parts.shard {
        parts::encode(&job, shard, &output, ctx)?;
        device.remark(ctx);
        return Ok(());
    }
    if args.parts.merge {
        return parts::merge(&job, &output, ctx);
    }
    let calibration = match (&args.calibrate, target) {
        (Some(text), Target::Bits(bits)) => calibrate(&job, text, bits, allocation, ctx)?,
        (Some(_), _) => {
            return Err(Failure::input("--calibrate makes the most of a rate, and none is given")
                .help("ask for one with --bits"));
        }
        (None, _) => Calibration::default(),
    };
    whole(&job, &calibration, output, &device, ctx)
}

/// What a text says of a model's weights.
fn calibrate(
    job: &Job<'_>,
    text: &Path,
    bits: f64,
    allocation: Allocation,
    ctx: &Context,
) -> Result<Calibration, Failure> {
    output::protect(text);
    let values: usize = job.file.entries().iter().map(Entry::len).sum();
    let progress = ctx.progress(values as u64, "calibrating");
    let done = |values: usize| progress.inc(values as u64);
    let calibration = Calibration::measure(job.path, text, job.request.codec, bits, allocation, &done)?;
    progress.finish_and_clear();
    calibration.remark.iter().for_each(|said| ctx.remark(format!("warning: {said}")));
    Ok(calibration)
}

/// The whole file in one go.
fn whole(
    job: &Job<'_>,
    calibration: &Calibration,
    output: PathBuf,
    device: &Chosen,
    ctx: &Context,
) -> Result<(), Failure> {
    let &Job { file, choice, on_non_finite, .. } = job;
    let basis = job.request.basis;
    let spool = Spool::create(&output)?;
    let values: usize = file.entries().iter().map(Entry::len).sum();
    let progress = ctx.progress(values as u64, "encoding");
    let encoding = Encoding {
        codec_for: &|entry| match (choice(entry), calibration.bits_of(entry.name())) {
            ((codec, Target::Bits(_)), Some(bits)) => (codec, Target::Bits(bits)),
            (chosen, _) => chosen,
        },
        basis,
        on_non_finite,
        measure: true,
        calibrated: &|name| calibration.of(name),
        takes: &|_| true,
        progress: &|done| {
            progress.inc(done as u64);
            Ok(())
        },
    };
    let EncodedFile { tensors, bytes, metrics } = encode_to(file, &encoding, spool.path())
        .map_err(|error| not_written(&job.path.display().to_string(), &output, &error))?;
    progress.finish_and_clear();
    let values = file.entries().iter().map(Entry::stated_values).sum();
    let bits_per_value = 8.0 * bytes as f64 / usize::max(values, 1) as f64;
    let over_target = job.over_target(bits_per_value, &tensors, ctx)?;
    spool.finish()?;
    let basis_bits = basis.map(|basis| 8 * basis.to_bytes().len());
    let worst = tensors.iter().max_by(|a, b| a.metrics.nmse.total_cmp(&b.metrics.nmse));
    let worst_tensor = worst.filter(|tensor| tensor.metrics.nmse > 0.0).map(|tensor| tensor.tensor.clone());
    device.remark(ctx);
    let outcome = Outcome {
        output: output.into(),
        bytes,
        values,
        bits_per_value,
        over_target,
        basis_bits,
        metrics,
        device: device.used(),
        worst_tensor,
        tensors,
    };
    ctx.outcome(&outcome.output, &outcome, text(&outcome, ctx.colour))
}

/// Reads a basis; what is wrong with it is the user's to mend.
pub fn open_basis(path: &Path) -> Result<Basis, Failure> {
    output::protect(path);
    Basis::open(path).map_err(|error| {
        Failure::input(sentence(&error)).help("trinity tensors basis makes one from sample tensors")
    })
}

fn decibels(snr_db: f64) -> String {
    if snr_db.is_finite() { format!("{snr_db:.2}") } else { "∞".into() }
}

fn text(outcome: &Outcome, colour: bool) -> String {
    let headers =
        ["tensor", "class", "codec", "values", "bytes", "bits/value", "NMSE", "SNR dB", "exact because"];
    let mut table = Table::new(headers);
    for tensor in &outcome.tensors {
        table.row([
            tensor.tensor.escape_debug().to_string(),
            tensor.class.to_string(),
            tensor.codec.clone(),
            tensor.values.to_string(),
            tensor.bytes.to_string(),
            sig3(tensor.bits_per_value),
            sig3(tensor.metrics.nmse),
            decibels(tensor.metrics.snr_db),
            tensor.exact.clone().unwrap_or_default(),
        ]);
    }
    let error = match &outcome.worst_tensor {
        None => "every value as it was".to_owned(),
        Some(worst) => {
            let nmse = outcome.tensors.iter().find(|tensor| tensor.tensor == *worst).map(|t| t.metrics.nmse);
            format!(
                "NMSE {}, SNR {} dB; worst is `{}` with NMSE {}",
                sig3(outcome.metrics.nmse),
                decibels(outcome.metrics.snr_db),
                worst.escape_debug(),
                sig3(nmse.unwrap_or_default())
            )
        }
    };
    let counted = match outcome.basis_bits {
        None => "everything counted".into(),
        Some(bits) => format!(
            "the basis not counted: {bits} bits, {:.4} a value of this file",
            bits as f64 / outcome.values.max(1) as f64
        ),
    };
    format!(
        "{}{}: {} bytes, {:.4} bits/value, {counted}\n{error}\n",
        table.render(colour),
        outcome.output.display(),
        outcome.bytes,
        outcome.bits_per_value
    )
}
