//! Encoding for what the values are multiplied with: the error counts as the
//! second moments of the inputs weigh it, and is fed back from input to input
//! ([`crate::stage::feedback`]). The streams are like any other.

use crate::Error;
use crate::format::trinity::plan::{Entropy, Plan, Prediction, Tiling};
use crate::matrix::Matrix;
use crate::search::input::Input;
use crate::search::lossy::search_step;
use crate::search::near::choose_near;
use crate::search::pass::{Beside, encode_pass};
use crate::search::profile::Profile;
use crate::search::report::Encoded;
use crate::stage::feedback::Feedback;
use crate::stage::precondition::Preconditioning;
use crate::stage::row_scales::{MOST_SCALE, RowScales};
use crate::stage::transform::Transform;
use crate::stage::trellis::Centroids;
use std::ops::Range;
use trinity_bits::Rate;

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
    target: Rate,
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
    let transposed = moments.inputs == Inputs::Columns;
    let (inputs, outputs) = if transposed { (cols, rows) } else { (rows, cols) };
    let tiling = Tiling::new(inputs, outputs, profile.parallel.tile_values);
    // Bands of tiles that start at one row share their factors.
    let mut factors: Vec<Feedback> = (0..inputs)
        .step_by(tiling.tile_rows.max(1))
        .map(|row| (own.start + row)..(own.start + (row + tiling.tile_rows).min(inputs)))
        .map(|band| Feedback::new(moments.values, size, band))
        .collect();
    // A target of error is one of the values as they are, which scales would bend.
    let scales = match target {
        Rate::Bits(_) => {
            let costs: Vec<f64> = factors.iter().flat_map(|own| &own.costs).copied().collect();
            let has_room = values.iter().all(|value| (value * MOST_SCALE).is_finite());
            RowScales::paying(&costs, outputs).filter(|_| has_room)
        }
        _ => None,
    };
    let mut input = input;
    if let Some(scales) = &scales {
        let of = |at: usize| scales.of(if transposed { at % cols } else { at / cols });
        let divided: Vec<f32> = values.iter().enumerate().map(|(at, value)| value / of(at)).collect();
        input = Input::new(&divided, rows, cols)?;
        let bands = factors.into_iter().enumerate();
        factors =
            bands.map(|(band, own)| own.of_divided(|row| scales.of(band * tiling.tile_rows + row))).collect();
    }
    let chosen = choose_near(profile, &plans, &input, target, None)?;
    let plan = &chosen.trial.plan;
    let view = input.view(plan);
    let feedback = |row: usize| &factors[row / tiling.tile_rows];
    let decision = profile.decision();
    let run = |step: f32, centroids: Centroids| {
        let scalars = input.scalars(plan, step, centroids);
        let beside = Beside { signalled: None, scales: scales.as_ref(), feedback: Some(&feedback) };
        encode_pass(plan, &scalars, decision, view, tiling, beside)
    };
    let mut encoded = search_step(&input, &chosen, target, None, run)?;
    encoded.report.quantization = Some(profile.stages.quantization);
    if let Some(scales) = &scales {
        let own = Matrix { rows, cols, values: std::mem::take(&mut encoded.recon) };
        let mut own = if transposed { own.transposed() } else { own };
        scales.apply(outputs, &mut own.values);
        encoded.recon = if transposed { own.transposed() } else { own }.values;
        let errors = values.iter().zip(&encoded.recon).map(|(a, b)| f64::from(a - b).powi(2));
        let energy = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
        encoded.report.nmse = errors.sum::<f64>() / energy;
    }
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
        let target = Rate::Bits(3.0);
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
    fn inputs_that_cost_more_get_smaller_steps_and_come_back_to_the_last_bit() {
        let profile = Profile::named("trinity").unwrap();
        let weight = weight(96, 64);
        // Inputs of very different size, each with something of its neighbours.
        let size = |input: usize| ((input * 29 % 13) as f32 - 6.0).exp2();
        let uneven: Vec<f32> =
            moments(64).iter().enumerate().map(|(i, m)| m * size(i / 64) * size(i % 64)).collect();
        let target = Rate::Bits(3.0);
        let coded = encode(&weight.values, 96, 64, &profile, target, Moments::of_columns(&uneven)).unwrap();
        let decoded = crate::decode(&coded.bytes).unwrap();
        assert_eq!(decoded.values, coded.recon);
        let own = errors(&weight, &coded.recon);
        let nmse =
            own.values.iter().map(|e| e * e).sum::<f32>() / weight.values.iter().map(|v| v * v).sum::<f32>();
        assert!((coded.report.nmse / f64::from(nmse) - 1.0).abs() < 1e-3);
        // By rows it is the same, turned over.
        let by_rows = Moments { inputs: Inputs::Rows { first: 0 }, values: &uneven };
        let turned = encode(&weight.transposed().values, 64, 96, &profile, target, by_rows).unwrap();
        assert_eq!(crate::decode(&turned.bytes).unwrap().values, turned.recon);
        assert_eq!(Matrix { rows: 64, cols: 96, values: turned.recon }.transposed().values, coded.recon);
        // One step for all: the same moments to an error, which takes no scales, at the error that this rate has.
        let plain =
            encode(&weight.values, 96, 64, &profile, Rate::Nmse(0.02), Moments::of_columns(&uneven)).unwrap();
        let bits = |coded: &Encoded| 8.0 * coded.bytes.len() as f64 / (96.0 * 64.0);
        let gap = |coded: &Encoded| bits(coded) + 0.5 * cost(&errors(&weight, &coded.recon), &uneven).log2();
        assert!(gap(&coded) < gap(&plain) - 0.5, "{} bits with scales, {} without", gap(&coded), gap(&plain));
    }

    #[test]
    fn a_band_of_inputs_is_weighed_by_its_own_moments_and_no_other() {
        let profile = Profile::named("trinity").unwrap();
        let (band, moments) = (weight(32, 96), moments(64));
        let at = |first| {
            let known = Moments { inputs: Inputs::Rows { first }, values: &moments };
            encode(&band.values, 32, 96, &profile, Rate::Bits(3.0), known)
        };
        assert!(at(32).is_ok());
        assert!(matches!(at(33), Err(Error::Shape { rows: 65, .. })));
        assert!(at(usize::MAX).is_err());
    }
}
