//! Explorations in files: which codecs could be built, what codes tensors for
//! each, where its silicon's figures come from, and how far each link of the
//! chain was from measurements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trinity_config::{At, Checked, DataRate, Diagnostic, FlopRate, Fraction};

/// What an exploration chooses from.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExplorationFile {
    pub title: String,
    /// A file of `configs/technologies`, for codecs that operations price.
    pub technology: String,
    /// What those codecs are built for.
    pub throughput: DataRate,
    pub candidates: Vec<CandidateFile>,
    /// What training hides behind compute where neither a study nor a calibration states any.
    pub overlap: Option<HiddenFile>,
    #[serde(default)]
    pub certainty: Vec<CertaintyFile>,
    /// Well-known training runs, for the map of where a codec pays.
    #[serde(default)]
    pub landmarks: Vec<LandmarkFile>,
    /// Well-known ways of serving, for the map of where a codec pays.
    #[serde(default)]
    pub workloads: Vec<WorkloadFile>,
}

/// Shares of communication that run beside compute.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HiddenFile {
    pub data: Fraction,
    pub pipeline: Fraction,
}

/// A training run by what decides whether a codec pays.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LandmarkFile {
    pub name: String,
    /// Of each GPU between nodes.
    pub wire: DataRate,
    /// Dense FP16 of each GPU.
    pub rate: FlopRate,
    /// Tokens of a data-parallel rank in a step.
    pub tokens: f64,
}

/// A way of serving by what decides whether a codec pays.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WorkloadFile {
    pub name: String,
    /// Tokens in a sequence.
    pub context: f64,
    /// Sequences of a replica at a time.
    pub concurrency: f64,
}

/// A codec that could be built, or is there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CandidateFile {
    pub name: String,
    /// The tensor codec whose bits it takes.
    pub coder: String,
    /// A file of `configs/codecs`; none where operations price it.
    pub silicon: Option<String>,
    pub origin: OriginName,
    /// By how much, either way, the area may be wrong; not known where it is
    /// not said.
    pub area_factor: Option<f64>,
    /// SMs of the GPU that it occupies, where it is software.
    pub sms: Option<f64>,
}

/// Where the figures of a codec's silicon come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OriginName {
    /// LLM.265 Table 3.
    #[serde(rename = "table-3")]
    #[schemars(rename = "table-3")]
    Table3,
    /// Our RTL, synthesized.
    Synthesis,
    /// Counted stages of open RTL.
    OpenRtl,
    /// Estimated from the operations of its algorithm.
    Operations,
    /// Engines of a GPU, as a paper found them; never measured here.
    Paper,
    /// Kernels on the SMs, measured.
    Software,
    /// A file of `configs/codecs` that the asker put beside a coder.
    Given,
}

impl OriginName {
    /// The origin in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Table3 => "LLM.265 Table 3",
            Self::Synthesis => "synthesized",
            Self::OpenRtl => "stages of open RTL",
            Self::Operations => "estimate from operations",
            Self::Paper => "paper (engines of a GPU)",
            Self::Software => "measured on SMs",
            Self::Given => "as given",
        }
    }
}

/// How far a link of the chain was from measurements.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CertaintyFile {
    pub link: String,
    /// The set of `trinity validate` that says so.
    pub set: String,
    /// Mean absolute error of that set, a fraction.
    pub error: f64,
    /// What it was measured on, in words.
    pub basis: String,
}

impl Checked for ExplorationFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let wrong = self.candidates.iter().enumerate().flat_map(|(k, candidate)| {
            let place = format!("candidates.{k}");
            let twin = self.candidates[..k].iter().any(|other| other.name == candidate.name);
            let unpriced = candidate.silicon.is_none() != (candidate.origin == OriginName::Operations);
            let sms = candidate.sms.is_some() != (candidate.origin == OriginName::Software);
            [
                (twin, "two candidates share this name", "a name of its own"),
                (unpriced, "silicon and origin do not agree", "`silicon`, or origin = \"operations\""),
                (sms, "SMs and origin do not agree", "`sms` together with origin = \"software\""),
            ]
            .into_iter()
            .filter(|(wrong, ..)| *wrong)
            .map(move |(_, what, expected)| (place.clone(), what, expected))
        });
        let factors = self
            .candidates
            .iter()
            .enumerate()
            .filter(|(_, one)| one.area_factor.is_some_and(|factor| !(1.0..1e6).contains(&factor)));
        let factors = factors.map(|(k, _)| {
            (format!("candidates.{k}.area-factor"), "not a factor that an area may be off by", "1 or more")
        });
        let nowhere = |name: &'static str, bad: Vec<usize>, what: &'static str| {
            bad.into_iter().map(move |k| (format!("{name}.{k}"), what, "positive numbers"))
        };
        let far = |values: &[f64]| values.iter().any(|value| !(*value > 0.0 && value.is_finite()));
        let landmarks = self.landmarks.iter().enumerate();
        let landmarks = landmarks
            .filter(|(_, one)| far(&[one.wire.gbit_per_s(), one.rate.flop_per_s(), one.tokens]))
            .map(|(k, _)| k);
        let landmarks = nowhere("landmarks", landmarks.collect(), "a run that is on no map");
        let workloads = self.workloads.iter().enumerate();
        let workloads = workloads.filter(|(_, one)| far(&[one.context, one.concurrency])).map(|(k, _)| k);
        let workloads = nowhere("workloads", workloads.collect(), "a workload that is on no map");
        let all = wrong.chain(factors).chain(landmarks).chain(workloads);
        Diagnostic::gather(all.map(|(place, what, expected)| at.refuse(place, what, expected)))
    }
}
