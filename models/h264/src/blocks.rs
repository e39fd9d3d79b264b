//! The two block sizes of Intra NxN prediction: all that differs between
//! them, so that rebuilding and searching walk the blocks of a macroblock in
//! one place each, for both.

use crate::intra::{Available, Edge};
use crate::macroblock::MbKind;
use crate::picture::{Window, available};
use crate::quant::LevelScale;
use crate::tables::{BLOCK_X, BLOCK_Y, ZIGZAG_4X4, ZIGZAG_8X8};
use crate::transform::{forward_4x4, forward_8x8, inverse_4x4, inverse_8x8, scale_block};

/// Blocks of `N` × `N` samples, `LEN` in all.
pub trait BlockSize<const N: usize, const LEN: usize> {
    const KIND: MbKind;
    /// Zig-zag scan of frame macroblocks.
    const SCAN: &'static [u8; LEN];
    /// Blocks of a macroblock.
    const COUNT: usize = 256 / LEN;
    /// 4×4 blocks across one.
    const CELLS: usize = N / 4;

    /// Column and row of block `index` in decoding order, in its own size.
    fn place(index: usize) -> (usize, usize);
    /// The neighbours of the block at (x, y), ready to predict from.
    fn edge(window: &Window, x: usize, y: usize, mb: Available, depth: u32) -> Edge<N>;
    /// The level scale of a list at QP′ % 6.
    fn scale(scale: &LevelScale, list: usize, qp_rem: usize) -> &[i32; LEN];
    /// Turns levels into the residual, in place.
    fn rebuild(levels: &mut [i32; LEN], scale: &[i32; LEN], qp_per: u32);
    fn forward(residual: &[i32; LEN]) -> [i32; LEN];

    /// The 4×4 blocks that block (x, y) covers, as columns and rows.
    fn cells(x: usize, y: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..Self::CELLS * Self::CELLS)
            .map(move |k| (Self::CELLS * x + k % Self::CELLS, Self::CELLS * y + k / Self::CELLS))
    }

    /// The bit of block `index` in [`crate::macroblock::Levels::coded`].
    fn coded_bit(index: usize) -> u16 {
        1 << (index * LEN / 16)
    }

    /// The room of block `index` among the levels of a component.
    #[inline(always)]
    fn room(blocks: &mut [i32; 256], index: usize) -> &mut [i32; LEN] {
        (&mut blocks[LEN * index..LEN * (index + 1)])
            .try_into()
            .unwrap_or_else(|_| unreachable!("as many levels as samples"))
    }
}

/// Intra 4×4.
#[derive(Debug)]
pub struct Four;

/// Intra 8×8.
#[derive(Debug)]
pub struct Eight;

impl BlockSize<4, 16> for Four {
    const KIND: MbKind = MbKind::I4x4;
    const SCAN: &'static [u8; 16] = &ZIGZAG_4X4;

    #[inline(always)]
    fn place(index: usize) -> (usize, usize) {
        (BLOCK_X[index], BLOCK_Y[index])
    }

    #[inline(always)]
    fn edge(window: &Window, x: usize, y: usize, mb: Available, depth: u32) -> Edge<4> {
        window.edge(4 * x, 4 * y, available(x, y, 3, mb), depth)
    }

    #[inline(always)]
    fn scale(scale: &LevelScale, list: usize, qp_rem: usize) -> &[i32; 16] {
        &scale.scale_4x4[list][qp_rem]
    }

    #[inline(always)]
    fn rebuild(levels: &mut [i32; 16], scale: &[i32; 16], qp_per: u32) {
        scale_block(levels, scale, qp_per);
        inverse_4x4(levels);
    }

    #[inline(always)]
    fn forward(residual: &[i32; 16]) -> [i32; 16] {
        forward_4x4(residual)
    }
}

impl BlockSize<8, 64> for Eight {
    const KIND: MbKind = MbKind::I8x8;
    const SCAN: &'static [u8; 64] = &ZIGZAG_8X8;

    #[inline(always)]
    fn place(index: usize) -> (usize, usize) {
        (index % 2, index / 2)
    }

    #[inline(always)]
    fn edge(window: &Window, x: usize, y: usize, mb: Available, depth: u32) -> Edge<8> {
        window.edge::<8>(8 * x, 8 * y, available(x, y, 1, mb), depth).filtered()
    }

    #[inline(always)]
    fn scale(scale: &LevelScale, list: usize, qp_rem: usize) -> &[i32; 64] {
        &scale.scale_8x8[list][qp_rem]
    }

    #[inline(always)]
    fn rebuild(levels: &mut [i32; 64], scale: &[i32; 64], qp_per: u32) {
        scale_block(levels, scale, qp_per);
        inverse_8x8(levels);
    }

    #[inline(always)]
    fn forward(residual: &[i32; 64]) -> [i32; 64] {
        forward_8x8(residual)
    }
}
