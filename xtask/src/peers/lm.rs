//! `cargo xtask peers lm`: our forward pass against a plain NumPy one, on the
//! same text and cores, in one run of one script.
//!
//! Takes the small model from `shared/lm` beside the repository where it is,
//! else the tiny one that comes with the project.

use super::bench;
use crate::{environment::environment, tools::succeed, workspace::root};
use std::process::Command;

const SCRIPT: &str = include_str!("lm.py");

pub fn run(args: &[&str]) -> Result<(), String> {
    if !args.is_empty() {
        return Err("expected: cargo xtask peers lm".into());
    }
    let trinity = bench::build_trinity()?;
    let python = environment()?;
    let shared = root().join("../shared/lm");
    let (model, text) = if shared.join("small.json").exists() {
        (shared.join("small.json"), shared.join("eval.txt"))
    } else {
        eprintln!("{} is not there: the tiny model instead", shared.display());
        let own = root().join("models/lm/data");
        (own.join("tiny.json"), own.join("eval.txt"))
    };
    succeed(Command::new(python).args(["-c", SCRIPT]).args([&trinity, &model, &text]))
}
