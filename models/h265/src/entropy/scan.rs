//! Scan orders and context selection of residual_coding() (H.265 clauses 6.5
//! and 9.3.4.2.4 to 9.3.4.2.7) as tables.
//!
//! Shared by the parser and the writer, so that both walk a block alike.

/// scanIdx.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scan {
    Diagonal = 0,
    Horizontal = 1,
    Vertical = 2,
}

impl Scan {
    /// The scan of a 2^`log2` block of component `c_idx` predicted with
    /// `mode` (clause 7.4.9.11); `chroma_444` is ChromaArrayType 3.
    pub fn of(mode: u8, log2: u32, c_idx: usize, chroma_444: bool) -> Self {
        if log2 == 2 || (log2 == 3 && (c_idx == 0 || chroma_444)) {
            match mode {
                6..=14 => return Self::Vertical,
                22..=30 => return Self::Horizontal,
                _ => {}
            }
        }
        Self::Diagonal
    }

    /// The 16 positions (x, y) inside a sub-block.
    #[inline]
    pub fn positions(self) -> &'static [(u8, u8); 16] {
        &POSITIONS[self as usize]
    }

    /// The sub-blocks (x, y) of a 2^`log2` block. Blocks of 16×16 and above
    /// are always scanned diagonally.
    #[inline]
    pub fn sub_blocks(self, log2: u32) -> &'static [(u8, u8)] {
        match log2 {
            2 => &SUB_BLOCKS_1,
            3 => &SUB_BLOCKS_2[self as usize],
            4 => &POSITIONS[0],
            _ => &SUB_BLOCKS_8,
        }
    }

    /// Where the coefficients of a 2^`log2` block are in scan order, sub-block
    /// by sub-block, in rows of the block.
    #[inline]
    pub fn order(self, log2: u32) -> &'static [u16] {
        match log2 {
            2 => &ORDER_4[self as usize],
            3 => &ORDER_8[self as usize],
            4 => &ORDER_16,
            _ => &ORDER_32,
        }
    }
}

/// z-order index of the 4×4 unit at (x, y), in luma samples inside the CTU: decoding order.
#[inline]
pub fn z_order(x: usize, y: usize) -> usize {
    const SPREAD: [u8; 16] = [0, 1, 4, 5, 16, 17, 20, 21, 64, 65, 68, 69, 80, 81, 84, 85];
    usize::from(SPREAD[(x >> 2) & 15]) | (usize::from(SPREAD[(y >> 2) & 15]) << 1)
}

const fn order<const N: usize>(log2: u32, sub_blocks: &[(u8, u8)], scan: usize) -> [u16; N] {
    let mut order = [0; N];
    let mut i = 0;
    while i < N {
        let ((xs, ys), (x, y)) = (sub_blocks[i / 16], POSITIONS[scan][i % 16]);
        order[i] = ((4 * ys as u16 + y as u16) << log2) + 4 * xs as u16 + x as u16;
        i += 1;
    }
    order
}

static ORDER_4: [[u16; 16]; 3] =
    [order(2, &SUB_BLOCKS_1, 0), order(2, &SUB_BLOCKS_1, 1), order(2, &SUB_BLOCKS_1, 2)];
static ORDER_8: [[u16; 64]; 3] =
    [order(3, &SUB_BLOCKS_2[0], 0), order(3, &SUB_BLOCKS_2[1], 1), order(3, &SUB_BLOCKS_2[2], 2)];
static ORDER_16: [u16; 256] = order(4, &POSITIONS[0], 0);
static ORDER_32: [u16; 1024] = order(5, &SUB_BLOCKS_8, 0);

/// Positions (x, y) of a 2^`LOG2` block in scan order (clause 6.5.3 to 6.5.5).
const fn scan_order<const N: usize>(log2: u32, scan: u8) -> [(u8, u8); N] {
    let size = 1i32 << log2;
    let mut order = [(0, 0); N];
    let mut at = 0;
    if scan == 0 {
        let mut diagonal = 0;
        while diagonal < 2 * size - 1 {
            let mut y = diagonal;
            while y >= 0 {
                let x = diagonal - y;
                if y < size && x < size {
                    order[at] = (x as u8, y as u8);
                    at += 1;
                }
                y -= 1;
            }
            diagonal += 1;
        }
    } else {
        while at < N {
            let (fast, slow) = ((at as i32 % size) as u8, (at as i32 / size) as u8);
            order[at] = if scan == 1 { (fast, slow) } else { (slow, fast) };
            at += 1;
        }
    }
    order
}

/// Positions inside a 4×4 sub-block, by scanIdx.
static POSITIONS: [[(u8, u8); 16]; 3] = [scan_order(2, 0), scan_order(2, 1), scan_order(2, 2)];

static SUB_BLOCKS_1: [(u8, u8); 1] = [(0, 0)];
static SUB_BLOCKS_2: [[(u8, u8); 4]; 3] = [scan_order(1, 0), scan_order(1, 1), scan_order(1, 2)];
static SUB_BLOCKS_8: [(u8, u8); 64] = scan_order(3, 0);

/// ctxIdxMap (Table 9-50): sigCtx of a 4×4 block by `y << 2 | x`.
const SIG_CTX_4X4: [u8; 16] = [0, 1, 4, 5, 2, 3, 4, 5, 6, 6, 8, 8, 7, 7, 8, 8];

/// sigCtx within a sub-block of a larger block, by prevCsbf and `y << 2 | x`,
/// before block size and position are added.
const fn pattern_ctx(prev_csbf: usize, x: usize, y: usize) -> u8 {
    match prev_csbf {
        0 => {
            if x + y == 0 {
                2
            } else if x + y < 3 {
                1
            } else {
                0
            }
        }
        1 | 2 => {
            let along = if prev_csbf == 1 { y } else { x };
            if along == 0 {
                2
            } else if along == 1 {
                1
            } else {
                0
            }
        }
        _ => 2,
    }
}

/// Which shape of table [`SIG_CTX`] a block uses: 4×4 blocks have their own,
/// larger ones go by the neighbouring sub-blocks' flags.
pub const SIG_CTX_OF_4X4: usize = 4;

/// sigCtx inside a sub-block in scan order, `[scanIdx][prevCsbf]`, with
/// [`SIG_CTX_OF_4X4`] in place of prevCsbf for 4×4 blocks. [`sig_ctx_offset`]
/// is to be added; the DC coefficient of a larger block has context 0.
pub static SIG_CTX: [[[u8; 16]; 5]; 3] = {
    let mut table = [[[0; 16]; 5]; 3];
    let mut scan = 0;
    while scan < 3 {
        let mut n = 0;
        while n < 16 {
            let (x, y) = (POSITIONS[scan][n].0 as usize, POSITIONS[scan][n].1 as usize);
            let mut prev_csbf = 0;
            while prev_csbf < 4 {
                table[scan][prev_csbf][n] = pattern_ctx(prev_csbf, x, y);
                prev_csbf += 1;
            }
            table[scan][SIG_CTX_OF_4X4][n] = SIG_CTX_4X4[y << 2 | x];
            n += 1;
        }
        scan += 1;
    }
    table
};

/// What is added to [`SIG_CTX`] for a 2^`log2` block: the context index of
/// `sig_coeff_flag` within its 44. `first` is the sub-block with the DC.
pub fn sig_ctx_offset(log2: u32, c_idx: usize, scan: Scan, first: bool) -> usize {
    let beyond_first = if first { 0 } else { 3 };
    match (log2, c_idx) {
        (2, 0) => 0,
        (2, _) => 27,
        (3, 0) if scan == Scan::Diagonal => 9 + beyond_first,
        (3, 0) => 15 + beyond_first,
        (_, 0) => 21 + beyond_first,
        (3, _) => 27 + 9,
        _ => 27 + 12,
    }
}

/// Context index of the DC coefficient's sig_coeff_flag.
pub fn sig_ctx_dc(c_idx: usize) -> usize {
    if c_idx == 0 { 0 } else { 27 }
}

/// The one sig_coeff_flag context of blocks without transform, under
/// transform_skip_context_enabled_flag.
pub fn sig_ctx_single(c_idx: usize) -> usize {
    if c_idx == 0 { 42 } else { 43 }
}

/// ctxOffset and ctxShift of last_sig_coeff_x_prefix and _y_prefix (clause 9.3.4.2.3).
pub fn last_prefix_ctx(log2: u32, c_idx: usize) -> (usize, u32) {
    if c_idx == 0 { ((3 * (log2 - 2) + ((log2 - 1) >> 2)) as usize, (log2 + 1) >> 2) } else { (15, log2 - 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagonal_runs_up_and_to_the_right() {
        assert_eq!(POSITIONS[0][..6], [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)]);
        assert_eq!(POSITIONS[1][..5], [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]);
        assert_eq!(POSITIONS[2][..5], [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]);
    }

    #[test]
    fn every_scan_visits_every_position_once() {
        for log2 in 2..=5 {
            for scan in [Scan::Diagonal, Scan::Horizontal, Scan::Vertical] {
                let blocks = scan.sub_blocks(log2);
                let mut seen: Vec<_> = blocks.to_vec();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), 1 << (2 * (log2 - 2)));
            }
        }
    }

    #[test]
    fn context_indices_stay_in_their_ranges() {
        for log2 in 3..=5 {
            for c_idx in 0..2 {
                let high = sig_ctx_offset(log2, c_idx, Scan::Vertical, false) + 2;
                assert!(high < [27, 42][c_idx]);
            }
        }
    }
}
