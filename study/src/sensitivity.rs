//! What a headline rests on: each assumption at either end, all others as they
//! were.

use crate::config::AssumptionFile;
use crate::sweep::Study;
use crate::{Error, Progress, Silent};
use serde::Serialize;

/// Points up to which every assumption of a sweep is varied.
pub const MOST_POINTS: u64 = 200_000;

/// The headline with one assumption at each end of its range.
#[derive(Debug, Clone, Serialize)]
pub struct Sensitivity {
    pub assumption: AssumptionFile,
    /// Speed-up and area saving at the low and the high value.
    pub low: (Option<f64>, Option<f64>),
    pub high: (Option<f64>, Option<f64>),
}

/// Runs the sweep again with each of its assumptions at either end; nothing
/// for a sweep without a headline or of more than [`MOST_POINTS`]. Fails where
/// the work is no longer wanted.
pub fn sensitivity(study: &Study, progress: &dyn Progress) -> Result<Vec<Sensitivity>, Error> {
    if study.plan.space.len() > MOST_POINTS || study.file.headline.is_none() {
        return Ok(Vec::new());
    }
    progress.begin(study.file.assumptions.len() as u64, "varying assumptions");
    let at = |assignment: String| -> Result<(Option<f64>, Option<f64>), Error> {
        let Ok(varied) = study.with(&assignment) else { return Ok((None, None)) };
        let headline = varied.answer(&varied.accumulate(&Silent)?).headline;
        Ok((headline.and_then(|h| h.speedup()), headline.and_then(|h| h.saving())))
    };
    let vary = |assumption: &AssumptionFile| -> Result<Sensitivity, Error> {
        progress.check()?;
        let line = Sensitivity {
            low: at(format!("study.{}={}", assumption.path, assumption.low))?,
            high: at(format!("study.{}={}", assumption.path, assumption.high))?,
            assumption: assumption.clone(),
        };
        progress.advance(1);
        Ok(line)
    };
    let lines = crate::parallel::map(&study.file.assumptions, vary).into_iter().collect();
    progress.end();
    lines
}
