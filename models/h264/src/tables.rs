//! Numbers of the standard, apart from the logic that uses them.

/// Inverse zig-zag scan of 4×4 blocks: raster position of each scan index (Table 8-2).
pub const ZIGZAG_4X4: [u8; 16] = [0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15];

/// Inverse field scan of 4×4 blocks (Table 8-2).
pub const FIELD_4X4: [u8; 16] = [0, 4, 1, 8, 12, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// Inverse zig-zag scan of 8×8 blocks (Table 8-3).
#[rustfmt::skip]
pub const ZIGZAG_8X8: [u8; 64] = [
     0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Inverse field scan of 8×8 blocks (Table 8-3).
#[rustfmt::skip]
pub const FIELD_8X8: [u8; 64] = [
     0,  8, 16,  1,  9, 24, 32, 17,  2, 25, 40, 48, 56, 33, 10,  3,
    18, 41, 49, 57, 26, 11,  4, 19, 34, 42, 50, 58, 27, 12,  5, 20,
    35, 43, 51, 59, 28, 13,  6, 21, 36, 44, 52, 60, 29, 14, 22, 37,
    45, 53, 61, 30,  7, 15, 38, 46, 54, 62, 23, 31, 39, 47, 55, 63,
];

/// Scan order of the chroma DC coefficients of 4:2:2, as `row * 2 + column` (clause 8.5.11.1).
pub const CHROMA_DC_422_SCAN: [u8; 8] = [0, 2, 1, 4, 6, 3, 5, 7];

/// Column of luma4x4BlkIdx, in blocks (clause 6.4.3).
pub const BLOCK_X: [usize; 16] = [0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3];
/// Row of luma4x4BlkIdx, in blocks.
pub const BLOCK_Y: [usize; 16] = [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3];

/// QPc as a function of qPI from 30 on (Table 8-15).
const QP_CHROMA: [u8; 22] =
    [29, 30, 31, 32, 32, 33, 34, 34, 35, 35, 36, 36, 37, 37, 37, 38, 38, 38, 39, 39, 39, 39];

/// QPc for qPI (Table 8-15); negative values of deeper chroma map to themselves.
pub fn qp_chroma(qp_i: i32) -> i32 {
    if qp_i < 30 { qp_i } else { i32::from(QP_CHROMA[(qp_i as usize - 30).min(21)]) }
}

/// normAdjust4x4 by `QP % 6` and position class (equation 8-315).
pub const NORM_ADJUST_4X4: [[u8; 3]; 6] =
    [[10, 16, 13], [11, 18, 14], [13, 20, 16], [14, 23, 18], [16, 25, 20], [18, 29, 23]];

/// normAdjust8x8 by `QP % 6` and position class (equation 8-318).
pub const NORM_ADJUST_8X8: [[u8; 6]; 6] = [
    [20, 18, 32, 19, 25, 24],
    [22, 19, 35, 21, 28, 26],
    [26, 23, 42, 24, 33, 31],
    [28, 25, 45, 26, 35, 33],
    [32, 28, 51, 30, 40, 38],
    [36, 32, 58, 34, 46, 43],
];

/// Default_4x4_Intra and Default_4x4_Inter, in zig-zag order (Table 7-3).
pub const DEFAULT_4X4: [[u8; 16]; 2] = [
    [6, 13, 13, 20, 20, 20, 28, 28, 28, 28, 32, 32, 32, 37, 37, 42],
    [10, 14, 14, 20, 20, 20, 24, 24, 24, 24, 27, 27, 27, 30, 30, 34],
];

/// Default_8x8_Intra and Default_8x8_Inter, in zig-zag order (Table 7-4).
#[rustfmt::skip]
pub const DEFAULT_8X8: [[u8; 64]; 2] = [
    [
         6, 10, 10, 13, 11, 13, 16, 16, 16, 16, 18, 18, 18, 18, 18, 23,
        23, 23, 23, 23, 23, 25, 25, 25, 25, 25, 25, 25, 27, 27, 27, 27,
        27, 27, 27, 27, 29, 29, 29, 29, 29, 29, 29, 31, 31, 31, 31, 31,
        31, 33, 33, 33, 33, 33, 36, 36, 36, 36, 38, 38, 38, 40, 40, 42,
    ],
    [
         9, 13, 13, 15, 13, 15, 17, 17, 17, 17, 19, 19, 19, 19, 19, 21,
        21, 21, 21, 21, 21, 22, 22, 22, 22, 22, 22, 22, 24, 24, 24, 24,
        24, 24, 24, 24, 25, 25, 25, 25, 25, 25, 25, 27, 27, 27, 27, 27,
        27, 28, 28, 28, 28, 28, 30, 30, 30, 30, 32, 32, 32, 33, 33, 35,
    ],
];

/// α′ of the deblocking filter by indexA (Table 8-16).
#[rustfmt::skip]
pub const ALPHA: [u8; 52] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 17, 20, 22, 25, 28,
    32, 36, 40, 45, 50, 56, 63, 71, 80, 90, 101, 113, 127, 144, 162, 182, 203, 226, 255, 255,
];

/// β′ of the deblocking filter by indexB (Table 8-16).
#[rustfmt::skip]
pub const BETA: [u8; 52] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 6, 6, 7, 7, 8, 8,
    9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18,
];

/// t′C0 for bS 3, the only strength below 4 that intra pictures have (Table 8-17).
#[rustfmt::skip]
pub const TC0_BS3: [u8; 52] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3,
    3, 3, 4, 4, 4, 5, 6, 6, 7, 8, 9, 10, 11, 13, 14, 16, 18, 20, 23, 25,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_visit_every_position_once() {
        for scan in [&ZIGZAG_4X4, &FIELD_4X4] {
            let mut seen = [false; 16];
            scan.iter().for_each(|&p| seen[usize::from(p)] = true);
            assert!(seen.iter().all(|&s| s));
        }
        for scan in [&ZIGZAG_8X8, &FIELD_8X8] {
            let mut seen = [false; 64];
            scan.iter().for_each(|&p| seen[usize::from(p)] = true);
            assert!(seen.iter().all(|&s| s));
        }
    }
}
