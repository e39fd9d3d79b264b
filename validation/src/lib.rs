//! The truth, and how far each model is from it.
//!
//! Measured runs, published tables and external decoders are held against the
//! simulator, the silicon model and the codecs; the result is an error table
//! for each source, with bars that a regression breaks. Nothing depends on
//! this crate but the command `trinity validate`.
//!
//! ```no_run
//! use trinity_validation::validate::{ValidationRequest, Truth, validate};
//!
//! let outcome = validate(&Truth::read(&ValidationRequest::default())?)?;
//! for line in &outcome.lines {
//!     println!("{}: {:.1} %", line.set, 100.0 * line.stats.mape);
//! }
//! # Ok::<(), trinity_validation::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod astra;
pub mod bars;
pub mod capacity;
pub mod codecs;
pub mod collectives;
mod committed;
pub mod constants;
pub mod csv;
pub mod dies;
pub mod engines;
pub mod errors;
pub mod facts;
pub mod figures;
pub mod fit;
pub mod host_runs;
pub mod kernels;
pub mod language_models;
pub mod modern;
pub mod nodes;
pub mod other_models;
pub mod products;
pub mod runs;
pub mod score;
pub mod serving;
pub mod silicon;
pub mod trained;
pub mod training;
pub mod validate;
pub mod well_known;

/// Why a validation could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Table(#[from] csv::Error),
    #[error(transparent)]
    Host(#[from] trinity_hwcodec::Error),
    #[error(transparent)]
    Config(#[from] trinity_config::Diagnostic),
    #[error("the committed {file} is damaged: {why}")]
    Data { file: &'static str, why: String },
    #[error("the recording of the GPU holds {what}; `trinity measure --compute` makes one that does")]
    Recording { what: &'static str },
    #[error("the published number of `{model}` has nothing beside it: {why}")]
    Model { model: String, why: &'static str },
    #[error("cannot read kernels from `{}`: {why}", folder.display())]
    Kernels { folder: std::path::PathBuf, why: String },
    #[error("`{assignment}` names no calibration; expected a100.…, megatron.…, nanotron.… or links.…")]
    Assignment { assignment: String },
}
