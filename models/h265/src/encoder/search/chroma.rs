//! Chroma of a coding unit: its mode, and its blocks under luma's transform tree.

use crate::encoder::search::Search;
use crate::encoder::syntax::chroma_pred_mode;
use crate::encoder::tree::{position, units_in, z_order};
use crate::intra::chroma_mode;
use trinity_bits::Chroma;
use trinity_bits::cabac::BitCounter;

/// A chroma block under a luma transform tree.
struct Place {
    first: usize,
    /// Luma units it belongs to, and how many of them note what becomes of it.
    count: usize,
    noted: usize,
    log2: u32,
    mode: u8,
}

impl Search<'_> {
    /// Searches the chroma mode of a coding unit and codes its chroma;
    /// returns the error.
    pub(super) fn chroma(&mut self, x: usize, y: usize, log2: u32, nxn: bool) -> u64 {
        let parts_444 = nxn && self.sequence.chroma == Chroma::C444;
        if parts_444 {
            return (0..4).map(|part| self.chroma_part(x + (part & 1) * 4, y + (part >> 1) * 4, 2)).sum();
        }
        self.chroma_part(x, y, log2)
    }

    /// One chroma prediction block, `log2` in luma samples.
    fn chroma_part(&mut self, x: usize, y: usize, log2: u32) -> u64 {
        let entry = self.state;
        let z = z_order(x, y);
        let codes: &[u8] = if self.effort.chroma_modes { &[0, 1, 2, 3, 4] } else { &[4] };
        let mut best: Option<(f64, u8)> = None;
        for &code in codes {
            self.state = entry;
            let (error, bits) = self.chroma_with(x, y, log2, code);
            let mut counter = BitCounter { cost: bits };
            chroma_pred_mode(&mut counter, &mut self.state, code);
            let cost = self.cost(error, counter.cost);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, code));
            }
            if codes.len() == 1 {
                self.state = entry;
                return error;
            }
        }
        self.state = entry;
        let code = best.map_or(4, |(_, code)| code);
        let (error, _) = self.chroma_with(x, y, log2, code);
        self.state = entry;
        debug_assert_eq!(self.tree.units[z].chroma_code, code);
        error
    }

    /// Codes chroma under the luma transform tree with one chroma mode.
    fn chroma_with(&mut self, x: usize, y: usize, log2: u32, code: u8) -> (u64, u64) {
        let z = z_order(x, y);
        for unit in &mut self.tree.units[z..z + units_in(log2)] {
            unit.chroma_code = code;
            unit.cbf &= 1;
            unit.skip &= 1;
        }
        let mut total = (0, 0);
        let mut first = z;
        while first < z + units_in(log2) {
            let place = self.chroma_place(first);
            for c in 1..3 {
                let outcome = self.block(c, position(first), place.log2, place.mode);
                self.note(&place, c, outcome.coded, outcome.skip);
                total = (total.0 + outcome.error, total.1 + outcome.bits);
            }
            first += place.count;
        }
        total
    }

    fn note(&mut self, place: &Place, c: usize, coded: bool, skip: bool) {
        for unit in &mut self.tree.units[place.first..place.first + place.noted] {
            unit.cbf |= u8::from(coded) << c;
            unit.skip |= u8::from(skip) << c;
        }
    }

    /// The chroma block of the luma block that starts with unit `first`.
    fn chroma_place(&self, first: usize) -> Place {
        let unit = &self.tree.units[first];
        let luma_log2 = u32::from(unit.tu_log2);
        let shared = self.sequence.chroma != Chroma::C444;
        // Four 4×4 luma blocks share one chroma block, noted in the first.
        let (count, noted) = match (shared, luma_log2) {
            (true, 2) => (4, 1),
            _ => (units_in(luma_log2), units_in(luma_log2)),
        };
        let log2 = if shared { (luma_log2 - 1).max(2) } else { luma_log2 };
        Place { first, count, noted, log2, mode: chroma_mode(unit.chroma_code, unit.luma_mode) }
    }
}
