//! What can be wrong with a stream, or with what is asked of the encoder.

/// Everything this crate refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("not a line stream: {what}")]
    NotLine { what: &'static str },
    #[error("the stream ends inside {what}")]
    Truncated { what: &'static str },
    #[error("damaged stream: {what}")]
    Damaged { what: &'static str },
    #[error("damaged tile {tile}: {what}")]
    DamagedTile { tile: usize, what: &'static str },
    #[error("the values do not suit the plan: {what}")]
    Mismatch { what: String },
    #[error("tile {tile} takes {needed} bytes at its coarsest step, more than the budget of {budget}")]
    Budget { tile: usize, needed: usize, budget: usize },
    /// A device that codes in the processor's place gave up.
    #[error("{device}: {reason}")]
    Device { device: String, reason: String },
    #[error("{target} cannot be reached: {reason}")]
    Unreachable { target: String, reason: String },
}

impl From<trinity_bits::Error> for Error {
    fn from(error: trinity_bits::Error) -> Self {
        match error {
            trinity_bits::Error::BadReflection { .. } => Self::Damaged { what: "a reflection out of range" },
            trinity_bits::Error::BadExpGolomb { .. } => Self::Damaged { what: "an integer out of range" },
            _ => Self::Truncated { what: "header" },
        }
    }
}
