//! Points as CSV: what every front end that saves them writes, to the byte.

use super::{Answer, POINT_COLUMNS, Study};
use std::fmt::Write as _;
use std::io::Write as _;
use trinity_sim::sweep::{Accumulator, evaluate};
use trinity_sim::{Estimate, Infeasible, Reason};

/// The first line of points.csv.
pub fn points_header(study: &Study) -> String {
    let metrics = POINT_COLUMNS.iter().map(|metric| metric.name());
    let paths = study.plan.space.paths();
    let layout = layout_column(study);
    let columns = ["scenario", "index", "status"].into_iter().chain(metrics).chain(layout).chain(paths);
    columns.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

/// The column that says which layout was chosen, where any is.
pub fn layout_column(study: &Study) -> Option<&'static str> {
    study.plan.space.chooses_layouts().then_some("layout")
}

/// The cell of [`layout_column`] with the comma before it.
fn layout_cell(study: &Study, estimate: Option<&Estimate>) -> String {
    let Some(_) = layout_column(study) else { return String::new() };
    let layout = estimate.and_then(|estimate| estimate.chosen);
    format!(",{}", layout.map_or_else(String::new, |layout| quoted(&layout.to_string())))
}

/// One line of points.csv.
pub fn point_row(
    study: &Study,
    bytes: &mut Vec<u8>,
    index: u64,
    scenario: usize,
    digits: &[usize],
    outcome: &Result<Estimate, Infeasible>,
) {
    let scenario = &study.plan.space.scenarios()[scenario];
    let status = match outcome {
        Err(infeasible) => infeasible.reason().name(),
        Ok(estimate) if !study.plan.allows(estimate) => Reason::Constraint.name(),
        Ok(_) => "ok",
    };
    // Writing to memory cannot fail.
    let _ = write!(bytes, "{},{index},{status}", quoted(&scenario.name));
    for metric in POINT_COLUMNS {
        let _ = match outcome {
            Ok(estimate) => write!(bytes, ",{}", metric.of(estimate)),
            Err(_) => write!(bytes, ","),
        };
    }
    bytes.extend(layout_cell(study, outcome.as_ref().ok()).into_bytes());
    for path in study.plan.space.paths() {
        let label = scenario.axes.iter().zip(digits).find(|(axis, _)| axis.path == path);
        let label = label.map_or("", |(axis, &digit)| axis.labels[digit].as_str());
        let _ = write!(bytes, ",{}", quoted(label));
    }
    bytes.push(b'\n');
}

/// All of points.csv, for who holds it in memory.
pub fn points_csv(study: &Study) -> Vec<u8> {
    let mut bytes = points_header(study).into_bytes();
    evaluate(&study.plan, 0..study.plan.space.len(), |index, scenario, digits, outcome| {
        point_row(study, &mut bytes, index, scenario, digits, outcome);
    });
    bytes
}

/// A field of CSV, in quotes where it needs them.
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

/// The front of every scenario, smallest area first: pareto.csv.
pub fn pareto_csv(study: &Study, accumulated: &Accumulator, answer: &Answer) -> String {
    let paths = study.plan.space.paths();
    let fixed =
        ["scenario", "index", "area_mm2", "tokens_per_s", "normalized_performance", "energy_j_per_token"];
    let columns = fixed.iter().copied().chain(layout_column(study));
    let mut text = columns.chain(paths).map(quoted).collect::<Vec<_>>().join(",") + "\n";
    for (scenario, front) in study.plan.space.scenarios().iter().zip(&accumulated.fronts) {
        for entry in front.entries() {
            let Ok(estimate) = study.plan.space.point(entry.index).estimate() else { continue };
            let _ = write!(
                text,
                "{},{},{},{},{},{}",
                quoted(&scenario.name),
                entry.index,
                estimate.area_mm2,
                estimate.tokens_per_s,
                answer.unit_tokens_per_s.map_or(f64::NAN, |unit| estimate.tokens_per_s / unit),
                estimate.energy_j_per_token
            );
            text += &layout_cell(study, Some(&estimate));
            for label in study.plan.space.labels(entry.index) {
                let _ = write!(text, ",{}", quoted(label));
            }
            text.push('\n');
        }
    }
    text
}
/// Every value of every axis: how many points ran and the best of each objective.
pub fn axes_csv(study: &Study, accumulated: &Accumulator) -> String {
    let objectives = &study.plan.objectives;
    let mut text = String::from("scenario,axis,value,points,feasible");
    for objective in objectives {
        let _ = write!(text, ",best_{0},best_{0}_index", objective.metric.name());
    }
    text.push('\n');
    for (scenario, axes) in study.plan.space.scenarios().iter().zip(&accumulated.values) {
        for (axis, values) in scenario.axes.iter().zip(axes) {
            for (label, summary) in axis.labels.iter().zip(values) {
                let _ = write!(
                    text,
                    "{},{},{},{},{}",
                    quoted(&scenario.name),
                    axis.path,
                    quoted(label),
                    summary.points,
                    summary.feasible
                );
                for at in 0..objectives.len() {
                    let _ = match summary.best.get(at).copied().flatten() {
                        Some((value, index)) => write!(text, ",{value},{index}"),
                        None => write!(text, ",,"),
                    };
                }
                text.push('\n');
            }
        }
    }
    text
}
