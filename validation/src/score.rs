//! Errors of predictions, and what they mean beside an easier model.

use serde::Serialize;

/// One prediction beside its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub what: String,
    pub predicted: f64,
    pub measured: f64,
}

impl Pair {
    /// Predicted over measured, less one.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Errors of a set, as fractions of the measured value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub n: usize,
    /// Mean absolute percentage error, as a fraction.
    pub mape: f64,
    pub median_ape: f64,
    /// Mean signed error: above zero is too slow.
    pub bias: f64,
    /// Nine in ten are below.
    pub p90: f64,
}

impl Stats {
    /// Errors of `pairs`; `None` when there are none.
    pub fn of_pairs(pairs: &[Pair]) -> Option<Self> {
        Self::of(&pairs.iter().map(Pair::error).collect::<Vec<_>>())
    }

    /// Errors of `errors`; `None` when there are none.
    pub fn of(errors: &[f64]) -> Option<Self> {
        if errors.is_empty() {
            return None;
        }
        let n = errors.len() as f64;
        let mut absolute: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        Some(Self {
            n: errors.len(),
            mape: absolute.iter().sum::<f64>() / n,
            median_ape: quantile(&absolute, 0.5),
            bias: errors.iter().sum::<f64>() / n,
            p90: quantile(&absolute, 0.9),
        })
    }
}

/// The value below which `fraction` of `sorted` lies, between neighbours.
pub fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = fraction * last as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(last);
    sorted[low] + (at - at.floor()) * (sorted[high] - sorted[low])
}

/// Mean absolute error of `work` times the one constant that suits `measured`
/// best: what a set yields to somebody who only counts operations.
pub fn one_constant(work: &[f64], measured: &[f64]) -> Option<f64> {
    if work.is_empty() || work.len() != measured.len() {
        return None;
    }
    // Σ|c·w/m − 1| is convex and piecewise linear in c: its least value is at
    // one of the ratios m/w, the median weighted by w/m.
    let mut ratios: Vec<(f64, f64)> = work.iter().zip(measured).map(|(w, m)| (m / w, w / m)).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = ratios.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let constant = ratios
        .iter()
        .find(|(_, weight)| {
            below += weight;
            below >= half
        })
        .map(|(ratio, _)| *ratio)?;
    let total: f64 = work.iter().zip(measured).map(|(w, m)| (constant * w / m - 1.0).abs()).sum();
    Some(total / work.len() as f64)
}

/// Mean of the two rates at which fits and failures are told apart.
pub fn balanced_accuracy(
    right_fits: usize,
    fits: usize,
    right_failures: usize,
    failures: usize,
) -> Option<f64> {
    if fits == 0 || failures == 0 {
        return None;
    }
    Some((right_fits as f64 / fits as f64 + right_failures as f64 / failures as f64) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_errors() {
        let stats = Stats::of(&[0.1, -0.3, 0.2, 0.0]).unwrap();
        assert_eq!(stats.n, 4);
        assert!((stats.mape - 0.15).abs() < 1e-12);
        assert!((stats.median_ape - 0.15).abs() < 1e-12);
        assert!(stats.bias.abs() < 1e-12);
        assert!((stats.p90 - 0.27).abs() < 1e-12);
        assert_eq!(Stats::of(&[]), None);
    }

    #[test]
    fn no_other_constant_is_better() {
        let work = [1.0, 2.0, 3.0, 10.0, 7.0];
        let measured = [1.1, 1.8, 3.5, 30.0, 7.2];
        let best = one_constant(&work, &measured).unwrap();
        for i in 1..400 {
            let c = f64::from(i) * 0.01;
            let error: f64 =
                work.iter().zip(&measured).map(|(w, m): (&f64, &f64)| (c * w / m - 1.0).abs()).sum::<f64>()
                    / 5.0;
            assert!(best <= error + 1e-12, "{c}");
        }
    }

    #[test]
    fn balanced_accuracy_ignores_class_sizes() {
        assert_eq!(balanced_accuracy(90, 100, 5, 10), Some(0.7));
        assert_eq!(balanced_accuracy(0, 0, 5, 10), None);
    }
}
