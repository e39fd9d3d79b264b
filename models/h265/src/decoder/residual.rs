//! residual_coding() (H.265 clause 7.3.8.11): bins to scaled coefficients.
//!
//! At high rates nearly all decoding time is spent here. The engine is copied
//! into a local for the length of a block so that it lives in registers, and
//! each level is scaled as soon as its sign is known.

use trinity_bits::cabac::{Context, Decoder};

use crate::entropy::contexts::Contexts;
use crate::entropy::residual::{adapt_stat, next_rice};
use crate::entropy::scan::{
    SIG_CTX, SIG_CTX_OF_4X4, Scan, last_prefix_ctx, sig_ctx_dc, sig_ctx_offset, sig_ctx_single,
};
use crate::quant::{FLAT, Quantizer};

/// What of the parameter sets changes residual syntax.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tools {
    pub sign_data_hiding: bool,
    /// Largest block that may skip the transform, as log2; 0 for none.
    pub log2_max_transform_skip: u32,
    pub transform_skip_context: bool,
    pub implicit_rdpcm: bool,
    pub extended_precision: bool,
    pub persistent_rice_adaptation: bool,
    pub cabac_bypass_alignment: bool,
}

/// What is added to a block's prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Residual {
    /// The block has levels of its own.
    pub coded: bool,
    /// Eighths of luma's residual (cross-component prediction).
    pub res_scale: i32,
}

/// One transform block to parse.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub log2: u32,
    pub c_idx: usize,
    pub scan: Scan,
    pub transquant_bypass: bool,
    /// Predicted straight across or down, where RDPCM may apply.
    pub straight: bool,
    /// log2TransformRange.
    pub log2_range: u32,
}

/// How levels become coefficients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaling<'a> {
    /// `None` under cu_transquant_bypass: levels already are the residual.
    pub quantizer: Option<&'a Quantizer>,
    /// The scaling factor of each position, where lists are in use.
    pub list: Option<&'a [u8]>,
}

/// Parses one block into `coefficients`, row by row; what is not coded is not
/// touched and must be zero. Returns transform_skip_flag; `None` where a code makes no sense.
pub(super) fn parse(
    engine: &mut Decoder<'_>,
    contexts: &mut Contexts,
    stat_coeff: &mut [u8; 4],
    tools: &Tools,
    block: &Block,
    scaling: Scaling<'_>,
    coefficients: &mut [i32; 1024],
) -> Option<bool> {
    let mut e = engine.clone();
    let parsed = parse_with(&mut e, contexts, stat_coeff, tools, block, scaling, coefficients);
    *engine = e;
    parsed
}

#[inline(always)]
fn parse_with(
    e: &mut Decoder<'_>,
    contexts: &mut Contexts,
    stat_coeff: &mut [u8; 4],
    tools: &Tools,
    block: &Block,
    scaling: Scaling<'_>,
    coefficients: &mut [i32; 1024],
) -> Option<bool> {
    let Block { log2, c_idx, scan, transquant_bypass, straight, log2_range } = *block;
    let chroma = usize::from(c_idx > 0);
    let transform_skip = !transquant_bypass
        && log2 <= tools.log2_max_transform_skip
        && e.decode(&mut contexts.transform_skip_flag[chroma]);
    let untransformed = transform_skip || transquant_bypass;

    let (mut last_x, mut last_y) = last_position(e, contexts, log2, c_idx);
    if scan == Scan::Vertical {
        (last_x, last_y) = (last_y, last_x);
    }
    let (sub_blocks, positions) = (scan.sub_blocks(log2), scan.positions());
    let last_block =
        sub_blocks.iter().position(|&(x, y)| (u32::from(x), u32::from(y)) == (last_x >> 2, last_y >> 2))?;
    let last_n =
        positions.iter().position(|&(x, y)| (u32::from(x), u32::from(y)) == (last_x & 3, last_y & 3))?;

    let may_hide_sign =
        tools.sign_data_hiding && !transquant_bypass && !(tools.implicit_rdpcm && transform_skip && straight);
    let single_context = tools.transform_skip_context && untransformed;
    let rice_class = 2 * (1 - chroma) + usize::from(untransformed);
    let list = scaling.list.filter(|_| !(transform_skip && log2 > 2));

    let mut coded_rows = [0u16; 9];
    let mut greater1_ctx = 1;
    for i in (0..=last_block).rev() {
        let (xs, ys) = sub_blocks[i];
        let (xs, ys) = (usize::from(xs), usize::from(ys));
        let right = (coded_rows[ys] >> (xs + 1)) & 1;
        let below = (coded_rows[ys + 1] >> xs) & 1;
        let inner = i > 0 && i < last_block;
        if inner && !e.decode(&mut contexts.coded_sub_block_flag[2 * chroma + usize::from(right | below)]) {
            continue;
        }
        coded_rows[ys] |= 1 << xs;

        // sig_coeff_flag: the positions that hold something, in coding order.
        let mut found = [0u8; 16];
        let mut count = 0;
        let mut n = 15i32;
        if i == last_block {
            found[0] = last_n as u8;
            count = 1;
            n = last_n as i32 - 1;
        }
        let (pattern, offset) = if single_context {
            (&SINGLE, sig_ctx_single(c_idx))
        } else if log2 == 2 {
            (&SIG_CTX[scan as usize][SIG_CTX_OF_4X4], sig_ctx_offset(2, c_idx, scan, true))
        } else {
            let prev_csbf = usize::from(right | (below << 1));
            (&SIG_CTX[scan as usize][prev_csbf], sig_ctx_offset(log2, c_idx, scan, i == 0))
        };
        while n > 0 {
            let ctx = offset + usize::from(pattern[n as usize]);
            let significant = e.decode(&mut contexts.sig_coeff_flag[ctx]);
            found[count & 15] = n as u8;
            count += usize::from(significant);
            n -= 1;
        }
        if n == 0 {
            // An inner sub-block with 15 zeros must hold its first position.
            let ctx = if single_context {
                offset
            } else if i == 0 || log2 == 2 {
                sig_ctx_dc(c_idx)
            } else {
                offset + usize::from(pattern[0])
            };
            if (inner && count == 0) || e.decode(&mut contexts.sig_coeff_flag[ctx]) {
                found[count & 15] = 0;
                count += 1;
            }
        }
        if count == 0 {
            continue;
        }
        let count = count.min(16);

        // Greater-than-one flags of the first eight, greater-than-two of one.
        let mut set = if i == 0 || c_idx > 0 { 0 } else { 2 };
        if i != last_block && greater1_ctx == 0 {
            set += 1;
        }
        greater1_ctx = 1;
        let mut levels = [1u32; 16];
        let mut first_greater1 = 16;
        let flags = count.min(8);
        for k in 0..flags {
            let ctx = 16 * chroma + 4 * set + greater1_ctx;
            if e.decode(&mut contexts.greater1_flag[ctx]) {
                levels[k] = 2;
                greater1_ctx = 0;
                first_greater1 = first_greater1.min(k);
            } else if greater1_ctx > 0 {
                greater1_ctx = (greater1_ctx + 1).min(3);
            }
        }
        if first_greater1 < 16 && e.decode(&mut contexts.greater2_flag[4 * chroma + set]) {
            levels[first_greater1] = 3;
        }
        // A level is complete unless it reached what its flags can say.
        let mut open = 0xffffu32 << flags;
        for k in 0..flags {
            open |= u32::from(levels[k] == if k == first_greater1 { 3 } else { 2 }) << k;
        }
        open &= (1 << count) - 1;

        if tools.cabac_bypass_alignment && open != 0 {
            e.align_bypass();
        }
        let hidden = may_hide_sign && found[0] - found[count - 1] > 3;
        let sign_count = count as u32 - u32::from(hidden);
        let mut signs = e.bypass_bits(sign_count) << (32 - sign_count);

        let mut rice =
            if tools.persistent_rice_adaptation { u32::from(stat_coeff[rice_class]) / 4 } else { 0 };
        let mut first_remaining = true;
        while open != 0 {
            let k = open.trailing_zeros() as usize;
            open &= open - 1;
            let remaining = abs_level_remaining(e, rice, tools.extended_precision, log2_range)?;
            let level = levels[k] + remaining;
            levels[k] = level;
            rice = next_rice(rice, level, tools.persistent_rice_adaptation);
            if first_remaining && tools.persistent_rice_adaptation {
                adapt_stat(&mut stat_coeff[rice_class], remaining);
            }
            first_remaining = false;
        }

        let mut parity = 0;
        let row = ys * 4;
        for k in 0..count {
            let (x, y) = positions[usize::from(found[k] & 15)];
            // Only the parity of the sum counts; the sum itself may not fit.
            parity ^= levels[k];
            let mut level = levels[k].min(1 << log2_range) as i32;
            if (signs as i32) < 0 {
                level = -level;
            }
            signs <<= 1;
            if hidden && k == count - 1 && parity & 1 == 1 {
                level = -level;
            }
            let at = ((row + usize::from(y)) << log2) + xs * 4 + usize::from(x);
            coefficients[at & 1023] = match scaling.quantizer {
                None => level,
                Some(quantizer) => quantizer.scale(level, list.map_or(FLAT, |list| i32::from(list[at]))),
            };
        }
    }
    Some(transform_skip)
}

/// Under a single context every position has the same one.
static SINGLE: [u8; 16] = [0; 16];

/// LastSignificantCoeffX and Y, before the swap of vertical scans.
#[inline(always)]
fn last_position(e: &mut Decoder<'_>, contexts: &mut Contexts, log2: u32, c_idx: usize) -> (u32, u32) {
    let (offset, shift) = last_prefix_ctx(log2, c_idx);
    let x = last_prefix(e, &mut contexts.last_sig_coeff_x_prefix, offset, shift, log2);
    let y = last_prefix(e, &mut contexts.last_sig_coeff_y_prefix, offset, shift, log2);
    (last_suffix(e, x), last_suffix(e, y))
}

#[inline(always)]
fn last_prefix(
    e: &mut Decoder<'_>,
    contexts: &mut [Context; 18],
    offset: usize,
    shift: u32,
    log2: u32,
) -> u32 {
    let mut prefix = 0;
    while prefix < 2 * log2 - 1 && e.decode(&mut contexts[offset + (prefix >> shift) as usize]) {
        prefix += 1;
    }
    prefix
}

#[inline(always)]
fn last_suffix(e: &mut Decoder<'_>, prefix: u32) -> u32 {
    if prefix < 4 {
        return prefix;
    }
    let bits = (prefix >> 1) - 1;
    ((2 + (prefix & 1)) << bits) + e.bypass_bits(bits)
}

/// coeff_abs_level_remaining (clauses 9.3.3.11 and 9.3.3.12).
#[inline(always)]
fn abs_level_remaining(
    e: &mut Decoder<'_>,
    rice: u32,
    extended_precision: bool,
    log2_range: u32,
) -> Option<u32> {
    const PEEK: u32 = Decoder::MAX_PEEK;
    let bins = e.peek_bypass(PEEK);
    let ones = (!(bins << (32 - PEEK))).leading_zeros();
    let suffix = rice + ones.saturating_sub(3);
    let used = ones + 1 + suffix;
    if used > PEEK || (extended_precision && ones >= 32 - log2_range) {
        // Through a copy: lending the engine itself would force it into memory.
        let mut copy = e.clone();
        let level = long_level_remaining(&mut copy, rice, extended_precision, log2_range);
        *e = copy;
        return level;
    }
    e.skip_bypass(bins, PEEK, used);
    let low = (bins >> (PEEK - used)) & ((1 << suffix) - 1);
    let base = if ones <= 3 { ones } else { (1 << (ones - 3)) + 2 };
    Some((base << rice) + low)
}

/// The codes that one look ahead does not cover, bin by bin.
#[cold]
fn long_level_remaining(
    e: &mut Decoder<'_>,
    rice: u32,
    extended_precision: bool,
    log2_range: u32,
) -> Option<u32> {
    let longest = if extended_precision { 32 - log2_range } else { 32 };
    let mut ones = 0;
    while ones < longest && e.bypass() {
        ones += 1;
    }
    if ones <= 3 {
        return Some((ones << rice) + e.bypass_bits(rice));
    }
    let suffix = if !extended_precision && ones == longest {
        return None;
    } else if ones == longest {
        log2_range
    } else {
        ones - 3 + rice
    };
    if suffix > 32 {
        return None;
    }
    let base = ((1u64 << (ones - 3)) + 2) << rice;
    // Anything beyond the coefficient range is clipped to it later.
    Some((base + u64::from(e.bypass_bits(suffix))).min(1 << 28) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::residual::{ResidualTools, Shape, State, write};
    use trinity_bits::cabac::{BinWriter, Encoder};

    /// Found by fuzzing: sixteen levels as long as codes get.
    #[test]
    fn levels_whose_sum_does_not_fit_still_hide_a_sign() {
        let written = ResidualTools {
            sign_data_hiding: true,
            persistent_rice: true,
            transform_skip_context: false,
            log2_max_transform_skip: 0,
            extended_range: None,
        };
        let shape = Shape { log2: 2, c_idx: 0, scan: Scan::Diagonal, transform_skip: false, bypass: false };
        let start = State { stat: [100; 4], ..State::new(30) };
        let mut encoder = Encoder::new();
        write(&mut encoder, &mut start.clone(), &written, &shape, &[1 << 29; 16]);
        encoder.terminate(true);
        let bytes = encoder.finish();

        let read = Tools {
            sign_data_hiding: true,
            log2_max_transform_skip: 0,
            transform_skip_context: false,
            implicit_rdpcm: false,
            extended_precision: false,
            persistent_rice_adaptation: true,
            cabac_bypass_alignment: false,
        };
        let block = Block {
            log2: 2,
            c_idx: 0,
            scan: Scan::Diagonal,
            transquant_bypass: false,
            straight: false,
            log2_range: 15,
        };
        let (mut contexts, mut stat) = (start.contexts, start.stat);
        let mut coefficients = [0; 1024];
        let plain = Scaling { quantizer: None, list: None };
        let mut engine = Decoder::new(&bytes);
        let parsed = parse(&mut engine, &mut contexts, &mut stat, &read, &block, plain, &mut coefficients);
        assert!(parsed.is_some());
        assert!(coefficients[..16].iter().all(|c| c.abs() == 1 << 15), "{:?}", &coefficients[..16]);
    }
}
