//! Reading and writing bits, most significant first, and Exp-Golomb codes
//! (H.264 clause 9.1, H.265 clause 9.2).
//!
//! Works on RBSP bytes: emulation prevention is [`crate::nal`]'s business.

use crate::Error;

#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    data: &'a [u8],
    bit: u64,
}

impl<'a> BitReader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, bit: 0 }
    }

    pub fn position(&self) -> u64 {
        self.bit
    }

    pub fn remaining(&self) -> u64 {
        self.data.len() as u64 * 8 - self.bit
    }

    pub fn is_aligned(&self) -> bool {
        self.bit.is_multiple_of(8)
    }

    /// Skips to the next byte boundary, if not on one.
    pub fn align(&mut self) {
        self.bit = self.bit.next_multiple_of(8);
    }

    /// The bytes from the current (aligned) position on.
    pub fn rest(&self) -> &'a [u8] {
        &self.data[(self.bit.div_ceil(8) as usize).min(self.data.len())..]
    }

    /// The next 57 bits at least from the highest bit down, without moving,
    /// zero-padded past the end.
    #[inline]
    pub fn window(&self) -> u64 {
        let byte = (self.bit / 8) as usize;
        let window = match self.data.get(byte..byte + 8) {
            Some(bytes) => u64::from_be_bytes(bytes.try_into().unwrap_or([0; 8])),
            None => {
                let mut padded = [0u8; 8];
                let tail = self.data.get(byte..).unwrap_or(&[]);
                padded[..tail.len()].copy_from_slice(tail);
                u64::from_be_bytes(padded)
            }
        };
        window << (self.bit % 8)
    }

    /// The next `n` bits without moving, zero-padded past the end. `n` ≤ 32.
    #[inline]
    pub fn peek(&self, n: u32) -> u32 {
        debug_assert!(n <= 32);
        if n == 0 { 0 } else { (self.window() >> (64 - n)) as u32 }
    }

    #[inline]
    pub fn skip(&mut self, n: u32) -> Result<(), Error> {
        if u64::from(n) > self.remaining() {
            return Err(Error::EndOfData { bit: self.data.len() as u64 * 8 });
        }
        self.bit += u64::from(n);
        Ok(())
    }

    /// u(n), `n` ≤ 32.
    #[inline]
    pub fn bits(&mut self, n: u32) -> Result<u32, Error> {
        let value = self.peek(n);
        self.skip(n)?;
        Ok(value)
    }

    /// u(1).
    #[inline]
    pub fn flag(&mut self) -> Result<bool, Error> {
        Ok(self.bits(1)? != 0)
    }

    /// ue(v).
    #[inline]
    pub fn ue(&mut self) -> Result<u32, Error> {
        let start = self.bit;
        let zeros = self.peek(32).leading_zeros();
        if zeros == 32 {
            return Err(if self.remaining() < 33 {
                Error::EndOfData { bit: self.data.len() as u64 * 8 }
            } else {
                Error::BadExpGolomb { bit: start }
            });
        }
        self.skip(zeros + 1)?;
        let suffix = self.bits(zeros)?;
        Ok((1u32 << zeros) - 1 + suffix)
    }

    /// se(v).
    #[inline]
    pub fn se(&mut self) -> Result<i32, Error> {
        let code = i64::from(self.ue()?);
        Ok(if code & 1 == 1 { (code + 1) / 2 } else { -(code / 2) } as i32)
    }

    /// Position of rbsp_stop_one_bit, the last that is set; 0 where none is.
    pub fn stop_bit(&self) -> u64 {
        let last = self.data.iter().rposition(|&b| b != 0);
        last.map_or(0, |last| last as u64 * 8 + 7 - u64::from(self.data[last].trailing_zeros()))
    }

    /// more_rbsp_data(): false when only rbsp_trailing_bits() is left.
    pub fn more_rbsp_data(&self) -> bool {
        self.bit < self.stop_bit()
    }
}

#[derive(Debug, Clone, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// Bits not yet in `bytes`, in the low end of the word; always fewer than 8.
    pending: u64,
    pending_bits: u32,
}

impl BitWriter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn position(&self) -> u64 {
        self.bytes.len() as u64 * 8 + u64::from(self.pending_bits)
    }

    pub fn is_aligned(&self) -> bool {
        self.pending_bits == 0
    }

    /// u(n): the low `n` bits of `value`, `n` ≤ 32.
    #[inline]
    pub fn bits(&mut self, value: u32, n: u32) {
        debug_assert!(n <= 32 && (n == 32 || u64::from(value) < 1 << n));
        self.pending = (self.pending << n) | u64::from(value);
        self.pending_bits += n;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.bytes.push((self.pending >> self.pending_bits) as u8);
        }
        self.pending &= (1 << self.pending_bits) - 1;
    }

    /// u(1).
    #[inline]
    pub fn flag(&mut self, value: bool) {
        self.bits(u32::from(value), 1);
    }

    /// ue(v).
    pub fn ue(&mut self, value: u32) {
        let code = u64::from(value) + 1;
        let length = 64 - code.leading_zeros();
        self.bits(0, length - 1);
        if length > 32 {
            self.bits(1, 1);
            self.bits(code as u32, 32);
        } else {
            self.bits(code as u32, length);
        }
    }

    /// se(v).
    pub fn se(&mut self, value: i32) {
        let v = i64::from(value);
        self.ue(if v > 0 { 2 * v - 1 } else { -2 * v } as u32);
    }

    /// rbsp_trailing_bits(): a one, then zeros to the byte boundary.
    pub fn trailing_bits(&mut self) {
        self.flag(true);
        self.align_zero();
    }

    /// Zeros to the byte boundary.
    pub fn align_zero(&mut self) {
        if self.pending_bits > 0 {
            self.bits(0, 8 - self.pending_bits);
        }
    }

    /// Whole bytes; the writer must be aligned.
    pub fn extend(&mut self, bytes: &[u8]) {
        debug_assert!(self.is_aligned());
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes, padded with zero bits to a boundary.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.align_zero();
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golomb_codes_match_table_9_2_of_h264() {
        let mut w = BitWriter::new();
        for v in 0..5 {
            w.ue(v);
        }
        // 1 010 011 00100 00101
        assert_eq!(w.position(), 17);
        assert_eq!(w.into_bytes(), [0b1010_0110, 0b0100_0010, 0b1000_0000]);
    }

    #[test]
    fn the_largest_ue_and_the_extreme_se_round_trip() {
        let mut w = BitWriter::new();
        w.ue(u32::MAX - 1);
        w.se(i32::MAX);
        w.se(-i32::MAX);
        w.trailing_bits();
        let bytes = w.into_bytes();
        let mut r = BitReader::new(&bytes);
        assert_eq!(r.ue().unwrap(), u32::MAX - 1);
        assert_eq!(r.se().unwrap(), i32::MAX);
        assert_eq!(r.se().unwrap(), -i32::MAX);
    }

    proptest! {
        #[test]
        fn any_sequence_of_codes_round_trips(codes in prop::collection::vec((0u32..4, any::<u32>(), 1u32..=32), 0..200)) {
            let mut w = BitWriter::new();
            for &(kind, value, n) in &codes {
                match kind {
                    0 => w.bits(if n == 32 { value } else { value & ((1 << n) - 1) }, n),
                    1 => w.ue(value >> 1),
                    2 => w.se((value as i32) >> 2),
                    _ => w.flag(value & 1 == 1),
                }
            }
            w.trailing_bits();
            let bytes = w.into_bytes();
            let mut r = BitReader::new(&bytes);
            for &(kind, value, n) in &codes {
                prop_assert!(r.more_rbsp_data());
                match kind {
                    0 => prop_assert_eq!(r.bits(n).unwrap(), if n == 32 { value } else { value & ((1 << n) - 1) }),
                    1 => prop_assert_eq!(r.ue().unwrap(), value >> 1),
                    2 => prop_assert_eq!(r.se().unwrap(), (value as i32) >> 2),
                    _ => prop_assert_eq!(r.flag().unwrap(), value & 1 == 1),
                }
            }
            prop_assert!(!r.more_rbsp_data());
        }

        #[test]
        fn reading_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut r = BitReader::new(&bytes);
            while r.ue().is_ok() && r.se().is_ok() && r.bits(3).is_ok() {}
        }
    }
}
