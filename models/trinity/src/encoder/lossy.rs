//! Encoding to a target: a plan is chosen ([`choose`]), then the step that
//! meets the target is searched with whole passes, so that it is met by the
//! very bytes that are returned. Knows nothing of how a plan codes.

use std::convert::Infallible;

use trinity_coding::search::{self, Tried};

use crate::Error;
use crate::encoder::choose::{MARGIN, Trial, centroids, choose};
use crate::encoder::pass::{Pass, encode_pass};
use crate::encoder::profile::Profile;
use crate::encoder::report::Report;
use crate::encoder::subject::{ERROR_PER_SQUARED_STEP, Subject};
use crate::encoder::target::{Encoded, Target};
use crate::matrix::scale_by;
use crate::plan::{Plan, Scalars};
use crate::stages::basis::Basis;
use crate::stages::precondition::Preconditioning;
use crate::stages::trellis::Centroids;

/// Streams may be this much smaller than their target.
const RATE_TOLERANCE: f64 = 0.009;
/// Errors may be this much smaller than their target, in decibels over decibels.
const ERROR_TOLERANCE: f64 = 0.008;
/// Passes over the matrix before the best one found is taken.
const MAX_PASSES: usize = 14;
/// Smallest step of values normalized to below 2: levels stay within 23 bits.
pub const MIN_STEP: f32 = 1.0 / (1 << 21) as f32;
/// A step to begin with: what a Gaussian source would take.
pub fn first_step(target: Target, subject: &Subject<'_>) -> Result<f64, Error> {
    let variance = subject.spread / subject.count as f64;
    let step = match target {
        Target::Bits(bits) if bits > 0.0 && bits.is_finite() => {
            (variance / ERROR_PER_SQUARED_STEP).sqrt() * (0.1 - bits).exp2()
        }
        Target::Nmse(nmse) if nmse > 0.0 && nmse.is_finite() => {
            (nmse * subject.energy / subject.count as f64 / ERROR_PER_SQUARED_STEP).sqrt()
        }
        Target::Step(step) if step > 0.0 && step.is_finite() => step * (-f64::from(subject.exponent)).exp2(),
        _ => return Err(Error::BadTarget { what: format!("{target:?} is not a positive number") }),
    };
    Ok(step)
}

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
        encode_pass(plan, &scalars, decision, subject.view(plan), profile.parallel.tile_values)
    };
    let constant = plain.spread <= f64::from(f32::EPSILON).powi(2) * plain.energy;
    let mut encoded = if constant {
        // Step 0 stands for "nothing but the offset".
        let plan = Plan { preconditioning: Preconditioning::None, ..plans[0].clone() };
        finish(run(&plain, &plan, 0.0, Centroids::default()), &plan, &plain, target, 0.0, 1)?
    } else {
        let (subject, chosen, guess) = choose_basis(profile, &plans, plain, target, basis)?;
        let plan = &chosen.plan;
        if let Target::Step(_) = target {
            finish(run(&subject, plan, guess, chosen.centroids), plan, &subject, target, guess, 1)?
        } else {
            let run = |step, centroids| run(&subject, plan, step, centroids);
            search_step(&subject, &chosen, target, guess, run)?
        }
    };
    encoded.report.quantization = Some(quantization);
    Ok(encoded)
}

/// The change of basis in which the cheapest plan costs least, that plan, and
/// the step at which it does.
fn choose_basis<'a>(
    profile: &Profile,
    plans: &[Plan],
    plain: Subject<'a>,
    target: Target,
    basis: Option<&'a Basis>,
) -> Result<(Subject<'a>, Trial, f32), Error> {
    let judge = |subject: Subject<'a>, plans: &[Plan]| {
        let guess = first_step(target, &subject)?.clamp(f64::from(MIN_STEP), 4.0) as f32;
        let guess = Scalars::round_step(guess);
        let trial = choose(profile, plans, &subject, guess);
        Ok((subject, trial, guess))
    };
    // As profiles list them; a basis takes the place of other changes, as its owner knows better.
    let mut changes: Vec<Preconditioning> = Vec::new();
    match basis {
        Some(basis) => changes.extend([Preconditioning::None, Preconditioning::Basis { hash: basis.hash() }]),
        None => changes.extend(&profile.stages.preconditioning),
    }
    if changes == [Preconditioning::None] {
        return judge(plain, plans);
    }
    let mut best: Option<(Subject<'a>, Trial, f32)> = None;
    let listed = plans[0].preconditioning;
    for change in changes {
        let with = |plan: &Plan| Plan { preconditioning: change, ..plan.clone() };
        let plans: Vec<Plan> = plans.iter().filter(|plan| plan.preconditioning == listed).map(with).collect();
        let (subject, trial, guess) = judge(plain.turned(change, basis), &plans)?;
        // Steps differ by how well they were guessed, so costs are compared in bits.
        let margin = best.as_ref().map(|(_, best, _)| best.gap() - MARGIN);
        if margin.is_none_or(|margin| trial.gap() < margin) {
            best = Some((subject, trial, guess));
        }
    }
    best.ok_or_else(|| Error::BadTarget { what: "no change of basis is allowed".into() })
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

/// Secant steps in log2 of the step, kept between bounds that close in.
pub fn search_step(
    subject: &Subject<'_>,
    chosen: &Trial,
    target: Target,
    guess: f32,
    run: impl Fn(f32, Centroids) -> Pass,
) -> Result<Encoded, Error> {
    // Aim a little inside the tolerance, so that few passes end outside.
    let margin = match target {
        Target::Bits(bits) => 0.4 * RATE_TOLERANCE * bits,
        Target::Nmse(nmse) => 0.4 * ERROR_TOLERANCE * 0.5 * nmse.log2().abs().max(0.33),
        _ => 0.0,
    };
    let ahead = match target {
        Target::Bits(bits) => chosen.bits_per_value - bits,
        Target::Nmse(nmse) => {
            0.5 * (nmse * subject.energy / subject.count as f64 / chosen.error_per_value).log2()
        }
        _ => 0.0,
    };
    let mut centroids = chosen.centroids;
    let mut closest = f64::INFINITY;
    let attempt = |log_step: f64| -> Result<_, Infallible> {
        // Twelve bits of mantissa: mathematical libraries differ in the last one,
        // and streams must not.
        let step = f32::from_bits((log_step.exp2() as f32).to_bits() & !0x7ff);
        let pass = run(step, centroids);
        centroids = self::centroids(&pass.drift, 1.0);
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
    let (least, most) = (f64::from(MIN_STEP).log2(), 8.0f64);
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
        // Octaves of step for octaves of distance: one, or what was seen.
        let wanted = left + if matches!(target, Target::Bits(_)) { margin } else { -margin };
        let slope = match previous {
            Some((step_before, left_before)) if (step_before - log_step).abs() > 1e-3 => {
                ((step_before - log_step) / (left_before - left)).abs().clamp(0.3, 6.0)
            }
            _ => 1.0,
        };
        previous = Some((log_step, left));
        let next = log_step + wanted * slope;
        // Outside the bounds the secant has lost its way.
        Some(if next > low && next < high { next } else { 0.5 * (low + high) })
    };
    let first = (f64::from(guess).log2() + ahead.clamp(-6.0, 6.0)).clamp(least, most);
    let Ok(found) = search::search(first, MAX_PASSES, attempt, next);
    match found.best {
        Some(((false, _), (pass, step))) => {
            finish(pass, &chosen.plan, subject, target, step, found.tried.count)
        }
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
        basis_columns: subject.basis.map(Basis::group),
        step: f64::from(step) * f64::from(subject.exponent).exp2(),
        nmse,
        passes,
        bits: pass.bits,
    };
    let mut recon = if plan.transposed { pass.recon.transposed() } else { pass.recon };
    plan.preconditioning.inverse(&mut recon.values, recon.cols, subject.basis);
    scale_by(&mut recon.values, subject.exponent);
    Ok(Encoded { bytes: pass.bytes, recon: recon.values, report })
}
