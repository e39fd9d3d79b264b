//! The encoder: frames to a conformant all-intra stream and what it decodes to.
//!
//! A picture is searched CTU by CTU ([`search`]), every choice by squared
//! error plus the price of its bits, and written by the same functions that
//! counted ([`syntax`], [`residual`]). Rate targets wrap whole encodes
//! ([`rate`]).

mod blocks;
mod chroma;
mod estimate;
mod headers;
mod loop_filter;
mod luma;
mod picture;
mod preset;
mod quantize;
mod quick;
mod rate;
mod rdoq;
pub mod residual;
mod sao_search;
mod satd;
mod search;
mod syntax;
mod tree;
mod trellis;

pub use preset::Effort;
pub use tree::most_probable;

use crate::Error;
use headers::Sequence;
use residual::ResidualTools;
use trinity_coding::{Chroma, Colour, Frame, Preset, Rate};

/// How to encode.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    pub rate: Rate,
    pub preset: Preset,
    /// Threads to use; the stream does not depend on it. 0: all cores.
    pub threads: usize,
    /// Deblocking filter. Off by default: it blurs what is not a picture.
    pub deblock: bool,
    /// Sample adaptive offset. Off by default, too.
    pub sao: bool,
    /// Range extension tools (persistent Rice adaptation, large transform
    /// skip). They pay above two bits a sample; old decoders may lack them.
    pub range_extensions: bool,
    /// One substream a CTU row (entropy_coding_sync_enabled_flag), for decoders
    /// with many threads; the encoder needs none to use its own. libde265
    /// 1.0.11 does not carry persistent Rice statistics from row to row.
    pub wavefront: bool,
    /// An MD5 of every picture, so that any decoder can check itself.
    pub picture_hash: bool,
    /// What the stream says its planes are.
    pub colour: Colour,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rate: Rate::Qp(27),
            preset: Preset::default(),
            threads: 0,
            deblock: false,
            sao: false,
            range_extensions: true,
            wavefront: false,
            picture_hash: true,
            colour: Colour::Unstated,
        }
    }
}

/// An encoded sequence.
#[derive(Debug, Clone)]
pub struct Coded {
    /// Annex B byte stream.
    pub stream: Vec<u8>,
    /// What every decoder makes of it. Subsampled frames of odd size come
    /// back one sample larger: the stream cannot crop half a chroma sample.
    pub recon: Vec<Frame>,
    /// The (possibly fractional) QP used; meaningless when lossless.
    pub qp: f64,
    /// Mean squared error over all samples.
    pub mse: f64,
}

impl Coded {
    /// Stream bits per sample of `frames`.
    pub fn bits_per_sample(&self, frames: &[Frame]) -> f64 {
        let samples: usize = frames.iter().map(Frame::samples).sum();
        self.stream.len() as f64 * 8.0 / samples as f64
    }
}

/// Encodes frames of one size, chroma format and depth, each on its own.
pub fn encode(frames: &[Frame], params: &Params) -> Result<Coded, Error> {
    let first = frames.first().ok_or_else(|| Error::Encode { what: "there are no frames".into() })?;
    check(first)?;
    for (i, frame) in frames.iter().enumerate() {
        check(frame)?;
        let same = frame.width() == first.width()
            && frame.height() == first.height()
            && frame.chroma == first.chroma
            && frame.depth == first.depth;
        if !same {
            return Err(Error::Encode {
                what: format!("frame {i} differs from the first in size or format"),
            });
        }
    }
    let job = Job { frames, params, sequence: sequence(first, params), effort: Effort::of(params.preset) };
    rate::encode(&job)
}

/// Frames with everything decided but the QP.
struct Job<'a> {
    frames: &'a [Frame],
    params: &'a Params,
    sequence: Sequence,
    effort: Effort,
}

fn sequence(frame: &Frame, params: &Params) -> Sequence {
    let lossless = params.rate == Rate::Lossless;
    let effort = Effort::of(params.preset);
    let extended = params.range_extensions;
    Sequence {
        width: frame.width(),
        height: frame.height(),
        chroma: frame.chroma,
        depth: frame.depth,
        log2_ctb: tree::LOG2_CTB,
        max_transform_depth: effort.transform_depth,
        tools: ResidualTools {
            sign_data_hiding: !lossless,
            persistent_rice: extended,
            transform_skip_context: extended,
            log2_max_transform_skip: match (lossless, extended) {
                (true, _) => 0,
                (false, true) => 5,
                (false, false) => 2,
            },
            // A 16-bit difference has 17 bits; only extended precision holds it.
            extended_range: (lossless && frame.depth == 16).then_some(22),
        },
        strong_intra_smoothing: true,
        lossless,
        cu_qp_delta: matches!(params.rate, Rate::Bits(_) | Rate::Mse(_)),
        wavefront: params.wavefront,
        deblock: params.deblock,
        // Samples that must stay as they are have no offsets.
        sao: params.sao && !lossless,
        colour: params.colour,
    }
}

/// A frame whose parts agree, in a format the encoder writes.
fn check(frame: &Frame) -> Result<(), Error> {
    let wrong = |what: String| Err(Error::Encode { what });
    if frame.chroma == Chroma::C422 {
        return wrong("4:2:2 is decoded but not encoded; use 4:0:0, 4:2:0 or 4:4:4".into());
    }
    if !(8..=16).contains(&frame.depth) || frame.chroma_depth != frame.depth {
        return wrong(format!("depth {}/{} is not one depth from 8 to 16", frame.depth, frame.chroma_depth));
    }
    if frame.planes.len() != frame.chroma.planes() {
        return wrong(format!("{} planes where {} belong", frame.planes.len(), frame.chroma.planes()));
    }
    let (width, height) = (frame.width(), frame.height());
    // Level 8.5 knows no limit; the picture size syntax and memory do.
    if width == 0 || height == 0 || width > 1 << 16 || height > 1 << 16 {
        return wrong(format!("{width}×{height} is not between 1×1 and 65536×65536"));
    }
    let limit = ((1u32 << frame.depth) - 1) as u16;
    for (c, plane) in frame.planes.iter().enumerate() {
        let size = frame.chroma.plane_size(c, width, height);
        if (plane.width, plane.height) != size || plane.samples.len() != size.0 * size.1 {
            return wrong(format!(
                "plane {c} is {}×{}, expected {}×{}",
                plane.width, plane.height, size.0, size.1
            ));
        }
        if let Some(sample) = plane.samples.iter().find(|&&s| s > limit) {
            return wrong(format!("a sample of plane {c} is {sample}, above {limit} ({} bit)", frame.depth));
        }
    }
    Ok(())
}
