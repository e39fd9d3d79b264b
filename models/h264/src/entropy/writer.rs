//! Writing macroblock syntax: the same interface writes a stream and prices a
//! choice, so that rate–distortion decisions count the bits that are written.

use super::cabac::{
    ABS_LEVEL, CHROMA_DC_420, CHROMA_DC_422, LAST, LAST_8X8, SIGNIFICANT, SIGNIFICANT_8X8,
    cbp_chroma_context, cbp_luma_context, chroma_mode_context, coded_block_flag_context, ctx,
    initial_contexts, mb_type_context, transform_size_context,
};
use super::cavlc::{CBP_LUMA_ONLY, CBP_WITH_CHROMA, coeff_token_table};
use super::{BlockKind, BlockPlace};
use crate::entropy::cavlc_tables::{
    COEFF_TOKEN, Code, RUN_BEFORE, TOTAL_ZEROS, TOTAL_ZEROS_420_DC, TOTAL_ZEROS_422_DC,
};
use crate::macroblock::{Neighbours, cache_at};
use trinity_bits::BitWriter;
use trinity_bits::cabac::{BinWriter, BitCounter, Context, Encoder, ONE_BIT};

/// Where the syntax elements of progressive macroblocks go.
pub trait SyntaxWriter {
    /// mb_type of Table 7-11.
    fn mb_type(&mut self, n: &Neighbours, mb_type: u32);
    fn transform_size_8x8_flag(&mut self, n: &Neighbours, flag: bool);
    /// rem_intra_pred_mode, or `None` for prev_intra_pred_mode_flag.
    fn rem_intra_pred_mode(&mut self, rem: Option<u8>);
    fn intra_chroma_pred_mode(&mut self, n: &Neighbours, mode: u8);
    fn coded_block_pattern(&mut self, n: &Neighbours, cbp: u8, chroma: bool);
    fn mb_qp_delta(&mut self, delta: i32);
    fn no_qp_delta(&mut self);
    /// One residual block, levels at the raster positions of `scan`; notes
    /// their number in `n` as the reader does.
    fn residual_block(&mut self, place: BlockPlace, n: &mut Neighbours, scan: &[u8], levels: &[i32]);
    fn residual_8x8(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8; 64],
        flag_coded: bool,
        levels: &[i32],
    );
}

/// A writer that only adds up what would be written.
pub trait SyntaxCounter: SyntaxWriter + Clone {
    fn bits(&self) -> f32;
    /// The adaptive contexts, where there are any, for rate–distortion optimal quantization.
    fn contexts(&self) -> Option<&[Context; 1024]>;
}

/// A writer of streams that can hand out counters in its own state.
pub trait StreamWriter: SyntaxWriter {
    type Counter: SyntaxCounter;
    fn counter(&self) -> Self::Counter;
    /// The samples of an I_PCM macroblock, as packed bytes.
    fn pcm_samples(&mut self, bytes: &[u8]);
    fn end_of_slice(&mut self, end: bool);
    /// The bytes of slice_data(), trailing bits included; `header` precedes them.
    fn finish(self, header: BitWriter) -> Vec<u8>;
}

/// CABAC, to a stream or a counter.
#[derive(Debug, Clone)]
pub struct CabacWriter<W> {
    out: W,
    contexts: [Context; 1024],
    last_qp_delta: bool,
}

impl CabacWriter<Encoder> {
    pub fn new(qp: i32) -> Self {
        Self { out: Encoder::new(), contexts: initial_contexts(qp), last_qp_delta: false }
    }
}

impl StreamWriter for CabacWriter<Encoder> {
    type Counter = CabacWriter<BitCounter>;

    fn counter(&self) -> Self::Counter {
        CabacWriter { out: BitCounter::default(), contexts: self.contexts, last_qp_delta: self.last_qp_delta }
    }

    fn pcm_samples(&mut self, bytes: &[u8]) {
        self.out.flush();
        self.out.raw_bytes(bytes);
    }

    fn end_of_slice(&mut self, end: bool) {
        self.out.terminate(end);
    }

    fn finish(self, mut header: BitWriter) -> Vec<u8> {
        while !header.is_aligned() {
            header.flag(true); // cabac_alignment_one_bit
        }
        let mut bytes = header.into_bytes();
        bytes.extend(self.out.finish());
        bytes
    }
}

impl SyntaxCounter for CabacWriter<BitCounter> {
    fn bits(&self) -> f32 {
        self.out.cost as f32 / ONE_BIT as f32
    }

    fn contexts(&self) -> Option<&[Context; 1024]> {
        Some(&self.contexts)
    }
}

impl<W: BinWriter> CabacWriter<W> {
    #[inline(always)]
    fn bin(&mut self, at: usize, bin: bool) {
        self.out.encode(&mut self.contexts[at], bin);
    }

    /// Significance map and levels of a block with at least one level.
    #[inline(always)]
    fn levels<const KIND: usize>(
        &mut self,
        component: usize,
        increments: impl Fn(usize) -> (usize, usize),
        scan: &[u8],
        levels: &[i32],
    ) {
        let Self { out, contexts, .. } = self;
        let significant = usize::from(SIGNIFICANT[0][component][KIND]);
        let last = usize::from(LAST[0][component][KIND]);
        let max = scan.len();
        let mut ordered = [0i32; 64];
        let mut end = 0;
        for k in 0..max {
            ordered[k] = levels[usize::from(scan[k])];
            end = if ordered[k] != 0 { k } else { end };
        }
        let mut coded = [0i32; 64];
        let mut count = 0;
        for k in 0..=end {
            let level = ordered[k];
            let is_coded = level != 0;
            coded[count & 63] = level;
            count += usize::from(is_coded);
            if k < max - 1 {
                let (at_significant, at_last) = increments(k);
                out.encode(&mut contexts[significant + at_significant], is_coded);
                if is_coded {
                    out.encode(&mut contexts[last + at_last], k == end);
                }
            }
        }
        let first = usize::from(ABS_LEVEL[component][KIND]);
        let most_greater = if KIND == BlockKind::ChromaDc as usize { 3 } else { 4 };
        let (mut equal, mut greater) = (1usize, 0usize);
        for &level in coded[..count].iter().rev() {
            let magnitude = level.unsigned_abs();
            let one = if greater > 0 { 0 } else { equal };
            out.encode(&mut contexts[first + one], magnitude > 1);
            if magnitude > 1 {
                let more = first + 5 + greater.min(most_greater);
                for _ in 2..magnitude.min(15) {
                    out.encode(&mut contexts[more], true);
                }
                if magnitude < 15 {
                    out.encode(&mut contexts[more], false);
                } else {
                    exp_golomb_0(out, magnitude - 15);
                }
                greater += 1;
            } else {
                equal = (equal + 1).min(4);
            }
            out.bypass(level < 0);
        }
    }
}

fn exp_golomb_0<W: BinWriter>(out: &mut W, value: u32) {
    let length = 31 - (value + 1).leading_zeros();
    out.bypass_bits(((1 << length) - 1) << 1, length + 1);
    out.bypass_bits((value + 1) & ((1 << length) - 1), length);
}

impl<W: BinWriter> SyntaxWriter for CabacWriter<W> {
    fn mb_type(&mut self, n: &Neighbours, mb_type: u32) {
        self.bin(mb_type_context(n), mb_type != 0);
        if mb_type == 0 {
            return;
        }
        self.out.terminate(mb_type == 25);
        if mb_type == 25 {
            return;
        }
        let rest = mb_type - 1;
        self.bin(ctx::MB_TYPE + 3, rest >= 12);
        let chroma = rest / 4 % 3;
        self.bin(ctx::MB_TYPE + 4, chroma != 0);
        if chroma != 0 {
            self.bin(ctx::MB_TYPE + 5, chroma == 2);
        }
        self.bin(ctx::MB_TYPE + 6, rest & 2 != 0);
        self.bin(ctx::MB_TYPE + 7, rest & 1 != 0);
    }

    fn transform_size_8x8_flag(&mut self, n: &Neighbours, flag: bool) {
        self.bin(transform_size_context(n), flag);
    }

    fn rem_intra_pred_mode(&mut self, rem: Option<u8>) {
        self.bin(ctx::PREV_INTRA_PRED_MODE_FLAG, rem.is_none());
        if let Some(rem) = rem {
            for bit in 0..3 {
                self.bin(ctx::REM_INTRA_PRED_MODE, rem >> bit & 1 != 0);
            }
        }
    }

    fn intra_chroma_pred_mode(&mut self, n: &Neighbours, mode: u8) {
        self.bin(chroma_mode_context(n), mode > 0);
        for step in 1..3 {
            if mode >= step {
                self.bin(ctx::INTRA_CHROMA_PRED_MODE + 3, mode > step);
            }
        }
    }

    fn coded_block_pattern(&mut self, n: &Neighbours, cbp: u8, chroma: bool) {
        for block in 0..4 {
            self.bin(cbp_luma_context(n, cbp, block), cbp >> block & 1 != 0);
        }
        if chroma {
            self.bin(cbp_chroma_context(n, 1), cbp >> 4 > 0);
            if cbp >> 4 > 0 {
                self.bin(cbp_chroma_context(n, 2), cbp >> 4 == 2);
            }
        }
    }

    fn mb_qp_delta(&mut self, delta: i32) {
        let count = if delta > 0 { 2 * delta - 1 } else { -2 * delta };
        let mut at = ctx::MB_QP_DELTA + usize::from(self.last_qp_delta);
        for step in 0..count {
            self.bin(at, true);
            at = ctx::MB_QP_DELTA + if step == 0 { 2 } else { 3 };
        }
        self.bin(at, false);
        self.last_qp_delta = delta != 0;
    }

    fn no_qp_delta(&mut self) {
        self.last_qp_delta = false;
    }

    fn residual_block(&mut self, place: BlockPlace, n: &mut Neighbours, scan: &[u8], levels: &[i32]) {
        let total = scan.iter().filter(|&&at| levels[usize::from(at)] != 0).count();
        self.bin(coded_block_flag_context(place, n), total > 0);
        let c = place.component;
        if total > 0 {
            let by_position = |k: usize| (k, k);
            match place.kind {
                BlockKind::Dc16x16 => self.levels::<0>(c, by_position, scan, levels),
                BlockKind::Ac16x16 => self.levels::<1>(c, by_position, scan, levels),
                BlockKind::Luma4x4 => self.levels::<2>(c, by_position, scan, levels),
                BlockKind::ChromaAc => self.levels::<4>(c, by_position, scan, levels),
                _ => {
                    let increments: &[u8] = if scan.len() == 4 { &CHROMA_DC_420 } else { &CHROMA_DC_422 };
                    let increments = |k: usize| (usize::from(increments[k]), usize::from(increments[k]));
                    self.levels::<3>(c, increments, scan, levels);
                }
            }
        }
        if !matches!(place.kind, BlockKind::Dc16x16 | BlockKind::ChromaDc) {
            n.total_coeff[c][cache_at(place.x, place.y)] = total as u8;
        }
    }

    fn residual_8x8(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8; 64],
        flag_coded: bool,
        levels: &[i32],
    ) {
        let total = levels.iter().filter(|&&level| level != 0).count();
        if flag_coded {
            self.bin(coded_block_flag_context(place, n), total > 0);
        }
        if total > 0 || !flag_coded {
            let increments = |k: usize| (usize::from(SIGNIFICANT_8X8[0][k]), usize::from(LAST_8X8[k]));
            self.levels::<5>(place.component, increments, scan, levels);
        }
        let cache = &mut n.total_coeff[place.component];
        for part in 0..4 {
            cache[cache_at(place.x + part % 2, place.y + part / 2)] = total as u8;
        }
    }
}

/// What CAVLC sends its bits to.
pub trait BitSink {
    fn put(&mut self, value: u32, count: u32);
    fn put_ue(&mut self, value: u32);
}

impl BitSink for BitWriter {
    #[inline]
    fn put(&mut self, value: u32, count: u32) {
        self.bits(value, count);
    }

    fn put_ue(&mut self, value: u32) {
        self.ue(value);
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct LengthCounter(u64);

impl BitSink for LengthCounter {
    #[inline]
    fn put(&mut self, _value: u32, count: u32) {
        self.0 += u64::from(count);
    }

    #[inline]
    fn put_ue(&mut self, value: u32) {
        self.0 += u64::from(2 * (32 - (value + 1).leading_zeros()) - 1);
    }
}

/// CAVLC, to a stream or a tally.
#[derive(Debug, Clone, Default)]
pub struct CavlcWriter<W> {
    out: W,
}

impl CavlcWriter<BitWriter> {
    /// Goes on after the slice header, since CAVLC does not align.
    pub fn new(header: BitWriter) -> Self {
        Self { out: header }
    }
}

impl StreamWriter for CavlcWriter<BitWriter> {
    type Counter = CavlcWriter<LengthCounter>;

    fn counter(&self) -> Self::Counter {
        CavlcWriter::default()
    }

    /// Zero bits to the byte boundary, then the bytes.
    fn pcm_samples(&mut self, bytes: &[u8]) {
        self.out.align_zero();
        self.out.extend(bytes);
    }

    fn end_of_slice(&mut self, _: bool) {}

    fn finish(self, _header: BitWriter) -> Vec<u8> {
        let mut out = self.out;
        out.trailing_bits();
        out.into_bytes()
    }
}

impl SyntaxCounter for CavlcWriter<LengthCounter> {
    fn bits(&self) -> f32 {
        self.out.0 as f32
    }

    fn contexts(&self) -> Option<&[Context; 1024]> {
        None
    }
}

/// Bits of a block of at most 16 levels (scan order) with a table of coeff_token.
pub fn code_word_bits(table: usize, levels: &[i32]) -> u32 {
    const IN_ORDER: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut lengths = CavlcWriter::<LengthCounter>::default();
    lengths.block(table, &IN_ORDER[..levels.len()], levels);
    lengths.out.0 as u32
}

impl<W: BitSink> CavlcWriter<W> {
    fn code(&mut self, (code, length): Code) {
        self.out.put(u32::from(code), u32::from(length));
    }

    fn block(&mut self, table: usize, scan: &[u8], levels: &[i32]) -> usize {
        let max = scan.len();
        let mut coded = [0i32; 16];
        let mut runs = [0usize; 16];
        let (mut total, mut run) = (0, 0);
        for &at in scan {
            let level = levels[usize::from(at)];
            if level == 0 {
                run += 1;
            } else {
                coded[total] = level;
                runs[total] = run;
                total += 1;
                run = 0;
            }
        }
        let trailing_ones = coded[..total].iter().rev().take(3).take_while(|level| level.abs() == 1).count();
        self.code(COEFF_TOKEN[table][total][trailing_ones]);
        if total == 0 {
            return 0;
        }
        self.levels(&coded[..total], trailing_ones);
        let mut zeros_left: usize = runs[..total].iter().sum();
        if total < max {
            self.code(match max {
                4 => TOTAL_ZEROS_420_DC[total - 1][zeros_left],
                8 => TOTAL_ZEROS_422_DC[total - 1][zeros_left],
                _ => TOTAL_ZEROS[total - 1][zeros_left],
            });
        }
        for &run in runs[1..total].iter().rev() {
            if zeros_left == 0 {
                break;
            }
            self.code(RUN_BEFORE[zeros_left.min(7) - 1][run]);
            zeros_left -= run;
        }
        total
    }

    fn levels(&mut self, coded: &[i32], trailing_ones: usize) {
        let mut suffix_length = u32::from(coded.len() > 10 && trailing_ones < 3);
        for (i, &level) in coded.iter().rev().enumerate() {
            if i < trailing_ones {
                self.out.put(u32::from(level < 0), 1);
                continue;
            }
            let mut code = (2 * level.unsigned_abs() - 2) + u32::from(level < 0);
            if i == trailing_ones && trailing_ones < 3 {
                code -= 2;
            }
            self.level(code, suffix_length);
            suffix_length = suffix_length.max(1);
            if level.abs() > 3 << (suffix_length - 1) && suffix_length < 6 {
                suffix_length += 1;
            }
        }
    }

    /// level_prefix and level_suffix of levelCode (clause 9.2.2.1, backwards).
    fn level(&mut self, code: u32, suffix_length: u32) {
        if suffix_length == 0 && code < 14 {
            self.out.put(1, code + 1);
        } else if suffix_length == 0 && code < 30 {
            self.out.put(1, 15);
            self.out.put(code - 14, 4);
        } else if suffix_length > 0 && code < 15 << suffix_length {
            self.out.put(1, (code >> suffix_length) + 1);
            self.out.put(code & ((1 << suffix_length) - 1), suffix_length);
        } else {
            let mut rest = code - (15 << suffix_length) - if suffix_length == 0 { 15 } else { 0 };
            let mut prefix = 15;
            while rest >= 1 << (prefix - 3) {
                rest -= 1 << (prefix - 3);
                prefix += 1;
            }
            self.out.put(1, prefix + 1);
            self.out.put(rest, prefix - 3);
        }
    }
}

impl<W: BitSink> SyntaxWriter for CavlcWriter<W> {
    fn mb_type(&mut self, _: &Neighbours, mb_type: u32) {
        self.out.put_ue(mb_type);
    }

    fn transform_size_8x8_flag(&mut self, _: &Neighbours, flag: bool) {
        self.out.put(u32::from(flag), 1);
    }

    fn rem_intra_pred_mode(&mut self, rem: Option<u8>) {
        match rem {
            None => self.out.put(1, 1),
            Some(rem) => self.out.put(u32::from(rem), 4),
        }
    }

    fn intra_chroma_pred_mode(&mut self, _: &Neighbours, mode: u8) {
        self.out.put_ue(u32::from(mode));
    }

    fn coded_block_pattern(&mut self, _: &Neighbours, cbp: u8, chroma: bool) {
        let table: &[u8] = if chroma { &CBP_WITH_CHROMA } else { &CBP_LUMA_ONLY };
        self.out.put_ue(table.iter().position(|&entry| entry == cbp).unwrap_or(0) as u32);
    }

    fn mb_qp_delta(&mut self, delta: i32) {
        self.out.put_ue(if delta > 0 { 2 * delta - 1 } else { -2 * delta } as u32);
    }

    fn no_qp_delta(&mut self) {}

    fn residual_block(&mut self, place: BlockPlace, n: &mut Neighbours, scan: &[u8], levels: &[i32]) {
        if place.kind == BlockKind::ChromaDc {
            self.block(if scan.len() == 4 { 4 } else { 5 }, scan, levels);
            return;
        }
        let at = cache_at(place.x, place.y);
        let cache = &n.total_coeff[place.component];
        let total = self.block(coeff_token_table(cache[at - 1], cache[at - 8]), scan, levels);
        if place.kind != BlockKind::Dc16x16 {
            n.total_coeff[place.component][at] = total as u8;
        }
    }

    fn residual_8x8(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8; 64],
        _flag_coded: bool,
        levels: &[i32],
    ) {
        for part in 0..4 {
            let scan_part: [u8; 16] = std::array::from_fn(|k| scan[4 * k + part]);
            let place = BlockPlace { x: place.x + part % 2, y: place.y + part / 2, ..place };
            self.residual_block(place, n, &scan_part, levels);
        }
    }
}
