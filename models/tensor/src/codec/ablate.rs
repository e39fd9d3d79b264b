//! What each stage of a video codec is worth on a tensor (the paper's Figure
//! 2(b)): stages are switched on one by one, and the bits compared at one error.
//!
//! The paper frees the quantizer's step together with the transform. What that
//! alone is worth stands beside as a reference: a uniform quantizer with an
//! arithmetic coder and no transform at all.

mod blocks;
mod inter;
mod motion;
mod show;
mod stages;

pub use blocks::{Blocks, blocks};
pub use inter::{Inter, inter};
pub use show::{Histogram, Shown, show};
pub use stages::{Block, Stages};

use serde::Serialize;
use trinity_bits::{Chroma, Plane};

use super::align::{SampleGrid, align_to_integers};
use super::arith::{Encoder, Tree};
use super::lossy::normalize;
use super::tiling::{Limits, Tiling};
use super::{Matrix, Metrics, Rate, codec};
use crate::{Error, Tensor};
use stages::{Coding, code};

/// One bar of the figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The paper's number, 1 to 6; none for a reference.
    pub step: Option<u8>,
    pub stage: &'static str,
    pub bits_per_value: f64,
    pub nmse: f64,
}

impl Line {
    /// Whether the error bound holds; eight bits with one scale may not do.
    pub fn within(&self, nmse: f64) -> bool {
        self.nmse <= nmse
    }
}

/// Samples have as many bits as in the tensor codecs.
const DEPTH: u32 = 12;
/// Halvings of a QP range of [`SPAN`]: to a hundredth of a step.
const HALVINGS: usize = 11;
/// The coarsest step there is, with its fraction.
const HIGHEST_QP: f64 = 51.99;
/// How far from the first guess a QP may lie.
const SPAN: f64 = 10.0;

/// Steps 1 to 5 and the references that need no other program, at an error of
/// at most `nmse`. Nothing for a tensor of zeros.
pub fn ablate(tensor: &Tensor, nmse: f64) -> Result<Vec<Line>, Error> {
    let Some((matrix, _)) = normalize(tensor)? else { return Ok(Vec::new()) };
    let mut lines = integers(&matrix);
    for (step, stage, stages) in [
        (3, "+ transform", Stages { prediction: false, partitioning: false }),
        (4, "+ intra prediction", Stages { prediction: true, partitioning: false }),
        (5, "+ partitioning", Stages { prediction: true, partitioning: true }),
    ] {
        let found = staged(&matrix, nmse, stages)?;
        let bits_per_value = found.coding.bits / matrix.values.len() as f64;
        lines.push(Line { step: Some(step), stage, bits_per_value, nmse: found.nmse });
    }
    for (stage, name) in [
        ("reference: h265, the whole encoder", "h265"),
        ("reference: no transform, a uniform step and arithmetic coding", "uniform+ac"),
    ] {
        let codec = codec(name)?;
        let encoded = match codec.encode(tensor, Rate::Nmse(nmse)) {
            Err(Error::Unreachable { .. }) => continue,
            other => other?,
        };
        let nmse = Metrics::between(tensor, &codec.decode(&encoded)?).nmse;
        lines.push(Line { step: None, stage, bits_per_value: encoded.bits_per_value(), nmse });
    }
    Ok(lines)
}

/// Steps 1 and 2: eight-bit integers with one scale, as they are and
/// entropy-coded.
fn integers(matrix: &Matrix) -> Vec<Line> {
    const LEVELS: i32 = 127;
    let count = matrix.values.len();
    let aligned = align_to_integers(&matrix.values, count, |_| LEVELS);
    let restored = aligned.restore(count, |_| LEVELS);
    let nmse = nmse(&matrix.values, &restored);
    let mut encoder = Encoder::default();
    let mut tree = Tree::new(8);
    aligned.integers.iter().for_each(|&integer| tree.put(&mut encoder, (integer + 128) as u8));
    let scale_bits = 16.0 / count as f64;
    let coded = 8.0 * encoder.finish().len() as f64 / count as f64;
    vec![
        Line { step: Some(1), stage: "8-bit integers", bits_per_value: 8.0 + scale_bits, nmse },
        Line { step: Some(2), stage: "+ entropy coding", bits_per_value: coded + scale_bits, nmse },
    ]
}

/// A matrix through the stages at the coarsest QP that holds an error bound.
#[derive(Debug)]
struct Staged {
    coding: Coding,
    /// The samples that were coded; padded to whole blocks.
    plane: Plane,
    /// Samples per unit of value.
    gain: f32,
    nmse: f64,
}

fn staged(matrix: &Matrix, goal: f64, stages: Stages) -> Result<Staged, Error> {
    let attempt = |qp: f64| -> Result<(f64, Staged), Error> {
        let (whole, grid) = grid_at(qp);
        let (plane, tiling) = samples(matrix, grid);
        let coding = code(&plane, DEPTH, whole, stages);
        let values = restored(&coding, &plane, tiling, grid)?;
        let nmse = nmse(&matrix.values, &values);
        Ok((nmse, Staged { nmse, coding, plane, gain: grid.gain }))
    };
    Ok(coarsest(goal, qp_range(matrix, goal), attempt)?.1)
}

/// A fractional QP as a whole one and a gain, as in the tensor codecs.
fn grid_at(qp: f64) -> (i32, SampleGrid) {
    let whole = qp.floor();
    let full = SampleGrid::full(DEPTH);
    (whole as i32, full.with_gain(full.gain * ((whole - qp) / 6.0).exp2() as f32))
}

/// The values that a coded plane stands for.
fn restored(coding: &Coding, plane: &Plane, tiling: Tiling, grid: SampleGrid) -> Result<Vec<f32>, Error> {
    let (width, height) = tiling.size();
    let rows = coding.reconstruction.chunks_exact(plane.width).take(height);
    let back = Plane { width, height, samples: rows.flat_map(|row| &row[..width]).copied().collect() };
    let frame =
        trinity_bits::Frame { chroma: Chroma::C400, depth: DEPTH, chroma_depth: DEPTH, planes: vec![back] };
    tiling
        .join(&[frame], |sample| grid.value(sample))
        .ok_or_else(|| Error::corrupt(0, "a frame of another size"))
}

/// Error and result at the coarsest QP whose error is at most `goal`.
fn coarsest<T>(
    goal: f64,
    (mut low, mut high): (f64, f64),
    attempt: impl Fn(f64) -> Result<(f64, T), Error>,
) -> Result<(f64, T), Error> {
    let mut best = attempt(low)?;
    while best.0 > goal && low > lowest_qp() {
        low = (low - SPAN).max(lowest_qp());
        best = attempt(low)?;
    }
    // What is predicted well bears coarser steps than its spread suggests.
    while low < high && high < HIGHEST_QP {
        let found = attempt(high)?;
        if found.0 > goal {
            break;
        }
        (low, best) = (high, found);
        high = (high + SPAN).min(HIGHEST_QP);
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        let found = attempt(middle)?;
        if found.0 <= goal {
            (low, best) = (middle, found);
        } else {
            high = middle;
        }
    }
    Ok(best)
}

fn lowest_qp() -> f64 {
    -6.0 * f64::from(DEPTH - 8)
}

/// Where the QP that gives an error should lie: a uniform quantizer of step Δ
/// leaves Δ²/12, and dead zones a little more.
fn qp_range(matrix: &Matrix, goal: f64) -> (f64, f64) {
    let energy: f64 = matrix.values.iter().map(|&value| f64::from(value).powi(2)).sum();
    let rms = (energy / matrix.values.len() as f64).sqrt() * f64::from(SampleGrid::full(DEPTH).gain);
    let step = (12.0 * goal).sqrt() * rms;
    let qp = (4.0 + 6.0 * step.log2() + lowest_qp()).clamp(lowest_qp(), 51.0);
    ((qp - SPAN).max(lowest_qp()), (qp + SPAN).min(HIGHEST_QP))
}

fn centre() -> f32 {
    (1u32 << (DEPTH - 1)) as f32
}

/// The matrix as one plane of whole 8×8 blocks; edges repeat.
fn samples(matrix: &Matrix, grid: SampleGrid) -> (Plane, Tiling) {
    let limits = Limits { least: 1, side: usize::MAX >> 8, chroma: Chroma::C400, depth: DEPTH };
    let tiling = Tiling::new(matrix.rows, matrix.cols, false, limits);
    let tight = tiling.cut(&matrix.values, |value| grid.sample(value)).swap_remove(0).planes.swap_remove(0);
    let (width, height) = (tight.width.next_multiple_of(8), tight.height.next_multiple_of(8));
    let mut plane = Plane::filled(width, height, 0);
    for y in 0..height {
        let row = tight.row(y.min(tight.height - 1));
        for (x, sample) in plane.row_mut(y).iter_mut().enumerate() {
            *sample = row[x.min(tight.width - 1)];
        }
    }
    (plane, tiling)
}

fn nmse(exact: &[f32], near: &[f32]) -> f64 {
    let (mut error, mut energy) = (0f64, 0f64);
    for (&a, &b) in exact.iter().zip(near) {
        error += f64::from(a - b).powi(2);
        energy += f64::from(a).powi(2);
    }
    error / energy.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Dtype};

    pub(super) fn tensor(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Tensor {
        let values: Vec<f32> = (0..rows * cols).map(|i| value(i / cols, i % cols)).collect();
        Tensor::of_f32("t", Class::Other, Dtype::F32, vec![rows, cols], &values).unwrap()
    }

    #[test]
    fn five_steps_hold_the_error_and_use_it_up() {
        let waves = tensor(70, 90, |y, x| (x as f32 * 0.2).sin() + (y as f32 * 0.13).cos());
        let lines = ablate(&waves, 0.01).unwrap();
        let steps: Vec<u8> = lines.iter().filter_map(|line| line.step).collect();
        assert_eq!(steps, [1, 2, 3, 4, 5]);
        assert!(lines.iter().all(|line| line.within(0.01)), "{lines:?}");
        assert!(lines[2..].iter().all(|line| line.nmse > 0.0090), "{lines:?}");
        // On smooth waves everything pays, the transform most.
        assert!(lines[1].bits_per_value > 2.0 * lines[2].bits_per_value, "{lines:?}");
        assert!(lines[2].bits_per_value > lines[4].bits_per_value, "{lines:?}");
    }

    #[test]
    fn odd_shapes_and_zeros_pass() {
        for (rows, cols) in [(1, 1), (1, 3000), (5, 7), (33, 41)] {
            let noise = tensor(rows, cols, |y, x| ((x * 7919 + y * 104_729) % 1009) as f32 - 504.0);
            let lines = ablate(&noise, 0.01).unwrap();
            assert!(lines.iter().all(|line| line.within(0.01)), "{rows}×{cols}: {lines:?}");
        }
        assert!(ablate(&tensor(4, 4, |_, _| 0.0), 0.01).unwrap().is_empty());
    }
}
