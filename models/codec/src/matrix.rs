//! A matrix of values in row order. Knows nothing of how it is coded.

use crate::Error;
use trinity_numeric::simd::{Kernel, Width, with_width};

#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

impl Matrix {
    /// Of values that a lossy code can stand for.
    pub fn finite(values: &[f32], rows: usize, cols: usize) -> Result<Self, Error> {
        if values.len() != rows.saturating_mul(cols) {
            return Err(Error::Shape { rows, cols, found: values.len() });
        }
        if !largest(values).is_finite()
            && let Some(i) = values.iter().position(|v| !v.is_finite())
        {
            return Err(Error::NotFinite { row: i / cols, col: i % cols, value: values[i] });
        }
        Ok(Self { rows, cols, values: values.to_vec() })
    }

    pub fn transposed(&self) -> Self {
        let Self { rows, cols, .. } = *self;
        let mut values = vec![0.0; self.values.len()];
        transpose(&self.values, cols, (rows, cols), &mut values, rows);
        Self { rows: cols, cols: rows, values }
    }
}

/// Writes the first `rows` × `cols` values of rows that are `stride` apart as columns of rows that are
/// `out_stride` apart: block by block, so that what is read and written stays in the nearest cache.
pub(crate) fn transpose<N: Copy>(
    values: &[N],
    stride: usize,
    shape: (usize, usize),
    out: &mut [N],
    out_stride: usize,
) {
    transpose_by(values, stride, shape, out, out_stride, |value| value);
}

/// As [`transpose`], of what `of` makes of each value.
#[inline(always)]
pub(crate) fn transpose_by<A: Copy, B: Copy>(
    values: &[A],
    stride: usize,
    (rows, cols): (usize, usize),
    out: &mut [B],
    out_stride: usize,
    of: impl Fn(A) -> B,
) {
    /// Values of a cache line.
    const BLOCK: usize = 16;
    for first_row in (0..rows).step_by(BLOCK) {
        let block_rows = BLOCK.min(rows - first_row);
        for first_col in (0..cols).step_by(BLOCK) {
            if block_rows == BLOCK && first_col + BLOCK <= cols {
                // Rows that are a power of two apart share few places of a cache, so that each is read at once.
                let mut block = [[of(values[0]); BLOCK]; BLOCK];
                for (at, row) in block.iter_mut().enumerate() {
                    let values = &values[(first_row + at) * stride + first_col..][..BLOCK];
                    row.iter_mut().zip(values).for_each(|(place, &value)| *place = of(value));
                }
                for col in 0..BLOCK {
                    let out = &mut out[(first_col + col) * out_stride + first_row..][..BLOCK];
                    out.iter_mut().zip(&block).for_each(|(out, row)| *out = row[col]);
                }
                continue;
            }
            for col in first_col..cols.min(first_col + BLOCK) {
                let out = &mut out[col * out_stride + first_row..][..block_rows];
                for (at, out) in out.iter_mut().enumerate() {
                    *out = of(values[(first_row + at) * stride + col]);
                }
            }
        }
    }
}

/// The largest magnitude: as whole numbers, which sizes sort like, so that what is not finite comes last.
pub fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |most, value| most.max(value.abs().to_bits())))
}

/// Multiplies by a factor, staying finite.
struct Scale<'a> {
    values: &'a mut [f32],
    factor: f32,
}

impl Kernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for v in self.values {
            *v = (*v * self.factor).clamp(f32::MIN, f32::MAX);
        }
    }
}

/// Multiplies by 2^`exponent` with one rounding, staying finite.
pub fn scale_by(values: &mut [f32], exponent: i32) {
    if exponent == 0 {
        return;
    }
    if (-126..=127).contains(&exponent) {
        // A power of two: one rounding here too, and only among subnormals.
        let factor = f32::from_bits(((127 + exponent) as u32) << 23);
        with_width(Width::widest(), Scale { values, factor });
    } else {
        let factor = f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52);
        for v in values {
            *v = (f64::from(*v) * factor).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_rows_of_any_shape() {
        for (rows, cols) in [(0, 5), (5, 0), (1, 200), (64, 64), (65, 129), (130, 63)] {
            let values: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
            let turned = Matrix { rows, cols, values: values.clone() }.transposed();
            assert_eq!((turned.rows, turned.cols), (cols, rows));
            let expected: Vec<f32> = (0..rows * cols).map(|i| values[i % rows * cols + i / rows]).collect();
            assert_eq!(turned.values, expected, "{rows} by {cols}");
        }
    }
}
