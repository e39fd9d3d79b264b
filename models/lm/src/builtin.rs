//! The tiny model and 64 KB of text that come with the project, so that
//! `trinity eval` works on a fresh clone from any folder. CC0-1.0.

use crate::{Checkpoint, Config, Error};

/// 2.7 M parameters, 6 layers of 192 channels, one token a byte.
pub fn tiny() -> Result<Checkpoint, Error> {
    let config = Config::parse(include_str!("../data/tiny.json"), "tiny.json (built in)")?;
    Checkpoint::from_bytes(config, include_bytes!("../data/tiny.safetensors").to_vec())
}

/// 65,536 bytes held out from the tiny model's training.
pub fn text() -> &'static [u8] {
    include_bytes!("../data/eval.txt")
}

/// The tiny model, and so many bytes of text in windows of so many.
#[cfg(test)]
pub(crate) fn case(bytes: usize, window: usize) -> (crate::Model, crate::Text) {
    let checkpoint = tiny().unwrap();
    let text = crate::Text::new(&text()[..bytes], &checkpoint, window).unwrap();
    (crate::Model::load(&checkpoint).unwrap(), text)
}
