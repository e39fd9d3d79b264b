//! One cluster, one job: what it costs.
//!
//! The smallest study: no axes, no scenarios. A front end that lets somebody
//! turn one knob at a time asks this.

use crate::Error;
use crate::config::StudyFile;
use crate::measured::{Question, Quoted, quote};
use serde::{Deserialize, Serialize};
use trinity_config::Document;
use trinity_sim::sweep::Point;
use trinity_sim::{Estimate, Line};

/// Where a cluster or a job is described.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A built-in configuration by name, or a path that ends in `.toml`.
    Named(String),
    /// TOML that is no file; `name` is what messages call it.
    Text { name: String, text: String },
    /// The cluster or the job of a sweep, by the sweep's name or path.
    OfSweep(String),
}

impl Part {
    fn document(&self, key: &str) -> Result<Document, Error> {
        match self {
            Self::Named(name) => Ok(Document::load(name)?),
            Self::Text { name, text } => Ok(Document::parse(name, text)?),
            Self::OfSweep(name) => {
                let path = format!("study.{key}");
                Document::load(name)?.table(&path).ok_or_else(|| {
                    Error::input(format_args!("`{name}` has no table `{path}`"), "name a sweep")
                })
            }
        }
    }
}

/// A cluster, what it runs, and what is changed in either.
#[derive(Debug, Clone, Deserialize)]
pub struct EstimateRequest {
    pub cluster: Part,
    pub job: Part,
    /// `cluster.PATH=VALUE` or `job.PATH=VALUE`, each laid over in turn.
    pub overrides: Vec<String>,
}

/// What it costs, line by line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimateOutcome {
    pub estimate: Estimate,
    pub lines: Vec<Line>,
    /// How far measured runs like this one were from their estimates.
    pub error: Quoted,
}

/// A cluster and a job that were read, ready to be estimated.
#[derive(Debug, Clone)]
pub struct Study {
    pub document: Document,
    pub file: StudyFile,
    pub point: Point,
}

impl Study {
    /// Reads both parts and lays the overrides over them. Fails where a part or
    /// an override is wrong, pointing at it.
    pub fn load(request: &EstimateRequest) -> Result<Self, Error> {
        let parts =
            [("cluster", request.cluster.document("cluster")?), ("job", request.job.document("job")?)];
        let document = Document::compose("cluster and job", parts).with(&request.overrides)?;
        let file: StudyFile = document.checked()?;
        let point = file.point();
        Ok(Self { document, file, point })
    }

    /// What the job costs on the cluster. Fails where the job cannot run on the
    /// cluster.
    pub fn outcome(&self) -> Result<EstimateOutcome, Error> {
        let (estimate, lines) = trinity_sim::explain(&self.point).map_err(Error::CannotRun)?;
        let job = match estimate.chosen {
            Some(layout) => layout.apply(&self.point.job, self.point.replica_batch),
            None => self.point.job,
        };
        let error = quote(Question::of(&self.file, &job).as_ref());
        Ok(EstimateOutcome { estimate, lines, error })
    }
}

/// What the job costs on the cluster. Fails where a configuration is wrong or
/// the job cannot run on the cluster.
pub fn estimate(request: &EstimateRequest) -> Result<EstimateOutcome, Error> {
    Study::load(request)?.outcome()
}
