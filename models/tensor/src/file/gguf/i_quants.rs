//! I-quants: groups of four or eight values at once, each group a row of a
//! fixed grid (`grids.bin`); and the two formats whose sixteen levels are not
//! evenly spaced, IQ4 and MXFP4.
//!
//! The grids are constants of the format, made by
//! `tests/data/make_gguf_blocks.py` out of the reference's.

use super::k_quants::half;

/// Rows of the six grids, one after the other; see [`GRIDS`].
static PACKED: &[u8; 9216] = include_bytes!("grids.bin");

/// A grid: where it starts in [`PACKED`], bits of a packed level, values of a
/// row, and what the levels stand for.
struct Grid<const LEVELS: usize> {
    start: usize,
    bits: usize,
    width: usize,
    levels: [f32; LEVELS],
}

const IQ2_LEVELS: [f32; 3] = [8.0, 25.0, 43.0];
const IQ2_XXS: Grid<3> = Grid { start: 0, bits: 2, width: 8, levels: IQ2_LEVELS };
const IQ2_XS: Grid<3> = Grid { start: 512, bits: 2, width: 8, levels: IQ2_LEVELS };
const IQ2_S: Grid<3> = Grid { start: 1536, bits: 2, width: 8, levels: IQ2_LEVELS };
const IQ1_S: Grid<3> = Grid { start: 3584, bits: 2, width: 8, levels: [-1.0, 0.0, 1.0] };
const IQ3_XXS: Grid<8> =
    Grid { start: 7680, bits: 4, width: 4, levels: [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0] };
const IQ3_S: Grid<8> =
    Grid { start: 8192, bits: 4, width: 4, levels: [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0] };

impl<const LEVELS: usize> Grid<LEVELS> {
    /// Value `i` of a row.
    fn at(&self, row: usize, i: usize) -> f32 {
        let place = self.bits * (row * self.width + i);
        let level = PACKED[self.start + place / 8] >> (place % 8) & ((1 << self.bits) - 1);
        // The packed grids hold known levels only; a test reads them all.
        self.levels[usize::from(level) % LEVELS]
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Seven stored signs of a group of eight; the eighth makes their number even.
fn eight_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

fn signed(value: f32, signs: u8, i: usize) -> f32 {
    if signs >> i & 1 == 0 { value } else { -value }
}

/// Each 32 values: four grid rows of a byte each, then four times seven signs
/// and a 4-bit scale.
pub fn iq2_xxs(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    for (j, sub_block) in values.chunks_exact_mut(32).enumerate() {
        let rows = &bytes[2 + 8 * j..][..8];
        let tail = u32_at(rows, 4);
        let sub_scale = scale * (0.5 + (tail >> 28) as f32) * 0.25;
        for (g, group) in sub_block.chunks_exact_mut(8).enumerate() {
            let signs = eight_signs(tail >> (7 * g));
            for (i, value) in group.iter_mut().enumerate() {
                *value = signed(sub_scale * IQ2_XXS.at(rows[g].into(), i), signs, i);
            }
        }
    }
}

/// Each 8 values: nine bits of row and seven of signs; each 16 a 4-bit scale.
pub fn iq2_xs(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    for (g, group) in values.chunks_exact_mut(8).enumerate() {
        let word = u16_at(bytes, 2 + 2 * g);
        let sub_scale = scale * (0.5 + f32::from(bytes[66 + g / 4] >> (4 * (g / 2 % 2)) & 15)) * 0.25;
        let signs = eight_signs(u32::from(word >> 9));
        for (i, value) in group.iter_mut().enumerate() {
            *value = signed(sub_scale * IQ2_XS.at(usize::from(word & 511), i), signs, i);
        }
    }
}

/// Each 8 values: ten bits of row, two of them apart, and eight signs.
pub fn iq2_s(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    let (rows, signs, high, scales) = (&bytes[2..34], &bytes[34..66], &bytes[66..74], &bytes[74..]);
    for (g, group) in values.chunks_exact_mut(8).enumerate() {
        let sub_scale = scale * (0.5 + f32::from(scales[g / 4] >> (4 * (g / 2 % 2)) & 15)) * 0.25;
        let row = usize::from(rows[g]) | usize::from(high[g / 4] >> (2 * (g % 4)) & 3) << 8;
        for (i, value) in group.iter_mut().enumerate() {
            *value = signed(sub_scale * IQ2_S.at(row, i), signs[g], i);
        }
    }
}

/// Each 32 values: eight grid rows of four; signs and scale as in IQ2_XXS.
pub fn iq3_xxs(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    let (rows, tails) = (&bytes[2..66], &bytes[66..]);
    for (j, sub_block) in values.chunks_exact_mut(32).enumerate() {
        let tail = u32_at(tails, 4 * j);
        let sub_scale = scale * (0.5 + (tail >> 28) as f32) * 0.5;
        for (i, value) in sub_block.iter_mut().enumerate() {
            let signs = eight_signs(tail >> (7 * (i / 8)));
            let row = usize::from(rows[8 * j + i / 4]);
            *value = signed(sub_scale * IQ3_XXS.at(row, i % 4), signs, i % 8);
        }
    }
}

/// Each 4 values: nine bits of row, one of them apart; eight signs to 8 values.
pub fn iq3_s(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    let (rows, high, signs, scales) = (&bytes[2..66], &bytes[66..74], &bytes[74..106], &bytes[106..]);
    for (i, value) in values.iter_mut().enumerate() {
        let sub_scale = scale * (1.0 + 2.0 * f32::from(scales[i / 64] >> (4 * (i / 32 % 2)) & 15));
        let group = i / 4;
        let row = usize::from(rows[group]) | usize::from(high[group / 8] >> (group % 8) & 1) << 8;
        *value = signed(sub_scale * IQ3_S.at(row, i % 4), signs[i / 8], i % 8);
    }
}

/// What a group of IQ1 is moved by.
const DELTA: f32 = 0.125;

/// Each 8 values: eleven bits of row; each 32 a 3-bit scale and a shift's sign.
pub fn iq1_s(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    for (g, group) in values.chunks_exact_mut(8).enumerate() {
        let head = u16_at(bytes, 34 + 2 * (g / 4));
        let sub_scale = scale * f32::from(2 * (head >> 12 & 7) + 1);
        let delta = if head & 0x8000 == 0 { DELTA } else { -DELTA };
        let row = usize::from(bytes[2 + g]) | usize::from(head >> (3 * (g % 4)) & 7) << 8;
        for (i, value) in group.iter_mut().enumerate() {
            *value = sub_scale * (IQ1_S.at(row, i) + delta);
        }
    }
}

/// IQ1_S with a scale to 16 values, a shift to 8, and the block's own scale in
/// the high nibbles of the scales.
pub fn iq1_m(bytes: &[u8], values: &mut [f32]) {
    let (rows, high, scales) = (&bytes[..32], &bytes[32..48], &bytes[48..]);
    let words: [u16; 4] = std::array::from_fn(|i| u16_at(scales, 2 * i));
    let scale_bits = words.iter().rev().fold(0u16, |bits, word| bits << 4 | word >> 12);
    let scale = ::half::f16::from_bits(scale_bits).to_f32();
    for (g, group) in values.chunks_exact_mut(8).enumerate() {
        let sub = g / 2;
        let sub_scale = scale * f32::from(2 * (words[sub / 4] >> (3 * (sub % 4)) & 7) + 1);
        let head = high[g / 2] >> (4 * (g % 2)) & 15;
        let delta = if head & 8 == 0 { DELTA } else { -DELTA };
        let row = usize::from(rows[g]) | usize::from(head & 7) << 8;
        for (i, value) in group.iter_mut().enumerate() {
            *value = sub_scale * (IQ1_S.at(row, i) + delta);
        }
    }
}

/// The levels of IQ4: closer together near zero.
const IQ4_LEVELS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

/// The 4-bit levels of 32 values; low nibbles are the first 16.
fn nibbles(bytes: &[u8], levels: &[f32; 16], scale: f32, values: &mut [f32]) {
    for (i, value) in values.iter_mut().enumerate() {
        *value = scale * levels[usize::from(bytes[i % 16] >> (4 * (i / 16)) & 15)];
    }
}

/// 32 values under an f16 scale.
pub fn iq4_nl(bytes: &[u8], values: &mut [f32]) {
    nibbles(&bytes[2..], &IQ4_LEVELS, half(bytes, 0), values);
}

/// 256 values; each 32 have a 6-bit scale.
pub fn iq4_xs(bytes: &[u8], values: &mut [f32]) {
    let scale = half(bytes, 0);
    let high = u16_at(bytes, 2);
    for (j, sub_block) in values.chunks_exact_mut(32).enumerate() {
        let low = bytes[4 + j / 2] >> (4 * (j % 2)) & 15;
        let top = (high >> (2 * j) & 3) as u8;
        let sub_scale = scale * (f32::from(low | top << 4) - 32.0);
        nibbles(&bytes[8 + 16 * j..], &IQ4_LEVELS, sub_scale, sub_block);
    }
}

/// Twice the values of E2M1 (OCP Microscaling 1.0, table 5).
const E2M1_DOUBLED: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// 32 values of E2M1 under a power of two.
pub fn mxfp4(bytes: &[u8], values: &mut [f32]) {
    let exponent = u32::from(bytes[0]);
    // Half of 2^(exponent − 127), subnormal for the two smallest.
    let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
    nibbles(&bytes[1..], &E2M1_DOUBLED, f32::from_bits(bits), values);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grids_hold_known_levels_and_are_the_ones_that_were_packed() {
        assert!(PACKED[..7680].iter().all(|b| (0..4).all(|i| b >> (2 * i) & 3 < 3)));
        assert!(PACKED[7680..].iter().all(|b| b & 15 < 8 && b >> 4 < 8));
        let mut crc = flate2::Crc::new();
        crc.update(PACKED);
        assert_eq!(crc.sum(), 0x6e5e_2c7f, "{:#x}", crc.sum());
    }
}
