//! Where each codec stands at the budget, and at every other budget.

use super::contest::{Contest, Found as Sweep};
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

/// Each scenario at the budget, the best first; those without a point last.
pub(super) fn standings(contest: &Contest<'_>, sweep: &Sweep) -> Vec<Standing> {
    let names = contest.names();
    let answer = contest.study.answer(&sweep.tally);
    let baseline = names.iter().position(|name| *name == contest.ground.baseline);
    let of_baseline = baseline.and_then(|at| sweep.best.get(at)?.as_ref()).map(|(value, _)| *value);
    let mut standings: Vec<Standing> = names
        .iter()
        .zip(&sweep.best)
        .map(|(name, best)| {
            let value = best.as_ref().map(|(value, _)| *value);
            let found = best.as_ref().and_then(|(_, entry)| contest.study.found(entry, &answer));
            let gpus =
                found.as_ref().map_or(0, |found| contest.study.plan.space.point(found.index).cluster.gpus);
            let estimate = found.as_ref().map(|found| found.estimate);
            Standing {
                scenario: (*name).to_owned(),
                value,
                over_baseline: value.zip(of_baseline).map(|(value, other)| contest.gain(value, other)),
                over_next: None,
                energy_j_per_token: estimate.map(|estimate| estimate.energy_j_per_token),
                split: estimate.map(|estimate| split(&estimate, gpus)),
                time: estimate.map(|estimate| parts(&estimate.breakdown)).unwrap_or_default(),
                best: found,
            }
        })
        .collect();
    standings.sort_by(|a, b| match (a.value, b.value) {
        (Some(a), Some(b)) => contest.gain(b, a).total_cmp(&1.0),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    for at in 1..standings.len() {
        let pair = standings[at - 1].value.zip(standings[at].value);
        standings[at - 1].over_next = pair.map(|(value, next)| contest.gain(value, next));
    }
    standings
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

/// The parts of an iteration that nothing hides, the longest first.
fn parts(breakdown: &Breakdown) -> Vec<Part> {
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
        ("storage", breakdown.storage.exposed_s),
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
        let Some(leader) = contest.leader(&values).map(|at| names[at]) else { continue };
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
