//! `trinity encode`: a tensor file to a `.tri` container, pictures to a stream.

mod files;
mod job;
mod parts;
mod rules;
mod show;

use std::path::{Path, PathBuf};

use trinity_config::DataSize;
use trinity_lm::coding::Coding;
use trinity_study::Progress;
pub use trinity_study::encode::default_codec;
use trinity_study::encode::{Calibrate, Calibration, EncodeRequest, Plan, Work};
use trinity_study::evaluate::{self, Evaluation, Gain};
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::{Basis, Rate, codec};
use trinity_tensor::file::{TriWriter, shard_of};
use trinity_tensor::pipeline::OnNonFinite;
use trinity_tensor::{Class, Error, TensorFile};

use job::Job;
use rules::RuleArgs;
use show::{EncodeOutcome, kinds};

use super::pictures::{self, Motion};
use crate::context::Context;
use crate::device::{Chosen, DeviceArgs};
use crate::failure::Failure;
use crate::output::{self, Named, Spool};
use crate::shards::ShardArgs;
use crate::tensor_files::{not_written, open, sentence, unknown_codec};
use crate::video_io::RawFormat;

/// Compress a tensor file into a .tri container; an image or a video, too
///
/// Tensors are coded slab by slab, so files larger than memory are fine.
/// Norms, biases and other vectors stay exact, and so do tensors of fewer than
/// 256 values: they are few, and a model feels each of them. --all codes them,
/// and integers, which stay exact, too. A tensor that holds what another holds
/// (an output layer tied to the embedding) is written once. A tensor with NaN or
/// an infinity is kept to the bit and named; booleans and formats that no codec
/// knows are carried as they are. A table of kinds says all that before any work
/// is done. The error printed is measured, over what was coded: it is decoded
/// again.
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
              (--strict fails); bits per sample of pictures. What --exclude and --bits-for
              name is beside it
  --target-size  bytes of the whole file, such as 80MB or 76MiB: bits go where the next one saves most
              (--allocate equal shares them out alike)
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
  trinity encode small.safetensors --target-size 0.9MB -o sized.tri
  trinity encode model.safetensors --bits 3 --bits-for 'layers.0.*=6' -o finer.tri
  trinity encode model.safetensors --bits 3 --exclude 'layers.6.*' -o parts.tri
  trinity encode small.safetensors --bits 3 --eval eval.txt --eval-windows 1 -o small.tri
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
    /// file is decoded as any other; NMSE rises, what the model loses falls. Or the
    /// file of a calibration that trinity.calibrate of Python wrote, of any model
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["basis", "all", "class"])]
    calibrate: Option<PathBuf>,
    /// A text to score what was written on, beside the model it was made from
    #[arg(long, value_name = "TEXT", conflicts_with = "shard")]
    eval: Option<PathBuf>,
    /// Score the first N windows of 1,024 tokens of that text only
    #[arg(long, value_name = "N", requires = "eval")]
    eval_windows: Option<usize>,
    /// Treat every tensor as of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// How a bit budget is shared out: equal, linear (the paper's k·l + b over
    /// layers l), or equal-slope (least total relative error; with --calibrate, least
    /// divergence of the model's predictions, and the default there). Otherwise equal
    #[arg(long, value_name = "HOW", requires = "rate")]
    allocate: Option<Allocation>,
    /// Code norms, biases and vectors too, which otherwise stay exact
    #[arg(long)]
    all: bool,
    /// Carry the small text files of a model's folder (configuration, tokenizer), so that
    /// decode --to safetensors gives a folder that an engine loads; they count in the rate
    #[arg(long)]
    files: bool,
    /// Refuse a file in which a tensor holds NaN or an infinity, where a loss is asked for,
    /// and fail where the result takes more bits than asked for
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    rules: RuleArgs,
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
    #[arg(long, value_name = "BITS", value_parser = positive, group = "rate")]
    bits: Option<f64>,
    /// Size of the whole file, such as 80MB or 76MiB
    #[arg(long, value_name = "SIZE", value_parser = size, group = "rate")]
    target_size: Option<DataSize>,
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
    pub fn target(&self) -> Rate {
        match (self.bits, self.nmse, self.qp) {
            (Some(bits), _, _) => Rate::Bits(bits),
            // Until it is known what rate that is.
            _ if self.target_size.is_some() => Rate::Bits(ANY_BITS),
            (_, Some(nmse), _) => Rate::Nmse(nmse),
            (_, _, Some(qp)) => Rate::Qp(qp),
            _ => Rate::Lossless,
        }
    }
}

/// The rate that stands for a size before the file was looked at.
const ANY_BITS: f64 = 4.0;

/// A size above zero.
fn size(text: &str) -> Result<DataSize, String> {
    let size: DataSize =
        text.parse().map_err(|_| "expected a size such as 80MB or \"76.3 MiB\"".to_owned())?;
    if size.bytes() > 0.0 { Ok(size) } else { Err("expected a size above zero".into()) }
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

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let mut target = args.target.target();
    args.codec.iter().for_each(|profile| output::protect(Path::new(profile)));
    if pictures::is_picture(&args.file) {
        return picture(args, target, ctx);
    }
    let codec_name = args.codec.as_deref().unwrap_or_else(|| default_codec(target));
    known_codec(codec_name)?;
    let device = args.device.open([codec_name], ctx)?;
    let basis = args.basis.as_deref().map(open_basis).transpose()?;
    let file = opened(args, ctx)?;
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("tri"));
    output.named_as(&["tri"])?;
    ctx.may_write(&output)?;
    if output::is_stdout(&output) && (args.eval.is_some() || args.calibrate.is_some()) {
        return Err(no_file());
    }
    let allocation = args.allocate.unwrap_or_else(|| default_allocation(args));
    let mut request = EncodeRequest {
        codec: codec_name,
        target,
        allocation: Allocation::Equal,
        all: args.all,
        basis: basis.as_ref(),
        rules: args.rules.rules()?,
    };
    let place = args.file.display().to_string();
    if let Some(size) = args.target.target_size {
        target = Rate::Bits(request.bits_for_size(&file, &place, size.bytes())?);
        request.target = target;
    }
    // What a calibration finds is laid over equal shares.
    request.allocation = if args.calibrate.is_some() { Allocation::Equal } else { allocation };
    let mut plan = request.plan(&file, &place)?;
    show_plan(&plan, ctx);
    let calibration = match (&args.calibrate, target) {
        // A merge takes what parts were calibrated to.
        (Some(_), _) if args.parts.merge => Calibration::default(),
        (Some(text), Rate::Bits(bits)) => {
            let coding = coding(codec_name, bits)?;
            if Calibration::is_file(text) {
                Calibration::open(text, &plan, &coding, allocation)?
            } else {
                let asked = Calibrate { file: &file, plan: &plan, coding: &coding, allocation };
                calibrate(&args.file, text, &asked, ctx)?
            }
        }
        (Some(_), _) => {
            return Err(Failure::input("--calibrate makes the most of a rate, and none is given")
                .help("ask for one with --bits"));
        }
        (None, _) => Calibration::default(),
    };
    calibration.suffices(&plan).map_err(|error| {
        let help = "--calibrate TEXT, or the file of a `trinity.calibrate`, says what layers read";
        Failure::from(error).help(help)
    })?;
    plan.calibrate(&|tensor| calibration.bits_of(tensor));
    let on_non_finite = if args.strict { OnNonFinite::Refuse } else { OnNonFinite::KeepExact };
    let job = Job {
        path: &args.file,
        file: &file,
        request: &request,
        plan: &plan,
        calibration: &calibration,
        calibrated_on: args.calibrate.as_deref(),
        allocation,
        on_non_finite,
    };
    if let Some(shard) = args.parts.shard {
        parts::encode(&job, shard, &output, ctx)?;
        device.remark(ctx);
        return Ok(());
    }
    let mut outcome = match args.parts.merge {
        true => parts::merge(&job, &output, device.used(), ctx)?,
        false => whole(&job, output, &device, ctx)?,
    };
    if let (Some(text), Rate::Bits(bits)) =
        (args.calibrate.as_ref().filter(|t| !Calibration::is_file(t)), target)
    {
        let files = (args.file.as_path(), &*outcome.output);
        let coding = coding(codec_name, bits)?;
        // What cannot do without a calibration has nothing to be held against.
        if !coding.needs_moments() {
            outcome.held_out = Gain::measure(files, text, &coding, &ctx.watch())?;
        }
        outcome.held_out.iter().for_each(|gain| ctx.remark(gain.to_string()));
    }
    if let Some(text) = &args.eval {
        outcome.eval = judge(&args.file, &outcome.output, text, args.eval_windows, ctx)?;
    }
    ctx.outcome(&outcome.output, &outcome, show::text(&outcome, ctx.colour))
}

/// Opens what is coded, with all that arguments say of it.
fn opened(args: &Args, ctx: &Context) -> Result<TensorFile, Failure> {
    let mut file = open(&args.file)?;
    say_if_shard(&args.file, ctx);
    if let Some(class) = args.class {
        file = file.with_class(class);
    }
    if args.files {
        file = files::carried(file, &args.file)?;
    }
    Ok(file)
}

/// Warns where the file is one of a set, which is rarely meant.
fn say_if_shard(file: &Path, ctx: &Context) {
    if let Some((stem, number, total)) = file.file_stem().and_then(|stem| shard_of(stem.to_str()?)) {
        let file = file.display();
        ctx.remark(format!(
            "warning: {file} is shard {number} of {total} of `{stem}` and is coded alone; name its folder, or its \
             index, to code them all"
        ));
    }
}

/// Where a text tells what bits are worth, they go there; and where a size is all that is asked for.
fn default_allocation(args: &Args) -> Allocation {
    let by_slope = args.calibrate.is_some() || args.target.target_size.is_some();
    if by_slope { Allocation::EqualSlope } else { Allocation::Equal }
}

fn no_file() -> Failure {
    Failure::input("--eval and --calibrate score the file that is written, and stdout is none")
        .help("name a file with -o")
}

/// Pictures, which know nothing of tensors' options.
fn picture(args: &Args, target: Rate, ctx: &Context) -> Result<(), Failure> {
    if args.target.target_size.is_some() {
        return Err(
            Failure::input("--target-size is for tensors, and this is a picture").help("ask for --bits")
        );
    }
    args.device.open(["a codec of pictures"], ctx)?;
    let of_models = args.calibrate.is_some() || args.eval.is_some() || args.rules.is_given();
    let of_tensors = args.class.is_some() || args.basis.is_some() || args.allocate.is_some();
    if of_models || of_tensors || args.parts.are_asked_for() || args.files {
        return Err(Failure::input(
            "--class, --allocate, --basis, --calibrate, --eval, --exclude, --bits-for, --codec-for, --rules, \
             --files, --shard and --merge are for tensors, and this is a picture",
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
    pictures::encode(&job, ctx)
}

/// What will be done, on stderr, before it is.
fn show_plan(plan: &Plan, ctx: &Context) {
    if !ctx.quiet {
        ctx.remark(kinds(&plan.kinds()).render(ctx.colour_stderr).trim_end());
    }
}

fn coding(codec: &str, bits: f64) -> Result<Coding, Failure> {
    Coding::of_files(codec, bits).map_err(Failure::input)
}

/// What a text says of a model's weights.
fn calibrate(
    model: &Path,
    text: &Path,
    asked: &Calibrate<'_>,
    ctx: &Context,
) -> Result<Calibration, Failure> {
    output::protect(text);
    let calibration = Calibration::measure(model, text, asked, &ctx.watch())?;
    calibration.remark.iter().for_each(|said| ctx.remark(format!("warning: {said}")));
    Ok(calibration)
}

/// What the file that was written loses on a text, beside the model it was made from.
fn judge(
    original: &Path,
    written: &Path,
    text: &Path,
    windows: Option<usize>,
    ctx: &Context,
) -> Result<Vec<evaluate::EvaluationRow>, Failure> {
    output::protect(text);
    let request = evaluate::EvaluationRequest {
        model: Some(written.to_owned()),
        original: Some(original.to_owned()),
        text: Some(text.to_owned()),
        windows,
        context: None,
        calibrate: None,
    };
    let evaluation = Evaluation::open(&request)?;
    let first = evaluation.uncompressed(&ctx.watch())?;
    let judged = evaluation.judged(&first, &ctx.watch())?;
    Ok(std::iter::once(first).chain(judged).collect())
}

/// The whole file in one go.
fn whole(job: &Job<'_>, output: PathBuf, device: &Chosen, ctx: &Context) -> Result<EncodeOutcome, Failure> {
    let spool = Spool::create(&output)?;
    let watch = ctx.watch();
    watch.begin(job.plan.values() as u64, "encoding");
    let progress = |done: usize| {
        watch.advance(done as u64);
        Ok(())
    };
    let work = Work { progress: &progress, ..job.work() };
    let (encoded, bytes) = TriWriter::create(spool.path(), &job.texts()?)
        .and_then(|writer| work.encode_into(writer))
        .and_then(|(encoded, writer)| Ok((encoded, writer.finish()?)))
        .map_err(|error| not_written(&job.path.display().to_string(), &output, &error))?;
    let outcome =
        EncodeOutcome::of(job, output, bytes, encoded.tensors, encoded.metrics, device.used(), ctx)?;
    spool.finish()?;
    watch.end();
    device.remark(ctx);
    Ok(outcome)
}

/// Reads a basis; what is wrong with it is the user's to mend.
pub fn open_basis(path: &Path) -> Result<Basis, Failure> {
    output::protect(path);
    Basis::open(path).map_err(|error| {
        Failure::input(sentence(&error)).help("trinity tensors basis makes one from sample tensors")
    })
}
