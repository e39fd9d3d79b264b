//! Writing one block of levels (H.265 clause 7.3.8.11, residual_coding()).
//!
//! Generic over where bins go, so that what the search counts is what the
//! stream gets. Does not decide anything: levels come in final.

use crate::entropy::contexts::Contexts;
use crate::entropy::scan::{self, Scan};
use trinity_bits::cabac::BinWriter;

/// The adaptive state of the entropy coder between two syntax elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub contexts: Contexts,
    /// StatCoeff of persistent_rice_adaptation_enabled_flag.
    pub stat: [u8; 4],
}

impl State {
    /// As a slice starts.
    pub fn new(slice_qp: i32) -> Self {
        Self { contexts: Contexts::new(slice_qp), stat: [0; 4] }
    }
}

/// The switches of the parameter sets that change how levels are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidualTools {
    pub sign_data_hiding: bool,
    pub persistent_rice: bool,
    pub transform_skip_context: bool,
    /// Log2MaxTransformSkipSize; 0 when transform_skip_enabled_flag is off.
    pub log2_max_transform_skip: u32,
    /// log2TransformRange under extended_precision_processing_flag.
    pub extended_range: Option<u32>,
}

/// What kind of block the levels belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub log2: u32,
    pub c_idx: usize,
    pub scan: Scan,
    pub transform_skip: bool,
    /// cu_transquant_bypass_flag.
    pub bypass: bool,
}

impl Shape {
    /// Whether the whole block shares one sig_coeff_flag context.
    pub fn single_sig_context(&self, tools: &ResidualTools) -> bool {
        tools.transform_skip_context && (self.transform_skip || self.bypass)
    }

    /// Whether sub-blocks may hide a sign.
    pub fn hides_signs(&self, tools: &ResidualTools) -> bool {
        tools.sign_data_hiding && !self.bypass
    }

    /// sbType of clause 9.3.4.2.6: which StatCoeff the block adapts.
    pub fn stat_index(&self) -> usize {
        2 * usize::from(self.c_idx == 0) + usize::from(self.transform_skip || self.bypass)
    }
}

/// The sig_coeff_flag contexts of one sub-block in scan order (clause
/// 9.3.4.2.5). `pattern` has the coded flags to the right and, doubled, below.
#[inline]
pub fn sig_contexts(shape: &Shape, single: bool, first: bool, pattern: usize) -> [u8; 16] {
    if single {
        return [scan::sig_ctx_single(shape.c_idx) as u8; 16];
    }
    let row = if shape.log2 == 2 { scan::SIG_CTX_OF_4X4 } else { pattern };
    let offset = scan::sig_ctx_offset(shape.log2, shape.c_idx, shape.scan, first) as u8;
    let mut contexts = scan::SIG_CTX[shape.scan as usize][row].map(|c| c + offset);
    if first && shape.log2 > 2 {
        contexts[0] = scan::sig_ctx_dc(shape.c_idx) as u8;
    }
    contexts
}

/// Table 9-41: prefix of a last position, and the first position with it.
const LAST_PREFIX: [u8; 32] =
    [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9];
const LAST_FIRST: [u8; 10] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24];

/// Prefix and suffix length of a last position.
#[inline]
pub fn last_binarization(position: u32) -> (u32, u32) {
    let prefix = u32::from(LAST_PREFIX[position as usize]);
    (prefix, if prefix > 3 { (prefix >> 1) - 1 } else { 0 })
}

fn write_last<W: BinWriter>(w: &mut W, contexts: &mut Contexts, shape: &Shape, x: u32, y: u32) {
    let (x, y) = if shape.scan == Scan::Vertical { (y, x) } else { (x, y) };
    let (offset, shift) = scan::last_prefix_ctx(shape.log2, shape.c_idx);
    let longest = 2 * shape.log2 - 1;
    for (position, contexts) in
        [(x, &mut contexts.last_sig_coeff_x_prefix), (y, &mut contexts.last_sig_coeff_y_prefix)]
    {
        let (prefix, _) = last_binarization(position);
        for i in 0..prefix {
            w.encode(&mut contexts[offset + (i >> shift) as usize], true);
        }
        if prefix < longest {
            w.encode(&mut contexts[offset + (prefix >> shift) as usize], false);
        }
    }
    for position in [x, y] {
        let (prefix, length) = last_binarization(position);
        if length > 0 {
            w.bypass_bits(position - u32::from(LAST_FIRST[prefix as usize]), length);
        }
    }
}

/// coeff_abs_level_remaining (clause 9.3.3.11).
#[inline]
fn write_remaining<W: BinWriter>(w: &mut W, value: u32, rice: u32, extended_range: Option<u32>) {
    let prefix = value >> rice;
    if prefix < 4 {
        // `prefix` ones and a zero, then the low bits.
        w.bypass_bits((((2 << prefix) - 2) << rice) | (value & ((1 << rice) - 1)), prefix + 1 + rice);
        return;
    }
    let rest = value - (4 << rice);
    // EG(rice + 1): one more prefix bin doubles the interval.
    let length = ((rest >> (rice + 1)) + 1).ilog2();
    let offset = |length: u32| rest - (((1 << length) - 1) << (rice + 1));
    match extended_range.map(|range| (range, 28 - range)) {
        // The longest prefix has no closing zero and a suffix that holds anything.
        Some((range, longest)) if length >= longest => {
            w.bypass_bits((1 << (4 + longest)) - 1, 4 + longest);
            w.bypass_bits(offset(longest), range);
        }
        _ => {
            w.bypass_bits((2u32 << (4 + length)) - 2, 5 + length);
            w.bypass_bits(offset(length), rice + 1 + length);
        }
    }
}

/// Bins that [`write_remaining`] takes.
#[inline]
pub fn remaining_bits(value: u32, rice: u32) -> u32 {
    let prefix = value >> rice;
    if prefix < 4 {
        prefix + 1 + rice
    } else {
        let length = ((prefix - 4) / 2 + 1).ilog2();
        6 + 2 * length + rice
    }
}

/// StatCoeff after the first coeff_abs_level_remaining of a sub-block
/// (clause 9.3.4.2.6).
#[inline(always)]
pub fn adapt_stat(stat: &mut u8, value: u32) {
    let rice = u32::from(*stat / 4);
    if value >= 3 << rice {
        *stat += 1;
    } else if 2 * value < 1 << rice && *stat > 0 {
        *stat -= 1;
    }
}

/// The Rice parameter after a level was coded with coeff_abs_level_remaining.
#[inline(always)]
pub fn next_rice(rice: u32, level: u32, persistent: bool) -> u32 {
    if level > 3 << rice { if persistent { rice + 1 } else { (rice + 1).min(4) } } else { rice }
}

/// Writes a block with at least one level. `levels` are row by row.
pub fn write<W: BinWriter>(
    w: &mut W,
    state: &mut State,
    tools: &ResidualTools,
    shape: &Shape,
    levels: &[i32],
) {
    let contexts = &mut state.contexts;
    if shape.log2 <= tools.log2_max_transform_skip && !shape.bypass {
        w.encode(&mut contexts.transform_skip_flag[usize::from(shape.c_idx > 0)], shape.transform_skip);
    }

    let positions = shape.scan.positions();
    let sub_blocks = shape.scan.sub_blocks(shape.log2);
    let order = shape.scan.order(shape.log2);
    let Some((last_block, last)) =
        order.iter().rposition(|&at| levels[usize::from(at)] != 0).map(|last| (last / 16, last % 16))
    else {
        debug_assert!(false, "a block without levels has no residual_coding()");
        return;
    };
    let (xs, ys) = sub_blocks[last_block];
    let (x, y) = positions[last];
    write_last(w, contexts, shape, u32::from(xs * 4 + x), u32::from(ys * 4 + y));

    let single = shape.single_sig_context(tools);
    let hides = shape.hides_signs(tools);
    let stat = &mut state.stat[shape.stat_index()];
    let chroma = usize::from(shape.c_idx > 0);
    // Bit x of row y: coded_sub_block_flag. A row and a column of zeros beyond.
    let mut coded = [0u16; 9];
    let mut greater1_context = 1;

    for b in (0..=last_block).rev() {
        let (xs, ys) = sub_blocks[b];
        let mut block = [0i32; 16];
        let mut significant = 0u32;
        for (n, (level, &at)) in block.iter_mut().zip(&order[16 * b..16 * b + 16]).enumerate() {
            *level = levels[usize::from(at)];
            significant |= u32::from(*level != 0) << n;
        }
        let right = (coded[usize::from(ys)] >> (xs + 1)) & 1;
        let below = (coded[usize::from(ys) + 1] >> xs) & 1;
        let pattern = usize::from(right | (below << 1));

        let mut infer_dc = false;
        if b < last_block && b > 0 {
            let flag = significant != 0;
            w.encode(&mut contexts.coded_sub_block_flag[2 * chroma + usize::from(pattern != 0)], flag);
            if !flag {
                continue;
            }
            infer_dc = true;
        }
        coded[usize::from(ys)] |= 1 << xs;

        let sig = sig_contexts(shape, single, b == 0, pattern);
        let start = if b == last_block { last } else { 16 };
        for n in (0..start).rev() {
            if n == 0 && infer_dc && significant == 1 {
                break;
            }
            w.encode(&mut contexts.sig_coeff_flag[usize::from(sig[n])], significant >> n & 1 == 1);
        }
        if significant == 0 {
            continue;
        }

        // Magnitudes in the order they are written.
        let count = significant.count_ones() as usize;
        let mut magnitudes = [0u32; 16];
        let mut left = significant;
        let mut signs = 0u32;
        for magnitude in &mut magnitudes[..count] {
            let n = 31 - left.leading_zeros();
            left ^= 1 << n;
            let level = block[(n & 15) as usize];
            signs = (signs << 1) | u32::from(level < 0);
            *magnitude = level.unsigned_abs();
        }
        let magnitudes = &magnitudes[..count];

        // Greater-than flags: at most eight, and one.
        let set = (if b == 0 || chroma == 1 { 0 } else { 2 }) + usize::from(greater1_context == 0);
        greater1_context = 1;
        let flags = &mut contexts.greater1_flag[16 * chroma + 4 * set..][..4];
        let mut first_greater = None;
        for (i, &magnitude) in magnitudes.iter().take(8).enumerate() {
            let greater = magnitude > 1;
            w.encode(&mut flags[greater1_context & 3], greater);
            if greater {
                greater1_context = 0;
                if first_greater.is_none() {
                    first_greater = Some(i);
                }
            } else if greater1_context > 0 && greater1_context < 3 {
                greater1_context += 1;
            }
        }
        if let Some(i) = first_greater {
            w.encode(&mut contexts.greater2_flag[4 * chroma + set], magnitudes[i] > 2);
        }

        let first = significant.trailing_zeros();
        let highest = 31 - significant.leading_zeros();
        if hides && highest - first > 3 {
            w.bypass_bits(signs >> 1, count as u32 - 1);
        } else {
            w.bypass_bits(signs, count as u32);
        }

        let mut rice = if tools.persistent_rice { u32::from(*stat / 4) } else { 0 };
        let mut adapted = false;
        // Ones before the first level above one need no more.
        let start = first_greater.unwrap_or(8);
        for (i, &magnitude) in magnitudes.iter().enumerate().skip(start) {
            let base = if i >= 8 {
                1
            } else if i == start {
                3
            } else {
                2
            };
            if magnitude >= base {
                write_remaining(w, magnitude - base, rice, tools.extended_range);
                if tools.persistent_rice && !adapted {
                    adapt_stat(stat, magnitude - base);
                    adapted = true;
                }
                rice = next_rice(rice, magnitude, tools.persistent_rice);
            }
        }
    }
}
