//! A calibration as it was read.

use crate::Error;
use std::path::{Path, PathBuf};
use trinity_hwcodec::calibration::Calibration;

/// A calibration and the file it was read from.
#[derive(Debug, Clone)]
pub struct Measurements {
    pub path: PathBuf,
    pub calibration: Calibration,
}

impl Measurements {
    /// Reads a `calibration.toml` of `trinity measure`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or is no calibration.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_path_buf(), calibration: Calibration::read(path)? })
    }
}
