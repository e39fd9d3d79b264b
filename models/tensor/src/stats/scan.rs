//! The exact statistics: one pass over all values, block by block.

use crate::Dtype;
use std::ops::Range;

/// Values converted at a time; stays in the first-level cache.
const PIECE: usize = 512;
/// Accumulators a sum is spread over, so that its additions can overlap.
const LANES: usize = 8;
/// Column scales are left out beyond this many columns: a row is then so long
/// that a scale a column could not pay for itself.
const MAX_COLUMNS: usize = 1 << 20;

/// The shape of a pass.
#[derive(Debug)]
pub(super) struct Scan {
    dtype: Dtype,
    cols: usize,
    by_column: bool,
}

/// What one block, or all blocks so far, add up to.
#[derive(Debug)]
pub(super) struct Totals {
    pub count: u64,
    pub non_finite: u64,
    pub first_non_finite: Option<u64>,
    /// Sums of the first four powers of value − pivot.
    pub moments: [f64; 4],
    pub min: f64,
    pub max: f64,
    rows: LogScales,
    /// Energy of the row that the next block continues.
    open_row: f64,
    /// Energy by column; empty where not asked for.
    columns: Vec<f64>,
    block: Option<BlockShape>,
}

#[derive(Debug, Clone, Copy)]
struct BlockShape {
    starts_row: bool,
    ends_row: bool,
    cols: usize,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            count: 0,
            non_finite: 0,
            first_non_finite: None,
            moments: [0.0; 4],
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            rows: LogScales::default(),
            open_row: 0.0,
            columns: Vec::new(),
            block: None,
        }
    }
}

/// Count, sum and sum of squares of the logarithms of RMS values.
#[derive(Debug, Default)]
struct LogScales {
    count: f64,
    sum: f64,
    squares: f64,
}

impl LogScales {
    fn add(&mut self, mean_energy: f64) {
        // An all-zero row has no scale; one that overflows has none either.
        let log = 0.5 * mean_energy.ln();
        if log.is_finite() {
            self.count += 1.0;
            self.sum += log;
            self.squares += log * log;
        }
    }

    fn spread(&self) -> Option<f64> {
        let mean = self.sum / self.count;
        (self.count >= 2.0).then(|| (self.squares / self.count - mean * mean).max(0.0).sqrt())
    }
}

impl Totals {
    /// Adds the block that follows.
    pub(super) fn merge(&mut self, block: Totals) {
        self.count += block.count;
        self.non_finite += block.non_finite;
        self.first_non_finite = self.first_non_finite.or(block.first_non_finite);
        for (sum, add) in self.moments.iter_mut().zip(block.moments) {
            *sum += add;
        }
        self.min = self.min.min(block.min);
        self.max = self.max.max(block.max);
        self.rows.count += block.rows.count;
        self.rows.sum += block.rows.sum;
        self.rows.squares += block.rows.squares;
        if let Some(shape) = block.block {
            if shape.starts_row {
                self.open_row = 0.0;
            }
            self.open_row += block.open_row;
            if shape.ends_row {
                self.rows.add(self.open_row / shape.cols as f64);
            }
        }
        if self.columns.is_empty() {
            self.columns = block.columns;
        } else {
            for (sum, add) in self.columns.iter_mut().zip(block.columns) {
                *sum += add;
            }
        }
    }

    /// Spread of row scales and of column scales.
    pub(super) fn scale_spreads(&self) -> (Option<f64>, Option<f64>) {
        let mut columns = LogScales::default();
        // The spread of a logarithm does not depend on the common divisor.
        self.columns.iter().for_each(|&energy| columns.add(energy));
        (self.rows.spread(), columns.spread())
    }
}

impl Scan {
    pub(super) fn new(dtype: Dtype, rows: usize, cols: usize) -> Self {
        Self { dtype, cols, by_column: rows > 1 && cols <= MAX_COLUMNS }
    }

    /// Mean of the finite values of a block: a pivot near the mean keeps the
    /// fourth moment accurate.
    pub(super) fn mean(&self, bytes: &[u8]) -> f64 {
        let mut values = vec![0f64; bytes.len() / self.dtype.bytes()];
        self.dtype.to_f64(bytes, &mut values);
        let finite = values.iter().filter(|value| value.is_finite());
        let (count, sum) = finite.fold((0usize, 0.0), |(count, sum), value| (count + 1, sum + value));
        let mean = sum / count.max(1) as f64;
        if mean.is_finite() { mean } else { 0.0 }
    }

    /// Measures the values `range`, whose bytes are `bytes`.
    pub(super) fn block(&self, range: Range<usize>, bytes: &[u8], pivot: f64) -> Totals {
        let mut totals = Totals::default();
        let mut column_energy = vec![0.0; if self.by_column { self.cols } else { 0 }];
        let width = self.dtype.bytes();
        let mut buffer = [0f64; PIECE];
        let mut position = range.start;
        while position < range.end {
            let column = position % self.cols;
            let row_end = (position - column + self.cols).min(range.end);
            let mut energy = 0.0;
            for start in (position..row_end).step_by(PIECE) {
                let len = PIECE.min(row_end - start);
                let values = &mut buffer[..len];
                self.dtype.to_f64(&bytes[(start - range.start) * width..][..len * width], values);
                let columns =
                    if self.by_column { &mut column_energy[start % self.cols..][..len] } else { &mut [] };
                if self.dtype.is_float() && !all_finite(values) {
                    energy += totals.careful(values, columns, pivot, start as u64);
                } else {
                    energy += totals.quick(values, columns, pivot);
                }
            }
            if column == 0 && row_end == position + self.cols {
                totals.rows.add(energy / self.cols as f64);
            } else {
                let ends_row = row_end.is_multiple_of(self.cols);
                totals.open_row += energy;
                totals.block = Some(BlockShape { starts_row: column == 0, ends_row, cols: self.cols });
            }
            position = row_end;
        }
        totals.columns = column_energy;
        totals
    }
}

fn all_finite(values: &[f64]) -> bool {
    // A NaN or an infinity times zero is NaN, and NaN sticks to a sum.
    let mut sums = [0.0; LANES];
    let (chunks, tail) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += chunk[lane] * 0.0;
        }
    }
    sums.iter().sum::<f64>() == 0.0 && tail.iter().all(|value| value.is_finite())
}

impl Totals {
    /// Adds finite values of one row; returns their energy.
    fn quick(&mut self, values: &[f64], columns: &mut [f64], pivot: f64) -> f64 {
        let mut sums = [[0.0; LANES]; 5];
        let mut low = [f64::INFINITY; LANES];
        let mut high = [f64::NEG_INFINITY; LANES];
        let (chunks, tail) = values.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                let value = chunk[lane];
                let from_pivot = value - pivot;
                let square = from_pivot * from_pivot;
                sums[0][lane] += from_pivot;
                sums[1][lane] += square;
                sums[2][lane] += square * from_pivot;
                sums[3][lane] += square * square;
                sums[4][lane] += value * value;
                low[lane] = if value < low[lane] { value } else { low[lane] };
                high[lane] = if value > high[lane] { value } else { high[lane] };
            }
        }
        let whole = values.len() - tail.len();
        for (column, value) in columns.iter_mut().zip(&values[..whole]) {
            *column += value * value;
        }
        self.count += whole as u64;
        for (moment, lanes) in self.moments.iter_mut().zip(&sums) {
            *moment += lanes.iter().sum::<f64>();
        }
        self.min = low.into_iter().fold(self.min, f64::min);
        self.max = high.into_iter().fold(self.max, f64::max);
        let columns = columns.get_mut(whole..).unwrap_or_default();
        sums[4].iter().sum::<f64>() + self.careful(tail, columns, pivot, 0)
    }

    /// As [`Totals::quick`], leaving out values that are not finite.
    fn careful(&mut self, values: &[f64], columns: &mut [f64], pivot: f64, start: u64) -> f64 {
        let mut energy = 0.0;
        for (i, &value) in values.iter().enumerate() {
            if !value.is_finite() {
                self.non_finite += 1;
                self.first_non_finite.get_or_insert(start + i as u64);
                continue;
            }
            self.count += 1;
            let from_pivot = value - pivot;
            for (power, moment) in (1..).zip(&mut self.moments) {
                *moment += from_pivot.powi(power);
            }
            self.min = self.min.min(value);
            self.max = self.max.max(value);
            energy += value * value;
            if let Some(column) = columns.get_mut(i) {
                *column += value * value;
            }
        }
        energy
    }
}
