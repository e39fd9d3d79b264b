//! The training-time model against measured iterations: errors by set, the
//! fit of its constants, and what folds say about the fit.

use crate::calibration::Calibrations;
use crate::fit::{Effort, fit};
use crate::runs::{Run, Set, Unscored};
use crate::score::{Pair, Stats, one_constant};
use std::collections::BTreeMap;
use trinity_sim::Breakdown;

/// Constants of the A100 that runs decide, with its clusters'.
pub const A100: &[&str] = &[
    "a100.gpu.gemm_efficiency",
    "a100.gpu.gemm_overhead_us",
    "a100.gpu.attention_efficiency",
    "a100.gpu.misaligned_attention",
    "a100.gpu.hidden_passes",
    "a100.gpu.mlp_passes",
    "a100.gpu.score_passes",
    "a100.gpu.gather_efficiency",
    "a100.gpu.peer_launch",
    "a100.clusters.default.fabric_gb_per_s",
    "a100.clusters.default.latency_us",
    "a100.clusters.default.launch_us",
    "a100.clusters.vtrain.fabric_gb_per_s",
    "a100.clusters.vtrain.latency_us",
    "a100.clusters.vtrain.launch_us",
    "a100.clusters.jean-zay.fabric_gb_per_s",
    "a100.clusters.jean-zay.latency_us",
    "a100.clusters.jean-zay.launch_us",
];

/// Constants of the H100 that runs decide, with its cluster's.
pub const H100: &[&str] = &[
    "h100.gpu.gemm_efficiency",
    "h100.gpu.gemm_overhead_us",
    "h100.gpu.attention_efficiency",
    "h100.gpu.hidden_passes",
    "h100.gpu.mlp_passes",
    "h100.gpu.hop_us",
    "h100.gpu.peer_launch",
    "h100.gpu.pipelined_launch",
    "h100.gpu.pipelined_peer_launch",
    "h100.gpu.stall_exponent",
    "h100.clusters.aws-p5.fabric_gb_per_s",
    "h100.clusters.aws-p5.latency_us",
    "h100.clusters.aws-p5.launch_us",
];

/// Sets that constants may be fitted on, each with the error it was promised
/// at most; the objective weighs a set by it.
pub const FITTED: [(Set, f64); 7] = [
    (Set::KorthikantiT5, 0.035),
    (Set::NarayananT1, 0.05),
    (Set::NarayananT2, 0.08),
    (Set::VtrainMulti, 0.08),
    (Set::VtrainSingle, 0.08),
    (Set::Bloom, 0.09),
    (Set::Nanotron, 0.20),
];

/// Seconds the model gives a run.
///
/// # Errors
///
/// When the model cannot be asked about it.
pub fn predict(calibrations: &Calibrations, run: &Run) -> Result<f64, Unscored> {
    Ok(breakdown(calibrations, run)?.total_s())
}

/// Where the model puts the seconds of a run.
///
/// # Errors
///
/// When the model cannot be asked about it.
pub fn breakdown(calibrations: &Calibrations, run: &Run) -> Result<Breakdown, Unscored> {
    let machine = run.machine(calibrations)?;
    Ok(trinity_sim::time(&machine, &run.job())?)
}

/// Pairs of a set, and the runs that could not be asked about.
#[derive(Clone, Debug, Default)]
pub struct Scored {
    pub pairs: Vec<Pair>,
    pub runs: Vec<Run>,
    pub unscored: Vec<(Run, Unscored)>,
}

impl Scored {
    /// Errors of the pairs.
    pub fn errors(&self) -> Vec<f64> {
        self.pairs.iter().map(Pair::error).collect()
    }

    /// Error of the one-constant model: FLOPs over GPUs times a constant.
    pub fn one_constant(&self) -> Option<f64> {
        let work: Vec<f64> = self.runs.iter().map(flops_per_gpu).collect();
        let measured: Vec<f64> = self.pairs.iter().map(|pair| pair.measured).collect();
        one_constant(&work, &measured)
    }
}

/// Operations of one iteration on one GPU, recomputation included: the only
/// thing that the one-constant model knows.
fn flops_per_gpu(run: &Run) -> f64 {
    let (s, h, l) = (f64::from(run.sequence), f64::from(run.hidden), f64::from(run.layers));
    let tokens = f64::from(run.global_batch) * s;
    let passes = if run.recompute == trinity_sim::Recompute::Full { 4.0 } else { 3.0 };
    let layer = 24.0 * h * h + 4.0 * s * h;
    tokens * (passes * l * layer + 6.0 * h * f64::from(run.vocab)) / f64::from(run.gpus)
}

/// Every finished run, by set.
pub fn score(calibrations: &Calibrations, runs: &[Run]) -> BTreeMap<Set, Scored> {
    let mut sets: BTreeMap<Set, Scored> = BTreeMap::new();
    for run in runs {
        let Some(measured) = run.seconds else { continue };
        let scored = sets.entry(run.set).or_default();
        match predict(calibrations, run) {
            Ok(predicted) => {
                scored.pairs.push(Pair { what: run.describe(), predicted, measured });
                scored.runs.push(run.clone());
            }
            Err(why) => scored.unscored.push((run.clone(), why)),
        }
    }
    sets
}

/// What the fit makes small: the mean over sets of error over promise.
pub fn objective(calibrations: &Calibrations, runs: &[&Run]) -> f64 {
    let mut sums: BTreeMap<Set, (f64, f64)> = BTreeMap::new();
    for run in runs {
        let (Some(measured), Ok(predicted)) = (run.seconds, predict(calibrations, run)) else { continue };
        let sum = sums.entry(run.set).or_default();
        sum.0 += (predicted / measured - 1.0).abs();
        sum.1 += 1.0;
    }
    let mut total = 0.0;
    for (set, (sum, n)) in &sums {
        let promise = FITTED.iter().find(|(fitted, _)| fitted == set).map_or(1.0, |(_, promise)| *promise);
        let ratio = sum / n / promise;
        // Beyond its promise a set counts more, so that none is given up for
        // the others.
        total += ratio + 2.0 * (ratio - 0.9).max(0.0);
    }
    total
}

/// Constants refitted on those of `runs` that may be fitted on.
pub fn refit(start: &Calibrations, runs: &[&Run], paths: &[&str], effort: Effort) -> Calibrations {
    let usable: Vec<&Run> =
        runs.iter().copied().filter(|run| FITTED.iter().any(|(set, _)| *set == run.set)).collect();
    fit(start, paths, effort, |calibrations| objective(calibrations, &usable)).0
}

/// Runs whose constants are at `paths`.
pub fn of_gpu<'a>(runs: &'a [Run], gpu: &str) -> Vec<&'a Run> {
    runs.iter().filter(|run| run.gpu_type() == Some(gpu) && run.seconds.is_some()).collect()
}

/// Errors on rows that a fit did not see: each of `folds` parts is predicted
/// with constants fitted on the others. The fit starts from the committed
/// constants, which did see them, and moves a short way: read the result as a
/// lower bound on the error of new rows.
pub fn k_fold(start: &Calibrations, runs: &[&Run], paths: &[&str], folds: usize) -> BTreeMap<Set, Stats> {
    let mut errors: BTreeMap<Set, Vec<f64>> = BTreeMap::new();
    for fold in 0..folds {
        let in_fold = |i: usize| i % folds == fold;
        let rest: Vec<&Run> =
            runs.iter().enumerate().filter(|(i, _)| !in_fold(*i)).map(|(_, r)| *r).collect();
        let fitted = refit(start, &rest, paths, Effort::FOLD);
        for (_, run) in runs.iter().enumerate().filter(|(i, _)| in_fold(*i)) {
            push_error(&mut errors, &fitted, run);
        }
    }
    stats(errors)
}

/// Errors of each set with constants fitted on all other sets. A cluster that
/// only the set knows keeps its three constants.
pub fn leave_one_source_out(start: &Calibrations, runs: &[&Run], paths: &[&str]) -> BTreeMap<Set, Stats> {
    let mut errors: BTreeMap<Set, Vec<f64>> = BTreeMap::new();
    for (set, _) in FITTED {
        let rest: Vec<&Run> = runs.iter().copied().filter(|run| run.set != set).collect();
        if rest.len() == runs.len() || rest.is_empty() {
            continue;
        }
        let fitted = refit(start, &rest, paths, Effort::FOLD);
        for run in runs.iter().filter(|run| run.set == set) {
            push_error(&mut errors, &fitted, run);
        }
    }
    stats(errors)
}

fn push_error(errors: &mut BTreeMap<Set, Vec<f64>>, fitted: &Calibrations, run: &Run) {
    if let (Some(measured), Ok(predicted)) = (run.seconds, predict(fitted, run)) {
        errors.entry(run.set).or_default().push(predicted / measured - 1.0);
    }
}

fn stats(errors: BTreeMap<Set, Vec<f64>>) -> BTreeMap<Set, Stats> {
    errors.into_iter().filter_map(|(set, errors)| Some((set, Stats::of(&errors)?))).collect()
}
