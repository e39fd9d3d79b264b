//! What a text says of a model's weights before a file of them is encoded.
//!
//! Joins a language model, which knows what its linear layers read, with the
//! tensors of its file; how either is coded is theirs to know.

use crate::Error;
use crate::evaluate::calibrating;
use std::collections::HashMap;
use std::path::Path;
use trinity_lm::weights::calibrated_targets;
use trinity_lm::{Checkpoint, Model, coding::Coding};
use trinity_tensor::pipeline;

/// A calibration of a file's tensors.
#[derive(Debug, Default)]
pub struct Calibration {
    by_weight: HashMap<String, pipeline::Calibrated>,
    /// Names of tensors in the file, and of the weights they are.
    weights: HashMap<String, String>,
}

impl Calibration {
    /// Codes the weights of the model at `path` one layer after the other, as
    /// they will be in its file, and keeps what each was coded as. `done` hears
    /// of values.
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
        done: &dyn Fn(usize),
    ) -> Result<Self, Error> {
        let coding = Coding::new(codec, bits).map_err(|reason| Error::input(reason, ""))?;
        if !coding.takes_moments() || coding.needs_moments() {
            let message = format!("{codec} cannot weigh its errors by what a layer reads");
            return Err(Error::input(message, "--calibrate is for trinity and its profiles"));
        }
        let checkpoint = Checkpoint::open(path).map_err(|error| {
            let message = format!("--calibrate runs the model, and cannot: {error}");
            Error::input(message, "it takes what `trinity eval` takes: a folder with config.json, or a GGUF")
        })?;
        let text = calibrating(text, &checkpoint)?;
        let model = Model::load(&checkpoint)?;
        let mut by_weight = HashMap::new();
        calibrated_targets(&model, &coding, &text, &mut |target| {
            done(target.values.len());
            let values = checkpoint.as_stored(&target.weight, target.values);
            by_weight.insert(target.weight, pipeline::Calibrated { values, moments: target.moments });
        })?;
        let names = checkpoint.entries().map(|entry| entry.name().to_owned());
        let weights = names.map(|name| (name.clone(), checkpoint.short_name(&name))).collect();
        Ok(Self { by_weight, weights })
    }

    /// What it says of the tensor of that name.
    pub fn of(&self, tensor: &str) -> Option<&pipeline::Calibrated> {
        self.by_weight.get(self.weights.get(tensor)?)
    }
}
