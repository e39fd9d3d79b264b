//! The command `trinity`: arguments, progress, tables, reports.
//!
//! No arithmetic of its own: a command reads its arguments, calls a library,
//! and shows what came back. Each command is one module under [`cmd`].
#![forbid(unsafe_code)]

mod cmd;
mod colour;
mod context;
mod device;
mod failure;
mod input;
mod interrupt;
mod json_path;
mod output;
mod plot;
mod report;
mod row_cache;
mod shards;
mod table;
mod tensor_files;
mod video_io;
mod watch;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use context::{Context, GlobalArgs};
use failure::{Failure, Form};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Exit codes:
  0  the command did what was asked
  1  the run failed: a check did not hold, a device or a file system gave up
  2  the input is wrong: arguments, configuration or data files

Files:
  A file that exists is replaced with --force alone, and one that the command reads never.
  -o - writes to stdout; as an input, - is stdin, for formats that are read front to back.

Colours appear on a terminal only, and never when NO_COLOR is set.";

/// From a captured tensor to a cluster-level answer: what a codec does to real
/// tensors, what it costs in silicon, and what that does to a GPU cluster.
#[derive(Debug, Parser)]
#[command(name = "trinity", version = env!("TRINITY_VERSION"), max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

/// One variant a command; the order is the order of `trinity --help`.
#[derive(Debug, Subcommand)]
enum Command {
    Explore(cmd::explore::Args),
    Estimate(cmd::estimate::Args),
    Sweep(cmd::sweep::Args),
    Serve(cmd::serve::Args),
    Web(cmd::web::Args),
    Figure(cmd::figure::Args),
    Config(cmd::config::Args),
    Measure(cmd::measure::Args),
    Tensors(cmd::tensors::Args),
    H264(cmd::h264::Args),
    H265(cmd::h265::Args),
    Validate(cmd::validate::Args),
    Compare(cmd::compare::Args),
    Eval(cmd::eval::Args),
    Encode(cmd::encode::Args),
    Decode(cmd::decode::Args),
    Delta(cmd::delta::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

fn main() -> ExitCode {
    let parsed = tree().try_get_matches();
    let (cli, matches) = match parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))) {
        Ok(parsed) => parsed,
        Err(error) => return misused(&error),
    };
    let ctx = match Context::new(&cli.global) {
        Ok(ctx) => ctx,
        Err(failure) => return failure.report(Form::Text { colour: false }),
    };
    interrupt::watch(&ctx);
    match input::register(&matches, &tree()).and_then(|()| run(&cli.command, &ctx)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(ctx.form()),
    }
}

fn run(command: &Command, ctx: &Context) -> Result<(), Failure> {
    match command {
        Command::Explore(args) => cmd::explore::run(args, ctx),
        Command::Estimate(args) => cmd::estimate::run(args, ctx),
        Command::Sweep(args) => cmd::sweep::run(args, ctx),
        Command::Serve(args) => cmd::serve::run(args, ctx),
        Command::Web(args) => cmd::web::run(args, ctx),
        Command::Figure(args) => cmd::figure::run(args, ctx),
        Command::Config(args) => cmd::config::run(args, ctx),
        Command::Measure(args) => cmd::measure::run(args, ctx),
        Command::Tensors(args) => cmd::tensors::run(args, ctx),
        Command::H264(args) => cmd::h264::run(args, ctx),
        Command::H265(args) => cmd::h265::run(args, ctx),
        Command::Validate(args) => cmd::validate::run(args, ctx),
        Command::Compare(args) => cmd::compare::run(args, ctx),
        Command::Eval(args) => cmd::eval::run(args, ctx),
        Command::Encode(args) => cmd::encode::run(args, ctx),
        Command::Decode(args) => cmd::decode::run(args, ctx),
        Command::Delta(args) => cmd::delta::run(args, ctx),
        Command::Completions(args) => cmd::completions::run(args, tree(), ctx),
        Command::Man(args) => cmd::man::run(args, tree(), ctx),
    }
}

/// Arguments that mean nothing, or a wish for help: clap's words, and for
/// `--json` an object in their place.
fn misused(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !wants_json {
        // What help cannot be printed to is closed; nobody is left to tell.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let text = error.render().to_string();
    let mut parts = text.trim().splitn(2, "\n\n");
    let message = parts.next().unwrap_or_default().trim_start_matches("error: ");
    let failure = Failure::input(message.split_whitespace().collect::<Vec<_>>().join(" "));
    match parts.next() {
        Some(usage) => failure.help(usage.split_whitespace().collect::<Vec<_>>().join(" ")),
        None => failure,
    }
    .report(Form::Json)
}

/// The whole argument tree, for the commands that print it.
fn tree() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_argument_tree_is_sound() {
        super::tree().debug_assert();
    }
}
