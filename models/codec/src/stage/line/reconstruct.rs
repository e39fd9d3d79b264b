//! Levels to values: points, prediction, synthesis in integers; one product
//! and nothing else in floating point.

use crate::entropy::line::coder::{Coder, UNITS, next_state, point, polynomials, units};
use crate::entropy::line::tile::Parsed;
use crate::format::line::plan::Tile;
use crate::stage::line::matrix::ONE;
use crate::stage::line::quantize::predict;
use trinity_numeric::simd::{Kernel, Width, with_width};

/// Values of a tile, row by row: the plain truth.
pub fn reconstruct(coder: &Coder, tile: &Tile, parsed: &Parsed, values: &mut [f32]) {
    let (cols, lanes) = (tile.cols, coder.plan.lanes());
    let above = &coder.plan.above[tile.col..][..cols];
    let means = &coder.plan.means[tile.col..][..cols];
    let mut states = vec![0u8; lanes];
    let mut deviations = vec![0i32; cols];
    let mut coefficients = vec![0i32; cols];
    for (levels, values) in parsed.levels.chunks_exact(cols).zip(values.chunks_exact_mut(cols)) {
        for column in 0..cols {
            let (state, level) = (&mut states[column % lanes], i32::from(levels[column]));
            let point = units(level, i32::from(*state & 1), parsed.gain);
            let deviation = point.wrapping_add(predict(above[column], deviations[column]));
            deviations[column] = deviation.clamp(-coder.limit, coder.limit);
            coefficients[column] = means[column] * UNITS + deviations[column];
            *state = next_state(coder.plan.log2_states, *state, level & 1 == 1);
        }
        if coder.transformed {
            synthesize(coder, tile, &mut coefficients);
        }
        for (value, &coefficient) in values.iter_mut().zip(&coefficients) {
            *value = coefficient as f32 * coder.scale;
        }
    }
    for exception in &parsed.exceptions {
        values[usize::from(exception.position)] = f32::from_bits(exception.bits);
    }
}

/// One row through the synthesis matrices; columns outside whole groups are
/// multiplied by one.
fn synthesize(coder: &Coder, tile: &Tile, row: &mut [i32]) {
    let size = coder.plan.transform.size();
    let mut group = [0i32; 64];
    for (index, values) in row.chunks_mut(size).enumerate() {
        let number = tile.col / size + index;
        if number >= coder.plan.group_count() || values.len() < size {
            values.iter_mut().for_each(|value| *value = value.wrapping_mul(ONE));
            continue;
        }
        let synthesis = coder.synthesis(number);
        for (value, weights) in group.iter_mut().zip(synthesis.entries.chunks_exact(size)) {
            let products = weights.iter().zip(&*values).map(|(&w, &c)| i32::from(w).wrapping_mul(c));
            *value = products.fold(0, i32::wrapping_add);
        }
        values.copy_from_slice(&group[..size]);
    }
}

/// A number that values are given back as.
pub trait Number: Copy + Default + Send + Sync {
    /// What a decoded value becomes: finite stays finite.
    fn rounded(value: f32) -> Self;
    /// What a value that was kept exactly becomes.
    fn kept(value: f32) -> Self;
}

impl Number for f32 {
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        value
    }

    fn kept(value: f32) -> Self {
        value
    }
}

/// bf16 by its bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Number for Bf16 {
    /// To nearest even; what would overflow becomes the largest.
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        // Beyond the largest finite magnitude lies only infinity.
        let over = rounded & 0x7fff == 0x7f80;
        Self(rounded.wrapping_sub(u32::from(over)) as u16)
    }

    fn kept(value: f32) -> Self {
        if value.is_nan() {
            // The payload's upper bits, and never infinity.
            let upper = (value.to_bits() >> 16) as u16;
            return Self(if upper & 0x7f == 0 { upper | 0x40 } else { upper });
        }
        if value.is_infinite() { Self((value.to_bits() >> 16) as u16) } else { Self::rounded(value) }
    }
}

/// A sample of a picture, of so many bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Sample<const BITS: u32>(pub u16);

impl<const BITS: u32> Number for Sample<BITS> {
    /// To the nearest integer, ties to even, and clipped.
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        Self(value.round_ties_even().clamp(0.0, ((1u32 << BITS) - 1) as f32) as u16)
    }

    /// As any other; what is no number becomes 0.
    fn kept(value: f32) -> Self {
        Self::rounded(value)
    }
}

/// As [`reconstruct`], to any number and with wide registers: `out` starts with
/// the tile's first value, and a row follows the one before after `stride`.
pub(crate) fn reconstruct_wide<N: Number>(
    width: Width,
    coder: &Coder,
    tile: &Tile,
    parsed: &Parsed,
    out: &mut [N],
    stride: usize,
) {
    with_width(width, Rows { coder, tile, parsed, out, stride });
    for exception in &parsed.exceptions {
        let position = usize::from(exception.position);
        let at = position / tile.cols * stride + position % tile.cols;
        out[at] = N::kept(f32::from_bits(exception.bits));
    }
}

struct Rows<'a, N> {
    coder: &'a Coder,
    tile: &'a Tile,
    parsed: &'a Parsed,
    out: &'a mut [N],
    stride: usize,
}

impl<N: Number> Kernel for Rows<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { coder, tile, parsed, out, stride } = self;
        let cols = tile.cols;
        let above = &coder.plan.above[tile.col..][..cols];
        let means = &coder.plan.means[tile.col..][..cols];
        let stages = coder.plan.log2_states > 0 || coder.transformed || coder.predicts;
        if !stages && means.iter().all(|&mean| mean == 0) {
            // Nothing stands between levels and values.
            let (factor, shift, limit) = (8 * (4 + (parsed.gain as i32 & 3)), parsed.gain >> 2, coder.limit);
            for (levels, out) in parsed.levels.chunks_exact(cols).zip(out.chunks_mut(stride)) {
                for (value, &level) in out.iter_mut().zip(levels) {
                    let units = i32::from(level).wrapping_mul(factor).wrapping_shl(shift);
                    *value = N::rounded(units.clamp(-limit, limit) as f32 * coder.scale);
                }
            }
            return;
        }
        let mut offsets = vec![0i32; cols];
        for (offset, &mean) in offsets.iter_mut().zip(means) {
            *offset = mean * UNITS;
        }
        let mut states = [0i32; 32];
        let mut deviations = vec![0i32; cols];
        let mut coefficients = vec![0i32; cols];
        for (row, levels) in parsed.levels.chunks_exact(cols).enumerate() {
            let columns = Columns {
                levels,
                above,
                offsets: &offsets,
                deviations: &mut deviations,
                coefficients: &mut coefficients,
            };
            match (coder.plan.log2_lanes == 5, coder.predicts) {
                (true, true) => whole_steps::<true>(coder, parsed.gain, &mut states, columns),
                (true, false) => whole_steps::<false>(coder, parsed.gain, &mut states, columns),
                _ => columns.any_steps(coder, parsed.gain, &mut states),
            }
            if coder.transformed {
                synthesize_wide(coder, tile, &mut coefficients);
            }
            let out = &mut out[row * stride..][..cols];
            for (value, &coefficient) in out.iter_mut().zip(&coefficients) {
                *value = N::rounded(coefficient as f32 * coder.scale);
            }
        }
    }
}

/// A row, column by column; all of one length.
struct Columns<'a> {
    levels: &'a [i16],
    above: &'a [i32],
    offsets: &'a [i32],
    deviations: &'a mut [i32],
    coefficients: &'a mut [i32],
}

impl Columns<'_> {
    /// Coefficients of a row of any number of lanes.
    #[inline(always)]
    fn any_steps(self, coder: &Coder, gain: u32, states: &mut [i32; 32]) {
        let (polynomials, lanes) = (polynomials(coder.plan.log2_states), coder.plan.lanes());
        let (factor, shift) = (4 * (4 + (gain as i32 & 3)), gain >> 2);
        for column in 0..self.levels.len() {
            let state = &mut states[column % lanes];
            let (point, next) = point(*state, i32::from(self.levels[column]), polynomials);
            *state = next;
            let predicted = predict(self.above[column], self.deviations[column]);
            let deviation = point.wrapping_mul(factor).wrapping_shl(shift).wrapping_add(predicted);
            self.deviations[column] = deviation.clamp(-coder.limit, coder.limit);
            self.coefficients[column] = self.offsets[column] + self.deviations[column];
        }
    }
}

/// Coefficients of a row of 32 lanes, a step at a time.
#[inline(always)]
fn whole_steps<const PREDICTS: bool>(coder: &Coder, gain: u32, states: &mut [i32; 32], columns: Columns<'_>) {
    let Columns { levels, above, offsets, deviations, coefficients } = columns;
    let (polynomials, limit) = (polynomials(coder.plan.log2_states), coder.limit);
    let (factor, shift) = (4 * (4 + (gain as i32 & 3)), gain >> 2);
    let (levels, last_levels) = levels.as_chunks::<32>();
    let (above, last_above) = above.as_chunks::<32>();
    let (offsets, last_offsets) = offsets.as_chunks::<32>();
    let (deviations, last_deviations) = deviations.as_chunks_mut::<32>();
    let (coefficients, last_coefficients) = coefficients.as_chunks_mut::<32>();
    let inner = levels.iter().zip(above).zip(offsets).zip(deviations.iter_mut().zip(coefficients));
    for (((levels, above), offsets), (deviations, coefficients)) in inner {
        for lane in 0..32 {
            let (point, next) = point(states[lane], i32::from(levels[lane]), polynomials);
            states[lane] = next;
            let mut deviation = point.wrapping_mul(factor).wrapping_shl(shift);
            if PREDICTS {
                deviation = deviation.wrapping_add(predict(above[lane], deviations[lane]));
            }
            let deviation = deviation.clamp(-limit, limit);
            if PREDICTS {
                deviations[lane] = deviation;
            }
            coefficients[lane] = offsets[lane] + deviation;
        }
    }
    let last = Columns {
        levels: last_levels,
        above: last_above,
        offsets: last_offsets,
        deviations: last_deviations,
        coefficients: last_coefficients,
    };
    last.any_steps(coder, gain, states);
}

/// As [`synthesize`], column after column of the matrices.
#[inline(always)]
fn synthesize_wide(coder: &Coder, tile: &Tile, row: &mut [i32]) {
    let size = coder.plan.transform.size();
    for (index, values) in row.chunks_mut(size).enumerate() {
        let number = tile.col / size + index;
        if number >= coder.plan.group_count() || values.len() < size {
            values.iter_mut().for_each(|value| *value = value.wrapping_mul(ONE));
            continue;
        }
        let columns = coder.columns(number);
        match size {
            32 => multiply::<32>(columns, values),
            _ => multiply::<64>(columns, values),
        }
    }
}

#[inline(always)]
fn multiply<const SIZE: usize>(columns: &[i32], values: &mut [i32]) {
    let mut sums = [0i32; SIZE];
    for (column, &coefficient) in columns.as_chunks::<SIZE>().0.iter().zip(&*values) {
        if coefficient != 0 {
            for i in 0..SIZE {
                sums[i] = sums[i].wrapping_add(column[i].wrapping_mul(coefficient));
            }
        }
    }
    values.copy_from_slice(&sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_even_and_never_to_infinity() {
        let cases = [
            (1.0f32, 0x3f80),
            (1.0 + 1.0 / 256.0, 0x3f80),
            (1.0 + 3.0 / 256.0, 0x3f82),
            (f32::MAX, 0x7f7f),
            (-f32::MAX, 0xff7f),
            (0.0, 0),
        ];
        for (value, bits) in cases {
            assert_eq!(Bf16::rounded(value).0, bits, "{value}");
        }
        assert_eq!(Bf16::kept(f32::INFINITY).0, 0x7f80);
        assert_eq!(Bf16::kept(f32::from_bits(0x7f80_0001)).0, 0x7fc0);
        assert_eq!(Bf16::kept(f32::from_bits(0xffc1_0000)).0, 0xffc1);
    }
    #[test]
    fn samples_are_rounded_and_clipped() {
        let cases = [(-3.0f32, 0), (0.5, 0), (1.5, 2), (254.5, 254), (254.6, 255), (1e9, 255), (f32::NAN, 0)];
        for (value, sample) in cases {
            assert_eq!(Sample::<8>::rounded(value).0, sample, "{value}");
        }
        assert_eq!(Sample::<10>::kept(f32::INFINITY).0, 1023);
    }
}
