//! One block on its way through the codec (the paper's Figures 3 and 4).

use trinity_h265::transform::{self, Kernel, Precision};

use super::stages::{Block, Stages};
use super::{DEPTH, centre, staged};
use crate::codec::lossy::normalize;
use crate::stats::Grid;
use crate::{Error, Tensor};

/// What Figures 3 and 4 draw. Grids are windows of one size; values, prediction
/// and residual are in parts of the tensor's largest magnitude.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Row and column of the window's first value.
    pub origin: (usize, usize),
    pub values: Grid,
    pub prediction: Grid,
    pub residual: Grid,
    /// Quantized coefficients, each block where its values are.
    pub levels: Grid,
    /// The partitioning inside the window.
    pub blocks: Vec<Block>,
    /// The 8×8 block around the window's largest value, in 8-bit units, and its
    /// orthonormal DCT.
    pub outlier: ([i32; 64], [i32; 64]),
    /// All values and all coefficients of 8×8 blocks, in standard deviations.
    pub histograms: [Histogram; 2],
    pub bits_per_value: f64,
    pub nmse: f64,
}

/// How values are spread, in standard deviations.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Counts of [`Histogram::BINS`] bins between ±[`Histogram::REACH`]; the
    /// outermost take all beyond.
    pub counts: Vec<u64>,
    pub largest: f64,
    pub excess_kurtosis: f64,
}

const WINDOW: usize = 64;

impl Histogram {
    pub const BINS: usize = 80;
    pub const REACH: f64 = 10.0;

    pub(super) fn of(values: &[f32]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        let moment = |power| values.iter().map(|&v| (f64::from(v) - mean).powi(power)).sum::<f64>() / count;
        let deviation = moment(2).sqrt().max(f64::MIN_POSITIVE);
        let mut counts = vec![0; Self::BINS];
        let mut largest = 0f64;
        for &value in values {
            let scaled = (f64::from(value) - mean) / deviation;
            largest = largest.max(scaled.abs());
            let bin = (scaled + Self::REACH) / (2.0 * Self::REACH) * Self::BINS as f64;
            counts[(bin.max(0.0) as usize).min(Self::BINS - 1)] += 1;
        }
        Self { counts, largest, excess_kurtosis: moment(4) / deviation.powi(4) - 3.0 }
    }
}

/// Codes a tensor with every stage on at an error of `nmse` and cuts out the
/// window around its largest value. `None` for a tensor of zeros.
pub fn show(tensor: &Tensor, nmse: f64) -> Result<Option<Shown>, Error> {
    let Some((matrix, _)) = normalize(tensor)? else { return Ok(None) };
    let found = staged(&matrix, nmse, Stages { prediction: true, partitioning: true })?;
    let (width, height) = (found.plane.width, found.plane.height);
    let value = |sample: u16| f64::from((f32::from(sample) - centre()) / found.gain);
    let away = |at: usize| found.plane.samples[at].abs_diff(centre() as u16);
    let peak = (0..found.plane.samples.len()).max_by_key(|&at| away(at)).unwrap_or(0);
    let start = |at: usize, side: usize| {
        (at.saturating_sub(WINDOW / 2) / 32 * 32).min(side.saturating_sub(WINDOW) / 8 * 8)
    };
    let (top, left) = (start(peak / width, height), start(peak % width, width));
    let (rows, cols) = (WINDOW.min(height - top), WINDOW.min(width - left));
    let window = |cell: &dyn Fn(usize) -> f64| Grid {
        rows,
        cols,
        cells: (top..top + rows)
            .flat_map(|y| (left..left + cols).map(move |x| cell(y * width + x)))
            .collect(),
    };
    let inside = |block: &&Block| {
        block.x < left + cols
            && block.x + block.size > left
            && block.y < top + rows
            && block.y + block.size > top
    };
    let coefficients = blockwise_dct(&found.plane.samples, width, height);
    let (y, x) = (peak / width / 8 * 8, peak % width / 8 * 8);
    // 12-bit samples in 8-bit units, as the paper's example has them.
    let unit = (DEPTH - 8) as i32;
    let eight_bit = |cell: &dyn Fn(usize) -> f32| {
        let mut block = [0; 64];
        for (i, out) in block.iter_mut().enumerate() {
            *out = (cell((y + i / 8) * width + x + i % 8) / (1 << unit) as f32).round() as i32;
        }
        block
    };
    let centred: Vec<f32> = found.plane.samples.iter().map(|&sample| f32::from(sample) - centre()).collect();
    Ok(Some(Shown {
        origin: (top, left),
        values: window(&|at| value(found.plane.samples[at])),
        prediction: window(&|at| value(found.coding.prediction[at])),
        residual: window(&|at| value(found.plane.samples[at]) - value(found.coding.prediction[at])),
        levels: window(&|at| f64::from(found.coding.levels[at])),
        blocks: found.coding.blocks.iter().filter(inside).copied().collect(),
        outlier: (eight_bit(&|at| centred[at]), eight_bit(&|at| coefficients[at])),
        histograms: [Histogram::of(&centred), Histogram::of(&coefficients)],
        bits_per_value: found.coding.bits / matrix.values.len() as f64,
        nmse: found.nmse,
    }))
}

/// The orthonormal DCT of every 8×8 block of samples, around mid-grey.
pub(super) fn blockwise_dct(samples: &[u16], width: usize, height: usize) -> Vec<f32> {
    let precision = Precision { depth: DEPTH, extended: false };
    let mut out = vec![0f32; samples.len()];
    for y in (0..height).step_by(8) {
        for x in (0..width).step_by(8) {
            let mut block = [0i32; 64];
            for (i, value) in block.iter_mut().enumerate() {
                *value = i32::from(samples[(y + i / 8) * width + x + i % 8]) - centre() as i32;
            }
            transform::forward(&mut block, 3, Kernel::Dct, precision);
            // At 12 bits and 8×8 the transform's gain over an orthonormal one is 2^(15 − 12 − 3).
            for (i, &value) in block.iter().enumerate() {
                out[(y + i / 8) * width + x + i % 8] = value as f32;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Dtype};

    #[test]
    fn a_window_shows_values_as_prediction_plus_residual_and_spreads_an_outlier() {
        let mut values: Vec<f32> = (0..96 * 80).map(|i| ((i * 7919) % 101) as f32 / 100.0 - 0.5).collect();
        values[50 * 80 + 40] = 40.0;
        let tensor = Tensor::of_f32("t", Class::Weight, Dtype::F32, vec![96, 80], &values).unwrap();
        let shown = show(&tensor, 0.01).unwrap().unwrap();
        assert_eq!((shown.values.rows, shown.values.cols), (64, 64));
        for at in 0..64 * 64 {
            let sum = shown.prediction.cells[at] + shown.residual.cells[at];
            assert!((shown.values.cells[at] - sum).abs() < 1e-6);
        }
        let largest = |block: &[i32; 64]| block.iter().map(|v| v.abs()).max().unwrap();
        assert!(largest(&shown.outlier.0) > 3 * largest(&shown.outlier.1), "{:?}", shown.outlier);
        // Orthonormal: energy is kept, up to rounding.
        let energy = |block: &[i32; 64]| block.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
        assert!((energy(&shown.outlier.0) / energy(&shown.outlier.1) - 1.0).abs() < 0.1);
        assert!(shown.histograms[1].largest < shown.histograms[0].largest);
        assert!(!shown.blocks.is_empty() && shown.nmse <= 0.01);
    }
}
