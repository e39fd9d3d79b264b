//! The decoding engine (H.264 clause 9.3.3.2, H.265 clause 9.3.4.3).
//!
//! Most of a decoder's time is spent here, so the engine holds a 64-bit window
//! of the stream instead of nine bits, decodes context bins without branching
//! on their value, and takes many bypass bins with one division.

use super::{Context, NEXT_STATE, lps_range};

/// Decodes bins from the bytes of one slice segment or substream.
///
/// Past the end it reads zeros and stays well-defined; ask [`Decoder::overrun`]
/// at convenient points.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    data: &'a [u8],
    /// Bytes moved into `value`, counting the zeros past the end.
    loaded: usize,
    /// ivlOffset, followed by `bits` bits of look-ahead.
    value: u64,
    bits: u32,
    /// ivlCurrRange, 256 to 510.
    range: u32,
}

/// Look-ahead that no single context or terminating bin can exhaust.
const BITS_FOR_ONE_BIN: u32 = 8;

impl<'a> Decoder<'a> {
    /// Most bins [`Decoder::peek_bypass`] can look at.
    pub const MAX_PEEK: u32 = 22;

    /// Initializes the engine at the first byte of `data` (clause 9.3.2.5).
    pub fn new(data: &'a [u8]) -> Self {
        let mut decoder = Self { data, loaded: 0, value: 0, bits: 0, range: 510 };
        decoder.restart(0);
        decoder
    }

    /// Initializes the engine again at byte `at`: after PCM samples, or at the
    /// start of a tile or wavefront row.
    pub fn restart(&mut self, at: usize) {
        self.loaded = at;
        self.value = 0;
        self.bits = 0;
        self.refill();
        // Nine of these 32 bits are ivlOffset itself.
        self.bits -= 9;
        self.narrow(510);
    }

    /// Sets the range. No valid stream has an offset at or above it; damaged
    /// ones are brought below, which keeps every later bin well-defined.
    #[inline(always)]
    fn narrow(&mut self, range: u32) {
        self.range = range;
        self.value = self.value.min((u64::from(range) << self.bits) - 1);
    }

    /// The first byte after the bits consumed so far: once `terminate` has
    /// returned true, where PCM samples or the next substream begin.
    pub fn byte_position(&self) -> usize {
        (self.loaded * 8 - self.bits as usize).div_ceil(8)
    }

    /// Bits consumed so far, ivlOffset included.
    pub fn bit_position(&self) -> u64 {
        self.loaded as u64 * 8 - u64::from(self.bits)
    }

    /// True once bits past the end of the data were consumed.
    pub fn overrun(&self) -> bool {
        self.byte_position() > self.data.len()
    }

    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    #[inline(always)]
    fn refill(&mut self) {
        let word = match self.data.get(self.loaded..).and_then(|rest| rest.first_chunk()) {
            Some(&bytes) => u32::from_be_bytes(bytes),
            None => tail(self.data, self.loaded),
        };
        self.value = (self.value << 32) | u64::from(word);
        self.bits += 32;
        self.loaded += 4;
    }

    /// DecodeDecision: one bin with `context`.
    #[inline(always)]
    pub fn decode(&mut self, context: &mut Context) -> bool {
        if self.bits < BITS_FOR_ONE_BIN {
            self.refill();
        }
        let lps = lps_range(*context, self.range);
        let mps = self.range - lps;
        let scaled = u64::from(mps) << self.bits;
        let less_probable = u32::from(self.value >= scaled);
        let mask = less_probable.wrapping_neg();
        self.value -= scaled & (i64::from(mask as i32) as u64);
        let range = mps ^ ((mps ^ lps) & mask);
        let shift = range.leading_zeros() - 23;
        self.range = range << shift;
        self.bits -= shift;
        let bin = (u32::from(context.0) ^ less_probable) & 1 != 0;
        context.0 = NEXT_STATE[usize::from((context.0 << 1) | less_probable as u8)];
        bin
    }

    /// DecodeBypass: one equiprobable bin.
    #[inline(always)]
    pub fn bypass(&mut self) -> bool {
        if self.bits < BITS_FOR_ONE_BIN {
            self.refill();
        }
        self.bits -= 1;
        let scaled = u64::from(self.range) << self.bits;
        let bin = self.value >= scaled;
        self.value -= scaled & u64::from(bin).wrapping_neg();
        bin
    }

    /// The next `n` ≤ [`Decoder::MAX_PEEK`] bypass bins, first bin in the
    /// highest bit, without consuming them.
    #[inline(always)]
    pub fn peek_bypass(&mut self, n: u32) -> u32 {
        debug_assert!(n <= Self::MAX_PEEK);
        if self.bits < Self::MAX_PEEK {
            self.refill();
        }
        // n single steps compare with halves, quarters… of the range and
        // subtract: long division, done by one.
        (self.value >> (self.bits - n)) as u32 / self.range
    }

    /// Consumes the first `used` of the `n` bins that `peeked` holds.
    #[inline(always)]
    pub fn skip_bypass(&mut self, peeked: u32, n: u32, used: u32) {
        debug_assert!(used <= n);
        self.bits -= used;
        self.value -= (u64::from(peeked >> (n - used)) * u64::from(self.range)) << self.bits;
    }

    /// `n` ≤ 32 bypass bins, first bin in the highest bit.
    #[inline(always)]
    pub fn bypass_bits(&mut self, n: u32) -> u32 {
        debug_assert!(n <= 32);
        let high = n.saturating_sub(16);
        let mut bins = 0;
        if high > 0 {
            bins = self.peek_bypass(high);
            self.skip_bypass(bins, high, high);
        }
        let low = n - high;
        let next = self.peek_bypass(low);
        self.skip_bypass(next, low, low);
        (bins << low) | next
    }

    /// Makes the range a power of two before bypass bins
    /// (cabac_bypass_alignment_enabled_flag, H.265 clause 9.3.4.3.6).
    #[inline(always)]
    pub fn align_bypass(&mut self) {
        self.narrow(256);
    }

    /// DecodeTerminate. After true the engine must be restarted before the
    /// next bin.
    #[inline(always)]
    pub fn terminate(&mut self) -> bool {
        if self.bits < BITS_FOR_ONE_BIN {
            self.refill();
        }
        self.range -= 2;
        if self.value >= u64::from(self.range) << self.bits {
            // As if the engine went on, should a caller not restart it.
            self.narrow(256);
            return true;
        }
        let shift = u32::from(self.range < 256);
        self.range <<= shift;
        self.bits -= shift;
        false
    }
}

/// The last bytes and zeros. Takes values, not the decoder: a local copy of
/// the engine then never has its address taken and stays in registers.
#[cold]
fn tail(data: &[u8], loaded: usize) -> u32 {
    let rest = data.get(loaded..).unwrap_or(&[]);
    let mut bytes = [0; 4];
    bytes[..rest.len()].copy_from_slice(rest);
    u32::from_be_bytes(bytes)
}
