//! Entropy coding: interleaved range asymmetric numeral systems, and raw bits.
//!
//! Four states share one stream of 16-bit words, so that a decoder works on
//! four symbols at a time; raw bits (signs, low bits, escapes) travel beside
//! them. Knows frequencies and bits; knows nothing of what they stand for.
//!
//! A symbol with frequency `f` out of 2^15 starting at `s` takes a state `x`
//! to `(x / f) · 2^15 + s + x mod f`, after `x` has shed its low 16 bits if it
//! would leave 32 bits. Encoding runs backwards, so it records first.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod starts;

pub use starts::Starts;

use crate::Error;

/// Frequencies of one alphabet add up to `1 << PROB_BITS`.
pub const PROB_BITS: u32 = 15;
/// Interleaved states. Column `i` of a coded row belongs to lane `i % LANES`.
pub const LANES: usize = 4;
/// Signs that are taken at a time.
pub const SIGNS: usize = 32;
/// Lower bound of a state between symbols.
const LOW: u32 = 1 << 16;

/// How the symbol whose range holds a slot is found.
pub trait Find {
    fn find(starts: &Starts, slot: u16) -> usize;
}

/// As every machine can: as many before the last as ranges start beyond it.
#[derive(Debug)]
pub struct Plain;

impl Find for Plain {
    #[inline(always)]
    fn find(starts: &Starts, slot: u16) -> usize {
        let [starts @ .., _] = &starts.0;
        let beyond: u32 = starts.iter().map(|&start| u32::from(start as i16 > slot as i16)).sum();
        15usize.wrapping_sub(beyond as usize) & 15
    }
}

/// Where [`trinity_numeric::simd::has_avx2`] has said so.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Find for Avx2 {
    #[inline(always)]
    fn find(starts: &Starts, slot: u16) -> usize {
        // SAFETY: this type is named in one place, after the processor was asked.
        #[allow(unsafe_code)]
        unsafe {
            avx2::find(starts, slot)
        }
    }
}

/// A symbol of a lane by the start and size of its range.
#[inline(always)]
pub fn packed(lane: usize, (start, freq): (u16, u16)) -> u32 {
    debug_assert!(start < 1 << 15 && 0 < freq && freq < 1 << 15 && lane < LANES);
    u32::from(start) | u32::from(freq) << 15 | (lane as u32) << 30
}

/// Symbols in coding order, turned into bytes by [`Recorder::finish`].
#[derive(Debug, Default, Clone)]
pub struct Recorder {
    /// Start, size and lane: 15, 15 and 2 bits.
    symbols: Vec<u32>,
}

impl Recorder {
    pub fn with_capacity(symbols: usize) -> Self {
        Self { symbols: Vec::with_capacity(symbols) }
    }

    #[inline(always)]
    pub fn push(&mut self, lane: usize, range: (u16, u16)) {
        self.symbols.push(packed(lane, range));
    }

    /// Appends symbols that the caller fills in as [`packed`].
    #[inline(always)]
    pub fn more(&mut self, count: usize) -> &mut [u32] {
        let before = self.symbols.len();
        self.symbols.resize(before + count, 0);
        &mut self.symbols[before..]
    }

    /// The states of the first `lanes` lanes, then the words in the order a
    /// decoder takes them.
    pub fn finish(&self, lanes: usize) -> Vec<u8> {
        let mut states = [LOW; LANES];
        let mut words: Vec<u16> = vec![0; self.symbols.len() + 1];
        let mut first = words.len();
        let mut push = |state: u32, symbol: u32| {
            // Written in any case, kept if the state would grow too large.
            words[first - 1] = state as u16;
            let (state, shed) = pushed(state, symbol);
            first -= usize::from(shed);
            state
        };
        let mut rest = &self.symbols[..];
        while let Some((&last, before)) = rest.split_last() {
            // Four in a row are mostly one of each lane, whose states then stay in registers.
            let mut fours = rest;
            while let Some((before, &[a, b, c, d])) = fours.split_last_chunk::<LANES>()
                && [a >> 30, b >> 30, c >> 30, d >> 30] == [0, 1, 2, 3]
            {
                let [w, x, y, z] = states;
                let z = push(z, d);
                let y = push(y, c);
                let x = push(x, b);
                states = [push(w, a), x, y, z];
                fours = before;
            }
            if fours.len() < rest.len() {
                rest = fours;
                continue;
            }
            let state = &mut states[(last >> 30) as usize];
            *state = push(*state, last);
            rest = before;
        }
        let mut bytes = Vec::with_capacity(4 * lanes + 2 * (words.len() - first));
        states[..lanes].iter().for_each(|s| bytes.extend_from_slice(&s.to_le_bytes()));
        words[first..].iter().for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
        bytes
    }
}

/// A state after a symbol, and whether it has shed a word first.
#[inline(always)]
fn pushed(state: u32, symbol: u32) -> (u32, bool) {
    let (start, freq) = (symbol & 0x7fff, symbol >> 15 & 0x7fff);
    let shed = state >= freq << (32 - PROB_BITS);
    let kept = if shed { state >> 16 } else { state };
    (((kept / freq) << PROB_BITS) + kept % freq + start, shed)
}

/// Reads what a [`Recorder`] wrote.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    /// Each of 32 bits, in words that no register holds four of with their products: lanes that a compiler
    /// packs together wait for one another.
    states: [u64; LANES],
    words: &'a [[u8; 2]],
    /// Words consumed; past the end it only counts, so that the inner loop
    /// needs no error path.
    position: usize,
    head: usize,
}

impl<'a> Decoder<'a> {
    /// Takes the states of `lanes` lanes from the front of `bytes`; where its
    /// words end will show.
    pub fn new(bytes: &'a [u8], lanes: usize) -> Result<Self, Error> {
        let head = 4 * lanes;
        let Some((front, words)) = bytes.split_at_checked(head) else {
            return Err(Error::Truncated { what: "entropy states" });
        };
        let mut states = [u64::from(LOW); LANES];
        for (state, word) in states.iter_mut().zip(front.as_chunks().0) {
            *state = u64::from(u32::from_le_bytes(*word));
        }
        Ok(Self { states, words: words.as_chunks().0, position: 0, head })
    }

    #[inline(always)]
    pub fn symbol(&mut self, lane: usize, starts: &Starts) -> usize {
        let mut ahead = self.ahead();
        self.take::<Plain>(lane, starts, &mut ahead)
    }

    /// The next words, the first one lowest: no more than [`LANES`] symbols can
    /// need.
    #[inline(always)]
    pub fn ahead(&self) -> u64 {
        match self.words.get(self.position..).and_then(|words| words.first_chunk()) {
            Some(&[[a, b], [c, d], [e, f], [g, h]]) => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            None => self.last_words(),
        }
    }

    /// The words that are left, and zeros.
    #[cold]
    fn last_words(&self) -> u64 {
        let left = self.words.get(self.position..).unwrap_or(&[]);
        left.iter().rev().fold(0, |ahead, &word| ahead << 16 | u64::from(u16::from_le_bytes(word)))
    }

    /// Decodes one symbol of a lane; a word that it takes leaves `ahead`.
    #[inline(always)]
    pub fn take<F: Find>(&mut self, lane: usize, starts: &Starts, ahead: &mut u64) -> usize {
        let state = self.states[lane];
        let slot = state & ((1 << PROB_BITS) - 1);
        let symbol = F::find(starts, slot as u16);
        let (start, freq) = starts.range(symbol);
        // No more than 32 bits again: the slot lies in the symbol's range.
        let state = u64::from(freq)
            .wrapping_mul(state >> PROB_BITS)
            .wrapping_add(slot)
            .wrapping_sub(u64::from(start));
        let refill = state < u64::from(LOW);
        self.states[lane] = if refill { state << 16 | u64::from(*ahead as u16) } else { state };
        *ahead >>= if refill { 16 } else { 0 };
        self.position += usize::from(refill);
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

    /// Bytes that were read. A complete stream ends with every lane back where
    /// the encoder began.
    pub fn finish(&self) -> Result<usize, Error> {
        self.check()?;
        if self.states == [u64::from(LOW); LANES] {
            Ok(self.head + 2 * self.position)
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
    #[inline(always)]
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

    pub fn bits(&self) -> u64 {
        8 * self.bytes.len() as u64 + u64::from(self.filled)
    }

    /// The bytes, the last one padded with zeros; last to first, as they are
    /// read from the end of a stream.
    pub fn finish(mut self) -> Vec<u8> {
        let rest = self.filled.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.pending.to_le_bytes()[..rest]);
        self.bytes.reverse();
        self.bytes
    }
}

/// Reads what a [`RawWriter`] wrote, from the end of `bytes`; before their
/// front it reads zeros and remembers.
#[derive(Debug, Clone)]
pub struct RawReader<'a> {
    bytes: &'a [u8],
    position: usize,
    size: usize,
    pending: u64,
    filled: u32,
}

impl<'a> RawReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, size: bytes.len(), pending: 0, filled: 0 }
    }

    /// Reads until at least 32 bits are pending.
    #[inline(always)]
    fn refill(&mut self) {
        if self.filled < 32 {
            let word = match self.bytes.last_chunk::<4>() {
                Some(w) => u32::from_be_bytes(*w),
                None => self.front(),
            };
            self.bytes = &self.bytes[..self.bytes.len().saturating_sub(4)];
            self.pending |= u64::from(word) << self.filled;
            self.position += 4;
            self.filled += 32;
        }
    }

    #[cold]
    fn front(&self) -> u32 {
        let mut word = [0; 4];
        for (byte, &b) in word.iter_mut().zip(self.bytes.iter().rev()) {
            *byte = b;
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

    /// Whole bytes that hold the bits read so far.
    fn used(&self) -> usize {
        (8 * self.position as u64 - u64::from(self.filled)).div_ceil(8) as usize
    }

    /// Whether the bits read so far existed.
    pub fn check(&self) -> Result<(), Error> {
        if self.used() > self.size { Err(Error::Truncated { what: "raw bits" }) } else { Ok(()) }
    }

    /// Whether `count` more bits can exist at all.
    pub fn expect_bits(&self, count: u64) -> Result<(), Error> {
        let left = 8 * self.bytes.len() as u64 + u64::from(self.filled);
        if count > left { Err(Error::Truncated { what: "raw bits" }) } else { Ok(()) }
    }

    /// A complete stream ends where the `front` bytes before the raw ones end.
    pub fn finish(&self, front: usize) -> Result<(), Error> {
        self.check()?;
        if front + self.used() == self.size {
            Ok(())
        } else {
            Err(Error::Damaged { what: "symbols and raw bits do not meet" })
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

pub fn get_escape(raw: &mut RawReader<'_>) -> u32 {
    let length = raw.get(5);
    ((1u64 << length) - 1 + u64::from(raw.get(length))) as u32
}

pub fn escape_bits(value: u32) -> u32 {
    5 + (value + 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranges of sixteen symbols with frequencies proportional to `weights`.
    fn ranges(weights: &[u16; 16]) -> Starts {
        let total: u32 = weights.iter().map(|&w| u32::from(w) + 1).sum();
        let mut starts = [0u16; 17];
        let mut sum = 0;
        for i in 0..16 {
            starts[i] = i as u16 + (u64::from(sum) * ((1 << PROB_BITS) - 16) / u64::from(total)) as u16;
            sum += u32::from(weights[i]) + 1;
        }
        starts[16] = 1 << PROB_BITS;
        Starts(starts)
    }

    proptest! {
        #[test]
        fn symbols_come_back(weights in prop::array::uniform16(0u16..2000), symbols in prop::collection::vec((0usize..16, 0usize..LANES), 0..500)) {
            let starts = ranges(&weights);
            let mut recorder = Recorder::default();
            for &(symbol, lane) in &symbols {
                recorder.push(lane, starts.range(symbol));
            }
            let bytes = recorder.finish(LANES);
            let mut decoder = Decoder::new(&bytes, LANES).unwrap();
            for &(symbol, lane) in &symbols {
                prop_assert_eq!(decoder.symbol(lane, &starts), symbol);
            }
            prop_assert_eq!(decoder.finish(), Ok(bytes.len()));
            let cut = Decoder::new(&bytes[..bytes.len() - 1], LANES).and_then(|mut decoder| {
                symbols.iter().for_each(|&(_, lane)| _ = decoder.symbol(lane, &starts));
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
            prop_assert!(reader.finish(0).is_ok());
            prop_assert!(reader.finish(1).is_err());
        }
    }
}
