//! `trinity tensors`: what tensor files hold.

mod basis;
mod pictures;

use std::path::{Path, PathBuf};

use trinity_study::tensors::Line;
use trinity_tensor::Class;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::report::Report;
use crate::table::{Table, sig3};
use crate::tensor_files::{open, work};

/// Look into tensor files
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Info(InfoArgs),
    Basis(basis::Args),
}

/// Show what a codec could exploit in each tensor
///
/// Reads safetensors (a sharded set through its index.json), npy, npz, GGUF
/// and .tri files, streaming, so that files larger than memory are fine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns:
  class          from the file's metadata (class, class.NAME), else from the tensor's name
  absmax/std     largest magnitude in standard deviations: how far outliers stretch a fixed grid
  kurtosis       excess kurtosis; 0 is Gaussian, more is heavier tails
  law            likeliest of normal, laplace and student-t(degrees of freedom)
  row, col scale spread: standard deviation over rows (columns) of ln(RMS of the row)
  row, col corr  correlation of neighbours within a row (within a column)
  flatness       spectral flatness of 32×32 tiles; 1 is white, less is gain for a transform
  H8             entropy in bits after rounding to 256 levels between minimum and maximum
  bound          Gaussian rate–distortion bound in bits per value at an NMSE of 0.01
  bound(f)       the same, for a Gaussian with this tensor's power spectrum

Exact over all values: mean, std, absmax, kurtosis, scales. From a sample of at most
4,194,304 values, evenly spread (16,384 for the law, 512 tiles for the spectrum):
law, correlations, flatness, H8, bound(f). Values that are NaN or infinite are left out
and counted.

Examples:
  trinity tensors info model.safetensors
  trinity tensors info model.safetensors.index.json --out info/
  trinity tensors info kv.npy --class kv-cache --json")]
pub struct InfoArgs {
    /// Tensor files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Treat every tensor as of this class: weight, kv-cache, activation,
    /// weight-gradient, activation-gradient or other
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// Write info.csv and a self-contained report.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.command {
        Command::Info(info) => run_info(info, ctx),
        Command::Basis(args) => basis::run(args, ctx),
    }
}

fn run_info(args: &InfoArgs, ctx: &Context) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for path in &args.files {
        let file = open(path)?;
        let bytes = file.entries().iter().map(|entry| (entry.len() * entry.dtype().bytes()) as u64).sum();
        let progress = ctx.progress_bytes(bytes, &path.display().to_string());
        for entry in file.entries() {
            let entry = args.class.map_or_else(|| entry.clone(), |class| entry.clone().with_class(class));
            lines.push(Line::measure(&path.display().to_string(), &entry)?);
            progress.inc((entry.len() * entry.dtype().bytes()) as u64);
        }
        progress.finish_and_clear();
    }
    let table = table(&lines);
    if let Some(folder) = &args.out {
        output::lock(folder, &work("tensors info", &args.files))?;
        write_out(folder, &lines, &table)?;
        ctx.remark(format!("wrote {}", folder.join("report.html").display()));
    }
    ctx.show(&lines, || table.render(ctx.colour) + &remarks(&lines))
}

/// Tensors a report draws; more would make a page that no browser likes.
const DRAWN_TENSORS: usize = 24;

fn table(lines: &[Line]) -> Table {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), sig3);
    let shape = |line: &Line| match line.shape.as_slice() {
        [] => "scalar".to_owned(),
        sides => sides.iter().map(usize::to_string).collect::<Vec<_>>().join("×"),
    };
    Table::of(lines)
        .column("tensor", |line| line.tensor.escape_debug())
        .column("dtype", |line| &line.stored)
        .column("shape", shape)
        .column("class", |line| line.class)
        .column("mean", |line| number(line.profile.mean))
        .column("std", |line| number(line.profile.std))
        .column("absmax/std", |line| number(line.profile.absmax_over_std))
        .column("kurtosis", |line| number(line.profile.excess_kurtosis))
        .column("law", |line| line.profile.law.map_or_else(|| "-".to_owned(), |law| law.to_string()))
        .column("row scale", |line| number(line.profile.row_scale_spread))
        .column("col scale", |line| number(line.profile.column_scale_spread))
        .column("row corr", |line| number(line.profile.row_autocorrelation))
        .column("col corr", |line| number(line.profile.column_autocorrelation))
        .column("flatness", |line| number(line.profile.spectral_flatness))
        .column("H8", |line| number(line.profile.entropy_8bit_bits))
        .column("bound", |line| number(line.profile.gaussian_bound_bits))
        .column("bound(f)", |line| number(line.profile.spectrum_bound_bits))
        .end()
}

/// Warnings under the table: values that no statistic could use.
fn remarks(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| line.carried) {
        text.push_str(&format!(
            "{}: tensor `{}` is of {}, which no codec knows: it is carried as it is\n",
            line.file,
            line.tensor.escape_debug(),
            line.dtype
        ));
    }
    for line in lines {
        let Some(first) = line.profile.first_non_finite else { continue };
        let width = line.dtype.parse().map_or(1, |dtype: trinity_tensor::Dtype| dtype.bytes() as u64);
        text.push_str(&format!(
            "{}: tensor `{}` has {} NaN or infinite values, left out; the first is value {first} (at byte {})\n",
            line.file,
            line.tensor.escape_debug(),
            line.profile.non_finite,
            line.offset + first * width,
        ));
    }
    text
}

fn write_out(folder: &Path, lines: &[Line], table: &Table) -> Result<(), Failure> {
    output::write(&folder.join("info.csv"), &table.csv()?)?;
    let mut report = Report::new("What a codec could exploit");
    report.add("Tensors", table);
    let notes = remarks(lines);
    if !notes.is_empty() {
        report.paragraph(notes);
    }
    if lines.len() > DRAWN_TENSORS {
        report.paragraph(format!("Pictures of the first {DRAWN_TENSORS} tensors follow."));
    }
    for line in lines.iter().take(DRAWN_TENSORS) {
        pictures::draw(&mut report, &line.tensor, &line.profile);
    }
    report.write(&folder.join("report.html"))
}
