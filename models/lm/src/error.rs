//! The one error type of this crate.

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

/// What is wrong with one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    Missing { name: String, shape: Vec<usize> },
    Shape { name: String, expected: Vec<usize>, found: Vec<usize> },
    Unknown { name: String, nearest: Option<String> },
    Twice { name: String },
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { name, shape } => write!(f, "missing: {name} {shape:?}"),
            Self::Shape { name, expected, found } => {
                write!(f, "shape: {name} is {found:?}, expected {expected:?}")
            }
            Self::Unknown { name, nearest: Some(near) } => write!(f, "unknown: {name}; did you mean {near}?"),
            Self::Unknown { name, nearest: None } => write!(f, "unknown: {name}"),
            Self::Twice { name } => write!(f, "twice: {name}"),
        }
    }
}
