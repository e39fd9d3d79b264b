//! A sweep loaded and planned, and what is asked of it as a whole.

use crate::Error;
use crate::config::{AssumptionFile, SweepFile};
use serde::Serialize;
use trinity_config::{Checked, Complaint, Document};
use trinity_sim::sweep::{Headline, Plan, Tally, evaluate, headline, plain_unit};

#[cfg(feature = "hwcodec")]
use crate::calibration::Measurements;

/// Points up to which every assumption of a sweep is varied.
const SENSITIVITY_POINTS: u64 = 200_000;

/// One value that a measurement replaced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replaced {
    pub scenario: String,
    pub path: String,
    /// As the configuration had it.
    pub before: String,
    pub value: String,
    /// Device, driver, date and spread.
    pub source: String,
}

/// A sweep to load.
#[derive(Debug, Clone)]
pub struct Request {
    /// A built-in sweep by name, or a path that ends in `.toml`.
    pub sweep: String,
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
    pub plan: Plan,
}

/// What the fronts say.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Answer {
    /// Tokens a second of normalized performance 1.
    pub unit_tokens_per_s: Option<f64>,
    pub headline: Option<Headline>,
}

/// The headline with one assumption at each end of its range.
#[derive(Debug, Clone)]
pub struct Sensitivity {
    pub assumption: AssumptionFile,
    /// Speed-up and area saving at the low and the high value.
    pub low: (Option<f64>, Option<f64>),
    pub high: (Option<f64>, Option<f64>),
}

impl Study {
    /// Reads a sweep and plans it.
    ///
    /// # Errors
    ///
    /// Where the file or a value set over it is wrong, pointing at it.
    pub fn load(request: &Request) -> Result<Self, Error> {
        let mut document = Document::load(&request.sweep)?;
        for assignment in &request.sets {
            document.set(assignment)?;
        }
        let file: SweepFile = document.read()?;
        file.check(&document)?;
        let plan = file.plan(&document, request.top)?;
        Ok(Self {
            name: request.sweep.clone(),
            sets: request.sets.clone(),
            #[cfg(feature = "hwcodec")]
            measurements: None,
            replaced: Vec::new(),
            document,
            file,
            plan,
        })
    }

    /// Identifies the sweep, so that shards of another are noticed.
    pub fn fingerprint(&self) -> String {
        format!("{:016x}", self.plan.fingerprint())
    }

    /// Whether any scenario has a codec.
    pub fn has_codec(&self) -> bool {
        self.plan.space.scenarios().iter().any(|scenario| scenario.base.cluster.codecs_per_gpu > 0.0)
    }

    /// Reads the headline and the unit of performance off the fronts.
    pub fn answer(&self, tally: &Tally) -> Answer {
        let headline = self.file.question().and_then(|question| headline(&self.plan, tally, &question));
        let unit = headline.map(|h| h.unit_tokens_per_s).or_else(|| plain_unit(&self.plan, tally));
        Answer { unit_tokens_per_s: unit, headline }
    }

    /// Runs the sweep again with each assumption at either end.
    pub fn sensitivity(&self) -> Vec<Sensitivity> {
        if self.plan.space.len() > SENSITIVITY_POINTS || self.file.headline.is_none() {
            return Vec::new();
        }
        let at = |assignment: String| {
            let mut sets = self.sets.clone();
            sets.push(assignment);
            let Ok(study) = self.again(sets) else { return (None, None) };
            let tally = study.evaluate_all();
            let headline = study.answer(&tally).headline;
            (headline.and_then(|h| h.speedup()), headline.and_then(|h| h.saving()))
        };
        let vary = |assumption: &AssumptionFile| Sensitivity {
            low: at(format!("study.{}={}", assumption.path, assumption.low)),
            high: at(format!("study.{}={}", assumption.path, assumption.high)),
            assumption: assumption.clone(),
        };
        crate::parallel::map(&self.file.assumptions, vary)
    }

    /// The same sweep with other values set over it, and what was measured.
    fn again(&self, sets: Vec<String>) -> Result<Self, Error> {
        let study = Self::load(&Request { sweep: self.name.clone(), sets, top: 0 })?;
        #[cfg(feature = "hwcodec")]
        if let Some(measurements) = &self.measurements {
            return study.calibrated(measurements.clone());
        }
        Ok(study)
    }

    fn evaluate_all(&self) -> Tally {
        let mut tally = evaluate(&self.plan, 0..self.plan.space.len(), |_, _, _, _| ());
        tally.sort();
        tally
    }

    /// A value of which no point can ever run is a mistake in the file, and
    /// so is a sweep without any point that runs.
    pub fn refuse_nonsense(&self, tally: &Tally) -> Result<(), Error> {
        if tally.feasible > 0 {
            return Ok(());
        }
        let Some((reason, _)) = tally.rejected.iter().max_by_key(|(_, count)| **count) else {
            return Ok(());
        };
        let path = match reason.as_str() {
            "heads" | "KV heads" => "job.parallelism.tensor",
            "stages" | "interleave" | "ZeRO-3 with pipeline" => "job.parallelism.pipeline",
            "no NIC" => "cluster.nics-per-gpu",
            "batch" => "job.global-batch",
            "experts" => "job.parallelism.expert",
            "context" => "job.parallelism.context",
            "GPU count" => "cluster.gpus",
            "memory" => "cluster.gpu.memory",
            "no codec" => "cluster.codec",
            _ => "job",
        };
        let axis = self.file.axes.iter().position(|axis| axis.path == path);
        let place = axis.map_or_else(|| format!("study.{path}"), |at| format!("axes.{at}"));
        let example = (0..self.plan.space.len().min(1_000_000))
            .find_map(|index| {
                let why = self.plan.space.point(index).estimate().err()?;
                (why.reason() == reason).then(|| why.to_string())
            })
            .unwrap_or_else(|| format!("all fail by {reason}"));
        let complaint =
            Complaint::new(format_args!("none of the {} points can run: {example}", tally.points))
                .expected("at least one point that runs")
                .help("change this value, or what the message names");
        Err(self.document.complain(&place, &complaint).into())
    }
}
