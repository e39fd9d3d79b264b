//! The alignment unit (the paper's Figure 13(a)): floats to integers with a
//! scale per tensor, row, column or group.
//!
//! Works on normalized values; a scale is the largest magnitude of its group
//! as f16, so a group whose largest value is below 2^−25 of the tensor's
//! becomes zero. Zero aligns to zero; subnormals were made normal before.

use half::f16;

use super::Matrix;
use super::scalar::{Layout, Quantizer, Symbols};
use crate::Error;

/// What shares a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    Tensor,
    Row,
    Column,
    /// So many consecutive values.
    Group(usize),
}

impl Granularity {
    /// Scales a matrix needs.
    pub fn groups(self, rows: usize, cols: usize) -> usize {
        match self {
            Self::Tensor => 1,
            Self::Row => rows,
            Self::Column => cols,
            Self::Group(size) => (rows * cols).div_ceil(size.max(1)),
        }
    }

    /// The scale that the value at `index` uses.
    #[inline]
    pub fn group(self, index: usize, cols: usize) -> usize {
        match self {
            Self::Tensor => 0,
            Self::Row => index / cols,
            Self::Column => index % cols,
            Self::Group(size) => index / size.max(1),
        }
    }
}

/// Integers in −levels..=levels, and the magnitude that `levels` stands for.
#[derive(Debug)]
pub struct Aligned {
    pub integers: Vec<i32>,
    pub scales: Vec<f16>,
}

/// Rounds each value to the nearest of 2 × levels(group) + 1 evenly spaced
/// values between the extremes of its group.
pub fn align_to_integers(
    matrix: &Matrix,
    granularity: Granularity,
    levels: impl Fn(usize) -> i32,
) -> Aligned {
    let mut largest = vec![0f32; granularity.groups(matrix.rows, matrix.cols)];
    for (index, value) in matrix.values.iter().enumerate() {
        let group = &mut largest[granularity.group(index, matrix.cols)];
        *group = group.max(value.abs());
    }
    let scales: Vec<f16> = largest.into_iter().map(f16::from_f32).collect();
    let steps: Vec<(f32, i32)> = scales
        .iter()
        .enumerate()
        .map(|(group, scale)| {
            let (levels, scale) = (levels(group), scale.to_f32());
            (if scale > 0.0 { levels as f32 / scale } else { 0.0 }, levels)
        })
        .collect();
    let integers = matrix
        .values
        .iter()
        .enumerate()
        .map(|(index, &value)| {
            let (inverse, levels) = steps[granularity.group(index, matrix.cols)];
            ((value * inverse).round_ties_even() as i32).clamp(-levels, levels)
        })
        .collect();
    Aligned { integers, scales }
}

impl Aligned {
    /// The values that the integers stand for.
    pub fn restore(&self, cols: usize, granularity: Granularity, levels: impl Fn(usize) -> i32) -> Vec<f32> {
        let steps: Vec<f32> = self
            .scales
            .iter()
            .enumerate()
            .map(|(group, scale)| scale.to_f32() / levels(group).max(1) as f32)
            .collect();
        let integers = self.integers.iter().enumerate();
        integers.map(|(index, &integer)| integer as f32 * steps[granularity.group(index, cols)]).collect()
    }
}

/// Integer round-to-nearest with a scale per group, at any fractional rate: a
/// share of the groups uses the next finer grid.
#[derive(Debug, Clone, Copy)]
pub struct IntGroups {
    /// `None` is a scale per row.
    pub group: Option<usize>,
    /// Whether grids have 2^b − 1 values, for symbols stored in b bits, or any
    /// odd number, for an entropy coder.
    pub whole_bits: bool,
}

/// Two neighbouring grids and the share of groups, in 1/65536, on the finer.
#[derive(Debug, Clone, Copy)]
struct Mix {
    coarse: u8,
    finer_share: u16,
}

impl Mix {
    /// Spreads the finer groups evenly.
    fn setting(self, group: usize) -> u8 {
        let share = u64::from(self.finer_share);
        let before = (group as u64 * share) >> 16;
        let after = ((group as u64 + 1) * share) >> 16;
        self.coarse + u8::from(after > before)
    }
}

impl IntGroups {
    fn granularity(self, cols: usize) -> Granularity {
        // A scale for each of a few values would outweigh the values.
        Granularity::Group(self.group.unwrap_or(cols).max(16))
    }

    fn mix(self, knob: f64) -> Mix {
        let setting = if self.whole_bits { knob } else { 2f64.powf(knob) };
        let coarse = setting.floor();
        Mix { coarse: coarse as u8, finer_share: ((setting - coarse) * 65535.0) as u16 }
    }

    fn levels(self, setting: u8) -> i32 {
        if self.whole_bits { (1 << (setting.clamp(1, 8) - 1)) - 1 } else { i32::from(setting.clamp(1, 127)) }
    }

    fn read_header(self, side: &[u8]) -> Result<Mix, Error> {
        match side {
            [coarse, low, high, ..] => {
                Ok(Mix { coarse: *coarse, finer_share: u16::from_le_bytes([*low, *high]) })
            }
            _ => Err(Error::corrupt(0, "the header is cut")),
        }
    }
}

/// Integers travel as bytes around this zero.
const CENTRE: i32 = 128;

impl Quantizer for IntGroups {
    fn knobs(&self) -> (f64, f64) {
        // One bit has only zero; 2^6.98 = 126 levels and their finer mix fill 8 bits.
        if self.whole_bits { (1.0, 8.0) } else { (0.0, 6.98) }
    }

    fn guess(&self, bits: f64) -> Option<f64> {
        Some(if self.whole_bits { bits - 0.13 } else { bits - 1.2 })
    }

    fn quantize(&self, matrix: &Matrix, knob: f64) -> Symbols {
        let mix = self.mix(knob);
        let granularity = self.granularity(matrix.cols);
        let aligned = align_to_integers(matrix, granularity, |group| self.levels(mix.setting(group)));
        let mut side = vec![mix.coarse];
        side.extend(mix.finer_share.to_le_bytes());
        side.extend(aligned.scales.iter().flat_map(|scale| scale.to_le_bytes()));
        Symbols { side, codes: aligned.integers.iter().map(|&integer| (integer + CENTRE) as u8).collect() }
    }

    fn side_len(&self, rows: usize, cols: usize) -> usize {
        3 + 2 * self.granularity(cols).groups(rows, cols)
    }

    fn layout(&self, side: &[u8], rows: usize, cols: usize) -> Result<Layout, Error> {
        let mix = self.read_header(side)?;
        let granularity = self.granularity(cols);
        let Granularity::Group(group) = granularity else { return Err(Error::corrupt(0, "no groups")) };
        let width = |group| {
            (2 * self.levels(mix.setting(group)) as u32 + 1).next_power_of_two().trailing_zeros() as u8
        };
        Ok(Layout {
            group,
            widths: (0..granularity.groups(rows, cols)).map(width).collect(),
            centre: CENTRE as u8,
        })
    }

    fn dequantize(&self, symbols: &Symbols, rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let mix = self.read_header(&symbols.side)?;
        let (scales, _) = symbols.side[3..].as_chunks::<2>();
        let granularity = self.granularity(cols);
        if scales.len() != granularity.groups(rows, cols) {
            return Err(Error::corrupt(3, "another number of scales than groups"));
        }
        let aligned = Aligned {
            integers: symbols.codes.iter().map(|&code| i32::from(code) - CENTRE).collect(),
            scales: scales.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect(),
        };
        Ok(aligned.restore(cols, granularity, |group| self.levels(mix.setting(group))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_value_moves_by_more_than_half_a_step(
            values in prop::collection::vec(-1f32..1.0, 1..300),
            levels in 1i32..32768,
            which in 0usize..4,
        ) {
            let cols = values.len().min(7);
            let rows = values.len() / cols;
            let matrix = Matrix { rows, cols, values: values[..rows * cols].to_vec() };
            let granularity = [Granularity::Tensor, Granularity::Row, Granularity::Column, Granularity::Group(5)][which];
            let aligned = align_to_integers(&matrix, granularity, |_| levels);
            let restored = aligned.restore(cols, granularity, |_| levels);
            for (index, (a, b)) in matrix.values.iter().zip(&restored).enumerate() {
                let scale = aligned.scales[granularity.group(index, cols)].to_f32();
                // f16 rounds the scale itself by at most one part in 2048.
                let bound = scale * (0.5 / levels as f32 + 1.0 / 2047.0) + 1e-7;
                prop_assert!((a - b).abs() <= bound, "{a} became {b}, step {}", scale / levels as f32);
            }
        }
    }
}
