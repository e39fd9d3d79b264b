//! Shorthand for the commonest bitstream error of a stream.

use trinity_bits::BitstreamError;

/// A broken rule, as the result of whatever found it.
pub fn invalid<T>(what: impl Into<String>) -> Result<T, BitstreamError> {
    Err(BitstreamError::invalid(what))
}
