//! What an encoder's own choice of a plan costs over the best plan it could
//! have chosen: the measure of `cargo xtask regret`.
//!
//! ```text
//! cargo run --release -p trinity-tensor --example regret -- \
//!     [--quick] [--again] [--others] [--without RULE] [--only WORD] [--codec NAME] [--kept DIR] FILE...
//! ```
//! Every tensor of the files and every law of [`laws`] is coded at 2, 3 and 4
//! bits per value as the encoder chooses, and held to each orientation and
//! transform in turn (through options of the codecs' own). Regret is what the
//! choice takes more, in bits at equal error: bits + ½ log2(NMSE), within a per
//! cent of the rate. `--quick`: at 3 bits, one tensor of each file. `--others`:
//! instead, what other codecs take beside `trinity` and `trinity-lite`. `--without RULE`: instead, what
//! choices take when one rule of the search (or each in turn: `all`) is left out, and the time it saves.
//! `--only WORD`: tensors and laws with the word in their name. `--codec NAME`:
//! `trinity` or `trinity-lite` alone. `--kept DIR`: points are kept there and used again, so that a run goes on
//! where the last one stopped; `--again` makes choices anew and keeps the rest.

#![allow(clippy::print_stdout)] // a program for people at a terminal

mod codecs;
mod laws;
mod points;
mod report;
mod rules;

use std::path::Path;
use std::process::ExitCode;

use codecs::{Contestant, OTHERS};
use points::{InputTensor, Point, PointCache};
use rayon::prelude::*;
use report::{Cell, Verdict};
use trinity_codec::Rules;
use trinity_tensor::{Error, TensorFile};

/// Bits per value.
const RATES: [f64; 3] = [2.0, 3.0, 4.0];
/// Fewer values are not worth a plan.
const LEAST_VALUES: usize = 1 << 13;

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    quick: bool,
    again: bool,
    others: bool,
    without: Option<String>,
    only: Option<String>,
    codec: Option<String>,
    kept: Option<String>,
    files: Vec<String>,
}

impl Asked {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut args = args;
        while let Some(word) = args.next() {
            match word.as_str() {
                "--quick" => asked.quick = true,
                "--again" => asked.again = true,
                "--others" => asked.others = true,
                "--without" => asked.without = Some(args.next().ok_or("--without needs a rule")?),
                "--only" => asked.only = Some(args.next().ok_or("--only needs a word")?),
                "--codec" => asked.codec = Some(args.next().ok_or("--codec needs a name")?),
                "--kept" => asked.kept = Some(args.next().ok_or("--kept needs a folder")?),
                flag if flag.starts_with("--") => return Err(format!("unknown option `{flag}`")),
                _ => asked.files.push(word),
            }
        }
        Ok(asked)
    }
}

fn main() -> ExitCode {
    let outcome = Asked::parse(std::env::args().skip(1)).and_then(|asked| run(&asked));
    match outcome {
        Ok(Verdict::Met) => ExitCode::SUCCESS,
        Ok(Verdict::Missed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(asked: &Asked) -> Result<Verdict, String> {
    let input_tensors = input_tensors(asked).map_err(|error| error.to_string())?;
    if input_tensors.is_empty() {
        return Err(format!(
            "no tensor and no law has `{}` in its name",
            asked.only.as_deref().unwrap_or("")
        ));
    }
    let kept = PointCache::open(asked.kept.as_deref().map(Path::new))?;
    let rates: &[f64] = if asked.quick { &RATES[1..2] } else { &RATES };
    if asked.others {
        return others(asked, &kept, &input_tensors, rates);
    }
    let mut verdicts = Vec::new();
    let asked_for = |c: &Contestant| asked.codec.as_deref().is_none_or(|name| name == c.name);
    let contestants: Vec<Contestant> = Contestant::all()?.into_iter().filter(asked_for).collect();
    if contestants.is_empty() {
        let name = asked.codec.as_deref().unwrap_or("");
        return Err(format!("`{name}` chooses no plan: there are trinity and trinity-lite"));
    }
    if let Some(name) = &asked.without {
        rules::leave_out(name, &contestants, &input_tensors, rates)?;
        return Ok(Verdict::Met);
    }
    for contestant in contestants {
        let mut cells = Vec::new();
        for (at, input) in input_tensors.iter().enumerate() {
            eprintln!("{} {} of {}: {}", contestant.name, at + 1, input_tensors.len(), input.name);
            for &bits in rates {
                cells.extend(cell(asked, &kept, &contestant, input, bits)?);
            }
        }
        verdicts.push(report::regrets(contestant.name, &cells));
    }
    Ok(if verdicts.contains(&Verdict::Missed) { Verdict::Missed } else { Verdict::Met })
}

/// The chosen plan beside every plan that can be held to; nothing where the
/// rate is out of reach.
fn cell(
    asked: &Asked,
    kept: &PointCache,
    contestant: &Contestant,
    input: &InputTensor,
    bits: f64,
) -> Result<Option<Cell>, String> {
    let chosen = kept.point(!asked.again, contestant.name, "own", input, bits, || {
        contestant.choose(input, bits, Rules::default())
    })?;
    let fixed: Vec<Result<Option<Point>, String>> = contestant
        .alternatives
        .par_iter()
        .map(|(name, alternative)| {
            kept.point(true, contestant.name, name, input, bits, || contestant.hold(alternative, input, bits))
        })
        .collect();
    let fixed = fixed.into_iter().collect::<Result<Vec<_>, _>>()?;
    let fixed =
        contestant.alternatives.iter().zip(fixed).filter_map(|((name, _), p)| Some((name.clone(), p?)));
    Ok(chosen.map(|chosen| Cell { input: input.name.clone(), bits, chosen, fixed: fixed.collect() }))
}

/// Every other codec beside the two.
fn others(
    asked: &Asked,
    kept: &PointCache,
    input_tensors: &[InputTensor],
    rates: &[f64],
) -> Result<Verdict, String> {
    let mut cells = Vec::new();
    for (at, input) in input_tensors.iter().enumerate() {
        eprintln!("{} of {}: {}", at + 1, input_tensors.len(), input.name);
        for &bits in rates {
            let point = |name: &&str| {
                let ours = name.starts_with("trinity");
                kept.point(!(asked.again && ours), name, "codec", input, bits, || {
                    codecs::by_registry(name, input, bits)
                })
            };
            let points: Vec<_> = OTHERS.par_iter().map(point).collect();
            let points = points.into_iter().collect::<Result<Vec<_>, _>>()?;
            let mut points = OTHERS.iter().zip(points).filter_map(|(name, p)| Some((name.to_string(), p?)));
            let Some((_, chosen)) = points.next() else { continue };
            cells.push(Cell { input: input.name.clone(), bits, chosen, fixed: points.collect() });
        }
    }
    Ok(report::others(&cells))
}

/// The tensors of the files, then the laws.
fn input_tensors(asked: &Asked) -> Result<Vec<InputTensor>, Error> {
    let mut found = Vec::new();
    for file in &asked.files {
        let file = TensorFile::open(Path::new(file))?;
        let large = file.entries().iter().filter(|entry| entry.len() >= LEAST_VALUES);
        for entry in large.take(if asked.quick { 1 } else { usize::MAX }) {
            found.push(InputTensor::of(&entry.read()?));
        }
    }
    let laws = laws::all();
    let every = if asked.quick { 4 } else { 1 };
    found.extend(laws.into_iter().step_by(every));
    found.retain(|input| asked.only.as_deref().is_none_or(|word| input.name.contains(word)));
    Ok(found)
}
