//! Entropy coding: interleaved range asymmetric numeral systems, and raw bits.
//!
//! Four states share one stream of 16-bit words, so that a decoder works on
//! four symbols at a time; raw bits (signs, low bits, escapes) travel beside
//! them. Knows frequencies and bits; knows nothing of what they stand for.
//!
//! A symbol with frequency `f` out of 2^15 starting at `s` takes a state `x`
//! to `(x / f) · 2^15 + s + x mod f`, after `x` has shed its low 16 bits if it
//! would leave 32 bits. Encoding runs backwards, so it records first.

use crate::Error;

/// Frequencies of one alphabet add up to `1 << PROB_BITS`.
pub const PROB_BITS: u32 = 15;
/// Interleaved states. Symbol `i` of a tile belongs to lane `i % LANES`.
pub const LANES: usize = 4;
/// Lower bound of a state between symbols.
const LOW: u32 = 1 << 16;

/// Symbols in coding order, turned into bytes by [`Recorder::finish`].
#[derive(Debug, Default, Clone)]
pub struct Recorder {
    symbols: Vec<(u16, u16)>,
}

impl Recorder {
    /// With room for `symbols`.
    pub fn with_capacity(symbols: usize) -> Self {
        Self { symbols: Vec::with_capacity(symbols) }
    }

    /// Appends a symbol by the start and size of its range.
    #[inline]
    pub fn push(&mut self, start: u16, freq: u16) {
        self.symbols.push((start, freq));
    }

    /// The lane states, then the words in the order a decoder takes them.
    pub fn finish(&self) -> Vec<u8> {
        let mut states = [LOW; LANES];
        let mut words: Vec<u16> = Vec::with_capacity(self.symbols.len() / 4);
        for (i, &(start, freq)) in self.symbols.iter().enumerate().rev() {
            let state = &mut states[i % LANES];
            let freq = u32::from(freq);
            if u64::from(*state) >= u64::from(freq) << (32 - PROB_BITS) {
                words.push(*state as u16);
                *state >>= 16;
            }
            *state = ((*state / freq) << PROB_BITS) + *state % freq + u32::from(start);
        }
        let mut bytes = Vec::with_capacity(4 * LANES + 2 * words.len());
        states.iter().for_each(|s| bytes.extend_from_slice(&s.to_le_bytes()));
        words.iter().rev().for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
        bytes
    }
}

/// Reads what a [`Recorder`] wrote.
#[derive(Debug)]
pub struct Decoder<'a> {
    states: [u32; LANES],
    words: &'a [u8],
    /// Bytes of `words` consumed; past the end it only counts, so that the
    /// inner loop needs no error path.
    position: usize,
    lane: usize,
}

impl<'a> Decoder<'a> {
    /// Takes the lane states from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some((head, words)) = bytes.split_at_checked(4 * LANES) else {
            return Err(Error::Truncated { what: "entropy states" });
        };
        let mut states = [0; LANES];
        for (state, word) in states.iter_mut().zip(head.chunks_exact(4)) {
            *state = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        }
        Ok(Self { states, words, position: 0, lane: 0 })
    }

    /// Decodes one symbol of the alphabet whose ranges begin at `starts`.
    ///
    /// `starts[i + 1]` ends range `i`; `starts[16]` is `1 << PROB_BITS`.
    #[inline(always)]
    pub fn symbol(&mut self, starts: &[u16; 17]) -> usize {
        let state = self.states[self.lane];
        let slot = (state & ((1 << PROB_BITS) - 1)) as u16;
        let mut symbol = if starts[8] <= slot { 8 } else { 0 };
        symbol += if starts[symbol + 4] <= slot { 4 } else { 0 };
        symbol += if starts[symbol + 2] <= slot { 2 } else { 0 };
        symbol += if starts[symbol + 1] <= slot { 1 } else { 0 };
        let (start, end) = (starts[symbol], starts[symbol + 1]);
        let state = u32::from(end - start).wrapping_mul(state >> PROB_BITS) + u32::from(slot - start);
        let refill = state < LOW;
        let word = match self.words.get(self.position..self.position + 2) {
            Some(w) => u32::from(u16::from_le_bytes([w[0], w[1]])),
            None => 0,
        };
        self.states[self.lane] = if refill { state << 16 | word } else { state };
        self.position += if refill { 2 } else { 0 };
        self.lane = (self.lane + 1) % LANES;
        symbol
    }

    /// Whether the words read so far existed.
    pub fn check(&self) -> Result<(), Error> {
        if self.position > self.words.len() {
            Err(Error::Truncated { what: "entropy words" })
        } else {
            Ok(())
        }
    }

    /// A complete stream ends exactly at its last word with every lane back
    /// where the encoder began.
    pub fn finish(&self) -> Result<(), Error> {
        if self.position == self.words.len() && self.states == [LOW; LANES] {
            Ok(())
        } else {
            Err(Error::Damaged { what: "entropy states do not return to their start" })
        }
    }
}

/// Raw bits, least significant first.
#[derive(Debug, Default, Clone)]
pub struct RawWriter {
    bytes: Vec<u8>,
    pending: u64,
    filled: u32,
}

impl RawWriter {
    /// Appends the low `count` ≤ 32 bits of `value`.
    #[inline]
    pub fn put(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32 && (count == 32 || value >> count == 0));
        self.pending |= u64::from(value) << self.filled;
        self.filled += count;
        if self.filled >= 32 {
            self.bytes.extend_from_slice(&(self.pending as u32).to_le_bytes());
            self.pending >>= 32;
            self.filled -= 32;
        }
    }

    /// Bits written so far.
    pub fn bits(&self) -> u64 {
        8 * self.bytes.len() as u64 + u64::from(self.filled)
    }

    /// The bytes, the last one padded with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        let rest = self.filled.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.pending.to_le_bytes()[..rest]);
        self.bytes
    }
}

/// Reads what a [`RawWriter`] wrote; past the end it reads zeros and remembers.
#[derive(Debug)]
pub struct RawReader<'a> {
    bytes: &'a [u8],
    position: usize,
    pending: u64,
    filled: u32,
}

impl<'a> RawReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, pending: 0, filled: 0 }
    }

    /// At least 32 bits are pending after this.
    #[inline(always)]
    fn refill(&mut self) {
        if self.filled < 32 {
            let word = match self.bytes.get(self.position..self.position + 4) {
                Some(w) => u32::from_le_bytes([w[0], w[1], w[2], w[3]]),
                None => self.tail(),
            };
            self.pending |= u64::from(word) << self.filled;
            self.position += 4;
            self.filled += 32;
        }
    }

    #[cold]
    fn tail(&self) -> u32 {
        let mut word = [0; 4];
        for (i, byte) in word.iter_mut().enumerate() {
            *byte = self.bytes.get(self.position + i).copied().unwrap_or(0);
        }
        u32::from_le_bytes(word)
    }

    /// The next `count` ≤ 32 bits.
    #[inline(always)]
    pub fn get(&mut self, count: u32) -> u32 {
        self.refill();
        let value = (self.pending & ((1u64 << count) - 1)) as u32;
        self.pending >>= count;
        self.filled -= count;
        value
    }

    /// Whether the bits read so far existed.
    pub fn check(&self) -> Result<(), Error> {
        let read = 8 * self.position as u64 - u64::from(self.filled);
        if read > 8 * self.bytes.len() as u64 { Err(Error::Truncated { what: "raw bits" }) } else { Ok(()) }
    }

    /// Whether `count` more bits can exist at all.
    pub fn expect_bits(&self, count: u64) -> Result<(), Error> {
        let left = 8 * self.bytes.len().saturating_sub(self.position) as u64 + u64::from(self.filled);
        if count > left { Err(Error::Truncated { what: "raw bits" }) } else { Ok(()) }
    }

    /// A complete stream ends within its last byte.
    pub fn finish(&self) -> Result<(), Error> {
        self.check()?;
        let read = 8 * self.position as u64 - u64::from(self.filled);
        if read.div_ceil(8) == self.bytes.len() as u64 {
            Ok(())
        } else {
            Err(Error::Damaged { what: "raw bits left over" })
        }
    }
}

/// Escape code of a value without a known bound: Exp-Golomb of order zero
/// with its prefix as a count in five bits, so that both are read at once.
pub fn put_escape(raw: &mut RawWriter, value: u32) {
    let length = (value + 1).ilog2();
    raw.put(length, 5);
    raw.put(value + 1 - (1 << length), length);
}

/// Reads what [`put_escape`] wrote.
pub fn get_escape(raw: &mut RawReader<'_>) -> u32 {
    let length = raw.get(5);
    ((1u64 << length) - 1 + u64::from(raw.get(length))) as u32
}

/// Bits that [`put_escape`] spends.
pub fn escape_bits(value: u32) -> u32 {
    5 + (value + 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranges of sixteen symbols with frequencies proportional to `weights`.
    fn ranges(weights: &[u16; 16]) -> [u16; 17] {
        let total: u32 = weights.iter().map(|&w| u32::from(w) + 1).sum();
        let mut starts = [0u16; 17];
        let mut sum = 0;
        for i in 0..16 {
            starts[i] = i as u16 + (u64::from(sum) * ((1 << PROB_BITS) - 16) / u64::from(total)) as u16;
            sum += u32::from(weights[i]) + 1;
        }
        starts[16] = 1 << PROB_BITS;
        starts
    }

    proptest! {
        #[test]
        fn symbols_come_back(weights in prop::array::uniform16(0u16..2000), symbols in prop::collection::vec(0usize..16, 0..500)) {
            let starts = ranges(&weights);
            let mut recorder = Recorder::default();
            for &s in &symbols {
                recorder.push(starts[s], starts[s + 1] - starts[s]);
            }
            let bytes = recorder.finish();
            let mut decoder = Decoder::new(&bytes).unwrap();
            for &s in &symbols {
                prop_assert_eq!(decoder.symbol(&starts), s);
            }
            prop_assert!(decoder.finish().is_ok());
            let cut = Decoder::new(&bytes[..bytes.len() - 1]).and_then(|mut decoder| {
                symbols.iter().for_each(|_| _ = decoder.symbol(&starts));
                decoder.finish()
            });
            prop_assert!(cut.is_err());
        }

        #[test]
        fn raw_bits_and_escapes_come_back(values in prop::collection::vec((0u32..=u32::MAX, 0u32..=32), 0..200)) {
            let mut raw = RawWriter::default();
            let mut expected_bits = 0;
            for &(value, count) in &values {
                let low = (u64::from(value) & ((1u64 << count) - 1)) as u32;
                raw.put(low, count);
                put_escape(&mut raw, value >> 1);
                expected_bits += u64::from(count + escape_bits(value >> 1));
            }
            prop_assert_eq!(raw.bits(), expected_bits);
            let bytes = raw.finish();
            let mut reader = RawReader::new(&bytes);
            for &(value, count) in &values {
                prop_assert_eq!(u64::from(reader.get(count)), u64::from(value) & ((1u64 << count) - 1));
                prop_assert_eq!(get_escape(&mut reader), value >> 1);
            }
            prop_assert!(reader.finish().is_ok());
        }
    }
}
