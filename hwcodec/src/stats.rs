//! Medians with their confidence: how every timing here is reported.

use crate::Error;
use statrs::distribution::{Binomial, DiscreteCDF};
use std::time::Instant;

/// A repeated measurement: the median and a distribution-free confidence
/// interval of it (order statistics, at least 95 % where `n` ≥ 6; the range
/// of all values below that).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub n: usize,
}

impl Spread {
    /// Statistics of at least one value; None for none or for a NaN.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let median = if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 };
        let rank = interval_rank(n);
        Some(Self { median, low: sorted[rank], high: sorted[n - 1 - rank], n })
    }

    /// [`Spread::of`] timings of `what`; that there are none is an error.
    pub(crate) fn timed(what: &str, values: &[f64]) -> Result<Self, Error> {
        Self::of(values).ok_or_else(|| Error::Fit { what: what.into(), reason: "no repetitions".into() })
    }

    /// The same measurement in another unit; a falling `f` swaps the bounds.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.low), f(self.high));
        Self { median: f(self.median), low: a.min(b), high: a.max(b), n: self.n }
    }

    /// Half the interval over the median.
    pub fn relative(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.median.abs()
    }
}

/// Seconds of the wall that `work` takes.
pub(crate) fn wall_s(work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// A measured value with the bounds of its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl From<Spread> for Measured {
    fn from(spread: Spread) -> Self {
        Self { value: spread.median, low: spread.low, high: spread.high }
    }
}

/// The largest r such that the r-th smallest and r-th largest values (from 0)
/// bound the median with 95 % confidence: P(Binomial(n, ½) ≤ r) ≤ 2.5 %.
fn interval_rank(n: usize) -> usize {
    let Ok(binomial) = Binomial::new(0.5, n as u64) else { return 0 };
    (0..n as u64 / 2).take_while(|&r| binomial.cdf(r) <= 0.025).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_the_binomial_table() {
        // n = 6: smallest and largest give 96.9 %; n = 20: the 6th of each side (0-based 5) gives 95.9 %.
        assert_eq!([5, 6, 9, 20].map(interval_rank), [0, 0, 1, 5]);
    }

    #[test]
    fn median_and_bounds_of_known_values() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((spread.median, spread.low, spread.high), (3.0, 1.0, 5.0));
        let inverse = spread.map(|v| 1.0 / v);
        assert_eq!((inverse.low, inverse.high), (0.2, 1.0));
        assert!(Spread::of(&[]).is_none());
        assert!(Spread::of(&[1.0, f64::NAN]).is_none());
    }
}
