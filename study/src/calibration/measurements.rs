//! A calibration as it was read.

use crate::Error;
use crate::trained::{Runs, is_summary, read_summary};
use std::path::{Path, PathBuf};
use trinity_hwcodec::calibration::Calibration;

/// A calibration and the file it was read from.
#[derive(Debug, Clone)]
pub struct Measurements {
    pub path: PathBuf,
    pub readings: Readings,
}

/// What was measured.
#[derive(Debug, Clone)]
pub enum Readings {
    /// A GPU, by `trinity measure`.
    Device(Box<Calibration>),
    /// A training run: the bits that it sent, and how fast it coded.
    Training(Runs),
}

impl Measurements {
    /// Reads a `calibration.toml` of `trinity measure`, or the `summary.json`
    /// of a training run. Fails where the file cannot be read or is neither.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let readings = if is_summary(path) {
            Readings::Training(read_summary(path)?)
        } else {
            Readings::Device(Box::new(Calibration::read(path)?))
        };
        Ok(Self { path: path.to_path_buf(), readings })
    }
    /// Where a value is from, for reports.
    pub(super) fn source(&self, note: &str) -> String {
        match &self.readings {
            Readings::Device(calibration) => format!("measured {}: {note}", calibration.device_line()),
            Readings::Training(_) => note.to_owned(),
        }
    }
}
