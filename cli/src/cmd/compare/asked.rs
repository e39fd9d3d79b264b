//! What a comparison is asked for: its arguments, and the tensors, codecs and
//! targets that follow from them, whatever is then shown of them.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;
use trinity_config::DataRate;
use trinity_study::compare::{self, USUAL_BITS, usual_codecs};
use trinity_tensor::codec::{Rate, names, table};
use trinity_tensor::compare::{InputTensor, Turn};
use trinity_tensor::{Class, Entry, Error};

use crate::cmd::encode::{known_codec, positive};
use crate::cmd::sweep::quantity;
use crate::context::Context;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::output;
use crate::row_cache::csv_of;
use crate::shards::ShardArgs;
use crate::tensor_files::{bad_input, open, work};

/// What help says behind the codecs.
const REST_OF_HELP: &str = "  hadamard/CODEC   any of them after a randomized Hadamard transform
  residual/A/B     A, then B on what A lost (residual/h265/rtn-128g)
  all              every codec this machine has
Where none is named: trinity, h265, h264, uniform+ac, rtn, rtn-128g, nf4, mxfp4 and the paper's
eight baselines, {int, mxfp} + {huffman, deflate, lz4, cabac}.

Bit rates are met within 1 % and never exceeded. Codecs marked as fixed have one rate, and
stand in the table at that rate.

Two lines are no codecs: the order-0 entropy of uniformly quantized values, and the
Gaussian rate-distortion bound.

A PCA basis is learned from the other tensors of a class and width (leave one out); with --out
DIR, the basis of all of them is written as a file of its own, and its bits are said.

With --out DIR, compare.csv grows as results arrive; the same command run again goes on
where it stopped. Speeds are wall-clock megabytes of the tensor's own format per second,
rate control included; use --threads 1 for undisturbed ones.

Examples:
  trinity compare captured/*.safetensors --bits 2,2.5,3,3.5,4 --out compare/
  trinity compare kv.safetensors --codecs trinity,h265 --nmse 0.01 --precondition none,pca
  trinity compare kv.safetensors --codecs trinity-lite,uniform+ac --device auto
  trinity compare weights.safetensors --ablate --out stages/
  trinity compare model.safetensors --tensor k_proj.weight --motion
  trinity compare captured/*.safetensors --blocks
  trinity compare kv.safetensors --stages --codecs trinity,trinity-lite --bits 3
  trinity compare kv.safetensors --codecs h264,trinity-lite --nmse 0.01 --wire 100Gbit/s
  trinity compare weights.safetensors --show layers.6.k_proj.weight --out block/

On many machines, then one result:
  Slurm array:  trinity compare captured/*.safetensors --out compare/ --shard slurm
  elsewhere:    trinity compare captured/*.safetensors --out compare/ --shard 0/16
  then          trinity compare captured/*.safetensors --out compare/ --merge";

/// Compare codecs on tensors: bits, errors, speeds, gap to the bound
///
/// For every tensor, codec, precondition and target: bits per value with all
/// side information counted, NMSE, SNR, mean and largest absolute error,
/// speeds, and the distance in bits from the rate–distortion bound of
/// independent Gaussian values.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Codecs:\n{}{REST_OF_HELP}", table::help()))]
pub struct Args {
    /// Tensor files
    #[arg(required = true, value_name = "TENSORS")]
    pub(super) files: Vec<PathBuf>,
    /// Codecs, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "CODECS")]
    pub(super) codecs: Vec<String>,
    /// Bits per value to meet
    #[arg(long, value_delimiter = ',', value_name = "BITS", value_parser = positive, conflicts_with = "nmse")]
    pub(super) bits: Vec<f64>,
    /// Normalized mean squared errors to meet
    #[arg(long, value_delimiter = ',', value_name = "NMSE", value_parser = positive)]
    pub(super) nmse: Vec<f64>,
    /// none, hadamard, pca or pca:RANK (leave one out), separated by commas
    #[arg(long, value_delimiter = ',', default_value = "none", value_name = "TURNS")]
    pub(super) precondition: Vec<Turn>,
    /// Treat every tensor as of this class
    #[arg(long, value_name = "CLASS")]
    pub(super) class: Option<Class>,
    /// Only tensors whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(super) tensor: Option<String>,
    /// What each stage of H.265 is worth (the paper's Figure 2(b)): 8-bit
    /// integers, entropy coding, transform, intra prediction, partitioning, all at
    /// one error (--nmse, else 0.01)
    #[arg(long, conflicts_with_all = ["codecs", "bits", "show"])]
    pub(super) ablate: bool,
    /// What prediction from other frames is worth: runs of up to eight tensors whose
    /// names differ in numbers alone (layers, steps) as frames, through the same stages
    /// without and with motion search, at one error (--nmse, else 0.01)
    #[arg(long, conflicts_with_all = ["codecs", "bits", "show", "ablate"])]
    pub(super) motion: bool,
    /// Outliers before and after the transform, and what prediction leaves, of every
    /// tensor (the paper's Figures 3 and 4, over all blocks), at --nmse (else 0.01)
    #[arg(long, conflicts_with_all = ["codecs", "bits", "show", "ablate", "motion"])]
    pub(super) blocks: bool,
    /// What each stage of the Trinity codec chose, the bits and operations it
    /// spends, and what it would cost in silicon; for trinity, trinity-lite,
    /// trinity-max and profiles of yours
    #[arg(long, conflicts_with_all = ["ablate", "motion", "blocks", "show", "precondition"])]
    pub(super) stages: bool,
    /// Draw one tensor's way through H.265 (the paper's Figures 3 and 4): a
    /// block, its prediction, residual and coefficients, at --nmse (else 0.01)
    #[arg(long, value_name = "TENSOR", conflicts_with_all = ["codecs", "bits"])]
    pub(super) show: Option<String>,
    /// What NIC and codec cost together for this rate of 16-bit values, such as "100 Gbit/s", at the
    /// bits measured (the paper's Figure 15)
    #[arg(long, value_name = "RATE", value_parser = quantity::<DataRate>, conflicts_with_all = ["ablate", "motion", "blocks", "stages", "show", "shard"])]
    pub(super) wire: Option<DataRate>,
    /// The NIC of --wire: a name from `trinity config list nics`, or a path that ends in .toml
    #[arg(long, value_name = "NIC", default_value = "nics/cx5-llm265", requires = "wire")]
    pub(super) nic: String,
    /// Values that --ablate, --motion, --blocks, --stages and --show look at: a piece from a tensor's middle
    #[arg(long, value_name = "VALUES", default_value_t = 1 << 18, value_parser = clap::value_parser!(u64).range(1024..))]
    pub(super) sample: u64,
    /// Refuse tensors that hold NaN or an infinity, instead of leaving them out by name
    #[arg(long)]
    pub(super) strict: bool,
    /// The codec that BD-rates in the report compare with: uniform+ac where it
    /// is compared, else the first
    #[arg(long, value_name = "CODEC")]
    pub(super) anchor: Option<String>,
    /// Write compare.csv and report.html into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    #[command(flatten)]
    pub(super) parts: ShardArgs,
}

/// Takes the folder of results for this comparison.
pub(super) fn take(args: &Args, command: &str) -> Result<(), Failure> {
    args.out.as_deref().map_or(Ok(()), |folder| output::lock(folder, &work(command, &args.files)))
}

/// Writes rows as a CSV of that name into the folder of results.
pub(super) fn write_rows<R: Serialize>(
    args: &Args,
    folder: &Path,
    name: &str,
    rows: &[R],
) -> Result<(), Failure> {
    let option = name.trim_end_matches(".csv");
    take(args, &format!("compare --{option}"))?;
    output::write(&folder.join(name), &csv_of(rows)?)
}

/// Writes rows as a CSV of that name where there is a folder of results, and says where.
pub(super) fn keep_rows<R: Serialize>(
    args: &Args,
    name: &str,
    rows: &[R],
    ctx: &Context,
) -> Result<(), Failure> {
    let Some(folder) = &args.out else { return Ok(()) };
    write_rows(args, folder, name, rows)?;
    ctx.remark(format!("wrote {}", folder.join(name).display()));
    Ok(())
}

/// What is found of each item, in order; a failure names the item's tensor.
pub(super) fn of_each<T: Sync, R: Send>(
    items: &[T],
    doing: &'static str,
    ctx: &Context,
    tensor: impl Fn(&T) -> &str,
    find: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Failure> {
    let progress = ctx.progress(items.len() as u64, doing);
    let search = |item: &T| {
        let found = find(item);
        progress.inc(1);
        found
    };
    let found: Vec<Result<R, Error>> = items.par_iter().map(search).collect();
    progress.finish_and_clear();
    let named =
        |(item, found): (&T, Result<R, Error>)| found.map_err(|error| bad_input(tensor(item), &error));
    items.iter().zip(found).map(named).collect()
}

/// The error at which `--ablate`, `--motion`, `--blocks` and `--show` work, the paper's where none is given.
pub(super) fn fixed_error(args: &Args) -> f64 {
    args.nmse.first().copied().unwrap_or(0.01)
}

/// The codecs to compare, each of which is known.
pub(super) fn codecs(args: &Args) -> Result<Vec<String>, Failure> {
    let chosen: Vec<String> = match args.codecs.as_slice() {
        [] => usual_codecs(),
        [all] if all == "all" => names(),
        named => {
            named.iter().try_for_each(|name| known_codec(name))?;
            named.to_vec()
        }
    };
    Ok(chosen)
}

/// What every codec has to meet.
pub(super) fn targets(args: &Args) -> Vec<Rate> {
    if !args.nmse.is_empty() {
        return args.nmse.iter().map(|&nmse| Rate::Nmse(nmse)).collect();
    }
    let bits = if args.bits.is_empty() { &USUAL_BITS[..] } else { &args.bits };
    bits.iter().map(|&bits| Rate::Bits(bits)).collect()
}

pub(super) fn entries(args: &Args) -> Result<Vec<Entry>, Failure> {
    Ok(Selection::of(args).chosen()?.into_iter().map(|(_, entry)| entry).collect())
}

/// Which tensors of which files.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    pub files: &'a [PathBuf],
    /// Treat every tensor as of this class.
    pub class: Option<Class>,
    /// Only tensors whose name contains this.
    pub tensor: Option<&'a str>,
    /// Refuse what no lossy codec can take, instead of leaving it out.
    pub strict: bool,
}

impl<'a> Selection<'a> {
    pub(super) fn of(args: &'a Args) -> Self {
        Self { files: &args.files, class: args.class, tensor: args.tensor.as_deref(), strict: args.strict }
    }

    /// The tensors to compare codecs on, each with its file and its content.
    pub fn input_tensors(&self, ctx: &Context) -> Result<Vec<InputTensor>, Failure> {
        Ok(compare::input_tensors(self.chosen()?, self.strict, &ctx.watch())?)
    }

    fn chosen(&self) -> Result<Vec<(String, Entry)>, Failure> {
        let mut files = Vec::new();
        for path in self.files {
            let file = open(path)?;
            let file = self.class.map_or(file.clone(), |class| file.with_class(class));
            files.push((path.display().to_string(), file));
        }
        Ok(compare::chosen(&files, self.tensor)?)
    }
}
