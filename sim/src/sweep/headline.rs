//! The two questions of LLM.265 §7.2, read off the fronts: how much faster at
//! one area, how much smaller at one speed.

use super::{Accumulator, Entry, Metric, SweepPlan};
use serde::Serialize;

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Positions of the two scenarios.
    pub baseline: usize,
    pub candidate: usize,
    pub budget_mm2: f64,
    /// Normalized performance at which areas are compared.
    pub performance: f64,
    /// Area within which the baseline's best is performance 1.
    pub unit_area_mm2: f64,
}

/// One point of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub index: u64,
    pub area_mm2: f64,
    pub tokens_per_s: f64,
}

/// What was read; a part is missing where the sweep did not reach it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Headline {
    pub unit_tokens_per_s: f64,
    pub baseline_at_budget: Option<Reading>,
    pub candidate_at_budget: Option<Reading>,
    pub baseline_at_performance: Option<Reading>,
    pub candidate_at_performance: Option<Reading>,
}

impl Headline {
    /// Candidate over baseline, tokens a second within the budget.
    pub fn speedup(&self) -> Option<f64> {
        Some(self.candidate_at_budget?.tokens_per_s / self.baseline_at_budget?.tokens_per_s)
    }

    /// Baseline over candidate, area at the performance asked for.
    pub fn saving(&self) -> Option<f64> {
        Some(self.baseline_at_performance?.area_mm2 / self.candidate_at_performance?.area_mm2)
    }
}

/// Area and tokens a second of each point of a scenario's front; `None` when
/// the sweep's objectives lack one of them.
fn readings(plan: &SweepPlan, accumulated: &Accumulator, scenario: usize) -> Option<Vec<Reading>> {
    let place = |metric| plan.objectives.iter().position(|objective| objective.metric == metric);
    let (area, tokens) = (place(Metric::AreaMm2)?, place(Metric::TokensPerS)?);
    let reading = |entry: &Entry| Reading {
        index: entry.index,
        area_mm2: entry.values[area],
        tokens_per_s: entry.values[tokens],
    };
    Some(accumulated.fronts.get(scenario)?.entries().iter().map(reading).collect())
}

fn fastest_within(readings: &[Reading], area_mm2: f64) -> Option<Reading> {
    let within = readings.iter().filter(|reading| reading.area_mm2 <= area_mm2);
    within.copied().max_by(|a, b| a.tokens_per_s.total_cmp(&b.tokens_per_s).then(b.index.cmp(&a.index)))
}

fn smallest_reaching(readings: &[Reading], tokens_per_s: f64) -> Option<Reading> {
    let reaching = readings.iter().filter(|reading| reading.tokens_per_s >= tokens_per_s);
    reaching.copied().min_by(|a, b| a.area_mm2.total_cmp(&b.area_mm2).then(a.index.cmp(&b.index)))
}

/// Reads the answers off the fronts.
pub fn headline(plan: &SweepPlan, accumulated: &Accumulator, question: &Question) -> Option<Headline> {
    let baseline = readings(plan, accumulated, question.baseline)?;
    let candidate = readings(plan, accumulated, question.candidate)?;
    let unit_tokens_per_s = fastest_within(&baseline, question.unit_area_mm2)?.tokens_per_s;
    let wanted = question.performance * unit_tokens_per_s;
    Some(Headline {
        unit_tokens_per_s,
        baseline_at_budget: fastest_within(&baseline, question.budget_mm2),
        candidate_at_budget: fastest_within(&candidate, question.budget_mm2),
        baseline_at_performance: smallest_reaching(&baseline, wanted),
        candidate_at_performance: smallest_reaching(&candidate, wanted),
    })
}

/// Tokens a second that count as performance 1 where no question says: the
/// smallest point of the first scenario that has any.
pub fn plain_unit(plan: &SweepPlan, accumulated: &Accumulator) -> Option<f64> {
    let front = accumulated.fronts.iter().find(|front| !front.entries().is_empty())?;
    let estimates = front.entries().iter().filter_map(|entry| plan.space.point(entry.index).estimate().ok());
    let smallest = estimates.min_by(|a, b| a.area_mm2.total_cmp(&b.area_mm2))?;
    Some(smallest.tokens_per_s)
}
