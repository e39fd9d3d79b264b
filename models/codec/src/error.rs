//! The one error type of this crate.

/// Why a matrix could not be encoded or a stream not decoded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{rows} × {cols} values were announced, {found} given")]
    Shape { rows: usize, cols: usize, found: usize },
    #[error(
        "element ({row}, {col}) is {value}: only finite values can be coded with loss; use the lossless profile"
    )]
    NotFinite { row: usize, col: usize, value: f32 },
    #[error("target {what}")]
    BadTarget { what: String },
    #[error("{target} bits per value cannot be met: the smallest stream takes {least:.3} (headers included)")]
    RateUnreachable { target: f64, least: f64 },
    #[error(
        "NMSE {target:.3e} cannot be met: single precision ends at {least:.3e}; use the lossless profile"
    )]
    ErrorUnreachable { target: f64, least: f64 },
    #[error("the stream ends inside its {what}")]
    Truncated { what: &'static str },
    #[error("the stream is damaged: {what}")]
    Damaged { what: &'static str },
    /// Not a stream of this codec, or of a later version.
    #[error("not a Trinity stream: {what}")]
    NotTrinity { what: String },
    /// A tool that is modelled in silicon only, or left out on purpose.
    #[error("{tool} is not supported: {reason}")]
    Unsupported { tool: &'static str, reason: &'static str },
    #[error("H.264: {what}")]
    H264 { what: String },
    /// A basis that is not one, or not the one that is needed.
    #[error("basis: {what}")]
    Basis { what: String },
    #[error("the stream was made with basis {needed:016x}: {given}; give the file it was encoded with")]
    OtherBasis { needed: u64, given: String },
    /// A profile's text that cannot be read or asks for what there is not.
    #[error(transparent)]
    Profile(#[from] trinity_config::Diagnostic),
    #[error("profile `{profile}`: {what}")]
    BadProfile { profile: String, what: String },
}
