//! `trinity serve`: services on GPUs whose kernels were measured.

mod asked;
mod bench;
mod coded;
mod play;
mod search;

use crate::context::Context;
use crate::failure::Failure;
use clap::Subcommand;
use trinity_study::serving::library::Library;

/// Say what a service does: the best deployment, one load played, what a codec buys
///
/// Steps are timed by kernels that were measured on the GPU and by constants of
/// the engine that measured services identify; `trinity validate --serving`
/// holds the same model against measurements.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity serve search Llama-3.1-70B --gpu h200-sxm --gpus 16 --ttft \"1 s\" --tpot \"30 ms\"
  trinity serve play gpt-oss-120b --precision fp4 --gpu b200-sxm --tensor 2 --concurrency 64
  trinity serve codec Llama-3.1-70B --gpu h200-sxm --tensor 4 --bits 3
  trinity serve bench")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Search(search::SearchArgs),
    Play(play::PlayArgs),
    Codec(coded::CodecArgs),
    Bench(bench::BenchArgs),
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let library = Library::load()?;
    match &args.action {
        Action::Search(args) => search::run(args, &library, ctx),
        Action::Play(args) => play::run(args, &library, ctx),
        Action::Codec(args) => coded::run(args, &library, ctx),
        Action::Bench(args) => bench::run(args, &library, ctx),
    }
}
