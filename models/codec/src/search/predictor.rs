//! What plans cost in a tile, predicted from a sample.
//!
//! [`estimate`](crate::search::estimate) counts what a sample's rows take, in
//! parts; here follows from it what a tile of many more rows takes, in which what
//! has to be learned is learned. Knows nothing of which plan is chosen.

use crate::format::trinity::plan::Plan;
use crate::matrix::Matrix;
use crate::search::estimate::{Estimate, Levels, Parts};
use crate::search::input::Input;
use crate::search::sample::Sample;
use crate::search::trial::Trial;
use crate::stage::trellis::Centroids;

/// What a plan costs on a sample by [`estimate`], its weights aside.
pub struct Predictor {
    pub plan: Plan,
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
    fn credit(&self, unlearned: Self, sample: &Sample, width: f64, lambda: f64) -> f64 {
        let more = |i: usize| self.parts[i].plus(-1.0, unlearned.parts[i]);
        let more = more(2).plus(lambda, more(0).plus(width, more(1)));
        // The second quarter has half the rows of the second half.
        (2.0 * more.second - more.late).max(0.0) * sample.still_to_learn() * sample.later()
    }
}

/// A prediction of what a plan costs in a tile, and what it follows from.
pub struct Predicted {
    pub trial: Trial,
    pub measured: Measured,
}

impl Predictor {
    pub fn new(plan: &Plan, input: &Input<'_>, step: f32, sample: &Matrix) -> Self {
        let scalars = input.scalars(plan, step, Centroids::default());
        Self { plan: plan.clone(), levels: Levels::new(plan, &scalars, sample) }
    }

    /// Per value of a tile, whose rows go on as the sample ends. What is learned
    /// slowly is given credit for what it still will learn, as far as it shows
    /// beside `unlearned`, a plan that has little to learn.
    pub fn with_weights(
        &self,
        weights: u8,
        input: &Input<'_>,
        lambda: f32,
        sample: &Sample,
        unlearned: Option<Measured>,
    ) -> Predicted {
        let plan = Plan { weights, ..self.plan.clone() };
        let estimate = self.levels.estimate(weights);
        let measured = Measured::new(&self.levels, &estimate, sample, unlearned);
        let lambda = f64::from(lambda);
        let rows = sample.matrix.rows as f64 * sample.times();
        let count = rows * sample.matrix.cols as f64;
        let cols = if plan.transposed { input.matrix.rows } else { input.matrix.cols };
        let of_means = estimate.of_means / sample.values_of_mean(plan.prediction.means, cols);
        let [of_values, of_rows, error] = measured.tile;
        let bits_per_value = input.bits_per_value(&plan, of_values / count + of_means, of_rows / rows);
        let width = sample.matrix.cols as f64 / cols.max(1) as f64;
        let credit = unlearned.map_or(0.0, |before| measured.credit(before, sample, width, lambda)) / count;
        let (cost, bits_per_value) =
            (error / count + lambda * bits_per_value - credit, bits_per_value - credit / lambda);
        let trial = Trial::predicted(plan, cost, bits_per_value);
        Predicted { trial, measured }
    }

    /// Bits per value of what was predicted, as it is.
    pub fn bits_per_value(&self, weights: u8, input: &Input<'_>, sample: &Sample) -> f64 {
        let plan = &self.plan;
        let Estimate { of_values, of_rows, of_means, .. } = self.levels.estimate(weights);
        let Matrix { rows, cols, .. } = *sample.tried();
        let all = if plan.transposed { input.matrix.rows } else { input.matrix.cols };
        let of_means = of_means / sample.values_of_mean(plan.prediction.means, all);
        let of_value = of_values.sum() / (rows * cols) as f64 + of_means;
        input.bits_per_value(plan, of_value, of_rows.sum() / rows as f64)
    }
}
