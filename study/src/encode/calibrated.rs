//! What a text says of a model's weights before a file of them is encoded.
//!
//! Joins a language model, which knows what its linear layers read, with the
//! tensors of its file; how either is coded is theirs to know.

use crate::Error;
use crate::evaluate::{calibrating, too_short};
use std::collections::HashMap;
use std::path::Path;
use trinity_lm::weights::calibrated_targets;
use trinity_lm::{Checkpoint, Model, coding::Coding};
use trinity_tensor::allocate::Allocation;
use trinity_tensor::pipeline;

/// A calibration of a file's tensors.
#[derive(Debug, Default)]
pub struct Calibration {
    by_weight: HashMap<String, (f64, pipeline::Calibrated)>,
    /// Names of tensors in the file, and of the weights they are.
    weights: HashMap<String, String>,
    /// What is to be said of the text.
    pub remark: Option<String>,
}

impl Calibration {
    /// Codes the weights of the model at `path` one layer after the other, as
    /// they will be in its file, and keeps what each was coded as, `bits` of each
    /// value on average: where the next bit saves most, or, with `Equal`, everywhere
    /// the same. `done` hears of values.
    ///
    /// # Errors
    ///
    /// Where `path` is no language model, the codec takes no calibration, or
    /// the text cannot be read.
    pub fn measure(
        path: &Path,
        text: &Path,
        codec: &str,
        bits: f64,
        allocation: Allocation,
        done: &dyn Fn(usize),
    ) -> Result<Self, Error> {
        let coding = Coding::new(codec, bits).map_err(|reason| Error::input(reason, ""))?;
        if !coding.takes_moments() || coding.needs_moments() {
            let message = format!("{codec} cannot weigh its errors by what a layer reads");
            return Err(Error::input(message, "--calibrate is for trinity and its profiles"));
        }
        if allocation == Allocation::Linear {
            let message = "--calibrate shares bits out by what each weight costs, not by layers";
            return Err(Error::input(
                message,
                "take --allocate equal-slope, or equal for the same everywhere",
            ));
        }
        let checkpoint = Checkpoint::open(path).map_err(|error| {
            let message = format!("--calibrate runs the model, and cannot: {error}");
            Error::input(message, "it takes what `trinity eval` takes: a folder with config.json, or a GGUF")
        })?;
        let text = calibrating(text, &checkpoint)?;
        let remark = too_short(&text);
        let model = Model::load(&checkpoint)?;
        let mut by_weight = HashMap::new();
        let equal_slopes = allocation == Allocation::EqualSlope;
        calibrated_targets(&model, &coding, &text, equal_slopes, &mut |target| {
            done(target.values.len());
            let values = checkpoint.as_stored(&target.weight, target.values);
            let known = pipeline::Calibrated { values, moments: target.moments };
            by_weight.insert(target.weight, (target.bits, known));
        })?;
        let names = checkpoint.entries().map(|entry| entry.name().to_owned());
        let weights = names.map(|name| (name.clone(), checkpoint.short_name(&name))).collect();
        Ok(Self { by_weight, weights, remark })
    }

    /// What it says of the tensor of that name.
    pub fn of(&self, tensor: &str) -> Option<&pipeline::Calibrated> {
        self.known(tensor).map(|(_, known)| known)
    }

    /// Bits per value of that tensor.
    pub fn bits_of(&self, tensor: &str) -> Option<f64> {
        self.known(tensor).map(|(bits, _)| *bits)
    }

    fn known(&self, tensor: &str) -> Option<&(f64, pipeline::Calibrated)> {
        self.by_weight.get(self.weights.get(tensor)?)
    }
}
