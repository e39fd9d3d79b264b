//! What is wrong inside a NAL unit, before anyone knows which one it was.

use crate::Error;

/// A reason to refuse a piece of syntax; [`Flaw::at`] adds the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The data ends early or holds an impossible code.
    Bits(trinity_coding::Error),
    /// A rule of the standard is broken.
    Invalid(String),
    /// A tool that is left out on purpose.
    Unsupported(&'static str),
}

impl From<trinity_coding::Error> for Flaw {
    fn from(error: trinity_coding::Error) -> Self {
        Self::Bits(error)
    }
}

impl Flaw {
    /// A broken rule.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// The public error: NAL unit number `nal`, which starts at byte `offset`.
    pub fn at(self, nal: usize, offset: u64) -> Error {
        match self {
            Self::Bits(trinity_coding::Error::EndOfData { bit }) => Error::Invalid {
                what: "the NAL unit ends inside a syntax element".into(),
                nal,
                offset: offset + bit / 8,
            },
            Self::Bits(error) => Error::Invalid { what: error.to_string(), nal, offset },
            Self::Invalid(what) => Error::Invalid { what, nal, offset },
            Self::Unsupported(tool) => Error::Unsupported { tool, nal, offset },
        }
    }
}

/// Fails unless `value` lies in `range`, naming the syntax element.
pub(super) fn in_range<T: PartialOrd + std::fmt::Display + Copy>(
    name: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, Flaw> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(Flaw::Invalid(format!("{name} is {value}, outside {} to {}", range.start(), range.end())))
    }
}
