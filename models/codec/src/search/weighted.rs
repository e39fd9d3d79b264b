//! Encoding for what the values are multiplied with: the error counts as the
//! second moments of the inputs weigh it, and is fed back from input to input
//! ([`crate::stage::feedback`]). The streams are like any other.

use crate::Error;
use crate::format::trinity::plan::{Entropy, Plan, Prediction, Tiling};
use crate::search::lossy::search_step;
use crate::search::near::choose_near;
use crate::search::pass::encode_pass_with;
use crate::search::profile::Profile;
use crate::search::subject::Subject;
use crate::search::target::{Encoded, Target};
use crate::stage::feedback::Feedback;
use crate::stage::precondition::Preconditioning;
use crate::stage::transform::Transform;
use crate::stage::trellis::Centroids;

/// Whether a plan codes one input of the layer after the other, each with all
/// of its values known before the next begins.
fn goes_by_inputs(plan: &Plan) -> bool {
    plan.transposed
        && plan.entropy == Entropy::Adaptive
        && plan.transform == Transform::None
        && plan.preconditioning == Preconditioning::None
        && plan.prediction == Prediction::NONE
}

/// Encodes `rows` outputs × `cols` inputs; `moments` are `cols × cols`.
pub fn encode(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Target,
    moments: &[f32],
) -> Result<Encoded, Error> {
    if moments.len() != cols * cols || !moments.iter().all(|m| m.is_finite()) {
        return Err(Error::Shape { rows: cols, cols, found: moments.len() });
    }
    let plans: Vec<Plan> = profile.candidates()?.into_iter().filter(goes_by_inputs).collect();
    if plans.is_empty() {
        let reason = "the profile has no plan that codes by columns with adaptive contexts and no transform";
        return Err(Error::Unsupported { tool: "calibrated coding", reason });
    }
    let subject = Subject::new(values, rows, cols)?;
    if subject.spread <= f64::from(f32::EPSILON).powi(2) * subject.energy || subject.count == 0 {
        // Nothing to weigh in a constant.
        return super::lossy::encode(values, rows, cols, profile, target, None);
    }
    let chosen = choose_near(profile, &plans, &subject, target, None)?;
    let plan = &chosen.trial.plan;
    let view = subject.view(plan);
    let tiling = Tiling::new(view.rows, view.cols, profile.parallel.tile_values);
    // Bands of tiles that start at one row share their factors.
    let factors: Vec<Feedback> = (0..view.rows)
        .step_by(tiling.tile_rows.max(1))
        .map(|row| Feedback::new(moments, cols, row..(row + tiling.tile_rows).min(view.rows)))
        .collect();
    let feedback = |row: usize| &factors[row / tiling.tile_rows];
    let decision = (profile.stages.quantization.decision(), profile.stages.lambda);
    let run = |step: f32, centroids: Centroids| {
        let scalars = subject.scalars(plan, step, centroids);
        encode_pass_with(plan, &scalars, decision, view, tiling, &feedback)
    };
    let mut encoded = search_step(&subject, &chosen, target, None, run)?;
    encoded.report.quantization = Some(profile.stages.quantization);
    Ok(encoded)
}
