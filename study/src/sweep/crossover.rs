//! Scenarios against each other along an axis: where does which win?
//!
//! Reads what an accumulator kept of every axis value; evaluates nothing but the best
//! points again, for their areas.

use super::Study;
use crate::number::significant;
use crate::table::Table;
use serde::Serialize;
use trinity_sim::sweep::{Accumulator, Metric};

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Crossover {
    pub name: String,
    /// The path of the axis.
    pub along: String,
    pub scenarios: Vec<String>,
    /// Values of the axis in its order, each with all scenarios.
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

/// Every value of the axis: each scenario's best, and who wins.
pub(super) fn table(crossover: &Crossover) -> Table {
    let headers = [crossover.along.clone()]
        .into_iter()
        .chain(crossover.scenarios.iter().map(|name| format!("{name}, tokens/s")))
        .chain(["fastest".into(), "most for its mm²".into()]);
    let mut table = Table::new(headers);
    let name = |at: Option<usize>| at.and_then(|at| crossover.scenarios.get(at)).cloned().unwrap_or_default();
    for row in &crossover.rows {
        let first = row.best.first().copied().flatten();
        let cell = |one: &Option<Contender>| match (one, first) {
            (None, _) => "cannot run".into(),
            (Some(one), Some(first)) if one.tokens_per_s != first.tokens_per_s => {
                format!("{} ({:.2}×)", significant(one.tokens_per_s), one.tokens_per_s / first.tokens_per_s)
            }
            (Some(one), _) => significant(one.tokens_per_s),
        };
        let cells = [row.value.clone()].into_iter().chain(row.best.iter().map(cell));
        table.row(cells.chain([name(row.fastest), name(row.most_per_mm2)]));
    }
    table
}

/// A comparison in sentences.
pub(super) fn words(crossover: &Crossover) -> Vec<String> {
    let mut sentences = Vec::new();
    let verdicts = [
        ("fastest", crossover.rows.iter().map(|row| row.fastest).collect::<Vec<_>>()),
        ("most tokens/s for the area it adds", crossover.rows.iter().map(|row| row.most_per_mm2).collect()),
    ];
    for (what, winners) in verdicts {
        let stretches = stretches(crossover, &winners);
        if !stretches.is_empty() {
            sentences.push(format!("{}, {what}: {}.", crossover.name, stretches.join("; ")));
        }
    }
    sentences.extend(equals(crossover));
    sentences
}

/// Neighbouring values with one winner, together.
fn stretches(crossover: &Crossover, winners: &[Option<usize>]) -> Vec<String> {
    let mut list: Vec<(usize, usize, usize)> = Vec::new();
    for (at, winner) in winners.iter().enumerate() {
        let Some(winner) = *winner else { continue };
        match list.last_mut() {
            Some((held, _, to)) if *held == winner && *to + 1 == at => *to = at,
            _ => list.push((winner, at, at)),
        }
    }
    let short = crossover.along.rsplit('.').next().unwrap_or_default();
    let value = |at: usize| crossover.rows[at].value.as_str();
    let last = crossover.rows.len().saturating_sub(1);
    list.into_iter()
        .map(|(winner, from, to)| {
            let name = &crossover.scenarios[winner];
            match (from, to) {
                (0, to) if to == last => format!("`{name}` at every {short}"),
                (from, to) if from == to => format!("`{name}` at a {short} of {}", value(from)),
                (0, to) => format!("`{name}` up to a {short} of {}", value(to)),
                (from, to) if to == last => format!("`{name}` from a {short} of {} on", value(from)),
                (from, to) => format!("`{name}` for a {short} of {} to {}", value(from), value(to)),
            }
        })
        .collect()
}

/// Of two scenarios: the least value at which the first is as fast as the
/// second is with less.
fn equals(crossover: &Crossover) -> Vec<String> {
    let [first, second] = crossover.scenarios.as_slice() else { return Vec::new() };
    let short = crossover.along.rsplit('.').next().unwrap_or_default();
    let speed = |row: usize, side: usize| crossover.rows[row].best.get(side).copied().flatten();
    let mut sentences = Vec::new();
    for at in 0..crossover.rows.len() {
        let Some(coded) = speed(at, 1) else { continue };
        let equal = (0..crossover.rows.len()).find(|&row| {
            speed(row, 0).is_some_and(|raw| raw.tokens_per_s * (1.0 + TIE) >= coded.tokens_per_s)
        });
        let value = |row: usize| &crossover.rows[row].value;
        sentences.push(match equal {
            Some(row) if row > at => format!(
                "`{second}` with a {short} of {} is as fast as `{first}` with {}.",
                value(at),
                value(row)
            ),
            Some(_) => continue,
            None => format!(
                "`{second}` with a {short} of {} is faster than `{first}` with any that was tried.",
                value(at)
            ),
        });
    }
    sentences
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

    fn crossover(speeds: &[[f64; 2]]) -> Crossover {
        let row = |(at, speeds): (usize, &[f64; 2])| {
            let one = |tokens_per_s: f64| Some(Contender { index: 0, tokens_per_s, area_mm2: 1.0 });
            let fastest = Some(usize::from(speeds[1] > speeds[0]));
            let best = speeds.iter().map(|speed| one(*speed)).collect();
            CrossoverRow { value: (1 << at).to_string(), best, fastest, most_per_mm2: None }
        };
        Crossover {
            name: "who".into(),
            along: "job.sequence".into(),
            scenarios: vec!["a".into(), "b".into()],
            rows: speeds.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn words_say_where_the_winner_changes() {
        let said = words(&crossover(&[[3.0, 1.0], [3.0, 2.0], [3.0, 4.0], [5.0, 6.0]]));
        assert_eq!(said[0], "who, fastest: `a` up to a sequence of 2; `b` from a sequence of 4 on.");
        assert!(said.contains(&"`b` with a sequence of 4 is as fast as `a` with 8.".to_owned()), "{said:?}");
        assert!(said.iter().any(|one| one.starts_with("`b` with a sequence of 8 is faster")), "{said:?}");
        let said = words(&crossover(&[[1.0, 2.0], [1.0, 2.0]]));
        assert_eq!(said[0], "who, fastest: `b` at every sequence.");
    }

    #[test]
    fn a_lead_that_the_table_calls_none_is_none_in_words() {
        let said = words(&crossover(&[[1.0, 1.0 + 0.5 * TIE]]));
        assert!(!said.iter().any(|one| one.contains("is faster than")), "{said:?}");
    }
}
