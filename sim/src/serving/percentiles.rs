//! The distribution of a latency, with how sure each number of it is.
//!
//! Knows times in the order of their arrival; knows nothing of runs or cuts.

use super::steady::{Interval, LEAST_REQUESTS};

/// The distribution of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Percentiles {
    pub mean_s: f64,
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub within: Within,
}

/// 95 % intervals of the numbers of [`Percentiles`]: from 0 without end where
/// fewer than a hundred requests tell nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Within {
    pub mean_s: [f64; 2],
    pub p50_s: [f64; 2],
    pub p90_s: [f64; 2],
    pub p99_s: [f64; 2],
}

const UNKNOWN: [f64; 2] = [0.0, f64::INFINITY];

impl Percentiles {
    /// Nearest ranks of `seconds`, which are in the order of their arrival.
    pub(super) fn of(seconds: &[f64]) -> Self {
        if seconds.is_empty() {
            return Self::default();
        }
        let mut sorted = seconds.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted[rank.clamp(1, sorted.len()) - 1]
        };
        let few = seconds.len() < LEAST_REQUESTS;
        // How sure the share below a percentile is says between which ranks it lies.
        let within = |share: f64| {
            if few {
                return UNKNOWN;
            }
            let at_s = rank(share);
            let below = seconds.iter().map(|&own| if own <= at_s { 1.0 } else { 0.0 });
            let half = Interval::of_series(below).half_width;
            [rank(share - half), rank(share + half)]
        };
        let mean = Interval::of_series(seconds.iter().copied());
        Self {
            mean_s: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p50_s: rank(0.50),
            p90_s: rank(0.90),
            p99_s: rank(0.99),
            within: Within {
                mean_s: if few { UNKNOWN } else { mean.ends() },
                p50_s: within(0.50),
                p90_s: within(0.90),
                p99_s: within(0.99),
            },
        }
    }
}
