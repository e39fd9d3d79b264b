//! How a PyTorch file is refused.

use crate::Error;

pub const FORMAT: &str = "PyTorch";

/// The file is damaged there.
pub fn malformed(offset: u64, problem: impl Into<String>) -> Error {
    Error::Malformed { format: FORMAT, offset, problem: problem.into() }
}

/// The file is sound and asks for what is not done here.
pub fn unsupported(offset: u64, what: impl Into<String>) -> Error {
    Error::Unsupported { format: FORMAT, offset, what: what.into() }
}
