//! The study that codecs are held against each other in: its scenario without
//! a codec, the classes of traffic it codes, its budget, and the text of the
//! sweep that has each codec as a scenario.

use super::knob::{NICS, SCALE};
use super::request::{ExploreRequest, Training, key_of};
use crate::Error;
use crate::config::{AxisFile, ExplorationFile, Scalar};
use crate::sweep::{self, Study};
use serde::Serialize;
use std::fmt::Write;
use trinity_sim::sweep::{Metric, Objective, Point};
use trinity_sim::{Phase, Zero};
use trinity_tensor::Class;
use trinity_tensor::compare::InputTensor;

/// A codec on its way into the sweep.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub name: String,
    /// What its scenario sets.
    pub sets: Vec<String>,
}

/// The values that one scenario has on an axis beyond the study's own.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub scenario: String,
    pub path: String,
    pub values: Vec<String>,
}

/// The path of what compression does to a sum over ranks.
pub(super) const REDUCTION: &str = "job.compression.reduction";
/// What a training job lets every candidate choose, whether or not its study varies it.
const CHOSEN_IN_TRAINING: [&str; 6] = [
    "job.parallelism.tensor",
    "job.parallelism.pipeline",
    "job.parallelism.interleave",
    "job.microbatch",
    "job.recompute",
    NICS,
];
/// What is chosen for prompts, whose pass is one and keeps nothing.
const CHOSEN_IN_PREFILL: [&str; 4] =
    ["job.parallelism.tensor", "job.parallelism.pipeline", "job.microbatch", NICS];

/// The study as it was named.
#[derive(Debug)]
pub(super) struct BaselineStudy {
    pub name: String,
    base: Study,
    sets: Vec<String>,
    /// The scenario without a codec, and what it sets.
    pub baseline: String,
    baseline_sets: Vec<String>,
    /// Classes of traffic that the study codes.
    pub needs: Vec<Class>,
    pub budget_mm2: Option<f64>,
    pub rank_by: String,
    pub rank: Objective,
    objectives: Vec<String>,
    /// Axes that are the question and no choice, where the study has them.
    pub fixed: Vec<Fixed>,
    /// Choices that the study does not vary and every candidate has all the same.
    free: Vec<AxisFile>,
    /// What the study leaves at nothing and every candidate has as far as it was measured.
    usual: Vec<String>,
    /// Bits are those of recorded training runs.
    pub recorded: bool,
    /// Every rank holds the optimizer's whole state.
    pub holds_moment: bool,
}

/// What is asked of a cluster rather than chosen for it: the fastest of several
/// workloads is no answer to any of them.
#[derive(Debug, Clone, Serialize)]
pub struct Fixed {
    pub path: String,
    pub value: f64,
    /// The unit of the value; empty of what is counted.
    pub unit: &'static str,
}

impl BaselineStudy {
    pub fn load(request: &ExploreRequest<'_>, file: &ExplorationFile) -> Result<Self, Error> {
        let base = Study::load(&sweep::SweepRequest {
            sweep: request.study.clone(),
            sets: request.sets.clone(),
            ..sweep::SweepRequest::default()
        })?;
        if crate::serving::serves(&base) {
            return Err(Error::input(
                format_args!(
                    "`{}` plays requests through a service, which has no area to share out",
                    request.study
                ),
                "`trinity sweep` runs it; name a study of training, prompts or decoding here",
            ));
        }
        let at = baseline(&base)?;
        let scenario = &base.file.scenarios[at];
        let rank = base.plan.rank_by;
        let mut objectives = base.file.objectives.clone();
        // The best within an area is on the front of area and what ranks.
        let metrics: Vec<Metric> = base.plan.objectives.iter().map(|objective| objective.metric).collect();
        if !metrics.contains(&Metric::AreaMm2) {
            objectives.push("min area-mm2".into());
        }
        if !metrics.contains(&rank.metric) {
            objectives.push(base.file.rank_by.clone());
        }
        let budget_mm2 = request.budget_mm2.or_else(|| base.file.budget_mm2());
        let grows = |axis: &AxisFile| budget_mm2.is_none() && axis.path == SCALE;
        let held_of = |axis: &AxisFile| match grows(axis) {
            // Without a budget a cluster would shrink to what nothing is sent in.
            true => Some(Fixed { path: axis.path.clone(), value: most_of(&base, &axis.path)?, unit: "" }),
            false => fixed(&base, &axis.path),
        };
        let fixed = base.file.axes.iter().filter_map(held_of).collect();
        let plain = base.plan.space.scenarios()[at].base;
        let training = plain.job.phase == Phase::Training;
        Ok(Self {
            free: free(&base, &plain),
            usual: usual(&base, &plain, file),
            recorded: training && matches!(request.training, Training::Recorded { .. }),
            holds_moment: plain.job.parallelism.zero == Zero::None,
            name: request.study.clone(),
            baseline: scenario.name.clone(),
            baseline_sets: scenario.set.clone(),
            needs: needs(&base),
            budget_mm2,
            rank_by: base.file.rank_by.clone(),
            rank,
            objectives,
            // The sweep's text has its axes already; over it their places would be others'.
            sets: request.sets.iter().filter(|set| !set.trim_start().starts_with("axes.")).cloned().collect(),
            fixed,
            base,
        })
    }

    /// Refuses tensors that lack a class that the study codes.
    pub fn check_classes(&self, input_tensors: &[InputTensor]) -> Result<(), Error> {
        let has = |class: &Class| input_tensors.iter().any(|tensor| tensor.entry.class() == *class);
        let listed = |classes: &[Class]| {
            let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
            names.join(", ")
        };
        let missing: Vec<Class> = self.needs.iter().copied().filter(|class| !has(class)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let fixed: Vec<Class> = Class::ALL.into_iter().filter(has).collect();
        let other = match (fixed.as_slice(), self.base.plan.space.scenarios().first()) {
            ([Class::KvCache], _) => ", or ask with --study sweeps/kv-spill, which codes the cache alone",
            _ => "",
        };
        Err(Error::input(
            format_args!(
                "`{}` codes {}, and the tensors at hand are {}: nothing is known of {}",
                self.name,
                listed(&self.needs),
                if fixed.is_empty() { "of no class".to_owned() } else { format!("of {}", listed(&fixed)) },
                listed(&missing),
            ),
            format_args!(
                "add files with {}, name the class of a file's tensors with --class{other}",
                listed(&missing)
            ),
        ))
    }

    /// The link speeds that the study has, each with its path, in Gbit/s.
    pub fn links(&self) -> [(&'static str, &'static str, f64); 3] {
        let cluster = &self.base.file.study.cluster;
        [
            ("network cards", "cluster.nic.bandwidth", cluster.nic.bandwidth.gbit_per_s()),
            ("links within a node", "cluster.intra.bandwidth", cluster.intra.bandwidth.gbit_per_s()),
            ("the wire to the host", "cluster.host.bandwidth", cluster.host.bandwidth.gbit_per_s()),
        ]
    }

    /// The assumptions of the study that neither measured bits nor a choice replace, nor what was set:
    /// who states a value does not ask what another would do.
    pub fn assumptions(&self) -> impl Iterator<Item = &crate::config::AssumptionFile> {
        let bits = |path: &str| {
            Class::ALL.into_iter().filter_map(key_of).any(|key| path == format!("job.compression.{key}"))
        };
        let replaced = move |path: &str| {
            bits(path)
                || self.free.iter().any(|axis| axis.path == path)
                || (self.recorded && path == REDUCTION)
                || self.sets.iter().any(|set| sets_path(set, path))
        };
        self.base.file.assumptions.iter().filter(move |assumption| !replaced(&assumption.path))
    }

    /// The paths that the study leaves to the search.
    pub fn free_paths(&self) -> Vec<&str> {
        self.free.iter().map(|axis| axis.path.as_str()).collect()
    }

    /// The sweep with each candidate as a scenario.
    pub fn text(&self, candidates: &[Candidate], candidate: &str, listed: &[Listed]) -> String {
        let mut text = format!(
            "# What `trinity explore` swept: {} with measured bits\nextends = {}\nobjectives = {}\ncrossovers = []\n",
            self.name,
            quoted(&absolute(&self.name)),
            list(&self.objectives),
        );
        if let Some(budget) = self.budget_mm2 {
            let _ = writeln!(text, "budget = \"{budget} mm2\"");
        }
        let scenario = |name: &str, sets: &[String]| {
            format!("\n[[scenarios]]\nname = {}\nset = {}\n", quoted(name), list(sets))
        };
        let common: Vec<String> = self.usual.iter().chain(&self.baseline_sets).cloned().collect();
        text += &scenario(&self.baseline, &common);
        for own in candidates {
            let sets: Vec<String> = common.iter().chain(&own.sets).cloned().collect();
            text += &scenario(&own.name, &sets);
        }
        for axis in self.base.file.axes.iter().chain(&self.free) {
            text += &self.axes(axis, candidates, listed);
        }
        if self.base.file.headline.is_some() {
            let _ = write!(
                text,
                "\n[headline]\nbaseline = {}\ncandidate = {}\n",
                quoted(&self.baseline),
                quoted(candidate),
            );
        }
        text
    }

    /// An axis under the new names: one of codecs is for every candidate, one of
    /// the baseline for the baseline; a scenario that is listed has its own.
    /// Bits are measured, not varied; a workload stays the study's own.
    fn axes(&self, axis: &AxisFile, candidates: &[Candidate], listed: &[Listed]) -> String {
        let Some(values) = self.values(axis) else { return String::new() };
        let begun = format!("\n[[axes]]\npath = {}\n", quoted(&axis.path));
        let scenarios = self.varying(axis, candidates);
        let own = |scenario: &str| {
            listed.iter().find(|listed| listed.path == axis.path && listed.scenario == scenario)
        };
        if !scenarios.iter().any(|scenario| own(scenario).is_some()) {
            let only = axis.only.as_ref().map(|_| format!("only = {}\n", list(&scenarios)));
            return begun + &values + &only.unwrap_or_default();
        }
        let mut text = String::new();
        for scenario in &scenarios {
            text += &begun;
            match own(scenario) {
                Some(listed) => {
                    let written = |value: &String| match value.parse::<f64>() {
                        Ok(_) => value.clone(),
                        Err(_) => quoted(value),
                    };
                    let values: Vec<String> = listed.values.iter().map(written).collect();
                    let _ = writeln!(text, "values = [{}]", values.join(", "));
                }
                None => text += &values,
            }
            let _ = writeln!(text, "only = {}", list(std::slice::from_ref(scenario)));
        }
        text
    }

    /// The scenarios that an axis varies in, under the new names.
    fn varying(&self, axis: &AxisFile, candidates: &[Candidate]) -> Vec<String> {
        let has = |name: &str| axis.only.as_ref().is_none_or(|only| only.iter().any(|own| own == name));
        let coded = axis.only.as_ref().is_none_or(|only| only.iter().any(|name| *name != self.baseline));
        let plain = [self.baseline.clone()].into_iter().filter(|name| has(name));
        plain.chain(candidates.iter().filter(|_| coded).map(|own| own.name.clone())).collect()
    }

    /// The values of an axis as the study writes them; nothing where it is left out.
    fn values(&self, axis: &AxisFile) -> Option<String> {
        let measured = axis.path.starts_with("job.compression.") && axis.path != REDUCTION;
        if measured || axis.path.starts_with("job.llm.") {
            return None;
        }
        if let Some(fixed) = self.fixed.iter().find(|fixed| fixed.path == axis.path) {
            return Some(match fixed.unit {
                "" => format!("values = [{}]\n", fixed.value),
                unit => format!("values = [\"{} {unit}\"]\n", fixed.value),
            });
        }
        let mut text = String::new();
        if let Some(values) = &axis.values {
            let values: Vec<String> = values.iter().map(scalar).collect();
            let _ = writeln!(text, "values = [{}]", values.join(", "));
        }
        if let Some(own) = &axis.range {
            let (from, to, step) = (own.from, own.to, own.step);
            let _ = writeln!(text, "range = {{ from = {from:?}, to = {to:?}, step = {step:?} }}");
        }
        if let Some(own) = &axis.log_range {
            let (from, to, points) = (own.from, own.to, own.points);
            let _ = writeln!(text, "log-range = {{ from = {from:?}, to = {to:?}, points = {points} }}");
        }
        if let Some(unit) = &axis.unit {
            let _ = writeln!(text, "unit = {}", quoted(unit));
        }
        Some(text)
    }

    /// The largest value that the study lists of an axis.
    pub fn most_listed(&self, path: &str) -> Option<f64> {
        most_of(&self.base, path)
    }

    /// The sweep of that text, ready to run.
    pub fn study(&self, text: &str, top: usize) -> Result<Study, Error> {
        Study::load(&sweep::SweepRequest {
            sweep: "explore.toml".into(),
            text: Some(text.to_owned()),
            sets: self.sets.clone(),
            top,
        })
    }
}

/// The workload on an axis, or the wires that are there, as the study itself has them.
fn fixed(base: &Study, path: &str) -> Option<Fixed> {
    const GBIT: &str = "Gbit/s";
    let (job, cluster) = (&base.file.study.job, &base.file.study.cluster);
    let (value, unit) = match path {
        "job.sequence" => (f64::from(job.sequence), ""),
        "job.global-batch" => (f64::from(job.global_batch), ""),
        "job.replica-batch" => (f64::from(job.replica_batch?), ""),
        "job.kv-spill" => (job.kv_spill.get(), ""),
        "job.kv-transfer" => (job.kv_transfer.get(), ""),
        "cluster.nic.bandwidth" => (cluster.nic.bandwidth.gbit_per_s(), GBIT),
        "cluster.intra.bandwidth" => (cluster.intra.bandwidth.gbit_per_s(), GBIT),
        "cluster.host.bandwidth" => (cluster.host.bandwidth.gbit_per_s(), GBIT),
        _ => return None,
    };
    Some(Fixed { path: path.to_owned(), value, unit })
}

/// What every candidate chooses though the study does not vary it, at the study's own value. A
/// study that pins a choice gives it an axis of one value.
fn free(base: &Study, plain: &Point) -> Vec<AxisFile> {
    let paths: &[&str] = match plain.job.phase {
        // Layouts that estimates choose are chosen there.
        Phase::Training if plain.search.cuts() => &[NICS],
        Phase::Training => &CHOSEN_IN_TRAINING,
        Phase::Prefill => &CHOSEN_IN_PREFILL,
        Phase::Decode => &[],
    };
    let job = &plain.job;
    let own = |path: &str| -> Option<Scalar> {
        Some(match path {
            "job.parallelism.tensor" => Scalar::Integer(i64::from(job.parallelism.tensor)),
            "job.parallelism.pipeline" => Scalar::Integer(i64::from(job.parallelism.pipeline)),
            "job.parallelism.interleave" => Scalar::Integer(i64::from(job.parallelism.schedule.chunks())),
            "job.microbatch" => Scalar::Integer(i64::from(job.microbatch)),
            "job.recompute" => Scalar::Text(job.recompute.name().to_owned()),
            _ => Scalar::Number(Some(plain.cluster.nics_per_gpu).filter(|nics| *nics > 0.0)?),
        })
    };
    let axis = |path: &&str| {
        Some(AxisFile {
            path: (*path).to_owned(),
            values: Some(vec![own(path)?]),
            range: None,
            log_range: None,
            unit: None,
            only: None,
        })
    };
    let varied = |path: &&&str| base.file.axes.iter().any(|axis| axis.path == **path);
    paths.iter().filter(|path| !varied(path)).filter_map(axis).collect()
}

/// Overlap that a training study leaves at nothing, though frameworks have it: everyone overlaps as
/// far as was measured.
fn usual(base: &Study, plain: &Point, file: &ExplorationFile) -> Vec<String> {
    let Some(usual) = file.overlap.as_ref().filter(|_| plain.job.phase == Phase::Training) else {
        return Vec::new();
    };
    let stated = &base.file.study.job.overlap;
    let own = &plain.job.overlap;
    [
        ("data", stated.data.is_none() && own.data == 0.0, usual.data),
        ("pipeline", stated.pipeline.is_none() && own.pipeline == 0.0, usual.pipeline),
    ]
    .into_iter()
    .filter(|(_, left, _)| *left)
    .map(|(name, _, share)| format!("job.overlap.{name}={}", share.get()))
    .collect()
}

/// The largest number on an axis of the study.
fn most_of(base: &Study, path: &str) -> Option<f64> {
    let scenarios = base.plan.space.scenarios().iter();
    let axes = scenarios.flat_map(|scenario| &scenario.axes).filter(|axis| axis.path == path);
    axes.flat_map(|axis| &axis.labels).filter_map(|label| label.parse().ok()).reduce(f64::max)
}

/// The scenario that others are compared with: the headline's, or the first
/// without a codec.
fn baseline(base: &Study) -> Result<usize, Error> {
    let named = base.file.headline.as_ref().map(|headline| headline.baseline.as_str());
    let at = base.file.scenarios.iter().position(|scenario| Some(scenario.name.as_str()) == named);
    if let Some(at) = at {
        return Ok(at);
    }
    for at in 0..base.file.scenarios.len() {
        if base.file.as_seen_by(&base.document, at)?.file.study.cluster.codec.is_none() {
            return Ok(at);
        }
    }
    let message = format!("every scenario of `{}` has a codec: there is nothing to compare with", base.name);
    Err(Error::input(message, "add a scenario without one"))
}

/// The classes that the study says bits for, in any scenario; where it says
/// none, those that its phase sends.
fn needs(base: &Study) -> Vec<Class> {
    let said = base.file.study.job.compression.bits();
    let set = |key: &str| {
        let path = format!("job.compression.{key}=");
        base.file.scenarios.iter().any(|scenario| scenario.set.iter().any(|set| set.starts_with(&path)))
    };
    let varied = |key: &str| {
        let path = format!("job.compression.{key}");
        base.file.axes.iter().any(|axis| axis.path == path)
    };
    let coded = |class: &Class| {
        key_of(*class).is_some_and(|key| {
            said.iter().any(|(own, bits)| *own == key && bits.is_some()) || set(key) || varied(key)
        })
    };
    let found: Vec<Class> = Class::ALL.into_iter().filter(coded).collect();
    if !found.is_empty() {
        return found;
    }
    match base.plan.space.scenarios().first().map(|scenario| scenario.base.job.phase) {
        Some(Phase::Training) => vec![Class::Activation, Class::WeightGradient, Class::ActivationGradient],
        _ => vec![Class::KvCache],
    }
}

/// A path that still leads to its file from another folder.
fn absolute(name: &str) -> String {
    if !name.ends_with(".toml") {
        return name.to_owned();
    }
    std::path::absolute(name).map_or_else(|_| name.to_owned(), |path| path.display().to_string())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
}

fn scalar(value: &Scalar) -> String {
    match value {
        Scalar::Text(text) => quoted(text),
        Scalar::Number(number) => format!("{number:?}"),
        other => other.to_string(),
    }
}

/// Whether `path=value` is about a path of the study.
fn sets_path(set: &str, path: &str) -> bool {
    let own = set.split('=').next().unwrap_or_default().trim();
    own.strip_prefix("study.").is_some_and(|own| own == path)
}
