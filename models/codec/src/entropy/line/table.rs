//! Frequency tables: how likely the symbols of a context are, in 1/1024.
//!
//! A table is signalled by sixteen logarithms of probabilities and is the same
//! for both signs of a magnitude. Knows nothing of lanes or of what a symbol
//! stands for.

use trinity_bits::{BitReader, BitWriter};

use crate::format::line::error::Error;

/// Frequencies of a table sum to two to this.
pub const SCALE_BITS: u32 = 10;
pub const SCALE: u32 = 1 << SCALE_BITS;
/// Magnitudes of a table, the last of them the escape.
pub const MAGNITUDES: usize = 16;
/// The magnitude that says: the level follows as a word of its own.
pub const ESCAPE: usize = MAGNITUDES - 1;
/// The logarithm that stands for a probability of zero.
const NEVER: u8 = 127;
/// 2^(16 − i/8), rounded.
const EIGHTHS: [u32; 8] = [65536, 60097, 55109, 50535, 46341, 42495, 38968, 35734];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// −8 log2 of each magnitude's probability (of one sign of it), or [`NEVER`].
    codes: [u8; MAGNITUDES],
    /// Frequency of each magnitude, of one sign where it has two.
    frequencies: [u16; MAGNITUDES],
    /// Slots below each magnitude.
    starts: [u16; MAGNITUDES],
}

impl Table {
    /// The table of so many observations of each magnitude, both signs together.
    pub fn from_counts(counts: &[u64; MAGNITUDES]) -> Self {
        let total = counts.iter().sum::<u64>().max(1) as f64;
        let mut codes = std::array::from_fn(|m| {
            let share = counts[m] as f64 / f64::from(signs(m)) / total;
            if counts[m] == 0 { NEVER } else { (-8.0 * share.log2()).round().clamp(0.0, 126.0) as u8 }
        });
        // Whatever was not seen can still be said, as an escape.
        codes[ESCAPE] = codes[ESCAPE].min(88);
        // Zero takes what the others leave; it must be left something.
        codes[0] = codes[0].min(80);
        loop {
            match Self::from_codes(codes) {
                Ok(table) => return table,
                // Sixteen rounded-up rarities at most: making zero likelier makes room.
                Err(_) => codes[0] = codes[0].saturating_sub(8),
            }
        }
    }

    fn from_codes(codes: [u8; MAGNITUDES]) -> Result<Self, Error> {
        let weight = |code: u8| if code >= NEVER { 0 } else { EIGHTHS[usize::from(code & 7)] >> (code >> 3) };
        let weights = codes.map(weight);
        let total: u32 = (0..MAGNITUDES).map(|m| weights[m] * signs(m)).sum();
        if weights[ESCAPE] == 0 {
            return Err(Error::Damaged { what: "a table without an escape" });
        }
        let mut frequencies = weights.map(|w| if w == 0 { 0 } else { (w * SCALE / total).max(1) as u16 });
        let others: u32 = (1..MAGNITUDES).map(|m| u32::from(frequencies[m]) * signs(m)).sum();
        if others >= SCALE {
            return Err(Error::Damaged { what: "a table without room for zero" });
        }
        frequencies[0] = (SCALE - others) as u16;
        let mut starts = [0; MAGNITUDES];
        for m in 1..MAGNITUDES {
            starts[m] = starts[m - 1] + frequencies[m - 1] * signs(m - 1) as u16;
        }
        Ok(Self { codes, frequencies, starts })
    }

    pub(crate) fn write(&self, out: &mut BitWriter) {
        let last = self.last();
        out.bits(last as u32, 4);
        for &code in &self.codes[..=last] {
            out.bits(u32::from(code), 7);
        }
        out.bits(u32::from(self.codes[ESCAPE]), 7);
    }

    pub(crate) fn read(bits: &mut BitReader<'_>) -> Result<Self, Error> {
        let mut codes = [NEVER; MAGNITUDES];
        let last = bits.bits(4)? as usize;
        if last >= ESCAPE {
            return Err(Error::Damaged { what: "a table with a magnitude too many" });
        }
        for code in &mut codes[..=last] {
            *code = bits.bits(7)? as u8;
        }
        codes[ESCAPE] = bits.bits(7)? as u8;
        Self::from_codes(codes)
    }

    /// Bits that the table takes in a header.
    pub(crate) fn header_bits(&self) -> u32 {
        4 + 7 * (self.last() as u32 + 2)
    }

    /// The last magnitude before the escape that is coded.
    fn last(&self) -> usize {
        (0..ESCAPE).rev().find(|&m| self.codes[m] != NEVER).unwrap_or(0)
    }

    /// Frequency of a magnitude, of one sign where it has two; 0: it is never coded.
    pub fn frequency(&self, magnitude: usize) -> u32 {
        u32::from(self.frequencies[magnitude])
    }

    pub fn start(&self, magnitude: usize) -> u32 {
        u32::from(self.starts[magnitude])
    }

    /// Bits that a magnitude costs, its sign or the word of its level included.
    pub(crate) fn magnitude_bits(&self, magnitude: usize) -> f64 {
        let bits = |m: usize| f64::from(SCALE_BITS) - f64::from(self.frequencies[m].max(1)).log2();
        let escaped = magnitude == ESCAPE || self.frequencies[magnitude] == 0;
        if escaped { bits(ESCAPE) + 16.0 } else { bits(magnitude) }
    }

    /// Bits that so many of each magnitude cost.
    pub(crate) fn bits_of(&self, counts: &[u64; MAGNITUDES]) -> f64 {
        counts.iter().enumerate().map(|(m, &count)| count as f64 * self.magnitude_bits(m)).sum()
    }

    pub fn slots(&self) -> Vec<Slot> {
        let mut slots = Vec::with_capacity(SCALE as usize);
        for magnitude in 0..MAGNITUDES {
            for sign in 0..signs(magnitude) {
                let symbol = if sign == 1 { -(magnitude as i32) } else { magnitude as i32 };
                for bias in 0..self.frequency(magnitude) {
                    slots.push(Slot::new(symbol, self.frequency(magnitude), bias));
                }
            }
        }
        slots
    }
}

/// Signs that a magnitude of a table has.
fn signs(magnitude: usize) -> u32 {
    if magnitude == 0 || magnitude == ESCAPE { 1 } else { 2 }
}

/// One entry of a decoding table: bits 0–10 frequency, 11–21 slot above the
/// symbol's first, 22–31 the symbol, signed; a positive 15 is the escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub u32);

impl Slot {
    fn new(symbol: i32, frequency: u32, bias: u32) -> Self {
        Self(frequency | bias << 11 | (symbol << 22) as u32)
    }

    #[inline(always)]
    pub fn frequency(self) -> u32 {
        self.0 & 0x7ff
    }

    #[inline(always)]
    pub fn bias(self) -> u32 {
        self.0 >> 11 & 0x7ff
    }

    #[inline(always)]
    pub fn symbol(self) -> i32 {
        self.0 as i32 >> 22
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_survive_their_header_and_fill_every_slot() {
        let laws: [[u64; 16]; 4] = [
            [1000, 800, 400, 100, 20, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1_000_000],
            [u64::MAX >> 20; 16],
        ];
        for counts in laws {
            let table = Table::from_counts(&counts);
            let mut out = BitWriter::new();
            table.write(&mut out);
            let bytes = out.into_bytes();
            assert_eq!(Table::read(&mut BitReader::new(&bytes)).unwrap(), table);
            let slots = table.slots();
            assert_eq!(slots.len(), SCALE as usize);
            assert_eq!(table.header_bits().div_ceil(8) as usize, bytes.len());
            for (i, slot) in slots.iter().enumerate() {
                let magnitude = slot.symbol().unsigned_abs() as usize;
                let negative = if slot.symbol() < 0 { slot.frequency() } else { 0 };
                assert_eq!(table.start(magnitude) + negative + slot.bias(), i as u32);
                assert_eq!(slot.frequency(), table.frequency(magnitude));
            }
            assert!(table.frequency(ESCAPE) > 0 && table.frequency(0) > 0);
        }
    }
}
