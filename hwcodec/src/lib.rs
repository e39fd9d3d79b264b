//! The host GPU: what it has, how fast it is, and whether it agrees with us.
//!
//! Discovers engines, decodes on NVDEC, encodes on NVENC, measures copies,
//! kernels and their overlap, fits physical models to the measurements, and
//! writes `calibration.toml`. Nothing is linked: driver libraries are loaded
//! at run time, and a machine without them gets a sentence, not a failure.
//!
//! Must not know the simulator: it hands over numbers with their spread.
//!
//! ```no_run
//! use trinity_hwcodec::{calibration::Calibration, recording::Recording};
//!
//! // What was measured on another day, fitted on any machine.
//! let recording = Recording::read("recording.json".as_ref())?;
//! let calibration = Calibration::from_recording(&recording)?;
//! println!("{}: {} decoders", calibration.device_line(), calibration.nvdec.len());
//! # Ok::<(), trinity_hwcodec::Error>(())
//! ```

pub mod calibration;
pub mod compute;
pub mod discover;
mod error;
pub mod fit;
mod gemm;
mod gpu;
mod kernels;
pub mod line;
pub mod measure;
pub mod nvdec;
pub mod nvenc;
mod partition;
pub mod recording;
pub mod software;
mod stats;
pub mod streams;
#[doc(hidden)] // the driver's own functions, for tests that stand in for it
pub mod sys;
pub mod verify;

pub use error::Error;
pub use gpu::{Gpu, driver_present};
pub use stats::Spread;
