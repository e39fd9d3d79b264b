//! Shorthand for the commonest flaw of a stream.

use trinity_bits::Flaw;

/// A broken rule, as the result of whatever found it.
pub fn invalid<T>(what: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw::invalid(what))
}
