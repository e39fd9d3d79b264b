//! Where each codec stands at the budget, and at every other budget.

use super::contest::{Contest, Found as Sweep};
use super::knob::Stands;
use super::optimum::{Merit, Rules};
use super::setting::layout;
use crate::sweep::Found;
use serde::Serialize;
use trinity_sim::{Breakdown, Estimate};

/// One scenario at the budget.
#[derive(Debug, Clone, Serialize)]
pub struct Standing {
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
pub struct Reign {
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
    /// The best over the baseline, both read between their steps.
    pub between: f64,
    /// GPUs that the best and the baseline grow by.
    pub gpus: u32,
    pub baseline_gpus: u32,
}

/// Each scenario at the budget, the best first; those without a point last.
pub(super) fn standings(contest: &Contest<'_>, sweep: &Sweep) -> Vec<Standing> {
    let answer = contest.study.answer(&sweep.tally);
    let of_baseline = contest.baseline_at().and_then(|at| sweep.best[at].as_ref()).map(|best| best.merit);
    let mut standings: Vec<(Option<f64>, Standing)> = (0..sweep.best.len())
        .map(|at| {
            let best = sweep.best[at].as_ref();
            let merit = best.map(|best| best.merit);
            let found = best.and_then(|best| contest.study.found(&best.entry, &answer));
            let point = found.as_ref().map(|found| contest.study.plan.space.point(found.index));
            let gpus = point.map_or(0, |point| point.cluster.gpus);
            let coded = Some(at) != contest.baseline_at();
            let sent_on = point.is_some_and(|point| point.job.kv_transfer > 0.0);
            let estimate = found.as_ref().map(|found| found.estimate);
            let standing = Standing {
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
            (merit, standing)
        })
        .collect();
    standings.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    for at in 1..standings.len() {
        let pair = standings[at - 1].0.zip(standings[at].0);
        standings[at - 1].1.over_next = pair.map(|(merit, next)| merit / next);
    }
    standings.into_iter().map(|(_, standing)| standing).collect()
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
    if contest.ground.budget_mm2.is_some() {
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

/// The gain of a scenario between the steps of its cluster and the baseline's,
/// where there is a budget and both have a front on either side of it.
pub(super) fn steps(contest: &Contest<'_>, sweep: &Sweep, best: &str) -> Option<Steps> {
    let budget = contest.ground.budget_mm2?;
    let own = contest.names().iter().position(|name| *name == best)?;
    let plain = contest.baseline_at().filter(|plain| *plain != own)?;
    let read = |at: usize| between(&contest.hull(&sweep.tally, at), budget);
    let grows = |at: usize| {
        let job = contest.optima[at].as_ref()?.point.job.parallelism;
        Some((job.gpus() / u64::from(job.data.max(1))) as u32)
    };
    Some(Steps {
        between: contest.gain(read(own)?, read(plain)?),
        gpus: grows(own)?,
        baseline_gpus: grows(plain)?,
    })
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

/// Which scenario is best at which budget. Fronts are read along their hulls:
/// a cluster grows by whole GPUs, and who happens to have a step just before
/// another is no better for it.
pub(super) fn reigns(contest: &Contest<'_>, sweep: &Sweep) -> Vec<Reign> {
    let names = contest.names();
    let fronts: Vec<Vec<(f64, f64)>> = (0..names.len()).map(|at| contest.hull(&sweep.tally, at)).collect();
    let mut reigns: Vec<Reign> = Vec::new();
    for area in contest.areas(&sweep.tally) {
        let values: Vec<Option<f64>> = fronts.iter().map(|front| between(front, area)).collect();
        let merit = |value: &Option<f64>| value.map(|value| contest.gain(value, 1.0));
        let merits: Vec<Option<f64>> = values.iter().map(merit).collect();
        let Some(leader) = contest.leader(&merits).map(|at| names[at]) else { continue };
        match reigns.last_mut() {
            Some(reign) if reign.scenario == leader => {}
            last => {
                if let Some(reign) = last {
                    reign.to_mm2 = Some(area);
                }
                reigns.push(Reign { scenario: leader.to_owned(), from_mm2: area, to_mm2: None });
            }
        }
    }
    reigns
}

/// A front's value at an area: on the line between the points beside it;
/// nothing before the first, the last beyond it.
fn between(front: &[(f64, f64)], area: f64) -> Option<f64> {
    let after = front.partition_point(|(x, _)| *x <= area);
    let &(x, y) = front.get(after.checked_sub(1)?)?;
    let Some(&(next_x, next_y)) = front.get(after) else { return Some(y) };
    Some(y + (next_y - y) * (area - x) / (next_x - x))
}

#[cfg(test)]
mod tests {
    use super::between;

    #[test]
    fn a_front_is_read_between_its_points() {
        let front = [(10.0, 1.0), (20.0, 3.0)];
        assert_eq!(between(&front, 5.0), None);
        assert_eq!(between(&front, 10.0), Some(1.0));
        assert_eq!(between(&front, 15.0), Some(2.0));
        assert_eq!(between(&front, 99.0), Some(3.0));
    }
}
