//! The one error type of this crate, and the placeless fault inside it.

/// Why a stream could not be decoded or a frame not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A syntax element with a value the standard forbids, or data that ends too soon.
    #[error("{what} (NAL unit {nal} at byte {offset})")]
    Invalid { what: String, nal: usize, offset: u64 },
    /// The stream asks for a tool this decoder leaves out on purpose.
    #[error("{tool} is not supported (NAL unit {nal} at byte {offset})")]
    Unsupported { tool: &'static str, nal: usize, offset: u64 },
    /// A stream without any coded picture.
    #[error("no coded picture in {bytes} bytes of Annex B stream")]
    NoPicture { bytes: usize },
    /// A frame or a setting the encoder cannot take.
    #[error("{what}")]
    BadInput { what: String },
}

/// What went wrong inside one NAL unit; [`Error`] adds the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Invalid(String),
    Unsupported(&'static str),
}

impl Fault {
    pub(crate) fn at(self, nal: usize, offset: usize) -> Error {
        let offset = offset as u64;
        match self {
            Fault::Invalid(what) => Error::Invalid { what, nal, offset },
            Fault::Unsupported(tool) => Error::Unsupported { tool, nal, offset },
        }
    }
}

impl From<trinity_coding::Error> for Fault {
    fn from(error: trinity_coding::Error) -> Self {
        Fault::Invalid(error.to_string())
    }
}

/// Shorthand for the commonest fault.
pub(crate) fn invalid<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Invalid(what.into()))
}
