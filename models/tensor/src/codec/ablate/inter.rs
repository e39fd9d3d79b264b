//! The last bar of Figure 2(b): does prediction from other frames help?
//!
//! Our encoders are intra only, so x265 stands in, through ffmpeg: the same
//! frames with and without inter prediction, at the same error. Frames are
//! tensors of one shape (the paper puts layers along time), or, where a tensor
//! stands alone, its own quarters.

use trinity_bits::{Chroma, Frame, Plane};

use super::super::ffmpeg::Ffmpeg;
use super::super::frame_codec::{FrameCodec, Step};
use super::super::lossy::normalize;
use super::{HALVINGS, Line, SPAN, nmse};
use crate::{Error, Tensor};

/// Frames that a lone tensor is cut into.
const QUARTERS: usize = 4;

/// x265 on these tensors as a video, without and with inter prediction: the
/// reference and step 6. Empty where ffmpeg is not installed.
pub fn inter(tensors: &[Tensor], goal: f64) -> Result<Vec<Line>, Error> {
    if !Ffmpeg::installed() {
        return Ok(Vec::new());
    }
    let Some(frames) = frames(tensors)? else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    let names = [(None, "reference: x265, intra only"), (Some(6), "+ inter prediction (x265)")];
    for ((step, stage), encoder) in names.into_iter().zip(Ffmpeg::intra_and_inter()) {
        let (bits_per_value, nmse) = at_error(&encoder, &frames, goal)?;
        lines.push(Line { step, stage, bits_per_value, nmse });
    }
    Ok(lines)
}

/// Normalized values, all frames of one size.
struct Values {
    width: usize,
    height: usize,
    frames: Vec<Vec<f32>>,
}

fn frames(tensors: &[Tensor]) -> Result<Option<Values>, Error> {
    let mut matrices = Vec::new();
    for tensor in tensors {
        if let Some((matrix, _)) = normalize(tensor)? {
            matrices.push(matrix);
        }
    }
    let Some(first) = matrices.first() else { return Ok(None) };
    let (mut height, width) = (first.rows, first.cols);
    let mut frames: Vec<Vec<f32>> = matrices
        .iter()
        .filter(|matrix| (matrix.rows, matrix.cols) == (height, width))
        .map(|matrix| matrix.values.clone())
        .collect();
    if frames.len() == 1 {
        height /= QUARTERS;
        frames = frames[0].chunks_exact((height * width).max(1)).take(QUARTERS).map(Vec::from).collect();
    }
    // Below a coding tree unit there is nothing to encode.
    Ok((height >= 16 && width >= 16).then_some(Values { width, height, frames }))
}

/// Bits per value and error at the coarsest QP within the goal.
fn at_error(encoder: &Ffmpeg, values: &Values, goal: f64) -> Result<(f64, f64), Error> {
    let depth = encoder.limits().depth;
    let centre = (1u32 << (depth - 1)) as f32;
    let exact: Vec<f32> = values.frames.concat();
    let attempt = |qp: f64| -> Result<(f64, f64), Error> {
        let whole = qp.floor();
        let gain = (centre - 1.0) * ((whole - qp) / 6.0).exp2() as f32;
        let frames: Vec<Frame> = values
            .frames
            .iter()
            .map(|frame| {
                let samples =
                    frame.iter().map(|value| (value * gain + centre).round_ties_even() as u16).collect();
                let plane = Plane { width: values.width, height: values.height, samples };
                Frame { chroma: Chroma::C400, depth, chroma_depth: depth, planes: vec![plane] }
            })
            .collect();
        let stream = encoder.encode(&frames, whole as i32)?;
        let decoded = encoder.decode(&stream, (values.width, values.height))?;
        if decoded.len() != frames.len() {
            return Err(Error::External {
                program: "ffmpeg".into(),
                problem: format!("{} frames came back of {}", decoded.len(), frames.len()),
            });
        }
        let near: Vec<f32> = decoded
            .iter()
            .flat_map(|frame| &frame.planes[0].samples)
            .map(|&sample| (f32::from(sample) - centre) / gain)
            .collect();
        Ok((8.0 * stream.len() as f64 / exact.len() as f64, nmse(&exact, &near)))
    };
    let steps = encoder.steps();
    let end = |step: Option<&Step>| step.map_or(0.0, |step| step.even_qp);
    let (lowest, highest) = (end(steps.first()), end(steps.last()));
    let energy: f64 = exact.iter().map(|&value| f64::from(value).powi(2)).sum();
    let rms = (energy / exact.len() as f64).sqrt() * 127.0;
    let guess = 4.0 + 6.0 * ((12.0 * goal).sqrt() * rms).log2();
    let mut low = (guess - SPAN).clamp(lowest, highest);
    let mut high = (guess + SPAN).clamp(low, highest);
    let mut best = attempt(low)?;
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        let found = attempt(middle)?;
        if found.1 <= goal {
            (low, best) = (middle, found);
        } else {
            high = middle;
        }
    }
    Ok(best)
}
