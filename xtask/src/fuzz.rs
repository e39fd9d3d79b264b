//! `cargo xtask fuzz`: the fuzz targets under `/fuzz`, on the stable compiler.

use crate::{
    files,
    tools::{find, succeed},
    workspace::root,
};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::Instant,
};

pub fn run(args: &[&str]) -> Result<(), String> {
    let Asked { target, runs, max_len } = Asked::of(args)?;
    let known = targets()?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| target.is_none_or(|wanted| wanted == *name)).collect();
    if chosen.is_empty() {
        return Err(format!("no such target; expected one of: {}", known.join(", ")));
    }
    if find("cargo-fuzz").is_none() {
        succeed(Command::new(env!("CARGO")).args(["install", "--locked", "cargo-fuzz"]))?;
    }
    // One target's finding is no reason to keep the others waiting.
    let rounds =
        chosen.into_iter().map(|name| fuzz(name, runs, max_len)).collect::<Result<Vec<Round>, String>>()?;
    eprint!("\n{}", summary(&rounds));
    let stopped: Vec<&str> =
        rounds.iter().filter(|round| !round.finished).map(|round| round.target.as_str()).collect();
    if stopped.is_empty() {
        return Ok(());
    }
    Err(format!("{} stopped before the end; what was found is in fuzz/artifacts", stopped.join(", ")))
}

/// The targets and the runs that are asked for.
#[derive(Debug, PartialEq)]
struct Asked<'a> {
    /// All targets where none is named.
    target: Option<&'a str>,
    runs: u64,
    /// Bytes of an input, at most; longer seeds are cut.
    max_len: u64,
}

impl<'a> Asked<'a> {
    fn of(args: &[&'a str]) -> Result<Self, String> {
        let mut asked = Self { target: None, runs: 100_000, max_len: 16_384 };
        let mut args = args.iter();
        while let Some(&word) = args.next() {
            let mut number = || {
                let text = args.next().ok_or_else(|| format!("{word} wants a number"))?;
                text.parse::<u64>().map_err(|_| format!("`{text}` is no number for {word}"))
            };
            match word {
                "--runs" => asked.runs = number()?,
                "--max-len" => asked.max_len = number()?.max(1),
                target if asked.target.is_none() && !target.starts_with('-') => asked.target = Some(target),
                _ => return Err("expected: cargo xtask fuzz [TARGET] [--runs N] [--max-len BYTES]".into()),
            }
        }
        Ok(asked)
    }
}

fn targets() -> Result<Vec<String>, String> {
    let sources = files::within(&root().join("fuzz/fuzz_targets"))?;
    let names = sources.iter().filter_map(|path| path.file_name()?.to_str()?.strip_suffix(".rs"));
    Ok(names.map(str::to_string).collect())
}

/// What became of one target.
struct Round {
    target: String,
    /// Runs in this call, and since the corpus was begun.
    runs: u64,
    runs_in_all: u64,
    seconds: u64,
    findings: usize,
    corpus: usize,
    /// Whether the fuzzer came to its end.
    finished: bool,
}

/// Files in a folder, none where there is no folder.
fn count(folder: &Path) -> usize {
    files::within(folder).map_or(0, |found| found.iter().filter(|path| path.is_file()).count())
}

/// Inputs found on the way stay in `fuzz/corpus`, where the next call goes on from them, beside the
/// number of runs so far; the target writes its seeds beside them, and what was found in the past is
/// tried first.
fn fuzz(target: &str, runs: u64, max_len: u64) -> Result<Round, String> {
    let folder = root().join("fuzz");
    let (corpus, seeds) = (folder.join("corpus").join(target), folder.join("corpus/seeds").join(target));
    for folder in [&corpus, &seeds] {
        files::folder(folder)?;
    }
    let artifacts = folder.join("artifacts").join(target);
    let found_before = count(&artifacts);
    let mut command = Command::new(env!("CARGO"));
    // No sanitizer: safe code needs none, and without one the stable compiler will do.
    command.args(["fuzz", "run", "--sanitizer", "none", target]).arg(&corpus);
    command.env("TRINITY_FUZZ_SEEDS", &seeds).arg(&seeds);
    // Real streams for a decoder to start from, in the folder `shared` beside the repository.
    let streams = root().join("../shared/conformance").join(target.trim_end_matches("_decode"));
    for more in [streams, folder.join("findings").join(target)] {
        if more.is_dir() {
            command.arg(&more);
        }
    }
    command.args(["--", &format!("-runs={runs}"), &format!("-max_len={max_len}")]);
    command.args(["-rss_limit_mb=2048", "-timeout=20"]);
    // Targets that write files wait for no disk where memory can be one.
    if Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
    let start = Instant::now();
    let (status, runs) = watched(command.current_dir(root()))?;
    let tally = folder.join("corpus").join(format!("{target}.runs"));
    let before: u64 = fs::read_to_string(&tally).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let runs_in_all = before + runs;
    files::write(&tally, format!("{runs_in_all}\n"))?;
    Ok(Round {
        target: target.into(),
        runs,
        runs_in_all,
        seconds: start.elapsed().as_secs(),
        findings: count(&artifacts).saturating_sub(found_before),
        corpus: count(&corpus),
        finished: status.success(),
    })
}

/// Runs the fuzzer, passes on what it says, and reads off how many runs it had.
fn watched(command: &mut Command) -> Result<(ExitStatus, u64), String> {
    let failed = |error: std::io::Error| format!("cannot run cargo fuzz: {error}");
    let mut running = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut runs = 0;
    if let Some(stderr) = running.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            runs = runs.max(runs_of(&line));
            eprintln!("{line}");
        }
    }
    Ok((running.wait().map_err(failed)?, runs))
}

/// The number of runs that a line of libFuzzer speaks of: `#1048576 pulse …` or `Done 2000 runs in …`.
fn runs_of(line: &str) -> u64 {
    let mut words = line.split_whitespace();
    let number = match words.next() {
        Some("Done") => words.next(),
        Some(word) => word.strip_prefix('#'),
        None => None,
    };
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// One line for each target.
fn summary(rounds: &[Round]) -> String {
    let mut text = format!(
        "{:<16} {:>12} {:>12} {:>8} {:>9} {:>8}\n",
        "target", "runs", "in all", "seconds", "findings", "corpus"
    );
    for round in rounds {
        let Round { target, runs, runs_in_all, seconds, findings, corpus, finished } = round;
        let end = if *finished { "" } else { "  stopped" };
        text += &format!(
            "{target:<16} {runs:>12} {runs_in_all:>12} {seconds:>8} {findings:>9} {corpus:>8}{end}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_in_any_order_and_nonsense_is_refused() {
        let asked = |target, runs, max_len| Ok(Asked { target, runs, max_len });
        assert_eq!(Asked::of(&[]), asked(None, 100_000, 16_384));
        assert_eq!(Asked::of(&["--runs", "7", "tri"]), asked(Some("tri"), 7, 16_384));
        assert_eq!(Asked::of(&["tri", "--max-len", "512", "--runs", "7"]), asked(Some("tri"), 7, 512));
        for wrong in [&["tri", "npy"][..], &["--runs"], &["--runs", "many"], &["--max", "3"]] {
            assert!(Asked::of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn runs_are_read_off_what_libfuzzer_says() {
        assert_eq!(runs_of("#1048576\tpulse  cov: 812 ft: 2020 corp: 310/44Kb lim: 4096"), 1_048_576);
        assert_eq!(runs_of("Done 2000000 runs in 61 second(s)"), 2_000_000);
        for other in ["", "INFO: seed corpus: files: 12", "tri: 2000 inputs, 3 accepted", "#x"] {
            assert_eq!(runs_of(other), 0, "{other}");
        }
    }

    #[test]
    fn the_summary_has_a_line_for_each_target() {
        let round = |target: &str, finished: bool| Round {
            target: target.into(),
            runs: 5,
            runs_in_all: 15,
            seconds: 1,
            findings: usize::from(!finished),
            corpus: 3,
            finished,
        };
        let text = summary(&[round("tri", true), round("npz", false)]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with("stopped")), "{text}");
    }
}
