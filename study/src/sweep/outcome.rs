//! What a sweep found, as plain data.

use super::{Answer, Replaced, Study};
use crate::Error;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use trinity_sim::sweep::{Accumulator, Direction, Entry, Metric};
use trinity_sim::{Estimate, Layout, Line, Reason};

/// What is told of a point that runs.
pub const POINT_COLUMNS: [Metric; 9] = [
    Metric::AreaMm2,
    Metric::TokensPerS,
    Metric::EnergyJPerToken,
    Metric::IterationS,
    Metric::MemoryGb,
    Metric::GpuMm2,
    Metric::NicMm2,
    Metric::CodecMm2,
    Metric::PowerW,
];

/// What a sweep found.
#[derive(Debug, Clone, Serialize)]
pub struct SweepOutcome {
    pub title: String,
    pub points: u64,
    /// Points that can run and keep to the constraints.
    pub feasible: u64,
    /// Points turned away, by reason.
    pub rejected: BTreeMap<Reason, u64>,
    pub headline: Option<HeadlineOf>,
    /// What measurements replaced.
    #[serde(rename = "calibration")]
    pub replaced: Vec<Replaced>,
    /// What the study has and does not use.
    pub warnings: Vec<String>,
    pub fronts: Vec<FrontOf>,
    /// The best points, as `rank-by` says.
    pub top: Vec<Found>,
    /// Where which scenario wins, where the sweep asks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crossovers: Vec<super::Crossover>,
}

/// The answer to the sweep's own question, beside the paper's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadlineOf {
    pub baseline: String,
    pub candidate: String,
    pub budget_mm2: f64,
    /// Candidate over baseline within the budget.
    pub speedup: Option<f64>,
    pub paper_speedup: Option<f64>,
    /// Normalized performance at which areas are compared.
    pub performance: f64,
    /// Baseline over candidate at that performance.
    pub area_saving: Option<f64>,
    pub paper_area_saving: Option<f64>,
}

/// The Pareto front of one scenario, smallest first objective first.
#[derive(Debug, Clone, Serialize)]
pub struct FrontOf {
    pub scenario: String,
    #[serde(rename = "front")]
    pub points: Vec<Found>,
}

/// A point that runs. Serializes flat: its metrics and axes are members.
#[derive(Debug, Clone)]
pub struct Found {
    pub scenario: String,
    pub index: u64,
    pub estimate: Estimate,
    /// Tokens a second, in the sweep's unit of performance.
    pub normalized_performance: Option<f64>,
    /// The path of each axis of the sweep and the value there; empty where the
    /// scenario lacks the axis.
    pub axes: Vec<(String, String)>,
}

impl Serialize for Found {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("scenario", &self.scenario)?;
        map.serialize_entry("index", &self.index)?;
        for metric in POINT_COLUMNS {
            map.serialize_entry(metric.name(), &metric.of(&self.estimate))?;
        }
        map.serialize_entry("normalized_performance", &self.normalized_performance)?;
        if let Some(layout) = &self.estimate.chosen {
            map.serialize_entry("layout", layout)?;
        }
        for (path, label) in &self.axes {
            map.serialize_entry(path, &Typed(label))?;
        }
        map.end()
    }
}

/// One point, line by line.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    pub index: u64,
    pub scenario: String,
    #[serde(serialize_with = "as_map")]
    pub axes: Vec<(String, String)>,
    #[serde(rename = "calibration")]
    pub replaced: Vec<Replaced>,
    /// How the job was laid over the GPUs, where that was left to be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    pub lines: Vec<Line>,
    #[serde(skip)]
    pub estimate: Estimate,
}

fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, Typed(value))))
}

/// An axis value as what it is: a number, true or false, a text; nothing where
/// the scenario lacks the axis.
struct Typed<'a>(&'a str);

impl Serialize for Typed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // `inf` and `nan` are words here, as JSON has no such numbers.
        let number = || self.0.parse::<f64>().ok().filter(|number| number.is_finite());
        match (self.0, self.0.parse::<i64>(), number()) {
            ("", ..) => serializer.serialize_none(),
            ("true", ..) => serializer.serialize_bool(true),
            ("false", ..) => serializer.serialize_bool(false),
            (_, Ok(integer), _) => serializer.serialize_i64(integer),
            (_, _, Some(number)) => serializer.serialize_f64(number),
            (text, ..) => serializer.serialize_str(text),
        }
    }
}

impl Study {
    /// What the points seen so far say.
    pub fn outcome(&self, accumulated: &Accumulator) -> SweepOutcome {
        let answer = self.answer(accumulated);
        let all = |entries: &[Entry]| entries.iter().filter_map(|entry| self.found(entry, &answer)).collect();
        let fronts = self.plan.space.scenarios().iter().zip(&accumulated.fronts);
        SweepOutcome {
            title: self.file.title.clone(),
            points: accumulated.points,
            feasible: accumulated.feasible,
            rejected: accumulated.rejected.clone(),
            headline: self.headline_of(&answer),
            replaced: self.replaced.clone(),
            warnings: self.file.warnings(&self.document).unwrap_or_default(),
            fronts: fronts
                .map(|(scenario, front)| FrontOf {
                    scenario: scenario.name.clone(),
                    points: all(front.entries()),
                })
                .collect(),
            top: self.top(accumulated, &answer),
            crossovers: self.crossovers(accumulated),
        }
    }

    /// The best points, as `rank-by` says: of all, or where the sweep has a
    /// budget, those of the fronts that keep to it.
    pub fn top(&self, accumulated: &Accumulator, answer: &Answer) -> Vec<Found> {
        let found = |entry: &Entry| self.found(entry, answer);
        let Some(budget_mm2) = self.file.budget.map(trinity_config::Area::mm2) else {
            return accumulated.top.entries().iter().filter_map(found).collect();
        };
        let rank = self.plan.rank_by;
        let value = |found: &Found| rank.metric.of(&found.estimate);
        let fronts = accumulated.fronts.iter().flat_map(|front| front.entries());
        let mut within: Vec<Found> =
            fronts.filter_map(found).filter(|found| found.estimate.area_mm2 <= budget_mm2).collect();
        within.sort_by(|a, b| {
            let order = value(a).total_cmp(&value(b));
            let order = if rank.direction == Direction::Maximize { order.reverse() } else { order };
            order.then(a.index.cmp(&b.index))
        });
        within.truncate(self.plan.top);
        within
    }

    fn headline_of(&self, answer: &Answer) -> Option<HeadlineOf> {
        let (asked, headline) = self.file.headline.as_ref().zip(answer.headline)?;
        Some(HeadlineOf {
            baseline: asked.baseline.clone(),
            candidate: asked.candidate.clone(),
            budget_mm2: self.file.budget.unwrap_or(asked.budget).mm2(),
            speedup: headline.speedup(),
            paper_speedup: self.paper().0,
            performance: asked.performance.get(),
            area_saving: headline.saving(),
            paper_area_saving: self.paper().1,
        })
    }

    /// The point of an entry of an accumulator; entries are of points that run.
    pub(crate) fn found(&self, entry: &Entry, answer: &Answer) -> Option<Found> {
        let estimate = self.plan.space.point(entry.index).estimate().ok()?;
        Some(Found {
            scenario: self.scenario_of(entry.index).to_owned(),
            index: entry.index,
            estimate,
            normalized_performance: answer.unit_tokens_per_s.map(|unit| estimate.tokens_per_s / unit),
            axes: self.axes_of(entry.index),
        })
    }

    /// The name of the scenario that a point belongs to.
    pub fn scenario_of(&self, index: u64) -> &str {
        let space = &self.plan.space;
        &space.scenarios()[space.scenario_of(index)].name
    }

    /// The path of every axis and a point's value there.
    pub fn axes_of(&self, index: u64) -> Vec<(String, String)> {
        let space = &self.plan.space;
        let pairs = space.paths().into_iter().zip(space.labels(index));
        pairs.map(|(path, label)| (path.to_owned(), label.to_owned())).collect()
    }

    /// One point with the formula behind each line. Fails where there is no
    /// such point, or it cannot run.
    pub fn explain(&self, index: u64) -> Result<Explanation, Error> {
        let len = self.plan.space.len();
        if index >= len {
            let message = format_args!("there is no point {index}; the sweep has {len} points, from 0");
            return Err(Error::input(message, ""));
        }
        let explained = trinity_sim::explain(&self.plan.space.point(index));
        let (estimate, lines) = explained.map_err(|why| Error::Infeasible { index, why })?;
        Ok(Explanation {
            index,
            scenario: self.scenario_of(index).to_owned(),
            axes: self.axes_of(index),
            replaced: self.replaced.clone(),
            layout: estimate.chosen,
            lines,
            estimate,
        })
    }
}
