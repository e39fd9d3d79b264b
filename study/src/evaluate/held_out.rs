//! What of a calibration's gain stays on a text that it did not see: a part of the
//! calibrating text that was held out.

use super::Evaluation;
use super::judged::Judged;
use crate::calibrating::Calibrating;
use crate::{Error, Progress};
use serde::Serialize;
use std::path::Path;
use std::sync::OnceLock;
use trinity_lm::coding::Coding;
use trinity_lm::{Checkpoint, Model, NoHooks};
use trinity_tensor::allocate::Allocation;

/// Bits per byte on the held-out part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    pub windows: usize,
    pub uncoded_bits_per_byte: f64,
    /// What the model loses coded at the same rate without a calibration.
    pub lost_plain: f64,
    /// What the file that was written loses.
    pub lost_calibrated: f64,
}

impl Gain {
    /// Scores the file `written`, that was made of `original` for a text, on the part of
    /// the text that was held out; `None` where it was too short to hold any
    /// out. Fails where a file cannot be read, or the work is no longer wanted.
    pub fn measure(
        (original, written): (&Path, &Path),
        text: &Path,
        coding: &Coding,
        progress: &dyn Progress,
    ) -> Result<Option<Self>, Error> {
        let checkpoint = Checkpoint::open(original)?;
        let text = Calibrating::read(text, &checkpoint)?.held_out;
        let windows = text.windows.len();
        if windows == 0 {
            return Ok(None);
        }
        let evaluation = Evaluation {
            model: Model::load(&checkpoint)?,
            judged: Some(Judged::open(written, &checkpoint)?),
            checkpoint,
            text,
            reference: OnceLock::new(),
            calibrator: None,
            remark: None,
            name: original.display().to_string(),
            content: 0,
        };
        let first = evaluation.uncompressed(progress)?;
        let calibrated = evaluation.judged(&first, progress)?.map_or(0.0, |row| row.delta_bits_per_byte);
        let plain = evaluation.artefact(coding, Allocation::Equal, progress)?;
        let scored = evaluation.score_through(&plain.model, &NoHooks, progress, "without a calibration")?;
        Ok(Some(Self {
            windows,
            uncoded_bits_per_byte: first.bits_per_byte,
            lost_plain: scored.bits_per_byte - first.bits_per_byte,
            lost_calibrated: calibrated,
        }))
    }
}

impl std::fmt::Display for Gain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { windows, uncoded_bits_per_byte, lost_plain, lost_calibrated } = self;
        write!(
            f,
            "on {windows} windows of the calibrating text that were held out: {uncoded_bits_per_byte:.4} bits per byte \
             uncoded, {lost_plain:+.4} coded, {lost_calibrated:+.4} calibrated"
        )
    }
}
