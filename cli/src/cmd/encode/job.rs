//! What an encoding works on, whether it is done in one go or in parts.

use crate::context::Context;
use crate::failure::Failure;
use crate::tensor_files::bad_input;
use std::collections::BTreeMap;
use std::path::Path;
use trinity_study::encode::{Calibration, EncodeRequest, Plan, Work};
use trinity_tensor::TensorFile;
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::Rate;
use trinity_tensor::pipeline::{OnNonFinite, Summary};

/// A tensor file and what is asked of it.
pub struct Job<'a> {
    /// Where the file is, for messages.
    pub path: &'a Path,
    pub file: &'a TensorFile,
    pub request: &'a EncodeRequest<'a>,
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

    pub fn texts(&self) -> Result<BTreeMap<String, String>, Failure> {
        self.file.texts().map_err(|error| bad_input(&self.path.display().to_string(), &error))
    }

    /// Whether the whole takes more bits than were asked for, which is said; an
    /// error where the user is strict.
    pub fn over_target(
        &self,
        bits_per_value: f64,
        tensors: &[Summary],
        ctx: &Context,
    ) -> Result<bool, Failure> {
        let Rate::Bits(asked) = self.request.target else { return Ok(false) };
        if bits_per_value <= asked {
            return Ok(false);
        }
        let exact = tensors.iter().filter(|tensor| tensor.exact.is_some());
        let (kept, values) = exact.fold((0, 0), |(kept, values), tensor| (kept + 1, values + tensor.values));
        let why = match kept {
            0 => String::new(),
            _ => format!("; {kept} of {} tensors, {values} values, are kept exact", tensors.len()),
        };
        let said = format!(
            "{} takes {bits_per_value:.4} bits/value, more than the {asked} asked for{why}",
            self.path.display()
        );
        match self.on_non_finite {
            OnNonFinite::Refuse => {
                Err(Failure::run(said)
                    .help("ask for more bits, or leave --strict out to keep what was reached"))
            }
            OnNonFinite::KeepExact => {
                ctx.remark(format!("warning: {said}"));
                Ok(true)
            }
        }
    }
}
