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

/// The profile of a whole run of the tests: in few parts and without lines for debuggers, since nothing is built from it
/// a second time. The edit loop has cargo's own.
pub const PROFILE: &str = "once";

/// Cargo in the workspace, as tests use it.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(root());
    command
}

/// The words that choose the same packages, features and profile every time.
pub fn selected(subcommand: &str) -> Command {
    let mut command = edited(subcommand);
    command.args(["--profile", PROFILE]);
    command
}

/// As [`selected`], in the profile of the edit loop.
pub fn edited(subcommand: &str) -> Command {
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
    Ok(target().join(PROFILE).join(path))
}

/// An example that no test runs and that computes for minutes, most of them in one package.
pub fn example(name: &str, package: &str) -> Result<PathBuf, String> {
    let mut build = selected("build");
    build.args(["--example", name]);
    for setting in ["opt-level=3", "debug-assertions=false", "overflow-checks=false"] {
        build.args(["--config", &format!("profile.{PROFILE}.package.{package}.{setting}")]);
    }
    succeed(&mut build)?;
    Ok(target().join(PROFILE).join("examples").join(name))
}

/// The command.
pub fn command() -> Result<PathBuf, String> {
    built("trinity")
}
