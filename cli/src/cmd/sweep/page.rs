//! The report of a sweep: fronts, area split, sensitivity, assumptions.

use super::fronts::{Arrow, PARTS, View};
use super::show;
use crate::colour::colours;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::{Bar, Report};
use crate::table::Table;
use serde_json::json;
use trinity_silicon::stages::{Design, Technology, XK264, reconcile};
use trinity_silicon::{InstanceRate, partition, table3};
use trinity_sim::sweep::{Accumulator, Direction, Metric};
use trinity_study::sensitivity::Sensitivity;
use trinity_study::sweep::{Answer, Found, FrontOf, Study};

/// Points of a front that a chart shows.
const CHART_POINTS: usize = 400;

pub fn page(
    study: &Study,
    accumulated: &Accumulator,
    answer: &Answer,
    sensitivity: &[Sensitivity],
) -> Report {
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
    fronts(&mut report, study, accumulated, answer);
    area_split(&mut report, study, accumulated);
    super::crossover::section(&mut report, &study.crossovers(accumulated));
    super::die::section(&mut report, study, accumulated);
    tornado(&mut report, study, answer, sensitivity);
    if study.has_paper_codec() {
        silicon(&mut report);
    }
    axes(&mut report, study, accumulated);
    outcome(&mut report, accumulated);
    assumptions(&mut report, study);
    report
}

fn add(report: &mut Report, caption: &str, table: &Table) {
    report.table(caption, table.headers(), table.rows());
}

fn fronts(report: &mut Report, study: &Study, accumulated: &Accumulator, answer: &Answer) {
    report.heading("Fronts");
    let view = View { budget_mm2: study.file.budget_mm2(), arrows: arrows(study, answer) };
    super::fronts::charts(report, study, &study.outcome(accumulated).fronts, &view);
    let table = show::front_table(study, accumulated, answer, 40);
    add(report, "Points of the fronts; `trinity sweep explain INDEX` breaks one down", &table);
}

/// Both headlines as the arrows they are: up at the budget, and to the left at
/// the performance asked for.
fn arrows(study: &Study, answer: &Answer) -> Vec<Arrow> {
    // They are headlines of speed over area.
    let axes = super::fronts::axes(study);
    if axes.first() != Some(&(Metric::AreaMm2, Metric::TokensPerS)) {
        return Vec::new();
    }
    let Some((headline, asked)) = answer.headline.zip(study.file.question()) else { return Vec::new() };
    let faster = headline.baseline_at_budget.zip(headline.candidate_at_budget).map(|(from, to)| Arrow {
        from: (asked.budget_mm2, from.tokens_per_s),
        to: (asked.budget_mm2, to.tokens_per_s),
        text: format!("{:.2}× as fast", to.tokens_per_s / from.tokens_per_s),
    });
    let tokens_per_s = asked.performance * headline.unit_tokens_per_s;
    let pair = headline.baseline_at_performance.zip(headline.candidate_at_performance);
    let smaller = pair.map(|(from, to)| Arrow {
        from: (from.area_mm2, tokens_per_s),
        to: (to.area_mm2, tokens_per_s),
        text: format!("{:.2}× smaller", from.area_mm2 / to.area_mm2),
    });
    faster.into_iter().chain(smaller).collect()
}

/// The fronts as a picture that needs no script.
pub fn fronts_plot(study: &Study, accumulated: &Accumulator, answer: &Answer) -> Plot {
    let unit = answer.unit_tokens_per_s;
    let series = study.plan.space.scenarios().iter().zip(&accumulated.fronts).map(|(scenario, front)| {
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

/// How the silicon of the best point of each scenario is shared out.
fn area_split(report: &mut Report, study: &Study, accumulated: &Accumulator) {
    report.heading("Where the area goes");
    let budget = study.file.budget_mm2();
    let rank = study.plan.rank_by;
    let outcome = study.outcome(accumulated);
    let best = |front: &FrontOf| -> Option<Found> {
        let within = front.points.iter().filter(|p| budget.is_none_or(|mm2| p.estimate.area_mm2 <= mm2));
        let value = |point: &&Found| rank.metric.of(&point.estimate);
        let best = match rank.direction {
            Direction::Maximize => within.max_by(|a, b| value(a).total_cmp(&value(b))),
            Direction::Minimize => within.min_by(|a, b| value(a).total_cmp(&value(b))),
        };
        best.cloned()
    };
    let points: Vec<Found> = outcome.fronts.iter().filter_map(best).collect();
    let largest = points.iter().map(|point| point.estimate.area_mm2).fold(0.0, f64::max);
    let names: Vec<&str> = points.iter().map(|point| point.scenario.as_str()).collect();
    let bars: Vec<Bar> = points
        .iter()
        .zip(colours(&names))
        .map(|(point, colour)| {
            let area = &point.estimate.area;
            let shares = [area.gpu_mm2, area.nic_mm2, area.codec_mm2];
            let parts = shares.into_iter().zip(PARTS).map(|(part, (_, colour))| (part / largest, colour));
            let percent = |part: f64| show::significant(part / point.estimate.area_mm2 * 100.0);
            Bar {
                label: point.scenario.clone(),
                colour,
                parts: parts.collect(),
                text: format!(
                    "{} {}, {} mm²: GPU {} %, NIC {} %, codec {} %",
                    show::significant(rank.metric.of(&point.estimate)),
                    super::fronts::title(rank.metric),
                    show::significant(point.estimate.area_mm2),
                    percent(shares[0]),
                    percent(shares[1]),
                    percent(shares[2]),
                ),
            }
        })
        .collect();
    let within = budget.map_or_else(String::new, |mm2| format!(" within {mm2} mm²"));
    report.bars(format!("The best point of each scenario{within} by {}", study.file.rank_by), &PARTS, &bars);
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
                        "y": { "field": "assumption", "type": "nominal", "sort": { "field": "swing", "order": "descending" }, "title": null, "axis": { "labelLimit": 340 } },
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

fn axes(report: &mut Report, study: &Study, accumulated: &Accumulator) {
    report.heading("Axes");
    let objectives = &study.plan.objectives;
    let best = objectives.iter().map(|objective| format!("best {}", objective.metric.name()));
    let headers =
        ["scenario", "axis", "value", "points", "can run"].map(String::from).into_iter().chain(best);
    let mut table = Table::new(headers);
    for (scenario, axes) in study.plan.space.scenarios().iter().zip(&accumulated.values) {
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

fn outcome(report: &mut Report, accumulated: &Accumulator) {
    let mut table = Table::new(["outcome", "points"]);
    table.row(["can run".to_string(), accumulated.feasible.to_string()]);
    for (reason, count) in &accumulated.rejected {
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
