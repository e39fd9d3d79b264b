//! CABAC parsing of macroblocks (clause 9.3).

use super::{BlockKind, BlockPlace, SyntaxReader};
use crate::entropy::context_init::CONTEXT_INIT_I;
use crate::macroblock::{MbInfo, MbKind, Neighbours, cache_at};
use trinity_bits::cabac::{Context, Decoder};
use trinity_bits::{BitReader, BitstreamError, invalid};

/// First context of each syntax element of I slices (Table 9-34).
pub mod ctx {
    pub const MB_TYPE: usize = 3;
    pub const MB_QP_DELTA: usize = 60;
    pub const INTRA_CHROMA_PRED_MODE: usize = 64;
    pub const PREV_INTRA_PRED_MODE_FLAG: usize = 68;
    pub const REM_INTRA_PRED_MODE: usize = 69;
    pub const MB_FIELD_DECODING_FLAG: usize = 70;
    pub const CBP_LUMA: usize = 73;
    pub const CBP_CHROMA: usize = 77;
    pub const TRANSFORM_SIZE_8X8_FLAG: usize = 399;
}

/// First contexts of the residual syntax by component and [`BlockKind`]
/// (Tables 9-34 and 9-40, added up).
pub const CODED_BLOCK_FLAG: [[u16; 6]; 3] =
    [[85, 89, 93, 97, 101, 1012], [460, 464, 468, 97, 101, 1016], [472, 476, 480, 97, 101, 1020]];
/// significant_coeff_flag in frame and field macroblocks.
pub const SIGNIFICANT: [[[u16; 6]; 3]; 2] = [
    [[105, 120, 134, 149, 152, 402], [484, 499, 513, 149, 152, 660], [528, 543, 557, 149, 152, 718]],
    [[277, 292, 306, 321, 324, 436], [776, 791, 805, 321, 324, 675], [820, 835, 849, 321, 324, 733]],
];
/// last_significant_coeff_flag in frame and field macroblocks.
pub const LAST: [[[u16; 6]; 3]; 2] = [
    [[166, 181, 195, 210, 213, 417], [572, 587, 601, 210, 213, 690], [616, 631, 645, 210, 213, 748]],
    [[338, 353, 367, 382, 385, 451], [864, 879, 893, 382, 385, 699], [908, 923, 937, 382, 385, 757]],
];
/// coeff_abs_level_minus1.
pub const ABS_LEVEL: [[u16; 6]; 3] =
    [[227, 237, 247, 257, 266, 426], [952, 962, 972, 257, 266, 708], [982, 992, 1002, 257, 266, 766]];

/// ctxIdxInc of significant_coeff_flag in 8×8 blocks, frame and field (Table 9-43).
#[rustfmt::skip]
pub const SIGNIFICANT_8X8: [[u8; 63]; 2] = [
    [
        0, 1, 2, 3, 4, 5, 5, 4, 4, 3, 3, 4, 4, 4, 5, 5, 4, 4, 4, 4, 3, 3, 6, 7, 7, 7, 8, 9, 10, 9, 8, 7,
        7, 6, 11, 12, 13, 11, 6, 7, 8, 9, 14, 10, 9, 8, 6, 11, 12, 13, 11, 6, 9, 14, 10, 9, 11, 12, 13, 11, 14, 10, 12,
    ],
    [
        0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 7, 7, 8, 4, 5, 6, 9, 10, 10, 8, 11, 12, 11, 9, 9, 10, 10, 8, 11, 12, 11,
        9, 9, 10, 10, 8, 11, 12, 11, 9, 9, 10, 10, 8, 13, 13, 9, 9, 10, 10, 8, 13, 13, 9, 9, 10, 10, 14, 14, 14, 14, 14,
    ],
];
/// ctxIdxInc of last_significant_coeff_flag in 8×8 blocks (Table 9-43).
#[rustfmt::skip]
pub const LAST_8X8: [u8; 63] = [
    0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
    3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8,
];
/// ctxIdxInc of significance in 4×4 blocks: the position itself.
const BY_POSITION: [u8; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
/// ctxIdxInc of significance in chroma DC: min(position / NumC8x8, 2).
pub const CHROMA_DC_420: [u8; 3] = [0, 1, 2];
pub const CHROMA_DC_422: [u8; 7] = [0, 0, 1, 1, 2, 2, 2];

/// How many of the left and upper macroblock are there and say so.
fn count(n: &Neighbours, says: impl Fn(MbInfo) -> bool) -> usize {
    usize::from(n.a.is_some_and(&says)) + usize::from(n.b.is_some_and(&says))
}

/// Of mb_type's first bin.
pub fn mb_type_context(n: &Neighbours) -> usize {
    ctx::MB_TYPE + count(n, |mb| matches!(mb.kind, MbKind::I16x16 | MbKind::Pcm))
}

pub fn transform_size_context(n: &Neighbours) -> usize {
    ctx::TRANSFORM_SIZE_8X8_FLAG + count(n, |mb| mb.transform_8x8())
}

/// Of intra_chroma_pred_mode's first bin.
pub fn chroma_mode_context(n: &Neighbours) -> usize {
    ctx::INTRA_CHROMA_PRED_MODE + count(n, |mb| mb.kind != MbKind::Pcm && mb.chroma_mode != 0)
}

/// Of an 8×8 block in coded_block_pattern, given the blocks before it.
pub fn cbp_luma_context(n: &Neighbours, cbp: u8, block: usize) -> usize {
    let left_coded = match block {
        0 | 2 => n.a.is_none() || n.left_cbp[block / 2],
        _ => cbp >> (block - 1) & 1 != 0,
    };
    let above = n.b.map_or(0x0f, |mb| mb.cbp);
    let above_coded = if block < 2 { above >> (block + 2) & 1 != 0 } else { cbp >> (block - 2) & 1 != 0 };
    ctx::CBP_LUMA + usize::from(!left_coded) + 2 * usize::from(!above_coded)
}

/// Of the bin of coded_block_pattern that says whether chroma has `value`, 1 or 2, or more.
pub fn cbp_chroma_context(n: &Neighbours, value: u8) -> usize {
    let at_least = |mb: Option<MbInfo>| usize::from(mb.is_some_and(|mb| mb.cbp >> 4 >= value));
    ctx::CBP_CHROMA + 4 * usize::from(value - 1) + at_least(n.a) + 2 * at_least(n.b)
}

/// Of coded_block_flag (clause 9.3.3.1.1.9); all macroblocks are intra.
pub fn coded_block_flag_context(place: BlockPlace, n: &Neighbours) -> usize {
    let (left, above) = match place.kind {
        BlockKind::Dc16x16 | BlockKind::ChromaDc => {
            let coded =
                |mb: &Option<MbInfo>| mb.as_ref().is_none_or(|mb| mb.dc_coded >> place.component & 1 != 0);
            (coded(&n.a), coded(&n.b))
        }
        _ => {
            let cache = &n.total_coeff[place.component];
            let at = cache_at(place.x, place.y);
            (cache[at - 1] != 0, cache[at - 8] != 0)
        }
    };
    let first = usize::from(CODED_BLOCK_FLAG[place.component][place.kind as usize]);
    first + usize::from(left) + 2 * usize::from(above)
}

/// The contexts of a slice that starts at `qp` (clause 9.3.1.1).
pub fn initial_contexts(qp: i32) -> [Context; 1024] {
    CONTEXT_INIT_I.map(|(m, n)| Context::from_slope(i32::from(m), i32::from(n), qp))
}

#[derive(Debug)]
pub struct CabacReader<'a> {
    engine: Decoder<'a>,
    contexts: [Context; 1024],
    /// The previous macroblock of the slice changed QP.
    last_qp_delta: bool,
}

impl<'a> CabacReader<'a> {
    /// `bits` stands at the first bit of slice_data().
    pub fn new(mut bits: BitReader<'a>, qp: i32) -> Self {
        bits.align();
        Self { engine: Decoder::new(bits.rest()), contexts: initial_contexts(qp), last_qp_delta: false }
    }

    #[inline(always)]
    fn bin(&mut self, at: usize) -> bool {
        self.engine.decode(&mut self.contexts[at])
    }

    fn check(&self) -> Result<(), BitstreamError> {
        if self.engine.overrun() { invalid("the slice ends inside a macroblock") } else { Ok(()) }
    }

    /// Significance map and levels (clause 7.3.5.3.3) of a block whose
    /// coded_block_flag is set.
    #[inline(always)]
    fn levels<const KIND: usize>(
        &mut self,
        component: usize,
        field: bool,
        increments: (&[u8], &[u8]),
        scan: &[u8],
        out: &mut [i32],
    ) -> usize {
        let Self { engine, contexts, .. } = self;
        let significant = usize::from(SIGNIFICANT[usize::from(field)][component][KIND]);
        let last = usize::from(LAST[usize::from(field)][component][KIND]);
        let max = scan.len();
        let mut positions = [0u8; 64];
        let mut count = 0;
        let mut ended = false;
        for k in 0..max - 1 {
            if engine.decode(&mut contexts[significant + usize::from(increments.0[k])]) {
                positions[count] = scan[k];
                count += 1;
                if engine.decode(&mut contexts[last + usize::from(increments.1[k])]) {
                    ended = true;
                    break;
                }
            }
        }
        if !ended {
            positions[count] = scan[max - 1];
            count += 1;
        }
        let first = usize::from(ABS_LEVEL[component][KIND]);
        let levels: &mut [Context; 10] =
            (&mut contexts[first..first + 10]).try_into().unwrap_or_else(|_| unreachable!());
        let most_greater = if KIND == BlockKind::ChromaDc as usize { 3 } else { 4 };
        let (mut equal, mut greater) = (1usize, 0usize);
        for &position in positions[..count].iter().rev() {
            let one = if greater > 0 { 0 } else { equal };
            let mut level = 1i32;
            if engine.decode(&mut levels[one]) {
                let more = &mut levels[5 + greater.min(most_greater)];
                level = 2;
                while level < 15 && engine.decode(more) {
                    level += 1;
                }
                if level == 15 {
                    level = level.wrapping_add(exp_golomb_0(engine) as i32);
                }
                greater += 1;
            } else {
                equal = (equal + 1).min(4);
            }
            out[usize::from(position)] = if engine.bypass() { level.wrapping_neg() } else { level };
        }
        count
    }
}

/// The suffix of coeff_abs_level_minus1: Exp-Golomb of order 0 in bypass bins.
fn exp_golomb_0(engine: &mut Decoder) -> u32 {
    let mut k = 0;
    // No valid level needs more; the slice is caught as overrun or overflow later.
    while k < 24 && engine.bypass() {
        k += 1;
    }
    ((1 << k) - 1) + engine.bypass_bits(k)
}

impl SyntaxReader for CabacReader<'_> {
    fn mb_field_decoding_flag(&mut self, field_pairs: u8) -> Result<bool, BitstreamError> {
        Ok(self.bin(ctx::MB_FIELD_DECODING_FLAG + usize::from(field_pairs)))
    }

    fn mb_type(&mut self, n: &Neighbours) -> Result<u32, BitstreamError> {
        if !self.bin(mb_type_context(n)) {
            return Ok(0);
        }
        if self.engine.terminate() {
            return Ok(25);
        }
        let mut mb_type = 1 + 12 * u32::from(self.bin(ctx::MB_TYPE + 3));
        if self.bin(ctx::MB_TYPE + 4) {
            mb_type += 4 + 4 * u32::from(self.bin(ctx::MB_TYPE + 5));
        }
        mb_type += 2 * u32::from(self.bin(ctx::MB_TYPE + 6));
        mb_type += u32::from(self.bin(ctx::MB_TYPE + 7));
        Ok(mb_type)
    }

    fn transform_size_8x8_flag(&mut self, n: &Neighbours) -> Result<bool, BitstreamError> {
        Ok(self.bin(transform_size_context(n)))
    }

    fn rem_intra_pred_mode(&mut self) -> Result<Option<u8>, BitstreamError> {
        if self.bin(ctx::PREV_INTRA_PRED_MODE_FLAG) {
            return Ok(None);
        }
        let mut bit = || u8::from(self.bin(ctx::REM_INTRA_PRED_MODE));
        Ok(Some(bit() | bit() << 1 | bit() << 2))
    }

    fn intra_chroma_pred_mode(&mut self, n: &Neighbours) -> Result<u8, BitstreamError> {
        if !self.bin(chroma_mode_context(n)) {
            return Ok(0);
        }
        let mut mode = 1;
        while mode < 3 && self.bin(ctx::INTRA_CHROMA_PRED_MODE + 3) {
            mode += 1;
        }
        Ok(mode)
    }

    fn coded_block_pattern(&mut self, n: &Neighbours, chroma: bool) -> Result<u8, BitstreamError> {
        let mut cbp = 0u8;
        for block in 0..4 {
            cbp |= u8::from(self.bin(cbp_luma_context(n, cbp, block))) << block;
        }
        if chroma && self.bin(cbp_chroma_context(n, 1)) {
            cbp |= if self.bin(cbp_chroma_context(n, 2)) { 0x20 } else { 0x10 };
        }
        Ok(cbp)
    }

    fn mb_qp_delta(&mut self) -> Result<i32, BitstreamError> {
        let mut count = 0;
        let mut at = ctx::MB_QP_DELTA + usize::from(self.last_qp_delta);
        while self.bin(at) {
            count += 1;
            at = ctx::MB_QP_DELTA + if count == 1 { 2 } else { 3 };
            if count > 200 {
                return invalid("mb_qp_delta is out of range");
            }
        }
        self.last_qp_delta = count > 0;
        Ok(if count & 1 == 1 { (count + 1) / 2 } else { -(count / 2) })
    }

    fn no_qp_delta(&mut self) {
        self.last_qp_delta = false;
    }

    fn pcm_samples(
        &mut self,
        parts: [(usize, u32); 2],
        put: &mut dyn FnMut(u16),
    ) -> Result<(), BitstreamError> {
        let data = self.engine.data();
        let start = self.engine.byte_position();
        let mut bits = BitReader::new(data.get(start..).unwrap_or(&[]));
        for (count, depth) in parts {
            for _ in 0..count {
                put(bits.bits(depth)? as u16);
            }
        }
        self.engine.restart(start + bits.position().div_ceil(8) as usize);
        Ok(())
    }

    #[inline]
    fn residual_block(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8],
        field: bool,
        out: &mut [i32],
    ) -> Result<usize, BitstreamError> {
        let coded = self.bin(coded_block_flag_context(place, n));
        let c = place.component;
        let by_position = (&BY_POSITION[..], &BY_POSITION[..]);
        let total = if !coded {
            0
        } else {
            match place.kind {
                BlockKind::Dc16x16 => self.levels::<0>(c, field, by_position, scan, out),
                BlockKind::Ac16x16 => self.levels::<1>(c, field, by_position, scan, out),
                BlockKind::Luma4x4 => self.levels::<2>(c, field, by_position, scan, out),
                BlockKind::ChromaAc => self.levels::<4>(c, field, by_position, scan, out),
                _ => {
                    let increments: &[u8] = if scan.len() == 4 { &CHROMA_DC_420 } else { &CHROMA_DC_422 };
                    self.levels::<3>(c, field, (increments, increments), scan, out)
                }
            }
        };
        if !matches!(place.kind, BlockKind::Dc16x16 | BlockKind::ChromaDc) {
            n.total_coeff[c][cache_at(place.x, place.y)] = total as u8;
        }
        Ok(total)
    }

    #[inline]
    fn residual_8x8(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8; 64],
        field: bool,
        flag_coded: bool,
        out: &mut [i32; 64],
    ) -> Result<usize, BitstreamError> {
        let coded = !flag_coded || self.bin(coded_block_flag_context(place, n));
        let total = if coded {
            let increments = (&SIGNIFICANT_8X8[usize::from(field)][..], &LAST_8X8[..]);
            self.levels::<5>(place.component, field, increments, scan, out)
        } else {
            0
        };
        let cache = &mut n.total_coeff[place.component];
        for part in 0..4 {
            cache[cache_at(place.x + part % 2, place.y + part / 2)] = total as u8;
        }
        Ok(total)
    }

    fn bit_position(&self) -> u64 {
        self.engine.bit_position()
    }

    fn end_of_slice(&mut self) -> Result<bool, BitstreamError> {
        let end = self.engine.terminate();
        // The last bit the engine holds as it stops is rbsp_stop_one_bit.
        self.check()?;
        Ok(end)
    }
}
