//! What tests, notebooks, the package and the benches run, compiled once.
//!
//! Cargo resolves features for the packages it is asked for: a second command
//! with another choice compiles the same libraries again. Whoever needs
//! something built in the profile of the tests asks here, for all of it.

use crate::{
    tools::succeed,
    workspace::{root, target},
};
use std::{path::PathBuf, process::Command};

/// What is off by default and tested all the same.
pub const FEATURES: &str = "trinity/parquet";

/// Examples that other steps run.
const EXAMPLES: [&str; 2] = ["rtl", "rtl_numbers"];

/// Cargo in the workspace, as tests use it.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(root());
    command
}

/// The words that choose the same packages and features every time.
pub fn selected(subcommand: &str) -> Command {
    cargo(&[subcommand, "--quiet", "--workspace", "--features", FEATURES])
}

/// Builds all that tests need; nothing where it is there.
pub fn everything() -> Result<(), String> {
    let examples = EXAMPLES.iter().flat_map(|name| ["--example", name]);
    succeed(selected("build").args(["--lib", "--bins", "--tests"]).args(examples))
}

/// Something that [`everything`] built, by its path in the folder of the profile.
pub fn built(path: &str) -> Result<PathBuf, String> {
    everything()?;
    Ok(target().join("debug").join(path))
}

/// The command.
pub fn command() -> Result<PathBuf, String> {
    built("trinity")
}
