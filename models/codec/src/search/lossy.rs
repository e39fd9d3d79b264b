//! Encoding to a target: a plan is chosen ([`change_of_basis`](crate::search::change_of_basis)), then the step that
//! meets the target is searched with whole passes, so that it is met by the
//! very bytes that are returned. Knows nothing of how a plan codes.

use std::convert::Infallible;

use trinity_bits::search::{self, Tried};

use crate::Error;
use crate::format::trinity::plan::{Plan, Tiling};
use crate::matrix::scale_by;
use crate::search::change_of_basis::{BasisChoice, choose_basis};
use crate::search::input::Input;
use crate::search::near::{
    Chosen, ERROR_TOLERANCE, MAX_LOG_STEP, MIN_STEP, RATE_TOLERANCE, choose_near, inside, rounded,
};
use crate::search::pass::{Beside, Pass, encode_pass};
use crate::search::profile::Profile;
use crate::search::report::{Encoded, Report};
use crate::search::rules::{Rule, THRESHOLDS};
use crate::search::trial::{self, Trial};
use crate::stage::basis::Basis;
use crate::stage::precondition::Preconditioning;
use crate::stage::trellis::Centroids;
use trinity_bits::Rate;

/// Passes over the matrix before the best one found is taken.
const MAX_PASSES: usize = 14;

/// Encodes with the stages of a profile; the lossy pipeline of this crate.
pub fn encode(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Rate,
    basis: Option<&Basis>,
) -> Result<Encoded, Error> {
    let plans = profile.candidates()?;
    let plain = Input::new(values, rows, cols)?;
    if let Some(basis) = basis.filter(|basis| basis.cols() != cols) {
        let what = format!("it is for {} columns, the matrix has {cols}", basis.cols());
        return Err(Error::Basis { what });
    }
    let decision = profile.decision();
    let run = |input: &Input<'_>, plan: &Plan, step: f32, centroids: Centroids| {
        let scalars = input.scalars(plan, step, centroids);
        let (matrix, signalled) = (input.view(plan), input.signalled.as_ref());
        let tiling = Tiling::new(matrix.rows, matrix.cols, profile.parallel.tile_values);
        encode_pass(plan, &scalars, decision, matrix, tiling, Beside { signalled, ..Beside::default() })
    };
    let constant = plain.spread <= f64::from(f32::EPSILON).powi(2) * plain.energy;
    let mut encoded = if constant {
        // Step 0 stands for "nothing but the offset".
        let plan = Plan { preconditioning: Preconditioning::None, ..plans[0].clone() };
        finish(run(&plain, &plan, 0.0, Centroids::default()), &plan, &plain, target, 0.0, 1)?
    } else {
        let bases = choose_basis(profile, &plans, plain, target, basis)?;
        if let Rate::Step(_) = target {
            let BasisChoice { input, chosen: Chosen { trial, step, .. } } = &bases[0];
            let pass = run(input, &trial.plan, *step, trial.centroids);
            finish(pass, &trial.plan, input, target, *step, 1)?
        } else {
            let start = |input: &Input<'_>, chosen: &Chosen| {
                let step = chosen.first_step(input, target);
                run(input, &chosen.trial.plan, rounded(step), chosen.trial.centroids)
            };
            let Raced { input, chosen, first, others } = race(profile, &bases, target, start)?;
            let plan = &chosen.trial.plan;
            let run = |step, centroids| run(input, plan, step, centroids);
            let mut encoded = search_step(input, &chosen, target, Some(first), run)?;
            encoded.report.passes += others;
            encoded
        }
    };
    encoded.report.quantization = Some(profile.stages.quantization);
    Ok(encoded)
}

/// What was best when it was run.
struct Raced<'s> {
    input: &'s Input<'s>,
    chosen: Chosen,
    first: Pass,
    /// Passes that were in vain.
    others: usize,
}

/// Runs what seems best once, and what may be better: other plans where a sample was
/// mistaken about it, and plans in other bases of which a sample tells too little.
fn race<'s>(
    profile: &Profile,
    bases: &'s [BasisChoice<'s>],
    target: Rate,
    start: impl Fn(&Input<'_>, &Chosen) -> Pass,
) -> Result<Raced<'s>, Error> {
    let rules = profile.rules;
    let BasisChoice { input, chosen } = &bases[0];
    let first = start(input, chosen);
    // Bits per value at equal error that it takes more than was predicted.
    let more = gap(&first, input) - chosen.trial.gap();
    let mut best = Raced { input, chosen: chosen.clone(), first, others: 0 };
    // By what they were predicted to take more than what was run first; plans to be chosen anew.
    let predicted = chosen.trial.gap();
    let mut candidates: Vec<(f64, &'s Input<'s>, Result<&Chosen, &Plan>)> = Vec::new();
    for (at, BasisChoice { input, chosen }) in bases.iter().enumerate() {
        let behind = chosen.trial.gap() - predicted;
        let next = chosen.next.iter().map(|next| (behind + next.behind, input, Err(&next.plan)));
        if bases.len() > 1 {
            let own = (at > 0).then_some((behind, input, Ok(chosen)));
            candidates.extend(own.into_iter().chain(next));
        } else {
            let surprises = |behind: f64| more > THRESHOLDS.rerun.max(behind);
            candidates.extend(next.filter(|(behind, ..)| !rules.has(Rule::Rerun) || surprises(*behind)));
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = rules.bound(Rule::MaxCandidates, THRESHOLDS.max_candidates - 1, usize::MAX);
    for (behind, input, candidate) in candidates.into_iter().take(most) {
        let is_behind = predicted + behind - THRESHOLDS.race_behind > gap(&best.first, best.input);
        if rules.has(Rule::RaceBehind) && is_behind {
            continue;
        }
        let chosen = match candidate {
            Ok(chosen) => chosen.clone(),
            Err(plan) => choose_near(profile, std::slice::from_ref(plan), input, target, None)?,
        };
        let pass = start(input, &chosen);
        best.others += 1;
        if gap(&pass, input) < gap(&best.first, best.input) - THRESHOLDS.margin() {
            best = Raced { input, chosen, first: pass, others: best.others };
        }
    }
    Ok(best)
}

/// How far a pass is from its target, as octaves of step: positive means a
/// larger step (fewer bits, more error) is called for or allowed.
fn octaves_left(pass: &Pass, input: &Input<'_>, target: Rate) -> f64 {
    match target {
        Rate::Bits(bits) => bits_per_value(pass, input) - bits,
        Rate::Nmse(nmse) => 0.5 * (nmse * input.energy / pass.squared_error).log2(),
        _ => 0.0,
    }
}

fn bits_per_value(pass: &Pass, input: &Input<'_>) -> f64 {
    8.0 * pass.bytes.len() as f64 / input.count as f64
}

fn gap(pass: &Pass, input: &Input<'_>) -> f64 {
    trial::gap(bits_per_value(pass, input), pass.squared_error / input.count as f64)
}

/// What a target bounds: bits per value, or the error over the energy, of which zeros have none.
fn reached(pass: &Pass, input: &Input<'_>, target: Rate) -> f64 {
    match target {
        Rate::Bits(_) => bits_per_value(pass, input),
        _ if input.energy > 0.0 => pass.squared_error / input.energy,
        _ => 0.0,
    }
}

/// Whether a pass keeps its promise, and whether it is close enough to stop.
fn verdict(got: f64, target: Rate) -> (bool, bool) {
    match target {
        Rate::Bits(bits) => (got <= bits, got <= bits && got >= bits * (1.0 - RATE_TOLERANCE)),
        Rate::Nmse(nmse) => {
            let kept = got <= nmse;
            (kept, kept && (nmse / got).log10() <= ERROR_TOLERANCE * nmse.log10().abs().max(0.1))
        }
        _ => (true, true),
    }
}

/// Secant steps in log2 of the step, kept between bounds that close in. `first` is
/// the pass at the step that the choice begins with, where it has been run.
pub fn search_step(
    input: &Input<'_>,
    chosen: &Chosen,
    target: Rate,
    mut first: Option<Pass>,
    run: impl Fn(f32, Centroids) -> Pass,
) -> Result<Encoded, Error> {
    let inside = inside(target);
    let Trial { plan, slopes, .. } = &chosen.trial;
    // The same in all passes, so that rates follow steps.
    let centroids = chosen.trial.centroids;
    let mut closest = f64::INFINITY;
    let attempt = |log_step: f64| -> Result<_, Infallible> {
        let step = rounded(log_step);
        let pass = first.take().unwrap_or_else(|| run(step, centroids));
        let got = reached(&pass, input, target);
        let (kept, close) = verdict(got, target);
        closest = closest.min(got);
        // Of those that keep the promise, the one that uses most of it.
        let used = match target {
            Rate::Bits(_) => pass.bytes.len() as f64,
            _ => pass.squared_error,
        };
        let cost = octaves_left(&pass, input, target);
        Ok(search::Trial { cost, over: !kept, close, rank: (!kept, -used), result: (pass, step) })
    };
    let (least, most) = (f64::from(MIN_STEP).log2(), MAX_LOG_STEP);
    let mut previous: Option<(f64, f64)> = None;
    let next = |tried: &Tried<f64>| {
        let (log_step, left) = tried.last;
        // More bits than allowed ask for larger steps; more error than
        // allowed for smaller ones.
        let (below, above) = match target {
            Rate::Bits(_) => (tried.over, tried.under),
            _ => (tried.under, tried.over),
        };
        let (low, high) = (below.map_or(least, |(low, _)| low), above.map_or(most, |(high, _)| high));
        if high - low < 1e-4 {
            return None;
        }
        // Octaves of step for octaves of distance: as predicted, or as seen.
        let wanted = left + inside;
        let slope = match previous {
            Some((step_before, left_before)) if (step_before - log_step).abs() > 1e-3 => {
                ((step_before - log_step) / (left_before - left)).abs().clamp(0.3, 6.0)
            }
            _ => 1.0 / if matches!(target, Rate::Bits(_)) { slopes.bits } else { slopes.error }.max(0.3),
        };
        // Where nothing is left to code, larger steps change nothing.
        let is_flat = previous.is_some_and(|(_, left_before)| (left_before - left).abs() < 1e-6);
        previous = Some((log_step, left));
        let next = log_step + if is_flat { 0.5f64.copysign(wanted) } else { wanted * slope };
        // Outside the bounds the secant has lost its way.
        Some(if next > low && next < high { next } else { 0.5 * (low + high) })
    };
    let Ok(found) = search::search(chosen.first_step(input, target), MAX_PASSES, attempt, next);
    match found.best {
        Some(((false, _), (pass, step))) => finish(pass, plan, input, target, step, found.tried.count),
        _ => Err(unreachable_target(target, closest)),
    }
}

fn unreachable_target(target: Rate, least: f64) -> Error {
    match target {
        Rate::Nmse(target) => Error::ErrorUnreachable { target, least },
        Rate::Bits(target) => Error::RateUnreachable { target, least },
        _ => Error::BadTarget { what: format!("{target} cannot be met") },
    }
}

/// The stream with its reconstruction in the caller's orientation and scale.
fn finish(
    pass: Pass,
    plan: &Plan,
    input: &Input<'_>,
    target: Rate,
    step: f32,
    passes: usize,
) -> Result<Encoded, Error> {
    let got = reached(&pass, input, target);
    if !verdict(got, target).0 {
        return Err(unreachable_target(target, got));
    }
    let report = Report {
        values: input.count,
        plan: Some(plan.clone()),
        quantization: None,
        basis_columns: input.basis.as_deref().map(Basis::group),
        step: f64::from(step) * f64::from(input.exponent).exp2(),
        nmse: if input.energy > 0.0 { pass.squared_error / input.energy } else { 0.0 },
        passes,
        bits: pass.bits,
    };
    let mut recon = pass.recon;
    plan.preconditioning.inverse(&mut recon, plan.transposed, input.basis.as_deref());
    scale_by(&mut recon.values, input.exponent);
    Ok(Encoded { bytes: pass.bytes, recon: recon.values, report })
}
