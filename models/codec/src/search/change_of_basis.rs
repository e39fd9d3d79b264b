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
    let (mut signalled, others): (Vec<Preconditioning>, Vec<Preconditioning>) =
        changes.into_iter().partition(|change| matches!(change, Preconditioning::Signalled { .. }));
    let mut found: Vec<(Option<Input<'a>>, Chosen)> = Vec::new();
    let mut waiting: Vec<Candidate> = others.into_iter().map(Candidate::listed).collect();
    loop {
        for candidate in waiting {
            let input = candidate.rebased(&plain, basis);
            let taken = input.as_ref().map_or(0.0, Input::signalled_bits_per_value);
            if taken > candidate.most {
                continue;
            }
            let mut plans = in_basis(candidate.change);
            let crosses = |plan: &Plan| crosses(candidate.change, plan);
            if profile.rules.has(Rule::AcrossOnly) && plans.iter().any(crosses) {
                plans.retain(crosses);
            }
            let own = input.as_ref().unwrap_or(&plain);
            let chosen = choose_near(profile, &plans, own, target, candidate.from)?;
            found.push((input, chosen));
        }
        if signalled.is_empty() {
            break;
        }
        waiting = matrices(profile, &std::mem::take(&mut signalled), &plain, target, &found)?;
    }
    let mut plain = Some(plain);
    let mut found: Vec<BasisChoice<'a>> = found
        .into_iter()
        .filter_map(|(input, chosen)| Some(BasisChoice { input: input.or_else(|| plain.take())?, chosen }))
        .collect();
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

struct Candidate {
    change: Preconditioning,
    /// A step that is not far, where one is known.
    from: Option<f64>,
    /// Bits per value that its matrices may take, whatever the step.
    most: f64,
    /// What fits matrices that the stream states: noise, and the bits per value that a
    /// transform across them may save.
    noise: f64,
    crossing: f64,
}

impl Candidate {
    fn listed(change: Preconditioning) -> Self {
        Self { change, from: None, most: f64::INFINITY, noise: 0.0, crossing: 0.0 }
    }

    /// The matrix in this basis, where that is another than its own.
    fn rebased<'a>(&self, plain: &Input<'a>, basis: Option<&'a Basis>) -> Option<Input<'a>> {
        match self.change {
            Preconditioning::None => None,
            Preconditioning::Signalled { log2_size, columns } => {
                let rows = plain.rows_along(columns);
                let signalled = Signalled::fitted(rows, 1 << log2_size, self.noise, self.crossing);
                Some(plain.rebased_by(signalled, columns))
            }
            change => Some(plain.rebased(change, basis)),
        }
    }
}

/// Matrices that may pay, fitted near the step that plans without them found.
fn matrices(
    profile: &Profile,
    signalled: &[Preconditioning],
    plain: &Input<'_>,
    target: Rate,
    found: &[(Option<Input<'_>>, Chosen)],
) -> Result<Vec<Candidate>, Error> {
    let step = match found.iter().find(|(input, _)| input.is_none()) {
        Some((_, as_it_is)) => as_it_is.first_step(plain, target).exp2(),
        None => first_step(target, plain, &Samples::new(plain, profile))?,
    };
    let noise = ERROR_PER_SQUARED_STEP * step * step;
    let fixed = found.is_empty();
    if !fixed && noise * plain.count as f64 <= THRESHOLDS.finest_nmse * plain.energy {
        return Ok(Vec::new());
    }
    let rules = profile.rules.unless(fixed);
    // A rate that is met with less allows a smaller step.
    let (most, is_saved) = match target {
        Rate::Bits(bits) if rules.has(Rule::MatrixShare) => (THRESHOLDS.matrix_share * bits, 1.0),
        Rate::Bits(_) => (f64::INFINITY, 1.0),
        _ => (f64::INFINITY, 0.0),
    };
    let candidate = |Promising { change, promise, crossing }| {
        let from = Some(step * (-0.5 * is_saved * promise.clamp(0.0, 1.0)).exp2());
        Candidate { change, from, most, noise, crossing }
    };
    Ok(promising(signalled, plain, noise, rules).into_iter().map(candidate).collect())
}

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

/// Whether a plan has something left to find: not along what was rebased.
fn crosses(change: Preconditioning, plan: &Plan) -> bool {
    let Preconditioning::Signalled { columns, .. } = change else { return true };
    match plan.transform {
        Transform::None => true,
        Transform::Klt { .. } => plan.transposed != columns,
        _ => false,
    }
}
