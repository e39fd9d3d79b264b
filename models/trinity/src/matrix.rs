//! A matrix of values in row order. Knows nothing of how it is coded.

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
        let mut values = vec![0.0; self.values.len()];
        // Square blocks keep both sides in cache.
        const BLOCK: usize = 16;
        for first in (0..self.rows).step_by(BLOCK) {
            let rows = &self.values[first * self.cols..];
            let whole: [&[f32]; BLOCK] = std::array::from_fn(|y| rows.get(y * self.cols..).unwrap_or(&[]));
            let count = BLOCK.min(self.rows - first);
            for (x, out) in values.chunks_exact_mut(self.rows).enumerate() {
                for (out, row) in out[first..][..count].iter_mut().zip(whole) {
                    *out = row[x];
                }
            }
        }
        Self { rows: self.cols, cols: self.rows, values }
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
        for v in values {
            *v = (*v * factor).clamp(f32::MIN, f32::MAX);
        }
    } else {
        let factor = f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52);
        for v in values {
            *v = (f64::from(*v) * factor).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        }
    }
}
