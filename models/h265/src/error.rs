//! The one error type of this crate.

/// Why a stream could not be decoded or a frame could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream asks for a tool this decoder leaves out on purpose.
    #[error("{tool} is not supported (NAL unit {nal} at byte {offset})")]
    Unsupported { tool: &'static str, nal: usize, offset: u64 },
    /// The stream breaks a rule of the standard, or ends early.
    #[error("{what} (NAL unit {nal} at byte {offset})")]
    Invalid { what: String, nal: usize, offset: u64 },
    /// The byte stream holds no picture.
    #[error("no H.265 picture in {bytes} bytes: expected Annex B NAL units that start with 00 00 01")]
    NoPicture { bytes: usize },
    /// What the encoder was asked for cannot be coded.
    #[error("cannot encode: {what}")]
    Encode { what: String },
    /// Bits or a frame that make no sense.
    #[error(transparent)]
    Coding(#[from] trinity_coding::Error),
}
