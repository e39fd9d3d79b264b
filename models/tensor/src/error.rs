//! The one error type of this crate.

/// Why a tensor could not be read, written, encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape and a byte count that do not agree.
    #[error("tensor `{name}`: shape {shape:?} of {dtype} takes {expected} bytes, found {found}")]
    SizeMismatch { name: String, shape: Vec<usize>, dtype: crate::Dtype, expected: String, found: u64 },
}
