//! Charts of Pareto fronts: open on the budget, follow the study's objectives,
//! and explain the point that is clicked. Knows nothing of what is best.

use crate::colour::colours;
use crate::report::Report;
use serde_json::{Map, Value, json};
use trinity_sim::sweep::{Direction, Metric};
use trinity_study::sweep::{Found, FrontOf, Study};

/// The parts of a cluster's silicon, and their colours.
pub const PARTS: [(&str, &str); 3] = [("GPU", "#5b7fa6"), ("NIC", "#d8a24a"), ("codec", "#b5485d")];

/// Points of a front that a chart shows.
const CHART_POINTS: usize = 160;
/// Charts of one page: the first objective against each of the others.
const MOST_CHARTS: usize = 3;
/// Bytes of explanations that a page carries; points beyond are explained by
/// the command.
const EXPLAINED_BYTES: usize = 220_000;

/// How the charts open.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub budget_mm2: Option<f64>,
    pub arrows: Vec<Arrow>,
}

/// A headline, drawn as what it is: from one point of the chart to another.
#[derive(Debug, Clone)]
pub struct Arrow {
    pub from: (f64, f64),
    pub to: (f64, f64),
    pub text: String,
}

/// A metric as an axis is titled.
pub fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::AreaMm2 => "total die area, mm²",
        Metric::TokensPerS => "tokens/s",
        Metric::ModelTflopsPerGpu => "TFLOP/s of the model a GPU",
        Metric::Mfu => "MFU",
        Metric::EnergyJPerToken => "J a token",
        Metric::IterationS => "iteration, s",
        Metric::EnergyJ => "J an iteration",
        Metric::MemoryGb => "memory of the fullest GPU, GB",
        Metric::GpuMm2 => "GPUs, mm²",
        Metric::NicMm2 => "NICs, mm²",
        Metric::CodecMm2 => "codecs, mm²",
        Metric::PowerW => "power, W",
    }
}

/// The axes of each chart: area, or the first objective, against each of the
/// other objectives.
pub fn axes(study: &Study) -> Vec<(Metric, Metric)> {
    let metrics: Vec<Metric> = study.plan.objectives.iter().map(|objective| objective.metric).collect();
    let area = metrics.iter().copied().find(|metric| *metric == Metric::AreaMm2);
    let Some(across) = area.or_else(|| metrics.first().copied()) else { return Vec::new() };
    let mut up: Vec<Metric> = metrics.into_iter().filter(|metric| *metric != across).collect();
    // A single objective is drawn against the area it takes.
    if up.is_empty() {
        up.push(if across == Metric::AreaMm2 { Metric::TokensPerS } else { Metric::AreaMm2 });
    }
    up.truncate(MOST_CHARTS);
    up.into_iter().map(|up| (across, up)).collect()
}

/// Adds a chart for each pair of objectives, and what a click explains.
pub fn charts(report: &mut Report, study: &Study, fronts: &[FrontOf], view: &View) {
    let names: Vec<&str> = fronts.iter().map(|front| front.scenario.as_str()).collect();
    for (at, (across, up)) in axes(study).into_iter().enumerate() {
        let budget = view.budget_mm2.filter(|_| across == Metric::AreaMm2);
        let arrows = if at == 0 { view.arrows.as_slice() } else { &[] };
        let chart = Chart { across, up, budget, arrows, names: &names };
        report.chart(chart.caption(), chart.spec(study, fronts));
    }
    report.explanations(explanations(study, fronts, view.budget_mm2));
}

struct Chart<'a> {
    across: Metric,
    up: Metric,
    budget: Option<f64>,
    arrows: &'a [Arrow],
    names: &'a [&'a str],
}

impl Chart<'_> {
    fn caption(&self) -> String {
        let within = self.budget.map_or("", |_| "; it opens on the budget");
        format!("{} over {}: the front of each scenario{within}", title(self.up), title(self.across))
    }

    fn spec(&self, study: &Study, fronts: &[FrontOf]) -> Value {
        let mut values: Vec<Value> = Vec::new();
        for front in fronts {
            for point in thinned(&front.points) {
                values.push(json!({
                    "scenario": front.scenario,
                    "index": point.index,
                    "x": self.across.of(&point.estimate),
                    "y": self.up.of(&point.estimate),
                    "split": split(point),
                    "axes": axes_of(point),
                }));
            }
        }
        let extent = |key: &str| {
            let all = || values.iter().filter_map(|value| value[key].as_f64()).filter(|v| *v > 0.0);
            (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
        };
        let (x, y) = (extent("x"), extent("y"));
        // The range that answers the question: up to a little more than the budget.
        let right = self.budget.map_or(x.1, |budget| (budget * 1.6).min(x.1.max(budget)));
        let seen = |value: &&Value| value["x"].as_f64().is_some_and(|x| x <= right);
        let top = values.iter().filter(seen).filter_map(|value| value["y"].as_f64()).fold(0.0, f64::max);
        let top = if top > 0.0 { top * 1.08 } else { y.1 };
        let objective = study.plan.objectives.iter().find(|objective| objective.metric == self.up);
        let step = match objective.map(|objective| objective.direction) {
            Some(Direction::Minimize) | None => "linear",
            Some(Direction::Maximize) => "step-after",
        };
        let encoding = json!({
            "x": { "field": "x", "type": "quantitative", "title": title(self.across),
                   "scale": { "type": "linear", "domain": [0, right] }, "axis": { "format": "~s" } },
            "y": { "field": "y", "type": "quantitative", "title": title(self.up),
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
                           "scale": { "domain": self.names, "range": colours(self.names) } },
                "opacity": { "condition": { "param": "picked", "value": 1 }, "value": 0.12 },
                "tooltip": [
                    { "field": "scenario" }, { "field": "index" },
                    { "field": "x", "title": title(self.across), "format": ",.5~g" },
                    { "field": "y", "title": title(self.up), "format": ",.5~g" },
                    { "field": "split", "title": "silicon" }, { "field": "axes" },
                ],
            },
        });
        let mut layers = vec![lines];
        layers.extend(self.budget.map(rule));
        layers.extend(self.budget.map(|budget| label(budget, top)));
        self.arrows.iter().for_each(|arrow| layers.extend(drawn(arrow)));
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

fn split(point: &Found) -> String {
    let area = &point.estimate.area;
    let share = |part: f64| part / point.estimate.area_mm2 * 100.0;
    format!(
        "GPU {:.1} %, NIC {:.1} %, codec {:.2} %",
        share(area.gpu_mm2),
        share(area.nic_mm2),
        share(area.codec_mm2)
    )
}

fn axes_of(point: &Found) -> String {
    let said = point.axes.iter().filter(|(_, value)| !value.is_empty());
    // The last word of a path says enough beside the point.
    let short = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    said.map(|(path, value)| format!("{} {value}", short(path))).collect::<Vec<_>>().join(", ")
}

fn thinned<T>(points: &[T]) -> impl Iterator<Item = &T> {
    points.iter().step_by(points.len().div_ceil(CHART_POINTS).max(1))
}

/// The points that charts show, line by line, those nearest to the budget first.
fn explanations(study: &Study, fronts: &[FrontOf], budget_mm2: Option<f64>) -> Value {
    let mut points: Vec<&Found> = fronts.iter().flat_map(|front| thinned(&front.points)).collect();
    if let Some(budget) = budget_mm2 {
        let far = |point: &&Found| (point.estimate.area_mm2 / budget).ln().abs();
        points.sort_by(|a, b| far(a).total_cmp(&far(b)));
    }
    let (mut known, mut bytes) = (Map::new(), 0);
    for point in points {
        let Ok(explained) = study.explain(point.index) else { continue };
        let lines: Vec<Value> = explained
            .lines
            .iter()
            .map(|line| json!([line.group, line.name, rounded(line.value), line.unit, line.formula]))
            .collect();
        let said: Vec<&(String, String)> =
            explained.axes.iter().filter(|(_, value)| !value.is_empty()).collect();
        let value = json!({ "axes": said, "lines": lines });
        bytes += value.to_string().len();
        if bytes > EXPLAINED_BYTES {
            break;
        }
        known.insert(point.index.to_string(), value);
    }
    Value::Object(known)
}

/// Five digits: more than a reader compares.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
