//! Frameworks in files: what of a job's communication runs beside compute, how
//! its pipeline is ordered, and whose constants its kernels and hosts have.
//!
//! A job names one; what the file does not state is the calibration's.

use super::job::OverlapFile;
use super::setter::{settable, values};
use super::software::{BUILT_IN, Calibrations};
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{Checked, Cited, Complaint, Diagnostic, Document};

settable! {
    FrameworkFile { calibration, overlap, schedule, interleave }
}

/// Order of micro-batches in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ScheduleName {
    /// One forward, one backward pass, in chunks where the job interleaves.
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// Micro-batches from both ends, each direction's transfers behind the other's compute.
    DualPipe,
}

values!(ScheduleName);

/// What a training framework does beside the arithmetic.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FrameworkFile {
    /// The calibration (`configs/calibrations`) that was fitted on its runs; the
    /// GPU's own where it is not said.
    #[schemars(with = "Option<Cited<String>>")]
    pub calibration: Option<String>,
    /// Share of each communication that may hide behind compute.
    pub overlap: OverlapFile,
    #[schemars(with = "Option<Cited<ScheduleName>>")]
    pub schedule: Option<ScheduleName>,
    /// Whether a stage can hold several chunks of layers; it can where it is not said.
    #[schemars(with = "Option<Cited<bool>>")]
    pub interleave: Option<bool>,
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

    /// Complains about a calibration that is none; `at` leads to this table.
    pub(super) fn check_at(&self, document: &Document, at: &str) -> Result<(), Diagnostic> {
        match self.calibration.as_deref().filter(|name| Calibrations::built_in().of(name).is_none()) {
            Some(name) => Err(document.complain(
                &format!("{at}calibration"),
                &Complaint::new(format_args!("there is no calibration `{name}`"))
                    .expected(format_args!("one of {}", BUILT_IN.join(", "))),
            )),
            None => Ok(()),
        }
    }
}

impl Checked for FrameworkFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        self.check_at(document, "")
    }
}
