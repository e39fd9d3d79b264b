//! A sweep that was read and planned: what it is, how its points are evaluated,
//! and why none of them may run. Knows nothing of fronts or tables.

use crate::config::SweepFile;
use crate::config::measured::{Replaced, Value};
use crate::{Error, Progress, Shard};
use serde::{Deserialize, Serialize};
use trinity_config::{Complaint, Document};
use trinity_numeric::hash::Fnv1a;
use trinity_sim::Reason;
#[cfg(not(feature = "threads"))]
use trinity_sim::sweep::BLOCK;
use trinity_sim::sweep::{Accumulator, Headline, SweepPlan, evaluate, headline, plain_unit};

#[cfg(feature = "hwcodec")]
use crate::calibration::Measurements;

/// A sweep to load.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SweepRequest {
    /// A built-in sweep by name, or a path that ends in `.toml`.
    pub sweep: String,
    /// The text of the sweep, where it is no file; `sweep` is then what
    /// messages call it.
    pub text: Option<String>,
    /// `path=value`, each laid over the file in turn.
    pub sets: Vec<String>,
    /// How many of the best points to keep.
    pub top: usize,
}

/// A sweep ready to run.
#[derive(Debug)]
pub struct Study {
    pub name: String,
    pub sets: Vec<String>,
    /// What was measured, where that replaces what was configured.
    #[cfg(feature = "hwcodec")]
    pub measurements: Option<Measurements>,
    /// What the measurements replaced.
    pub replaced: Vec<Replaced>,
    pub document: Document,
    pub file: SweepFile,
    pub plan: SweepPlan,
}

/// What the fronts say.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Answer {
    /// Tokens a second of normalized performance 1.
    pub unit_tokens_per_s: Option<f64>,
    pub headline: Option<Headline>,
}

impl Study {
    /// Reads a sweep and plans it. Fails where the file or a value set over it
    /// is wrong, pointing at it.
    pub fn load(request: &SweepRequest) -> Result<Self, Error> {
        let document = match &request.text {
            Some(text) => Document::parse(&request.sweep, text)?,
            None => Document::load(&request.sweep)?,
        };
        Self::read(request.clone(), document.with(&request.sets)?)
    }

    fn read(request: SweepRequest, document: Document) -> Result<Self, Error> {
        let file: SweepFile = document.checked()?;
        let plan = file.plan(&document, request.top)?;
        let replaced = of_runs(&file, &document)?;
        Ok(Self {
            name: request.sweep,
            sets: request.sets,
            #[cfg(feature = "hwcodec")]
            measurements: None,
            replaced,
            document,
            file,
            plan,
        })
    }

    /// The study with one more value set over its file, and what was measured.
    /// Fails where the value cannot stand there.
    pub fn with(&self, assignment: &str) -> Result<Self, Error> {
        let document = self.document.clone().with(&[assignment])?;
        let sets = self.sets.iter().cloned().chain([assignment.to_owned()]).collect();
        let request = SweepRequest { sweep: self.name.clone(), text: None, sets, top: self.plan.top };
        let study = Self::read(request, document)?;
        #[cfg(feature = "hwcodec")]
        if let Some(measurements) = &self.measurements {
            return study.calibrated(measurements.clone());
        }
        Ok(study)
    }

    /// Identifies the sweep, so that shards of another are noticed.
    pub fn fingerprint(&self) -> String {
        format!("{:016x}", self.plan.fingerprint())
    }

    /// Identifies what a sweep of services depends on: its points, and the requests and promises, which
    /// are in no point of the plan.
    pub fn serving_fingerprint(&self) -> String {
        let mut promises = Fnv1a::default();
        for setting in self.document.settings() {
            if setting.path.starts_with("study.serving.") {
                promises.add(format!("{}={};", setting.path, setting.value).into_bytes());
            }
        }
        format!("{}-{:016x}", self.fingerprint(), promises.finish())
    }

    /// Whether any scenario has the paper's three-in-one codec, as it comes.
    pub fn has_paper_codec(&self) -> bool {
        let set = |scenario: &crate::config::ScenarioFile| {
            scenario.set.iter().any(|set| set.ends_with("codecs/three-in-one"))
        };
        let settings = self.document.settings();
        let from = |source: &str| source.ends_with("codecs/three-in-one.toml");
        self.file.scenarios.iter().any(set) || settings.iter().any(|s| from(&s.place.source.name))
    }

    /// The paper's speed-up and area saving, where the study says them itself.
    /// Who builds a study on a built-in one has not made it the paper's.
    pub fn paper(&self) -> (Option<f64>, Option<f64>) {
        let Some(headline) = &self.file.headline else { return (None, None) };
        let own = |key: &str| !self.name.ends_with(".toml") || self.document.says(&format!("headline.{key}"));
        (
            headline.paper_speedup.filter(|_| own("paper-speedup")).map(|ratio| ratio.get()),
            headline.paper_saving.filter(|_| own("paper-saving")).map(|ratio| ratio.get()),
        )
    }

    /// Reads the headline and the unit of performance off the fronts.
    pub fn answer(&self, accumulated: &Accumulator) -> Answer {
        let headline = self.file.question().and_then(|question| headline(&self.plan, accumulated, &question));
        let unit = headline.map(|h| h.unit_tokens_per_s).or_else(|| plain_unit(&self.plan, accumulated));
        Answer { unit_tokens_per_s: unit, headline }
    }

    /// Evaluates every point. Fails where the work is no longer wanted.
    pub fn accumulate(&self, progress: &dyn Progress) -> Result<Accumulator, Error> {
        let mut accumulated = self.accumulate_shard(Shard::WHOLE, progress)?;
        accumulated.sort();
        Ok(accumulated)
    }

    /// Evaluates the points of one part; parts are merged with
    /// [`Accumulator::merge`] and sorted once. Fails where the work is no
    /// longer wanted.
    pub fn accumulate_shard(&self, part: Shard, progress: &dyn Progress) -> Result<Accumulator, Error> {
        let plan = &self.plan;
        let mut accumulated = Accumulator::new(plan);
        let range = part.range(plan.space.len());
        progress.begin(range.end - range.start, "sweeping");
        let seen = |block| evaluate(plan, block, |_, _, _, _| ());
        let mut take = |block: std::ops::Range<u64>, part: Accumulator| {
            accumulated.merge(plan, &part);
            progress.advance(block.end - block.start);
            progress.check()
        };
        #[cfg(feature = "threads")]
        trinity_sim::sweep::run(
            plan,
            range,
            |block| (seen(block), Vec::new()),
            |block, part, _| take(block, part),
        )?;
        #[cfg(not(feature = "threads"))]
        for start in range.clone().step_by(BLOCK as usize) {
            let block = start..(start + BLOCK).min(range.end);
            take(block.clone(), seen(block))?;
        }
        progress.end();
        Ok(accumulated)
    }

    /// A value of which no point can ever run is a mistake in the file, and
    /// so is a sweep without any point that runs. Fails where no point runs,
    /// pointing at the value that most fail by.
    pub fn refuse_nonsense(&self, accumulated: &Accumulator) -> Result<(), Error> {
        if accumulated.feasible > 0 {
            return Ok(());
        }
        let Some((&reason, _)) = accumulated.rejected.iter().max_by_key(|(_, count)| **count) else {
            return Ok(());
        };
        let path = to_blame(reason);
        let axis = self.file.axes.iter().position(|axis| axis.path == path);
        let place = axis.map_or_else(|| format!("study.{path}"), |at| format!("axes.{at}"));
        let example = (0..self.plan.space.len().min(1_000_000))
            .find_map(|index| {
                let why = self.plan.space.point(index).estimate().err()?;
                (why.reason() == reason).then(|| why.to_string())
            })
            .unwrap_or_else(|| format!("all fail by {reason}"));
        let complaint =
            Complaint::new(format_args!("none of the {} points can run: {example}", accumulated.points))
                .expected("at least one point that runs")
                .help("change this value, or what the message names");
        Err(self.document.complain(&place, &complaint).into())
    }
}

/// What training runs that scenarios name replaced.
pub(crate) fn of_runs(file: &SweepFile, document: &Document) -> Result<Vec<Replaced>, Error> {
    let mut replaced = Vec::new();
    for (at, scenario) in file.scenarios.iter().enumerate() {
        let seen = file.as_seen_by(document, at)?;
        let values = file.of_runs(&seen.document, at, &seen.file.study)?;
        let own =
            |value: &Value| value.replaced(&scenario.name, &seen.document, "study.", value.note.clone());
        replaced.extend(values.iter().map(own));
    }
    Ok(replaced)
}

/// The value of a study that most likely keeps its points from running.
fn to_blame(reason: Reason) -> &'static str {
    match reason {
        Reason::Heads | Reason::KvHeads => "job.parallelism.tensor",
        Reason::Reticle => "cluster.gpu.parts.sms",
        Reason::Clock => "cluster.gpu.parts.clock",
        Reason::Power => "cluster.gpu.power",
        Reason::DieEdge => "cluster.gpu.parts.memory.count",
        Reason::Stages | Reason::Interleave | Reason::ZeroWithPipeline => "job.parallelism.pipeline",
        Reason::NoNic => "cluster.nics-per-gpu",
        Reason::Batch => "job.global-batch",
        Reason::Experts => "job.parallelism.expert",
        Reason::Context => "job.parallelism.context",
        Reason::GpuCount => "cluster.gpus",
        Reason::Memory => "cluster.gpu.memory",
        Reason::NoCodec => "cluster.codec",
        Reason::NoFormat => "job.precision.math",
        _ => "job",
    }
}
