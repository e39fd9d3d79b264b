//! `trinity decode`: a `.tri` container back to safetensors or npy, a stream of
//! pictures back to pictures.

use std::path::PathBuf;

use serde_json::json;
use trinity_tensor::file::{SafetensorsWriter, damaged, write_npy};
use trinity_tensor::pipeline::{SLAB_VALUES, spec};
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

/// Decompress a .tri container to safetensors, or one tensor of it to npy
///
/// Checksums are verified first: a damaged tensor is reported and left out,
/// the others are still written, and the exit code is 1.
///
/// A stream of pictures (.trp, or all-intra H.264) becomes .png, .pgm, .y4m or
/// raw planes, as the output's name says.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity decode model.tri -o model.safetensors
  trinity decode model.tri --tensor layers.0.k_proj.weight -o k.npy
  trinity decode kv.tri --basis kv.basis -o kv.safetensors
  trinity decode model.tri --device auto -o model.safetensors
  trinity decode photo.trp -o photo.png")]
pub struct Args {
    /// The container, or a stream of pictures, which may come from stdin as `-`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write: NAME.npy for one tensor, safetensors otherwise; .png,
    /// .pgm, .y4m, .yuv or .gray for pictures; `-` is stdout. Where not given,
    /// the input's name with .decoded.safetensors (.decoded.png, .decoded.y4m)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The basis that the tensors were encoded with, where they were
    #[arg(long, value_name = "FILE")]
    basis: Option<PathBuf>,
    /// Decode these tensors only
    #[arg(long, value_name = "NAME")]
    tensor: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    if input::is_streamed(&args.file) || pictures::is_stream(&args.file)? {
        args.device.open(["a codec of pictures"], ctx)?;
        if !args.tensor.is_empty() || args.basis.is_some() {
            return Err(Failure::input(
                "--tensor and --basis are for containers, and this is a stream of pictures",
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
    // A name of its own: the file that was encoded may well lie beside.
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("decoded.safetensors"));
    output.named_as(&["safetensors", "npy"])?;
    ctx.may_write(&output)?;
    let wants = |entry: &Entry| args.tensor.is_empty() || args.tensor.iter().any(|name| name == entry.name());
    let stored = file.entries().iter().filter(|entry| wants(entry)).map(Entry::stored);
    let device = args.device.open(stored, ctx)?;
    let spool = Spool::create(&output)?;
    let broken = damaged(&file);
    let wanted: Vec<&Entry> = file
        .entries()
        .iter()
        .filter(|entry| wants(entry))
        .filter(|entry| broken.iter().all(|(name, _)| name != entry.name()))
        .collect();
    let place = args.file.display().to_string();
    if output::format_of(&output) == Some("npy") {
        let [entry] = wanted[..] else {
            return Err(Failure::input(format_args!(
                "npy holds one tensor, and {} are to be written",
                wanted.len()
            ))
            .help("name one with --tensor, or write safetensors"));
        };
        if let Some(carried) = entry.carried() {
            return Err(Failure::input(format_args!(
                "tensor `{}` is {carried}, which is carried",
                entry.name()
            ))
            .help("write safetensors, which keeps its format"));
        }
        let tensor = entry.read().map_err(|error| bad_input(&place, &error))?;
        write_npy(spool.path(), &tensor).map_err(|error| not_written(&place, &output, &error))?;
    } else {
        write(&file, &wanted, spool.path(), ctx).map_err(|error| not_written(&place, &output, &error))?;
    }
    spool.finish()?;
    device.remark(ctx);
    ctx.remark(format!("wrote {} tensors to {}", wanted.len(), output.display()));
    if ctx.json {
        let tensors: Vec<&str> = wanted.iter().map(|entry| entry.name()).collect();
        let damaged: Vec<&String> = broken.iter().map(|(name, _)| name).collect();
        let used = device.used();
        ctx.print_json(&json!({ "output": JsonPath::from(output), "tensors": tensors, "damaged": damaged, "device": used }))?;
    }
    match broken.first() {
        None => Ok(()),
        Some((name, error)) => Err(Failure::run(format_args!(
            "{place}: {} of {} tensors damaged and left out; the first is `{}`: {error}",
            broken.len(),
            file.entries().len(),
            name.escape_debug(),
        ))),
    }
}

fn write(
    file: &TensorFile,
    wanted: &[&Entry],
    output: &std::path::Path,
    ctx: &Context,
) -> Result<(), trinity_tensor::Error> {
    let specs: Vec<_> = wanted.iter().map(|entry| spec(entry)).collect();
    let mut writer = SafetensorsWriter::create(output, &specs, file.metadata())?;
    let progress = ctx.progress(wanted.iter().map(|entry| entry.len() as u64).sum(), "decoding");
    let mut buffer = Vec::new();
    for entry in wanted {
        let mut stream = entry.stream()?;
        let mut left = entry.len();
        while left > 0 {
            let step = left.min(SLAB_VALUES);
            buffer.resize(step * entry.dtype().bytes(), 0);
            stream.fill(&mut buffer)?;
            writer.write(&buffer)?;
            progress.inc(step as u64);
            left -= step;
        }
    }
    progress.finish_and_clear();
    writer.finish()
}
