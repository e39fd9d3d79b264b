//! What a sweep found, as text, CSV and JSON.

use crate::table::Table;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;
use trinity_silicon::{EnergyColumn, table3};
use trinity_sim::event::Timeline;
use trinity_sim::sweep::Accumulator;
use trinity_sim::{Line, Phase, footprint};
pub use trinity_study::number::significant;
use trinity_study::sweep::{Answer, Found, Replaced, Study, layout_column};
pub use trinity_study::sweep::{pareto_csv, point_row, points_header, quoted};

fn times(value: Option<f64>) -> String {
    value.map_or_else(|| "not reached".into(), |value| format!("{value:.2}×"))
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

/// The result in the terminal: answer, fronts, best points, what did not run.
pub fn text(study: &Study, accumulated: &Accumulator, answer: &Answer, colour: bool) -> String {
    let mut text = format!("{}\n\n", study.file.title);
    if let Some(table) = headline_table(study, answer) {
        text += &table.render(colour);
        text += "\n";
    }
    if study.file.headline.is_some() && study.has_paper_codec() {
        text += &energy_table().render(colour);
        text += "\n";
    }
    if let Some(table) = footprint_table(study) {
        text += &table.render(colour);
        text += "\n";
    }
    if let Some(table) = replaced_table(study, None) {
        text += "Measured values in use\n";
        text += &table.render(colour);
        text += "\n";
    }
    text += "Pareto fronts\n";
    text += &front_table(study, accumulated, answer, 12).render(colour);
    let top = study.top(accumulated, answer);
    if !top.is_empty() {
        let within = study.file.budget.map_or_else(String::new, |area| format!(" within {} mm²", area.mm2()));
        let _ = writeln!(text, "\nBest points{within} by {}", study.file.rank_by);
        text += &top_table(study, &top, answer).render(colour);
    }
    let _ = writeln!(
        text,
        "\n{} points, {} can run{}",
        accumulated.points,
        accumulated.feasible,
        if accumulated.rejected.is_empty() { "" } else { "; the others:" }
    );
    for (reason, count) in &accumulated.rejected {
        let _ = writeln!(text, "  {count:>12}  {reason}");
    }
    text
}

/// What a calibration put in place of what was configured, in one scenario or in all.
pub fn replaced_table(study: &Study, scenario: Option<&str>) -> Option<Table> {
    let shown = |one: &&Replaced| scenario.is_none_or(|name| name == one.scenario);
    let mut table = Table::new(["scenario", "value", "configured", "measured", "source"]);
    for one in study.replaced.iter().filter(shown) {
        let (before, value) = (brief(&one.before), brief(&one.value));
        table.row([one.scenario.as_str(), &one.path, &before, &value, &one.source]);
    }
    (!table.rows().is_empty()).then_some(table)
}

/// A value as a cell of a table takes it: of a curve its ends, which the JSON has whole.
fn brief(value: &str) -> Cow<'_, str> {
    let points: Vec<&str> = value.trim_matches(['[', ']']).split("], [").collect();
    match points.as_slice() {
        [first, _, .., last] => format!("[{first}] … [{last}], {} points", points.len()).into(),
        _ => value.into(),
    }
}

/// The headline; beside the paper's where the study is the paper's.
pub fn headline_table(study: &Study, answer: &Answer) -> Option<Table> {
    let asked = study.file.headline.as_ref()?;
    let headline = answer.headline?;
    let (speedup, saving) = study.paper();
    let beside = speedup.is_some() || saving.is_some();
    let mut table = Table::new(["headline", "here"].into_iter().chain(beside.then_some("paper")));
    let speed = format!(
        "{} over {}, speed at {} mm²",
        asked.candidate,
        asked.baseline,
        study.file.budget.unwrap_or(asked.budget).mm2()
    );
    let area = format!(
        "{} over {}, area at {}× performance",
        asked.baseline,
        asked.candidate,
        asked.performance.get()
    );
    for (what, here, paper) in [(speed, headline.speedup(), speedup), (area, headline.saving(), saving)] {
        table.row([what, times(here)].into_iter().chain(beside.then(|| times(paper))));
    }
    Some(table)
}

/// The two energy headlines of the paper, by either column of its Table 3.
pub fn energy_table() -> Table {
    let mut table =
        Table::new(["energy, three-in-one at ratio 5", "printed column", "power over throughput"]);
    let with =
        |column| table3::headlines(&table3::THREE_IN_ONE_ENCODER, &table3::THREE_IN_ONE_DECODER, 5.0, column);
    let (printed, derived) = (with(EnergyColumn::Printed), with(EnergyColumn::PowerOverThroughput));
    table.row([
        "sending a bit over coding it".to_string(),
        format!("{:.1}×", printed.communication_over_codec),
        format!("{:.0}×", derived.communication_over_codec),
    ]);
    table.row([
        "sending raw over sending compressed".to_string(),
        format!("{:.2}×", printed.raw_over_compressed),
        format!("{:.2}×", derived.raw_over_compressed),
    ]);
    table
}

/// What the served model takes in each scenario, fitting or not.
pub fn footprint_table(study: &Study) -> Option<Table> {
    let scenarios = study.plan.space.scenarios();
    if scenarios.iter().any(|scenario| scenario.base.job.phase == Phase::Training) {
        return None;
    }
    let mut table =
        Table::new(["scenario", "weights GB", "KV GiB", "weights a device GB", "KV a device GiB", "fits"]);
    const GIB: f64 = 1_073_741_824.0;
    for scenario in scenarios {
        let f = footprint(&scenario.base);
        table.row([
            scenario.name.clone(),
            significant(f.weights_bytes / 1e9),
            significant(f.kv_bytes / GIB),
            significant(f.weights_bytes / 1e9 / f.devices),
            significant(f.kv_bytes / GIB / f.devices),
            scenario.base.estimate().map_or_else(|why| why.to_string(), |_| "yes".into()),
        ]);
    }
    Some(table)
}

/// At most `limit` points of each front, spread evenly.
pub fn front_table(study: &Study, accumulated: &Accumulator, answer: &Answer, limit: usize) -> Table {
    let paths = study.plan.space.paths();
    let fixed = ["scenario", "index", "area mm²", "tokens/s", "performance", "J/token"];
    let mut table = Table::new(fixed.into_iter().chain(layout_column(study)).chain(paths));
    for (scenario, front) in study.plan.space.scenarios().iter().zip(&accumulated.fronts) {
        let entries = front.entries();
        let shown = limit.min(entries.len());
        for k in 0..shown {
            let at = if shown < 2 { 0 } else { k * (entries.len() - 1) / (shown - 1) };
            table.row(point_cells(study, &scenario.name, entries[at].index, answer));
        }
    }
    table
}

fn top_table(study: &Study, top: &[Found], answer: &Answer) -> Table {
    let paths = study.plan.space.paths();
    let fixed = ["scenario", "index", "area mm²", "tokens/s", "performance", "J/token"];
    let mut table = Table::new(fixed.into_iter().chain(layout_column(study)).chain(paths));
    for found in top {
        table.row(point_cells(study, &found.scenario, found.index, answer));
    }
    table
}

fn point_cells(study: &Study, scenario: &str, index: u64, answer: &Answer) -> Vec<String> {
    let mut cells = vec![scenario.to_string(), index.to_string()];
    if let Ok(estimate) = study.plan.space.point(index).estimate() {
        cells.push(significant(estimate.area_mm2));
        cells.push(significant(estimate.tokens_per_s));
        cells.push(
            answer
                .unit_tokens_per_s
                .map_or_else(String::new, |unit| significant(estimate.tokens_per_s / unit)),
        );
        cells.push(significant(estimate.energy_j_per_token));
        cells.extend(estimate.chosen.map(|layout| layout.to_string()));
    }
    if layout_column(study).is_some() && cells.len() < 7 {
        cells.push("as stated".into());
    }
    cells.extend(study.plan.space.labels(index).into_iter().map(str::to_string));
    cells
}

pub fn explain_text(study: &Study, index: u64, lines: &[Line], colour: bool) -> String {
    let space = &study.plan.space;
    let mut text =
        format!("point {index} of {}: {}", study.name, space.scenarios()[space.scenario_of(index)].name);
    for (path, label) in space.paths().iter().zip(space.labels(index)) {
        if !label.is_empty() {
            let _ = write!(text, ", {path} = {label}");
        }
    }
    text += "\n\n";
    if let Some(table) = replaced_table(study, Some(&space.scenarios()[space.scenario_of(index)].name)) {
        text += &table.render(colour);
        text += "\n";
    }
    text + &explain_table(lines).render(colour)
}

/// The lines of an explanation as a table.
pub fn explain_table(lines: &[Line]) -> Table {
    let mut table = Table::new(["part", "line", "value", "unit", "formula"]);
    for line in lines {
        table.row([line.group, line.name, &significant(line.value), line.unit, &line.formula]);
    }
    table
}

/// The timeline as ui.perfetto.dev and chrome://tracing read it.
pub fn trace_json(timeline: &Timeline) -> Value {
    let mut events: Vec<Value> = timeline
        .tracks
        .iter()
        .enumerate()
        .map(|(at, name)| {
            json!({ "ph": "M", "name": "thread_name", "pid": 0, "tid": at, "args": { "name": name } })
        })
        .collect();
    events.extend(timeline.spans.iter().map(|span| {
        json!({
            "ph": "X",
            "name": span.name,
            "cat": span.kind,
            "pid": 0,
            "tid": span.track,
            "ts": span.start_s * 1e6,
            "dur": (span.end_s - span.start_s) * 1e6,
        })
    }));
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}
