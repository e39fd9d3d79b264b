//! `cargo xtask regret`: what encoders lose by the plan they choose.
//!
//! The measure is an example of `trinity-tensor`, since this crate knows no
//! codecs; here is what it is held against: captured tensors beside the project
//! where they are, the project's own small ones where not, and made-up laws.
//! Points are kept under `target/regret` until a codec changes, so that a run
//! that was stopped goes on.

use crate::{
    compile, files,
    workspace::{captured, captured_of_others, root, target},
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Small captured tensors that come with the project.
const OWN: [&str; 2] = ["study/data/tensors.safetensors", "validation/data/captured/sample.safetensors"];
/// Sources on which points depend.
const CODECS: [&str; 3] = ["models/bits/src", "models/codec/src", "models/numeric/src"];

const USAGE: &str =
    "cargo xtask regret [--quick] [--others] [--without RULE] [--again] [--only WORD] [--codec NAME]";
const HELP: &str = "
Codes captured tensors and made-up laws at 2, 3 and 4 bits as `trinity` and `trinity-lite` choose, and held to
each orientation and transform in turn; regret is what the choice takes more, in bits at equal error.
Exits with 1 where a bar is missed (0.01 bit in the mean, 0.05 at worst). Half an hour on two cores.

  --quick       at 3 bits, one tensor of each file
  --others      instead, what other codecs take beside these two
  --without RULE  instead, what choices take without a rule of the search (all: each in turn)
                and how long, beside those with all rules
  --only WORD   tensors and laws with the word in their name
  --codec NAME  trinity or trinity-lite alone
  --again       make choices anew, and keep the plans that were held to

A run that was stopped goes on: points are kept under target/regret until a codec changes.";

pub fn run(args: &[&str]) -> Result<(), String> {
    if let ["--help" | "-h"] = args {
        eprintln!("{USAGE}\n{HELP}");
        return Ok(());
    }
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let known = match *word {
            "--quick" | "--others" | "--again" => true,
            "--only" | "--codec" | "--without" => words.next().is_some(),
            _ => false,
        };
        if !known {
            return Err(format!("`{word}`: expected {USAGE}"));
        }
    }
    let measure = compile::released("regret", "trinity-tensor")?;
    let age = CODECS.iter().map(|folder| newest(&root().join(folder))).max().unwrap_or(0);
    let kept = target().join(format!("regret/{age}"));
    let status = Command::new(&measure).args(args).arg("--kept").arg(&kept).args(files()).status();
    match status.map_err(|error| format!("cannot run {}: {error}", measure.display()))?.code() {
        Some(0) => Ok(()),
        Some(1) => Err("a bar is missed".into()),
        _ => Err(format!("{} failed", measure.display())),
    }
}

/// Captured tensors, or the project's own where there are none.
fn files() -> Vec<PathBuf> {
    let mut found = [captured(), captured_of_others()].concat();
    if found.is_empty() {
        eprintln!("no captured tensors beside the project: its own small ones, and laws");
        found.extend(OWN.map(|name| root().join(name)));
    }
    found
}

/// Seconds since 1970 of the newest file below a folder.
pub fn newest(folder: &Path) -> u64 {
    let age = |path: &Path| {
        let modified = path.metadata().and_then(|m| m.modified()).ok()?;
        modified.duration_since(std::time::UNIX_EPOCH).ok().map(|d| d.as_secs())
    };
    let found = files::within(folder).unwrap_or_default();
    let ages = found.iter().map(|path| if path.is_dir() { newest(path) } else { age(path).unwrap_or(0) });
    ages.max().unwrap_or(0)
}
