//! Why a figure cannot be judged.

/// Why a figure cannot be judged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The output has no number there.
    #[error("no number at `{path}`")]
    NoCell { path: String },
    /// A path that cannot be read.
    #[error("`{path}` is no path to a cell: {why}")]
    BadPath { path: String, why: String },
    /// A cell that neither the run nor the recording has.
    #[error("there is no cell `{name}`")]
    Missing { name: String },
    /// Two cells without a row in common.
    #[error("two cells have no row in common")]
    NoPair,
    /// The committed recordings cannot be read.
    #[error("the recordings are damaged: {why}")]
    Damaged { why: String },
}
