//! Adaptive binary arithmetic coding with 16-bit probabilities.
//!
//! The engine of H.264 and H.265 (`trinity_bits::cabac`) keeps a probability
//! in 64 states, which costs about 2 % on symbols that hold still. Tensors do
//! hold still, so here a probability is a running mean: it learns as fast as
//! the count of bins seen allows, then follows slow drift. The coder itself is
//! `trinity_bits::range`.

use trinity_bits::range;

use crate::Error;

/// An adaptive probability that a bin is zero, in 1/2^24: finer than the coder
/// uses, so that a nearly certain bin can still be learned in small steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bin {
    zero: u32,
    seen: u16,
}

const ONE: u32 = 1 << 24;
/// Bins over which a settled probability averages.
const MEMORY: u16 = 1023;
/// Zeros that a decoder may read past the end of its data; more, and it was cut.
const SLACK: usize = 8;
/// Neither symbol ever gets less than this probability, in 1/65536.
const FLOOR: u32 = 8;

/// 1/(n + 1.5) in 1/65536: the rate of Krichevsky and Trofimov's estimator.
static RATES: [i32; MEMORY as usize + 1] = {
    let mut rates = [0; MEMORY as usize + 1];
    let mut seen = 0;
    while seen < rates.len() {
        rates[seen] = (2 * 65536 / (2 * seen + 3)) as i32;
        seen += 1;
    }
    rates
};

impl Default for Bin {
    fn default() -> Self {
        Self { zero: ONE / 2, seen: 0 }
    }
}

impl Bin {
    /// The probability of a zero, in 1/65536.
    #[inline]
    fn probability(self) -> u32 {
        (self.zero >> 8).clamp(FLOOR, 65536 - FLOOR)
    }

    #[inline]
    fn update(&mut self, bit: bool) {
        let target = if bit { 0 } else { ONE as i32 };
        let rate = i64::from(RATES[usize::from(self.seen)]);
        self.zero = (self.zero as i32 + ((i64::from(target - self.zero as i32) * rate) >> 16) as i32) as u32;
        self.seen += u16::from(self.seen < MEMORY);
    }
}

/// The range coder, with probabilities that learn.
#[derive(Debug, Default)]
pub(crate) struct Encoder(range::Encoder);

impl Encoder {
    #[inline]
    pub(crate) fn put(&mut self, bin: &mut Bin, bit: bool) {
        self.0.put(bin.probability(), bit);
        bin.update(bit);
    }

    /// `count` ≤ 32 equiprobable bits, most significant first.
    pub(crate) fn raw(&mut self, value: u32, count: u32) {
        self.0.raw(value, count);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bytes = self.0.finish();
        // The decoder reads a few zeros past the end: drop what they can replace.
        let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        bytes.truncate(bytes.len() - zeros.min(SLACK));
        bytes
    }
}

#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    range: range::Decoder<'a>,
    length: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { range: range::Decoder::new(bytes), length: bytes.len() }
    }

    #[inline]
    pub(crate) fn get(&mut self, bin: &mut Bin) -> bool {
        let bit = self.range.get(bin.probability());
        bin.update(bit);
        bit
    }

    pub(crate) fn raw(&mut self, count: u32) -> u32 {
        self.range.raw(count)
    }

    /// An error when far more was read than there is: the data was cut.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.range.position() > self.length + SLACK {
            return Err(Error::corrupt(self.length, "the data ends before the last value"));
        }
        Ok(())
    }
}

/// An adaptive model of symbols of up to 8 bits: a probability for each node
/// of the binary tree of symbols, so it learns any order-0 law.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    depth: u32,
    nodes: Vec<Bin>,
}

impl Tree {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth, nodes: vec![Bin::default(); 1 << depth] }
    }

    #[inline]
    pub(crate) fn put(&mut self, encoder: &mut Encoder, symbol: u8) {
        let mut node = 1;
        for shift in (0..self.depth).rev() {
            let bit = symbol >> shift & 1 == 1;
            encoder.put(&mut self.nodes[node], bit);
            node = 2 * node + usize::from(bit);
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, decoder: &mut Decoder<'_>) -> u8 {
        let mut node = 1;
        for _ in 0..self.depth {
            node = 2 * node + usize::from(decoder.get(&mut self.nodes[node]));
        }
        (node - (1 << self.depth)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn symbols_and_raw_bits_survive(symbols in prop::collection::vec((any::<u8>(), 0u32..33, any::<u32>()), 0..2000)) {
            let mut encoder = Encoder::default();
            let mut tree = Tree::new(8);
            for &(symbol, count, value) in &symbols {
                tree.put(&mut encoder, symbol);
                encoder.raw((u64::from(value) & ((1 << count) - 1)) as u32, count);
            }
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            let mut tree = Tree::new(8);
            for &(symbol, count, value) in &symbols {
                prop_assert_eq!(tree.get(&mut decoder), symbol);
                prop_assert_eq!(u64::from(decoder.raw(count)), u64::from(value) & ((1 << count) - 1));
            }
        }
    }

    #[test]
    fn a_million_times_the_first_symbol_is_not_taken_for_cut_data() {
        let mut encoder = Encoder::default();
        let mut tree = Tree::new(8);
        (0..1_000_000).for_each(|_| tree.put(&mut encoder, 0));
        let bytes = encoder.finish();
        let mut decoder = Decoder::new(&bytes);
        let mut tree = Tree::new(8);
        assert!((0..1_000_000).all(|_| tree.get(&mut decoder) == 0));
        decoder.check().unwrap();
        // A stream cut to nothing is noticed.
        let mut decoder = Decoder::new(&[]);
        let mut tree = Tree::new(8);
        for _ in 0..1_000_000 {
            tree.get(&mut decoder);
        }
        assert!(decoder.check().is_err());
    }

    #[test]
    fn a_settled_source_costs_its_entropy() {
        // Symbol 0 three times in four, in an order without pattern.
        let symbols: Vec<u8> =
            (0u32..200_000).map(|i| u8::from((i.wrapping_mul(2_654_435_761) >> 16) % 4 == 0)).collect();
        let mut encoder = Encoder::default();
        let mut tree = Tree::new(8);
        symbols.iter().for_each(|&symbol| tree.put(&mut encoder, symbol));
        let bits = 8.0 * encoder.finish().len() as f64 / symbols.len() as f64;
        let ones = symbols.iter().filter(|&&symbol| symbol == 1).count() as f64 / symbols.len() as f64;
        let entropy = -ones * ones.log2() - (1.0 - ones) * (1.0 - ones).log2();
        assert!(bits > entropy * 0.99 && bits < entropy * 1.01, "{bits} for {entropy}");
    }
}
