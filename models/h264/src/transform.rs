//! Inverse transforms and scaling (clause 8.5.6 to 8.5.15), and the forward
//! transforms of the encoder.
//!
//! Blocks are arrays in raster order; nothing here knows where a block lies.
//! Integer overflow wraps: no conforming stream overflows, a damaged one may.

/// Scales the levels of a 4×4 or 8×8 block (clauses 8.5.12.1 and 8.5.13.1).
#[inline(always)]
pub fn scale_block<const LEN: usize>(block: &mut [i32; LEN], scale: &[i32; LEN], qp_per: u32) {
    let bits = const { if LEN == 16 { 4 } else { 6 } };
    if qp_per >= bits {
        for (c, s) in block.iter_mut().zip(scale) {
            *c = c.wrapping_mul(*s) << (qp_per - bits);
        }
    } else {
        let shift = bits - qp_per;
        for (c, s) in block.iter_mut().zip(scale) {
            *c = c.wrapping_mul(*s).wrapping_add(1 << (shift - 1)) >> shift;
        }
    }
}

#[inline(always)]
fn butterfly_4(a: i32, b: i32, c: i32, d: i32) -> [i32; 4] {
    let e = a.wrapping_add(c);
    let f = a.wrapping_sub(c);
    let g = (b >> 1).wrapping_sub(d);
    let h = b.wrapping_add(d >> 1);
    [e.wrapping_add(h), f.wrapping_add(g), f.wrapping_sub(g), e.wrapping_sub(h)]
}

/// Inverse 4×4 transform with final rounding (clause 8.5.12.2).
#[inline(always)]
pub fn inverse_4x4(block: &mut [i32; 16]) {
    for row in block.chunks_exact_mut(4) {
        row.copy_from_slice(&butterfly_4(row[0], row[1], row[2], row[3]));
    }
    for x in 0..4 {
        let column = butterfly_4(block[x], block[4 + x], block[8 + x], block[12 + x]);
        for y in 0..4 {
            block[4 * y + x] = column[y].wrapping_add(32) >> 6;
        }
    }
}

#[inline(always)]
fn butterfly_8(v: [i32; 8]) -> [i32; 8] {
    let add = i32::wrapping_add;
    let sub = i32::wrapping_sub;
    let a0 = add(v[0], v[4]);
    let a1 = sub(sub(v[5], v[3]), add(v[7], v[7] >> 1));
    let a2 = sub(v[0], v[4]);
    let a3 = sub(add(v[1], v[7]), add(v[3], v[3] >> 1));
    let a4 = sub(v[2] >> 1, v[6]);
    let a5 = add(sub(v[7], v[1]), add(v[5], v[5] >> 1));
    let a6 = add(v[2], v[6] >> 1);
    let a7 = add(add(v[3], v[5]), add(v[1], v[1] >> 1));
    let b0 = add(a0, a6);
    let b1 = add(a1, a7 >> 2);
    let b2 = add(a2, a4);
    let b3 = add(a3, a5 >> 2);
    let b4 = sub(a2, a4);
    let b5 = sub(a3 >> 2, a5);
    let b6 = sub(a0, a6);
    let b7 = sub(a7, a1 >> 2);
    [add(b0, b7), add(b2, b5), add(b4, b3), add(b6, b1), sub(b6, b1), sub(b4, b3), sub(b2, b5), sub(b0, b7)]
}

/// Inverse 8×8 transform with final rounding (clause 8.5.13.2).
#[inline(always)]
pub fn inverse_8x8(block: &mut [i32; 64]) {
    for y in 0..8 {
        let row: [i32; 8] = std::array::from_fn(|x| block[8 * y + x]);
        block[8 * y..8 * y + 8].copy_from_slice(&butterfly_8(row));
    }
    for x in 0..8 {
        let column = butterfly_8(std::array::from_fn(|y| block[8 * y + x]));
        for y in 0..8 {
            block[8 * y + x] = column[y].wrapping_add(32) >> 6;
        }
    }
}

#[inline(always)]
fn hadamard_4(a: i32, b: i32, c: i32, d: i32) -> [i32; 4] {
    let (e, f) = (a.wrapping_add(b), a.wrapping_sub(b));
    let (g, h) = (c.wrapping_add(d), c.wrapping_sub(d));
    [e.wrapping_add(g), e.wrapping_sub(g), f.wrapping_sub(h), f.wrapping_add(h)]
}

/// The 4×4 Hadamard transform, its own inverse but for a factor of 16.
#[inline(always)]
pub fn hadamard_4x4(block: &mut [i32; 16]) {
    for row in block.chunks_exact_mut(4) {
        row.copy_from_slice(&hadamard_4(row[0], row[1], row[2], row[3]));
    }
    for x in 0..4 {
        let column = hadamard_4(block[x], block[4 + x], block[8 + x], block[12 + x]);
        for y in 0..4 {
            block[4 * y + x] = column[y];
        }
    }
}

/// Scales DC values after their transform: `(v * scale << qp_per) >> 6`, rounded
/// (equations 8-322 and 8-330 family).
fn scale_dc(value: i32, scale: i32, qp_per: u32) -> i32 {
    if qp_per >= 6 {
        value.wrapping_mul(scale) << (qp_per - 6)
    } else {
        value.wrapping_mul(scale).wrapping_add(1 << (5 - qp_per)) >> (6 - qp_per)
    }
}

/// Intra16x16 DC: transform and scaling (clause 8.5.10). `dc` is the matrix of
/// the blocks' DC levels in raster order.
pub fn inverse_luma_dc(dc: &mut [i32; 16], scale: i32, qp_per: u32) {
    hadamard_4x4(dc);
    for v in dc {
        *v = scale_dc(*v, scale, qp_per);
    }
}

/// Chroma DC of 4:2:0: transform and scaling (clause 8.5.11).
pub fn inverse_chroma_dc_420(dc: &mut [i32; 4], scale: i32, qp_per: u32) {
    let transformed = hadamard_2x2(*dc);
    for (v, f) in dc.iter_mut().zip(transformed) {
        *v = (f.wrapping_mul(scale) << qp_per) >> 5;
    }
}

pub fn hadamard_2x2([a, b, c, d]: [i32; 4]) -> [i32; 4] {
    let (e, f) = (a.wrapping_add(b), a.wrapping_sub(b));
    let (g, h) = (c.wrapping_add(d), c.wrapping_sub(d));
    [e.wrapping_add(g), f.wrapping_add(h), e.wrapping_sub(g), f.wrapping_sub(h)]
}

/// Chroma DC of 4:2:2, four rows of two: transform and scaling (clause
/// 8.5.11). `qp_per` and `scale` belong to QP′c + 3.
pub fn inverse_chroma_dc_422(dc: &mut [i32; 8], scale: i32, qp_per: u32) {
    for x in 0..2 {
        let column = hadamard_4(dc[x], dc[2 + x], dc[4 + x], dc[6 + x]);
        for y in 0..4 {
            dc[2 * y + x] = column[y];
        }
    }
    for row in dc.chunks_exact_mut(2) {
        let (a, b) = (row[0], row[1]);
        row[0] = scale_dc(a.wrapping_add(b), scale, qp_per);
        row[1] = scale_dc(a.wrapping_sub(b), scale, qp_per);
    }
}

/// Accumulates lossless residuals along a horizontal or vertical prediction
/// (clause 8.5.15). `block` is `width` × `height`.
pub fn accumulate_bypass(block: &mut [i32], width: usize, horizontal: bool) {
    if horizontal {
        for row in block.chunks_exact_mut(width) {
            for x in 1..width {
                row[x] = row[x].wrapping_add(row[x - 1]);
            }
        }
    } else {
        for at in width..block.len() {
            block[at] = block[at].wrapping_add(block[at - width]);
        }
    }
}

#[inline(always)]
pub fn forward_4x4(block: &[i32; 16]) -> [i32; 16] {
    let pass = |a: i32, b: i32, c: i32, d: i32| {
        let (s, t, u, v) = (a + d, b + c, b - c, a - d);
        [s + t, 2 * v + u, s - t, v - 2 * u]
    };
    let mut rows = [0; 16];
    for y in 0..4 {
        let row = pass(block[4 * y], block[4 * y + 1], block[4 * y + 2], block[4 * y + 3]);
        rows[4 * y..4 * y + 4].copy_from_slice(&row);
    }
    let mut out = [0; 16];
    for x in 0..4 {
        let column = pass(rows[x], rows[4 + x], rows[8 + x], rows[12 + x]);
        for y in 0..4 {
            out[4 * y + x] = column[y];
        }
    }
    out
}

/// Forward 8×8 core transform, its rows scaled by eight in each direction so
/// that it is exact in integers.
#[inline(always)]
pub fn forward_8x8(block: &[i32; 64]) -> [i32; 64] {
    let pass = |v: [i32; 8]| {
        let (s0, s1, s2, s3) = (v[0] + v[7], v[1] + v[6], v[2] + v[5], v[3] + v[4]);
        let (d0, d1, d2, d3) = (v[0] - v[7], v[1] - v[6], v[2] - v[5], v[3] - v[4]);
        let (e0, e1, e2, e3) = (s0 + s3, s1 + s2, s0 - s3, s1 - s2);
        [
            8 * (e0 + e1),
            12 * d0 + 10 * d1 + 6 * d2 + 3 * d3,
            8 * e2 + 4 * e3,
            10 * d0 - 3 * d1 - 12 * d2 - 6 * d3,
            8 * (e0 - e1),
            6 * d0 - 12 * d1 + 3 * d2 + 10 * d3,
            4 * e2 - 8 * e3,
            3 * d0 - 6 * d1 + 10 * d2 - 12 * d3,
        ]
    };
    let mut rows = [0; 64];
    for y in 0..8 {
        let row = pass(std::array::from_fn(|x| block[8 * y + x]));
        rows[8 * y..8 * y + 8].copy_from_slice(&row);
    }
    let mut out = [0; 64];
    for x in 0..8 {
        let column = pass(std::array::from_fn(|y| rows[8 * y + x]));
        for y in 0..8 {
            out[8 * y + x] = column[y];
        }
    }
    out
}

/// Squared norms of the rows of the 4×4 core transform, forward and inverse.
pub const NORMS_4: [(f64, f64); 2] = [(4.0, 4.0), (10.0, 2.5)];

/// Squared norm of row `k` of the (unscaled) 8×8 transform, which is its own inverse's.
pub fn norm_8(k: usize) -> f64 {
    match k {
        0 | 4 => 8.0,
        2 | 6 => 5.0,
        _ => 578.0 / 64.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::LevelScale;
    use trinity_numeric::random::Lcg;

    fn noise<const N: usize>(lcg: &mut Lcg, reach: i32) -> [i32; N] {
        std::array::from_fn(|_| lcg.bits31() as i32 % (2 * reach + 1) - reach)
    }

    /// At the QP whose step is one in both directions, what goes forth comes back to half a level.
    #[test]
    fn what_is_transformed_forth_and_back_is_there_again() {
        let (mut lcg, flat) = (Lcg(3), LevelScale::new(None));
        for round in 0..200 {
            let block: [i32; 16] = noise(&mut lcg, 255);
            let forward = forward_4x4(&block);
            // A step of one: coefficients over their rows' norms.
            let mut levels: [i32; 16] = std::array::from_fn(|at| {
                let (row, column) = (NORMS_4[at / 4 % 2], NORMS_4[at % 4 % 2]);
                let inverse = (row.1 * column.1).sqrt();
                (f64::from(forward[at]) / ((row.0 * column.0).sqrt() * inverse) * 16.0 * 64.0
                    / f64::from(flat.scale_4x4[0][4][at]))
                .round() as i32
            });
            scale_block(&mut levels, &flat.scale_4x4[0][4], 0);
            inverse_4x4(&mut levels);
            let worst = levels.iter().zip(&block).map(|(a, b)| (a - b).abs()).max().unwrap();
            assert!(worst <= 2, "round {round}: off by {worst}");
        }
    }

    #[test]
    fn the_8x8_transform_is_its_own_inverse_but_for_norms() {
        let mut lcg = Lcg(5);
        for round in 0..200 {
            let block: [i32; 64] = noise(&mut lcg, 255);
            let forward = forward_8x8(&block);
            // Rows are scaled by eight each way; the inverse ends with a shift by six.
            let mut coefficients: [i32; 64] = std::array::from_fn(|at| {
                let norm = norm_8(at / 8) * norm_8(at % 8);
                (f64::from(forward[at]) / norm).round() as i32
            });
            inverse_8x8(&mut coefficients);
            let worst = coefficients.iter().zip(&block).map(|(a, b)| (a - b).abs()).max().unwrap();
            assert!(worst <= 2, "round {round}: off by {worst}");
        }
    }

    #[test]
    fn a_lone_dc_makes_a_flat_block_and_hadamards_come_back() {
        let (mut four, mut eight) = ([0; 16], [0; 64]);
        (four[0], eight[0]) = (64 * 7, 64 * 7);
        inverse_4x4(&mut four);
        inverse_8x8(&mut eight);
        assert_eq!((four, eight), ([7; 16], [7; 64]));
        let mut lcg = Lcg(7);
        let block: [i32; 16] = noise(&mut lcg, 999);
        let mut twice = block;
        hadamard_4x4(&mut twice);
        hadamard_4x4(&mut twice);
        assert_eq!(twice, block.map(|value| 16 * value));
        let small = [3, -8, 11, 40];
        assert_eq!(hadamard_2x2(hadamard_2x2(small)), small.map(|value| 4 * value));
    }

    /// Clauses 8.5.10 and 8.5.11: below QP 36 with a rounding, from there on with a shift to the left.
    #[test]
    fn dc_levels_are_scaled_by_their_qp() {
        let scale = 160;
        for (qp_per, expected) in [(0, 40), (3, 320), (6, 2560), (8, 10_240)] {
            let mut dc = [0; 16];
            dc[0] = 16;
            inverse_luma_dc(&mut dc, scale, qp_per);
            assert_eq!(dc, [expected; 16], "{qp_per}");
        }
        let mut chroma = [9, 0, 0, 0];
        inverse_chroma_dc_420(&mut chroma, scale, 2);
        assert_eq!(chroma, [180; 4]);
        let mut tall = [16, 0, 0, 0, 0, 0, 0, 0];
        inverse_chroma_dc_422(&mut tall, scale, 6);
        assert_eq!(tall, [2560; 8]);
    }

    #[test]
    fn lossless_residuals_add_up_along_their_prediction() {
        let steps = [1, 2, 3, 10, 20, 30];
        let (mut along, mut down) = (steps, steps);
        accumulate_bypass(&mut along, 3, true);
        accumulate_bypass(&mut down, 3, false);
        assert_eq!((along, down), ([1, 3, 6, 10, 30, 60], [1, 2, 3, 11, 22, 33]));
    }

    /// A damaged stream may hold any level: arithmetic wraps and nothing panics.
    #[test]
    fn levels_of_any_size_pass() {
        let flat = LevelScale::new(None);
        for level in [i32::MAX, i32::MIN] {
            let (mut four, mut eight) = ([level; 16], [level; 64]);
            scale_block(&mut four, &flat.scale_4x4[0][5], 8);
            scale_block(&mut eight, &flat.scale_8x8[0][5], 8);
            inverse_4x4(&mut four);
            inverse_8x8(&mut eight);
            inverse_luma_dc(&mut [level; 16], 464, 8);
            inverse_chroma_dc_420(&mut [level; 4], 464, 8);
            inverse_chroma_dc_422(&mut [level; 8], 464, 8);
        }
    }
}
