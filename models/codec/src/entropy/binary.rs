//! Adaptive binary arithmetic coding with two-rate probabilities.
//!
//! Each bit has a context with a quick and a slow estimate of its probability;
//! their mean is what `trinity_bits::range` codes with. Slow beside
//! [`crate::entropy::rans`], one bit after the other, but it learns any
//! distribution from nothing. Knows bits; knows nothing of what they stand for.
//! Integers only.

use trinity_bits::range::{self, PROBABILITY_BITS as BITS};

use crate::Error;

/// Shifts that the quick and the slow estimate settle at.
const QUICK: u32 = 8;
const SLOW: u32 = 12;

/// How likely a bit is to be zero, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probability {
    /// Out of 2^30: finer than what is coded with, or small steps would come to rest too early.
    quick: i32,
    slow: i32,
    /// Bits seen, until both estimates have settled.
    seen: u16,
}

/// An estimate's fraction bits.
const FINE: u32 = 30;

impl Default for Probability {
    fn default() -> Self {
        Self { quick: 1 << (FINE - 1), slow: 1 << (FINE - 1), seen: 0 }
    }
}

impl Probability {
    /// The share of zeros out of 2^16: never none, never all.
    fn zero(self) -> u32 {
        let mean = (self.quick + self.slow) as u32 >> (FINE - BITS + 1);
        mean.clamp(8, (1 << BITS) - 8)
    }

    /// Moves both estimates toward a bit: by one over the bits seen at first,
    /// later by a fixed share.
    fn learn(&mut self, bit: bool) {
        let goal = if bit { 0 } else { 1 << FINE };
        let share = |limit: u32| (i32::from(self.seen) + 2).min(1 << limit);
        self.quick += (goal - self.quick) / share(QUICK);
        self.slow += (goal - self.slow) / share(SLOW);
        self.seen = (self.seen + 1).min(1 << SLOW);
    }
}

#[derive(Debug, Default)]
pub struct Encoder(range::Encoder);

impl Encoder {
    pub fn put(&mut self, probability: &mut Probability, bit: bool) {
        self.0.put(probability.zero(), bit);
        probability.learn(bit);
    }

    pub fn finish(self) -> Vec<u8> {
        self.0.finish()
    }
}

#[derive(Debug)]
pub struct Decoder<'a> {
    range: range::Decoder<'a>,
    length: usize,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { range: range::Decoder::new(bytes), length: bytes.len() }
    }

    pub fn get(&mut self, probability: &mut Probability) -> bool {
        let bit = self.range.get(probability.zero());
        probability.learn(bit);
        bit
    }

    pub fn check(&self) -> Result<(), Error> {
        if self.range.position() > self.length {
            Err(Error::Truncated { what: "arithmetic code" })
        } else {
            Ok(())
        }
    }

    /// A complete stream ends with the last byte it was read from.
    pub fn finish(&self) -> Result<(), Error> {
        self.check()?;
        if self.range.position() < self.length {
            return Err(Error::Damaged { what: "bytes after the arithmetic code" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trinity_numeric::random::Lcg;

    proptest! {
        #[test]
        fn bits_come_back(bits in prop::collection::vec((any::<bool>(), 0usize..3), 0..3000)) {
            let mut encoder = Encoder::default();
            let mut contexts = [Probability::default(); 3];
            // The third context sees zeros alone, so that carries and long runs occur.
            for &(bit, context) in &bits {
                encoder.put(&mut contexts[context], bit && context < 2);
            }
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            let mut contexts = [Probability::default(); 3];
            for &(bit, context) in &bits {
                prop_assert_eq!(decoder.get(&mut contexts[context]), bit && context < 2);
            }
            prop_assert!(decoder.finish().is_ok());
        }
    }

    #[test]
    fn a_skewed_bit_costs_little_more_than_its_entropy() {
        let (mut encoder, mut context) = (Encoder::default(), Probability::default());
        let mut lcg = Lcg(1);
        let count = 200_000;
        for _ in 0..count {
            encoder.put(&mut context, lcg.state() >> 60 == 0);
        }
        let (p, bits) = (1.0 / 16.0f64, 8.0 * encoder.finish().len() as f64 / f64::from(count));
        let entropy = -p * p.log2() - (1.0 - p) * (1.0 - p).log2();
        assert!(bits < entropy + 0.006, "{bits} {entropy}");
    }
}
