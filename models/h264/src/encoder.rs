//! The encoder: frames in, an Annex B stream and what it decodes to out.
//!
//! Every frame is an IDR picture of one or more slices; slices and frames are
//! independent, so they are coded in parallel and the bytes do not depend on
//! how many threads there were.

mod code_words;
mod guess;
mod headers;
mod quant;
mod rate;
mod residual;
mod search;
mod slice;
mod syntax;

use crate::deblock::{PictureFilter, SliceFilter};
use crate::error::Error;
use crate::macroblock::MbMap;
use crate::picture::Picture;
use crate::reconstruct::Rebuild;
use crate::slice_header::{Deblocking, Structure};
use headers::StreamShape;
use search::Effort;
use slice::{CodedSlice, QpPlan, SliceTask, Tuning, encode_slice};
use trinity_coding::{Chroma, Colour, Frame, Preset, Rate, nal};

impl Tuning {
    fn of(preset: Preset) -> Self {
        let effort = |candidates, patience, indulgence, doubt| Effort {
            candidates,
            patience,
            indulgence,
            slack: 1.0,
            doubt,
            skip_four: preset == Preset::Fast,
        };
        Self {
            effort: match preset {
                Preset::Fast => effort(1, 0.0, 0.0, 0.0),
                Preset::Medium => effort(1, 0.01, 0.0, 0.0),
                Preset::Slow => effort(2, 0.01, 0.2, 0.0),
                Preset::Best => effort(2, 0.01, 0.3, 0.01),
            },
            // Flat around its high-rate value, 2 ln 2 / 12 of a squared step.
            lambda: 0.13,
            // The best for Gaussian sources of two to four bits.
            rounding: 0.36,
        }
    }
}

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

/// How to encode.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    pub rate: Rate,
    pub preset: Preset,
    /// Threads to use; the stream does not depend on it. 0: all cores.
    pub threads: usize,
    pub entropy: Entropy,
    /// Deblocking filter. Off by default: it blurs what is not a picture.
    pub deblock: bool,
    /// Slices a frame, each of whole macroblock rows. More slices, more
    /// parallel work inside a frame, and a few more bits.
    pub slices: usize,
    /// Place of the first frame in the stream it will be part of, for whoever
    /// encodes a long stream in parts: neighbouring pictures must be told apart.
    pub first_index: usize,
    /// What the stream says its planes are.
    pub colour: Colour,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rate: Rate::Qp(24),
            preset: Preset::default(),
            threads: 0,
            entropy: Entropy::default(),
            deblock: false,
            slices: 1,
            first_index: 0,
            colour: Colour::Unstated,
        }
    }
}

/// A stream and what it decodes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Coded {
    /// Annex B bytes.
    pub stream: Vec<u8>,
    /// What every decoder makes of `stream`. Odd sizes of 4:2:0 come back
    /// rounded up to even ones: cropping counts in chroma samples.
    pub recon: Vec<Frame>,
    /// QPY of the first macroblocks, and of the rest where a rate lies between two QPs.
    pub qp: f64,
}

impl Coded {
    /// Size of the stream over the samples of all planes of `frames`.
    pub fn bits_per_sample(&self, frames: &[Frame]) -> f64 {
        let samples: usize = frames.iter().map(Frame::samples).sum();
        self.stream.len() as f64 * 8.0 / samples as f64
    }

    /// Mean squared error of the reconstruction, over the samples of all planes.
    pub fn mse(&self, frames: &[Frame]) -> f64 {
        rate::mean_squared_error(frames, &self.recon)
    }
}

/// Encodes frames of one size and format.
///
/// # Errors
/// [`Error::BadInput`] for frames or settings H.264 intra cannot take.
pub fn encode(frames: &[Frame], params: &Params) -> Result<Coded, Error> {
    let shape = check(frames, params)?;
    let run = |plan: QpPlan| encode_at(frames, params, &shape, plan);
    let lowest = -6 * (shape.depth as i32 - 8);
    in_pool(params.threads, || match params.rate {
        Rate::Lossless => run(QpPlan { qp: lowest, switch_at: usize::MAX }),
        Rate::Qp(qp) => run(QpPlan { qp, switch_at: usize::MAX }),
        Rate::Bits(_) | Rate::Mse(_) => {
            let mbs = shape.width_mbs() * shape.height_mbs();
            rate::search(frames, params.rate, lowest, mbs, run)
        }
    })
}

/// Frames and settings that fit, or why they do not.
fn check(frames: &[Frame], params: &Params) -> Result<StreamShape, Error> {
    let bad = |what: String| Err(Error::BadInput { what });
    let Some(first) = frames.first() else { return bad("there is no frame to encode".into()) };
    if first.chroma == Chroma::C422 {
        return bad("4:2:2 is not encoded; convert to 4:4:4 or 4:2:0".into());
    }
    if !(8..=14).contains(&first.depth) || first.planes.len() > 1 && first.chroma_depth != first.depth {
        return bad(format!(
            "bit depths {} (luma) and {} (chroma): H.264 takes 8 to 14, here the same for both",
            first.depth, first.chroma_depth
        ));
    }
    for (at, frame) in frames.iter().enumerate() {
        if (frame.chroma, frame.depth) != (first.chroma, first.depth)
            || (frame.width(), frame.height()) != (first.width(), first.height())
        {
            return bad(format!("frame {at} differs from the first in size or format"));
        }
        let limit = 1u32 << frame.depth;
        for (c, plane) in frame.planes.iter().enumerate() {
            let (width, height) = frame.chroma.plane_size(c, frame.width(), frame.height());
            if (plane.width, plane.height) != (width, height) || plane.samples.len() != width * height {
                return bad(format!("plane {c} of frame {at} should be {width}×{height}"));
            }
            if plane.samples.iter().any(|&sample| u32::from(sample) >= limit) {
                return bad(format!("plane {c} of frame {at} has a sample above {} bit", frame.depth));
            }
        }
    }
    let shape = StreamShape::new(first, params, params.rate == Rate::Lossless);
    if shape.width == 0 || shape.height == 0 || shape.width_mbs() * shape.height_mbs() > 139_264 {
        return bad(format!("{}×{} is outside what H.264's levels allow", shape.width, shape.height));
    }
    if let Rate::Qp(qp) = params.rate
        && !(-6 * (shape.depth as i32 - 8)..=51).contains(&qp)
    {
        return bad(format!("QP {qp} is outside {} to 51", -6 * (shape.depth as i32 - 8)));
    }
    if let Rate::Bits(target) | Rate::Mse(target) = params.rate
        && !(target.is_finite() && target > 0.0)
    {
        return bad(format!("a rate target of {target} cannot be met"));
    }
    Ok(shape)
}

/// Encodes everything with one plan of QPs.
fn encode_at(frames: &[Frame], params: &Params, shape: &StreamShape, plan: QpPlan) -> Result<Coded, Error> {
    let tuning = Tuning::of(params.preset);
    let rows = shape.height_mbs();
    let slices = params.slices.clamp(1, rows);
    let tasks: Vec<SliceTask> = frames
        .iter()
        .enumerate()
        .flat_map(|(index, frame)| {
            (0..slices).map(move |slice| SliceTask {
                frame,
                index: params.first_index + index,
                rows: (slice * rows / slices, (slice + 1) * rows / slices),
                plan,
            })
        })
        .collect();
    let coded = map_tasks(&tasks, params.threads, |task| encode_slice(task, shape, &tuning));
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
    Ok(Coded { stream, recon, qp: f64::from(plan.qp) + above })
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
    let rebuild = Rebuild {
        chroma: shape.chroma,
        depths: [shape.depth; 2],
        chroma_qp_index_offset: [0; 2],
        lossless_at_qp_prime_0: shape.lossless,
        colour_plane: 0,
    };
    let slices = vec![SliceFilter { deblocking: Deblocking::On, offset: [0; 2], rebuild }; parts.len()];
    PictureFilter { map: &map, slices: &slices, structure: Structure::Frame, chroma: shape.chroma }
        .run(&mut picture.planes);
}

#[cfg(feature = "rayon")]
fn map_tasks<T: Sync, R: Send>(tasks: &[T], threads: usize, job: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    use rayon::prelude::*;
    if threads == 1 { tasks.iter().map(job).collect() } else { tasks.par_iter().map(job).collect() }
}

#[cfg(not(feature = "rayon"))]
fn map_tasks<T, R>(tasks: &[T], _threads: usize, job: impl Fn(&T) -> R) -> Vec<R> {
    tasks.iter().map(job).collect()
}

/// Runs `work` where rayon has `threads` threads to use.
#[cfg(feature = "rayon")]
fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    if threads < 2 {
        return work();
    }
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(work),
        // No threads to be had: the pool there is does the same work.
        Err(_) => work(),
    }
}

#[cfg(not(feature = "rayon"))]
fn in_pool<R>(_threads: usize, work: impl FnOnce() -> R) -> R {
    work()
}
