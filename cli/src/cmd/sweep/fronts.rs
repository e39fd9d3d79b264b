//! Charts of Pareto fronts, drawn: `study` says what is in them.

use crate::colour::colours;
use crate::report::Report;
use serde_json::{Value, json};
use trinity_study::sweep::{Arrow, FrontChart, FrontCharts};

/// The parts of a cluster's silicon, and their colours.
pub const PARTS: [(&str, &str); 3] = [("GPU", "#5b7fa6"), ("NIC", "#d8a24a"), ("codec", "#b5485d")];

/// Adds a chart for each pair of objectives, and what a click explains.
pub fn draw<'r>(report: &'r mut Report, fronts: &FrontCharts) -> &'r mut Report {
    for chart in &fronts.charts {
        report.chart(&chart.caption, spec(chart));
    }
    report.explanations(fronts.explanations.clone())
}

fn spec(chart: &FrontChart) -> Value {
    let names: Vec<&str> = chart.scenarios.iter().map(String::as_str).collect();
    let values: Vec<Value> = chart
        .points
        .iter()
        .map(|point| {
            json!({
                "scenario": point.scenario,
                "index": point.index,
                "x": point.at.0,
                "y": point.at.1,
                "split": point.split,
                "axes": point.axes,
            })
        })
        .collect();
    let extent = |key: &str| {
        let all = || values.iter().filter_map(|value| value[key].as_f64()).filter(|v| *v > 0.0);
        (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
    };
    let (x, y) = (extent("x"), extent("y"));
    // The range that answers the question: up to a little more than the budget.
    let right = chart.budget_mm2.map_or(x.1, |budget| (budget * 1.6).min(x.1.max(budget)));
    let seen = |value: &&Value| value["x"].as_f64().is_some_and(|x| x <= right);
    let top = values.iter().filter(seen).filter_map(|value| value["y"].as_f64()).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.08 } else { y.1 };
    let step = if chart.maximizes { "step-after" } else { "linear" };
    let encoding = json!({
        "x": { "field": "x", "type": "quantitative", "title": chart.across,
               "scale": { "type": "linear", "domain": [0, right] }, "axis": { "format": "~s" } },
        "y": { "field": "y", "type": "quantitative", "title": chart.up,
               "scale": { "type": "linear", "domain": [0, top] }, "axis": { "format": "~s" } },
    });
    let lines = json!({
        "data": { "values": values },
        "params": [{ "name": "zoom", "select": "interval", "bind": "scales" },
                   { "name": "picked", "select": { "type": "point", "fields": ["scenario"] }, "bind": "legend" }],
        "mark": { "type": "line", "interpolate": step, "clip": true, "point": { "size": 40, "cursor": "pointer" } },
        "encoding": {
            "x": encoding["x"], "y": encoding["y"],
            "color": { "field": "scenario", "type": "nominal", "title": null,
                       "scale": { "domain": names, "range": colours(&names) } },
            "opacity": { "condition": { "param": "picked", "value": 1 }, "value": 0.12 },
            "tooltip": [
                { "field": "scenario" }, { "field": "index" },
                { "field": "x", "title": chart.across, "format": ",.5~g" },
                { "field": "y", "title": chart.up, "format": ",.5~g" },
                { "field": "split", "title": "silicon" }, { "field": "axes" },
            ],
        },
    });
    let mut layers = vec![lines];
    layers.extend(chart.budget_mm2.map(rule));
    layers.extend(chart.budget_mm2.map(|budget| label(budget, top)));
    chart.arrows.iter().for_each(|arrow| layers.extend(drawn(arrow)));
    json!({
        "height": 400,
        "layer": layers,
        "usermeta": {
            "scales": ["x", "y"],
            "linear": { "x": [0, right], "y": [0, top] },
            "log": { "x": [x.0, x.1.max(right)], "y": [y.0, y.1.max(top)] },
            "explain": true,
            "hint": "drag to move, wheel to zoom, double-click to go back; click a point to explain it, a name to pick it out",
        },
    })
}

fn rule(budget: f64) -> Value {
    json!({
        "mark": { "type": "rule", "strokeDash": [6, 4], "color": "#8a929c", "clip": true },
        "data": { "values": [{ "x": budget }] },
        "encoding": { "x": { "field": "x", "type": "quantitative" } },
    })
}

fn label(budget: f64, top: f64) -> Value {
    json!({
        "mark": { "type": "text", "align": "left", "dx": 4, "baseline": "top", "clip": true },
        "data": { "values": [{ "x": budget, "y": top, "text": format!("budget {budget} mm²") }] },
        "encoding": { "x": { "field": "x", "type": "quantitative" }, "y": { "field": "y", "type": "quantitative" },
                      "text": { "field": "text" } },
    })
}

/// A shaft, a head and what it says.
fn drawn(arrow: &Arrow) -> [Value; 3] {
    let ((x, y), (x2, y2)) = (arrow.from, arrow.to);
    let upright = (x - x2).abs() < f64::EPSILON * x.abs().max(1.0);
    let shape = if upright { "triangle-up" } else { "triangle-left" };
    let (dx, dy) = if upright { (8, 0) } else { (0, -10) };
    let point = |x: f64, y: f64| json!({ "values": [{ "x": x, "y": y, "text": arrow.text }] });
    let place = json!({ "x": { "field": "x", "type": "quantitative" }, "y": { "field": "y", "type": "quantitative" } });
    [
        json!({
            "mark": { "type": "rule", "color": "#c2453c", "strokeWidth": 2, "clip": true },
            "data": { "values": [{ "x": x, "y": y, "x2": x2, "y2": y2 }] },
            "encoding": { "x": place["x"], "y": place["y"], "x2": { "field": "x2" }, "y2": { "field": "y2" } },
        }),
        json!({
            "mark": { "type": "point", "shape": shape, "filled": true, "size": 90, "color": "#c2453c", "clip": true },
            "data": point(x2, y2),
            "encoding": place,
        }),
        json!({
            "mark": { "type": "text", "align": if upright { "left" } else { "center" }, "dx": dx, "dy": dy,
                      "fontWeight": "bold", "clip": true },
            "data": point((x + x2) / 2.0, (y + y2) / 2.0),
            "encoding": { "x": place["x"], "y": place["y"], "text": { "field": "text" } },
        }),
    ]
}
