//! The one error type of this crate.

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{file}: {reason}")]
    BadFile { file: String, reason: String },
    /// Tensors missing, of another shape, or unknown: all of them at once.
    #[error("{}", list(.0))]
    BadCheckpoint(Vec<Problem>),
    /// A configuration this forward pass does not cover.
    #[error("{file}: {what}")]
    Unsupported { file: String, what: String },
    /// A tensor file that cannot be read: which one, and why.
    #[error("{}", chain(.0))]
    Tensor(#[from] trinity_tensor::Error),
    #[error("the text has {tokens} tokens; a prediction needs at least two")]
    TextTooShort { tokens: usize },
    /// A codec in the loop that failed.
    #[error("{place}: {reason}")]
    Hook { place: String, reason: String },
}

impl Error {
    /// A weight that a codec failed on.
    pub(crate) fn of_weight(name: &str, reason: String) -> Self {
        Self::Hook { place: name.to_owned(), reason }
    }
}

/// An error with all that led to it.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|p| format!("  {p}")).collect();
    let noun = if problems.len() == 1 { "tensor does" } else { "tensors do" };
    format!("{} {noun} not fit the model's configuration:\n{}", problems.len(), lines.join("\n"))
}

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

#[cfg(test)]
mod tests {
    /// What is said of a file of that name with these bytes, and where it was.
    fn said(name: &str, bytes: &[u8]) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        (crate::Checkpoint::open(&path).unwrap_err().to_string(), path.display().to_string())
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_the_reason() {
        // Magic, version 3, a trillion tensors and no metadata.
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(1_000_000_000_000u64.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        let (said, name) = said("lying.gguf", &bytes);
        assert!(said.starts_with(&name) && said.contains("of 1000000000000 tensors announced"), "{said}");
    }

    #[test]
    fn tensors_without_a_configuration_are_said_to_be_no_model() {
        let (said, _) = said("state.pt", b"PK\x03\x04");
        assert!(said.contains("no model") && said.contains("config.json"), "{said}");
    }
}
