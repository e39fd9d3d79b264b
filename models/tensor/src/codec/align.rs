//! The alignment unit (the paper's Figure 13(a)): floats to integers with a
//! scale per group of consecutive values.
//!
//! Works on normalized values; a scale is the largest magnitude of its group
//! as f16, so a group whose largest value is below 2^−25 of the tensor's
//! becomes zero. Zero aligns to zero; subnormals were made normal before.

use half::f16;

use super::Matrix;
use super::mix::{Mix, Placement};
use super::scalar::Quantizer;
use super::symbols::{Layout, Symbols};
use crate::Error;

/// Integers in −levels..=levels, and the magnitude that `levels` stands for.
#[derive(Debug)]
pub(crate) struct Aligned {
    pub integers: Vec<i32>,
    pub scales: Vec<f16>,
}

/// Rounds each value to the nearest of 2 × levels(group) + 1 evenly spaced
/// values between the extremes of its group of `size` consecutive ones.
pub(crate) fn align_to_integers(values: &[f32], size: usize, levels: impl Fn(usize) -> i32) -> Aligned {
    let (mut integers, mut scales) = (Vec::with_capacity(values.len()), Vec::new());
    for (group, values) in values.chunks(size).enumerate() {
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let (levels, scale) = (levels(group), f16::from_f32(largest));
        let inverse = if scale.to_f32() > 0.0 { levels as f32 / scale.to_f32() } else { 0.0 };
        let nearest = |value: f32| ((value * inverse).round_ties_even() as i32).clamp(-levels, levels);
        integers.extend(values.iter().map(|&value| nearest(value)));
        scales.push(scale);
    }
    Aligned { integers, scales }
}

impl Aligned {
    /// The values that the integers stand for.
    pub(crate) fn restore(&self, size: usize, levels: impl Fn(usize) -> i32) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.integers.len());
        for (group, (integers, scale)) in self.integers.chunks(size).zip(&self.scales).enumerate() {
            let step = scale.to_f32() / levels(group).max(1) as f32;
            values.extend(integers.iter().map(|&integer| integer as f32 * step));
        }
        values
    }
}

/// Values as unsigned samples with zero in their middle: what a video codec sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleGrid {
    centre: f32,
    /// Samples per unit of value.
    pub gain: f32,
}

impl SampleGrid {
    /// The grid of a depth on which ±1 is the last sample either way.
    pub(crate) fn full(depth: u32) -> Self {
        let centre = (1u32 << (depth - 1)) as f32;
        Self { centre, gain: centre - 1.0 }
    }

    /// The same samples with another gain; values beyond the last sample are cut.
    pub(crate) fn with_gain(self, gain: f32) -> Self {
        Self { gain, ..self }
    }

    /// The nearest sample, ties to even.
    #[inline]
    pub(crate) fn sample(self, value: f32) -> u16 {
        // Floats next to 2^23 are one apart, so the addition rounds, and without a
        // call for each value, which `round_ties_even` is on older processors.
        const INTEGERS: f32 = (1 << 23) as f32;
        let place = (value * self.gain + self.centre).clamp(0.0, 2.0 * self.centre - 1.0);
        (place + INTEGERS).to_bits() as u16
    }

    /// The value that a sample stands for.
    #[inline]
    pub(crate) fn value(self, sample: u16) -> f32 {
        (f32::from(sample) - self.centre) / self.gain
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

impl IntGroups {
    /// Consecutive values that share a scale.
    fn size(self, cols: usize) -> usize {
        // A scale for each of a few values would outweigh the values.
        self.group.unwrap_or(cols).max(16)
    }

    fn groups(self, rows: usize, cols: usize) -> usize {
        (rows * cols).div_ceil(self.size(cols))
    }

    fn mix(self, knob: f64, placement: Placement) -> Mix {
        Mix::new(if self.whole_bits { knob } else { 2f64.powf(knob) }, placement)
    }

    /// The largest integer of each of so many groups.
    fn levels(self, mix: Mix, groups: usize) -> impl Fn(usize) -> i32 {
        move |group| {
            let setting = mix.setting(group, groups);
            if self.whole_bits { (1 << (setting.clamp(1, 8) - 1)) - 1 } else { setting.clamp(1, 127) }
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

    fn quantize(&self, matrix: &Matrix, knob: f64, placement: Placement) -> Symbols {
        let mix = self.mix(knob, placement);
        let levels = self.levels(mix, self.groups(matrix.rows, matrix.cols));
        let aligned = align_to_integers(&matrix.values, self.size(matrix.cols), levels);
        let mut side = mix.to_bytes().to_vec();
        side.extend(aligned.scales.iter().flat_map(|scale| scale.to_le_bytes()));
        Symbols { side, codes: aligned.integers.iter().map(|&integer| (integer + CENTRE) as u8).collect() }
    }

    fn side_len(&self, rows: usize, cols: usize) -> usize {
        Mix::BYTES + 2 * self.groups(rows, cols)
    }

    fn layout(&self, side: &[u8], rows: usize, cols: usize) -> Result<Layout, Error> {
        let groups = self.groups(rows, cols);
        let levels = self.levels(Mix::read(side)?, groups);
        let width = |group| (2 * levels(group) as u32 + 1).next_power_of_two().trailing_zeros() as u8;
        let widths = (0..groups).map(width).collect();
        Ok(Layout { group: self.size(cols), widths, centre: CENTRE as u8 })
    }

    fn dequantize(&self, symbols: &Symbols, rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let mix = Mix::read(&symbols.side)?;
        let (scales, _) = symbols.side[Mix::BYTES..].as_chunks::<2>();
        let groups = self.groups(rows, cols);
        if scales.len() != groups {
            return Err(Error::corrupt(Mix::BYTES, "another number of scales than groups"));
        }
        let aligned = Aligned {
            integers: symbols.codes.iter().map(|&code| i32::from(code) - CENTRE).collect(),
            scales: scales.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect(),
        };
        Ok(aligned.restore(self.size(cols), self.levels(mix, groups)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_round_to_nearest_even_and_stop_at_the_ends() {
        for depth in [8, 12, 16] {
            let grid = SampleGrid::full(depth);
            let (centre, last) = ((1u32 << (depth - 1)) as f32, ((1u32 << depth) - 1) as f32);
            for step in -3000..=3000 {
                let value = step as f32 / 2048.0;
                let rounded = (value * grid.gain + centre).round_ties_even().clamp(0.0, last);
                assert_eq!(f32::from(grid.sample(value)), rounded, "{value} at {depth} bits");
            }
            for sample in [0, 1, last as u16 / 2, last as u16] {
                assert_eq!(grid.sample(grid.value(sample)), sample, "{depth} bits");
            }
        }
    }

    proptest! {
        #[test]
        fn no_value_moves_by_more_than_half_a_step(
            values in prop::collection::vec(-1f32..1.0, 1..300),
            levels in 1i32..32768,
            size in 1usize..400,
        ) {
            let aligned = align_to_integers(&values, size, |_| levels);
            let restored = aligned.restore(size, |_| levels);
            prop_assert_eq!(restored.len(), values.len());
            for (index, (a, b)) in values.iter().zip(&restored).enumerate() {
                let scale = aligned.scales[index / size].to_f32();
                // f16 rounds the scale itself by at most one part in 2048.
                let bound = scale * (0.5 / levels as f32 + 1.0 / 2047.0) + 1e-7;
                prop_assert!((a - b).abs() <= bound, "{a} became {b}, step {}", scale / levels as f32);
            }
        }
    }
}
