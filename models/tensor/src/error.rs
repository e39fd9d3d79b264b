//! The one error type of this crate.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// What keeps a codec from a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LimitingFactor {
    /// Its least rate on this tensor is above the one that was asked for.
    Rate,
    /// Its least error on this tensor is above the one that was asked for.
    Error,
    /// It works to no target of this kind.
    Target,
    /// It takes no tensor of this shape.
    Shape,
}

impl fmt::Display for LimitingFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "it needs more bits",
            Self::Error => "its least error is larger",
            Self::Target => "it works to no such target",
            Self::Shape => "it takes no such shape",
        })
    }
}

/// Why a tensor could not be read, written, encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape and a byte count that do not agree.
    #[error("tensor `{name}`: shape {shape:?} of {dtype} takes {expected} bytes, found {found}")]
    SizeMismatch { name: String, shape: Vec<usize>, dtype: crate::Dtype, expected: String, found: u64 },
    /// The operating system refused to read.
    #[error("{doing} failed")]
    Io { doing: &'static str, source: std::io::Error },
    /// A file could not be written: the disk's doing, or the folder's.
    #[error("{doing} failed")]
    Write { doing: &'static str, source: std::io::Error },
    /// The bytes of a file contradict its format.
    #[error("not a valid {format} file: {problem} (at byte {offset})")]
    Malformed { format: &'static str, offset: u64, problem: String },
    /// The file is valid and asks for something this crate leaves out.
    #[error("{format}: {what} is not supported (at byte {offset})")]
    Unsupported { format: &'static str, offset: u64, what: String },
    /// No reader knows this file.
    #[error(
        "no known tensor format: expected safetensors, a safetensors index, npy, npz, PyTorch .pt, GGUF or .tri (at byte 0)"
    )]
    UnknownFormat,
    #[error("no tensor named `{name}`")]
    NoSuchTensor { name: String },
    #[error("two tensors are named `{name}`")]
    DuplicateName { name: String },
    /// A lossy codec was given a value that has no finite neighbour.
    #[error(
        "tensor `{name}`: value {index} is {value}; lossy codecs need finite values (use a lossless one)"
    )]
    NonFinite { name: String, index: usize, value: f64 },
    #[error("tensor `{name}`: {codec} cannot reach {target}; {reason}")]
    Unreachable {
        name: String,
        codec: String,
        target: String,
        limiting_factor: LimitingFactor,
        reason: Box<str>,
    },
    #[error("no codec named `{name}`; expected one of {known}")]
    UnknownCodec { name: String, known: String },
    /// A codec's profile that cannot be read; the diagnostic says where.
    #[error("codec profile {0}")]
    Profile(Box<trinity_config::Diagnostic>),
    /// A codec's profile that makes no sense.
    #[error("codec profile {}: {problem}", path.display())]
    BadProfile { path: PathBuf, problem: String },
    /// A delta and a file that is not its base.
    #[error("tensor `{name}` has hash {found:016x}, and the delta was made against {needed:016x}")]
    OtherBase { name: String, needed: u64, found: u64 },
    /// Data whose basis was not given.
    #[error("it was coded with basis {needed:016x}, and {given}; give the file it was encoded with")]
    OtherBasis { needed: u64, given: String },
    /// A basis that does not fit.
    #[error("basis: {problem}")]
    Basis { problem: String },
    /// Coded bytes that no encoder wrote.
    #[error("coded data: {problem} (at byte {offset} of the stream)")]
    Corrupt { offset: u64, problem: String },
    #[error("not enough memory for {bytes} bytes")]
    OutOfMemory { bytes: u64 },
    /// Whoever asked no longer wants the answer.
    #[error("stopped before the end")]
    Stopped,
    #[error("{program} failed: {problem}")]
    External { program: String, problem: String },
    /// An error with the tensor it hit.
    #[error("tensor `{name}`")]
    InTensor { name: String, source: Box<Error> },
    /// An error with the file it came from.
    #[error("{}", path.display())]
    InFile { path: PathBuf, source: Box<Error> },
}

impl Error {
    /// The same error, with the file it came from.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        Self::InFile { path: path.to_owned(), source: Box::new(self) }
    }

    /// The bytes of a file contradict its format.
    pub(crate) fn malformed(format: &'static str, offset: u64, problem: impl Into<String>) -> Self {
        Self::Malformed { format, offset, problem: problem.into() }
    }

    /// The file is sound and asks for what is not done here.
    pub(crate) fn unsupported(format: &'static str, offset: u64, what: impl Into<String>) -> Self {
        Self::Unsupported { format, offset, what: what.into() }
    }

    /// There is no more to read.
    pub(crate) fn ended(doing: &'static str) -> Self {
        Self::io(doing)(std::io::ErrorKind::UnexpectedEof.into())
    }

    /// A shape that no memory holds.
    pub(crate) fn too_large(name: &str, shape: &[usize], dtype: crate::Dtype) -> Self {
        let (name, shape, expected) = (name.to_owned(), shape.to_vec(), "more than 2^64".into());
        Self::SizeMismatch { name, shape, dtype, expected, found: 0 }
    }

    /// A codec cannot do what the target asks of the tensor of that name.
    pub(crate) fn unreachable(
        name: &str,
        codec: String,
        target: impl ToString,
        limiting_factor: LimitingFactor,
        reason: impl Into<Box<str>>,
    ) -> Self {
        let (name, target, reason) = (name.to_owned(), target.to_string(), reason.into());
        Self::Unreachable { name, codec, target, limiting_factor, reason }
    }

    pub(crate) fn corrupt(offset: usize, problem: impl Into<String>) -> Self {
        Self::Corrupt { offset: offset as u64, problem: problem.into() }
    }

    /// The error itself, without the files and tensors around it.
    pub fn root(&self) -> &Self {
        match self {
            Self::InTensor { source, .. } | Self::InFile { source, .. } => source.root(),
            other => other,
        }
    }

    /// The same error about a part of a tensor, with positions in the whole.
    pub(crate) fn shifted(self, by: usize) -> Self {
        match self {
            Self::NonFinite { name, index, value } => Self::NonFinite { name, index: index + by, value },
            other => other,
        }
    }

    /// For `map_err`: a failed write with what was being written.
    pub(crate) fn write(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Write { doing, source }
    }

    /// What the operating system said, where a file could not be written.
    pub fn write_failure(&self) -> Option<&std::io::Error> {
        match self {
            Self::Write { source, .. } => Some(source),
            Self::InTensor { source, .. } | Self::InFile { source, .. } => source.write_failure(),
            _ => None,
        }
    }

    /// For `map_err`: an I/O error with what was being done.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
