//! The report of a sweep: fronts, area split, sensitivity, assumptions.

use super::show;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::Report;
use crate::table::Table;
use serde_json::{Value, json};
use trinity_silicon::stages::{Design, Technology, XK264, reconcile};
use trinity_silicon::{InstanceRate, partition, table3};
use trinity_sim::sweep::Tally;
use trinity_study::sensitivity::Sensitivity;
use trinity_study::sweep::{Answer, Study};

/// Points of a front that a chart shows.
const CHART_POINTS: usize = 400;

pub fn page(study: &Study, tally: &Tally, answer: &Answer, sensitivity: &[Sensitivity]) -> Report {
    let mut report = Report::new(study.file.title.clone());
    if let Some(table) = show::headline_table(study, answer) {
        add(&mut report, "Headline", &table);
    }
    for warning in study.file.warnings(&study.document).unwrap_or_default() {
        report.paragraph(format!("Warning: {warning}."));
    }
    if let Some(table) = show::replaced_table(study, None) {
        add(&mut report, "Measured values in use, from the calibration", &table);
    }
    fronts(&mut report, study, tally, answer);
    area_split(&mut report, study, tally);
    super::crossover::section(&mut report, &study.crossovers(tally));
    super::die::section(&mut report, study, tally);
    tornado(&mut report, study, answer, sensitivity);
    if study.has_paper_codec() {
        silicon(&mut report);
    }
    axes(&mut report, study, tally);
    outcome(&mut report, tally);
    assumptions(&mut report, study);
    report
}

fn add(report: &mut Report, caption: &str, table: &Table) {
    report.table(caption, table.headers(), table.rows());
}

fn fronts(report: &mut Report, study: &Study, tally: &Tally, answer: &Answer) {
    report.heading("Fronts");
    let mut values = Vec::new();
    for (scenario, front) in study.plan.space.scenarios().iter().zip(&tally.fronts) {
        for entry in thinned(front.entries()) {
            let Ok(estimate) = study.plan.space.point(entry.index).estimate() else { continue };
            values.push(json!({
                "scenario": scenario.name,
                "index": entry.index,
                "area": estimate.area_mm2,
                "performance": answer.unit_tokens_per_s.map(|unit| estimate.tokens_per_s / unit),
                "tokens": estimate.tokens_per_s,
                "energy": estimate.energy_j_per_token,
            }));
        }
    }
    report.chart(
        "Normalized performance over total die area; each line is a scenario's Pareto front",
        json!({
            "data": { "values": values },
            "mark": { "type": "line", "point": true, "interpolate": "step-after" },
            "encoding": {
                "x": { "field": "area", "type": "quantitative", "title": "total die area, mm²" },
                "y": { "field": "performance", "type": "quantitative", "title": "normalized performance" },
                "color": { "field": "scenario", "type": "nominal" },
                "tooltip": [
                    { "field": "scenario" }, { "field": "index" }, { "field": "area" },
                    { "field": "tokens" }, { "field": "performance" }, { "field": "energy" },
                ],
            },
        }),
    );
    let table = show::front_table(study, tally, answer, 40);
    add(report, "Points of the fronts; `trinity sweep explain INDEX` breaks one down", &table);
}

/// The fronts as a picture that needs no script.
pub fn fronts_plot(study: &Study, tally: &Tally, answer: &Answer) -> Plot {
    let unit = answer.unit_tokens_per_s;
    let series = study.plan.space.scenarios().iter().zip(&tally.fronts).map(|(scenario, front)| {
        let points = thinned(front.entries()).filter_map(|entry| {
            let estimate = study.plan.space.point(entry.index).estimate().ok()?;
            Some((estimate.area_mm2, estimate.tokens_per_s / unit.unwrap_or(1.0)))
        });
        Series { name: scenario.name.clone(), points: points.collect(), mark: Mark::Line }
    });
    let y = if unit.is_some() { "normalized performance" } else { "tokens/s" };
    // Both span orders of magnitude; the questions are asked at the small end.
    Plot { x: Axis::log("total die area, mm²"), y: Axis::log(y), series: series.collect() }
}

fn thinned<T>(entries: &[T]) -> impl Iterator<Item = &T> {
    entries.iter().step_by(entries.len().div_ceil(CHART_POINTS).max(1))
}

fn area_split(report: &mut Report, study: &Study, tally: &Tally) {
    report.heading("Where the area goes");
    let mut values: Vec<Value> = Vec::new();
    for (scenario, front) in study.plan.space.scenarios().iter().zip(&tally.fronts) {
        for entry in thinned(front.entries()) {
            let Ok(estimate) = study.plan.space.point(entry.index).estimate() else { continue };
            let parts = [
                ("GPU", estimate.area.gpu_mm2),
                ("NIC", estimate.area.nic_mm2),
                ("codec", estimate.area.codec_mm2),
            ];
            for (part, area) in parts {
                values.push(json!({
                    "scenario": scenario.name,
                    "total": estimate.area_mm2,
                    "part": part,
                    "share": area / estimate.area_mm2,
                }));
            }
        }
    }
    report.chart(
        "Share of GPUs, NICs and codecs along each front",
        json!({
            "data": { "values": values },
            "mark": "area",
            "width": 240,
            "height": 200,
            "encoding": {
                "x": { "field": "total", "type": "quantitative", "title": "total die area, mm²" },
                "y": { "field": "share", "type": "quantitative", "stack": "normalize", "title": "share of area" },
                "color": { "field": "part", "type": "nominal", "sort": ["GPU", "NIC", "codec"] },
                "column": { "field": "scenario", "type": "nominal" },
            },
        }),
    );
}

fn tornado(report: &mut Report, study: &Study, answer: &Answer, sensitivity: &[Sensitivity]) {
    let Some(speedup) = answer.headline.and_then(|headline| headline.speedup()) else { return };
    if sensitivity.is_empty() {
        return;
    }
    report.heading("What the headline rests on");
    let mut values = Vec::new();
    let mut table =
        Table::new(["assumption", "low", "speed-up", "area saving", "high", "speed-up", "area saving"]);
    let cell =
        |value: Option<f64>| value.map_or_else(|| "not reached".into(), |value| format!("{value:.2}×"));
    for line in sensitivity {
        let assumption = &line.assumption;
        table.row([
            assumption.name.clone(),
            assumption.low.to_string(),
            cell(line.low.0),
            cell(line.low.1),
            assumption.high.to_string(),
            cell(line.high.0),
            cell(line.high.1),
        ]);
        if let (Some(low), Some(high)) = (line.low.0, line.high.0) {
            values.push(json!({
                "assumption": assumption.name,
                "low": low.min(high),
                "high": low.max(high),
                "swing": (high - low).abs(),
            }));
        }
    }
    report.chart(
        format!("Speed-up at the budget ({speedup:.2}× as assumed) with each assumption at either end"),
        json!({
            "data": { "values": values },
            "layer": [
                {
                    "mark": { "type": "bar", "height": { "band": 0.7 } },
                    "encoding": {
                        "y": { "field": "assumption", "type": "nominal", "sort": { "field": "swing", "order": "descending" }, "title": null },
                        "x": { "field": "low", "type": "quantitative", "title": "speed-up", "scale": { "zero": false } },
                        "x2": { "field": "high" },
                    },
                },
                { "mark": { "type": "rule", "strokeDash": [4, 4] }, "encoding": { "x": { "datum": speedup } } },
            ],
        }),
    );
    add(report, "Each assumption on its own, all others as configured", &table);
    let _ = study;
}

/// Table 3, both energy columns, and the stage model it is held against.
fn silicon(report: &mut Report) {
    report.heading("Silicon");
    let mut table = Table::new([
        "block, 100 Gbit/s",
        "area mm²",
        "power W",
        "printed pJ/bit",
        "power ÷ throughput pJ/bit",
        "ratio",
    ]);
    for row in table3::ROWS {
        table.row([
            row.name.to_string(),
            format!("{}", row.area_mm2),
            format!("{}", row.power_w),
            format!("{}", row.printed_pj_per_bit),
            show::significant(row.cost().energy_pj_per_bit()),
            format!("{:.1}×", row.column_ratio()),
        ]);
    }
    add(report, "LLM.265 Table 3; its energy column is not its power column over 100 Gbit/s", &table);
    add(report, "Energy headlines by either column", &show::energy_table());
    let design = Design::new(&XK264, InstanceRate::Paper4k60);
    let r = reconcile(&design, &Technology::ASAP7, &table3::H264_ENCODER);
    let mut stages = Table::new(["stage of xk264", "kGE", "SRAM bits"]);
    for stage in design.stages() {
        stages.row([
            stage.stage.name().to_string(),
            stage.gates_kge.map_or_else(|| "not synthesized".into(), |kge| kge.to_string()),
            stage.sram_bits.to_string(),
        ]);
    }
    add(report, "Stage model beneath Table 3", &stages);
    report.paragraph(format!(
        "The stages add up to {:.2} mm² and {:.2} W for 100 Gbit/s, {:.2}× and {:.2}× of Table 3's H.264 encoder. \
         The three-in-one encoder splits into {:.4} mm² of alignment, {:.2} mm² shared and {:.3} mm² for video alone; \
         the stage model, scaled to Table 3, gives {:.3} mm² for the last.",
        r.model.area_mm2,
        r.model.power_w,
        r.area_ratio,
        r.power_ratio,
        partition::ThreeInOne::encoder().alignment_mm2,
        partition::ThreeInOne::encoder().shared_mm2,
        partition::ThreeInOne::encoder().video_only_mm2,
        partition::video_only_by_stages(&Technology::ASAP7, r.area_ratio),
    ));
}

fn axes(report: &mut Report, study: &Study, tally: &Tally) {
    report.heading("Axes");
    let objectives = &study.plan.objectives;
    let best = objectives.iter().map(|objective| format!("best {}", objective.metric.name()));
    let headers =
        ["scenario", "axis", "value", "points", "can run"].map(String::from).into_iter().chain(best);
    let mut table = Table::new(headers);
    for (scenario, axes) in study.plan.space.scenarios().iter().zip(&tally.values) {
        for (axis, values) in scenario.axes.iter().zip(axes) {
            for (label, summary) in axis.labels.iter().zip(values).take(64) {
                let mut cells = vec![
                    scenario.name.clone(),
                    axis.path.clone(),
                    label.clone(),
                    summary.points.to_string(),
                    summary.feasible.to_string(),
                ];
                for at in 0..objectives.len() {
                    let best = summary.best.get(at).copied().flatten();
                    cells.push(best.map_or_else(String::new, |(value, _)| show::significant(value)));
                }
                table.row(cells);
            }
        }
    }
    add(report, "What each value allows", &table);
}

fn outcome(report: &mut Report, tally: &Tally) {
    let mut table = Table::new(["outcome", "points"]);
    table.row(["can run".to_string(), tally.feasible.to_string()]);
    for (reason, count) in &tally.rejected {
        table.row([reason.to_string(), count.to_string()]);
    }
    add(report, "All points by outcome", &table);
}

/// Every value of the study with its source.
pub fn assumptions(report: &mut Report, study: &Study) {
    report.heading("Assumptions");
    let energy = study.document.settings();
    let column = energy.iter().filter(|setting| setting.path.ends_with("codec.energy"));
    for setting in column {
        report.paragraph(format!("Energy of codecs: {} ({}).", setting.value, setting.path));
    }
    let mut table = Table::new(["value", "is", "source", "written at"]);
    for setting in study.document.settings() {
        let Some(path) = setting.path.strip_prefix("study.") else { continue };
        table.row([
            path.to_string(),
            setting.value.clone(),
            setting.source.clone().unwrap_or_default(),
            format!("{}:{}", setting.place.source.name, setting.place.line()),
        ]);
    }
    add(report, "Every value the study starts from", &table);
    let mut table = Table::new(["scenario", "sets"]);
    for scenario in &study.file.scenarios {
        let measured = study.replaced.iter().filter(|one| one.scenario == scenario.name);
        let measured = measured
            .map(|one| format!("{}={{ value = {}, source = {:?} }}", one.path, one.value, one.source));
        let sets: Vec<String> = scenario.set.iter().cloned().chain(measured).collect();
        table.row([scenario.name.clone(), sets.join("; ")]);
    }
    add(report, "What the scenarios change", &table);
}
