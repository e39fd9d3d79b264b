//! A cluster and what it runs, read from a file and turned into the model's
//! plain data.

use super::hardware::ClusterFile;
use super::job::JobFile;
use super::serving::ServingFile;
use super::setter::settable;
use super::software::Calibrations;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Complaint, Diagnostic};
use trinity_sim::sweep::Point;
use trinity_sim::{Cluster, Job, Math, Overlap, Phase};

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
        self.resolve_with(Calibrations::built_in())
    }

    /// [`StudyFile::resolve`] with other calibrations than the built-in ones.
    /// Every front end and `trinity validate` come through here, so that what
    /// answers is what was checked.
    pub fn resolve_with(&self, calibrations: &Calibrations) -> (Cluster, Job) {
        let calibration = self.calibration().and_then(|name| calibrations.of(name));
        let job = self.job.resolve(calibration.map_or(Overlap::NONE, |calibration| calibration.overlap()));
        let used = u32::try_from(job.parallelism.gpus()).unwrap_or(u32::MAX);
        let mut cluster = self.cluster.resolve(used);
        if let Some(calibration) = calibration {
            let wide = matches!(job.precision.math, Math::Fp32 | Math::Fp16);
            self.cluster.calibrate(calibration, &mut cluster, wide);
        }
        (cluster, job)
    }

    /// Name of the calibration that answers; none where a job does not train.
    pub fn calibration(&self) -> Option<&str> {
        let training = self.job.phase.resolve() == Phase::Training;
        self.cluster.calibration(self.job.framework.as_ref()).filter(|_| training)
    }

    /// The study as one point of a sweep.
    pub fn point(&self) -> Point {
        let (cluster, job) = self.resolve();
        let mut point = Point {
            cluster,
            job,
            gpus_as_used: self.cluster.gpus.is_none(),
            replica_batch: self.job.replica_batch.unwrap_or(0),
            microbatch_follows: self.job.microbatch_follows(),
            search: self.job.search(),
        };
        point.settle();
        point
    }

    /// A layout can be chosen where the GPUs are counted and a step is timed.
    fn check_choice(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        if !self.job.search().cuts() {
            return Ok(());
        }
        let complain = |complaint: Complaint| Err(at.complain("job.parallelism", &complaint));
        if self.cluster.gpus.is_none() {
            return complain(
                Complaint::new("the best parallelism of how many GPUs?")
                    .expected("a number of GPUs in the cluster")
                    .help("state the cluster's `gpus`, such as `--set cluster.gpus=64`"),
            );
        }
        if self.serving.is_some() {
            return complain(
                Complaint::new("a service states how its engines are cut")
                    .expected("a table of `tensor`, `pipeline`, …")
                    .help("vary `job.parallelism.tensor` as an axis instead"),
            );
        }
        Ok(())
    }
}

impl Checked for StudyFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let cluster = at.table("cluster");
        Diagnostic::gather([
            self.check_choice(at),
            self.cluster.check_site(&cluster, self.job.framework.as_ref()),
            self.cluster.check_members(&cluster),
            self.job.check_at(&at.table("job")),
            self.serving.as_ref().map_or(Ok(()), |serving| serving.check_at(&at.table("serving"))),
        ])
    }
}
