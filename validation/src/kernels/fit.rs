//! The values of a curve's knots, from measured kernels.
//!
//! Least absolute deviations of the logarithm, by weighted least squares that
//! are weighted anew a few times; second differences are held small, so that
//! knots that nothing was measured at continue their neighbours. Conjugate
//! gradients over the rows: the matrix is never formed.

use trinity_sim::kernels::{Corner, Kind, MAX_COORDINATES, MAX_CORNERS, Term};

/// How strongly second differences are held small, beside one row's error.
const SMOOTHNESS: f64 = 0.03;
/// Along an axis of two knots there is no second difference; the first, weaker.
const LEVEL: f64 = 0.1;
/// What keeps knots in place that neither rows nor neighbours decide. The sums
/// of terms are told apart by it: what several could say, the first says.
const RIDGE_FIRST: f64 = 1e-4;
const RIDGE: f64 = 1e-3;
/// Below this a row's error counts as squared, above by its size.
const CORE: f64 = 0.01;
const REWEIGHTINGS: usize = 4;
const STEPS: usize = 600;
const TOLERANCE: f64 = 1e-5;

/// One row: where it stands and the logarithm of measured over roofline.
pub struct Sample {
    pub log2: [f64; MAX_COORDINATES],
    pub correction: f64,
}

/// Rows as sparse sums of knots.
struct Rows {
    /// End of each row in `at` and `share`.
    ends: Vec<usize>,
    at: Vec<u32>,
    share: Vec<f32>,
}

/// One difference that is held small: three knots and their factors.
struct Difference {
    at: [u32; 3],
    factor: [f64; 3],
}

/// The values of all terms of `kind` in turn.
pub fn fit(kind: Kind, samples: &[Sample]) -> Vec<f64> {
    let terms = kind.terms();
    let count: usize = terms.iter().map(Term::len).sum();
    let rows = Rows::of(terms, samples);
    let system = System { rows: &rows, differences: differences(terms), ridge: ridge(terms) };
    let measured: Vec<f64> = samples.iter().map(|sample| sample.correction).collect();
    let mut weights = vec![1.0; samples.len()];
    let mut values = vec![0.0; count];
    for _ in 0..REWEIGHTINGS {
        system.solve(&weights, &measured, &mut values);
        for (row, weight) in weights.iter_mut().enumerate() {
            *weight = 1.0 / (rows.value(row, &values) - measured[row]).abs().max(CORE);
        }
        let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
        weights.iter_mut().for_each(|weight| *weight /= mean);
    }
    values
}

impl Rows {
    fn of(terms: &[Term], samples: &[Sample]) -> Self {
        let mut rows = Self { ends: Vec::with_capacity(samples.len()), at: Vec::new(), share: Vec::new() };
        let mut corners = [Corner::default(); MAX_CORNERS];
        for sample in samples {
            let mut first = 0;
            for term in terms {
                for corner in term.corners(&sample.log2, &mut corners) {
                    if corner.share > 0.0 {
                        rows.at.push(u32::try_from(first + corner.at).unwrap_or(u32::MAX));
                        rows.share.push(corner.share as f32);
                    }
                }
                first += term.len();
            }
            rows.ends.push(rows.at.len());
        }
        rows
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let begin = if row == 0 { 0 } else { self.ends[row - 1] };
        begin..self.ends[row]
    }

    fn value(&self, row: usize, values: &[f64]) -> f64 {
        let range = self.range(row);
        let shares = self.share[range.clone()].iter();
        self.at[range].iter().zip(shares).map(|(at, share)| f64::from(*share) * values[*at as usize]).sum()
    }

    fn scatter(&self, row: usize, value: f64, into: &mut [f64]) {
        let range = self.range(row);
        for (at, share) in self.at[range.clone()].iter().zip(&self.share[range]) {
            into[*at as usize] += f64::from(*share) * value;
        }
    }
}

/// The normal equations.
struct System<'a> {
    rows: &'a Rows,
    differences: Vec<Difference>,
    ridge: Vec<f64>,
}

impl System<'_> {
    fn apply(&self, weights: &[f64], values: &[f64]) -> Vec<f64> {
        let mut product: Vec<f64> =
            self.ridge.iter().zip(values).map(|(ridge, value)| ridge * value).collect();
        for (row, weight) in weights.iter().enumerate() {
            self.rows.scatter(row, weight * self.rows.value(row, values), &mut product);
        }
        for Difference { at, factor } in &self.differences {
            let difference: f64 =
                at.iter().zip(factor).map(|(at, factor)| factor * values[*at as usize]).sum();
            for (at, factor) in at.iter().zip(factor) {
                product[*at as usize] += SMOOTHNESS * factor * difference;
            }
        }
        product
    }

    fn diagonal(&self, weights: &[f64]) -> Vec<f64> {
        let mut diagonal = self.ridge.clone();
        for (row, weight) in weights.iter().enumerate() {
            let range = self.rows.range(row);
            for (at, share) in self.rows.at[range.clone()].iter().zip(&self.rows.share[range]) {
                diagonal[*at as usize] += weight * f64::from(*share) * f64::from(*share);
            }
        }
        for Difference { at, factor } in &self.differences {
            for (at, factor) in at.iter().zip(factor) {
                diagonal[*at as usize] += SMOOTHNESS * factor * factor;
            }
        }
        diagonal
    }

    /// Conjugate gradients from where `values` stand, preconditioned by the diagonal.
    fn solve(&self, weights: &[f64], measured: &[f64], values: &mut [f64]) {
        let mut right = vec![0.0; values.len()];
        for (row, (weight, measured)) in weights.iter().zip(measured).enumerate() {
            self.rows.scatter(row, weight * measured, &mut right);
        }
        let diagonal = self.diagonal(weights);
        let scaled = |residual: &[f64]| -> Vec<f64> {
            residual.iter().zip(&diagonal).map(|(residual, diagonal)| residual / diagonal).collect()
        };
        let now = self.apply(weights, values);
        let mut residual: Vec<f64> = right.iter().zip(&now).map(|(right, now)| right - now).collect();
        let mut direction = scaled(&residual);
        let mut power = dot(&residual, &direction);
        let enough = TOLERANCE * TOLERANCE * dot(&right, &scaled(&right));
        for _ in 0..STEPS {
            if power <= enough {
                break;
            }
            let image = self.apply(weights, &direction);
            let length = power / dot(&direction, &image);
            for (value, direction) in values.iter_mut().zip(&direction) {
                *value += length * direction;
            }
            for (residual, image) in residual.iter_mut().zip(&image) {
                *residual -= length * image;
            }
            let preconditioned = scaled(&residual);
            let next = dot(&residual, &preconditioned);
            for (direction, value) in direction.iter_mut().zip(&preconditioned) {
                *direction = value + next / power * *direction;
            }
            power = next;
        }
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn ridge(terms: &[Term]) -> Vec<f64> {
    let of = |(at, term): (usize, &Term)| vec![if at == 0 { RIDGE_FIRST } else { RIDGE }; term.len()];
    terms.iter().enumerate().flat_map(of).collect()
}

fn differences(terms: &[Term]) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut first = 0;
    for term in terms {
        let mut stride = term.len();
        for axis in &term.axes {
            let knots = &axis.knots;
            stride /= knots.len();
            for at in 0..term.len() {
                let knot = at / stride % knots.len();
                let place = |offset: usize| u32::try_from(first + at + offset * stride).unwrap_or(u32::MAX);
                let (third, factor) = if knots.len() == 2 && knot == 0 {
                    (1, [LEVEL, -LEVEL, 0.0])
                } else if knot + 2 < knots.len() {
                    let (left, right) = (knots[knot + 1] - knots[knot], knots[knot + 2] - knots[knot + 1]);
                    (2, [right / (left + right), -1.0, left / (left + right)])
                } else {
                    continue;
                };
                differences.push(Difference { at: [place(0), place(1), place(third)], factor });
            }
        }
        first += term.len();
    }
    differences
}
