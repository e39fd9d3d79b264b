//! The encoding engine (H.264 clause 9.3.4.2, H.265 clause 9.3.4.7) and its
//! twin that only adds up what bins would cost.

use super::{Context, ONE_BIT, lps_range};
use crate::range::carry;

/// Where syntax code sends bins: to a stream, or to a tally of their cost.
pub trait BinWriter {
    /// One bin with an adaptive context.
    fn encode(&mut self, context: &mut Context, bin: bool);
    /// One equiprobable bin.
    fn bypass(&mut self, bin: bool);
    /// The low `n` ≤ 32 bits of `bins` as bypass bins, highest first.
    fn bypass_bits(&mut self, bins: u32, n: u32);
    /// A bin of the terminating kind (end of slice, PCM).
    fn terminate(&mut self, bin: bool);
    /// Makes the range a power of two before bypass bins (H.265 clause 9.3.4.3.6).
    fn align_bypass(&mut self);
}

#[derive(Debug, Clone)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// ivlLow: nine bits, preceded by `bits` settled ones and a carry.
    low: u64,
    bits: u32,
    /// ivlCurrRange, 256 to 510.
    range: u32,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Ready for the first bin of a slice segment or substream.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), low: 0, bits: 0, range: 510 }
    }

    /// Bits written so far, settled or not.
    pub fn bit_position(&self) -> u64 {
        self.bytes.len() as u64 * 8 + u64::from(self.bits)
    }

    /// Widens the interval by `n` bits and moves its foot up. Bits leave only
    /// after both, when at most one carry can still reach them.
    #[inline(always)]
    fn shift(&mut self, n: u32, add: u64) {
        self.low = (self.low << n) + add;
        self.bits += n;
        if self.bits >= 32 {
            self.emit();
        }
    }

    /// Moves 32 settled bits out of `low`, with the carry into what is there.
    fn emit(&mut self) {
        let below = self.bits + 9 - 32;
        let settled = self.low >> below;
        self.low &= (1 << below) - 1;
        self.bits -= 32;
        if settled >> 32 != 0 {
            carry(&mut self.bytes);
        }
        self.bytes.extend_from_slice(&(settled as u32).to_be_bytes());
    }

    /// Ends the bins after `terminate(true)`: writes the rest of the engine,
    /// the one-bit that follows it (the stop bit of a slice, the alignment bit
    /// of a substream) and zeros to the byte boundary, and starts afresh.
    pub fn flush(&mut self) {
        let rest = (self.low >> 7) | 1;
        let rest_bits = self.bits + 2;
        let padding = (8 - rest_bits % 8) % 8;
        let (rest, rest_bits) = (rest << padding, rest_bits + padding);
        if rest >> rest_bits != 0 {
            carry(&mut self.bytes);
        }
        for at in (0..rest_bits / 8).rev() {
            self.bytes.push((rest >> (8 * at)) as u8);
        }
        (self.low, self.bits, self.range) = (0, 0, 510);
    }

    /// Whole bytes between two flushes: PCM samples.
    pub fn raw_bytes(&mut self, bytes: &[u8]) {
        debug_assert!(self.bits == 0 && self.low == 0);
        self.bytes.extend_from_slice(bytes);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.bytes
    }
}

impl BinWriter for Encoder {
    #[inline(always)]
    fn encode(&mut self, context: &mut Context, bin: bool) {
        let lps = lps_range(*context, self.range);
        let mps = self.range - lps;
        if bin == context.mps() {
            self.range = mps;
        } else {
            self.low += u64::from(mps);
            self.range = lps;
        }
        context.update(bin);
        let n = self.range.leading_zeros() - 23;
        self.range <<= n;
        self.shift(n, 0);
    }

    #[inline(always)]
    fn bypass(&mut self, bin: bool) {
        self.shift(1, u64::from(self.range) & u64::from(bin).wrapping_neg());
    }

    #[inline(always)]
    fn bypass_bits(&mut self, bins: u32, n: u32) {
        debug_assert!(n <= 32);
        let high = n.saturating_sub(16);
        for (part, n) in [(bins >> 16, high), (bins, n - high)] {
            self.shift(n, u64::from(part & ((1 << n) - 1)) * u64::from(self.range));
        }
    }

    #[inline(always)]
    fn terminate(&mut self, bin: bool) {
        self.range -= 2;
        if bin {
            self.low += u64::from(self.range);
            self.range = 256;
            self.shift(7, 0);
        } else if self.range < 256 {
            self.range <<= 1;
            self.shift(1, 0);
        }
    }

    #[inline(always)]
    fn align_bypass(&mut self) {
        self.range = 256;
    }
}

/// Adds up what bins would cost, in 1/32768 bit, adapting contexts on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BitCounter {
    /// The sum so far, in 1/32768 bit.
    pub cost: u64,
}

impl BitCounter {
    /// The sum so far in bits.
    pub fn bits(&self) -> f64 {
        self.cost as f64 / f64::from(ONE_BIT)
    }
}

impl BinWriter for BitCounter {
    #[inline(always)]
    fn encode(&mut self, context: &mut Context, bin: bool) {
        self.cost += u64::from(context.cost(bin));
        context.update(bin);
    }

    #[inline(always)]
    fn bypass(&mut self, _bin: bool) {
        self.cost += u64::from(ONE_BIT);
    }

    #[inline(always)]
    fn bypass_bits(&mut self, _bins: u32, n: u32) {
        self.cost += u64::from(ONE_BIT) * u64::from(n);
    }

    #[inline(always)]
    fn terminate(&mut self, bin: bool) {
        // The terminating interval is 2 of a range that averages about 360.
        self.cost += u64::from(if bin { 15 * ONE_BIT / 2 } else { ONE_BIT / 128 });
    }

    #[inline(always)]
    fn align_bypass(&mut self) {}
}
