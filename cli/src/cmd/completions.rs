//! `trinity completions`: a script that teaches a shell the arguments.

use crate::{context::Context, failure::Failure};
use clap_complete::Shell;
use serde_json::json;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  trinity completions bash > ~/.local/share/bash-completion/completions/trinity")]
pub struct Args {
    /// The shell to write for
    shell: Shell,
}

/// Prints the script for the commands of `tree`.
pub fn run(args: &Args, mut tree: clap::Command, ctx: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut tree, "trinity", &mut script);
    let script = String::from_utf8_lossy(&script);
    ctx.show(&json!({ "shell": args.shell.to_string(), "script": script }), || script.to_string())
}
