//! `cargo xtask tune NAME`: what other values of a tuned constant would give.
//!
//! The measure is an example of `trinity-tensor`, in a build in which such constants can be set; here is what it is
//! held against. Which constants there are, and what else was tried, stands where they do (`trinity_numeric::tuned`).

use crate::tools;
use crate::workspace::{root, shared, target};
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "cargo xtask tune NAME[=VALUE,...] [FILE...]";
const HELP: &str = "
Codes a piece of every tensor with the value that was chosen and with others, and prints bits per value at three
errors, and the time. Without a NAME it says which constants there are; without files it takes captured weights
beside the project.";

pub fn run(args: &[&str]) -> Result<(), String> {
    if let ["--help" | "-h"] = args {
        eprintln!("{USAGE}\n{HELP}");
        return Ok(());
    }
    let (name, files) = match args {
        [name, files @ ..] => (Some(name), files),
        [] => (None, args),
    };
    // Named files are found from where the command was called.
    let files: Vec<PathBuf> = match files {
        [] if name.is_some() => captured()?,
        files => files.iter().map(PathBuf::from).collect(),
    };
    // A folder of its own: what is built with the feature must not take the place of what is not.
    let own = target().join("tune");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--quiet", "--package", "trinity-tensor", "--features", "tune"]);
    cargo.args(["--example", "tune", "--target-dir"]).arg(&own);
    tools::succeed(cargo.current_dir(root()))?;
    let measure = own.join("release/examples/tune");
    let status = Command::new(&measure).args(name).args(files).status();
    match status.map_err(|error| format!("cannot run {}: {error}", measure.display()))?.success() {
        true => Ok(()),
        false => Err(format!("expected {USAGE}")),
    }
}

/// Captured weights, beside the repository.
fn captured() -> Result<Vec<PathBuf>, String> {
    let folder = shared().join("captured");
    let files = ["weights.safetensors", "real/pretrained_weights.safetensors"].map(|name| folder.join(name));
    let files: Vec<PathBuf> = files.into_iter().filter(|path| path.exists()).collect();
    if files.is_empty() {
        return Err(format!("no weights in {}: name files of your own", folder.display()));
    }
    Ok(files)
}
