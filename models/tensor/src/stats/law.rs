//! Which law the values follow: normal, Laplace or Student-t, by likelihood.

use std::f64::consts::{LN_2, PI};

use serde::Serialize;
use statrs::function::gamma::ln_gamma;

/// Values a fit looks at: enough to place the degrees of freedom within 10 %.
pub(super) const FIT_VALUES: usize = 1 << 14;

/// The best-fitting law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Law {
    Normal,
    Laplace,
    /// Heavy tails: the fewer degrees of freedom, the heavier.
    StudentT {
        degrees_of_freedom: f64,
    },
}

impl std::fmt::Display for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Normal => f.pad("normal"),
            Self::Laplace => f.pad("laplace"),
            Self::StudentT { degrees_of_freedom } => f.pad(&format!("student-t({degrees_of_freedom:.1})")),
        }
    }
}

impl Law {
    /// The law with the least Akaike criterion, or `None` for a constant.
    pub(super) fn fit(values: &[f32]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let median = *sorted.get(sorted.len() / 2)?;
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let deviation = sorted.iter().map(|value| (value - median).abs()).sum::<f64>() / count;
        if !(variance > 0.0 && deviation > 0.0 && variance.is_finite()) {
            return None;
        }
        // Mean log-likelihoods at the maximum; location and scale are fitted in each.
        let normal = -0.5 * ((2.0 * PI * variance).ln() + 1.0);
        let laplace = -(LN_2 + deviation.ln() + 1.0);
        let squares: Vec<f64> = sorted.iter().map(|value| (value - median).powi(2)).collect();
        let (degrees_of_freedom, student) = StudentFit::new(&squares, variance).best();
        // One parameter more costs 1 in total log-likelihood.
        let student = student - 1.0 / count;
        Some(if student > normal.max(laplace) {
            Self::StudentT { degrees_of_freedom }
        } else if laplace > normal {
            Self::Laplace
        } else {
            Self::Normal
        })
    }
}

/// Maximum likelihood of a Student-t law of known location.
struct StudentFit<'a> {
    squares: &'a [f64],
    scale2: f64,
}

impl<'a> StudentFit<'a> {
    fn new(squares: &'a [f64], variance: f64) -> Self {
        Self { squares, scale2: variance }
    }

    /// Golden-section search over the logarithm of the degrees of freedom.
    fn best(mut self) -> (f64, f64) {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let (mut low, mut high) = (0.5f64.ln(), 200f64.ln());
        let mut left = high - GOLDEN * (high - low);
        let mut right = low + GOLDEN * (high - low);
        let (mut at_left, mut at_right) = (self.likelihood(left.exp()), self.likelihood(right.exp()));
        for _ in 0..16 {
            if at_left > at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - GOLDEN * (high - low);
                at_left = self.likelihood(left.exp());
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + GOLDEN * (high - low);
                at_right = self.likelihood(right.exp());
            }
        }
        let degrees = (0.5 * (low + high)).exp();
        (degrees, self.likelihood(degrees))
    }

    /// Mean log-likelihood at the best scale, which expectation–maximization
    /// finds from the last one used.
    fn likelihood(&mut self, degrees: f64) -> f64 {
        let count = self.squares.len() as f64;
        for _ in 0..24 {
            let scale2 = self.scale2;
            let weighted =
                self.squares.iter().map(|&square| square * (degrees + 1.0) / (degrees + square / scale2));
            self.scale2 = (weighted.sum::<f64>() / count).max(f64::MIN_POSITIVE);
            if (self.scale2 / scale2 - 1.0).abs() < 1e-4 {
                break;
            }
        }
        let tails =
            self.squares.iter().map(|&square| (square / (degrees * self.scale2)).ln_1p()).sum::<f64>()
                / count;
        ln_gamma((degrees + 1.0) / 2.0)
            - ln_gamma(degrees / 2.0)
            - 0.5 * (degrees * PI * self.scale2).ln()
            - (degrees + 1.0) / 2.0 * tails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Independent values of a law, from quantiles at evenly spaced probabilities.
    fn quantiles(inverse: impl Fn(f64) -> f64) -> Vec<f32> {
        (0..4096).map(|i| inverse((f64::from(i) + 0.5) / 4096.0) as f32).collect()
    }

    #[test]
    fn each_law_is_recognized_in_its_own_values() {
        use statrs::distribution::{ContinuousCDF, Laplace, Normal, StudentsT};
        let normal = Normal::new(3.0, 2.0).unwrap();
        assert_eq!(Law::fit(&quantiles(|p| normal.inverse_cdf(p))), Some(Law::Normal));
        let laplace = Laplace::new(-1.0, 0.01).unwrap();
        assert_eq!(Law::fit(&quantiles(|p| laplace.inverse_cdf(p))), Some(Law::Laplace));
        let student = StudentsT::new(0.0, 1e-6, 4.0).unwrap();
        match Law::fit(&quantiles(|p| student.inverse_cdf(p))) {
            Some(Law::StudentT { degrees_of_freedom }) => assert!((degrees_of_freedom - 4.0).abs() < 0.3),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_constant_has_no_law() {
        assert_eq!(Law::fit(&[2.5; 100]), None);
        assert_eq!(Law::fit(&[]), None);
    }
}
