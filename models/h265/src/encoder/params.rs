//! What the encoder is asked for.

use trinity_bits::{Colour, Presentation, Preset, Rate};

#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    pub rate: Rate,
    pub preset: Preset,
    /// Threads of the caller's pool to use at most; the stream does not depend
    /// on it. 0: all of them.
    pub threads: usize,
    /// Deblocking filter. Off by default: it blurs what is not a picture.
    pub deblock: bool,
    /// Sample adaptive offset. Off by default, too.
    pub sao: bool,
    /// Range extension tools (persistent Rice adaptation, large transform
    /// skip). They pay above two bits per sample; old decoders may lack them.
    pub range_extensions: bool,
    /// One substream per CTU row (entropy_coding_sync_enabled_flag), for decoders
    /// with many threads; the encoder needs none to use its own. libde265
    /// 1.0.11 does not carry persistent Rice statistics from row to row.
    pub wavefront: bool,
    /// An MD5 of every picture, so that any decoder can check itself.
    pub picture_hash: bool,
    /// What the stream says its planes are.
    pub colour: Colour,
    /// What the stream says of how its pictures are to be shown.
    pub shown: Presentation,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rate: Rate::Qp(27.0),
            preset: Preset::default(),
            threads: 0,
            deblock: false,
            sao: false,
            range_extensions: true,
            wavefront: false,
            picture_hash: true,
            colour: Colour::Unstated,
            shown: Presentation::default(),
        }
    }
}
