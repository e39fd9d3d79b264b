//! Studies by JSON: a request in, an answer out, the same digits as the
//! command's `--json`.

use crate::array::Array;
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

fn text(answer: &impl Serialize) -> Result<String, Failure> {
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
        let file = TensorFile::open(path).map_err(|error| Failure::tensor("", &error))?;
        all.push((path.display().to_string(), file));
    }
    if !arrays.is_empty() {
        let file = TensorFile::of(arrays, BTreeMap::new()).map_err(|error| Failure::tensor("", &error))?;
        all.push((String::from("memory"), file));
    }
    if let Some(class) = class {
        let class: Class = class.parse().map_err(Failure::input)?;
        all = all.into_iter().map(|(name, file)| (name, file.with_class(class))).collect();
    }
    Ok(all)
}

fn entries(arrays: Vec<Array>) -> Result<Vec<Entry>, Failure> {
    arrays.into_iter().map(Array::entry).collect()
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
            codec(name).map_err(|error| Failure::tensor("", &error))?;
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

/// Codecs side by side; see `trinity.compare`.
#[pyfunction]
#[pyo3(signature = (request, arrays, report=None))]
pub fn compare(
    py: Python<'_>,
    request: &str,
    arrays: Vec<Array>,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let request: Comparing = parse(request)?;
    let arrays = entries(arrays)?;
    run(py, Size::Large, report.as_ref(), move |watch| request.run(arrays, watch))
}

/// What a codec could exploit in each tensor; see `trinity.tensors_info`.
#[pyfunction]
#[pyo3(signature = (files, arrays, class_, report=None))]
pub fn tensors_info(
    py: Python<'_>,
    files: Vec<PathBuf>,
    arrays: Vec<Array>,
    class_: Option<String>,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let arrays = entries(arrays)?;
    run(py, Size::Large, report.as_ref(), move |watch| {
        let files = sources(&files, arrays, class_.as_deref())?;
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
    })
}

#[derive(Deserialize)]
struct Sweeping {
    #[serde(flatten)]
    request: sweeping::SweepRequest,
    calibration: Option<PathBuf>,
}

impl Sweeping {
    fn load(&self) -> Result<sweeping::Study, Failure> {
        let study = sweeping::Study::load(&self.request)?;
        match &self.calibration {
            Some(path) => Ok(study.calibrated(Measurements::read(path)?)?),
            None => Ok(study),
        }
    }
}

/// Evaluates every point of a sweep, or puts parts of it together; see
/// `trinity.sweep`.
#[pyfunction]
#[pyo3(signature = (request, parts, report=None))]
pub fn sweep(
    py: Python<'_>,
    request: &str,
    parts: Option<Vec<String>>,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let request: Sweeping = parse(request)?;
    run(py, Size::Large, report.as_ref(), move |watch| {
        let study = request.load()?;
        let Some(parts) = parts else { return text(&sweeping::run(&study, watch)?) };
        let mut accumulated = Accumulator::new(&study.plan);
        for part in &parts {
            accumulated.merge(&study.plan, &parse::<Accumulator>(part)?);
        }
        accumulated.sort();
        let (seen, all) = (accumulated.points, study.plan.space.len());
        if seen != all {
            return Err(Failure::input(format_args!("the parts hold {seen} of {all} points")));
        }
        study.refuse_nonsense(&accumulated)?;
        text(&study.outcome(&accumulated))
    })
}

/// One part of a sweep, for `sweep` to put together.
#[pyfunction]
#[pyo3(signature = (request, index, count, report=None))]
pub fn sweep_part(
    py: Python<'_>,
    request: &str,
    index: u64,
    count: u64,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let request: Sweeping = parse(request)?;
    run(py, Size::Large, report.as_ref(), move |watch| {
        let part = Shard::new(index, count)
            .ok_or_else(|| Failure::input(format_args!("there is no part {index} of {count}")))?;
        text(&request.load()?.accumulate_shard(part, watch)?)
    })
}

/// One point of a sweep, line by line; see `trinity.explain`.
#[pyfunction]
pub fn sweep_explain(py: Python<'_>, request: &str, index: u64) -> PyResult<String> {
    let request: Sweeping = parse(request)?;
    run(py, Size::Small, None, move |_| text(&request.load()?.explain(index)?))
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

/// From tensors to a cluster; see `trinity.explore`.
#[pyfunction]
#[pyo3(signature = (request, arrays, report=None))]
pub fn explore(
    py: Python<'_>,
    request: &str,
    arrays: Vec<Array>,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let asked: Exploring = parse(request)?;
    let arrays = entries(arrays)?;
    run(py, Size::Large, report.as_ref(), move |watch| {
        let input_tensors = if asked.files.is_empty() && arrays.is_empty() {
            exploring::built_in()?
        } else {
            let files = sources(&asked.files, arrays, asked.class.as_deref())?;
            let chosen = comparing::chosen(&files, asked.tensor.as_deref())?;
            comparing::input_tensors(chosen, false, watch)?
        };
        let quality = match (asked.loss, asked.bits, asked.nmse) {
            (Some(loss), ..) => exploring::at_loss(loss, &input_tensors, &[], &|_| (), watch)?,
            (None, Some(bits), _) => Rate::Bits(bits).into(),
            (None, None, Some(nmse)) => Rate::Nmse(nmse).into(),
            (None, None, None) => exploring::QUALITY.into(),
        };
        let request = exploring::ExploreRequest {
            input_tensors: &input_tensors,
            quality,
            study: asked.study,
            sets: asked.sets,
            budget_mm2: asked.budget_mm2,
            candidates: asked.codecs,
            node: asked.node,
            training: exploring::Training::of(asked.bits.is_none() && asked.nmse.is_none(), asked.loss),
            cells: asked.cells.unwrap_or(exploring::CELLS),
            draws: asked.draws.unwrap_or(exploring::DRAWS),
            earlier: &[],
        };
        text(&exploring::explore(&request, &|_| (), watch)?.exploration)
    })
}

/// What a job costs on a cluster; see `trinity.estimate`.
#[pyfunction]
pub fn estimate(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: estimating::EstimateRequest = parse(request)?;
    run(py, Size::Small, None, move |_| text(&estimating::estimate(&request)?))
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

/// What a bit rate does to a language model; see `trinity.evaluate`.
#[pyfunction]
#[pyo3(signature = (request, report=None))]
pub fn evaluate(py: Python<'_>, request: &str, report: Option<Py<PyAny>>) -> PyResult<String> {
    let request: Evaluating = parse(request)?;
    run(py, Size::Large, report.as_ref(), move |watch| request.run(watch))
}

#[derive(Serialize)]
struct Validated {
    sets: Vec<validating::Line>,
    malformed: Vec<String>,
    breaches: Vec<String>,
}

/// Every model beside its measurements; see `trinity.validate`.
#[pyfunction]
#[pyo3(signature = (request, report=None))]
pub fn validate(py: Python<'_>, request: &str, report: Option<Py<PyAny>>) -> PyResult<String> {
    let request: validating::ValidationRequest = parse(request)?;
    run(py, Size::Large, report.as_ref(), move |_| {
        let truth = validating::Truth::read(&request).map_err(|error| Failure::input(&error))?;
        let outcome = validating::validate(&truth).map_err(|error| Failure::input(&error))?;
        text(&Validated {
            sets: outcome.lines,
            malformed: truth.malformed.iter().map(ToString::to_string).collect(),
            breaches: outcome.breaches.iter().map(ToString::to_string).collect(),
        })
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
