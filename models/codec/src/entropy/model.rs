//! Symbol statistics: from counts of what was coded to ranges for what comes.
//!
//! One alphabet of sixteen symbols for each context. Counts grow with every
//! symbol, but ranges change only between segments, so that inside a segment
//! nothing waits for the model. Integers only: both sides must agree exactly.

use crate::entropy::rans::{PROB_BITS, Starts};

/// Symbols 0 to 14 stand for themselves; 15 announces an escape.
pub const SYMBOLS: usize = 16;
/// The symbol that announces an escape.
pub const ESCAPE: usize = SYMBOLS - 1;
/// Weight of one coded symbol; smaller weights are left for the prior.
pub const INCREMENT: u32 = 16;
/// Counts are halved beyond this, some 32,000 symbols.
const LIMIT: u32 = INCREMENT << 15;

/// Ranges of one alphabet, and what was counted since.
#[derive(Debug, Clone)]
pub struct Context {
    pub starts: Starts,
    counts: [u32; SYMBOLS],
}

impl Context {
    /// Ranges in proportion to `counts`.
    pub fn new(counts: [u32; SYMBOLS]) -> Self {
        Self { starts: ranges(&counts), counts }
    }

    /// Ranges that stay.
    pub fn of(starts: Starts) -> Self {
        Self { starts, counts: [0; SYMBOLS] }
    }

    /// Counts one symbol; ranges stay as they are until [`Model::adapt`].
    #[inline(always)]
    pub fn count(&mut self, symbol: usize) {
        let count = &mut self.counts[symbol & (SYMBOLS - 1)];
        *count = count.wrapping_add(INCREMENT);
    }
}

/// As many as a byte can name, so that no index needs a check.
pub type Contexts = Box<[Context; 256]>;

/// Contexts with these ranges, then unused ones.
pub fn contexts(used: impl Iterator<Item = Context>) -> Contexts {
    let unused = Context::of(Starts([0; SYMBOLS + 1]));
    let all: Vec<Context> = used.chain(std::iter::repeat(unused)).take(256).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("256 were taken"))
}

/// Adaptive ranges for a set of contexts.
#[derive(Debug, Clone)]
pub struct Model {
    pub contexts: Contexts,
    /// Sums of the counts of contexts in use when their ranges were last made.
    totals: Vec<u32>,
}

impl Model {
    /// One context for each prior, of which there are at most 256.
    pub fn new(priors: impl Iterator<Item = [u32; SYMBOLS]>) -> Self {
        let used: Vec<Context> = priors.map(Context::new).collect();
        let totals = used.iter().map(|c| c.counts.iter().sum()).collect();
        Self { contexts: contexts(used.into_iter()), totals }
    }

    /// Renews the ranges of contexts that have seen enough.
    pub fn adapt(&mut self) {
        self.adapt_some(0..self.totals.len(), |_, _| {});
    }

    /// Renews the ranges of those contexts that have seen enough, and tells
    /// which. Contexts left out must have seen nothing since they were last in.
    #[inline(always)]
    pub fn adapt_some(
        &mut self,
        contexts: impl Iterator<Item = usize>,
        mut changed: impl FnMut(usize, &Starts),
    ) {
        for i in contexts {
            let (context, before) = (&mut self.contexts[i], &mut self.totals[i]);
            let total: u32 = context.counts.iter().sum();
            let new = total - *before;
            // A twelfth more evidence than last time moves the ranges by
            // little; renewing more often costs time and gains no bits.
            if new < 4 * INCREMENT || new * 12 < total {
                continue;
            }
            if total > LIMIT {
                context.counts.iter_mut().for_each(|c| *c = c.div_ceil(2));
            }
            *before = context.counts.iter().sum();
            context.starts = ranges(&context.counts);
            changed(i, &context.starts);
        }
    }
}

/// Ranges in proportion to `counts`, none empty.
pub fn ranges(counts: &[u32; SYMBOLS]) -> Starts {
    let total: u64 = counts.iter().map(|&c| u64::from(c)).sum::<u64>().max(1);
    // One division a table: each range is a product with the reciprocal.
    let reciprocal = ((((1u64 << PROB_BITS) - SYMBOLS as u64) << 32) / total).min(1 << 47);
    let mut starts = [0; SYMBOLS + 1];
    let mut freqs = counts.map(|c| 1 + ((u64::from(c) * reciprocal) >> 32) as u16);
    let sum: u16 = freqs.iter().sum();
    let mut largest = 0;
    for i in 1..SYMBOLS {
        if freqs[i] > freqs[largest] {
            largest = i;
        }
    }
    freqs[largest] += (1 << PROB_BITS) - sum;
    for i in 0..SYMBOLS {
        starts[i + 1] = starts[i] + freqs[i];
    }
    Starts(starts)
}

/// A geometric distribution with the given mean in 1/16, as counts that weigh
/// as much as sixteen symbols.
pub fn geometric_prior(mean_q4: u32) -> [u32; SYMBOLS] {
    let ratio = ((u64::from(mean_q4) << 16) / u64::from(mean_q4 + 16)) as u32;
    let mut left = INCREMENT << 20;
    std::array::from_fn(|i| {
        let stay = ((u64::from(left) * u64::from(ratio)) >> 16) as u32;
        let here = if i == ESCAPE { left } else { left - stay };
        left = stay;
        (here >> 16).max(1)
    })
}

/// `-log2(freq / 2^15)` in 1/4096 bit, for a frequency of 1 to 2^15.
pub fn cost_q12(freq: u16) -> u32 {
    // Eleven bits decide; the table is small enough to stay in cache.
    const BITS: u32 = 11;
    static COSTS: std::sync::LazyLock<Vec<u32>> =
        std::sync::LazyLock::new(|| (0..1 << BITS).map(exact_cost_q12).collect());
    let freq = u32::from(freq.max(1));
    let shift = (freq.ilog2() + 1).saturating_sub(BITS);
    COSTS[(freq >> shift) as usize] - (shift << 12)
}

/// By repeated squaring, so that encoders on all machines weigh rates alike.
fn exact_cost_q12(freq: u32) -> u32 {
    let freq = u64::from(freq.max(1));
    let mut log = u64::from(freq.ilog2());
    let mut mantissa = (freq << 30) >> log;
    for _ in 0..12 {
        mantissa = (mantissa * mantissa) >> 30;
        let carry = mantissa >> 31;
        mantissa >>= carry;
        log = log << 1 | carry;
    }
    (PROB_BITS << 12) - log as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_never_empty_and_fill_the_interval() {
        for counts in
            [[0; 16], [u32::MAX / 16; 16], std::array::from_fn(|i| if i == 3 { LIMIT * 2 } else { 0 })]
        {
            let starts = ranges(&counts);
            assert!(starts.0.windows(2).all(|w| w[0] < w[1]), "{starts:?}");
            assert_eq!(starts.0[16], 1 << PROB_BITS);
        }
    }

    #[test]
    fn costs_are_logarithms() {
        for freq in [1u16, 2, 3, 100, 1000, 20_000, 32_767, 32_768] {
            let exact = 4096.0 * (15.0 - f64::from(freq).log2());
            assert!((f64::from(cost_q12(freq)) - exact).abs() <= 6.0, "{freq}: {} {exact}", cost_q12(freq));
        }
    }

    #[test]
    fn learning_a_skewed_source_narrows_its_cost() {
        let mut model = Model::new(std::iter::once(geometric_prior(160)));
        for i in 0..4000 {
            model.contexts[0].count(if i % 10 == 0 { 5 } else { 2 });
            model.adapt();
        }
        let freq = |s: usize| model.contexts[0].starts.range(s).1;
        assert!(freq(2) > 29_000 && freq(5) > 3_000, "{:?}", model.contexts[0]);
    }
}
