//! `trinity h265`: raw frames to and from H.265 streams, for people who know
//! video tools.

mod decode;
mod encode;
mod info;

use crate::context::Context;
use crate::failure::Failure;
use std::path::Path;

/// H.265 intra streams: encode frames, decode and inspect streams
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

/// The whole stream: its parameter sets come first and are short.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::input(format_args!("cannot read `{}`: {error}", path.display())))
}

/// A stream that stopped decoding after `frames` good ones.
fn undecodable(path: &Path, error: &trinity_h265::Error, frames: usize) -> Failure {
    let failure = Failure::input(format_args!("{}: {error}", path.display()));
    if frames > 0 {
        failure.help(format_args!(
            "{frames} frames before it are good: `trinity h265 decode --keep-going` keeps them"
        ))
    } else {
        failure
    }
}
