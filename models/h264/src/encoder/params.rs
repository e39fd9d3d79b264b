//! What the encoder is asked for.

use trinity_bits::{Colour, Presentation, Preset, Rate};

/// entropy_coding_mode_flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Entropy {
    Cavlc,
    #[default]
    Cabac,
}

impl std::str::FromStr for Entropy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cavlc" => Ok(Self::Cavlc),
            "cabac" => Ok(Self::Cabac),
            _ => Err(format!("expected cavlc or cabac, found `{text}`")),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    pub rate: Rate,
    pub preset: Preset,
    /// Threads of the caller's pool to use at most; the stream does not depend
    /// on it. 0: all of them.
    pub threads: usize,
    pub entropy: Entropy,
    /// Deblocking filter. Off by default: it blurs what is not a picture.
    pub deblock: bool,
    /// Slices per frame, each of whole macroblock rows. More slices, more
    /// parallel work inside a frame, and a few more bits.
    pub slices: usize,
    /// Place of the first frame in the stream it will be part of, for whoever
    /// encodes a long stream in parts: neighbouring pictures must be told apart.
    pub first_index: usize,
    /// What the stream says its planes are.
    pub colour: Colour,
    /// What the stream says of how its pictures are to be shown.
    pub shown: Presentation,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rate: Rate::Qp(24.0),
            preset: Preset::default(),
            threads: 0,
            entropy: Entropy::default(),
            deblock: false,
            slices: 1,
            first_index: 0,
            colour: Colour::Unstated,
            shown: Presentation::default(),
        }
    }
}
