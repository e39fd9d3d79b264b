//! The truth, and how far each model is from it.
//!
//! Measured runs, published tables and external decoders are held against the
//! simulator, the silicon model and the codecs; the result is an error table
//! for each source, with bars that a regression breaks. Nothing depends on
//! this crate but the command `trinity validate`.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod csv;
pub mod fit;
pub mod runs;
pub mod score;
pub mod training;

/// Why a validation could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Table(#[from] csv::Error),
    #[error(transparent)]
    Config(#[from] trinity_config::Diagnostic),
    #[error("`{assignment}` names no calibration; expected a100.… or h100.…")]
    Assignment { assignment: String },
}
