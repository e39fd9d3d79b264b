//! `cargo xtask tune NAME`: what other values of a tuned constant would give.
//!
//! For each value the sources are copied under `target/tune` with that one
//! constant changed, built there, and held against captured weights: bits per
//! value at three errors, and the time. The repository itself stays as it is.
// Figures are what is asked for: they go to stdout, notes to stderr.
#![allow(clippy::print_stdout)]

use crate::workspace::{root, shared};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A constant that was chosen by measurement.
struct Tunable {
    name: &'static str,
    file: &'static str,
    /// Its text, with `{}` for the value; occurs once in the file.
    text: &'static str,
    /// Today's value first.
    values: &'static [&'static str],
    /// The codec whose bits it moves.
    codec: &'static str,
}

const TUNABLES: [Tunable; 8] = [
    Tunable {
        name: "h264-lambda",
        file: "models/h264/src/encoder/preset.rs",
        text: "            lambda: {},",
        values: &["0.13", "0.09", "0.11", "0.15", "0.18"],
        codec: "h264-slow",
    },
    Tunable {
        name: "h264-rounding",
        file: "models/h264/src/encoder/preset.rs",
        text: "            rounding: {},",
        values: &["0.36", "0.32", "0.40", "0.44"],
        codec: "h264-fast",
    },
    Tunable {
        name: "h265-lambda",
        file: "models/h265/src/encoder/preset.rs",
        text: "            lambda: {},",
        values: &["0.10", "0.07", "0.085", "0.115", "0.14"],
        codec: "h265-slow",
    },
    Tunable {
        name: "h265-dead-zone",
        file: "models/h265/src/encoder/quantize/dead_zone.rs",
        text: "const ROUNDING: f32 = {};",
        values: &["0.45", "0.40", "0.42", "0.48"],
        codec: "h265-fast",
    },
    Tunable {
        name: "h265-hidden-sign",
        file: "models/h265/src/encoder/quantize/rdoq.rs",
        text: "const HIDDEN_SIGN: f32 = {};",
        values: &["0.75", "0.6", "0.9"],
        codec: "h265-slow",
    },
    Tunable {
        name: "h265-early-exit",
        file: "models/h265/src/encoder/search.rs",
        text: "const EARLY_EXIT_SLACK: [f64; 4] = {};",
        values: &["[1.0, 0.08, 0.06, 0.04]", "[1.0, 0.04, 0.03, 0.02]", "[1.0, 0.16, 0.12, 0.08]"],
        codec: "h265-slow",
    },
    Tunable {
        name: "trinity-dead-zone",
        file: "models/codec/src/stage/trellis.rs",
        text: "pub const DEAD_ZONE_ROUNDING: i32 = {};",
        values: &["51", "45", "48", "54", "58"],
        codec: "trinity-static",
    },
    Tunable {
        name: "trinity-margin",
        file: "models/codec/src/search/rules.rs",
        text: "    margin: {},",
        values: &["0.004", "0.001", "0.002", "0.008"],
        codec: "trinity",
    },
];

pub fn run(args: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = TUNABLES.iter().map(|tunable| tunable.name).collect();
    let (name, files) = args.split_first().ok_or(format!("expected one of: {}", names.join(", ")))?;
    let tunable = TUNABLES
        .iter()
        .find(|tunable| tunable.name == *name)
        .ok_or_else(|| format!("`{name}` is none of: {}", names.join(", ")))?;
    let files: Vec<PathBuf> = match files {
        [] => captured()?,
        files => files
            .iter()
            .map(|file| fs::canonicalize(file).map_err(|e| format!("cannot read {file}: {e}")))
            .collect::<Result<_, _>>()?,
    };
    println!("{name} in {}, by {} on {} files", tunable.file, tunable.codec, files.len());
    println!("{:<28} {:>12} {:>9} {:>9}", "value", "bits/value", "change", "seconds");
    let mut today = None;
    for value in tunable.values {
        let source = sources_with(tunable, value)?;
        let (bits, seconds) = measure(&source, tunable.codec, &files)?;
        let change = 100.0 * (bits / *today.get_or_insert(bits) - 1.0);
        println!("{value:<28} {bits:>12.5} {change:>+8.3}% {seconds:>9.1}");
    }
    Ok(())
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

/// The text of a file with another value of the constant.
fn changed(tunable: &Tunable, text: &str, value: &str) -> Result<String, String> {
    let with = |value: &str| tunable.text.replace("{}", value);
    let today = with(tunable.values[0]);
    match text.matches(&today).count() {
        1 => Ok(text.replace(&today, &with(value))),
        count => Err(format!("`{}` stands {count} times in {}", today.trim(), tunable.file)),
    }
}

/// A copy of the sources with one value changed; what is the same already keeps
/// its time, so that only what depends on the constant is built again.
fn sources_with(tunable: &Tunable, value: &str) -> Result<PathBuf, String> {
    let (root, copy) = (root(), root().join("target/tune/source"));
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
    let listed = listed.map_err(|error| format!("cannot run git: {error}"))?.stdout;
    for path in String::from_utf8_lossy(&listed).split('\0').filter(|path| !path.is_empty()) {
        let Ok(mut bytes) = fs::read(root.join(path)) else { continue };
        if path == tunable.file {
            bytes = changed(tunable, &String::from_utf8_lossy(&bytes), value)?.into_bytes();
        }
        write_if_new(&copy.join(path), &bytes)?;
    }
    Ok(copy)
}

fn write_if_new(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Bits per value and seconds.
fn measure(source: &Path, codec: &str, files: &[PathBuf]) -> Result<(f64, f64), String> {
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "trinity-tensor", "--example", "rate_at_error"])
        .args(["--", codec])
        .args(files)
        .current_dir(source)
        .env("CARGO_TARGET_DIR", root().join("target/tune/build"))
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let said = String::from_utf8_lossy(&run.stdout);
    let mut numbers = said.split_whitespace().map(str::parse);
    match (run.status.success(), numbers.next(), numbers.next()) {
        (true, Some(Ok(bits)), Some(Ok(seconds))) => Ok((bits, seconds)),
        _ => Err(format!("no measurement: {}", String::from_utf8_lossy(&run.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_stands_where_it_is_looked_for() {
        for tunable in &TUNABLES {
            let text = fs::read_to_string(root().join(tunable.file)).unwrap();
            for value in tunable.values {
                let other = changed(tunable, &text, value).unwrap();
                assert_eq!(other == text, *value == tunable.values[0], "{}: {value}", tunable.name);
            }
        }
    }

    #[test]
    fn every_command_that_a_comment_names_is_there() {
        // Names are looked for in whole sentences: a comment may break a line after `tune`.
        let known: Vec<&str> = TUNABLES.iter().map(|tunable| tunable.name).collect();
        for tunable in &TUNABLES {
            let text = fs::read_to_string(root().join(tunable.file)).unwrap();
            let words: Vec<&str> = text.split_whitespace().filter(|word| !word.starts_with("//")).collect();
            let named: Vec<&str> = words
                .windows(2)
                .filter(|pair| pair[0] == "tune")
                .map(|pair| pair[1].trim_matches(|c: char| !c.is_alphanumeric() && c != '-'))
                .collect();
            assert!(named.contains(&tunable.name), "{}: {named:?}", tunable.file);
            assert!(named.iter().all(|name| known.contains(name)), "{}: {named:?}", tunable.file);
        }
    }
}
