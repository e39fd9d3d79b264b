//! The host GPU: what it has, how fast it is, and whether it agrees with us.
//!
//! Discovers engines, decodes on NVDEC, encodes on NVENC, measures copies,
//! kernels and their overlap, fits physical models to the measurements, and
//! writes `calibration.toml`. Nothing is linked: driver libraries are loaded
//! at run time, and a machine without them gets a sentence, not a failure.
//!
//! Must not know the simulator: it hands over numbers with their spread.

pub mod calibration;
pub mod compute;
pub mod discover;
mod error;
pub mod fit;
pub mod gemm;
mod gpu;
mod kernels;
pub mod line;
pub mod measure;
pub mod nvdec;
pub mod nvenc;
pub mod recording;
pub mod software;
pub mod stats;
pub mod streams;
pub mod sys;
pub mod tensor;
pub mod verify;

pub use error::Error;
pub use gpu::{Gpu, driver_present};
