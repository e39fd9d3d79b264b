//! Sweeps: many points, few kept.
//!
//! A plan is a [`Space`] of points and what is wanted of them. Points are
//! streamed through [`evaluate`] into a [`Accumulator`]; accumulators merge in any order,
//! so threads, shards and resumed runs all end in the same bytes.

mod archive;
mod digest;
mod headline;
mod metric;
mod point;
mod space;

pub use archive::{Entry, Front, Readings, Top, ValueSummary};
pub use headline::{Headline, Question, Reading, headline, plain_unit};
pub use metric::{Constraint, Direction, MAX_OBJECTIVES, Metric, Objective};
pub use point::{Change, Point};
pub use space::{Axis, Scenario, Space, Visited};

use digest::digest;

use crate::estimate::Local;
use crate::{Estimate, Infeasible, Reason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Points that one thread takes at a time.
pub const BLOCK: u64 = 8_192;
/// Blocks of each thread in a round: enough that the last to finish keeps the
/// others waiting for a few percent of it at most, few enough to hold.
#[cfg(feature = "threads")]
const ROUND: usize = 16;

/// What to evaluate and what to keep.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    pub space: Space,
    pub objectives: Vec<Objective>,
    pub constraints: Vec<Constraint>,
    /// Best points to keep, by `rank_by`.
    pub top: usize,
    pub rank_by: Objective,
}

impl SweepPlan {
    /// A number that changes when the plan does, so that shards of different
    /// plans are not merged by mistake.
    pub fn fingerprint(&self) -> u64 {
        let mut text =
            format!("{:?} {:?} {} {:?}", self.objectives, self.constraints, self.top, self.rank_by);
        for scenario in self.space.scenarios() {
            text += &format!(" {} {:?}", scenario.name, scenario.base);
            for axis in &scenario.axes {
                text += &format!(" {} {:?} {:x}", axis.path, axis.labels, axis.digest);
            }
        }
        digest(format_args!("{text}"))
    }

    /// Whether a point keeps to every constraint.
    pub fn allows(&self, estimate: &Estimate) -> bool {
        self.constraints.iter().all(|constraint| constraint.holds(estimate))
    }
}

/// What has been seen of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accumulator {
    pub points: u64,
    /// Points that can run and keep to the constraints.
    pub feasible: u64,
    /// Points turned away, by reason.
    pub rejected: BTreeMap<Reason, u64>,
    /// One front a scenario.
    pub fronts: Vec<Front>,
    pub top: Top,
    /// Summaries by scenario, axis and value.
    pub values: Vec<Vec<Vec<ValueSummary>>>,
}

impl Accumulator {
    /// Nothing seen yet.
    pub fn new(plan: &SweepPlan) -> Self {
        let scenarios = plan.space.scenarios();
        let summaries = |axis: &Axis| vec![ValueSummary::new(plan.objectives.len()); axis.labels.len()];
        Self {
            points: 0,
            feasible: 0,
            rejected: BTreeMap::new(),
            fronts: vec![Front::default(); scenarios.len()],
            top: Top::new(plan.top),
            values: scenarios.iter().map(|own| own.axes.iter().map(summaries).collect()).collect(),
        }
    }

    /// Takes in what another part of the sweep has seen.
    pub fn merge(&mut self, plan: &SweepPlan, other: &Self) {
        self.points += other.points;
        self.feasible += other.feasible;
        for (&reason, count) in &other.rejected {
            *self.rejected.entry(reason).or_default() += count;
        }
        for (mine, theirs) in self.fronts.iter_mut().zip(&other.fronts) {
            mine.merge(&plan.objectives, theirs);
        }
        self.top.merge(plan.rank_by.direction, &other.top);
        let values = self.values.iter_mut().flatten().flatten();
        for (mine, theirs) in values.zip(other.values.iter().flatten().flatten()) {
            mine.merge(&plan.objectives, theirs);
        }
    }

    /// Brings everything into the order it is shown in.
    pub fn sort(&mut self) {
        self.fronts.iter_mut().for_each(Front::sort);
    }
}

/// Evaluates a range of points. `row` sees every point with its outcome.
pub fn evaluate(
    plan: &SweepPlan,
    range: Range<u64>,
    mut row: impl FnMut(u64, usize, &[usize], &Result<Estimate, Infeasible>),
) -> Accumulator {
    let mut accumulated = Accumulator::new(plan);
    let mut reasons: Vec<(Reason, u64)> = Vec::new();
    let wanted = plan.objectives.len().min(MAX_OBJECTIVES);
    let mut readings = [0.0; MAX_OBJECTIVES];
    let (mut local, mut layouts) = (None, None);
    plan.space.visit(range, |&Visited { index, scenario, digits, point, only_wires_moved }| {
        let (cluster, job) = (&point.cluster, &point.job);
        if !only_wires_moved {
            layouts = point.search.on.then(|| point.layouts());
            local = layouts.is_none().then(|| Local::of(cluster, job));
        }
        let outcome = match (&layouts, local) {
            (Some(layouts), _) => layouts.best(cluster, job),
            (None, Some(Ok(local))) => local.estimate(cluster, job),
            (None, Some(Err(infeasible))) => Err(infeasible),
            (None, None) => point.estimate(),
        };
        row(index, scenario, digits, &outcome);
        accumulated.points += 1;
        let summaries = &mut accumulated.values[scenario];
        for (summary, &digit) in summaries.iter_mut().zip(digits) {
            summary[digit].points += 1;
        }
        let reason = match &outcome {
            Err(infeasible) => Some(infeasible.reason()),
            Ok(estimate) if !plan.allows(estimate) => Some(Reason::Constraint),
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
            return;
        }
        let Ok(estimate) = &outcome else { return };
        accumulated.feasible += 1;
        for (reading, objective) in readings.iter_mut().zip(&plan.objectives) {
            *reading = objective.metric.of(estimate);
        }
        let readings = &readings[..wanted];
        accumulated.fronts[scenario].offer(&plan.objectives, index, readings);
        accumulated.top.offer(plan.rank_by.direction, index, &[plan.rank_by.metric.of(estimate)]);
        for (summary, &digit) in summaries.iter_mut().zip(digits) {
            summary[digit].feasible += 1;
            summary[digit].offer(&plan.objectives, index, readings);
        }
    });
    accumulated.rejected.extend(reasons);
    accumulated
}

/// A block of points that has been evaluated: which, what was seen, and what
/// `render` made of them.
#[cfg(feature = "threads")]
type Done = (Range<u64>, Accumulator, Vec<u8>);

/// Evaluates the blocks of a range on all threads. `render` turns the points
/// of a block into bytes; `take` gets each block's accumulator and bytes in order
/// and says whether to go on.
#[cfg(feature = "threads")]
pub fn run<E: Send>(
    plan: &SweepPlan,
    range: Range<u64>,
    render: impl Fn(Range<u64>) -> (Accumulator, Vec<u8>) + Sync,
    mut take: impl FnMut(Range<u64>, Accumulator, Vec<u8>) -> Result<(), E> + Send,
) -> Result<(), E> {
    use rayon::prelude::*;
    let end = range.end.min(plan.space.len());
    let round = rayon::current_num_threads() * ROUND;
    let evaluate_from = |start: u64| -> Vec<Done> {
        let starts: Vec<u64> = (start..end).step_by(BLOCK as usize).take(round).collect();
        let evaluated = starts.into_par_iter().with_max_len(1).map(|at| {
            let block = at..(at + BLOCK).min(end);
            let (accumulated, bytes) = render(block.clone());
            (block, accumulated, bytes)
        });
        evaluated.collect()
    };
    let mut done = evaluate_from(range.start);
    while let Some(next) = done.last().map(|(block, ..)| block.end) {
        // Merging and writing go on beside the next round: one thread doing
        // them while the others wait would be what the threads gain less by.
        let taking =
            || done.into_iter().try_for_each(|(block, accumulated, bytes)| take(block, accumulated, bytes));
        let (taken, evaluated) = rayon::join(taking, || evaluate_from(next));
        taken?;
        done = evaluated;
    }
    Ok(())
}
