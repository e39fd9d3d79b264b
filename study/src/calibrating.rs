//! Texts that calibrate: how much of one is read, and what of it is held out.

use crate::Error;
use std::path::Path;
use trinity_lm::{Checkpoint, Text};

/// Tokens in a window: what the models were trained with.
pub(crate) const WINDOW: usize = 1024;
/// Windows of a text that calibrate: with a quarter of them the tiny model
/// loses a third more at 3 bits.
const CALIBRATING_WINDOWS: usize = 64;

/// Tokens below which a calibration gains little (docs/language_models.md).
const FEW_TOKENS: usize = 16_384;

/// What to say of a text that is too short to calibrate with.
fn too_short(text: &Text) -> Option<String> {
    let tokens: usize = text.windows.iter().map(|window| window.tokens.len()).sum();
    (tokens < FEW_TOKENS).then(|| {
        let most = CALIBRATING_WINDOWS * WINDOW;
        format!(
            "the calibrating text has {tokens} tokens: below {FEW_TOKENS} a calibration gains little, and up to {most} are read"
        )
    })
}

/// Windows behind those that calibrate which tell what of the gain stays, at most.
const HELD_OUT_WINDOWS: usize = 8;
/// Windows from which on a text can spare some: twice what a calibration needs not to do harm.
const SPARING_WINDOWS: usize = 32;

/// A text that calibrates, in windows.
pub(crate) struct Calibrating {
    pub text: Text,
    /// What is not looked at, so that the gain can be told on it; empty where the
    /// text is too short to spare any.
    pub held_out: Text,
    /// What is to be said of the text.
    pub remark: Option<String>,
}

impl Calibrating {
    /// Reads a text and parts it.
    pub fn read(path: &Path, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|error| Error::unreadable(path, error))?;
        let mut text = Text::new(&bytes, checkpoint, WINDOW)?;
        let remark = too_short(&text);
        let all = text.windows.len();
        // An eighth of a text that would be read whole; none of one that is needed whole.
        let spare = if all < SPARING_WINDOWS { 0 } else { all / 8 };
        let kept = if all > CALIBRATING_WINDOWS { CALIBRATING_WINDOWS } else { all - spare };
        let mut held_out = Text { windows: text.windows.split_off(kept) };
        held_out.windows.truncate(HELD_OUT_WINDOWS);
        Ok(Self { text, held_out, remark })
    }
}
