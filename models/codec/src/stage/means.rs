//! Prediction of values by the means of their rows and columns.
//!
//! Means are signalled ahead of a tile in whole steps, each as its difference to
//! the one before. Knows values and steps; knows nothing of what codes the
//! rest.

use crate::Error;
use crate::format::trinity::bytes::{Reader, put_varint};
use trinity_bits::golomb::{unzigzag, zigzag};

/// Largest magnitude of a mean, in steps.
const LIMIT: f32 = (1 << 23) as f32;

/// Which means predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeanOf {
    pub rows: bool,
    pub columns: bool,
}

/// Means of a tile in steps; empty where they do not predict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Means {
    rows: Vec<i32>,
    columns: Vec<i32>,
}

impl Means {
    /// Of values with `cols` columns: those of columns of what those of rows
    /// leave.
    pub fn measure(of: MeanOf, values: &[f32], cols: usize, step: f32) -> Self {
        let whole = |sum: f32, count: usize| {
            (sum / count.max(1) as f32 / step).round_ties_even().clamp(-LIMIT, LIMIT) as i32
        };
        let mut means = Self::default();
        if of.rows {
            means.rows = values.chunks_exact(cols).map(|row| whole(row.iter().sum(), cols)).collect();
        }
        if of.columns {
            let mut sums = vec![0.0f32; cols];
            for (r, row) in values.chunks_exact(cols).enumerate() {
                let mean = means.row(r) as f32 * step;
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value - mean);
            }
            means.columns = sums.into_iter().map(|sum| whole(sum, values.len() / cols)).collect();
        }
        means
    }

    fn row(&self, row: usize) -> i32 {
        self.rows.get(row).copied().unwrap_or(0)
    }

    /// Adds `sign` times the means to rows of `width` values from row `first`
    /// on; columns beyond the tile's repeat the last.
    pub fn add(&self, sign: f32, first: usize, width: usize, step: f32, values: &mut [f32]) {
        if self.rows.is_empty() && self.columns.is_empty() {
            return;
        }
        // Rows beyond the tile repeat the last, as their values do.
        let last = self.rows.len().saturating_sub(1);
        for (y, row) in values.chunks_exact_mut(width).enumerate() {
            let own = self.row((first + y).min(last));
            let edge = self.columns.last().copied().unwrap_or(0);
            let columns = self.columns.iter().copied().chain(std::iter::repeat(edge));
            for (value, column) in row.iter_mut().zip(columns) {
                *value += sign * ((own + column) as f32 * step);
            }
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        for means in [&self.rows, &self.columns] {
            let mut before = 0;
            for &mean in means {
                put_varint(out, zigzag(mean - before).into());
                before = mean;
            }
        }
    }

    pub fn read(of: MeanOf, rows: usize, cols: usize, reader: &mut Reader<'_>) -> Result<Self, Error> {
        let mut list = |wanted: bool, count: usize| {
            let count = if wanted { count } else { 0 };
            // A byte at least for each: the size is checked before it is taken.
            if count > reader.left() {
                return Err(Error::Truncated { what: "means" });
            }
            let mut before = 0i64;
            let mut means = Vec::with_capacity(count);
            for _ in 0..count {
                let change = reader.varint("means")?;
                if change > 1 << 26 {
                    return Err(Error::Damaged { what: "a mean is out of range" });
                }
                before += i64::from(unzigzag(change as u32));
                if before.abs() > LIMIT as i64 {
                    return Err(Error::Damaged { what: "a mean is out of range" });
                }
                means.push(before as i32);
            }
            Ok(means)
        };
        Ok(Self { rows: list(of.rows, rows)?, columns: list(of.columns, cols)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn means_come_back_and_take_themselves_away(values in prop::collection::vec(-100i32..100, 12 * 7), rows: bool, columns: bool) {
            let of = MeanOf { rows, columns };
            let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            let means = Means::measure(of, &values, 7, 0.5);
            let mut bytes = Vec::new();
            means.write(&mut bytes);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(&Means::read(of, 12, 7, &mut reader).unwrap(), &means);
            prop_assert_eq!(reader.left(), 0);
            for length in 0..bytes.len() {
                prop_assert!(Means::read(of, 12, 7, &mut Reader::new(&bytes[..length])).is_err());
            }
            let mut there_and_back = values.clone();
            means.add(-1.0, 0, 7, 0.5, &mut there_and_back);
            if rows {
                let sum: f32 = there_and_back[..7].iter().sum();
                prop_assert!(columns || sum.abs() <= 7.0 * 0.25, "{}", sum);
            }
            means.add(1.0, 0, 7, 0.5, &mut there_and_back);
            prop_assert_eq!(there_and_back, values);
        }
    }
}
