//! Why a study cannot be read or run.

use trinity_config::Diagnostic;

/// What a study ends in where it has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration is wrong; the diagnostic says where it was written.
    #[error(transparent)]
    Config(#[from] Diagnostic),
    /// What was asked for does not exist or contradicts itself.
    #[error("{message}")]
    Input {
        message: String,
        /// What to do about it.
        help: String,
    },
    /// A tensor, a codec or a rate that the tensor library refuses.
    #[error("{subject}: {error}")]
    Tensor {
        /// The tensor or codec at fault.
        subject: String,
        #[source]
        error: trinity_tensor::Error,
    },
    /// A checkpoint or a text that the language model refuses.
    #[error(transparent)]
    Model(#[from] trinity_lm::Error),
    /// A calibration that cannot be read.
    #[cfg(feature = "hwcodec")]
    #[error(transparent)]
    Calibration(#[from] trinity_hwcodec::Error),
    /// A job that cannot run on its cluster.
    #[error("this cannot run: {0}")]
    CannotRun(trinity_sim::Infeasible),
    /// A point of a sweep that cannot run.
    #[error("point {index} cannot run: {why}")]
    Infeasible { index: u64, why: trinity_sim::Infeasible },
    /// Whoever asked no longer wants the answer.
    #[error("stopped before the end")]
    Cancelled,
}

impl Error {
    pub(crate) fn input(message: impl ToString, help: impl ToString) -> Self {
        Self::Input { message: message.to_string(), help: help.to_string() }
    }

    pub(crate) fn unreadable(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::input(format_args!("cannot read {}: {error}", path.display()), "")
    }

    /// What to do about it, where that is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Config(diagnostic) => diagnostic.help.as_deref(),
            Self::Input { help, .. } => Some(help.as_str()).filter(|help| !help.is_empty()),
            #[cfg(feature = "hwcodec")]
            Self::Calibration(_) => Some("`trinity measure` writes a calibration on a machine with a GPU"),
            _ => None,
        }
    }
}
