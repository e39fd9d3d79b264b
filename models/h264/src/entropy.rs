//! Reading macroblock syntax: one interface, CAVLC and CABAC behind it.
//!
//! The slice decoder asks for syntax elements in the order of clause 7.3.5;
//! which bits or bins they are is told apart here.

pub mod cabac;
pub mod cavlc;
pub mod cavlc_tables;
pub mod context_init;
pub mod writer;

use crate::macroblock::Neighbours;
use trinity_bits::BitstreamError;

/// The kinds of residual block; as `u8`, ctxBlockCat of the luma column of Table 9-42.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    Dc16x16 = 0,
    Ac16x16 = 1,
    Luma4x4 = 2,
    ChromaDc = 3,
    ChromaAc = 4,
    Luma8x8 = 5,
}

/// Where a residual block is and what it is.
#[derive(Debug, Clone, Copy)]
pub struct BlockPlace {
    pub kind: BlockKind,
    /// 0 for Y, 1 for Cb, 2 for Cr.
    pub component: usize,
    /// Column and row of the (first) 4×4 block within its component.
    pub x: usize,
    pub y: usize,
}

/// One of the two entropy decoders, at some macroblock of a slice.
pub trait SyntaxReader {
    /// mb_field_decoding_flag; `field_pairs` counts the neighbouring field pairs.
    fn mb_field_decoding_flag(&mut self, field_pairs: u8) -> Result<bool, BitstreamError>;
    /// mb_type of Table 7-11.
    fn mb_type(&mut self, n: &Neighbours) -> Result<u32, BitstreamError>;
    fn transform_size_8x8_flag(&mut self, n: &Neighbours) -> Result<bool, BitstreamError>;
    /// rem_intra_pred_mode, or `None` where prev_intra_pred_mode_flag is set.
    fn rem_intra_pred_mode(&mut self) -> Result<Option<u8>, BitstreamError>;
    fn intra_chroma_pred_mode(&mut self, n: &Neighbours) -> Result<u8, BitstreamError>;
    /// coded_block_pattern; `chroma` is true for ChromaArrayType 1 and 2.
    fn coded_block_pattern(&mut self, n: &Neighbours, chroma: bool) -> Result<u8, BitstreamError>;
    fn mb_qp_delta(&mut self) -> Result<i32, BitstreamError>;
    /// Tells that the macroblock has no mb_qp_delta, which the next one's context asks.
    fn no_qp_delta(&mut self);
    /// `count` samples of an I_PCM macroblock at `depth` bits, handed to `put` in order.
    fn pcm_samples(
        &mut self,
        parts: [(usize, u32); 2],
        put: &mut dyn FnMut(u16),
    ) -> Result<(), BitstreamError>;
    /// One residual block. Levels go to the raster positions `scan` gives; the
    /// number of levels comes back, and is noted in `n` where the standard keeps it.
    fn residual_block(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8],
        field: bool,
        out: &mut [i32],
    ) -> Result<usize, BitstreamError>;
    /// An 8×8 block of component `place.component`.
    fn residual_8x8(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8; 64],
        field: bool,
        flag_coded: bool,
        out: &mut [i32; 64],
    ) -> Result<usize, BitstreamError>;
    /// Bits of the slice data read so far.
    fn bit_position(&self) -> u64;
    /// True after the last macroblock of the slice.
    fn end_of_slice(&mut self) -> Result<bool, BitstreamError>;
}
