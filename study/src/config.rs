//! Clusters and jobs as people write them, turned into the model's plain data.
//!
//! Each file type mirrors one folder of `configs/`; units and sources are the
//! configuration crate's business. Nothing here computes: a value is either
//! copied, converted between units, or looked up in the silicon model.

mod codec;
mod designs;
mod exploration;
mod figures;
mod hardware;
mod job;
mod llm;
mod names;
mod parts;
mod profile;
mod serving;
mod setter;
mod stages;
mod sweep;
mod technology;

pub use codec::{BlockFile, CodecFile};
pub use designs::{Design, DesignsFile};
pub use exploration::{CandidateFile, CertaintyFile, ExplorationFile, OriginName};
pub use figures::{FigureFile, FiguresFile, VerdictName};
pub use hardware::{ClusterFile, GpuFile, NetworkFile, NicFile, TierFile};
pub use job::{CompressionFile, JobFile, OverlapFile, ParallelismFile, PrecisionFile};
pub use llm::{LlmFile, MoeFile};
pub use parts::{Derived, GpuModelName, L2File, LinksFile, MemoryFile, PartsFile, SmFile, derived};
pub use profile::ProfileFile;
pub use serving::{DistributionName, LengthsFile, ServingFile};
use setter::settable;
pub use setter::{Settable, Setter};
pub use sweep::{
    AssumptionFile, AxisFile, CrossoverFile, HeadlineFile, Replacement, Scalar, ScenarioFile, SweepFile,
};
pub use technology::TechnologyFile;

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{Checked, Complaint, Diagnostic, Document, Kind};
use trinity_sim::sweep::Point;
use trinity_sim::{Cluster, Job};

settable! {
    StudyFile { cluster, job, serving }
}

/// A cluster and what it runs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StudyFile {
    pub cluster: ClusterFile,
    pub job: JobFile,
    /// Requests that arrive and what they are promised, where the study serves.
    pub serving: Option<ServingFile>,
}

impl StudyFile {
    /// The model's view. Where the cluster does not say how many GPUs it has,
    /// it has as many as the job uses.
    pub fn resolve(&self) -> (Cluster, Job) {
        let job = self.job.resolve();
        let used = u32::try_from(job.parallelism.gpus()).unwrap_or(u32::MAX);
        (self.cluster.resolve(used), job)
    }
}

impl StudyFile {
    /// The study as one point of a sweep.
    pub fn point(&self) -> Point {
        let (cluster, job) = self.resolve();
        let mut point = Point {
            cluster,
            job,
            gpus_as_used: self.cluster.gpus.is_none(),
            replica_batch: self.job.replica_batch.unwrap_or(0),
        };
        point.settle();
        point
    }
}

impl Checked for StudyFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        self.check_at(document, "")
    }
}

impl StudyFile {
    /// Complains about what no field shows alone; `at` leads to this table.
    pub fn check_at(&self, document: &Document, at: &str) -> Result<(), Diagnostic> {
        Diagnostic::gather([
            self.cluster.check_at(document, &format!("{at}cluster.")),
            self.job.check_at(document, &format!("{at}job.")),
            self.serving
                .as_ref()
                .map_or(Ok(()), |serving| serving.check_at(document, &format!("{at}serving."))),
        ])
    }
}

/// Complains about each of `values` that is not a positive number.
fn positive(document: &Document, at: &str, values: &[(&str, f64)]) -> Result<(), Diagnostic> {
    let wrong = values.iter().filter(|(_, value)| !(*value > 0.0 && value.is_finite()));
    Diagnostic::gather(wrong.map(|(key, value)| {
        Err(document.complain(
            &format!("{at}{key}"),
            &Complaint::new(format_args!("`{key}` is {value}")).expected("more than zero"),
        ))
    }))
}

/// The kinds of configuration this crate reads.
pub const KINDS: &[Kind] = &[
    Kind::of::<GpuFile>("gpus", "a GPU"),
    Kind::of::<NicFile>("nics", "a network interface"),
    Kind::of::<CodecFile>("codecs", "a codec in silicon"),
    Kind::of::<LlmFile>("llms", "a language model"),
    Kind::of::<ClusterFile>("clusters", "a cluster of GPUs"),
    Kind::of::<SweepFile>("sweeps", "a sweep"),
    Kind::of::<ProfileFile>("profiles", "a codec in software"),
    Kind::of::<DesignsFile>("designs", "alternatives for each stage of a codec"),
    Kind::of::<FiguresFile>("figures", "the figures of a paper, judged"),
    Kind::of::<ExplorationFile>("explorations", "codecs to choose from"),
    Kind::of::<TechnologyFile>("technologies", "what gates and bits cost at a node"),
];
