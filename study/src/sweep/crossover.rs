//! Scenarios against each other along an axis: where does which win?
//!
//! Reads what an accumulator kept of every axis value; evaluates nothing but the best
//! points again, for their areas.

use super::Study;
use serde::Serialize;
use trinity_sim::sweep::{Accumulator, Metric};

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Crossover {
    pub name: String,
    /// The path of the axis.
    pub along: String,
    pub scenarios: Vec<String>,
    /// By rising position on the axis.
    pub rows: Vec<CrossoverRow>,
}

/// All scenarios at one value of the axis.
#[derive(Debug, Clone, Serialize)]
pub struct CrossoverRow {
    pub value: String,
    /// The best point of each scenario at this value; none where none can run.
    pub best: Vec<Option<Contender>>,
    /// The fastest, by place among the scenarios.
    pub fastest: Option<usize>,
    /// What adds most tokens a second to the first for each mm² it adds.
    pub most_per_mm2: Option<usize>,
}

/// A scenario's best point at a value.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Contender {
    pub index: u64,
    pub tokens_per_s: f64,
    pub area_mm2: f64,
}

impl Study {
    /// The comparisons that the sweep asks for; none of them where speed is not
    /// among its objectives.
    pub fn crossovers(&self, accumulated: &Accumulator) -> Vec<Crossover> {
        let speed = self.plan.objectives.iter().position(|objective| objective.metric == Metric::TokensPerS);
        let Some(speed) = speed else { return Vec::new() };
        let scenarios = self.plan.space.scenarios();
        let of = |crossover: &crate::config::CrossoverFile| {
            // Each scenario with its place and that of the axis in it.
            let places: Vec<(usize, usize)> = crossover
                .scenarios
                .iter()
                .filter_map(|name| {
                    let at = scenarios.iter().position(|scenario| scenario.name == *name)?;
                    let axis = scenarios[at].axes.iter().position(|axis| axis.path == crossover.along)?;
                    Some((at, axis))
                })
                .collect();
            let labels = places.first().map(|&(at, axis)| scenarios[at].axes[axis].labels.as_slice());
            let row = |(digit, value): (usize, &String)| {
                let best = places.iter().map(|&(at, axis)| {
                    let (tokens_per_s, index) =
                        accumulated.values[at][axis].get(digit)?.best.get(speed).copied()??;
                    let area_mm2 = self.plan.space.point(index).estimate().ok()?.area_mm2;
                    Some(Contender { index, tokens_per_s, area_mm2 })
                });
                CrossoverRow::of(value.clone(), best.collect())
            };
            Crossover {
                name: crossover.name.clone(),
                along: crossover.along.clone(),
                scenarios: crossover.scenarios.clone(),
                rows: labels.unwrap_or_default().iter().enumerate().map(row).collect(),
            }
        };
        self.file.crossovers.iter().map(of).collect()
    }
}

/// A lead below this is none.
pub const TIE: f64 = 1e-3;

impl CrossoverRow {
    fn of(value: String, best: Vec<Option<Contender>>) -> Self {
        let fastest = most(best.iter().map(|one| one.map(|one| one.tokens_per_s)));
        let first = best.first().copied().flatten();
        let gain = |one: Option<Contender>| {
            let (one, first) = one.zip(first)?;
            let (faster, larger) = (one.tokens_per_s - first.tokens_per_s, one.area_mm2 - first.area_mm2);
            (faster > TIE * first.tokens_per_s && larger > 0.0).then(|| faster / larger)
        };
        let most_per_mm2 = most(best.iter().map(|one| gain(*one)));
        Self { value, best, fastest, most_per_mm2 }
    }
}

/// The place of the largest; of two alike, the first.
fn most(values: impl Iterator<Item = Option<f64>>) -> Option<usize> {
    let mut found: Option<(usize, f64)> = None;
    for (at, value) in values.enumerate() {
        if let Some(value) = value.filter(|value| found.is_none_or(|(_, most)| *value > most * (1.0 + TIE))) {
            found = Some((at, value));
        }
    }
    found.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(tokens_per_s: f64, area_mm2: f64) -> Option<Contender> {
        Some(Contender { index: 0, tokens_per_s, area_mm2 })
    }

    #[test]
    fn speed_and_speed_for_its_area_may_have_other_winners() {
        let row = CrossoverRow::of(
            "1".into(),
            vec![contender(10.0, 800.0), contender(15.0, 813.0), contender(14.0, 801.0)],
        );
        assert_eq!((row.fastest, row.most_per_mm2), (Some(1), Some(2)));
        let row = CrossoverRow::of("1".into(), vec![contender(10.0, 800.0), contender(10.0, 813.0), None]);
        assert_eq!((row.fastest, row.most_per_mm2), (Some(0), None));
        let row = CrossoverRow::of("1".into(), vec![None, contender(10.0, 813.0)]);
        assert_eq!((row.fastest, row.most_per_mm2), (Some(1), None));
    }
}
