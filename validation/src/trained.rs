//! Training runs with coded communication, as they were recorded: what was sent, and what the model lost.
//!
//! `python python/research/train` made them on one GPU (validation/data/training). Runs are
//! held against the uncoded run of the same seed, so that what a seed does to both
//! cancels. Knows tables; knows nothing of how a gradient is coded.

use crate::Error;
use std::collections::BTreeMap;
use std::fmt::Write;
use trinity_study::trained::{Run, recorded};

const FILE: &str = "training/runs.csv";

/// A part of the recording: a name, the beginning of its runs' names, and the run without coding.
const SETS: [(&str, &str, &str); 5] = [
    ("data-parallel", "", "none"),
    ("pipeline", "pp-", "pp-none"),
    ("video-pipeline", "ppv-", "ppv-none"),
    ("85M", "85M-", "85M-none"),
    ("2.7M", "2.7M-", "2.7M-none"),
];

/// Two-sided 95 % points of Student's t, for 1 to 5 degrees of freedom.
const STUDENT: [f64; 5] = [12.706, 4.303, 3.182, 2.776, 2.571];

/// Runs of one name beside the uncoded ones of the same seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    pub name: String,
    pub seeds: usize,
    pub bits: f64,
    pub gradient_bits: f64,
    pub bits_per_byte: f64,
    /// Bits per byte over those of the uncoded run, less one, mean over seeds.
    pub loss: f64,
    /// Half the width of the 95 % interval of `loss`; nothing for one seed.
    pub interval: Option<f64>,
    pub choices: f64,
}

fn damaged(why: String) -> Error {
    Error::Data { file: FILE, why }
}

/// Every recorded run.
pub fn runs() -> Result<Vec<Run>, Error> {
    recorded().map_err(|why| damaged(why.to_string()))
}

/// Bits per value: of activations in a pipeline, of weight gradients elsewhere.
fn bits(run: &Run) -> f64 {
    run.activation_bits.or(run.weight_gradient_bits).unwrap_or_default()
}

/// Runs of a set, each with the uncoded one of its seed.
pub fn paired<'a>(runs: &'a [Run], set: &str) -> Option<Vec<(&'a Run, &'a Run)>> {
    let (_, prefix, baseline) = SETS.iter().find(|(name, ..)| *name == set)?;
    let others = ["pp-", "ppv-", "85M-", "2.7M-", "tune-", "timing-"];
    let within = |name: &str| match *prefix {
        "" => !others.iter().any(|other| name.starts_with(other)),
        prefix => name.starts_with(prefix),
    };
    let uncoded: BTreeMap<u64, &Run> =
        runs.iter().filter(|run| run.name == *baseline).map(|run| (run.seed, run)).collect();
    let own = runs.iter().filter(|run| within(&run.name));
    Some(own.filter_map(|run| Some((run, *uncoded.get(&run.seed)?))).collect())
}

/// Runs of a set beside its uncoded ones, the best first.
pub fn compared(runs: &[Run], set: &str) -> Option<Vec<Compared>> {
    let mut by_name: BTreeMap<&str, Vec<(&Run, f64)>> = BTreeMap::new();
    for (run, uncoded) in paired(runs, set)? {
        by_name.entry(&run.name).or_default().push((run, run.bits_per_byte / uncoded.bits_per_byte - 1.0));
    }
    let mut found: Vec<Compared> = by_name.into_iter().map(|(name, runs)| summed(name, &runs)).collect();
    found.sort_by(|a, b| a.loss.total_cmp(&b.loss));
    Some(found)
}

fn summed(name: &str, runs: &[(&Run, f64)]) -> Compared {
    let count = runs.len() as f64;
    let mean = |of: &dyn Fn(&(&Run, f64)) -> f64| runs.iter().map(of).sum::<f64>() / count;
    let loss = mean(&|run| run.1);
    let variance = runs.iter().map(|run| (run.1 - loss).powi(2)).sum::<f64>() / (count - 1.0);
    let interval = STUDENT.get(runs.len().wrapping_sub(2)).map(|t| t * (variance / count).sqrt());
    Compared {
        name: name.to_owned(),
        seeds: runs.len(),
        bits: mean(&|run| bits(run.0)),
        gradient_bits: mean(&|run| run.0.activation_gradient_bits.unwrap_or_default()),
        bits_per_byte: mean(&|run| run.0.bits_per_byte),
        loss,
        interval,
        choices: mean(&|run| run.0.choices),
    }
}

/// The table of a set, for people.
pub fn table(set: &str) -> Result<String, Error> {
    let rows = compared(&runs()?, set).ok_or_else(|| damaged(format!("there is no set {set}")))?;
    let pipeline = set.ends_with("pipeline");
    let mut out = format!("{:<30}{:>6}{:>9}", "run", "seeds", if pipeline { "act." } else { "bits" });
    if pipeline {
        let _ = write!(out, "{:>9}", "grad.");
    }
    let _ = writeln!(out, "{:>11}{:>17}{:>10}", "bits/byte", "beside uncoded", "choices");
    for row in &rows {
        let _ = write!(out, "{:<30}{:>6}{:>9.3}", row.name, row.seeds, row.bits);
        if pipeline {
            let _ = write!(out, "{:>9.3}", row.gradient_bits);
        }
        let beside = match row.interval {
            Some(interval) => format!("{:+.2} ± {:.2} %", 100.0 * row.loss, 100.0 * interval),
            None => format!("{:+.2} %", 100.0 * row.loss),
        };
        let _ = writeln!(out, "{:>11.4}{beside:>17}{:>8.1} %", row.bits_per_byte, 100.0 * row.choices);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_study::trained::parse;

    const HEAD: &str = "run,seed,bits_per_value,activation_bits,gradient_bits,valid_bits_per_byte,choices\n";

    #[test]
    fn runs_are_held_against_the_uncoded_one_of_their_seed() {
        let text = format!(
            "{HEAD}none,1,32,0,0,2,0.5\nnone,2,32,0,0,3,0.5\na,1,1.4,0,0,2.02,0.5\na,2,1.4,0,0,3.03,0.6\npp-x,1,0,3,5,2,0.5\n"
        );
        let rows = compared(&parse(&text, "t.csv").unwrap(), "data-parallel").unwrap();
        assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["none", "a"]);
        assert!((rows[1].loss - 0.01).abs() < 1e-9 && rows[1].interval.unwrap() < 1e-6);
        assert!(compared(&parse(&text, "t.csv").unwrap(), "nothing").is_none());
    }

    /// The bars of coded training, held by the recording.
    #[test]
    fn the_recording_keeps_to_its_bars() {
        let rows = compared(&runs().unwrap(), "data-parallel").unwrap();
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        let (half, third) = (of("t1.4-v"), of("t0.8-v"));
        assert!(half.loss <= 0.005 && half.bits < 1.41, "{half:?}");
        assert!(third.loss <= 0.015 && third.bits < 0.81, "{third:?}");
        assert!(half.loss <= of("rtn4").loss + 0.002 && 3.0 * half.bits < 1.03 * of("rtn4").bits);
        assert!(half.loss < of("powersgd16").loss && half.bits < of("powersgd16").bits);
        assert!(half.loss < of("1bit-adam").loss && half.bits < of("1bit-adam").bits);
        // Figure 11: the share of right choices that is kept.
        for name in ["t2.6-v", "t1.4-v"] {
            assert!(of(name).choices >= 0.966 * of("none").choices, "{name}");
        }
        let stages = compared(&runs().unwrap(), "pipeline").unwrap();
        let of = |name: &str| stages.iter().find(|row| row.name == name).unwrap();
        assert!(of("pp-a3-basis").loss <= 0.01 && of("pp-a3-basis").bits <= 3.0);
        // Coded activations never help, whatever they are coded in.
        assert!(stages.iter().all(|row| row.loss >= 0.0), "{stages:?}");
        for set in ["data-parallel", "pipeline", "85M", "2.7M"] {
            assert!(table(set).unwrap().lines().count() > 2, "{set}");
        }
    }
}
