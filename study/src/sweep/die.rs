//! Dies of a sweep over parts: the best of each scenario beside the one that was built, and what one more
//! of each part would buy.

use super::Study;
use crate::number::significant;
use crate::table::Table;
use trinity_sim::die::{Die, Marginal, marginals};
use trinity_sim::sweep::{Accumulator, Point};

/// The best point of a scenario whose GPU is given by parts, and the point it
/// started from: the die as it was built.
#[derive(Debug, Clone)]
pub struct BestDie<'a> {
    pub scenario: &'a str,
    pub index: u64,
    pub point: Point,
    pub tokens_per_s: f64,
    /// `None` where the die as built cannot run the job.
    pub built_tokens_per_s: Option<f64>,
}

/// The best die of each scenario whose GPU is given by parts.
pub fn best_dies<'a>(study: &'a Study, accumulated: &Accumulator) -> Vec<BestDie<'a>> {
    let space = &study.plan.space;
    let of_scenario = |(scenario, front): (&'a trinity_sim::sweep::Scenario, &trinity_sim::sweep::Front)| {
        scenario.base.cluster.gpu.die?;
        let rate = |index: u64| space.point(index).estimate().ok().map(|e| e.tokens_per_s);
        let rates = front.entries().iter().filter_map(|entry| Some((entry.index, rate(entry.index)?)));
        // Ties go to the lower index, so that any order of shards gives the same.
        let (index, tokens_per_s) = rates.fold(None, |most: Option<(u64, f64)>, next| match most {
            Some(most) if most.1 > next.1 || (most.1 == next.1 && most.0 < next.0) => Some(most),
            _ => Some(next),
        })?;
        Some(BestDie {
            scenario: &scenario.name,
            index,
            point: space.point(index),
            tokens_per_s,
            built_tokens_per_s: scenario.base.estimate().ok().map(|e| e.tokens_per_s),
        })
    };
    space.scenarios().iter().zip(&accumulated.fronts).filter_map(of_scenario).collect()
}

/// Area of a point's codecs on one die.
fn codec_mm2(point: &Point) -> f64 {
    point.cluster.codecs_per_gpu * point.cluster.codec.area_mm2
}

fn die_cells(die: &Die, point: &Point) -> [String; 6] {
    [
        die.sms.to_string(),
        format!("{:.0}", die.l2_mib),
        die.memory_units.to_string(),
        die.links.to_string(),
        point.cluster.codecs_per_gpu.to_string(),
        format!("{:.0}", die.area(codec_mm2(point)).total_mm2()),
    ]
}

/// The best die of each scenario; `None` where no GPU is given by parts.
pub fn best_die_table(study: &Study, accumulated: &Accumulator) -> Option<Table> {
    let best = best_dies(study, accumulated);
    if best.is_empty() {
        return None;
    }
    let mut table = Table::new([
        "scenario",
        "point",
        "SMs",
        "L2, MiB",
        "memory",
        "links",
        "codecs",
        "die, mm²",
        "tokens/s",
        "over the die as built",
    ]);
    for BestDie { scenario, index, point, tokens_per_s, built_tokens_per_s } in &best {
        let Some(die) = &point.cluster.gpu.die else { continue };
        let gain = built_tokens_per_s
            .map_or_else(|| "which cannot run it".into(), |built| format!("{:.2}×", tokens_per_s / built));
        let mut row = vec![(*scenario).to_string(), index.to_string()];
        row.extend(die_cells(die, point));
        row.extend([significant(*tokens_per_s), gain]);
        table.row(row);
    }
    Some(table)
}

/// What one more of each part buys the die as built, by scenario.
pub fn marginal_table(study: &Study) -> Option<Table> {
    let scenarios = study.plan.space.scenarios().iter().map(|own| (own.name.as_str(), &own.base));
    marginals_of("scenario, on the die as built", scenarios)
}

/// What one more of each part buys one point.
pub fn point_marginals(point: &Point) -> Option<Table> {
    marginals_of("point", std::iter::once(("this", point)))
}

fn marginals_of<'a>(first: &str, points: impl Iterator<Item = (&'a str, &'a Point)>) -> Option<Table> {
    let mut table =
        Table::new([first, "one more", "mm²", "tokens/s", "gain %", "tokens/s a mm²", "gain % a mm²"]);
    for (name, point) in points {
        for more in marginals(point).unwrap_or_default() {
            table.row(marginal_row(name, &more));
        }
    }
    (!table.rows().is_empty()).then_some(table)
}

fn marginal_row(name: &str, more: &Marginal) -> [String; 7] {
    [
        name.to_string(),
        format!("{} ({})", more.unit, more.part),
        format!("{:.3}", more.mm2),
        significant(more.tokens_per_s),
        format!("{:.3}", more.gain * 100.0),
        significant(more.tokens_per_s_per_mm2()),
        format!("{:.4}", more.gain * 100.0 / more.mm2),
    ]
}

/// Area of one die of a point, its codecs included; `None` where its GPU is not given by parts.
pub fn die_mm2(point: &Point) -> Option<f64> {
    let die = point.cluster.gpu.die.as_ref()?;
    Some(die.area(codec_mm2(point)).total_mm2())
}
