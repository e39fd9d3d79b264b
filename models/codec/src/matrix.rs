//! A matrix of values in row order. Knows nothing of how it is coded.

use trinity_numeric::simd::{Kernel, Width, with_width};

/// A matrix in row order.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

impl Matrix {
    /// Rows become columns.
    pub fn transposed(&self) -> Self {
        /// The side of squares that are turned apart: where rows are a power of two, lines of
        /// one column would crowd each other out of the cache.
        const SIDE: usize = 64;
        let Self { rows, cols, .. } = *self;
        let mut values = vec![0.0; self.values.len()];
        let mut square = [[0.0; SIDE]; SIDE];
        for left in (0..cols).step_by(SIDE) {
            let width = SIDE.min(cols - left);
            for top in (0..rows).step_by(SIDE) {
                let height = SIDE.min(rows - top);
                for (y, line) in square[..height].iter_mut().enumerate() {
                    line[..width].copy_from_slice(&self.values[(top + y) * cols + left..][..width]);
                }
                for x in 0..width {
                    let out = &mut values[(left + x) * rows + top..][..height];
                    out.iter_mut().zip(&square).for_each(|(out, line)| *out = line[x]);
                }
            }
        }
        Self { rows: cols, cols: rows, values }
    }
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
