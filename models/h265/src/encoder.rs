//! The encoder: frames to a conformant all-intra stream and what it decodes to.
//!
//! A picture is searched CTU by CTU ([`search`]), every choice by squared
//! error plus λ · bits, and written by the same functions that counted
//! ([`syntax`], [`crate::entropy::residual`]). Rate targets wrap whole encodes
//! ([`rate`]).

mod headers;
mod loop_filter;
mod params;
mod picture;
mod preset;
mod quantize;
mod rate;
mod sao_search;
mod search;
mod syntax;
mod tree;
mod tuned;

pub use params::Params;
pub use tuned::TUNED;

use crate::Error;
use crate::entropy::residual::ResidualTools;
use headers::Sequence;
use preset::Effort;
use rate::Job;
use trinity_bits::{Coded, Frame, Rate, check_frames};

/// Encodes frames of one size, chroma format and depth, each on its own.
///
/// # Errors
/// [`Error::BadInput`] for frames or settings that cannot be encoded.
pub fn encode(frames: &[Frame], params: &Params) -> Result<Coded, Error> {
    check_frames(frames, 8..=16)?;
    let first = &frames[0];
    let (width, height) = (first.width(), first.height());
    // Level 8.5 knows no limit; the picture size syntax and memory do.
    if width == 0 || height == 0 || width > 1 << 16 || height > 1 << 16 {
        return Err(Error::BadInput {
            what: format!("{width}×{height} is not between 1×1 and 65536×65536")
        });
    }
    let effort = Effort::of(params.preset);
    let coded = rate::encode(&Job { frames, params, sequence: sequence(first, params), effort })?;
    match params.rate {
        // No QP is fine enough; every sample as it was is.
        Rate::Mse(mse) if coded.mse > mse => {
            let params = &Params { rate: Rate::Lossless, ..params.clone() };
            rate::encode(&Job { frames, params, sequence: sequence(first, params), effort })
        }
        _ => Ok(coded),
    }
}

fn sequence(frame: &Frame, params: &Params) -> Sequence {
    let lossless = params.rate == Rate::Lossless;
    let extended = params.range_extensions;
    Sequence {
        width: frame.width(),
        height: frame.height(),
        chroma: frame.chroma,
        depth: frame.depth,
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
        lossless,
        cu_qp_delta: matches!(params.rate, Rate::Bits(_) | Rate::Mse(_)),
        wavefront: params.wavefront,
        deblock: params.deblock,
        // Samples that must stay as they are have no offsets.
        sao: params.sao && !lossless,
        colour: params.colour,
        shown: params.shown,
    }
}
