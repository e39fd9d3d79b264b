//! The last bar of Figure 2(b): does prediction from other frames help?
//!
//! Frames are matrices of one kind (the paper puts layers along time), each brought
//! to one size. Both sides go through the same stages at the same error; on one of
//! them a block may also be predicted from the frame before, as decoded.

use trinity_bits::Plane;

use super::super::lossy::normalize;
use super::stages::{Stages, code_after};
use super::{DEPTH, coarsest, grid_at, nmse, qp_range, restored, samples};
use crate::codec::Matrix;
use crate::{Error, Tensor};

/// Frames coded without and with prediction between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inter {
    pub frames: usize,
    pub intra_bits_per_value: f64,
    pub inter_bits_per_value: f64,
    /// The larger error of the two.
    pub nmse: f64,
    /// The part of all samples but the first frame's that another frame predicts.
    pub predicted: f64,
}

struct Attempt {
    bits: f64,
    predicted: f64,
}

/// Codes tensors of one shape as frames at an error of at most `goal`. Nothing for fewer than two frames that are
/// not zero.
pub fn inter(tensors: &[Tensor], goal: f64) -> Result<Option<Inter>, Error> {
    let frames = frames(tensors)?;
    if frames.len() < 2 {
        return Ok(None);
    }
    let values = frames.iter().map(|frame| frame.values.len()).sum::<usize>() as f64;
    let (intra_nmse, intra) = at_error(&frames, goal, false)?;
    let (inter_nmse, inter) = at_error(&frames, goal, true)?;
    Ok(Some(Inter {
        frames: frames.len(),
        intra_bits_per_value: intra.bits / values,
        inter_bits_per_value: inter.bits / values,
        nmse: intra_nmse.max(inter_nmse),
        predicted: inter.predicted,
    }))
}

/// Matrices of the first one's shape, each of the same RMS: a layer that is louder than the one before it is as well
/// predicted as one that is not.
fn frames(tensors: &[Tensor]) -> Result<Vec<Matrix>, Error> {
    let mut frames: Vec<Matrix> = Vec::new();
    for tensor in tensors {
        let Some((mut matrix, _)) = normalize(tensor)? else { continue };
        let same = frames.first().is_none_or(|first| (first.rows, first.cols) == (matrix.rows, matrix.cols));
        if same {
            let energy: f64 = matrix.values.iter().map(|&value| f64::from(value).powi(2)).sum();
            let rms = (energy / matrix.values.len() as f64).sqrt() as f32;
            matrix.values.iter_mut().for_each(|value| *value /= rms);
            frames.push(matrix);
        }
    }
    let largest =
        frames.iter().flat_map(|frame| &frame.values).fold(0f32, |most, value| most.max(value.abs()));
    frames.iter_mut().flat_map(|frame| &mut frame.values).for_each(|value| *value /= largest);
    Ok(frames)
}

fn at_error(frames: &[Matrix], goal: f64, between: bool) -> Result<(f64, Attempt), Error> {
    let exact: Vec<f32> = frames.iter().flat_map(|frame| &frame.values).copied().collect();
    let stages = Stages { prediction: true, partitioning: true };
    let attempt = |qp: f64| -> Result<(f64, Attempt), Error> {
        let (whole, grid) = grid_at(qp);
        let mut near = Vec::with_capacity(exact.len());
        let mut before: Option<Plane> = None;
        let (mut bits, mut predicted, mut could) = (0.0, 0, 0);
        for frame in frames {
            let (plane, tiling) = samples(frame, grid);
            let coding = code_after(&plane, DEPTH, whole, stages, before.as_ref());
            bits += coding.bits;
            if before.is_some() {
                could += plane.samples.len();
                let from_there = coding.blocks.iter().filter(|block| block.motion.is_some());
                predicted += from_there.map(|block| block.size * block.size).sum::<usize>();
            }
            near.extend(restored(&coding, &plane, tiling, grid)?);
            if between {
                before = Some(Plane { samples: coding.reconstruction, ..plane });
            }
        }
        let share = if could > 0 { predicted as f64 / could as f64 } else { 0.0 };
        Ok((nmse(&exact, &near), Attempt { bits, predicted: share }))
    };
    let whole = Matrix { rows: 1, cols: exact.len(), values: exact.clone() };
    coarsest(goal, qp_range(&whole, goal), attempt)
}

#[cfg(test)]
mod tests {
    use super::super::tests::tensor;
    use super::*;

    fn noise(seed: usize, y: usize, x: usize) -> f32 {
        let mut state = (seed * 1_000_003 + y * 8191 + x * 131 + 7) as u64;
        for _ in 0..3 {
            state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }

    #[test]
    fn what_moved_is_predicted_and_what_is_new_is_not() {
        let moved: Vec<Tensor> = (0..4).map(|k| tensor(64, 64, |y, x| noise(1, y, x + 3 * k))).collect();
        let found = inter(&moved, 0.01).unwrap().unwrap();
        assert!(found.inter_bits_per_value < 0.7 * found.intra_bits_per_value, "{found:?}");
        assert!(found.predicted > 0.8 && found.nmse <= 0.01 && found.frames == 4, "{found:?}");
        let fresh: Vec<Tensor> = (0..4).map(|k| tensor(64, 64, |y, x| noise(k + 10, y, x))).collect();
        let found = inter(&fresh, 0.01).unwrap().unwrap();
        assert!(found.inter_bits_per_value > 0.97 * found.intra_bits_per_value, "{found:?}");
        assert!(inter(&fresh[..1], 0.01).unwrap().is_none());
    }

    #[test]
    fn a_louder_frame_is_as_well_predicted() {
        let louder: Vec<Tensor> =
            (0..3).map(|k| tensor(64, 64, |y, x| (k + 1) as f32 * noise(1, y, x))).collect();
        let found = inter(&louder, 0.01).unwrap().unwrap();
        assert!(found.inter_bits_per_value < 0.5 * found.intra_bits_per_value, "{found:?}");
    }
}
