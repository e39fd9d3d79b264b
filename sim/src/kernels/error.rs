//! Why a time is not known.

use super::kind::Kind;

/// Why a kernel's time is not known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody measured this kind of kernel in this format on the GPU.
    #[error("{kind} was never measured on {gpu}; measured: {measured}")]
    NotMeasured { kind: Kind, gpu: String, measured: String },
    /// A size that no kernel has.
    #[error("{what} of {value} is not a size a kernel can have")]
    Size { what: &'static str, value: f64 },
    /// What was read is no curve.
    #[error("the curve of {kind} is damaged: {why}")]
    Damaged { kind: Kind, why: String },
}
