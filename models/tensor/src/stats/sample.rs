//! The sample that costly statistics look at: evenly spread blocks of rows.

use crate::Dtype;
use std::ops::Range;

/// Values in one block of the streaming pass.
pub const BLOCK_VALUES: usize = 1 << 18;
/// Most values that the sampled statistics look at.
pub const SAMPLE_VALUES: usize = 1 << 22;

/// A small matrix to look at.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    pub rows: usize,
    pub cols: usize,
    pub cells: Vec<f64>,
}

/// Blocks kept for later, as f32.
#[derive(Debug)]
pub(super) struct Sample {
    dtype: Dtype,
    /// Every how many blocks one is kept.
    stride: usize,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    cols: usize,
    values: Vec<f32>,
}

impl Sample {
    pub(super) fn new(dtype: Dtype, blocks: usize) -> Self {
        Self { dtype, stride: blocks.div_ceil(SAMPLE_VALUES / BLOCK_VALUES).max(1), blocks: Vec::new() }
    }

    /// Keeps the block if it is its turn.
    pub(super) fn offer(&mut self, index: usize, range: &Range<usize>, cols: usize, bytes: &[u8]) {
        if index.is_multiple_of(self.stride) && !range.is_empty() {
            let mut values = vec![0f32; range.len()];
            self.dtype.to_f32(bytes, &mut values);
            self.blocks.push(Block { cols: cols.min(values.len()), values });
        }
    }

    /// Sampled values per level of 256 between the extremes.
    pub(super) fn histogram(&self, min: f64, max: f64) -> Vec<u64> {
        // Four tables, so that a run of equal levels does not wait on itself.
        let mut counts = [[0u64; 256]; 4];
        let scale = if max > min { 255.0 / (max - min) } else { 0.0 };
        for block in &self.blocks {
            for (i, &value) in block.values.iter().enumerate() {
                // An out-of-range cast saturates; NaN is left out.
                let level = (f64::from(value) - min) * scale + 0.5;
                if level.is_finite() {
                    counts[i % 4][usize::from(level as u8)] += 1;
                }
            }
        }
        (0..256).map(|level| counts.iter().map(|table| table[level]).sum()).collect()
    }

    /// The sample with its mean taken off and non-finite values at zero.
    pub(super) fn view(&self, mean: f64) -> View {
        let centred = |&value: &f32| if value.is_finite() { (f64::from(value) - mean) as f32 } else { 0.0 };
        let of = |b: &Block| Block { cols: b.cols, values: b.values.iter().map(centred).collect() };
        View { blocks: self.blocks.iter().map(of).collect() }
    }
}

/// Centred values in blocks of rows.
#[derive(Debug)]
pub(super) struct View {
    blocks: Vec<Block>,
}

impl View {
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.values.len()).sum()
    }

    /// Each block as rows of `cols` values.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.blocks.iter().map(|block| (block.cols, block.values.as_slice()))
    }

    /// Takes at most `count` values, evenly spaced.
    pub(super) fn thinned(&self, count: usize) -> Vec<f32> {
        let stride = self.len().div_ceil(count).max(1);
        // An even stride could lock onto one column; an odd one visits all.
        let stride = if stride > 1 { stride | 1 } else { 1 };
        self.blocks.iter().flat_map(|block| &block.values).copied().step_by(stride).collect()
    }

    /// Correlation of each value with its right neighbour.
    pub(super) fn row_autocorrelation(&self) -> Option<f64> {
        correlation(self.blocks.iter().flat_map(|block| {
            block.values.chunks_exact(block.cols).map(|row| {
                let (left, right) = (&row[..row.len() - 1], &row[1..]);
                (dot(left, right), dot(left, left), dot(right, right))
            })
        }))
    }

    /// Correlation of each value with the one below.
    pub(super) fn column_autocorrelation(&self) -> Option<f64> {
        correlation(self.blocks.iter().filter(|block| block.values.len() > block.cols).map(|block| {
            let (upper, lower) =
                (&block.values[..block.values.len() - block.cols], &block.values[block.cols..]);
            (dot(upper, lower), dot(upper, upper), dot(lower, lower))
        }))
    }

    /// RMS over the cells of a grid of at most `side` × `side`.
    pub(super) fn heat_map(&self, side: usize) -> Grid {
        let Some(cols) = self.blocks.first().map(|block| block.cols) else { return Grid::default() };
        let rows: usize = self.blocks.iter().map(|block| block.values.len() / block.cols).sum();
        let (grid_rows, grid_cols) = (rows.min(side), cols.min(side));
        let mut energy = vec![0f64; grid_rows * grid_cols];
        let mut counts = vec![0f64; grid_rows * grid_cols];
        let all_rows = self.blocks.iter().flat_map(|block| block.values.chunks_exact(block.cols));
        for (y, row) in all_rows.enumerate() {
            let cells = y * grid_rows / rows * grid_cols;
            for (x, &value) in row.iter().enumerate() {
                let cell = cells + x * grid_cols / row.len();
                energy[cell] += f64::from(value) * f64::from(value);
                counts[cell] += 1.0;
            }
        }
        let cells = energy.iter().zip(&counts).map(|(sum, count)| (sum / count.max(1.0)).sqrt()).collect();
        Grid { rows: grid_rows, cols: grid_cols, cells }
    }
}

fn correlation(parts: impl Iterator<Item = (f64, f64, f64)>) -> Option<f64> {
    let (cross, left, right) = parts.fold((0.0, 0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    let value = cross / (left.sqrt() * right.sqrt());
    value.is_finite().then_some(value)
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    let mut sums = [0f64; 8];
    let (lefts, left_tail) = left.as_chunks::<8>();
    let (rights, right_tail) = right.as_chunks::<8>();
    for (a, b) in lefts.iter().zip(rights) {
        for lane in 0..8 {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let tail: f64 = left_tail.iter().zip(right_tail).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    sums.iter().sum::<f64>() + tail
}
