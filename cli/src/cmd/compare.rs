//! `trinity compare`: codecs side by side on captured tensors.

mod ablate;
mod picture;
mod show;
mod stages;

use std::path::PathBuf;

use trinity_study::Shard;
use trinity_study::compare::{self, Comparison, USUAL_BITS, usual_codecs};
use trinity_tensor::codec::{Target, names};
use trinity_tensor::compare::{ClassLine, Row, Subject, Turn, shared_bases};
use trinity_tensor::{Class, Entry};

use super::encode::{known_codec, positive};
use super::tensors::{bad_input, open, work};
use crate::context::Context;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::output;
use crate::shards::{self, ShardArgs};
use crate::table::{Table, sig3};

/// Compare codecs on tensors: bits, errors, speeds, gap to the bound
///
/// For every tensor, codec, precondition and target: bits per value with all
/// side information counted, NMSE, SNR, mean and largest absolute error,
/// speeds, and the distance in bits from the rate–distortion bound of
/// independent Gaussian values.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Codecs:
  trinity          the Trinity codec
  h265, h264       this project's video codecs; -fast, -medium, -slow, -best choose a preset,
                   -420 neutral chroma, -444 three planes of values (h265-444, h264-fast-420)
  x264, x265, svtav1, aom     external encoders, through ffmpeg
  uniform+ac       uniform quantizer and adaptive arithmetic coder
  rtn, rtn-128g    integer round-to-nearest, a scale per row or per 128 values
  nf4, mxfp4, mxfp6, mxfp6-e3m2, mxfp8, mxfp8-e5m2, mxint8     number formats (fixed)
  int+X, mxfp+X    a number format and a coder X: huffman, deflate, lz4, cabac, zstd
  zstd             lossless (fixed)
  hadamard/CODEC   any of them after a randomized Hadamard transform
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
  trinity compare weights.safetensors --ablate --out stages/
  trinity compare kv.safetensors --stages --codecs trinity,trinity-lite --bits 3
  trinity compare weights.safetensors --show layers.6.k_proj.weight --out block/

On many machines, then one result:
  Slurm array:  trinity compare captured/*.safetensors --out compare/ --shard slurm
  elsewhere:    trinity compare captured/*.safetensors --out compare/ --shard 0/16
  then          trinity compare captured/*.safetensors --out compare/ --merge")]
pub struct Args {
    /// Tensor files
    #[arg(required = true, value_name = "TENSORS")]
    files: Vec<PathBuf>,
    /// Codecs, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "CODECS")]
    codecs: Vec<String>,
    /// Bits per value to meet
    #[arg(long, value_delimiter = ',', value_name = "BITS", value_parser = positive, conflicts_with = "nmse")]
    bits: Vec<f64>,
    /// Normalized mean squared errors to meet
    #[arg(long, value_delimiter = ',', value_name = "NMSE", value_parser = positive)]
    nmse: Vec<f64>,
    /// none, hadamard, pca or pca:RANK (leave one out), separated by commas
    #[arg(long, value_delimiter = ',', default_value = "none", value_name = "TURNS")]
    precondition: Vec<Turn>,
    /// Treat every tensor as of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// Only tensors whose name contains this
    #[arg(long, value_name = "TEXT")]
    tensor: Option<String>,
    /// What each stage of H.265 is worth (the paper's Figure 2(b)): 8-bit
    /// integers, entropy coding, transform, intra prediction, partitioning, inter
    /// prediction through x265, all at one error (--nmse, else 0.01)
    #[arg(long, conflicts_with_all = ["codecs", "bits", "show"])]
    ablate: bool,
    /// What each stage of the Trinity codec chose, the bits and operations it
    /// spends, and what it would cost in silicon; for trinity, trinity-lite,
    /// trinity-max and profiles of yours
    #[arg(long, conflicts_with_all = ["ablate", "show", "precondition"])]
    stages: bool,
    /// Draw one tensor's way through H.265 (the paper's Figures 3 and 4): a
    /// block, its prediction, residual and coefficients, at --nmse (else 0.01)
    #[arg(long, value_name = "TENSOR", conflicts_with_all = ["codecs", "bits"])]
    show: Option<String>,
    /// Values that --ablate, --stages and --show look at: a piece from a tensor's middle
    #[arg(long, value_name = "VALUES", default_value_t = 1 << 18, value_parser = clap::value_parser!(u64).range(1024..))]
    sample: u64,
    /// Refuse tensors that hold NaN or an infinity, instead of leaving them out by name
    #[arg(long)]
    strict: bool,
    /// The codec that BD-rates in the report compare with: uniform+ac where it
    /// is compared, else the first
    #[arg(long, value_name = "CODEC")]
    anchor: Option<String>,
    /// Write compare.csv and report.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    parts: ShardArgs,
}

const USUAL_ANCHOR: &str = "uniform+ac";

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    if (args.parts.shard.is_some() || args.parts.merge) && args.out.is_none() {
        return Err(Failure::input("parts are left in a folder").help("name it with --out DIR"));
    }
    if args.ablate {
        return ablate::run(args, ctx);
    }
    if args.stages {
        return stages::run(args, ctx);
    }
    if let Some(tensor) = &args.show {
        return show::run(tensor, args, ctx);
    }
    let codecs = codecs(args)?;
    let anchor = anchor(args, &codecs)?;
    let targets = targets(args);
    let subjects = Selection::of(args).subjects(ctx)?;
    take(args, "compare")?;
    let name = args.parts.shard.map_or("compare.csv".into(), |shard| format!("{}.partial.csv", shard.stem()));
    let kept: Kept<Row> = Kept::open(args.out.as_deref(), &name, |_| true)?;
    let parts = match &args.out {
        Some(folder) if args.parts.merge => shards::rows(folder)?,
        _ => Vec::new(),
    };
    let request = compare::Request {
        subjects: &subjects,
        codecs: codecs.clone(),
        turns: args.precondition.clone(),
        targets: targets.clone(),
        earlier: if args.parts.merge { &parts } else { kept.earlier() },
        part: args.parts.shard.unwrap_or(Shard::WHOLE),
        only_earlier: args.parts.merge,
    };
    let Comparison { all, rows, classes, misses } =
        compare::compare(&request, &|row| kept.add(row), &ctx.watch())?;
    if let Some((shard, folder)) = args.parts.shard.zip(args.out.as_ref()) {
        kept.finish_as(&shards::name(shard), &all)?;
        let path = folder.join(shards::name(shard));
        ctx.remark(format!("wrote {}; when all parts are there, run the same with --merge", path.display()));
        if ctx.json {
            return ctx.print_json(&serde_json::json!({ "part": path, "rows": all.len() }));
        }
        return Ok(());
    }
    if let Some(folder) = &args.out {
        kept.finish(&all)?;
        picture::report(&rows, &targets, &misses, anchor).write(&folder.join("report.html"))?;
        ctx.remark(format!("wrote {} and report.html", folder.join("compare.csv").display()));
    }
    bases(args, &subjects.iter().map(|subject| &subject.entry).collect::<Vec<_>>(), ctx)?;
    if ctx.json {
        return ctx.print_json(&all);
    }
    ctx.print(table(&classes).render(ctx.colour))?;
    for winner in compare::winners(&classes, &targets).iter().filter(|winner| winner.lead.is_some()) {
        ctx.remark(picture::sentence(winner));
    }
    for sentence in picture::verdicts(&rows) {
        ctx.remark(sentence);
    }
    for miss in &misses {
        ctx.remark(format!("not reached ({}×): {}", miss.tensors, miss.what));
    }
    Ok(())
}

/// Takes the folder of results for this comparison.
fn take(args: &Args, command: &str) -> Result<(), Failure> {
    args.out.as_deref().map_or(Ok(()), |folder| output::claim(folder, &work(command, &args.files)))
}

/// What PCA bases cost beside the tensors, and the files that hold them.
fn bases(args: &Args, entries: &[&Entry], ctx: &Context) -> Result<(), Failure> {
    for turn in &args.precondition {
        let &Turn::Pca { rank } = turn else { continue };
        let shared = shared_bases(entries, rank).map_err(|error| bad_input("pca", &error))?;
        for shared in shared {
            let (class, basis) = (shared.class, &shared.basis);
            ctx.remark(format!(
                "{turn} basis of {class} tensors with {} columns: {} bits, {:.4} a value of the tensors it serves; not \
                 counted in the table, where each tensor is left out of its own basis",
                basis.cols,
                basis.bits(),
                shared.bits_per_value(),
            ));
            if let Some(folder) = &args.out {
                let file = format!("{class}-{}-rank-{}.pca", basis.cols, basis.rank);
                output::write(&folder.join(file), &basis.to_bytes())?;
            }
        }
    }
    Ok(())
}

/// The error at which `--ablate` and `--show` work, the paper's where none is given.
fn fixed_error(args: &Args) -> f64 {
    args.nmse.first().copied().unwrap_or(0.01)
}

fn codecs(args: &Args) -> Result<Vec<String>, Failure> {
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

/// The codec that others are held against; one that has a curve.
fn anchor<'a>(args: &'a Args, codecs: &'a [String]) -> Result<&'a str, Failure> {
    let compared = |name: &str| codecs.iter().any(|codec| codec == name);
    match &args.anchor {
        Some(name) if compared(name) => Ok(name),
        Some(name) => Err(Failure::input(format_args!("the anchor `{name}` is not compared"))
            .help(format_args!("add it to --codecs, or choose one of {}", codecs.join(", ")))),
        None if compared(USUAL_ANCHOR) => Ok(USUAL_ANCHOR),
        None => Ok(codecs.first().map_or(USUAL_ANCHOR, String::as_str)),
    }
}

fn targets(args: &Args) -> Vec<Target> {
    if !args.nmse.is_empty() {
        return args.nmse.iter().map(|&nmse| Target::Nmse(nmse)).collect();
    }
    let bits = if args.bits.is_empty() { &USUAL_BITS[..] } else { &args.bits };
    bits.iter().map(|&bits| Target::Bits(bits)).collect()
}

/// The tensors to look at.
fn entries(args: &Args) -> Result<Vec<Entry>, Failure> {
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
    fn of(args: &'a Args) -> Self {
        Self { files: &args.files, class: args.class, tensor: args.tensor.as_deref(), strict: args.strict }
    }

    /// The tensors to compare codecs on, each with its file and its content.
    pub fn subjects(&self, ctx: &Context) -> Result<Vec<Subject>, Failure> {
        Ok(compare::subjects(self.chosen()?, self.strict, &ctx.watch())?)
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

fn table(lines: &[ClassLine]) -> Table {
    let mut table = Table::new([
        "class",
        "codec",
        "precondition",
        "target",
        "tensors",
        "bits/value",
        "NMSE",
        "SNR dB",
        "MAE",
        "max error",
        "enc MB/s",
        "dec MB/s",
        "gap bits",
    ]);
    let number = |value: f64| if value.is_nan() { "-".to_owned() } else { sig3(value) };
    for line in lines {
        table.row([
            line.class.to_string(),
            line.codec.clone(),
            line.precondition.clone(),
            line.target.clone(),
            line.tensors.to_string(),
            format!("{:.3}", line.bits_per_value),
            number(line.nmse),
            format!("{:.2}", line.snr_db),
            number(line.mae),
            number(line.max_abs_error),
            number(line.encode_mb_s),
            number(line.decode_mb_s),
            format!("{:.3}", line.gap_bits),
        ]);
    }
    table
}
