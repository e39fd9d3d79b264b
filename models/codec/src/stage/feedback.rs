//! Error feedback between rows: what quantization does to a row is made good,
//! as far as can be, by the rows after it.
//!
//! Where rows are the inputs of a linear layer, an error E costs tr(Eᵀ H E), H
//! the second moments of the inputs. With H = (U + I) D (U + I)ᵀ, U strictly
//! upper triangular, row k is coded not as it is but with Σ U[j][k] · E[j] of
//! the rows j before it added; the cost is then Σ D[k] · |η[k]|², η the error of
//! coding alone, and D is smaller than the diagonal of H wherever inputs are
//! correlated (LDLQ of QuIP, Chee et al. 2023, §3; GPTQ's updates are the same).
//! The decoder knows nothing of it.

use std::ops::Range;
use trinity_numeric::simd::{self, Kernel};

/// What is added to the diagonal, over its mean: moments of a short text leave
/// directions that it never saw (GPTQ, Frantar et al. 2023, §3.3).
const DAMPING: f64 = 0.01;

/// The factors of some rows' moments.
#[derive(Debug, Clone)]
pub struct Feedback {
    size: usize,
    /// U by columns: what row k takes from the rows before it is together.
    upper: Vec<f32>,
    /// D, which is what an error of coding costs in each row.
    pub costs: Vec<f64>,
    /// D over its mean.
    weights: Vec<f32>,
}

impl Feedback {
    /// Factors of a part of a symmetric matrix of `of` rows.
    pub fn new(moments: &[f32], of: usize, part: Range<usize>) -> Self {
        let size = part.len();
        let mut h = vec![0.0f64; size * size];
        for (row, i) in h.chunks_exact_mut(size.max(1)).zip(part.clone()) {
            let source = &moments[i * of..][part.clone()];
            row.iter_mut().zip(source).for_each(|(to, &from)| *to = f64::from(from));
        }
        let mean = (0..size).map(|i| h[i * size + i]).sum::<f64>() / size.max(1) as f64;
        let damping = (DAMPING * mean).max(f64::MIN_POSITIVE);
        (0..size).for_each(|i| h[i * size + i] += damping);
        let costs = simd::widest(Factor { h: &mut h, size });
        let mut upper = vec![0.0f32; size * size];
        for k in 0..size {
            for j in 0..k {
                upper[k * size + j] = h[j * size + k] as f32;
            }
        }
        let weights = over_mean(&costs);
        Self { size, upper, costs, weights }
    }

    /// The factors of rows that are divided by `scale` of their number.
    pub fn of_divided(mut self, scale: impl Fn(usize) -> f32) -> Self {
        let scales: Vec<f32> = (0..self.size).map(scale).collect();
        for (k, column) in self.upper.chunks_exact_mut(self.size.max(1)).enumerate() {
            column.iter_mut().zip(&scales).take(k).for_each(|(u, scale)| *u *= scale / scales[k]);
        }
        self.costs.iter_mut().zip(&scales).for_each(|(cost, &scale)| *cost *= f64::from(scale).powi(2));
        self.weights = over_mean(&self.costs);
        self
    }

    /// How much the error of coding a row counts, 1 on average.
    pub fn weight(&self, row: usize) -> f32 {
        self.weights[row]
    }

    /// Adds to row `row` what the errors of the rows before it ask for;
    /// `errors` holds rows of as many values.
    #[inline(always)]
    pub fn add(&self, row: usize, errors: &[f32], values: &mut [f32]) {
        let from = &self.upper[row * self.size..][..row];
        for (error, &share) in errors.chunks_exact(values.len()).zip(from) {
            values.iter_mut().zip(error).for_each(|(v, e)| *v += share * e);
        }
    }
}

fn over_mean(costs: &[f64]) -> Vec<f32> {
    let mean = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    costs.iter().map(|cost| (cost / mean) as f32).collect()
}

/// Columns that are factored before the rest of a matrix hears of them: they stay in cache.
const PANEL: usize = 32;

/// Replaces the strict upper triangle of a symmetric matrix by that of U and
/// returns D; from the last row to the first. What lies below is not read.
struct Factor<'a> {
    h: &'a mut [f64],
    size: usize,
}

impl Kernel for Factor<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let Self { h, size } = self;
        let mut diagonal = vec![0.0; size];
        // A pivot that rounding made negative belongs to a direction nobody saw.
        let least = (0..size).map(|i| h[i * size + i]).fold(0.0, f64::max) * 1e-9;
        // Columns of U, the last first.
        let mut columns: Vec<Vec<f64>> = Vec::new();
        for first in (0..size).step_by(PANEL).rev() {
            columns.clear();
            for j in (first..size.min(first + PANEL)).rev() {
                let pivot = h[j * size + j].max(least).max(f64::MIN_POSITIVE);
                diagonal[j] = pivot;
                let column: Vec<f64> = (0..j).map(|i| h[i * size + j] / pivot).collect();
                for (i, &u) in column.iter().enumerate() {
                    take(&mut h[i * size..][..j], &column, u * pivot, i.max(first));
                    h[i * size + j] = u;
                }
                columns.push(column);
            }
            for i in 0..first {
                for (column, j) in columns.iter().zip((first..size.min(first + PANEL)).rev()) {
                    take(&mut h[i * size..][..first], column, column[i] * diagonal[j], i);
                }
            }
        }
        diagonal
    }
}

/// Takes a multiple of a column from a row, from `first` on.
#[inline(always)]
fn take(row: &mut [f64], column: &[f64], times: f64, first: usize) {
    row[first..].iter_mut().zip(&column[first..]).for_each(|(value, other)| *value -= times * other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_divided_rows_are_those_of_their_moments() {
        let size = 40usize;
        let moments: Vec<f32> =
            (0..size * size).map(|i| 0.8f32.powi((i / size).abs_diff(i % size) as i32)).collect();
        let scale = |row: usize| [0.5f32, 2.0, 1.0][row % 3];
        let plain = Feedback::new(&moments, size, 0..size);
        let divided = plain.clone().of_divided(scale);
        // (U + I) D (U + I)ᵀ.
        let product = |own: &Feedback, i: usize, j: usize| {
            let upper = |i: usize, k: usize| match i.cmp(&k) {
                std::cmp::Ordering::Less => f64::from(own.upper[k * size + i]),
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => 0.0,
            };
            (0..size).map(|k| upper(i, k) * own.costs[k] * upper(j, k)).sum::<f64>()
        };
        for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
            // Errors of divided rows are multiplied when they are decoded, and so cost more.
            let wanted = product(&plain, i, j) * f64::from(scale(i) * scale(j));
            let got = product(&divided, i, j);
            assert!((got - wanted).abs() < 1e-5, "({i}, {j}): {got} {wanted}");
        }
        let mean: f32 = divided.weights.iter().sum::<f32>() / size as f32;
        assert!((mean - 1.0).abs() < 1e-5, "{mean}");
    }

    #[test]
    fn factors_multiply_to_what_was_factored() {
        // Panels, and a last one that is not full.
        let size = 2 * PANEL + 5;
        let a: Vec<f64> = (0..size * size).map(|i| ((i * 7 + 3) % 11 + i / size % 5) as f64 - 5.0).collect();
        let product = |i: usize, j: usize| (0..size).map(|k| a[i * size + k] * a[j * size + k]).sum::<f64>();
        let h: Vec<f64> = (0..size * size)
            .map(|i| product(i / size, i % size) + if i % (size + 1) == 0 { 1.0 } else { 0.0 })
            .collect();
        let mut factored = h.clone();
        let diagonal = simd::widest(Factor { h: &mut factored, size });
        let upper = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Less => factored[i * size + j],
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Greater => 0.0,
        };
        for i in 0..size {
            for j in 0..size {
                let got: f64 = (0..size).map(|k| upper(i, k) * diagonal[k] * upper(j, k)).sum();
                assert!((got - h[i * size + j]).abs() < 1e-9, "({i}, {j}): {got} {}", h[i * size + j]);
            }
        }
    }
}
