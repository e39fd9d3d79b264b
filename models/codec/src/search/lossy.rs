//! Encoding to a target: a plan is chosen ([`turn`](crate::search::turn)), then the step that
//! meets the target is searched with whole passes, so that it is met by the
//! very bytes that are returned. Knows nothing of how a plan codes.

use std::convert::Infallible;

use trinity_bits::search::{self, Tried};

use crate::Error;
use crate::format::trinity::plan::Plan;
use crate::matrix::scale_by;
use crate::search::choose::MARGIN;
use crate::search::near::{
    Chosen, ERROR_TOLERANCE, MAX_LOG_STEP, MIN_STEP, RATE_TOLERANCE, choose_near, inside, rounded,
};
use crate::search::pass::{Pass, encode_pass};
use crate::search::profile::Profile;
use crate::search::report::Report;
use crate::search::subject::Subject;
use crate::search::target::{Encoded, Target};
use crate::search::trial::Trial;
use crate::search::turn::{Turned, choose_turned};
use crate::stage::basis::Basis;
use crate::stage::precondition::Preconditioning;
use crate::stage::trellis::Centroids;

/// Passes over the matrix before the best one found is taken.
const MAX_PASSES: usize = 14;
/// Encodes with the stages of a profile; the lossy pipeline of this crate.
pub fn encode(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Target,
    basis: Option<&Basis>,
) -> Result<Encoded, Error> {
    let plans = profile.candidates()?;
    let plain = Subject::new(values, rows, cols)?;
    if let Some(basis) = basis.filter(|basis| basis.cols() != cols) {
        let what = format!("it is for {} columns, the matrix has {cols}", basis.cols());
        return Err(Error::Basis { what });
    }
    let quantization = profile.stages.quantization;
    let decision = (quantization.decision(), profile.stages.lambda);
    let run = |subject: &Subject<'_>, plan: &Plan, step: f32, centroids: Centroids| {
        let scalars = subject.scalars(plan, step, centroids);
        let stated = subject.stated.as_ref();
        encode_pass(plan, &scalars, decision, stated, subject.view(plan), profile.parallel.tile_values)
    };
    let constant = plain.spread <= f64::from(f32::EPSILON).powi(2) * plain.energy;
    let mut encoded = if constant {
        // Step 0 stands for "nothing but the offset".
        let plan = Plan { preconditioning: Preconditioning::None, ..plans[0].clone() };
        finish(run(&plain, &plan, 0.0, Centroids::default()), &plan, &plain, target, 0.0, 1)?
    } else {
        let turned = choose_turned(profile, &plans, plain, target, basis)?;
        if let Target::Step(_) = target {
            let Turned { subject, chosen: Chosen { trial, step, .. } } = &turned[0];
            let pass = run(subject, &trial.plan, *step, trial.centroids);
            finish(pass, &trial.plan, subject, target, *step, 1)?
        } else {
            let start = |subject: &Subject<'_>, chosen: &Chosen| {
                let step = chosen.first_step(subject, target);
                run(subject, &chosen.trial.plan, rounded(step), chosen.trial.centroids)
            };
            let Raced { subject, chosen, first, others } = race(profile, &turned, target, start)?;
            let plan = &chosen.trial.plan;
            let run = |step, centroids| run(subject, plan, step, centroids);
            let mut encoded = search_step(subject, &chosen, target, Some(first), run)?;
            encoded.report.passes += others;
            encoded
        }
    };
    encoded.report.quantization = Some(quantization);
    Ok(encoded)
}

/// Bits per value at equal error by which a pass may take more than was foreseen for
/// the plan to stand.
const SURPRISE: f64 = 0.08;
/// Bits per value by which what a sample foresees of a plan may exceed what a pass took for it to
/// be run as well, where bases are many, and plans that are run at most.
const DOUBT: f64 = 0.06;
const RUNNERS: usize = 3;

/// What was best when it was run.
struct Raced<'s> {
    subject: &'s Subject<'s>,
    chosen: Chosen,
    first: Pass,
    /// Passes that were in vain.
    others: usize,
}

/// Runs what seems best once, and what may be better: other plans where a sample was
/// mistaken about it, and plans in other bases of which a sample tells too little.
fn race<'s>(
    profile: &Profile,
    turned: &'s [Turned<'s>],
    target: Target,
    start: impl Fn(&Subject<'_>, &Chosen) -> Pass,
) -> Result<Raced<'s>, Error> {
    let Turned { subject, chosen } = &turned[0];
    let first = start(subject, chosen);
    let more = surprise(&first, subject, &chosen.trial);
    let mut best = Raced { subject, chosen: chosen.clone(), first, others: 0 };
    // By what they were foreseen to take more than what was run first; plans to be chosen anew.
    let foreseen = chosen.trial.gap();
    let mut runners: Vec<(f64, &'s Subject<'s>, Result<&Chosen, &Plan>)> = Vec::new();
    for (at, Turned { subject, chosen }) in turned.iter().enumerate() {
        let behind = chosen.trial.gap() - foreseen;
        let next = chosen.next.iter().map(|next| (behind + next.behind, subject, Err(&next.plan)));
        if turned.len() > 1 {
            let own = (at > 0).then_some((behind, subject, Ok(chosen)));
            runners.extend(own.into_iter().chain(next));
        } else {
            runners.extend(next.filter(|(behind, ..)| more > SURPRISE.max(*behind)));
        }
    }
    runners.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (behind, subject, runner) in runners.into_iter().take(RUNNERS - 1) {
        if foreseen + behind - DOUBT > gap(&best.first, best.subject) {
            continue;
        }
        let chosen = match runner {
            Ok(chosen) => chosen.clone(),
            Err(plan) => choose_near(profile, std::slice::from_ref(plan), subject, target, None)?,
        };
        let pass = start(subject, &chosen);
        best.others += 1;
        if gap(&pass, subject) < gap(&best.first, best.subject) - MARGIN {
            best = Raced { subject, chosen, first: pass, others: best.others };
        }
    }
    Ok(best)
}

/// How far a pass is from its target, as octaves of step: positive means a
/// larger step (fewer bits, more error) is called for or allowed.
fn octaves_left(pass: &Pass, subject: &Subject<'_>, target: Target) -> f64 {
    match target {
        Target::Bits(bits) => bits_per_value(pass, subject) - bits,
        Target::Nmse(nmse) => 0.5 * (nmse * subject.energy / pass.squared_error).log2(),
        Target::Step(_) | Target::Lossless => 0.0,
    }
}

/// Bits per value above what the error takes at a rate of six decibels per bit.
fn gap(pass: &Pass, subject: &Subject<'_>) -> f64 {
    let error = pass.squared_error / subject.count as f64;
    bits_per_value(pass, subject) + 0.5 * error.max(f64::MIN_POSITIVE).log2()
}

/// Bits per value at equal error that a pass takes more than was foreseen.
fn surprise(pass: &Pass, subject: &Subject<'_>, trial: &Trial) -> f64 {
    gap(pass, subject) - trial.gap()
}

fn bits_per_value(pass: &Pass, subject: &Subject<'_>) -> f64 {
    8.0 * pass.bytes.len() as f64 / subject.count as f64
}

/// Whether a pass keeps its promise, and whether it is close enough to stop.
fn verdict(pass: &Pass, subject: &Subject<'_>, target: Target) -> (bool, bool) {
    match target {
        Target::Bits(bits) => {
            let spent = bits_per_value(pass, subject);
            (spent <= bits, spent <= bits && spent >= bits * (1.0 - RATE_TOLERANCE))
        }
        Target::Nmse(nmse) => {
            // Nothing can be wrong about zeros.
            let got = if subject.energy > 0.0 { pass.squared_error / subject.energy } else { 0.0 };
            let kept = got <= nmse;
            (kept, kept && (nmse / got).log10() <= ERROR_TOLERANCE * nmse.log10().abs().max(0.1))
        }
        Target::Step(_) | Target::Lossless => (true, true),
    }
}

/// Secant steps in log2 of the step, kept between bounds that close in. `first` is
/// the pass at the step that the choice begins with, where it has been run.
pub fn search_step(
    subject: &Subject<'_>,
    chosen: &Chosen,
    target: Target,
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
        let (kept, close) = verdict(&pass, subject, target);
        closest = closest.min(match target {
            Target::Bits(_) => bits_per_value(&pass, subject),
            _ => pass.squared_error / subject.energy,
        });
        // Of those that keep the promise, the one that uses most of it.
        let used = match target {
            Target::Bits(_) => pass.bytes.len() as f64,
            _ => pass.squared_error,
        };
        let cost = octaves_left(&pass, subject, target);
        Ok(search::Trial { cost, over: !kept, close, rank: (!kept, -used), result: (pass, step) })
    };
    let (least, most) = (f64::from(MIN_STEP).log2(), MAX_LOG_STEP);
    let mut previous: Option<(f64, f64)> = None;
    let next = |tried: &Tried<f64>| {
        let (log_step, left) = tried.last;
        // More bits than allowed ask for larger steps; more error than
        // allowed for smaller ones.
        let (below, above) = match target {
            Target::Bits(_) => (tried.over, tried.under),
            _ => (tried.under, tried.over),
        };
        let (low, high) = (below.map_or(least, |(low, _)| low), above.map_or(most, |(high, _)| high));
        if high - low < 1e-4 {
            return None;
        }
        // Octaves of step for octaves of distance: as foreseen, or as seen.
        let wanted = left + inside;
        let slope = match previous {
            Some((step_before, left_before)) if (step_before - log_step).abs() > 1e-3 => {
                ((step_before - log_step) / (left_before - left)).abs().clamp(0.3, 6.0)
            }
            _ => 1.0 / if matches!(target, Target::Bits(_)) { slopes.bits } else { slopes.error }.max(0.3),
        };
        // Where nothing is left to code, larger steps change nothing.
        let is_flat = previous.is_some_and(|(_, left_before)| (left_before - left).abs() < 1e-6);
        previous = Some((log_step, left));
        let next = log_step + if is_flat { 0.5f64.copysign(wanted) } else { wanted * slope };
        // Outside the bounds the secant has lost its way.
        Some(if next > low && next < high { next } else { 0.5 * (low + high) })
    };
    let Ok(found) = search::search(chosen.first_step(subject, target), MAX_PASSES, attempt, next);
    match found.best {
        Some(((false, _), (pass, step))) => finish(pass, plan, subject, target, step, found.tried.count),
        _ => Err(unreachable_target(target, closest)),
    }
}

fn unreachable_target(target: Target, least: f64) -> Error {
    match target {
        Target::Nmse(target) => Error::ErrorUnreachable { target, least },
        Target::Bits(target) => Error::RateUnreachable { target, least },
        _ => Error::BadTarget { what: format!("{target:?} cannot be met") },
    }
}

/// The stream with its reconstruction in the caller's orientation and scale.
fn finish(
    pass: Pass,
    plan: &Plan,
    subject: &Subject<'_>,
    target: Target,
    step: f32,
    passes: usize,
) -> Result<Encoded, Error> {
    if !verdict(&pass, subject, target).0 {
        let got = if matches!(target, Target::Bits(_)) {
            bits_per_value(&pass, subject)
        } else {
            pass.squared_error / subject.energy
        };
        return Err(unreachable_target(target, got));
    }
    let nmse = if subject.energy > 0.0 { pass.squared_error / subject.energy } else { 0.0 };
    let report = Report {
        values: subject.count,
        plan: Some(plan.clone()),
        quantization: None,
        basis_columns: subject.basis.as_deref().map(Basis::group),
        step: f64::from(step) * f64::from(subject.exponent).exp2(),
        nmse,
        passes,
        bits: pass.bits,
    };
    let mut recon = pass.recon;
    plan.preconditioning.inverse(&mut recon, plan.transposed, subject.basis.as_deref());
    scale_by(&mut recon.values, subject.exponent);
    Ok(Encoded { bytes: pass.bytes, recon: recon.values, report })
}
