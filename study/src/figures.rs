//! What a source claims, judged by what is found here.
//!
//! A figure (`configs/figures`) names commands, cells of their output and rules over
//! them; the verdict and every number in its sentences follow from a run's JSON or
//! from a recording of one (`figures/recorded.json`), and none is written by hand.
//!
//! Must not know how a command is run or how a verdict is shown.

mod cells;
mod error;
mod recording;
mod rule;
mod sample;
mod select;
mod synthetic;

pub use cells::Cells;
pub use error::Error;
pub use recording::{Fingerprint, Input, MODELS, Recording, Recordings, codecs_of, fingerprint, recorded};
pub use rule::{Claim, ClaimOutcome, number};
pub use sample::{Mean, Sample};
pub use synthetic::synthetic;

use crate::config::{ClaimFile, FigureFile};
use cells::of_each;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// How a figure fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every claim holds.
    Reproduced,
    /// Some hold.
    InPart,
    /// None holds, and some fail.
    Contradicted,
    /// Nothing was decided: too little was run, or differences lie within their intervals.
    NotDecided,
    /// Nothing here can judge it.
    OutOfScope,
}

impl Verdict {
    /// Every verdict, best first.
    pub const ALL: [Self; 5] =
        [Self::Reproduced, Self::InPart, Self::Contradicted, Self::NotDecided, Self::OutOfScope];

    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::InPart => "in part",
            Self::Contradicted => "contradicted",
            Self::NotDecided => "not decided",
            Self::OutOfScope => "out of scope",
        }
    }

    /// What follows from the outcomes of claims.
    pub fn of(outcomes: impl IntoIterator<Item = ClaimOutcome>) -> Self {
        let (mut held, mut failed, mut open) = (0, 0, 0);
        for outcome in outcomes {
            match outcome {
                ClaimOutcome::Holds => held += 1,
                ClaimOutcome::Fails => failed += 1,
                ClaimOutcome::Open => open += 1,
            }
        }
        match (held, failed, open) {
            (0, 0, 0) => Self::OutOfScope,
            (0, 0, _) => Self::NotDecided,
            (0, ..) => Self::Contradicted,
            (_, 0, 0) => Self::Reproduced,
            _ => Self::InPart,
        }
    }
}

/// A figure, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    pub verdict: Verdict,
    pub claims: Vec<Claim>,
}

/// The cells that are read off a run, by name: `outputs` has the JSON of each command.
pub fn read(
    figure: &FigureFile,
    outputs: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Sample>, Error> {
    let mut cells = BTreeMap::new();
    for (name, cell) in &figure.cells {
        let Some(path) = &cell.at else { continue };
        let run = cell.run.as_ref().or_else(|| figure.commands.keys().next());
        let run = run.ok_or_else(|| Error::Missing { name: name.clone() })?;
        for each in figure.each_in(&[path, run]) {
            let fill = |path: &str| path.replace("{each}", each.unwrap_or_default());
            let json = outputs.get(&fill(run)).ok_or_else(|| Error::Missing { name: name.clone() })?;
            let mut sample = match select::select(json, &fill(path), &figure.by) {
                Err(Error::NoCell { .. }) if cell.optional => Sample::default(),
                other => other?,
            };
            if let Some(interval) = cell.interval.as_ref().filter(|_| !sample.values.is_empty()) {
                let halves = select::select(json, &fill(interval), &figure.by)?;
                if halves.labels != sample.labels {
                    return Err(Error::NoPair);
                }
                sample.halves = halves.values;
            }
            cells.insert(each.map_or_else(|| name.clone(), |each| of_each(name, each)), sample);
        }
    }
    Ok(cells)
}

/// Judges a figure by the cells of a run or a recording.
pub fn judge(figure: &FigureFile, read: &BTreeMap<String, Sample>) -> Result<Judged, Error> {
    let over = figure.over.as_deref().unwrap_or("rows");
    let mut claims = Vec::new();
    for claim in &figure.claims {
        for each in figure.each_in(&[&claim.says]) {
            let cells = Cells { read, made: &figure.cells, exact: figure.exact, each };
            let says = claim.says.replace("{each}", each.unwrap_or_default());
            claims.push(rule::judge(&ClaimFile { says, ..claim.clone() }, &cells, over)?);
        }
    }
    let counted = claims.iter().filter(|claim: &&Claim| !claim.beside).map(|claim| claim.outcome);
    Ok(Judged { verdict: Verdict::of(counted), claims })
}

#[cfg(test)]
mod tests;
