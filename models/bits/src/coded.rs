//! What a video encoder returns, and the frames it may be given.

use std::ops::RangeInclusive;

use crate::{Chroma, CodecError, Frame};

/// A stream and what it decodes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Coded {
    /// Annex B byte stream.
    pub stream: Vec<u8>,
    /// What every decoder makes of it. Subsampled frames of odd size come
    /// back one sample larger: a stream cannot crop half a chroma sample.
    pub recon: Vec<Frame>,
    /// The QP, fractional where a rate lies between two; meaningless when lossless.
    pub qp: f64,
    /// Whether every sample is as it was by the stream's own word: asked for, or
    /// the one way to an error so small.
    pub lossless: bool,
    /// Mean squared error over the samples of all planes.
    pub mse: f64,
}

impl Coded {
    /// Stream bits per sample of all planes of `frames`.
    pub fn bits_per_sample(&self, frames: &[Frame]) -> f64 {
        let samples: usize = frames.iter().map(Frame::samples).sum();
        self.stream.len() as f64 * 8.0 / samples as f64
    }
}

/// Squared error of a frame's samples; a reconstruction may be larger by a
/// column or a row.
pub fn squared_error(frame: &Frame, recon: &Frame) -> u64 {
    let rows = frame
        .planes
        .iter()
        .zip(&recon.planes)
        .flat_map(|(a, b)| (0..a.height).map(move |y| (a.row(y), &b.row(y)[..a.width])));
    rows.flat_map(|(a, b)| a.iter().zip(b)).map(|(&a, &b)| u64::from(a.abs_diff(b)).pow(2)).sum()
}

/// Mean squared error over the samples of all planes of all frames.
pub fn mean_squared_error(frames: &[Frame], recon: &[Frame]) -> f64 {
    let sum: u64 = frames.iter().zip(recon).map(|(frame, recon)| squared_error(frame, recon)).sum();
    let samples: usize = frames.iter().map(Frame::samples).sum();
    sum as f64 / samples as f64
}

/// Refuses frames that an encoder for depths of `depths` cannot take: of
/// different formats, of parts that disagree, or 4:2:2.
pub fn check_frames(frames: &[Frame], depths: RangeInclusive<u32>) -> Result<(), CodecError> {
    let bad = |what: String| Err(CodecError::BadInput { what });
    let Some(first) = frames.first() else { return bad("there are no frames".into()) };
    if first.chroma == Chroma::C422 {
        return bad("4:2:2 is decoded but not encoded; use 4:0:0, 4:2:0 or 4:4:4".into());
    }
    for (at, frame) in frames.iter().enumerate() {
        if frame.planes.len() != frame.chroma.planes() {
            let (found, belong) = (frame.planes.len(), frame.chroma.planes());
            return bad(format!("frame {at} has {found} planes where {belong} belong"));
        }
        let format = |frame: &Frame| (frame.chroma, frame.depth, frame.width(), frame.height());
        if at > 0 && format(frame) != format(first) {
            return bad(format!("frame {at} differs from the first in size or format"));
        }
        let same_depth = frame.chroma == Chroma::C400 || frame.chroma_depth == frame.depth;
        if !depths.contains(&frame.depth) || !same_depth {
            let (least, most) = (depths.start(), depths.end());
            let (luma, chroma) = (frame.depth, frame.chroma_depth);
            return bad(format!("depth {luma}/{chroma} is not one depth from {least} to {most}"));
        }
        check_planes(frame).map_err(|what| CodecError::BadInput { what: format!("{what} (frame {at})") })?;
    }
    Ok(())
}

/// Planes of the size that the format says, with samples of its depth.
fn check_planes(frame: &Frame) -> Result<(), String> {
    let limit = ((1u32 << frame.depth) - 1) as u16;
    for (c, plane) in frame.planes.iter().enumerate() {
        let (width, height) = frame.chroma.plane_size(c, frame.width(), frame.height());
        if (plane.width, plane.height) != (width, height) || plane.samples.len() != width * height {
            let (found_width, found_height) = (plane.width, plane.height);
            return Err(format!("plane {c} is {found_width}×{found_height}, expected {width}×{height}"));
        }
        if let Some(sample) = plane.samples.iter().find(|&&sample| sample > limit) {
            return Err(format!("a sample of plane {c} is {sample}, above {limit} ({} bit)", frame.depth));
        }
    }
    Ok(())
}
