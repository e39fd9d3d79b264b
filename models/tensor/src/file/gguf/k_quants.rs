//! K-quants: 256 values in sub-blocks of 16 or 32, whose scales (and, in three
//! of the formats, minima) are themselves small integers under one f16 scale.
//!
//! Products are taken in the order the reference takes them, so that values
//! are equal to the bit.

use half::f16;

/// The f16 at a byte of a block, such as a scale.
pub fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// 2 bits a value; sub-blocks of 16 with a 4-bit scale and a 4-bit minimum.
pub fn q2(bytes: &[u8], values: &mut [f32]) {
    let (scales, rest) = bytes.split_at(16);
    let (quants, halves) = rest.split_at(64);
    let (scale, minimum) = (half(halves, 0), half(halves, 2));
    for (i, value) in values.iter_mut().enumerate() {
        // 128 values to 32 bytes: bits 0–1 of each are the first 32 values.
        let quant = (quants[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        let sub = scales[i / 16];
        *value = scale * f32::from(sub & 15) * f32::from(quant) - minimum * f32::from(sub >> 4);
    }
}

/// 3 bits a value, the high one apart; sub-blocks of 16 with a 6-bit scale.
pub fn q3(bytes: &[u8], values: &mut [f32]) {
    let (high, rest) = bytes.split_at(32);
    let (low, rest) = rest.split_at(64);
    let scale = half(rest, 12);
    let scales: [f32; 16] = std::array::from_fn(|j| {
        let low = (rest[j % 8] >> (4 * (j / 8))) & 15;
        let top = (rest[8 + j % 4] >> (2 * (j / 4))) & 3;
        scale * (f32::from(low | top << 4) - 32.0)
    });
    for (i, value) in values.iter_mut().enumerate() {
        let low = (low[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        // A set high bit is worth nothing, an unset one minus four.
        let high = (high[i % 32] >> (i / 32)) & 1;
        *value = scales[i / 16] * (f32::from(low) - if high == 0 { 4.0 } else { 0.0 });
    }
}

/// Scale and minimum of sub-block `j` out of the twelve bytes that pack eight
/// pairs of 6-bit numbers.
fn scale_and_minimum(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, minimum) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let low = packed[j + 4];
        (low & 15 | packed[j - 4] >> 6 << 4, low >> 4 | packed[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// What Q4_K and Q5_K share: 32 values a sub-block, `scale · quant − minimum`.
fn affine(bytes: &[u8], values: &mut [f32], quant: impl Fn(usize) -> u8) {
    let (scale, minimum) = (half(bytes, 0), half(bytes, 2));
    for (j, sub_block) in values.chunks_exact_mut(32).enumerate() {
        let (s, m) = scale_and_minimum(&bytes[4..16], j);
        let (s, m) = (scale * s, minimum * m);
        for (i, value) in sub_block.iter_mut().enumerate() {
            *value = s * f32::from(quant(32 * j + i)) - m;
        }
    }
}

/// 4 bits a value; sub-blocks of 32 with a 6-bit scale and a 6-bit minimum.
pub fn q4(bytes: &[u8], values: &mut [f32]) {
    affine(bytes, values, |i| nibble(&bytes[16..], i));
}

/// Q4_K with a fifth bit apart.
pub fn q5(bytes: &[u8], values: &mut [f32]) {
    let (high, low) = (&bytes[16..48], &bytes[48..]);
    affine(bytes, values, |i| nibble(low, i) | ((high[i % 32] >> (i / 32)) & 1) << 4);
}

/// 64 values to 32 bytes: low nibbles are the first 32.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    (bytes[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2))) & 15
}

/// 6 bits a value, the high two apart; sub-blocks of 16 with an 8-bit scale.
pub fn q6(bytes: &[u8], values: &mut [f32]) {
    let (low, rest) = bytes.split_at(128);
    let (high, rest) = rest.split_at(64);
    let scale = half(rest, 16);
    for (i, value) in values.iter_mut().enumerate() {
        // 128 values to 64 bytes of low nibbles and 32 of high pairs.
        let low = (low[i / 128 * 64 + i % 64] >> (4 * (i / 64 % 2))) & 15;
        let high = (high[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        let sub_scale = scale * f32::from(rest[i / 16] as i8);
        *value = sub_scale * (f32::from(low | high << 4) - 32.0);
    }
}

/// 8 bits a value under one f32 scale; the sums that follow are for products.
pub fn q8(bytes: &[u8], values: &mut [f32]) {
    let scale = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for (value, &quant) in values.iter_mut().zip(&bytes[4..]) {
        *value = scale * f32::from(quant as i8);
    }
}
