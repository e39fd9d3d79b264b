//! What an encoding works on, whether it is done in one go or in parts.

use std::path::Path;
use trinity_study::encode::{Calibration, Plan, Request, Work};
use trinity_tensor::TensorFile;
use trinity_tensor::allocate::Allocation;
use trinity_tensor::pipeline::OnNonFinite;

/// A tensor file and what is asked of it.
pub struct Job<'a> {
    /// Where the file is, for messages.
    pub path: &'a Path,
    pub file: &'a TensorFile,
    pub request: &'a Request<'a>,
    pub plan: &'a Plan,
    pub calibration: &'a Calibration,
    /// The text, or file, that the calibration is from.
    pub calibrated_on: Option<&'a Path>,
    pub allocation: Allocation,
    pub on_non_finite: OnNonFinite,
}

impl<'a> Job<'a> {
    /// All of it, everything measured.
    pub fn work(&self) -> Work<'a> {
        Work {
            calibration: Some(self.calibration),
            basis: self.request.basis,
            on_non_finite: self.on_non_finite,
            ..Work::new(self.file, self.plan)
        }
    }
}
