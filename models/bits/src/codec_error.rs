//! What a video codec says when it refuses: one vocabulary for both standards.

use crate::Error;

/// Why a stream could not be decoded or a frame could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The stream asks for a tool this decoder leaves out on purpose.
    #[error("{tool} is not supported (NAL unit {nal} at byte {offset})")]
    Unsupported { tool: &'static str, nal: usize, offset: u64 },
    /// The stream breaks a rule of the standard, or ends early.
    #[error("{what} (NAL unit {nal} at byte {offset})")]
    Invalid { what: String, nal: usize, offset: u64 },
    #[error("no picture in {bytes} bytes: expected Annex B NAL units that start with 00 00 01")]
    NoPicture { bytes: usize },
    /// A frame or a setting that the encoder cannot take.
    #[error("cannot encode: {what}")]
    BadInput { what: String },
}

/// What is wrong inside a NAL unit, before anyone knows which one it was;
/// [`BitstreamError::at`] adds the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BitstreamError {
    /// The data ends early or holds an impossible code.
    Bits(Error),
    /// A rule of the standard is broken.
    Invalid(String),
    /// A tool that is left out on purpose.
    Unsupported(&'static str),
}

impl From<Error> for BitstreamError {
    fn from(error: Error) -> Self {
        Self::Bits(error)
    }
}

/// A broken rule, as the result of whatever found it.
pub fn invalid<T>(what: impl Into<String>) -> Result<T, BitstreamError> {
    Err(BitstreamError::invalid(what))
}

impl BitstreamError {
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// The public error: NAL unit number `nal`, which starts at byte `offset`.
    pub fn at(self, nal: usize, offset: u64) -> CodecError {
        match self {
            Self::Bits(Error::EndOfData { bit }) => CodecError::Invalid {
                what: "the NAL unit ends inside a syntax element".into(),
                nal,
                offset: offset + bit / 8,
            },
            Self::Bits(error) => CodecError::Invalid { what: error.to_string(), nal, offset },
            Self::Invalid(what) => CodecError::Invalid { what, nal, offset },
            Self::Unsupported(tool) => CodecError::Unsupported { tool, nal, offset },
        }
    }
}
