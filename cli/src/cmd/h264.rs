//! `trinity h264`: raw frames to and from H.264 streams, for people who know
//! video tools.

mod decode;
mod encode;
mod info;

use crate::context::Context;
use crate::failure::Failure;
use std::path::Path;

/// H.264 intra streams: encode frames, decode and inspect streams
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Encode(encode::Args),
    Decode(decode::Args),
    Info(info::Args),
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.command {
        Command::Encode(args) => encode::run(args, ctx),
        Command::Decode(args) => decode::run(args, ctx),
        Command::Info(args) => info::run(args, ctx),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::input(format_args!("cannot read `{}`: {error}", path.display())))
}
