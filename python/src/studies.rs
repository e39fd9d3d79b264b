//! Studies by JSON: a request in, an answer out, the same digits as the
//! command's `--json`.

use crate::array::{Array, entries};
use crate::failure::Failure;
use crate::watch::{Size, Watch, run};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trinity_config::builtin;
use trinity_lm::coding::{CodedPaths, Coding};
use trinity_sim::sweep::Accumulator;
use trinity_study::calibration::Measurements;
use trinity_study::tensors::Line;
use trinity_study::{
    Progress, Shard, compare as comparing, estimate as estimating, evaluate as evaluating,
    explore as exploring, sweep as sweeping,
};
use trinity_tensor::codec::{Rate, codec};
use trinity_tensor::compare::{ComparisonRow, Turn};
use trinity_tensor::{Class, Entry, TensorFile};
use trinity_validation::validate as validating;

fn parse<'a, T: Deserialize<'a>>(request: &'a str) -> Result<T, Failure> {
    serde_json::from_str(request).map_err(|error| Failure::input(format_args!("bad request: {error}")))
}

pub(crate) fn text(answer: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(answer).map_err(Failure::run)
}

/// Files by name, and arrays as one more file.
fn sources(
    files: &[PathBuf],
    arrays: Vec<Entry>,
    class: Option<&str>,
) -> Result<Vec<(String, TensorFile)>, Failure> {
    let mut all = Vec::new();
    for path in files {
        all.push((path.display().to_string(), TensorFile::open(path)?));
    }
    if !arrays.is_empty() {
        all.push((String::from("memory"), TensorFile::of(arrays, BTreeMap::new())?));
    }
    if let Some(class) = class {
        let class: Class = class.parse().map_err(Failure::input)?;
        all = all.into_iter().map(|(name, file)| (name, file.with_class(class))).collect();
    }
    Ok(all)
}

/// What a study answers to a request: those of `trinity.compare`, `trinity.sweep` and the like.
#[pyfunction]
pub fn study(
    py: Python<'_>,
    kind: String,
    request: String,
    arrays: Vec<Array>,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let arrays = entries(arrays)?;
    let size = if matches!(kind.as_str(), "estimate" | "explain") { Size::Small } else { Size::Large };
    run(py, size, report.as_ref(), move |watch| match kind.as_str() {
        "compare" => parse::<Comparing>(&request)?.run(arrays, watch),
        "estimate" => text(&estimating::estimate(&parse(&request)?)?),
        "evaluate" => parse::<Evaluating>(&request)?.run(watch),
        "explain" => parse::<Sweeping>(&request)?.explain(),
        "explore" => parse::<Exploring>(&request)?.run(arrays, watch),
        "sweep" => parse::<Sweeping>(&request)?.run(watch),
        "tensors" => parse::<Measuring>(&request)?.run(arrays, watch),
        "validate" => validated(&parse(&request)?),
        other => Err(Failure::input(format_args!("there is no study `{other}`"))),
    })
}

#[derive(Deserialize)]
struct Comparing {
    files: Vec<PathBuf>,
    codecs: Vec<String>,
    bits: Vec<f64>,
    nmse: Vec<f64>,
    precondition: Vec<String>,
    class: Option<String>,
    tensor: Option<String>,
    strict: bool,
    shard: (u64, u64),
    earlier: Vec<ComparisonRow>,
    only_earlier: bool,
}

impl Comparing {
    fn run(self, arrays: Vec<Entry>, watch: &Watch) -> Result<String, Failure> {
        let earlier: Vec<ComparisonRow> = self.earlier.into_iter().map(ComparisonRow::from_json).collect();
        for name in &self.codecs {
            codec(name)?;
        }
        let above_zero = |&number: &f64| number > 0.0 && number.is_finite();
        if let Some(wrong) = self.bits.iter().chain(&self.nmse).find(|number| !above_zero(number)) {
            return Err(Failure::input(format_args!("{wrong}: expected a number above zero")));
        }
        let turns = self.precondition.iter().map(|turn| turn.parse::<Turn>());
        let turns = turns.collect::<Result<Vec<_>, _>>().map_err(Failure::input)?;
        let targets = if self.nmse.is_empty() {
            self.bits.iter().map(|&bits| Rate::Bits(bits)).collect()
        } else {
            self.nmse.iter().map(|&nmse| Rate::Nmse(nmse)).collect()
        };
        let part = Shard::new(self.shard.0, self.shard.1)
            .ok_or_else(|| Failure::input(format_args!("there is no part {:?}", self.shard)))?;
        let files = sources(&self.files, arrays, self.class.as_deref())?;
        let chosen = comparing::chosen(&files, self.tensor.as_deref())?;
        let input_tensors = comparing::input_tensors(chosen, self.strict, watch)?;
        let request = comparing::ComparisonRequest {
            input_tensors: &input_tensors,
            codecs: self.codecs,
            turns,
            targets,
            earlier: &earlier,
            part,
            only_earlier: self.only_earlier,
        };
        text(&comparing::compare(&request, &|_| (), watch)?)
    }
}

/// What a codec could exploit in each tensor.
#[derive(Deserialize)]
struct Measuring {
    files: Vec<PathBuf>,
    class: Option<String>,
}

impl Measuring {
    fn run(self, arrays: Vec<Entry>, watch: &Watch) -> Result<String, Failure> {
        let files = sources(&self.files, arrays, self.class.as_deref())?;
        let tensors: Vec<(&str, &Entry)> = files
            .iter()
            .flat_map(|(name, file)| file.entries().iter().map(move |entry| (name.as_str(), entry)))
            .collect();
        watch.begin(tensors.len() as u64, "measuring");
        let mut lines = Vec::new();
        for (name, entry) in tensors {
            watch.check()?;
            lines.push(Line::measure(name, entry)?);
            watch.advance(1);
        }
        text(&lines)
    }
}

#[derive(Deserialize)]
struct Sweeping {
    #[serde(flatten)]
    request: sweeping::SweepRequest,
    calibration: Option<PathBuf>,
    /// The part that is asked for, for another request to put together with the others.
    shard: Option<(u64, u64)>,
    parts: Option<Vec<String>>,
    /// The point that is asked for.
    index: Option<u64>,
}

impl Sweeping {
    fn load(&self) -> Result<sweeping::Study, Failure> {
        let study = sweeping::Study::load(&self.request)?;
        match &self.calibration {
            Some(path) => Ok(study.calibrated(Measurements::read(path)?)?),
            None => Ok(study),
        }
    }

    /// Evaluates every point, or a part of them, or puts parts together.
    fn run(&self, watch: &Watch) -> Result<String, Failure> {
        let study = self.load()?;
        if let Some((index, count)) = self.shard {
            let part = Shard::new(index, count)
                .ok_or_else(|| Failure::input(format_args!("there is no part {index} of {count}")))?;
            return text(&study.accumulate_shard(part, watch)?);
        }
        let Some(parts) = &self.parts else { return text(&sweeping::run(&study, watch)?) };
        let mut accumulated = Accumulator::new(&study.plan);
        for part in parts {
            accumulated.merge(&study.plan, &parse::<Accumulator>(part)?);
        }
        accumulated.sort();
        let (seen, all) = (accumulated.points, study.plan.space.len());
        if seen != all {
            return Err(Failure::input(format_args!("the parts hold {seen} of {all} points")));
        }
        study.refuse_nonsense(&accumulated)?;
        text(&study.outcome(&accumulated))
    }

    fn explain(&self) -> Result<String, Failure> {
        let index = self.index.ok_or_else(|| Failure::input("a point is explained by its index"))?;
        text(&self.load()?.explain(index)?)
    }
}

#[derive(Deserialize)]
struct Exploring {
    files: Vec<PathBuf>,
    class: Option<String>,
    tensor: Option<String>,
    bits: Option<f64>,
    nmse: Option<f64>,
    study: String,
    sets: Vec<String>,
    budget_mm2: Option<f64>,
    codecs: Vec<String>,
    node: Option<String>,
    loss: Option<f64>,
    draws: Option<usize>,
    cells: Option<usize>,
}

impl Exploring {
    fn run(self, arrays: Vec<Entry>, watch: &Watch) -> Result<String, Failure> {
        let input_tensors = if self.files.is_empty() && arrays.is_empty() {
            exploring::built_in()?
        } else {
            let files = sources(&self.files, arrays, self.class.as_deref())?;
            let chosen = comparing::chosen(&files, self.tensor.as_deref())?;
            comparing::input_tensors(chosen, false, watch)?
        };
        let quality = match (self.loss, self.bits, self.nmse) {
            (Some(loss), ..) => exploring::at_loss(loss, &input_tensors, &[], &|_| (), watch)?,
            (None, Some(bits), _) => Rate::Bits(bits).into(),
            (None, None, Some(nmse)) => Rate::Nmse(nmse).into(),
            (None, None, None) => exploring::QUALITY.into(),
        };
        let request = exploring::ExploreRequest {
            input_tensors: &input_tensors,
            quality,
            study: self.study,
            sets: self.sets,
            budget_mm2: self.budget_mm2,
            candidates: self.codecs,
            node: self.node,
            training: exploring::Training::of(self.bits.is_none() && self.nmse.is_none(), self.loss),
            cells: self.cells.unwrap_or(exploring::CELLS),
            draws: self.draws.unwrap_or(exploring::DRAWS),
            earlier: &[],
        };
        text(&exploring::explore(&request, &|_| (), watch)?.exploration)
    }
}

#[derive(Deserialize)]
struct Evaluating {
    #[serde(flatten)]
    request: evaluating::EvaluationRequest,
    weights: Option<String>,
    kv: Option<String>,
    activations: Option<String>,
    allocation: String,
    stages: u16,
    block: usize,
    rates: Vec<f64>,
    codecs: Vec<String>,
    earlier: Vec<evaluating::EvaluationRow>,
    only_earlier: bool,
}

fn coding(text: Option<&String>, option: &str) -> Result<Option<Coding>, Failure> {
    let parse = |text: &String| text.parse::<Coding>();
    text.map(parse).transpose().map_err(|error| Failure::input(format_args!("{option}: {error}")))
}

impl Evaluating {
    fn run(self, watch: &Watch) -> Result<String, Failure> {
        let allocation = self.allocation.parse().map_err(Failure::input)?;
        let paths = CodedPaths {
            kv: coding(self.kv.as_ref(), "kv")?,
            activations: coding(self.activations.as_ref(), "activations")?,
            stages: self.stages.into(),
            block: self.block,
            sink: 0,
        };
        let run = evaluating::Run { weights: coding(self.weights.as_ref(), "weights")?, allocation, paths };
        let evaluation = evaluating::Evaluation::open(&self.request)?;
        let first = evaluation.uncompressed(watch)?;
        if !self.rates.is_empty() {
            let curve = evaluating::Curve {
                codecs: self.codecs,
                rates: self.rates,
                allocation,
                earlier: self.earlier,
                only_earlier: self.only_earlier,
            };
            return text(&evaluation.curve(&curve, first, &|_| (), watch)?);
        }
        let judged = evaluation.judged(&first, watch)?;
        let mut rows: Vec<evaluating::EvaluationRow> = std::iter::once(first).chain(judged).collect();
        if run.weights.is_some() || run.paths.kv.is_some() || run.paths.activations.is_some() {
            rows.extend(evaluation.runs(&[run], &rows[0], &self.earlier, &|_| (), watch)?);
        }
        text(&rows)
    }
}

#[derive(Serialize)]
struct Validated {
    sets: Vec<validating::Line>,
    malformed: Vec<String>,
    breaches: Vec<String>,
}

/// Every model beside its measurements.
fn validated(request: &validating::ValidationRequest) -> Result<String, Failure> {
    let truth = validating::Truth::read(request).map_err(|error| Failure::input(&error))?;
    let outcome = validating::validate(&truth).map_err(|error| Failure::input(&error))?;
    text(&Validated {
        sets: outcome.lines,
        malformed: truth.malformed.iter().map(ToString::to_string).collect(),
        breaches: outcome.breaches.iter().map(ToString::to_string).collect(),
    })
}

/// Built-in configurations by name.
#[pyfunction]
pub fn config_names() -> Vec<&'static str> {
    builtin::names().collect()
}

/// The TOML of a built-in configuration.
#[pyfunction]
pub fn config_text(name: &str) -> Option<&'static str> {
    builtin::text(name)
}
