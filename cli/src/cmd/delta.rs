//! `trinity delta`: what fine-tuning changed, made and applied.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::json;
use trinity_tensor::codec::Rate;
use trinity_tensor::delta::{Applied, Mode, apply, apply_some, make};
use trinity_tensor::export::{Shards, Written};
use trinity_tensor::file::OriginPart;
use trinity_tensor::pipeline::Summary;
use trinity_tensor::{Error, TensorFile};

use super::encode::{known_codec, positive};
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::json_path::JsonPath;
use crate::output::{self, Named, Spool};
use crate::table::{Table, sig3};
use crate::tensor_files::{bad_input, is_delta, not_written, open, open_delta, sentence};

/// Keep only what changed between two tensor files
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Make(MakeArgs),
    Apply(ApplyArgs),
}

/// Write the difference of two files
///
/// Tensors are paired by name; suffixes .base and .tuned are ignored, so both
/// may live in one file. Folders are taken, too. Without a target the delta is exact
/// to the bit.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity delta make base.safetensors tuned.safetensors -o delta.tri
  trinity delta make base.safetensors tuned.safetensors --bits 1.5 --codec trinity -o delta.tri

To another machine, which has the base:
  over SSH:  trinity delta make base tuned -o - | ssh host trinity delta apply base - -o tuned")]
struct MakeArgs {
    /// The file before
    base: PathBuf,
    /// The file after
    tuned: PathBuf,
    /// Where to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Lossy: code the dense difference at so many bits per value
    #[arg(long, value_name = "BITS", value_parser = positive, conflicts_with = "nmse")]
    bits: Option<f64>,
    /// Lossy: code the dense difference with this error relative to its own energy, as
    /// the table says it, too
    #[arg(long, value_name = "NMSE", value_parser = positive)]
    nmse: Option<f64>,
    /// Codec of a lossy delta
    #[arg(long, value_name = "CODEC", default_value = "trinity")]
    codec: String,
}

/// Write base plus delta as safetensors
///
/// A delta of sharded folders makes a folder again where -o names one (a name
/// without an ending, or a folder that is there): the same shards under the same index.
///
/// A delta carries the hash of the tensors it was made against; another base is
/// refused. Deltas made before they did are applied with a remark.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  trinity delta apply base.safetensors delta.tri -o tuned.safetensors")]
struct ApplyArgs {
    /// The file before
    base: PathBuf,
    /// What `trinity delta make` wrote; `-` is stdin
    delta: PathBuf,
    /// Where to write: a file, or the folder of a sharded model
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.command {
        Command::Make(args) => run_make(args, ctx),
        Command::Apply(args) => run_apply(args, ctx),
    }
}

fn run_make(args: &MakeArgs, ctx: &Context) -> Result<(), Failure> {
    let target = args.bits.map(Rate::Bits).or(args.nmse.map(Rate::Nmse));
    let mode = match target {
        None => Mode::Lossless,
        Some(target) => {
            known_codec(&args.codec)?;
            Mode::Lossy { codec: args.codec.clone(), target }
        }
    };
    args.output.named_as(&["tri"])?;
    ctx.may_write(&args.output)?;
    let (base, tuned) = (open(&args.base)?, open(&args.tuned)?);
    let spool = Spool::create(&args.output)?;
    let summaries = make(&base, &tuned, &mode, spool.path()).map_err(|error| match error.root() {
        Error::NoSuchTensor { name } => Failure::input(format_args!(
            "{} has a tensor `{}`, and {} has none of that name",
            args.tuned.display(),
            name.escape_debug(),
            args.base.display()
        ))
        .help("a delta says how tensors changed: leave it out of the one file, or add it to the other"),
        _ => not_written(&args.tuned.display().to_string(), &args.output, &error),
    })?;
    spool.finish()?;
    let table = Table::of(&summaries)
        .column("tensor", |tensor| tensor.tensor.escape_debug())
        .column("codec", |tensor| &tensor.codec)
        .column("values", |tensor| tensor.values)
        .column("bytes", |tensor| tensor.bytes)
        .column("bits/value", |tensor| sig3(tensor.bits_per_value))
        .column("NMSE of change", |tensor| sig3(tensor.metrics.nmse))
        .column("exact because", |tensor| tensor.exact.as_deref().unwrap_or_default())
        .end();
    ctx.outcome(&args.output, &summaries, table.render(ctx.colour))?;
    let missed = |summary: &&Summary| args.nmse.is_some_and(|nmse| summary.metrics.nmse > nmse);
    if let Some(worst) =
        summaries.iter().filter(missed).max_by(|a, b| a.metrics.nmse.total_cmp(&b.metrics.nmse))
    {
        ctx.remark(format!(
            "warning: tensor `{}` misses the error asked for: {} of the change is lost, most of it when the sum is \
             rounded to the tensor's own format",
            worst.tensor.escape_debug(),
            sig3(worst.metrics.nmse)
        ));
    }
    Ok(())
}

fn run_apply(args: &ApplyArgs, ctx: &Context) -> Result<(), Failure> {
    args.output.named_as(&["safetensors"])?;
    let (base, delta) = (open(&args.base)?, received(&args.delta)?);
    if !is_delta(&delta) {
        return Err(Failure::input(format_args!(
            "{} is no delta: it holds tensors of its own",
            args.delta.display()
        ))
        .help("`trinity delta make BASE TUNED -o DELTA` makes one; `trinity decode` reads a container"));
    }
    let applied = written(args, &base, &delta)?;
    if !applied.base_checked {
        ctx.remark("this delta does not say which base it was made against; the base was not checked");
    }
    ctx.remark(format!("wrote {} tensors to {}", applied.tensors, args.output.display()));
    ctx.tell(&json!({ "output": JsonPath::from(args.output.as_path()), "tensors": applied.tensors }))
}

/// A delta out of a file, or what comes through a pipe: it is small beside its base.
fn received(path: &Path) -> Result<TensorFile, Failure> {
    if !input::is_stdin(path) {
        return open_delta(path);
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::run(format_args!("cannot read stdin: {error}")))?;
    TensorFile::from_bytes(bytes, "delta")
        .map_err(|error| Failure::input(format_args!("stdin: {}", sentence(&error))))
}

/// Base plus delta: one file, or the shards of a folder under their index.
fn written(args: &ApplyArgs, base: &TensorFile, delta: &TensorFile) -> Result<Applied, Failure> {
    let output = &args.output;
    let index = delta.kept(OriginPart::Index).and_then(|text| text.map(Shards::parse).transpose());
    let index = index.map_err(|error| bad_input(&args.delta.display().to_string(), &error))?;
    let wants_folder = !output::is_stdout(output) && (output.is_dir() || output.extension().is_none());
    let Some(index) = index.filter(|_| wants_folder) else {
        let spool = Spool::create(output)?;
        let applied = apply(base, delta, spool.path()).map_err(|error| refused(args, output, &error))?;
        spool.finish()?;
        return Ok(applied);
    };
    let tensors: Vec<Written<'_>> = delta.entries().iter().map(Written::plainly).collect();
    let dealt = index.deal(&tensors);
    let mut whole = Applied { tensors: 0, base_checked: true };
    let mut spools = Vec::new();
    for (name, own) in &dealt {
        let path = output.join(name);
        let spool = Spool::create(&path)?;
        let own: Vec<_> = own.iter().map(|tensor| tensor.entry).collect();
        let applied =
            apply_some(base, delta, &own, spool.path()).map_err(|error| refused(args, &path, &error))?;
        whole.tensors += applied.tensors;
        whole.base_checked &= applied.base_checked;
        spools.push(spool);
    }
    spools.into_iter().try_for_each(Spool::finish)?;
    output::write(&output.join(Shards::INDEX_NAME), &index.text(&dealt))?;
    Ok(whole)
}

/// Why a delta was not put on a base.
fn refused(args: &ApplyArgs, output: &Path, error: &Error) -> Failure {
    match error.root() {
        Error::OtherBase { .. } => Failure::input(format_args!(
            "`{}` is not the base of `{}`: {error}",
            args.base.display(),
            args.delta.display()
        ))
        .help("apply the delta to the very file it was made against"),
        // What the delta names and the base lacks is the base's fault.
        Error::NoSuchTensor { name } => Failure::input(format_args!(
            "{}: no tensor `{}`, which {} changes",
            args.base.display(),
            name.escape_debug(),
            args.delta.display()
        ))
        .help("apply the delta to the file it was made against"),
        _ => not_written(&args.delta.display().to_string(), output, error),
    }
}
