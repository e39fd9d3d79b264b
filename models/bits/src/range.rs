//! A binary range coder with 16-bit probabilities, as in LZMA.
//!
//! The engine of both standards ([`crate::cabac`]) keeps a probability in 64
//! states; codecs of our own state it to 1/65536. Knows intervals and bytes:
//! how a probability is learned, and from what, is its caller's affair and part
//! of the caller's stream.

/// Fraction bits of a probability.
pub const PROBABILITY_BITS: u32 = 16;
/// Ranges below this take another byte.
const LEAST: u32 = 1 << 24;
/// Bytes that bring all of the interval's lower end out.
const FLUSH: usize = 4;

#[derive(Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    low: u64,
    range: u32,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { bytes: Vec::new(), low: 0, range: u32::MAX }
    }
}

impl Encoder {
    /// Codes a bit that is zero with a probability of `zero`/65536, which is
    /// neither 0 nor all.
    #[inline]
    pub fn put(&mut self, zero: u32, bit: bool) {
        let bound = (self.range >> PROBABILITY_BITS) * zero;
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        self.normalize();
    }

    /// Codes `count` ≤ 32 equiprobable bits, most significant first.
    pub fn raw(&mut self, value: u32, count: u32) {
        for shift in (0..count).rev() {
            self.range >>= 1;
            if value >> shift & 1 == 1 {
                self.low += u64::from(self.range);
            }
            self.normalize();
        }
    }

    #[inline]
    fn normalize(&mut self) {
        while self.range < LEAST {
            self.range <<= 8;
            self.shift();
        }
    }

    fn shift(&mut self) {
        if self.low >> 32 != 0 {
            carry(&mut self.bytes);
        }
        self.bytes.push((self.low >> 24) as u8);
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// The bytes. Zeros at their end may be dropped: a decoder reads zeros there.
    pub fn finish(mut self) -> Vec<u8> {
        for _ in 0..FLUSH {
            self.shift();
        }
        self.bytes
    }
}

/// Adds one to the last of some bytes; the carry runs back over those that were all ones.
#[cold]
pub(crate) fn carry(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
}

/// Reads what an [`Encoder`] wrote. Beyond the end it reads zeros, and
/// remembers how many.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
    code: u32,
    range: u32,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { bytes, position: 0, code: 0, range: u32::MAX };
        for _ in 0..FLUSH {
            decoder.code = decoder.code << 8 | u32::from(decoder.byte());
        }
        decoder
    }

    #[inline]
    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.position).copied().unwrap_or(0);
        self.position += 1;
        byte
    }

    /// The next bit, zero with a probability of `zero`/65536.
    #[inline]
    pub fn get(&mut self, zero: u32) -> bool {
        let bound = (self.range >> PROBABILITY_BITS) * zero;
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        self.normalize();
        bit
    }

    /// The next `count` ≤ 32 equiprobable bits.
    pub fn raw(&mut self, count: u32) -> u32 {
        let mut value = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | u32::from(bit);
            self.normalize();
        }
        value
    }

    #[inline]
    fn normalize(&mut self) {
        while self.range < LEAST {
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(self.byte());
        }
    }

    /// Bytes read so far, those beyond the end included.
    pub fn position(&self) -> usize {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_of_any_probability_come_back(bits in prop::collection::vec((any::<bool>(), 1u32..65536, 0u32..33, any::<u32>()), 0..2000)) {
            let mut encoder = Encoder::default();
            let low = |value: u32, count: u32| (u64::from(value) & ((1 << count) - 1)) as u32;
            for &(bit, zero, count, value) in &bits {
                encoder.put(zero, bit);
                encoder.raw(low(value, count), count);
            }
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            for &(bit, zero, count, value) in &bits {
                prop_assert_eq!(decoder.get(zero), bit);
                prop_assert_eq!(decoder.raw(count), low(value, count));
            }
            prop_assert_eq!(decoder.position(), bytes.len());
        }
    }

    #[test]
    fn a_carry_runs_over_many_bytes_of_ones() {
        // Certain ones drive the interval to the top of every byte before a zero ends them.
        let mut encoder = Encoder::default();
        let bits: Vec<bool> = (0..4000).map(|i| i % 1999 != 7).collect();
        bits.iter().for_each(|&bit| encoder.put(1, bit));
        let bytes = encoder.finish();
        let mut decoder = Decoder::new(&bytes);
        assert!(bits.iter().all(|&bit| decoder.get(1) == bit));
    }
}
