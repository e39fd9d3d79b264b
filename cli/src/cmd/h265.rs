//! `trinity h265`: raw frames to and from H.265 streams, for people who know
//! video tools.

mod encode;

use crate::context::Context;
use crate::failure::Failure;

/// H.265 intra streams: encode frames, decode and inspect streams
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Encode(encode::Args),
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.command {
        Command::Encode(args) => encode::run(args, ctx),
    }
}
