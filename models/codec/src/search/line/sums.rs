//! Sums over a sample of a matrix, in the widest registers: energies, means, moments and scales.
//!
//! Knows rows and columns of numbers; what they are taken for is the affair of who chooses plans.

use trinity_numeric::simd::Kernel;

/// Mean squares of rows, each in eight sums.
pub(super) struct Energies<'a> {
    pub rows: &'a [&'a [f32]],
}

impl Kernel for Energies<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let mut energies = vec![0.0; self.rows.len()];
        for (energy, row) in energies.iter_mut().zip(self.rows) {
            let mut sums = [0f64; 8];
            for values in row.chunks(8) {
                sums.iter_mut().zip(values).for_each(|(sum, &v)| *sum += f64::from(v) * f64::from(v));
            }
            *energy = sums.iter().sum::<f64>() / row.len() as f64;
        }
        energies
    }
}

/// The mean square of a row, from its first value up: what matrices are found from has one order.
pub(super) fn energy(row: &[f32]) -> f64 {
    row.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / row.len() as f64
}

/// What a row of such energy weighs in moments: every row counts the same, since row classes take out
/// how large it is.
pub(super) fn weight(energy: f64) -> f64 {
    1.0 / energy.max(0.1)
}

/// Values of a band in steps; nothing where they are no numbers, or beyond all levels.
pub(super) struct InSteps<'a> {
    pub values: &'a mut [f32],
    pub inverse: f32,
}

impl Kernel for InSteps<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for value in self.values {
            let scaled = *value * self.inverse;
            *value = if scaled.abs() < 1e6 { scaled } else { 0.0 };
        }
    }
}

pub(super) struct Means<'a> {
    pub bands: &'a [Vec<f32>],
    pub cols: usize,
}

impl Kernel for Means<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let mut means = vec![0.0; self.cols];
        let mut count = 0.0f64;
        for row in self.bands.iter().flat_map(|band| band.chunks_exact(self.cols)) {
            count += 1.0;
            means.iter_mut().zip(row).for_each(|(mean, &value)| *mean += f64::from(value));
        }
        means.iter_mut().for_each(|mean| *mean /= count.max(1.0));
        means
    }
}

/// Weighted second moments of the `size` columns from `first` on, at and below the diagonal.
pub(super) struct Moments<'a> {
    pub rows: &'a [&'a [f32]],
    pub means: &'a [f64],
    pub first: usize,
    pub size: usize,
    pub weights: &'a [f64],
}

impl Kernel for Moments<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let Self { rows, means, first, size, weights } = self;
        let mut moments = vec![0.0; size * size];
        let mut centred = vec![0.0f64; size];
        for (row, &weight) in rows.iter().zip(weights) {
            for i in 0..size {
                centred[i] = f64::from(row[first + i]) - means[first + i];
            }
            for i in 0..size {
                let scaled = weight * centred[i];
                for (moment, &other) in moments[i * size..][..=i].iter_mut().zip(&centred) {
                    *moment += scaled * other;
                }
            }
        }
        moments
    }
}

/// Rows of a band through analysis matrices, given column after column.
pub(super) struct Analyse<'a> {
    pub band: &'a mut [f32],
    pub cols: usize,
    pub size: usize,
    pub columns: &'a [Vec<f32>],
}

impl Kernel for Analyse<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { band, cols, size, columns } = self;
        let mut group = vec![0.0f32; size];
        for row in band.chunks_exact_mut(cols) {
            for (index, values) in row.chunks_exact_mut(size).enumerate() {
                let columns = &columns[if columns.len() == 1 { 0 } else { index }];
                group.fill(0.0);
                for (column, &value) in columns.chunks_exact(size).zip(&*values) {
                    group.iter_mut().zip(column).for_each(|(sum, &weight)| *sum += weight * value);
                }
                values.copy_from_slice(&group);
            }
        }
    }
}

/// Scales of rows, of mean 1 in the logarithm and beside columns that have their own; and those of columns whose rows are
/// all alike.
pub(super) struct Scales<'a> {
    pub residuals: &'a [f32],
    pub cols: usize,
}

impl Kernel for Scales<'_> {
    type Output = (Vec<f64>, Vec<f64>);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { residuals, cols } = self;
        let rows = residuals.len() / cols;
        let (mut row_scales, mut col_scales) = (vec![1.0f64; rows], vec![1.0f64; cols]);
        column_scales(residuals, &row_scales, &mut col_scales);
        let of_like_rows = col_scales.clone();
        for round in 0..2 {
            if round > 0 {
                column_scales(residuals, &row_scales, &mut col_scales);
            }
            let inverse: Vec<f64> = col_scales.iter().map(|scale| 1.0 / scale).collect();
            for (scale, row) in row_scales.iter_mut().zip(residuals.chunks_exact(cols)) {
                // Eight sums, so that they can stand side by side.
                let mut sums = [0f64; 8];
                for (row, inverse) in row.chunks(8).zip(inverse.chunks(8)) {
                    sums.iter_mut()
                        .zip(row)
                        .zip(inverse)
                        .for_each(|((sum, &r), &i)| *sum += f64::from(r) * i);
                }
                *scale = (sums.iter().sum::<f64>() / cols as f64).max(1e-3);
            }
            let mean = row_scales.iter().map(|s| s.log2()).sum::<f64>() / rows.max(1) as f64;
            row_scales.iter_mut().for_each(|scale| *scale /= mean.exp2());
        }
        (row_scales, of_like_rows)
    }
}

/// Mean magnitudes of columns in rows of these scales.
pub(super) struct ColumnScales<'a> {
    pub residuals: &'a [f32],
    pub row_scales: &'a [f64],
    pub col_scales: &'a mut [f64],
}

impl Kernel for ColumnScales<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        column_scales(self.residuals, self.row_scales, self.col_scales);
    }
}

#[inline(always)]
fn column_scales(residuals: &[f32], row_scales: &[f64], col_scales: &mut [f64]) {
    // A magnitude below this is as good as zero.
    let floor = 0.02;
    col_scales.fill(0.0);
    for (&scale, row) in row_scales.iter().zip(residuals.chunks_exact(col_scales.len())) {
        let inverse = 1.0 / scale;
        col_scales.iter_mut().zip(row).for_each(|(c, &r)| *c += f64::from(r) * inverse);
    }
    col_scales.iter_mut().for_each(|c| *c = (*c / row_scales.len().max(1) as f64).max(floor));
}
