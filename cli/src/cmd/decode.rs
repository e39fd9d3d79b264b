//! `trinity decode`: a `.tri` container back to safetensors, GGUF or npy, a stream
//! of pictures back to pictures.

mod engines;

use std::path::{Path, PathBuf};

use serde_json::json;
use trinity_tensor::export::{Stored, Written};
use trinity_tensor::file::{damaged, write_npy_of};
use trinity_tensor::{Entry, TensorFile};

use super::encode::open_basis;
use super::pictures;
use crate::context::Context;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::input;
use crate::json_path::JsonPath;
use crate::output::{self, Named, Spool};
use crate::tensor_files::{bad_input, not_written, open};

/// Decompress a .tri container to safetensors or GGUF, or one tensor of it to npy
///
/// Checksums are verified first: a damaged tensor is reported and left out,
/// the others are still written, and the exit code is 1.
///
/// What was made of a GGUF becomes one again with --to gguf, its tokenizer and
/// metadata as they were. What was made of a sharded folder becomes one with --to
/// safetensors and a folder for -o: the same shards under the same index.
///
/// A stream of pictures (.trp, or all-intra H.264) becomes .png, .pgm, .y4m or
/// raw planes, as the output's name says.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity decode model.tri -o model.safetensors
  trinity decode model.tri --to safetensors --dtype bf16 -o folder
  trinity decode model.tri --tensor layers.0.k_proj.weight -o k.npy
  trinity decode kv.tri --basis kv.basis -o kv.safetensors
  trinity decode model.tri --device auto -o model.safetensors
  trinity decode photo.trp -o photo.png

A container of a GGUF, for llama.cpp:
  trinity decode smollm2.tri --to gguf --dtype q4_k -o smollm2-q4.gguf")]
pub struct Args {
    /// The container, or a stream of pictures, which may come from stdin as `-`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write: NAME.npy for one tensor, NAME.gguf, safetensors otherwise, a
    /// folder of them with --to; .png, .pgm, .y4m, .yuv or .gray for pictures; `-` is
    /// stdout. Where not given, the input's name with .decoded.safetensors
    /// (.decoded.gguf, .decoded.png, .decoded.y4m)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to write; the output's name says it otherwise
    #[arg(long, value_name = "FORMAT", value_enum)]
    to: Option<Format>,
    /// Number format of float tensors: f32, f16, bf16; q8_0, q4_k in GGUF, of rows that
    /// fill their blocks (others take q8_0 or f16). As encoded where not given; f16 in
    /// GGUF, whose norms and vectors stay as they are
    #[arg(long, value_name = "FORMAT")]
    dtype: Option<Stored>,
    /// The basis that the tensors were encoded with, where they were
    #[arg(long, value_name = "FILE")]
    basis: Option<PathBuf>,
    /// Decode these tensors only
    #[arg(long, value_name = "NAME")]
    tensor: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
}

/// A format that tensors are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Safetensors,
    Gguf,
    Npy,
}

impl Format {
    /// What a name stands for, where nothing else is said.
    fn of(output: &Path) -> Self {
        match output::format_of(output) {
            Some("npy") => Self::Npy,
            Some("GGUF") => Self::Gguf,
            _ => Self::Safetensors,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Gguf => "GGUF",
            Self::Npy => "npy",
        }
    }
}

/// A form of the result: a format, at a place.
struct Form {
    format: Format,
    output: PathBuf,
    /// Whether the place is a folder.
    is_folder: bool,
}

impl Form {
    fn of(args: &Args) -> Result<Self, Failure> {
        // A name of its own: the file that was encoded may well lie beside.
        let by_default = match args.to {
            Some(Format::Gguf) => "decoded.gguf",
            _ => "decoded.safetensors",
        };
        let output = args.output.clone().unwrap_or_else(|| args.file.with_extension(by_default));
        let format = args.to.unwrap_or_else(|| Format::of(&output));
        let names = if args.to.is_some() { vec![format.name()] } else { vec!["safetensors", "npy", "GGUF"] };
        output.named_as(&names)?;
        let may_be = format == Format::Safetensors && !output::is_stdout(&output);
        let named = args.to.is_some() && output.extension().is_none();
        let is_folder = may_be && (output.is_dir() || named);
        Ok(Self { format, output, is_folder })
    }
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    if input::is_streamed(&args.file) || pictures::is_stream(&args.file)? {
        args.device.open(["a codec of pictures"], ctx)?;
        if !args.tensor.is_empty() || args.basis.is_some() || args.to.is_some() || args.dtype.is_some() {
            return Err(Failure::input(
                "--tensor, --basis, --to and --dtype are for containers, and this is a stream of pictures",
            ));
        }
        return pictures::decode(&args.file, args.output.as_deref(), ctx);
    }
    let mut file = open(&args.file)?;
    if let Some(path) = &args.basis {
        file = file.with_basis(&open_basis(path)?);
    }
    for name in &args.tensor {
        file.entry(name).map_err(|error| bad_input(&args.file.display().to_string(), &error))?;
    }
    let form = Form::of(args)?;
    if !form.is_folder {
        ctx.may_write(&form.output)?;
    }
    let wants = |entry: &Entry| args.tensor.is_empty() || args.tensor.iter().any(|name| name == entry.name());
    let stored = file.entries().iter().filter(|entry| wants(entry)).map(Entry::stored);
    let device = args.device.open(stored, ctx)?;
    let broken = damaged(&file);
    let wanted: Vec<&Entry> = file
        .entries()
        .iter()
        .filter(|entry| wants(entry))
        .filter(|entry| broken.iter().all(|(name, _)| name != entry.name()))
        .collect();
    let lost = |(name, error): &(String, trinity_tensor::Error)| {
        Failure::run(format_args!(
            "{}: {} of {} tensors damaged and left out; the first is `{}`: {error}",
            args.file.display(),
            broken.len(),
            file.entries().len(),
            name.escape_debug(),
        ))
    };
    // Nothing is left to write, and an empty file would say that it was there.
    if let (true, Some(first)) = (wanted.is_empty(), broken.first()) {
        return Err(lost(first));
    }
    write(&file, &wanted, args, &form, ctx)?;
    device.remark(ctx);
    ctx.remark(format!("wrote {} tensors to {}", wanted.len(), form.output.display()));
    let tensors: Vec<&str> = wanted.iter().map(|entry| entry.name()).collect();
    let damaged: Vec<&String> = broken.iter().map(|(name, _)| name).collect();
    let (output, used) = (JsonPath::from(form.output), device.used());
    ctx.tell(&json!({ "output": output, "tensors": tensors, "damaged": damaged, "device": used }))?;
    broken.first().map_or(Ok(()), |first| Err(lost(first)))
}

fn write(
    file: &TensorFile,
    wanted: &[&Entry],
    args: &Args,
    form: &Form,
    ctx: &Context,
) -> Result<(), Failure> {
    let place = args.file.display().to_string();
    if form.format == Format::Npy {
        if args.dtype.is_some() {
            return Err(Failure::input("npy keeps a tensor's own number format, and --dtype is given")
                .help("write safetensors or GGUF"));
        }
        return write_one(wanted, &place, &form.output, ctx);
    }
    let tensors: Vec<Written<'_>> = wanted.iter().map(|entry| Written::plainly(entry)).collect();
    let job = engines::Job { file, place: &place, dtype: args.dtype, ctx };
    match form.format {
        Format::Gguf => job.gguf(tensors, &form.output),
        _ if form.is_folder => job.folder(tensors, &form.output),
        _ => job.safetensors(tensors, &form.output),
    }
}

/// The one tensor that npy has room for.
fn write_one(wanted: &[&Entry], place: &str, output: &Path, ctx: &Context) -> Result<(), Failure> {
    let [entry] = wanted[..] else {
        return Err(Failure::input(format_args!(
            "npy holds one tensor, and {} are to be written",
            wanted.len()
        ))
        .help("name one with --tensor, or write safetensors"));
    };
    if let Some(carried) = entry.carried() {
        return Err(Failure::input(format_args!("tensor `{}` is {carried}, which is carried", entry.name()))
            .help("write safetensors, which keeps its format"));
    }
    let spool = Spool::create(output)?;
    let progress = ctx.progress(entry.len() as u64, "decoding");
    write_npy_of(spool.path(), entry, &|values| progress.inc(values as u64))
        .map_err(|error| not_written(place, output, &error))?;
    progress.finish_and_clear();
    spool.finish()
}
