//! The change of basis in which a matrix is best coded: as it is, in a basis that was
//! given or that a profile names, or in one that the stream states. Knows nothing of
//! how a plan is chosen in a basis.

use crate::Error;
use crate::format::trinity::plan::Plan;
use crate::search::input::{ERROR_PER_SQUARED_STEP, Input};
use crate::search::near::{Chosen, choose_near, first_step};
use crate::search::profile::Profile;
use crate::search::rules::{Rule, Rules, THRESHOLDS};
use crate::search::sample::Samples;
use crate::stage::basis::Basis;
use crate::stage::precondition::Preconditioning;
use crate::stage::signalled::{Along, Glance, Signalled};
use crate::stage::transform::Transform;
use trinity_bits::Rate;

/// A matrix in a basis, and the plan that seems best there.
pub struct BasisChoice<'a> {
    pub input: Input<'a>,
    pub chosen: Chosen,
}

/// Every change of basis that a profile allows and that may pay, and the plan in each
/// that seems best; what seems best of all comes first.
pub fn choose_basis<'a>(
    profile: &Profile,
    plans: &[Plan],
    plain: Input<'a>,
    target: Rate,
    basis: Option<&'a Basis>,
) -> Result<Vec<BasisChoice<'a>>, Error> {
    // As profiles list them; a basis takes the place of other changes, as its owner knows better.
    let changes: Vec<Preconditioning> = match basis {
        Some(basis) => vec![Preconditioning::None, Preconditioning::Basis { hash: basis.hash() }],
        None => profile.stages.preconditioning.clone(),
    };
    let listed = plans[0].preconditioning;
    let in_basis = |change: Preconditioning| -> Vec<Plan> {
        let own = plans.iter().filter(|plan| plan.preconditioning == listed);
        own.map(|plan| Plan { preconditioning: change, ..plan.clone() }).collect()
    };
    let (signalled, others): (Vec<Preconditioning>, Vec<Preconditioning>) =
        changes.into_iter().partition(|change| matches!(change, Preconditioning::Signalled { .. }));
    let mut found: Vec<BasisChoice<'a>> = Vec::new();
    let mut as_it_is = None;
    for change in others {
        if change == Preconditioning::None {
            as_it_is = Some((found.len(), choose_near(profile, &in_basis(change), &plain, target, None)?));
        } else {
            let input = plain.rebased(change, basis);
            let chosen = choose_near(profile, &in_basis(change), &input, target, None)?;
            found.push(BasisChoice { input, chosen });
        }
    }
    if !signalled.is_empty() {
        // Matrices are fitted near the step that plans without them find.
        let known = as_it_is.as_ref().map(|(_, chosen)| chosen.first_step(&plain, target).exp2());
        let step = match known {
            Some(step) => step,
            None => first_step(target, &plain, &Samples::new(&plain, profile))?,
        };
        let noise = ERROR_PER_SQUARED_STEP * step * step;
        let fixed = as_it_is.is_none() && found.is_empty();
        let coarse = noise * plain.count as f64 > THRESHOLDS.finest_nmse * plain.energy;
        let signalled = if fixed || coarse { signalled } else { Vec::new() };
        for Promising { change, promise, crossing } in
            promising(&signalled, &plain, noise, profile.rules.unless(fixed))
        {
            let input = state(change, &plain, noise, crossing);
            // Whatever the step, matrices take what they take.
            let most =
                if let Rate::Bits(bits) = target { THRESHOLDS.matrix_share * bits } else { f64::INFINITY };
            let shared = profile.rules.unless(fixed).has(Rule::MatrixShare);
            if shared && input.signalled_bits_per_value() > most {
                continue;
            }
            let mut plans = in_basis(change);
            if profile.rules.has(Rule::AcrossOnly) && plans.iter().any(|plan| crosses(change, plan)) {
                plans.retain(|plan| crosses(change, plan));
            }
            // A rate that is met with less allows a smaller step.
            let saved = if matches!(target, Rate::Bits(_)) { promise.clamp(0.0, 1.0) } else { 0.0 };
            let from = Some(step * (-0.5 * saved).exp2());
            let chosen = choose_near(profile, &plans, &input, target, from)?;
            found.push(BasisChoice { input, chosen });
        }
    }
    if let Some((at, chosen)) = as_it_is {
        found.insert(at, BasisChoice { input: plain, chosen });
    }
    // Steps differ by how well they were predicted, so costs are compared in bits; what is listed
    // later must be better by a margin.
    let best = (1..found.len()).fold(0, |best, at| {
        let gap = |at: usize| found[at].chosen.trial.gap();
        if gap(at) < gap(best) - THRESHOLDS.margin() { at } else { best }
    });
    if found.is_empty() {
        return Err(Error::BadTarget { what: "no change of basis is allowed".into() });
    }
    found.swap(0, best);
    Ok(found)
}

/// Signalled matrices that may pay.
struct Promising {
    change: Preconditioning,
    /// Bits per value that they may save.
    promise: f64,
    /// Bits per value that a transform across them may save after that.
    crossing: f64,
}

/// Those that may pay; all of them where they are all that there is.
fn promising(signalled: &[Preconditioning], plain: &Input<'_>, noise: f64, rules: Rules) -> Vec<Promising> {
    let along = |columns| Along { matrix: &plain.matrix, columns };
    let mut judged: Vec<Promising> = Vec::new();
    let mut glances: Vec<(u32, [Glance; 2])> = Vec::new();
    for &change in signalled {
        let Preconditioning::Signalled { log2_size, columns } = change else { continue };
        if glances.iter().all(|(size, _)| *size != log2_size) {
            let glance = |columns| Signalled::glance(along(columns), 1 << log2_size, noise);
            glances.push((log2_size, [false, true].map(glance)));
        }
        let Some((_, both)) = glances.iter().find(|(size, _)| *size == log2_size) else { continue };
        let (own, across) = (&both[usize::from(columns)], &both[usize::from(!columns)]);
        if !rules.has(Rule::Glance) || own.gain - own.signalled >= THRESHOLDS.glance_gain {
            let crossing = across.learnable;
            let promise = Signalled::promise(along(columns), 1 << log2_size, noise, crossing);
            judged.push(Promising { change, promise, crossing });
        }
    }
    let most =
        judged.iter().map(|own| own.promise).fold(THRESHOLDS.promise + THRESHOLDS.promise_behind, f64::max);
    judged.retain(|own| !rules.has(Rule::Promise) || own.promise >= most - THRESHOLDS.promise_behind);
    judged
}

/// The matrix in the basis that suits it, which its stream will state.
fn state<'a>(change: Preconditioning, plain: &Input<'a>, noise: f64, crossing: f64) -> Input<'a> {
    match change {
        Preconditioning::Signalled { log2_size, columns } => {
            let signalled = Signalled::fitted(plain.rows_along(columns), 1 << log2_size, noise, crossing);
            plain.rebased_by(signalled, columns)
        }
        _ => plain.rebased(change, None),
    }
}

/// Whether a plan has something left to find: not along what was rebased.
fn crosses(change: Preconditioning, plan: &Plan) -> bool {
    let Preconditioning::Signalled { columns, .. } = change else { return true };
    match plan.transform {
        Transform::None => true,
        Transform::Klt { .. } => plan.transposed != columns,
        _ => false,
    }
}
