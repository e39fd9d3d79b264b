//! What plans cost in a tile, predicted from a sample.
//!
//! [`estimate`](crate::search::estimate) counts what a sample's rows take, in
//! parts; here follows from it what a tile of many more rows takes, in which what
//! has to be learned is learned. Knows nothing of which plan is chosen.

use crate::format::trinity::plan::{Plan, Scalars};
use crate::matrix::Matrix;
use crate::search::estimate::{Estimate, Levels, Parts};
use crate::search::sample::Sample;
use crate::search::trial::Trial;

/// What a plan costs on a sample by [`estimate`], its weights aside.
pub struct Predictor<'a> {
    pub plan: Plan,
    sample: &'a Sample,
    levels: Levels,
}

/// What a plan takes, by prediction, in the parts of the sample and in a tile.
#[derive(Clone, Copy)]
pub struct Measured {
    /// Bits of values, bits of rows and squared errors.
    parts: [Parts; 3],
    tile: [f64; 3],
}

impl Measured {
    fn new(levels: &Levels, estimate: &Estimate, sample: &Sample, unlearned: Option<Self>) -> Self {
        let parts = [estimate.of_values, estimate.of_rows, levels.squared_error];
        let (times, later) = (sample.times(), sample.later());
        let tile = std::array::from_fn(|i| match unlearned {
            // Rows differ in what they take, but alike for both.
            Some(unlearned) => unlearned.tile[i] + parts[i].plus(-1.0, unlearned.parts[i]).with_later(later),
            None => {
                let learning = if i == 0 { estimate.learning } else { 0.0 };
                let (of_sample, of_tile) = sample.learning();
                of_tile * learning + (parts[i].sum() - of_sample * learning) * times
            }
        });
        Self { parts, tile }
    }

    /// What more a tile's rows will have learned than the sample shows, beside what
    /// had little to learn, in units of costs.
    fn credit(&self, unlearned: Self, sample: &Sample, lambda: f64) -> f64 {
        let more = |i: usize| self.parts[i].plus(-1.0, unlearned.parts[i]);
        let more = more(2).plus(lambda, more(0).plus(sample.width(), more(1)));
        // The second quarter has half the rows of the second half.
        (2.0 * more.second - more.late).max(0.0) * sample.still_to_learn() * sample.later()
    }
}

/// A prediction of what a plan costs in a tile, and what it follows from.
pub struct Predicted {
    pub trial: Trial,
    pub measured: Measured,
}

impl<'a> Predictor<'a> {
    pub fn new(plan: &Plan, scalars: &Scalars, sample: &'a Sample) -> Self {
        Self { plan: plan.clone(), sample, levels: Levels::new(plan, scalars, &sample.matrix) }
    }

    /// Per value of a tile, whose rows go on as the sample ends. What is learned
    /// slowly is given credit for what it still will learn, as far as it shows
    /// beside `unlearned`, a plan that has little to learn.
    pub fn with_weights(&self, weights: u8, lambda: f64, unlearned: Option<Measured>) -> Predicted {
        let Self { sample, levels, .. } = self;
        let plan = Plan { weights, ..self.plan.clone() };
        let estimate = levels.estimate(weights);
        let measured = Measured::new(levels, &estimate, sample, unlearned);
        let rows = sample.matrix.rows as f64 * sample.times();
        let count = rows * sample.matrix.cols as f64;
        let credit = unlearned.map_or(0.0, |before| measured.credit(before, sample, lambda)) / count;
        let [of_values, of_rows, error] = measured.tile;
        let of_means = sample.mean_bits_per_value(plan.prediction.means, estimate.of_means);
        let bits_per_value = sample.bits_per_value(&plan, of_values / count + of_means, of_rows / rows);
        let (cost, bits_per_value) =
            (error / count + lambda * bits_per_value - credit, bits_per_value - credit / lambda);
        let trial = Trial::predicted(plan, cost, bits_per_value);
        Predicted { trial, measured }
    }
}

/// Bits per value of a plan on that part of a sample that is tried, as it is.
pub fn tried_bits_per_value(plan: &Plan, scalars: &Scalars, sample: &Sample) -> f64 {
    let tried = sample.tried();
    let Estimate { of_values, of_rows, of_means, .. } =
        Levels::new(plan, scalars, tried).estimate(plan.weights);
    let Matrix { rows, cols, .. } = *tried;
    let of_means = sample.mean_bits_per_value(plan.prediction.means, of_means);
    sample.bits_per_value(
        plan,
        of_values.sum() / (rows * cols) as f64 + of_means,
        of_rows.sum() / rows as f64,
    )
}
