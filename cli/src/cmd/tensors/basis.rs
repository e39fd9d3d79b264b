//! `trinity tensors basis`: a change of basis learned from samples, as a file
//! that encoder and decoder share.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use trinity_tensor::codec::{Basis, PcaBasis};
use trinity_tensor::{Entry, Tensor};

use crate::context::Context;
use crate::failure::Failure;
use crate::json_path::JsonPath;
use crate::output::{self, Named};
use crate::tensor_files::{bad_input, open};

/// Learn a basis from sample tensors, for encode --basis and decode --basis
///
/// The principal components of the samples' rows. With --rank they are cut, and
/// any codec can follow; with --group, rows are turned in groups of columns by a
/// stage of the Trinity codec, which takes it only where it pays.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity tensors basis monday.safetensors --tensor k_cache -o k.basis
  trinity tensors basis monday.safetensors --tensor k_cache --rank 256 -o k.basis
  trinity encode tuesday.npy --bits 2.5 --basis k.basis -o tuesday.tri
  trinity decode tuesday.tri --basis k.basis")]
pub struct Args {
    /// Tensor files with the samples
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to write the basis
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Learn from tensors whose names contain this
    #[arg(long, value_name = "TEXT")]
    tensor: Option<String>,
    /// Components of whole rows to keep, for any codec
    #[arg(long, value_name = "N", conflicts_with = "group", value_parser = clap::value_parser!(u32).range(1..))]
    rank: Option<u32>,
    /// Columns of a group, for the Trinity codec
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=128))]
    group: u16,
}

#[derive(Debug, Serialize)]
struct BasisOutcome {
    output: JsonPath,
    hash: String,
    columns: usize,
    samples: usize,
    bits: usize,
    bits_per_sample_value: f64,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    for path in &args.files {
        entries.extend(open(path)?.entries().iter().filter(|entry| !entry.is_empty()).cloned());
    }
    if let Some(text) = &args.tensor {
        entries.retain(|entry| entry.name().contains(text));
    }
    let Some(columns) = entries.first().map(|entry| entry.matrix().1) else {
        return Err(Failure::input("no tensors to learn from").help("check the files and --tensor"));
    };
    if let Some(other) = entries.iter().find(|entry| entry.matrix().1 != columns) {
        return Err(Failure::input(format_args!(
            "tensor `{}` has rows of {} values, tensor `{}` of {columns}",
            other.name().escape_debug(),
            other.matrix().1,
            entries[0].name().escape_debug(),
        ))
        .help("choose tensors of one width with --tensor"));
    }
    let tensors = entries.iter().map(Entry::read).collect::<Result<Vec<Tensor>, _>>();
    let tensors = tensors.map_err(|error| bad_input("basis", &error))?;
    args.output.named_as(&["basis"])?;
    ctx.may_write(&args.output)?;
    let basis = learn(args, &tensors, columns)?;
    let bytes = basis.to_bytes();
    output::write(&args.output, &bytes)?;
    let values: usize = entries.iter().map(Entry::len).sum();
    let outcome = BasisOutcome {
        output: args.output.as_path().into(),
        hash: format!("{:016x}", basis.hash()),
        columns,
        samples: entries.len(),
        bits: 8 * bytes.len(),
        bits_per_sample_value: 8.0 * bytes.len() as f64 / values as f64,
    };
    ctx.outcome(&args.output, &outcome, text(&outcome))
}

fn learn(args: &Args, tensors: &[Tensor], columns: usize) -> Result<Basis, Failure> {
    if let Some(rank) = args.rank {
        let samples: Vec<&Tensor> = tensors.iter().collect();
        let basis = PcaBasis::from_samples(&samples, rank as usize);
        return basis.map(|basis| Basis::Pca(Arc::new(basis))).map_err(|error| bad_input("basis", &error));
    }
    let mut rows: Vec<f32> = Vec::new();
    for tensor in tensors {
        let first = rows.len();
        rows.resize(first + tensor.len(), 0.0);
        tensor.dtype().to_f32(tensor.data(), &mut rows[first..]);
    }
    let basis = trinity_codec::Basis::learn(&rows, columns, usize::from(args.group));
    basis.map(|basis| Basis::Trinity(Arc::new(basis))).map_err(Failure::input)
}

fn text(outcome: &BasisOutcome) -> String {
    format!(
        "{}: basis {} of {} columns from {} tensors, {} bits, {:.4} a value of its samples\n",
        outcome.output.display(),
        outcome.hash,
        outcome.columns,
        outcome.samples,
        outcome.bits,
        outcome.bits_per_sample_value,
    )
}
