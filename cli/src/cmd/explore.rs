//! `trinity explore`: from tensors to a cluster, in one answer.

mod page;
mod show;

use super::compare::Selection;
use super::encode::positive;
use super::sweep::area;
use crate::context::Context;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::output;
use std::path::PathBuf;
use trinity_config::Area;
use trinity_study::explore::{self, Explored, Request};
use trinity_tensor::Class;
use trinity_tensor::codec::Target;
use trinity_tensor::compare::Row;

/// Say which codec to build: on these tensors, at this quality, in this silicon, for this cluster
///
/// Measures the bits of every class of tensor at one quality, prices every codec in silicon, sweeps
/// the cluster with each of them and the measured bits, and says which is best at the budget, by
/// how much, where it stops being so, and how sure that is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity explore                                 built-in tensors, LLaMA-7B training, every codec
  trinity explore kv.safetensors --nmse 0.01 --study sweeps/kv-spill --budget \"50000 mm2\"
  trinity explore --codecs three-in-one,line,uniform+ac=codecs/line-lanes --nmse 0.02
  trinity explore --set \"study.cluster.nic.bandwidth=400 Gbit/s\" --out out/fast-wires

Codecs are those of configs/explorations/codecs.toml (`trinity config show explorations/codecs`), a
tensor codec that counts its operations (trinity-max, a profile as FILE.toml), or any tensor codec
with the silicon of a file of configs/codecs, as CODER=CODEC.

bits.csv grows as results arrive; the same command run again goes on where it stopped. study.toml is
the sweep behind the answer: `trinity sweep out/explore/study.toml` runs it again.")]
pub struct Args {
    /// Tensor files; seven captured tensors of five classes that come with the command where none is named
    #[arg(value_name = "TENSORS")]
    files: Vec<PathBuf>,
    /// Normalized mean squared error that every codec meets (default: 0.01)
    #[arg(long, value_name = "NMSE", value_parser = positive, conflicts_with = "bits")]
    nmse: Option<f64>,
    /// Bits per value that every codec gets, instead of an error
    #[arg(long, value_name = "BITS", value_parser = positive)]
    bits: Option<f64>,
    /// The cluster and its job: a name from `trinity config list sweeps`, or a path that ends in .toml
    #[arg(long, value_name = "SWEEP", default_value = explore::STUDY)]
    study: String,
    /// Silicon of the whole cluster, such as "50000 mm2" (default: the study's)
    #[arg(long, value_name = "AREA", value_parser = area)]
    budget: Option<Area>,
    /// Codecs, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "CODECS")]
    codecs: Vec<String>,
    /// Build codecs at this node, such as 5nm
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Override a value of the study; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Treat every tensor as of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// Only tensors whose name contains this
    #[arg(long, value_name = "TEXT")]
    tensor: Option<String>,
    /// Folder for bits.csv, study.toml and report.html
    #[arg(long, value_name = "DIR", default_value = "out/explore")]
    out: PathBuf,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let subjects = if args.files.is_empty() {
        explore::built_in()?
    } else {
        let tensor = args.tensor.as_deref();
        Selection { files: &args.files, class: args.class, tensor, strict: false }.subjects(ctx)?
    };
    let quality = match (args.nmse, args.bits) {
        (_, Some(bits)) => Target::Bits(bits),
        (Some(nmse), None) => Target::Nmse(nmse),
        (None, None) => explore::QUALITY,
    };
    output::protect(std::path::Path::new(&args.study));
    output::claim(&args.out, &work(args))?;
    let kept: Kept<Row> = Kept::open(Some(&args.out), "bits.csv", |_| true)?;
    let request = Request {
        subjects: &subjects,
        quality,
        study: args.study.clone(),
        sets: args.sets.clone(),
        budget_mm2: args.budget.map(Area::mm2),
        candidates: args.codecs.clone(),
        node: args.node.clone(),
        earlier: kept.earlier(),
    };
    let explored = explore::explore(&request, &|row| kept.add(row), &ctx.watch())?;
    let Explored { exploration, comparison, .. } = &explored;
    kept.finish(&comparison.all)?;
    output::write(&args.out.join("study.toml"), exploration.sweep_toml.as_bytes())?;
    page::page(&explored).write(&args.out.join("report.html"))?;
    if ctx.json {
        ctx.print_json(exploration)?;
    } else {
        ctx.print(show::text(exploration, ctx.colour))?;
    }
    ctx.remark(format!("wrote {}", args.out.join("report.html").display()));
    Ok(())
}

/// The exploration as a folder of its results remembers it: what is asked of
/// the same tensors may change, rows follow from what they are of.
fn work(args: &Args) -> String {
    let files: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let files = if files.is_empty() { explore::BUILT_IN.to_owned() } else { files.join(" ") };
    format!("explore {files} --study {}", args.study)
}
