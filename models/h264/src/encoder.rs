//! The encoder: frames in, an Annex B stream and what it decodes to out.
//!
//! Every frame is an IDR picture of one or more slices; slices and frames are
//! independent, so they are coded in parallel and the bytes do not depend on
//! how many threads there were.

mod headers;
mod params;
mod preset;
mod quantize;
mod rate;
mod residual;
mod search;
mod slice;
mod syntax;

pub use params::{Entropy, Params};

use crate::Error;
use crate::deblock::{PictureFilter, SliceFilter};
use crate::macroblock::MbMap;
use crate::picture::Picture;
use crate::syntax::slice_header::{Deblocking, Structure};
use headers::StreamShape;
pub use preset::TUNED;
use preset::Tuning;
use slice::{CodedSlice, QpPlan, SliceTask, encode_slice};
use trinity_bits::{Coded, Frame, Rate, check_frames, mean_squared_error, nal};
use trinity_numeric::threads;

/// Encodes frames of one size and format, each on its own.
///
/// # Errors
/// [`Error::BadInput`] for frames or settings H.264 intra cannot take.
pub fn encode(frames: &[Frame], params: &Params) -> Result<Coded, Error> {
    let shape = check(frames, params)?;
    let run = |plan: QpPlan| encode_at(frames, params, &shape, plan);
    let lowest = -6 * (shape.depth as i32 - 8);
    if let Some(qp) = params.rate.picture_qp(shape.depth)? {
        return Ok(run(QpPlan { qp, switch_at: usize::MAX }));
    }
    Ok(match params.rate {
        Rate::Lossless => run(QpPlan { qp: lowest, switch_at: usize::MAX }),
        _ => {
            let mbs = shape.width_mbs() * shape.height_mbs();
            let coded = rate::search(frames, params.rate, lowest, mbs, run);
            match params.rate {
                // No QP is fine enough; every sample as it was is.
                Rate::Mse(mse) if coded.mse > mse => {
                    return encode(frames, &Params { rate: Rate::Lossless, ..params.clone() });
                }
                _ => coded,
            }
        }
    })
}

/// Frames and settings that fit, or why they do not.
fn check(frames: &[Frame], params: &Params) -> Result<StreamShape, Error> {
    let bad = |what: String| Err(Error::BadInput { what });
    check_frames(frames, 8..=14)?;
    let shape = StreamShape::new(&frames[0], params, params.rate == Rate::Lossless);
    if shape.width == 0 || shape.height == 0 || shape.width_mbs() * shape.height_mbs() > 139_264 {
        return bad(format!("{}×{} is outside what H.264's levels allow", shape.width, shape.height));
    }
    if let Rate::Bits(target) | Rate::Mse(target) = params.rate
        && !(target.is_finite() && target > 0.0)
    {
        return bad(format!("a rate target of {target} cannot be met"));
    }
    Ok(shape)
}

/// Encodes everything with one plan of QPs.
fn encode_at(frames: &[Frame], params: &Params, shape: &StreamShape, plan: QpPlan) -> Coded {
    let tuning = &Tuning::of(params.preset);
    let rows = shape.height_mbs();
    let slices = params.slices.clamp(1, rows);
    let tasks: Vec<SliceTask> = frames
        .iter()
        .enumerate()
        .flat_map(|(index, frame)| {
            (0..slices).map(move |slice| SliceTask {
                frame,
                shape,
                tuning,
                index: params.first_index + index,
                rows: (slice * rows / slices, (slice + 1) * rows / slices),
                plan,
            })
        })
        .collect();
    let coded: Vec<CodedSlice> = match threads::granted(params.threads) {
        1 => tasks.iter().map(encode_slice).collect(),
        _ => threads::map(&tasks, encode_slice),
    };
    let mut stream = Vec::new();
    shape.write_parameter_sets(&mut stream);
    let mut recon = Vec::with_capacity(frames.len());
    for parts in coded.chunks(slices) {
        for part in parts {
            nal::write_unit(&mut stream, &part.nal);
        }
        recon.push(assemble(parts, shape));
    }
    let mbs = shape.width_mbs() * rows;
    let above = mbs.saturating_sub(plan.switch_at) as f64 / mbs as f64;
    let mse = mean_squared_error(frames, &recon);
    Coded { stream, recon, qp: f64::from(plan.qp) + above, mse, lossless: shape.lossless }
}

/// The frame that the slices decode to, filtered if the stream says so.
fn assemble(parts: &[CodedSlice], shape: &StreamShape) -> Frame {
    let mut picture = Picture::new(shape.chroma, shape.width_mbs(), shape.height_mbs(), [shape.depth; 2]);
    for (c, plane) in picture.planes.iter_mut().enumerate() {
        let mut at = 0;
        for part in parts {
            let samples = &part.recon.planes[c].samples;
            plane.samples[at..at + samples.len()].copy_from_slice(samples);
            at += samples.len();
        }
    }
    if shape.deblock {
        deblock(parts, shape, &mut picture);
    }
    let (sx, sy) = shape.chroma.shift();
    let up = |size: usize, shift: u32| size.div_ceil(1 << shift) << shift;
    picture.crop(0, 0, up(shape.width, sx), up(shape.height, sy))
}

fn deblock(parts: &[CodedSlice], shape: &StreamShape, picture: &mut Picture) {
    let infos = parts
        .iter()
        .zip(1..)
        .flat_map(|(part, slice)| {
            part.infos.iter().map(move |info| crate::macroblock::MbInfo { slice, ..*info })
        })
        .collect();
    let map = MbMap { infos, width: shape.width_mbs(), mbaff: false, chroma_blocks: (4, 4) };
    let filter = SliceFilter { deblocking: Deblocking::On, offset: [0; 2], rebuild: shape.rebuild() };
    let slices = vec![filter; parts.len()];
    PictureFilter { map: &map, slices: &slices, structure: Structure::Frame, chroma: shape.chroma }
        .run(&mut picture.planes);
}
