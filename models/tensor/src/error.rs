//! The one error type of this crate.

use std::path::PathBuf;

/// Why a tensor could not be read, written, encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape and a byte count that do not agree.
    #[error("tensor `{name}`: shape {shape:?} of {dtype} takes {expected} bytes, found {found}")]
    SizeMismatch { name: String, shape: Vec<usize>, dtype: crate::Dtype, expected: String, found: u64 },
    /// The operating system refused to read or write.
    #[error("{doing} failed")]
    Io {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// The bytes of a file contradict its format.
    #[error("not a valid {format} file: {problem} (at byte {offset})")]
    Malformed { format: &'static str, offset: u64, problem: String },
    /// The file is valid and asks for something this crate leaves out.
    #[error("{format}: {what} is not supported (at byte {offset})")]
    Unsupported { format: &'static str, offset: u64, what: String },
    /// No reader knows this file.
    #[error(
        "no known tensor format: expected safetensors, a safetensors index, npy, npz, GGUF or .tri (at byte 0)"
    )]
    UnknownFormat,
    /// The named tensor is not in the file.
    #[error("no tensor named `{name}`")]
    NoSuchTensor { name: String },
    /// Two tensors of one set carry one name.
    #[error("two tensors are named `{name}`")]
    DuplicateName { name: String },
    /// An error with the file it came from.
    #[error("{}", path.display())]
    InFile {
        path: PathBuf,
        #[source]
        source: Box<Error>,
    },
}

impl Error {
    /// The same error, with the file it came from.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        Self::InFile { path: path.to_owned(), source: Box::new(self) }
    }

    /// For `map_err`: an I/O error with what was being done.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
