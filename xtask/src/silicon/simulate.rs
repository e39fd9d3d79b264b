//! Verilator: benches built once, run on vectors that the Rust codec wrote.

use super::activity::{self, Activity};
use super::design::{BENCHES, DESIGNS, Design, Vectors, folder};
use super::formal;
use crate::{
    compile,
    files::{self, ending_in},
    tools::{Failure, output, succeed},
    workspace::{captured, root},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// How often a bench is held back at random, in percent, each with its seed: not at all, some and
/// most of the time.
pub const PRESSURES: [(u32, u32); 3] = [(1, 0), (2, 30), (3, 75)];

/// Every bench of what has most built in, on small vectors, under those pressures; `large` adds many
/// more and captured tensors, and the designs with less.
pub fn verify(large: bool, pressures: &[(u32, u32)]) -> Result<(), Failure> {
    let mut sets = vec![vectors("small", &[])?];
    if large {
        sets.push(vectors("large", &["--large".into()])?);
        let tensors = captured();
        if tensors.is_empty() {
            eprintln!("no captured tensors beside the repository: left out");
        } else {
            let mut words = vec!["--large".to_string()];
            words.extend(tensors.iter().map(|path| path.display().to_string()));
            sets.push(vectors("captured", &words)?);
            for transform in ["hadamard", "dct"] {
                words.splice(..1, ["--transform".to_string(), transform.to_string()]);
                sets.push(vectors(&format!("captured-{transform}"), &words)?);
                words.splice(..2, ["--large".to_string()]);
            }
        }
    }
    let kept = if large { Some(streams()?) } else { None };
    if large {
        formal::check()?;
    }
    for design in DESIGNS.iter().chain(BENCHES).filter(|design| large || design.is_widest()) {
        let bench = build(design, false)?;
        let own = match design.vectors {
            // With less built in: every option once, taken or refused.
            Vectors::Streams if !design.is_widest() => sets[..1].to_vec(),
            // What is kept has words alone, nothing to encode.
            Vectors::Streams if design.top == "line_dec" => sets.iter().chain(&kept).cloned().collect(),
            Vectors::Streams => sets.clone(),
            Vectors::Groups(transform) => vec![groups(transform, "random", &[])?],
            Vectors::Numbers => vec![written("rtl_numbers", "numbers", &[], &[])?],
        };
        for set in &own {
            pressed(design, &bench, set, pressures)?;
        }
    }
    Ok(())
}

/// A bench on its vectors, under each pressure side by side.
fn pressed(design: &Design, bench: &Path, set: &Path, pressures: &[(u32, u32)]) -> Result<(), Failure> {
    let runs = pressures.iter().map(|(seed, pressure)| {
        let mut command = Command::new(bench);
        command.arg(set).args([seed.to_string(), pressure.to_string()]);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        (pressure, started)
    });
    let runs: Vec<_> = runs.collect();
    // All are waited for, whatever one says.
    let ended = runs.into_iter().map(|(pressure, run)| (pressure, run.and_then(Child::wait_with_output)));
    let mut differs = None;
    for (pressure, output) in ended.collect::<Vec<_>>() {
        let output = output.map_err(|error| format!("cannot run {}: {error}", bench.display()))?;
        let said = [output.stdout, output.stderr].concat();
        let of = format!("{} {}", design.what, set.file_stem().unwrap_or_default().display());
        eprint!("{of} pressure {pressure} %: {}", String::from_utf8_lossy(&said));
        if !output.status.success() {
            differs = Some(format!("{of} at a pressure of {pressure} %: {}", output.status));
        }
    }
    differs.map_or(Ok(()), |which| Err(Failure::Failed(which)))
}

/// What a run on captured tensors (on our own, where there are none) switches.
pub fn activity(design: &Design) -> Result<Activity, Failure> {
    let tensors: Vec<String> = captured().iter().map(|path| path.display().to_string()).collect();
    let set = match design.vectors {
        Vectors::Groups(transform) => groups(transform, "activity", &tensors)?,
        _ => {
            let mut words = vec!["--states".to_string(), design.built.states.to_string()];
            // The dearer of two transforms where they are built in.
            let transform: &[&str] = if design.built.transforms { &["--transform", "dct"] } else { &[] };
            words.extend(transform.iter().map(|word| word.to_string()));
            words.extend(tensors);
            vectors(&format!("activity-{}{}", design.built.states, transform.join("")), &words)?
        }
    };
    let bench = build(design, true)?;
    let trace = folder().join(format!("{}.vcd", design.name));
    let run = output(Command::new(&bench).arg(&set).args(["1", "0"]).arg(&trace))?;
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let mut words = said.split_whitespace().skip_while(|word| *word != "values").skip(1);
    let values = words.next().and_then(|word| word.parse().ok()).filter(|_| run.status.success());
    let (name, why) = (design.name, String::from_utf8_lossy(&run.stderr));
    let values = values.ok_or_else(|| format!("{name} differs on captured tensors: {}", why.trim()))?;
    let found = Activity { values, ..activity::read(&trace)? };
    // Some hundred megabytes that nobody needs again.
    drop(fs::remove_file(&trace));
    Ok(found)
}

fn vectors(name: &str, words: &[String]) -> Result<PathBuf, Failure> {
    written("rtl", name, &[], words)
}

/// Streams of every version that is kept, and what the fuzzer kept where it ran.
fn streams() -> Result<PathBuf, Failure> {
    let corpus = root().join("fuzz/corpus/line_decode");
    let mut folders = vec![root().join("models/codec/tests/golden/line")];
    if corpus.is_dir() {
        folders.push(corpus);
    } else {
        eprintln!("no fuzz/corpus/line_decode here (`cargo xtask fuzz line_decode` makes it): left out");
    }
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    written("rtl", "streams", &["--streams"], &folders)
}

fn groups(transform: &str, name: &str, tensors: &[String]) -> Result<PathBuf, Failure> {
    written("rtl", &format!("{transform}-{name}"), &["--groups", transform], tensors)
}

/// What an example writes into a file, which stands between the words.
fn written(example: &str, name: &str, before: &[&str], after: &[String]) -> Result<PathBuf, Failure> {
    let place = folder().join(format!("{name}.vectors"));
    let example = compile::built(&format!("examples/{example}"))?;
    succeed(Command::new(example).args(before).arg(&place).args(after).current_dir(root()))?;
    Ok(place)
}

fn build(design: &Design, traced: bool) -> Result<PathBuf, Failure> {
    let rtl = root().join("models/silicon/rtl");
    let objects = folder().join(format!("{}{}", design.name, if traced { ".traced" } else { "" }));
    let mut verilator = Command::new("verilator");
    verilator.args("--cc --exe --build -O3 -Wno-fatal -Wno-WIDTH -Wno-UNUSED --top-module".split(' '));
    verilator.arg(design.top).args(design.defines()).arg("-Mdir").arg(&objects);
    verilator.args(["-o", "bench", "-CFLAGS", &design.defines().join(" "), "-j", "2"]);
    // Compiling a bench takes several times as long as running it: what runs once is not optimized.
    verilator.args(["-MAKEFLAGS", "OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0"]);
    if traced {
        verilator.args(["--trace", "-CFLAGS", "-DTRACED"]);
    }
    verilator.args(ending_in(&rtl, "sv")).arg(rtl.join(format!("tb/{}.cpp", design.top)));
    let log = folder().join(format!("{}.bench.log", design.name));
    let output = output(&mut verilator)?;
    files::write(&log, [output.stdout, output.stderr].concat())?;
    if !output.status.success() {
        return Err(Failure::Failed(format!("verilator gave up on {}: see {}", design.top, log.display())));
    }
    Ok(objects.join("bench"))
}
