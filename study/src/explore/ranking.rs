//! Where each codec stands at the budget, and beside it.

use super::contest::{Change, Contest, Found as Sweep};
use super::knob::Stands;
use super::optimum::{Merit, Rules};
use super::setting::layout;
use crate::sweep::Found;
use crate::{Error, Progress};
use serde::Serialize;
use trinity_sim::{Breakdown, Estimate};

/// One scenario at the budget.
#[derive(Debug, Clone, Serialize)]
pub struct Ranking {
    pub scenario: String,
    /// The best point within the budget; none where none fits.
    pub best: Option<Found>,
    /// What ranks, at that point.
    pub value: Option<f64>,
    /// How many times as good as without a codec.
    pub over_baseline: Option<f64>,
    /// How many times as good as the next in line.
    pub over_next: Option<f64>,
    pub energy_j_per_token: Option<f64>,
    pub split: Option<Split>,
    /// Where the time goes, the longest part first, as shares of the iteration.
    pub time: Vec<Part>,
    /// How the job is cut and provided for, in words.
    pub layout: Option<String>,
    /// What the search chose on each axis.
    pub chosen: Vec<Chosen>,
}

/// A value that the search chose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    pub path: String,
    pub value: String,
    /// The end of the study's axis that it lies beyond.
    pub beyond: Option<f64>,
    /// It lies at an end that could not be extended.
    pub at_end: bool,
}

/// How the silicon of a point is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Split {
    pub gpus: u32,
    pub gpu: f64,
    pub nic: f64,
    pub codec: f64,
}

/// A part of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub share: f64,
}

/// A range of budgets with one best scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WinningInterval {
    pub scenario: String,
    pub from_mm2: f64,
    /// Where another takes over; nothing where none does.
    pub to_mm2: Option<f64>,
}

/// What is best for each watt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerWatt {
    pub scenario: String,
    pub over_baseline: f64,
}

/// What the whole number of GPUs does to the gain: clusters grow by whole
/// pipelines, and who has a step just below the budget is no better for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Steps {
    /// How far around the budget the gain was taken, as a share of it.
    pub around: f64,
    /// The best over the baseline there: the least, the mean and the most.
    pub least: f64,
    pub mean: f64,
    pub most: f64,
    /// Whether pipelines share out one batch, and so come in numbers that divide it.
    pub dealt: bool,
    /// GPUs of a pipeline of the best and of the baseline, by which they grow.
    pub gpus: u32,
    pub baseline_gpus: u32,
}

/// Each scenario at the budget, the best first; those without a point last.
pub(super) fn rankings(contest: &Contest<'_>, sweep: &Sweep) -> Vec<Ranking> {
    let answer = contest.study.answer(&sweep.accumulated);
    let of_baseline = contest.baseline_at().and_then(|at| sweep.best[at].as_ref()).map(|best| best.merit);
    let mut rankings: Vec<(Option<f64>, Ranking)> = (0..sweep.best.len())
        .map(|at| {
            let best = sweep.best[at].as_ref();
            let merit = best.map(|best| best.merit);
            let found = best.and_then(|best| contest.study.found(&best.entry, &answer));
            let point = found.as_ref().map(|found| contest.study.plan.space.point(found.index));
            let gpus = point.map_or(0, |point| point.cluster.gpus);
            let coded = Some(at) != contest.baseline_at();
            let sent_on = point.is_some_and(|point| point.job.kv_transfer > 0.0);
            let estimate = found.as_ref().map(|found| found.estimate);
            let ranking = Ranking {
                scenario: contest.names()[at].to_owned(),
                value: best.map(|best| best.value),
                over_baseline: merit.zip(of_baseline).map(|(merit, other)| merit / other),
                over_next: None,
                energy_j_per_token: estimate.map(|estimate| estimate.energy_j_per_token),
                split: estimate.map(|estimate| split(&estimate, gpus)),
                time: estimate.map(|estimate| parts(&estimate.breakdown, sent_on)).unwrap_or_default(),
                layout: point.map(|point| layout(&point, coded)),
                chosen: best.map(|best| chosen(contest, at, best.entry.index)).unwrap_or_default(),
                best: found,
            };
            (merit, ranking)
        })
        .collect();
    rankings.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    for at in 1..rankings.len() {
        let pair = rankings[at - 1].0.zip(rankings[at].0);
        rankings[at - 1].1.over_next = pair.map(|(merit, next)| merit / next);
    }
    rankings.into_iter().map(|(_, ranking)| ranking).collect()
}

/// What the search chose on each axis of a scenario, and where that lies on it.
fn chosen(contest: &Contest<'_>, at: usize, index: u64) -> Vec<Chosen> {
    let player = &contest.fields[at].player;
    let values = contest.values_at(at, index);
    let scenario = &contest.study.plan.space.scenarios()[at];
    let listed = |path: &str| scenario.axes.iter().any(|axis| axis.path == path);
    let knobs = player.knobs.iter().zip(values).filter(|(knob, _)| listed(&knob.path));
    let own = knobs.map(|(knob, value)| {
        let stands = knob.stands(value);
        Chosen {
            path: knob.path.clone(),
            value: knob.label(value),
            beyond: match stands {
                Some(Stands::Beyond { end }) => Some(end),
                _ => None,
            },
            at_end: stands == Some(Stands::AtEnd),
        }
    });
    own.collect()
}

/// What is best for each watt, where no budget says what counts.
pub(super) fn per_watt(contest: &Contest<'_>) -> Option<PerWatt> {
    if contest.baseline_study.budget_mm2.is_some() {
        return None;
    }
    let rules = Rules { merit: Merit::PerWatt, ..contest.rules.clone() };
    let merit = |at: usize| {
        let base = contest.fields[at].base(&[])?;
        Some(contest.fields[at].player.best(&base, &rules, &contest.near(at)?)?.merit)
    };
    let merits: Vec<Option<f64>> = (0..contest.fields.len()).map(merit).collect();
    let plain = merits[contest.baseline_at()?]?;
    let leader = contest.leader(&merits)?;
    Some(PerWatt { scenario: contest.names()[leader].to_owned(), over_baseline: merits[leader]? / plain })
}

/// How far around the budget the gain is taken, and at how many budgets on either side.
const AROUND: f64 = 0.1;
const BESIDE: i32 = 5;

/// The gain of a scenario at budgets around the one that was asked for.
pub(super) fn steps(
    contest: &Contest<'_>,
    best: &str,
    progress: &dyn Progress,
) -> Result<Option<Steps>, Error> {
    let own = contest.names().iter().position(|name| *name == best);
    let plain = contest.baseline_at().filter(|plain| Some(*plain) != own);
    let (Some(own), Some(plain), Some(_)) = (own, plain, contest.baseline_study.budget_mm2) else {
        return Ok(None);
    };
    let mut gains = Vec::new();
    for step in -BESIDE..=BESIDE {
        progress.check()?;
        let budget = Some(1.0 + AROUND * f64::from(step) / f64::from(BESIDE));
        let Some(merits) = contest.moved(&Change { budget, ..Change::default() }) else { continue };
        gains.extend(merits[own].zip(merits[plain]).map(|(own, plain)| own / plain));
    }
    let grows = |at: usize| {
        let job = contest.optima[at].as_ref()?.point.job.parallelism;
        Some((job.gpus() / u64::from(job.data.max(1))) as u32)
    };
    let (Some(gpus), Some(baseline_gpus)) = (grows(own), grows(plain)) else { return Ok(None) };
    let mean = (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len().max(1) as f64).exp();
    Ok((!gains.is_empty()).then(|| Steps {
        around: AROUND,
        least: gains.iter().copied().fold(f64::INFINITY, f64::min),
        mean,
        most: gains.iter().copied().fold(0.0, f64::max),
        dealt: contest.optima[plain].as_ref().is_some_and(|best| best.point.replica_batch == 0),
        gpus,
        baseline_gpus,
    }))
}

fn split(estimate: &Estimate, gpus: u32) -> Split {
    let share = |part: f64| part / estimate.area_mm2;
    Split {
        gpus,
        gpu: share(estimate.area.gpu_mm2),
        nic: share(estimate.area.nic_mm2),
        codec: share(estimate.area.codec_mm2),
    }
}

/// The parts of an iteration that nothing hides, the longest first; the cache may be `sent_on` to
/// other workers.
fn parts(breakdown: &Breakdown, sent_on: bool) -> Vec<Part> {
    let total = breakdown.total_s();
    let compute = breakdown.forward_s + breakdown.recompute_s + breakdown.backward_s + breakdown.optimizer_s;
    let mut parts = [
        ("compute", compute),
        ("pipeline bubble", breakdown.bubble_s),
        ("tensor parallelism", breakdown.tensor.exposed_s),
        ("pipeline parallelism", breakdown.pipeline.exposed_s),
        ("data parallelism", breakdown.data.exposed_s),
        ("expert parallelism", breakdown.expert.exposed_s),
        ("context parallelism", breakdown.context.exposed_s),
        (if sent_on { "KV transfer" } else { "storage" }, breakdown.storage.exposed_s),
    ]
    .map(|(name, time_s)| Part { name, share: time_s / total })
    .to_vec();
    parts.retain(|part| part.share > 0.0);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    parts
}
