//! Charts of Pareto fronts as data: they open on the budget, follow the study's objectives, and explain the point
//! that is asked for. Knows nothing of what is best.

use super::{Answer, Found, FrontOf, Study};
use serde_json::{Map, Value, json};
use trinity_sim::sweep::{Accumulator, Direction, Metric};

/// Points of a front that a chart shows, and those of a curve.
const CHART_POINTS: usize = 160;
const CURVE_POINTS: usize = 400;
/// Charts of one page: the first objective against each of the others.
const MOST_CHARTS: usize = 3;
/// Bytes of explanations that a page carries; points beyond are explained by
/// the command.
const EXPLAINED_BYTES: usize = 220_000;

/// Charts of one sweep's fronts, and what is behind their points.
#[derive(Debug, Clone)]
pub struct FrontCharts {
    pub charts: Vec<FrontChart>,
    /// The lines of points, by index.
    pub explanations: Value,
}

/// The fronts of all scenarios over two metrics.
#[derive(Debug, Clone)]
pub struct FrontChart {
    pub caption: String,
    /// Titles of the axes.
    pub across: &'static str,
    pub up: &'static str,
    /// Whether the metric that runs up is one to have much of.
    pub maximizes: bool,
    /// The area asked about, where one is and area runs across.
    pub budget_mm2: Option<f64>,
    pub arrows: Vec<Arrow>,
    /// Every scenario, points or not.
    pub scenarios: Vec<String>,
    pub points: Vec<FrontPoint>,
}

/// A point of a front.
#[derive(Debug, Clone)]
pub struct FrontPoint {
    pub scenario: String,
    pub index: u64,
    pub at: (f64, f64),
    /// How its silicon is shared out.
    pub split: String,
    pub axes: String,
}

/// A headline as what it is: a way from one point of the chart to another.
#[derive(Debug, Clone)]
pub struct Arrow {
    pub from: (f64, f64),
    pub to: (f64, f64),
    pub text: String,
}

/// Performance over area, a curve for each scenario.
#[derive(Debug, Clone)]
pub struct Curves {
    /// Titles of the axes, both of which span orders of magnitude.
    pub across: &'static str,
    pub up: &'static str,
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Study {
    /// Performance over area along every front.
    pub fn curves(&self, accumulated: &Accumulator, answer: &Answer) -> Curves {
        let unit = answer.unit_tokens_per_s;
        let lines = self.plan.space.scenarios().iter().zip(&accumulated.fronts).map(|(scenario, front)| {
            let points = thinned(front.entries(), CURVE_POINTS).filter_map(|entry| {
                let estimate = self.plan.space.point(entry.index).estimate().ok()?;
                Some((estimate.area_mm2, estimate.tokens_per_s / unit.unwrap_or(1.0)))
            });
            (scenario.name.clone(), points.collect())
        });
        let up = if unit.is_some() { "normalized performance" } else { "tokens/s" };
        Curves { across: title(Metric::AreaMm2), up, lines: lines.collect() }
    }
}

/// A metric as an axis is titled.
pub(super) fn title(metric: Metric) -> &'static str {
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
pub(super) fn axes(study: &Study) -> Vec<(Metric, Metric)> {
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

/// A chart for each pair of objectives, the first with `arrows`, and what a point explains.
pub fn charts(study: &Study, fronts: &[FrontOf], budget_mm2: Option<f64>, arrows: &[Arrow]) -> FrontCharts {
    let chart = |(at, (across, up)): (usize, (Metric, Metric))| {
        let budget_mm2 = budget_mm2.filter(|_| across == Metric::AreaMm2);
        let within = budget_mm2.map_or("", |_| "; it opens on the budget");
        let objective = study.plan.objectives.iter().find(|objective| objective.metric == up);
        let points = fronts.iter().flat_map(|front| {
            thinned(&front.points, CHART_POINTS).map(|point| FrontPoint {
                scenario: front.scenario.clone(),
                index: point.index,
                at: (across.of(&point.estimate), up.of(&point.estimate)),
                split: split(point),
                axes: axes_of(point),
            })
        });
        FrontChart {
            caption: format!("{} over {}: the front of each scenario{within}", title(up), title(across)),
            across: title(across),
            up: title(up),
            maximizes: objective.is_some_and(|objective| objective.direction == Direction::Maximize),
            budget_mm2,
            arrows: if at == 0 { arrows.to_vec() } else { Vec::new() },
            scenarios: fronts.iter().map(|front| front.scenario.clone()).collect(),
            points: points.collect(),
        }
    };
    FrontCharts {
        charts: axes(study).into_iter().enumerate().map(chart).collect(),
        explanations: explanations(study, fronts, budget_mm2),
    }
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

fn thinned<T>(points: &[T], most: usize) -> impl Iterator<Item = &T> {
    points.iter().step_by(points.len().div_ceil(most).max(1))
}

/// The points that charts show, line by line, those nearest to the budget first.
fn explanations(study: &Study, fronts: &[FrontOf], budget_mm2: Option<f64>) -> Value {
    let mut points: Vec<&Found> =
        fronts.iter().flat_map(|front| thinned(&front.points, CHART_POINTS)).collect();
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
