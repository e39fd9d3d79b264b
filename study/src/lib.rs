//! Studies: what a front end asks, answered in plain data.
//!
//! Stands between the models (tensors, silicon, clusters, the host's GPU, a
//! language model) and whoever shows their answers: a command, a Python
//! module, a page in a browser. Reads configuration into typed studies, runs
//! them, and returns data that serializes.
//!
//! Must not know how an answer is shown: nothing here prints, draws or opens a
//! terminal. Long work reports through [`Progress`], which can also stop it.
//!
//! ```
//! use trinity_study::Silent;
//! use trinity_study::sweep::{SweepRequest, Study, run};
//!
//! let request = SweepRequest { sweep: "sweeps/llama-3-70b-edge".into(), top: 3, ..SweepRequest::default() };
//! let outcome = run(&Study::load(&request)?, &Silent)?;
//! assert_eq!(outcome.top.len(), 3);
//! # Ok::<(), trinity_study::Error>(())
//! ```
#![forbid(unsafe_code)]

mod calibrating;
#[cfg(feature = "hwcodec")]
pub mod calibration;
pub mod compare;
pub mod config;
pub mod encode;
mod error;
pub mod estimate;
pub mod evaluate;
pub mod explore;
pub mod figures;
pub mod measured;
pub mod number;
pub mod origin;
mod parallel;
pub mod price;
mod progress;
mod quality;
pub mod rates;
pub mod search;
pub mod sensitivity;
pub mod serving;
mod shard;
pub mod sheet;
pub mod sweep;
pub mod table;
pub mod tensors;
pub mod trained;
pub mod wire;

pub use config::curves as kernels;
pub use error::Error;
pub use progress::{Progress, Silent};
pub use quality::Quality;
pub use shard::Shard;
