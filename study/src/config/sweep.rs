//! Sweeps in files: a study, what varies, what is wanted.

mod checks;
mod trained;

#[cfg(feature = "hwcodec")]
pub(crate) use trained::values_of_runs;

use super::StudyFile;
use super::measured::Replacement;
use super::setter::{Settable, Setter};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use trinity_config::{Area, At, Checked, Complaint, Diagnostic, Document, Ratio};
use trinity_sim::sweep::{
    Axis, Constraint, Direction, Metric, Objective, Point, Question, Scenario, Space, SweepPlan,
};

/// A sweep.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SweepFile {
    /// What the sweep asks, for reports.
    pub title: String,
    pub study: StudyFile,
    /// Alternatives that are compared; each has a front of its own.
    pub scenarios: Vec<ScenarioFile>,
    pub axes: Vec<AxisFile>,
    /// `min METRIC` or `max METRIC`.
    #[serde(default = "usual_objectives")]
    pub objectives: Vec<String>,
    /// `METRIC <= NUMBER` or `METRIC >= NUMBER`.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// What the best points are listed by.
    #[serde(default = "usual_rank")]
    pub rank_by: String,
    /// The silicon there is: best points are looked for within it, and a
    /// headline's own gives way to it.
    pub budget: Option<Area>,
    pub headline: Option<HeadlineFile>,
    /// What the headline rests on, each varied on its own.
    #[serde(default)]
    pub assumptions: Vec<AssumptionFile>,
    /// Scenarios held against each other along an axis: where does which win?
    #[serde(default)]
    pub crossovers: Vec<CrossoverFile>,
}

fn usual_objectives() -> Vec<String> {
    vec!["min area-mm2".into(), "max tokens-per-s".into()]
}

fn usual_rank() -> String {
    "max tokens-per-s".into()
}

/// A sweep as one of its scenarios sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub document: Document,
    pub file: SweepFile,
}

/// One alternative.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScenarioFile {
    pub name: String,
    /// What it changes in the study: `path=value`, as on the command line.
    #[serde(default)]
    pub set: Vec<String>,
    /// A training run that says the bits per value sent: a name of the recording in
    /// validation/data/training, `TABLE.csv#NAME`, or the summary.json of a run, seen from this file.
    pub trained: Option<String>,
    /// A training run that says how fast its loop coded, named likewise.
    pub timed: Option<String>,
    /// What was measured, in place of what was configured.
    #[serde(skip)]
    pub measured: Vec<Replacement>,
}

/// One axis: a path into the study and its values.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AxisFile {
    /// Such as `job.parallelism.data` or `cluster.gpu.extends`.
    pub path: String,
    /// A list of values.
    pub values: Option<Vec<Scalar>>,
    /// Evenly spaced numbers.
    pub range: Option<RangeFile>,
    /// Numbers at equal ratios.
    pub log_range: Option<LogRangeFile>,
    /// Appended to each number of a range, such as `Gbit/s`.
    pub unit: Option<String>,
    /// Only in these scenarios; in all where it is not said.
    pub only: Option<Vec<String>>,
}

/// `from`, `from + step`, … up to `to`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RangeFile {
    pub from: f64,
    pub to: f64,
    pub step: f64,
}

/// `points` numbers from `from` to `to` at equal ratios.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogRangeFile {
    pub from: f64,
    pub to: f64,
    pub points: u32,
}

/// What is read off the fronts and held against a paper.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HeadlineFile {
    /// The scenario that the others are compared with.
    pub baseline: String,
    /// The scenario of the headline.
    pub candidate: String,
    /// Area at which speed is compared.
    pub budget: Area,
    /// Normalized performance at which area is compared.
    pub performance: Ratio,
    /// Normalized performance 1 is the baseline's best within this area.
    pub unit_area: Area,
    /// What the paper says.
    pub paper_speedup: Option<Ratio>,
    pub paper_saving: Option<Ratio>,
}

/// Scenarios that compete along an axis.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossoverFile {
    /// What is asked, in words.
    pub name: String,
    /// The path of an axis that all of them have.
    pub along: String,
    /// Names of the scenarios; the first is what others are held against.
    pub scenarios: Vec<String>,
}

/// An assumption and how far it may be off.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AssumptionFile {
    /// What is assumed, in words.
    pub name: String,
    pub path: String,
    pub low: Scalar,
    pub high: Scalar,
}

/// A number, a text or a truth value.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    Integer(i64),
    Number(f64),
    Truth(bool),
    Text(String),
}

impl Scalar {
    /// The number and its unit, which may be none; nothing where it is a word.
    pub fn number(&self) -> Option<(f64, String)> {
        let text = self.to_string();
        let ends = text.find(char::is_whitespace).unwrap_or(text.len());
        Some((text[..ends].replace('_', "").parse().ok()?, text[ends..].trim().to_owned()))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Truth(truth) => truth.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, true or false")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(value))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
                i64::try_from(value).map(Scalar::Integer).map_err(E::custom)
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value))
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Truth(value))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(value.into()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Wrong values of one axis that are named.
const MOST_OF_AN_AXIS: usize = 5;
/// Beyond this an axis is a mistake.
const MAX_VALUES: usize = 1_000_000;

impl AxisFile {
    /// The values, as `--set` takes them.
    fn texts(&self) -> Result<Vec<String>, Complaint> {
        let unit = self.unit.as_deref().map(|unit| format!(" {unit}")).unwrap_or_default();
        let number = |value: f64| format!("{}{unit}", rounded(value));
        let texts = match (&self.values, self.range, self.log_range) {
            (Some(values), None, None) => values.iter().map(|value| format!("{value}{unit}")).collect(),
            (None, Some(RangeFile { from, to, step }), None) => {
                if !(step > 0.0 && to >= from && from.is_finite() && to.is_finite()) {
                    return Err(Complaint::new("this range has no values").expected("from <= to, step > 0"));
                }
                let count = ((to - from) / step + 1e-9).floor() + 1.0;
                let count = few(count)?;
                (0..count).map(|k| number(from + k as f64 * step)).collect()
            }
            (None, None, Some(LogRangeFile { from, to, points })) => {
                if !(from > 0.0 && to >= from && to.is_finite()) || points < 2 {
                    return Err(Complaint::new("this range has no values")
                        .expected("0 < from <= to, at least 2 points"));
                }
                few(f64::from(points))?;
                let steps = f64::from(points - 1);
                (0..points).map(|k| number(from * (to / from).powf(f64::from(k) / steps))).collect()
            }
            _ => {
                return Err(Complaint::new("an axis needs its values said once")
                    .expected("one of `values`, `range`, `log-range`"));
            }
        };
        let texts: Vec<String> = texts;
        few(texts.len() as f64)?;
        Ok(texts)
    }
}

/// As many values as an axis may have; counted before any is made.
fn few(count: f64) -> Result<usize, Complaint> {
    if (1.0..=MAX_VALUES as f64).contains(&count) {
        return Ok(count as usize);
    }
    Err(Complaint::new(format_args!("an axis of {count} values")).expected(format_args!("1 to {MAX_VALUES}")))
}

/// Six digits: enough for any axis, and a range ends where it says it ends.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

impl SweepFile {
    /// The study as one point.
    pub fn point(&self) -> Point {
        self.study.point()
    }

    /// Everything that the sweep evaluates. Fails where an axis, a scenario or
    /// an objective is nonsense, pointing at it.
    pub fn plan(&self, document: &Document, top: usize) -> Result<SweepPlan, Diagnostic> {
        let (mut scenarios, mut mistakes) = (Vec::new(), Vec::new());
        for at in 0..self.scenarios.len() {
            match self.scenario(document, at) {
                Ok(scenario) => scenarios.push(scenario),
                // An axis that is wrong in one scenario is wrong in the next.
                Err(wrong) => wrong.flatten().into_iter().for_each(|mistake| {
                    if !mistakes.contains(&mistake) {
                        mistakes.push(mistake);
                    }
                }),
            }
        }
        let at = &document.whole();
        let (objectives, constraints) = (self.objectives(at), self.constraints(at));
        let rank_by = objective(&self.rank_by, at, "rank-by");
        let space = Space::new(scenarios)
            .map_or_else(|| at.refuse("axes", "more than 2^64 points", "fewer values"), Ok);
        match (space, objectives, constraints, rank_by) {
            (Ok(space), Ok(objectives), Ok(constraints), Ok(rank_by)) if mistakes.is_empty() => {
                Ok(SweepPlan { space, objectives, constraints, top, rank_by })
            }
            (space, objectives, constraints, rank_by) => {
                mistakes.extend(
                    [space.err(), objectives.err(), constraints.err(), rank_by.err()].into_iter().flatten(),
                );
                Err(Diagnostic::of_all(mistakes)
                    .unwrap_or_else(|| document.complain("", &Complaint::new("this sweep cannot be read"))))
            }
        }
    }

    /// The silicon there is: the sweep's, else that of its headline.
    pub fn budget_mm2(&self) -> Option<f64> {
        let asked = self.headline.as_ref().map(|headline| headline.budget);
        self.budget.or(asked).map(Area::mm2)
    }

    /// What the headline asks of the fronts.
    pub fn question(&self) -> Option<Question> {
        let asked = self.headline.as_ref()?;
        let position = |name: &str| self.scenarios.iter().position(|scenario| scenario.name == name);
        Some(Question {
            baseline: position(&asked.baseline)?,
            candidate: position(&asked.candidate)?,
            budget_mm2: self.budget.unwrap_or(asked.budget).mm2(),
            performance: asked.performance.get(),
            unit_area_mm2: asked.unit_area.mm2(),
        })
    }

    /// The sweep with what scenario `at` sets in its study. Fails where the
    /// scenario sets nonsense, pointing at it.
    pub fn as_seen_by(&self, document: &Document, at: usize) -> Result<Seen, Diagnostic> {
        let document = self.document_of(document, at)?;
        Ok(Seen { file: document.read()?, document })
    }

    /// The document with what scenario `at` sets laid over it.
    pub(crate) fn document_of(&self, document: &Document, at: usize) -> Result<Document, Diagnostic> {
        let mut own = document.clone();
        for (k, assignment) in self.scenarios[at].set.iter().enumerate() {
            let place = format!("scenarios.{at}.set.{k}");
            own.set(&format!("study.{assignment}")).map_err(|d| moved(document, |_| place.clone(), d))?;
        }
        Ok(own)
    }

    /// Whether axis `k` varies in scenario `at`.
    pub(super) fn varies(&self, k: usize, at: usize) -> bool {
        let named = |only: &Vec<String>| only.contains(&self.scenarios[at].name);
        self.axes[k].only.as_ref().is_none_or(named)
    }

    fn scenario(&self, document: &Document, at: usize) -> Result<Scenario, Diagnostic> {
        let own = self.document_of(document, at)?;
        let sets = &self.scenarios[at].set;
        let place = |mistake: &Diagnostic| {
            let mut runs = ["trained", "timed"].map(|key| format!("scenarios.{at}.{key}")).into_iter();
            let written =
                |path: &String| mistake.place.is_some() && document.place(path) == mistake.place.as_ref();
            if let Some(run) = runs.find(written) {
                return run;
            }
            let set = sets.iter().position(|set| set_by(mistake, &format!("study.{set}")).is_some());
            set.map_or_else(|| format!("scenarios.{at}"), |k| format!("scenarios.{at}.set.{k}"))
        };
        let study = self.study_of(&own, at).map_err(|d| moved(document, place, d))?;
        let base = study.point();
        let (mut axes, mut mistakes) = (Vec::new(), Vec::new());
        for k in (0..self.axes.len()).filter(|&k| self.varies(k, at)) {
            match self.axis(document, &own, &study, k) {
                Ok(axis) => axes.push(axis),
                Err(wrong) => mistakes.push(wrong),
            }
        }
        match Diagnostic::of_all(mistakes) {
            Some(mistakes) => Err(mistakes),
            None => Ok(Scenario { name: self.scenarios[at].name.clone(), base, axes }),
        }
    }

    /// What the values of axis `k` make of a scenario's study.
    fn axis(
        &self,
        document: &Document,
        own: &Document,
        study: &StudyFile,
        k: usize,
    ) -> Result<Axis, Diagnostic> {
        let axis = &self.axes[k];
        let texts = axis.texts().map_err(|complaint| document.complain(&format!("axes.{k}"), &complaint))?;
        let mut vary = Varying { own, study, setter: None };
        let (mut points, mut mistakes) = (Axis::builder(axis.path.clone(), &study.point()), Vec::new());
        for (j, text) in texts.into_iter().enumerate() {
            let assignment = format!("study.{}={text}", axis.path);
            let place = |mistake: &Diagnostic| match set_by(mistake, &assignment) {
                Some(Part::Path) => format!("axes.{k}.path"),
                _ if axis.values.is_some() => format!("axes.{k}.values.{j}"),
                _ => format!("axes.{k}"),
            };
            match vary.point(&assignment) {
                Ok(point) => points.push(text, &point),
                Err(wrong) => mistakes.push(moved(document, place, wrong)),
            }
            // A wrong path is wrong for every value, and so is a wrong unit.
            if mistakes.len() >= MOST_OF_AN_AXIS {
                break;
            }
        }
        let mut mistakes: Vec<Diagnostic> = mistakes.into_iter().flat_map(Diagnostic::flatten).collect();
        mistakes.dedup();
        match Diagnostic::of_all(mistakes) {
            Some(mistakes) => Err(mistakes),
            None => Ok(points.finish()),
        }
    }

    /// The study of scenario `at`, read once, with what training runs and measurements say.
    pub(crate) fn study_of(&self, own: &Document, at: usize) -> Result<StudyFile, Diagnostic> {
        let mut study = own.read::<Self>()?.study;
        for value in self.of_runs(own, at, &study)? {
            value.replacement.apply(&mut study);
        }
        for measured in &self.scenarios[at].measured {
            measured.apply(&mut study);
        }
        study.check_at(&own.whole().table("study"))?;
        Ok(study)
    }

    fn objectives(&self, at: &At<'_>) -> Result<Vec<Objective>, Diagnostic> {
        let count = self.objectives.len();
        if count == 0 || count > trinity_sim::sweep::MAX_OBJECTIVES {
            return at.refuse("objectives", format_args!("{count} objectives"), "one to eight");
        }
        let read = |(k, text): (usize, &String)| objective(text, at, &format!("objectives.{k}"));
        let mut objectives: Vec<Objective> =
            self.objectives.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        // The best within an area is on a front that has the area for an objective.
        let area = Objective { metric: Metric::AreaMm2, direction: Direction::Minimize };
        let lacks = !objectives.iter().any(|objective| objective.metric == area.metric);
        if self.budget.is_some() && lacks && count < trinity_sim::sweep::MAX_OBJECTIVES {
            objectives.push(area);
        }
        Ok(objectives)
    }

    fn constraints(&self, at: &At<'_>) -> Result<Vec<Constraint>, Diagnostic> {
        let read = |(k, text): (usize, &String)| {
            let names = metric_names();
            let expected = format!("`METRIC <= NUMBER` or `METRIC >= NUMBER`, METRIC one of: {names}");
            Constraint::parse(text)
                .map_or_else(|| at.refuse(format_args!("constraints.{k}"), "no constraint", expected), Ok)
        };
        self.constraints.iter().enumerate().map(read).collect()
    }
}

/// A study that one axis varies: the way to its place is found with the first
/// value and kept for the others.
struct Varying<'a> {
    own: &'a Document,
    study: &'a StudyFile,
    setter: Option<Setter<StudyFile>>,
}

impl Varying<'_> {
    /// The point that an assignment makes of the study.
    fn point(&mut self, assignment: &str) -> Result<Point, Diagnostic> {
        let assignment = self.own.assignment(assignment)?;
        if self.setter.is_none() {
            // The first key leads from the sweep to its study.
            self.setter = Some(StudyFile::setter(assignment.keys().get(1..).unwrap_or_default())?);
        }
        let mut varied = self.study.clone();
        if let Some(set) = &self.setter {
            set(&mut varied, assignment.value())?;
        }
        varied.check_at(&self.own.whole().table("study"))?;
        Ok(varied.point())
    }
}

fn objective(text: &str, at: &At<'_>, key: &str) -> Result<Objective, Diagnostic> {
    let expected = format!("`min METRIC` or `max METRIC`, METRIC one of: {}", metric_names());
    Objective::parse(text).map_or_else(|| at.refuse(key, "no objective", expected), Ok)
}

fn metric_names() -> String {
    Metric::ALL.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(", ")
}

pub(super) fn read_point(document: &Document) -> Result<Point, Diagnostic> {
    let file: SweepFile = document.read()?;
    file.study.check_at(&document.whole().table("study"))?;
    Ok(file.point())
}

/// The part of an assignment that a mistake is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Value,
}

/// Whether a mistake is about `assignment`, and about which part of it.
fn set_by(mistake: &Diagnostic, assignment: &str) -> Option<Part> {
    let place = mistake.place.as_ref().filter(|place| place.source.text == assignment)?;
    let value_at = assignment.find('=').unwrap_or(assignment.len());
    Some(if place.span.end <= value_at { Part::Path } else { Part::Value })
}

/// A mistake in a value that an axis or a scenario sets is the fault of the
/// line of the sweep that sets it: `place` says which that is.
fn moved(document: &Document, place: impl Fn(&Diagnostic) -> String, mistakes: Diagnostic) -> Diagnostic {
    let moved = mistakes.flatten().into_iter().map(|mistake| {
        let mut there = document.complain(&place(&mistake), &Complaint::new(""));
        there.message = mistake.message;
        there.label = mistake.label;
        there.help = mistake.help;
        there
    });
    Diagnostic::of_all(moved).unwrap_or_else(|| document.complain("", &Complaint::new("nonsense")))
}

impl Checked for SweepFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let at = document.whole();
        self.study.check_at(&at.table("study"))?;
        if self.scenarios.is_empty() {
            return at.refuse("scenarios", "no scenarios", "at least one");
        }
        Diagnostic::gather([self.check_names(document), self.check_assumptions(document)])?;
        self.check_parts(document)?;
        self.check_choices(document)?;
        self.check_crossovers(document)?;
        let plan = self.plan(document, 1)?;
        self.check_axes(document, &plan.space)
    }
}
