//! `cargo xtask fuzz`: the fuzz targets under `/fuzz`, on the stable compiler.

use crate::{
    tools::{find, succeed},
    workspace::root,
};
use std::{fs, path::PathBuf, process::Command};

pub fn run(args: &[&str]) -> Result<(), String> {
    let (target, runs) = match args {
        [] => (None, "100000"),
        ["--runs", runs] => (None, *runs),
        [target] => (Some(*target), "100000"),
        [target, "--runs", runs] | ["--runs", runs, target] => (Some(*target), *runs),
        _ => return Err("expected: cargo xtask fuzz [TARGET] [--runs N]".into()),
    };
    runs.parse::<u64>().map_err(|_| format!("`{runs}` is no number of runs"))?;
    let known = targets()?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| target.is_none_or(|wanted| wanted == *name)).collect();
    if chosen.is_empty() {
        return Err(format!("no such target; expected one of: {}", known.join(", ")));
    }
    if find("cargo-fuzz").is_none() {
        succeed(Command::new(env!("CARGO")).args(["install", "--locked", "cargo-fuzz"]))?;
    }
    for name in chosen {
        fuzz(name, runs)?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_string)
        })
        .collect();
    names.sort();
    Ok(names)
}

/// Real streams for a decoder to start from, in the folder `shared` beside the repository.
fn conformance(target: &str) -> PathBuf {
    root().join("../shared/conformance").join(target.trim_end_matches("_decode"))
}

/// Inputs found on the way stay in `fuzz/corpus`; the target writes its seeds beside them, and
/// what was found in the past is tried first.
fn fuzz(target: &str, runs: &str) -> Result<(), String> {
    let folder = root().join("fuzz");
    let corpus = folder.join("corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("cannot create {}: {error}", corpus.display()))?;
    let mut command = Command::new(env!("CARGO"));
    // No sanitizer: safe code needs none, and without one the stable compiler will do.
    command.args(["fuzz", "run", "--sanitizer", "none", target]).arg(&corpus);
    let seeds = folder.join("corpus/seeds").join(target);
    fs::create_dir_all(&seeds).map_err(|error| format!("cannot create {}: {error}", seeds.display()))?;
    command.env("TRINITY_FUZZ_SEEDS", &seeds).arg(&seeds);
    for more in [conformance(target), folder.join("findings").join(target)] {
        if more.is_dir() {
            command.arg(&more);
        }
    }
    command.args(["--", &format!("-runs={runs}"), "-max_len=16384", "-rss_limit_mb=2048", "-timeout=20"]);
    succeed(command.current_dir(root()))
}
