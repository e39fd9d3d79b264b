//! The memory model against runs that fitted and runs that did not, and
//! against peak memory where it was written down.

use crate::fit::{Effort, fit};
use crate::runs::{Run, Set, Unscored};
use crate::score::{Pair, balanced_accuracy};
use trinity_study::config::software::Calibrations;

/// Constants of memory that runs decide.
pub const CONSTANTS: &[&str] = &[
    "nanotron.gpu.saved_hidden",
    "nanotron.gpu.saved_mlp",
    "nanotron.gpu.logit_bytes",
    "nanotron.gpu.reserved_gb",
];

/// What the model says about a run.
///
/// # Errors
///
/// When there is no calibration for its GPU.
pub fn fits(calibrations: &Calibrations, run: &Run) -> Result<bool, Unscored> {
    let (machine, job) = run.resolve(calibrations)?;
    Ok(trinity_sim::estimate(&machine, &job).is_ok())
}

/// How well fits and failures are told apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    pub fitted: usize,
    pub failed: usize,
    /// Runs that fitted though the model says no.
    pub wrong_fits: Vec<String>,
    /// Runs that failed though the model says yes.
    pub wrong_failures: Vec<String>,
}

impl Capacity {
    /// Runs that fitted as the model says.
    pub fn fitted_right(&self) -> usize {
        self.fitted - self.wrong_fits.len()
    }

    /// Runs that failed as the model says.
    pub fn failed_right(&self) -> usize {
        self.failed - self.wrong_failures.len()
    }

    /// Mean of the two rates.
    pub fn balanced_accuracy(&self) -> Option<f64> {
        balanced_accuracy(self.fitted_right(), self.fitted, self.failed_right(), self.failed)
    }
}

/// Judges `failures`, those of `finished` that come from the same sources (the
/// same framework on the same machines), and every run of 2025 and 2026.
pub fn score(calibrations: &Calibrations, finished: &[Run], failures: &[Run]) -> Capacity {
    let mut capacity = Capacity::default();
    let is_judged = |run: &&Run| {
        matches!(run.set, Set::MegatronBridge | Set::MlperfTraining)
            || failures.iter().any(|failure| failure.set == run.set)
    };
    for run in finished.iter().filter(is_judged) {
        let Ok(says) = fits(calibrations, run) else { continue };
        capacity.fitted += 1;
        capacity.wrong_fits.extend((!says).then(|| run.describe()));
    }
    for run in failures {
        let Ok(says) = fits(calibrations, run) else { continue };
        capacity.failed += 1;
        capacity.wrong_failures.extend(says.then(|| run.describe()));
    }
    capacity
}

/// Predicted and measured peak memory, bytes.
pub fn peaks(calibrations: &Calibrations, runs: &[Run]) -> Vec<Pair> {
    runs.iter()
        .filter_map(|run| {
            let (machine, job) = run.resolve(calibrations).ok()?;
            let predicted = trinity_sim::memory::memory(&machine, &job).total_bytes();
            Some(Pair { what: run.describe(), predicted, measured: run.peak_memory_gb? * 1e9 })
        })
        .collect()
}

/// The memory constants refitted on peaks of H100 runs.
pub fn refit(start: &Calibrations, runs: &[Run]) -> Calibrations {
    let own: Vec<Run> = runs
        .iter()
        .filter(|run| run.calibration() == Some("nanotron") && run.peak_memory_gb.is_some())
        .cloned()
        .collect();
    if own.is_empty() {
        return start.clone();
    }
    fit(start, CONSTANTS, Effort::FULL, |calibrations| {
        peaks(calibrations, &own).iter().map(|pair| pair.error().abs()).sum::<f64>()
    })
    .0
}
