//! Encoding for what the values are multiplied with: the error counts as the
//! second moments of the inputs weigh it, and is fed back from input to input
//! ([`crate::stage::feedback`]). The streams are like any other.

use crate::Error;
use crate::format::trinity::plan::{Entropy, Plan, Prediction, Tiling};
use crate::search::input::Input;
use crate::search::lossy::search_step;
use crate::search::near::choose_near;
use crate::search::pass::encode_pass_with;
use crate::search::profile::Profile;
use crate::search::target::{Encoded, Target};
use crate::stage::feedback::Feedback;
use crate::stage::precondition::Preconditioning;
use crate::stage::transform::Transform;
use crate::stage::trellis::Centroids;
use std::ops::Range;

/// Which side of a matrix a layer's inputs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    /// Outputs × inputs, as `torch.nn.Linear` has them.
    Columns,
    /// Inputs × outputs, as `Conv1D` of transformers has them; the matrix begins with this input.
    Rows { first: usize },
}

/// Second moments of the inputs that a matrix is multiplied with.
#[derive(Debug, Clone, Copy)]
pub struct Moments<'a> {
    pub inputs: Inputs,
    /// Inputs × inputs.
    pub values: &'a [f32],
}

impl<'a> Moments<'a> {
    /// Of inputs that are columns.
    pub fn of_columns(values: &'a [f32]) -> Self {
        Self { inputs: Inputs::Columns, values }
    }

    /// The inputs of a matrix, by their place in the moments.
    fn range(&self, rows: usize, cols: usize) -> Range<usize> {
        match self.inputs {
            Inputs::Columns => 0..cols,
            Inputs::Rows { first } => first..first.saturating_add(rows),
        }
    }
}

/// Whether a plan codes one input of the layer after the other, each with all
/// of its values known before the next begins.
fn goes_by_inputs(plan: &Plan, inputs: Inputs) -> bool {
    plan.transposed == (inputs == Inputs::Columns)
        && plan.entropy == Entropy::Adaptive
        && plan.transform == Transform::None
        && plan.preconditioning == Preconditioning::None
        && plan.prediction == Prediction::NONE
}

/// Encodes a matrix, one side of which are inputs.
pub fn encode(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Target,
    moments: Moments<'_>,
) -> Result<Encoded, Error> {
    let own = moments.range(rows, cols);
    let size = moments.values.len().isqrt();
    let fits = size * size == moments.values.len()
        && match moments.inputs {
            Inputs::Columns => size == cols,
            Inputs::Rows { .. } => own.end <= size,
        };
    if !fits || !moments.values.iter().all(|m| m.is_finite()) {
        return Err(Error::Shape { rows: own.end, cols: own.end, found: moments.values.len() });
    }
    let by_inputs = |plan: &Plan| goes_by_inputs(plan, moments.inputs);
    let plans: Vec<Plan> = profile.candidates()?.into_iter().filter(by_inputs).collect();
    if plans.is_empty() {
        let reason = "the profile has no plan that codes by inputs with adaptive contexts and no transform";
        return Err(Error::Unsupported { tool: "calibrated coding", reason });
    }
    let input = Input::new(values, rows, cols)?;
    if input.spread <= f64::from(f32::EPSILON).powi(2) * input.energy || input.count == 0 {
        // Nothing to weigh in a constant.
        return super::lossy::encode(values, rows, cols, profile, target, None);
    }
    let chosen = choose_near(profile, &plans, &input, target, None)?;
    let plan = &chosen.trial.plan;
    let view = input.view(plan);
    let tiling = Tiling::new(view.rows, view.cols, profile.parallel.tile_values);
    // Bands of tiles that start at one row share their factors.
    let factors: Vec<Feedback> = (0..view.rows)
        .step_by(tiling.tile_rows.max(1))
        .map(|row| (own.start + row)..(own.start + (row + tiling.tile_rows).min(view.rows)))
        .map(|band| Feedback::new(moments.values, size, band))
        .collect();
    let feedback = |row: usize| &factors[row / tiling.tile_rows];
    let decision = (profile.stages.quantization.decision(), profile.stages.lambda);
    let run = |step: f32, centroids: Centroids| {
        let scalars = input.scalars(plan, step, centroids);
        encode_pass_with(plan, &scalars, decision, view, tiling, &feedback)
    };
    let mut encoded = search_step(&input, &chosen, target, None, run)?;
    encoded.report.quantization = Some(profile.stages.quantization);
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    /// Outputs × inputs with neighbours alike, so that errors can be made good.
    fn weight(outputs: usize, inputs: usize) -> Matrix {
        let value = |i: usize| {
            let noise = (i as u32).wrapping_mul(2_654_435_761) >> 8;
            ((noise as f32 / 16_777_216.0 - 0.5) * 3.0).powi(3)
        };
        Matrix { rows: outputs, cols: inputs, values: (0..outputs * inputs).map(value).collect() }
    }

    fn moments(inputs: usize) -> Vec<f32> {
        let distance = |i: usize| (i / inputs).abs_diff(i % inputs);
        (0..inputs * inputs).map(|i| 0.9f32.powi(distance(i) as i32)).collect()
    }

    /// tr(E H Eᵀ), E outputs × inputs.
    fn cost(errors: &Matrix, moments: &[f32]) -> f64 {
        let of_row = |row: &[f32]| {
            (0..row.len() * row.len())
                .map(|i| f64::from(row[i / row.len()] * moments[i] * row[i % row.len()]))
                .sum::<f64>()
        };
        errors.values.chunks_exact(errors.cols).map(of_row).sum()
    }

    fn errors(weight: &Matrix, recon: &[f32]) -> Matrix {
        let values = weight.values.iter().zip(recon).map(|(value, other)| value - other).collect();
        Matrix { values, ..*weight }
    }

    #[test]
    fn a_weight_loses_the_same_whichever_side_its_inputs_are() {
        let profile = Profile::named("trinity").unwrap();
        let (weight, moments) = (weight(96, 64), moments(64));
        let target = Target::Bits(3.0);
        let known = Moments::of_columns(&moments);
        let linear = encode(&weight.values, 96, 64, &profile, target, known).unwrap();
        let transposed_weight = weight.transposed();
        let by_rows = Moments { inputs: Inputs::Rows { first: 0 }, values: &moments };
        let conv1d = encode(&transposed_weight.values, 64, 96, &profile, target, by_rows).unwrap();
        let recon = Matrix { rows: 64, cols: 96, values: conv1d.recon.clone() }.transposed();
        let own = cost(&errors(&weight, &recon.values), &moments);
        let same = cost(&errors(&weight, &linear.recon), &moments);
        assert!((own / same - 1.0).abs() < 0.02, "{own} by rows, {same} by columns");
        let plain = crate::encode(&weight.values, 96, 64, &profile, target).unwrap();
        let without = cost(&errors(&weight, &plain.recon), &moments);
        assert!(own < 0.8 * without, "{own} by rows, {without} unweighed");
    }

    #[test]
    fn a_band_of_inputs_is_weighed_by_its_own_moments_and_no_other() {
        let profile = Profile::named("trinity").unwrap();
        let (band, moments) = (weight(32, 96), moments(64));
        let at = |first| {
            let known = Moments { inputs: Inputs::Rows { first }, values: &moments };
            encode(&band.values, 32, 96, &profile, Target::Bits(3.0), known)
        };
        assert!(at(32).is_ok());
        assert!(matches!(at(33), Err(Error::Shape { rows: 65, .. })));
        assert!(at(usize::MAX).is_err());
    }
}
