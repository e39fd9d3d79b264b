//! The report of a validation: predicted against measured, residuals by
//! feature, the worst ten with their breakdown.

use crate::{report::Report, table::Table};
use serde_json::{Value, json};
use trinity_validation::training::{self, Scored};
use trinity_validation::validate::{Truth, ValidationOutcome};

/// Points a chart shows of one set at most; a browser draws no more with ease.
const MOST_POINTS: usize = 1500;

pub fn page(truth: &Truth, outcome: &ValidationOutcome, errors: &Table) -> Report {
    let mut report = Report::new("Every model beside its measurements");
    report.paragraph(
        "Errors are those of the model as committed, in per cent of what was measured. k-fold and source-out \
         are errors on rows that a fit did not see. The one-constant model multiplies operations by the one \
         number that suits the set best.",
    );
    report.add("Errors by set", errors);
    report.heading("Predicted against measured");
    report.chart("Training iterations, seconds; the band is ±10 %", against(outcome));
    report.heading("Residuals by feature");
    for (feature, title) in [
        ("gpus", "GPUs"),
        ("tensor", "tensor parallelism"),
        ("pipeline", "pipeline stages"),
        ("microbatch", "micro-batch"),
    ] {
        report.chart(format!("Error by {title}"), residuals(outcome, feature));
    }
    report.heading("The worst ten");
    worst(&mut report, truth, outcome);
    let facts = Table::of(&truth.facts)
        .column("fact", |fact| &fact.name)
        .column("published", |fact| fact.value)
        .column("source", |fact| &fact.source)
        .end();
    report.heading("Published numbers");
    report.add("What papers and pages print", &facts);
    report
}

/// Points of every set of runs, thinned evenly.
fn points(outcome: &ValidationOutcome) -> Vec<Value> {
    let mut points = Vec::new();
    for (set, scored) in &outcome.scored {
        let step = scored.pairs.len().div_ceil(MOST_POINTS).max(1);
        for (pair, run) in scored.pairs.iter().zip(&scored.runs).step_by(step) {
            points.push(json!({
                "set": set.name(),
                "what": pair.what,
                "measured": pair.measured,
                "predicted": pair.predicted,
                "error": pair.error() * 100.0,
                "gpus": run.gpus,
                "tensor": run.tensor,
                "pipeline": run.pipeline,
                "microbatch": run.microbatch,
            }));
        }
    }
    points
}

fn against(outcome: &ValidationOutcome) -> Value {
    let points = points(outcome);
    let measured = || points.iter().filter_map(|point| point["measured"].as_f64());
    let low = measured().fold(f64::INFINITY, f64::min).max(1e-6);
    let high = measured().fold(low, f64::max);
    let band: Vec<Value> =
        [low, high].iter().map(|&x| json!({ "x": x, "low": x * 0.9, "high": x * 1.1 })).collect();
    let log = json!({ "type": "log" });
    json!({
        "layer": [
            {
                "data": { "values": band },
                "mark": { "type": "area", "opacity": 0.2, "color": "gray" },
                "encoding": {
                    "x": { "field": "x", "type": "quantitative", "scale": log, "title": "measured, s" },
                    "y": { "field": "low", "type": "quantitative", "scale": log, "title": "predicted, s" },
                    "y2": { "field": "high" }
                }
            },
            {
                "data": { "values": points },
                "mark": { "type": "point", "size": 12, "tooltip": { "content": "data" } },
                "encoding": {
                    "x": { "field": "measured", "type": "quantitative", "scale": log },
                    "y": { "field": "predicted", "type": "quantitative", "scale": log },
                    "color": { "field": "set", "type": "nominal" }
                }
            }
        ]
    })
}

fn residuals(outcome: &ValidationOutcome, feature: &str) -> Value {
    json!({
        "data": { "values": points(outcome) },
        "mark": { "type": "boxplot", "size": 10, "outliers": { "size": 4 } },
        "height": 240,
        "encoding": {
            "x": { "field": feature, "type": "ordinal" },
            "y": { "field": "error", "type": "quantitative", "title": "error, %", "scale": { "domain": [-100, 100], "clamp": true } },
            "color": { "field": "set", "type": "nominal" }
        }
    })
}

fn worst(report: &mut Report, truth: &Truth, outcome: &ValidationOutcome) {
    let mut all: Vec<(&Scored, usize)> = outcome
        .scored
        .values()
        .flat_map(|scored| (0..scored.pairs.len()).map(move |i| (scored, i)))
        .collect();
    all.sort_by(|a, b| {
        let error = |(scored, i): &(&Scored, usize)| scored.pairs[*i].error().abs();
        error(b).total_cmp(&error(a))
    });
    let broken_down = all.into_iter().take(10).filter_map(|(scored, at)| {
        Some((&scored.pairs[at], training::breakdown(&truth.calibrations, &scored.runs[at]).ok()?))
    });
    let rows: Vec<_> = broken_down.collect();
    let seconds = |s: f64| format!("{s:.3}");
    let table = Table::of(&rows)
        .column("row", |(pair, _)| &pair.what)
        .column("measured s", |(pair, _)| seconds(pair.measured))
        .column("predicted s", |(pair, _)| seconds(pair.predicted))
        .column("compute s", |(_, own)| seconds(own.forward_s + own.recompute_s + own.backward_s))
        .column("tensor s", |(_, own)| seconds(own.tensor.exposed_s))
        .column("pipeline s", |(_, own)| seconds(own.pipeline.exposed_s))
        .column("data s", |(_, own)| seconds(own.data.exposed_s))
        .column("optimizer s", |(_, own)| seconds(own.optimizer_s))
        .column("bubble s", |(_, own)| seconds(own.bubble_s))
        .end();
    report.add("Where the model puts the time of the rows it errs most on", &table);
}
