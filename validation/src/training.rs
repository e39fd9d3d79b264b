//! The training-time model against measured iterations: errors by set, the
//! fit of its constants, and what folds say about the fit.

use crate::fit::{Effort, fit};
use crate::runs::{Run, Set, Unscored};
use crate::score::{Pair, Stats, one_constant};
use std::collections::{BTreeMap, BTreeSet};
use trinity_sim::Breakdown;
use trinity_study::config::software::Calibrations;

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

/// Constants of nanotron on H100 that runs decide, with its site's.
pub const NANOTRON: &[&str] = &[
    "nanotron.gpu.gemm_efficiency",
    "nanotron.gpu.gemm_overhead_us",
    "nanotron.gpu.attention_efficiency",
    "nanotron.gpu.hidden_passes",
    "nanotron.gpu.mlp_passes",
    "nanotron.gpu.hop_us",
    "nanotron.gpu.peer_launch",
    "nanotron.gpu.pipelined_launch",
    "nanotron.gpu.pipelined_peer_launch",
    "nanotron.gpu.stall_exponent",
    "nanotron.clusters.aws-p5.fabric_gb_per_s",
    "nanotron.clusters.aws-p5.latency_us",
    "nanotron.clusters.aws-p5.launch_us",
];

/// Constants of Megatron-Core of 2025 and 2026, the same for every GPU.
pub const MEGATRON: &[&str] = &[
    "megatron.gpu.fp8_efficiency",
    "megatron.gpu.fp4_efficiency",
    "megatron.gpu.power_exponent",
    "megatron.gpu.tile",
    "megatron.gpu.fp8_cast_bytes",
    "megatron.gpu.fp4_cast_bytes",
    "megatron.gpu.attention_efficiency",
    "megatron.gpu.attention_backward",
    "megatron.gpu.hidden_passes",
    "megatron.gpu.mlp_passes",
    "megatron.gpu.loss_bytes",
    "megatron.gpu.loss_share",
    "megatron.gpu.expert_efficiency",
    "megatron.gpu.expert_fp16_efficiency",
    "megatron.gpu.routed_fp16_passes",
    "megatron.gpu.scan_passes",
    "megatron.gpu.x86_launch",
    "megatron.gpu.step_ms",
    "megatron.gpu.tensor_overlap",
    "megatron.gpu.context_overlap",
    "megatron.gpu.expert_overlap",
    "megatron.gpu.pipeline_overlap",
    "megatron.gpu.data_overlap",
    "megatron.clusters.default.launch_us",
    "megatron.clusters.default.expert_launch_us",
    "megatron.clusters.default.routed_passes",
    "megatron.clusters.before-26-06.expert_launch_us",
    "megatron.clusters.before-26-06.routed_passes",
];

/// Of Megatron-Core on Hopper in BF16, which dense runs in that format decide.
pub const WIDE: &[&str] = &["megatron.gpu.fp16_efficiency"];

/// Constants that are fitted together.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The calibration that they are of.
    pub calibration: &'static str,
    pub constants: &'static [&'static str],
    /// Sets that they are fitted on, each with the error it was promised at
    /// most; the objective weighs a set by it.
    pub sets: &'static [(Set, f64)],
    /// Whether every row counts the same, not every set: where sets are small.
    pub by_rows: bool,
}

/// Every family.
pub const FITTED: [Family; 4] = [
    Family {
        calibration: "a100",
        constants: A100,
        sets: &[
            (Set::KorthikantiT5, 0.035),
            (Set::NarayananT1, 0.05),
            (Set::NarayananT2, 0.08),
            (Set::VtrainMulti, 0.08),
            (Set::VtrainSingle, 0.08),
            (Set::Bloom, 0.09),
        ],
        by_rows: false,
    },
    Family { calibration: "nanotron", constants: NANOTRON, sets: &[(Set::Nanotron, 0.20)], by_rows: false },
    Family {
        calibration: "megatron",
        constants: MEGATRON,
        sets: &[(Set::MegatronBridge, 0.12), (Set::MlperfTraining, 0.12)],
        by_rows: false,
    },
    Family {
        calibration: "megatron",
        constants: WIDE,
        sets: &[(Set::MegatronCoreH100, 0.15), (Set::Llama3, 0.15)],
        by_rows: true,
    },
];

/// Whether any constant was fitted on a set.
pub fn is_fitted(set: Set) -> bool {
    FITTED.iter().any(|family| family.promise(set).is_some())
}

impl Family {
    /// The error that a set was promised, where the family is fitted on it.
    fn promise(&self, set: Set) -> Option<f64> {
        self.sets.iter().find(|(own, _)| *own == set).map(|(_, promise)| *promise)
    }

    /// Finished runs that the constants are fitted on.
    pub fn runs<'a>(&self, runs: &'a [Run]) -> Vec<&'a Run> {
        let own = |run: &&Run| {
            run.seconds.is_some()
                && run.calibration() == Some(self.calibration)
                && self.promise(run.set).is_some()
        };
        runs.iter().filter(own).collect()
    }
}

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
    let (machine, job) = run.resolve(calibrations)?;
    Ok(trinity_sim::time(&machine, &job)?)
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

/// A run's prediction beside its measurement, in what its set is stated in:
/// seconds, or tokens a second and GPU.
fn pair(run: &Run, predicted: f64, measured: f64) -> Pair {
    let tokens = f64::from(run.global_batch) * f64::from(run.sequence) / f64::from(run.gpus);
    let (predicted, measured) = match run.set {
        Set::MegatronBridge | Set::MlperfTraining => (tokens / predicted, tokens / measured),
        _ => (predicted, measured),
    };
    Pair { what: run.describe(), predicted, measured }
}

/// What rows may be left out by.
pub type Trait = fn(&Run) -> &str;

/// Traits of the runs of 2025 and 2026, and what a set left out by each is called.
pub const LEFT_OUT: [(&str, Trait); 2] =
    [("model left out", family), ("GPU left out", |run| run.gpu.as_str())];

/// Models of one shape are one model: MTP or not, MLPerf's Llama or NVIDIA's.
pub fn family(run: &Run) -> &str {
    match run.model.as_str() {
        "DeepSeekV3 w/o MTP" => "DeepSeekV3",
        "LLAMA3.1_8B" => "LLAMA3_8B",
        "LLAMA2_70B" => "LLAMA3_70B",
        "Nemotron_3_5_Lightning" => "Nemotron_3_Nano",
        model => model,
    }
}

/// Pairs of each set with constants fitted on the rows that differ from it in a
/// trait. The fit starts from the committed constants and may go a long way.
pub fn leave_one_out(
    family: &Family,
    start: &Calibrations,
    runs: &[&Run],
    of: Trait,
) -> BTreeMap<Set, Vec<Pair>> {
    let values: BTreeSet<&str> = runs.iter().map(|run| of(run)).collect();
    let parts = values.into_iter().map(|value| runs.iter().copied().partition(|run| of(run) == value));
    unseen(family, start, Effort::LEFT_OUT, parts.filter(|(_, rest): &Part<'_>| !rest.is_empty()))
}

/// Runs that are held out, and the rest.
type Part<'a> = (Vec<&'a Run>, Vec<&'a Run>);

/// Pairs of the runs that each part holds out, by constants fitted on the rest.
fn unseen<'a>(
    family: &Family,
    start: &Calibrations,
    effort: Effort,
    parts: impl Iterator<Item = Part<'a>>,
) -> BTreeMap<Set, Vec<Pair>> {
    let mut pairs: BTreeMap<Set, Vec<Pair>> = BTreeMap::new();
    for (held_out, rest) in parts {
        let fitted = refit(family, start, &rest, effort);
        for run in held_out {
            if let (Some(measured), Ok(predicted)) = (run.seconds, predict(&fitted, run)) {
                pairs.entry(run.set).or_default().push(pair(run, predicted, measured));
            }
        }
    }
    pairs
}

/// Every finished run, by set.
pub fn score(calibrations: &Calibrations, runs: &[Run]) -> BTreeMap<Set, Scored> {
    let mut sets: BTreeMap<Set, Scored> = BTreeMap::new();
    for run in runs {
        let Some(measured) = run.seconds else { continue };
        let scored = sets.entry(run.set).or_default();
        match predict(calibrations, run) {
            Ok(predicted) => {
                scored.pairs.push(pair(run, predicted, measured));
                scored.runs.push(run.clone());
            }
            Err(why) => scored.unscored.push((run.clone(), why)),
        }
    }
    sets
}

/// What the fit makes small: the mean over sets of error over promise, or over
/// rows of their errors.
pub fn objective(family: &Family, calibrations: &Calibrations, runs: &[&Run]) -> f64 {
    let mut sums: BTreeMap<Set, (f64, f64)> = BTreeMap::new();
    for run in runs {
        let (Some(measured), Ok(predicted)) = (run.seconds, predict(calibrations, run)) else { continue };
        let sum = sums.entry(run.set).or_default();
        sum.0 += pair(run, predicted, measured).error().abs();
        sum.1 += 1.0;
    }
    if family.by_rows {
        let (sum, rows) = sums.values().fold((0.0, 0.0), |all, own| (all.0 + own.0, all.1 + own.1));
        return sum / f64::max(rows, 1.0);
    }
    let mut total = 0.0;
    for (set, (sum, n)) in &sums {
        let ratio = sum / n / family.promise(*set).unwrap_or(1.0);
        // Beyond its promise a set counts more, so that none is given up for
        // the others.
        total += ratio + 2.0 * (ratio - 0.9).max(0.0);
    }
    total
}

/// The family's constants refitted on `runs`.
pub fn refit(family: &Family, start: &Calibrations, runs: &[&Run], effort: Effort) -> Calibrations {
    fit(start, family.constants, effort, |calibrations| objective(family, calibrations, runs)).0
}

/// Errors on rows that a fit did not see: each of `folds` parts is predicted
/// with constants fitted on the others. The fit starts from the committed
/// constants, which did see them, and moves a short way: read the result as a
/// lower bound on the error of new rows.
pub fn k_fold(family: &Family, start: &Calibrations, runs: &[&Run], folds: usize) -> BTreeMap<Set, Stats> {
    let part = |fold: usize| -> Part<'_> {
        let of = |inside: bool| {
            let own = runs.iter().enumerate().filter(move |(i, _)| (i % folds == fold) == inside);
            own.map(|(_, run)| *run).collect()
        };
        (of(true), of(false))
    };
    stats(unseen(family, start, Effort::FOLD, (0..folds).map(part)))
}

/// Errors of each set with constants fitted on all other sets. A cluster that
/// only the set knows keeps its three constants.
pub fn leave_one_source_out(family: &Family, start: &Calibrations, runs: &[&Run]) -> BTreeMap<Set, Stats> {
    let sets = family.sets.iter();
    let parts = sets.map(|(set, _)| runs.iter().copied().partition(|run| run.set == *set));
    let known = |(held_out, rest): &Part<'_>| !held_out.is_empty() && !rest.is_empty();
    stats(unseen(family, start, Effort::FOLD, parts.filter(known)))
}

fn stats(pairs: BTreeMap<Set, Vec<Pair>>) -> BTreeMap<Set, Stats> {
    pairs.into_iter().filter_map(|(set, pairs)| Some((set, Stats::of_pairs(&pairs)?))).collect()
}
