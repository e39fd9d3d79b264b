//! The one error type of this crate.

use crate::checkpoint::Problem;

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the checkpoint that cannot be read or understood.
    #[error("{file}: {reason}")]
    BadFile { file: String, reason: String },
    /// Tensors missing, of another shape, or unknown: all of them at once.
    #[error("{}", list(.0))]
    BadCheckpoint(Vec<Problem>),
    /// A configuration this forward pass does not cover.
    #[error("{file}: {what}")]
    Unsupported { file: String, what: String },
    /// A tensor file that cannot be read.
    #[error(transparent)]
    Tensor(#[from] trinity_tensor::Error),
    /// Text that is too short to predict anything.
    #[error("the text has {tokens} tokens; a prediction needs at least two")]
    TextTooShort { tokens: usize },
    /// A codec in the loop that failed.
    #[error("{place}: {reason}")]
    Hook { place: String, reason: String },
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|p| format!("  {p}")).collect();
    let noun = if problems.len() == 1 { "tensor does" } else { "tensors do" };
    format!("{} {noun} not fit the model's configuration:\n{}", problems.len(), lines.join("\n"))
}
