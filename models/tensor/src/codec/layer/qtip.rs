//! After QTIP (Tseng et al. 2024): weights made alike by random Hadamard transforms of outputs and inputs, then coded at
//! 1 to 4 whole bits through the bitshift trellis (`trellis`). Sixteen inputs are coded together, and their errors made
//! good by the inputs after them (block LDLQ).
//!
//! The paper codes sequences of 256 that bite their tail, for parallel decoders; here one sequence goes on where the
//! last one ended, which costs no bits either. Its fine-tuning after quantization is left out.

use nalgebra::DMatrix;

use super::super::grouped::{pack, transposed, unpack};
use super::super::lossy::Matrix;
use super::super::precondition;
use super::quantizer::{Damping, Quantizer, upper_factor};
use super::trellis::{PIECE, Trellis, codebook, next};
use crate::Error;

/// Over the mean of the diagonal (GPTQ, Frantar et al. 2023, §3.3).
const DAMPING: Damping = Damping { own: 0.0, mean: 0.01 };
/// Inputs that are coded together.
const BLOCK: usize = 16;
const WIDTHS: std::ops::RangeInclusive<u32> = 1..=4;
/// The bits' width, and the scale.
const HEADER: usize = 5;
/// Scales that are tried, over the spread of the weights.
const SCALES: [f32; 5] = [0.85, 0.92, 0.98, 1.04, 1.1];

#[derive(Debug)]
pub(super) struct Qtip;

/// A sign for each place, the same on both sides.
fn sign(place: usize, salt: u64) -> f32 {
    let hash = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
    if (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 63 == 0 { 1.0 } else { -1.0 }
}

const OF_INPUTS: u64 = 0x51;
const OF_OUTPUTS: u64 = 0xa7;

fn turn(values: &mut [f32], size: usize, salt: u64) {
    precondition::turn(values, size, |place| sign(place, salt));
}

fn turn_back(values: &mut [f32], size: usize, salt: u64) {
    precondition::turn_back(values, size, |place| sign(place, salt));
}

/// Weights by inputs, each with all outputs together, turned on both sides.
fn turned(matrix: &Matrix) -> Vec<f32> {
    let mut values = matrix.values.clone();
    turn(&mut values, matrix.cols, OF_INPUTS);
    let mut values = transposed(&values, matrix.cols);
    turn(&mut values, matrix.rows, OF_OUTPUTS);
    values
}

fn turned_moments(moments: &DMatrix<f64>) -> DMatrix<f64> {
    let size = moments.nrows();
    let scale = moments.diagonal().mean().max(f64::MIN_POSITIVE);
    let mut values: Vec<f32> = moments.iter().map(|&m| (m / scale) as f32).collect();
    for _ in 0..2 {
        turn(&mut values, size, OF_INPUTS);
        values = transposed(&values, size);
    }
    DMatrix::from_fn(size, size, |i, j| 0.5 * f64::from(values[i * size + j] + values[j * size + i]))
}

/// For each block of inputs, what errors of the inputs before it ask of it: inputs before × inputs of the block.
fn shares(moments: &DMatrix<f64>) -> Option<Vec<DMatrix<f32>>> {
    let factor = upper_factor(moments, DAMPING)?;
    let size = moments.nrows();
    let blocks = (0..size).step_by(BLOCK).map(|first| {
        let count = BLOCK.min(size - first);
        let own = factor.view((first, first), (count, count)).into_owned().try_inverse()?;
        Some((factor.view((0, first), (first, count)) * own).map(|v| v as f32))
    });
    blocks.collect()
}

fn scale_of(trellis: &mut Trellis, values: &[f32]) -> f32 {
    let spread = (values.iter().map(|v| v * v).sum::<f32>() / values.len().max(1) as f32).sqrt();
    let step = (values.len() / PIECE).max(1);
    let sample: Vec<f32> = values.iter().step_by(step).take(PIECE).copied().collect();
    let mut error = |times: f32| {
        let scale = (spread * times).max(f32::MIN_POSITIVE);
        let scaled: Vec<f32> = sample.iter().map(|v| v / scale).collect();
        let mut state = 0;
        let codes = trellis.path(&scaled, &mut state);
        let mut state = 0;
        let lost = scaled.iter().zip(codes).map(|(v, code)| {
            state = next(state, code, trellis.width());
            (v - trellis.value(state)).powi(2)
        });
        lost.sum::<f32>() * scale * scale
    };
    let tried = SCALES.map(|times| (error(times), times));
    let best = tried.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1.0, |(_, times)| times);
    (spread * best).max(f32::MIN_POSITIVE)
}

impl Quantizer for Qtip {
    fn name(&self) -> &'static str {
        "qtip"
    }

    fn rate_within(&self, bits: f64) -> Option<f64> {
        WIDTHS.rev().map(f64::from).find(|&width| width <= bits + 5e-3)
    }

    fn encode(&self, matrix: &Matrix, moments: &DMatrix<f64>, most: usize) -> Option<Vec<u8>> {
        let (rows, cols) = (matrix.rows, matrix.cols);
        let size = |width: u32| HEADER + (rows * cols * width as usize).div_ceil(8);
        // The header of a small matrix is not held against it.
        let width = WIDTHS.rev().find(|&width| size(width) <= most + HEADER).unwrap_or(1);
        let shares = shares(&turned_moments(moments))?;
        let weights = turned(matrix);
        let mut trellis = Trellis::new(width);
        let scale = scale_of(&mut trellis, &weights);
        // What is stored less what was asked for, by inputs.
        let mut errors = DMatrix::<f32>::zeros(rows, cols);
        let (mut codes, mut state) = (Vec::with_capacity(rows * cols), 0);
        for (block, share) in shares.iter().enumerate() {
            let (first, count) = (block * BLOCK, share.ncols());
            let asked = errors.columns(0, first) * share;
            let value = |at: usize| {
                let (row, col) = (at / count, at % count);
                (weights[(first + col) * rows + row] - asked[(row, col)]) / scale
            };
            let values: Vec<f32> = (0..rows * count).map(value).collect();
            for (piece, values) in values.chunks(PIECE).enumerate() {
                let mut at = state;
                let own = trellis.path(values, &mut state);
                for (place, &code) in own.iter().enumerate() {
                    at = next(at, code, width);
                    let place = piece * PIECE + place;
                    let (row, col) = (place / count, first + place % count);
                    errors[(row, col)] = trellis.value(at) * scale - weights[col * rows + row];
                }
                codes.extend(own);
            }
        }
        let mut bytes = vec![width as u8];
        bytes.extend(scale.to_le_bytes());
        pack(codes.into_iter(), width, &mut bytes);
        Some(bytes)
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let cut = || Error::corrupt(bytes.len(), "codes are cut");
        let (&[width, a, b, c, d], packed) = bytes.split_first_chunk::<HEADER>().ok_or_else(cut)?;
        let width = u32::from(width);
        if !WIDTHS.contains(&width) {
            return Err(Error::corrupt(0, "codes of no known width"));
        }
        if packed.len() != (rows * cols * width as usize).div_ceil(8) {
            return Err(cut());
        }
        let scale = f32::from_le_bytes([a, b, c, d]);
        let (levels, mut state) = (codebook(), 0);
        let mut codes = unpack(packed, width, rows * cols).into_iter();
        let mut values = vec![0f32; rows * cols];
        for first in (0..cols).step_by(BLOCK) {
            let count = BLOCK.min(cols - first);
            for (at, code) in codes.by_ref().take(rows * count).enumerate() {
                state = next(state, code, width);
                values[(first + at % count) * rows + at / count] = levels[state] * scale;
            }
        }
        turn_back(&mut values, rows, OF_OUTPUTS);
        let mut values = transposed(&values, rows);
        turn_back(&mut values, cols, OF_INPUTS);
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bound, coded, moments, normal};

    /// Table 1 of the paper: 0.069 at 2 bits for a normal source and 16 bits of state; the bound is 0.0625.
    #[test]
    fn a_normal_source_loses_what_was_published() {
        let (rows, cols) = (128, 32);
        let white = moments(cols, 0.0);
        let (lost, bits) = coded("qtip", &normal(rows * cols), cols, &white, 2.0 + 0.02);
        eprintln!("{lost:.4} at {bits:.3} bits; 0.069 published, {:.4} bound", bound(&white, cols, 2.0));
        assert!(lost > 0.0625 && lost < 0.0735, "{lost} at {bits} bits");
    }

    #[test]
    fn inputs_that_lean_on_each_other_cost_less() {
        let (rows, cols) = (32, 64);
        let values = normal(rows * cols);
        let lost = |leaning: f32| coded("qtip", &values, cols, &moments(cols, leaning), 2.05).0;
        let (apart, leaning) = (lost(0.0), lost(0.9));
        assert!(leaning < 0.65 * apart, "{leaning} against {apart}");
    }
}
