//! Codecs side by side on tensors.
//!
//! Joins tensors, codecs, preconditions and targets into cells, fills them,
//! and sums them up by class. Knows nothing of files or of how a table looks.

use crate::{Error, Progress};
use serde::Serialize;
use std::collections::BTreeMap;
use trinity_tensor::Entry;
use trinity_tensor::codec::{PAPER_BASELINES, Target};
use trinity_tensor::compare::{ClassLine, GAUSSIAN, Goal, Job, ORDER0, Row, Turn, by_class};

/// What is compared where no codec is named: one of each kind that this
/// project brings. Other programs' encoders and other profiles take longer
/// than all of these.
const OWN: [&str; 8] = ["trinity", "h265", "h264", "uniform+ac", "rtn", "rtn-128g", "nf4", "mxfp4"];

/// Rates where none is named, bits per value.
pub const USUAL_BITS: [f64; 5] = [2.0, 2.5, 3.0, 3.5, 4.0];

/// The codecs compared where none is named: ours, and the paper's eight
/// baselines.
pub fn usual_codecs() -> Vec<String> {
    OWN.iter().chain(&PAPER_BASELINES).map(|&name| name.into()).collect()
}

/// Tensors and what to hold side by side on each.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Tensors; rows tell them apart by name.
    pub entries: &'a [&'a Entry],
    pub codecs: Vec<String>,
    pub turns: Vec<Turn>,
    pub targets: Vec<Target>,
    /// Rows of an earlier run; a cell among them is not filled again.
    pub earlier: &'a [Row],
}

/// Every row, and what could not be reached.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub rows: Vec<Row>,
    /// Means over the tensors of a class.
    pub classes: Vec<ClassLine>,
    pub misses: Vec<Miss>,
}

/// A target that a codec did not reach, and on how many tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Miss {
    /// Codec, target and the kind of obstacle.
    pub what: String,
    pub tensors: usize,
}

/// Fills every cell. `keep` sees each new row as it is found.
///
/// # Errors
///
/// Where a codec is unknown, a tensor cannot be read, or the work is no longer
/// wanted; a target out of reach is no error but a [`Miss`].
pub fn compare(
    request: &Request<'_>,
    keep: &(dyn Fn(&Row) + Sync),
    progress: &dyn Progress,
) -> Result<Comparison, Error> {
    let jobs = request.jobs()?;
    progress.begin(jobs.len() as u64, "comparing");
    let results = crate::parallel::map(&jobs, |job| {
        progress.check()?;
        let known = request.earlier.iter().find(|row| job.is_answered_by(row));
        let row = match known {
            Some(row) => Ok(row.clone()),
            None => job.run().inspect(|row| keep(row)),
        };
        progress.advance(1);
        Ok::<_, Error>(row.map_err(|error| (job.codec.clone(), error)))
    });
    progress.end();
    let (mut rows, mut misses) = (Vec::new(), BTreeMap::<String, usize>::new());
    for result in results {
        match result? {
            Ok(row) => rows.push(row),
            Err((_, trinity_tensor::Error::Unreachable { codec, target, reason, .. })) => {
                // The figure differs from tensor to tensor; the kind of obstacle does not.
                let reason = reason.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().trim_end();
                *misses.entry(format!("{codec} at {target}: {reason} …")).or_default() += 1;
            }
            Err((subject, error)) => return Err(Error::Tensor { subject, error }),
        }
    }
    let classes = by_class(&rows);
    let misses = misses.into_iter().map(|(what, tensors)| Miss { what, tensors }).collect();
    Ok(Comparison { rows, classes, misses })
}

impl<'a> Request<'a> {
    fn jobs(&self) -> Result<Vec<Job<'a>>, Error> {
        let mut jobs = Vec::new();
        for &entry in self.entries {
            for codec in self.codecs.iter().map(String::as_str).chain([ORDER0, GAUSSIAN]) {
                let plain = [Turn::None];
                let turns = if [ORDER0, GAUSSIAN].contains(&codec) { &plain[..] } else { &self.turns };
                let goals = Goal::of(codec, &self.targets)
                    .map_err(|error| Error::Tensor { subject: codec.into(), error })?;
                for (&turn, &goal) in turns.iter().flat_map(|turn| goals.iter().map(move |goal| (turn, goal)))
                {
                    jobs.push(Job { entry, codec: codec.into(), turn, goal, samples: self.entries });
                }
            }
        }
        Ok(jobs)
    }
}
