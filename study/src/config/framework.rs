//! Frameworks in files: what of a job's communication runs beside compute, how
//! its pipeline is ordered, and whose constants its kernels and hosts have.
//!
//! A job names one; what neither states is the calibration's, or mixed precision
//! without sharding.

use super::names::{RecomputeName, names};
use super::overlap::OverlapFile;
use super::setter::settable;
use super::software::{BUILT_IN, Calibrations};
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Diagnostic};

settable! {
    FrameworkFile { calibration, overlap, schedule, interleave, zero, recompute, precision }
    StatesFile { gradients, gradient_reduce, optimizer_bytes }
}

names! {
    /// Order of micro-batches in a pipeline.
    ScheduleName {
        /// One forward, one backward pass, in chunks where the job interleaves.
        #[serde(rename = "1f1b")]
        OneFOneB,
        /// Micro-batches from both ends, each direction's transfers behind the other's compute.
        DualPipe,
    }
}

/// What a training framework does beside the arithmetic.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FrameworkFile {
    /// The calibration (`configs/calibrations`) that was fitted on its runs; the
    /// GPU's own where it is not said.
    pub calibration: Option<String>,
    /// Share of each communication that may hide behind compute.
    pub overlap: OverlapFile,
    pub schedule: Option<ScheduleName>,
    /// Whether a stage can hold several chunks of layers; it can where it is not said.
    pub interleave: Option<bool>,
    /// What data-parallel ranks share out where a job does not say, 0 to 3.
    pub zero: Option<u8>,
    /// What is recomputed where a job does not say.
    pub recompute: Option<RecomputeName>,
    /// Formats of what a step keeps beside the weights, where a job does not say.
    pub precision: StatesFile,
}

/// Formats of gradients and of the optimizer's states; mixed precision where it
/// is not said.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StatesFile {
    /// Gradients in memory, bits.
    pub gradients: Option<f64>,
    /// Gradients on the wire, bits.
    pub gradient_reduce: Option<f64>,
    /// Bytes a parameter.
    pub optimizer_bytes: Option<f64>,
}

impl FrameworkFile {
    /// Whether stages hold one chunk of layers each, whatever a job would like.
    pub fn one_chunk(&self) -> bool {
        self.interleave == Some(false) || self.both_ways()
    }

    /// Whether micro-batches enter the pipeline at both ends.
    pub fn both_ways(&self) -> bool {
        self.schedule == Some(ScheduleName::DualPipe)
    }
}

impl Checked for FrameworkFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let named = self.calibration.as_deref();
        let calibration = named.map(|name| Calibrations::check(name, at, &BUILT_IN.join(", ")));
        let states = &self.precision;
        let positive = at.positive(&[
            ("precision.gradients", states.gradients.unwrap_or(1.0)),
            ("precision.gradient-reduce", states.gradient_reduce.unwrap_or(1.0)),
        ]);
        let zero = super::layout::check_zero(at, self.zero);
        Diagnostic::gather(calibration.into_iter().chain([positive, zero]))
    }
}
