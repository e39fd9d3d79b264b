//! CAVLC and Exp-Golomb parsing of macroblocks (clauses 9.1, 9.2).

use super::{BlockKind, BlockPlace, SyntaxReader};
use crate::entropy::cavlc_tables::{
    COEFF_TOKEN, Code, RUN_BEFORE, TOTAL_ZEROS, TOTAL_ZEROS_420_DC, TOTAL_ZEROS_422_DC,
};
use crate::macroblock::{Neighbours, UNAVAILABLE, cache_at};
use std::sync::LazyLock;
use trinity_bits::{BitReader, BitstreamError, invalid};

/// coded_block_pattern of Intra macroblocks by codeNum, ChromaArrayType 1 and 2 (Table 9-4).
#[rustfmt::skip]
pub const CBP_WITH_CHROMA: [u8; 48] = [
    47, 31, 15, 0, 23, 27, 29, 30, 7, 11, 13, 14, 39, 43, 45, 46, 16, 3, 5, 10, 12, 19, 21, 26,
    28, 35, 37, 42, 44, 1, 2, 4, 8, 17, 18, 20, 24, 6, 9, 22, 25, 32, 33, 34, 36, 40, 38, 41,
];
/// Code numbers of coded_block_pattern for ChromaArrayType 0 and 3.
pub const CBP_LUMA_ONLY: [u8; 16] = [15, 0, 7, 11, 13, 14, 3, 5, 10, 12, 1, 2, 4, 8, 6, 9];

/// A prefix code indexed by its leading zeros and the five bits after the
/// first one; entries are `symbol << 8 | length`, 0 where no code is.
type Lookup = [u16; 512];

fn lookup(codes: &[Code]) -> Lookup {
    std::array::from_fn(|slot| {
        let (zeros, after) = (slot as u32 / 32, slot as u32 % 32);
        // Fifteen zeros or sixteen: no table tells them apart.
        let window = if zeros == 15 { 0 } else { (0x8000 | after << 10) >> zeros };
        let found = codes
            .iter()
            .position(|&(code, length)| length > 0 && window >> (16 - u32::from(length)) == u32::from(code));
        found.map_or(0, |symbol| (symbol as u16) << 8 | u16::from(codes[symbol].1))
    })
}

/// Where a 16-bit window falls in a [`Lookup`].
#[inline(always)]
fn slot(window: u32) -> usize {
    let zeros = (window | 1).leading_zeros() - 16;
    let after = ((window << zeros) << 17) >> 27;
    (zeros * 32 + after) as usize
}

#[derive(Debug)]
struct Lookups {
    coeff_token: [Lookup; 6],
    total_zeros: [Lookup; 15],
    total_zeros_420_dc: [Lookup; 3],
    total_zeros_422_dc: [Lookup; 7],
    run_before: [Lookup; 7],
}

static LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| Lookups {
    coeff_token: COEFF_TOKEN.each_ref().map(|t| lookup(t.as_flattened())),
    total_zeros: TOTAL_ZEROS.each_ref().map(|t| lookup(t)),
    total_zeros_420_dc: TOTAL_ZEROS_420_DC.each_ref().map(|t| lookup(t)),
    total_zeros_422_dc: TOTAL_ZEROS_422_DC.each_ref().map(|t| lookup(t)),
    run_before: RUN_BEFORE.each_ref().map(|t| lookup(t)),
});

#[derive(Debug)]
pub struct CavlcReader<'a> {
    bits: BitReader<'a>,
    lookups: &'static Lookups,
    /// Position of rbsp_stop_one_bit: slice data ends there.
    stop: u64,
}

impl<'a> CavlcReader<'a> {
    /// `bits` stands at the first bit of slice_data().
    pub fn new(bits: BitReader<'a>) -> Self {
        Self { stop: bits.stop_bit(), bits, lookups: &LOOKUPS }
    }

    fn symbol(&mut self, table: &'static Lookup, what: &str) -> Result<usize, BitstreamError> {
        let entry = table[slot(self.bits.peek(16))];
        if entry == 0 {
            return invalid(format!("{what} at bit {} is no valid code", self.bits.position()));
        }
        self.bits.skip(u32::from(entry & 255))?;
        Ok(usize::from(entry >> 8))
    }

    /// Levels of one block of up to `max` coefficients, from `first` on in scan
    /// order; `table` is that of coeff_token.
    fn block(
        &mut self,
        table: usize,
        max: usize,
        scan: &[u8],
        out: &mut [i32],
    ) -> Result<usize, BitstreamError> {
        let token = self.symbol(&self.lookups.coeff_token[table], "coeff_token")?;
        let (total, trailing_ones) = (token / 4, token % 4);
        if total == 0 {
            return Ok(0);
        }
        if total > max {
            return invalid(format!("{total} levels in a block of {max}"));
        }
        let mut levels = [0i32; 16];
        self.levels(&mut levels[..total], trailing_ones)?;
        let mut zeros_left = if total == max {
            0
        } else {
            let zeros = match max {
                4 => &self.lookups.total_zeros_420_dc[total - 1],
                8 => &self.lookups.total_zeros_422_dc[total - 1],
                _ => &self.lookups.total_zeros[total - 1],
            };
            self.symbol(zeros, "total_zeros")?
        };
        if total + zeros_left > max {
            return invalid("total_zeros leaves no room for the levels");
        }
        let mut at = total + zeros_left;
        let mut rest = levels[..total].iter();
        while let Some(&level) = rest.next() {
            at -= 1;
            out[usize::from(scan[at])] = level;
            if zeros_left == 0 || rest.len() == 0 {
                break;
            }
            let run = self.symbol(&self.lookups.run_before[zeros_left.min(7) - 1], "run_before")?;
            if run > zeros_left {
                return invalid("run_before is longer than the zeros left");
            }
            zeros_left -= run;
            at -= run;
        }
        // No zeros among those that are left.
        for &level in rest {
            at -= 1;
            out[usize::from(scan[at])] = level;
        }
        Ok(total)
    }

    /// Levels from the last coefficient down, each read from one look at the stream.
    fn levels(&mut self, levels: &mut [i32], trailing_ones: usize) -> Result<(), BitstreamError> {
        let mut suffix_length = u32::from(levels.len() > 10 && trailing_ones < 3);
        let (ones, larger) = levels.split_at_mut(trailing_ones.min(levels.len()));
        let mut signs = self.bits.window();
        for level in ones {
            *level = 1 - 2 * (signs >> 63) as i32;
            signs <<= 1;
        }
        self.bits.skip(trailing_ones as u32)?;
        for (i, level) in larger.iter_mut().enumerate() {
            let window = self.bits.window();
            let prefix = window.leading_zeros();
            if prefix > 28 {
                return invalid("level_prefix is too long");
            }
            let suffix_size = match prefix {
                14 if suffix_length == 0 => 4,
                15.. => prefix - 3,
                _ => suffix_length,
            };
            // Two shifts: a suffix of no bits leaves nothing.
            let suffix = (window << (prefix + 1)) >> 1 >> (63 - suffix_size);
            self.bits.skip(prefix + 1 + suffix_size)?;
            let mut code = (prefix.min(15) << suffix_length) as i32 + suffix as i32;
            if prefix >= 15 && suffix_length == 0 {
                code += 15;
            }
            if prefix >= 16 {
                code += (1 << (prefix - 3)) - 4096;
            }
            if i == 0 && trailing_ones < 3 {
                code += 2;
            }
            *level = if code & 1 == 0 { (code + 2) >> 1 } else { (-code - 1) >> 1 };
            suffix_length = suffix_length.max(1);
            if level.abs() > 3 << (suffix_length - 1) && suffix_length < 6 {
                suffix_length += 1;
            }
        }
        Ok(())
    }
}

/// The coeff_token table for the blocks left and above (clause 9.2.1).
#[inline]
pub fn coeff_token_table(left: u8, above: u8) -> usize {
    let n = match (left == UNAVAILABLE, above == UNAVAILABLE) {
        (false, false) => (left + above + 1) >> 1,
        (false, true) => left,
        (true, false) => above,
        (true, true) => 0,
    };
    match n {
        0..2 => 0,
        2..4 => 1,
        4..8 => 2,
        _ => 3,
    }
}

impl SyntaxReader for CavlcReader<'_> {
    fn mb_field_decoding_flag(&mut self, _: u8) -> Result<bool, BitstreamError> {
        Ok(self.bits.flag()?)
    }

    fn mb_type(&mut self, _: &Neighbours) -> Result<u32, BitstreamError> {
        Ok(self.bits.ue()?)
    }

    fn transform_size_8x8_flag(&mut self, _: &Neighbours) -> Result<bool, BitstreamError> {
        Ok(self.bits.flag()?)
    }

    fn rem_intra_pred_mode(&mut self) -> Result<Option<u8>, BitstreamError> {
        Ok(if self.bits.flag()? { None } else { Some(self.bits.bits(3)? as u8) })
    }

    fn intra_chroma_pred_mode(&mut self, _: &Neighbours) -> Result<u8, BitstreamError> {
        match self.bits.ue()? {
            mode @ 0..4 => Ok(mode as u8),
            other => invalid(format!("intra_chroma_pred_mode {other} is above 3")),
        }
    }

    fn coded_block_pattern(&mut self, _: &Neighbours, chroma: bool) -> Result<u8, BitstreamError> {
        let code = self.bits.ue()? as usize;
        let table: &[u8] = if chroma { &CBP_WITH_CHROMA } else { &CBP_LUMA_ONLY };
        match table.get(code) {
            Some(&cbp) => Ok(cbp),
            None => invalid(format!("coded_block_pattern code {code} is out of range")),
        }
    }

    fn mb_qp_delta(&mut self) -> Result<i32, BitstreamError> {
        Ok(self.bits.se()?)
    }

    fn no_qp_delta(&mut self) {}

    fn pcm_samples(
        &mut self,
        parts: [(usize, u32); 2],
        put: &mut dyn FnMut(u16),
    ) -> Result<(), BitstreamError> {
        self.bits.align();
        for (count, depth) in parts {
            for _ in 0..count {
                put(self.bits.bits(depth)? as u16);
            }
        }
        Ok(())
    }

    fn residual_block(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8],
        _field: bool,
        out: &mut [i32],
    ) -> Result<usize, BitstreamError> {
        if place.kind == BlockKind::ChromaDc {
            return self.block(if scan.len() == 4 { 4 } else { 5 }, scan.len(), scan, out);
        }
        let cache = &mut n.total_coeff[place.component];
        let at = cache_at(place.x, place.y);
        let table = coeff_token_table(cache[at - 1], cache[at - 8]);
        let total = self.block(table, scan.len(), scan, out)?;
        if place.kind != BlockKind::Dc16x16 {
            n.total_coeff[place.component][at] = total as u8;
        }
        Ok(total)
    }

    fn residual_8x8(
        &mut self,
        place: BlockPlace,
        n: &mut Neighbours,
        scan: &[u8; 64],
        field: bool,
        _flag_coded: bool,
        out: &mut [i32; 64],
    ) -> Result<usize, BitstreamError> {
        // Four 4×4 blocks, each taking every fourth coefficient (clause 7.3.5.3.2).
        let mut total = 0;
        for part in 0..4 {
            let scan_part: [u8; 16] = std::array::from_fn(|k| scan[4 * k + part]);
            let place = BlockPlace { x: place.x + part % 2, y: place.y + part / 2, ..place };
            total += self.residual_block(place, n, &scan_part, field, out)?;
        }
        Ok(total)
    }

    fn bit_position(&self) -> u64 {
        self.bits.position()
    }

    fn end_of_slice(&mut self) -> Result<bool, BitstreamError> {
        if self.bits.position() > self.stop {
            return invalid("slice data ends inside a macroblock");
        }
        Ok(self.bits.position() == self.stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_word_is_found_whatever_follows() {
        for table in COEFF_TOKEN.iter().map(|t| t.as_flattened()).chain(RUN_BEFORE.iter().map(|t| &t[..])) {
            let found = lookup(table);
            for (symbol, &(code, length)) in table.iter().enumerate().filter(|(_, c)| c.1 > 0) {
                let free = 16 - u32::from(length);
                for tail in [0, (1 << free) - 1, (1 << free) / 3] {
                    let window = u32::from(code) << free | tail;
                    assert_eq!(found[slot(window)], (symbol as u16) << 8 | u16::from(length));
                }
            }
        }
    }
}
