//! Encoding to a target: a plan is chosen ([`choose`]), then the step that
//! meets the target is searched with whole passes, so that it is met by the
//! very bytes that are returned. Knows nothing of how a plan codes.

use std::convert::Infallible;

use trinity_coding::search::{self, Tried};

use crate::Error;
use crate::encoder::choose::{MARGIN, Next, choose};
use crate::encoder::pass::{Pass, encode_pass};
use crate::encoder::profile::Profile;
use crate::encoder::report::Report;
use crate::encoder::sample::Samples;
use crate::encoder::subject::{ERROR_PER_SQUARED_STEP, Subject};
use crate::encoder::target::{Encoded, Target};
use crate::encoder::trial::Trial;
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
const MIN_STEP: f32 = 1.0 / (1 << 21) as f32;
/// Largest step, in octaves.
const MAX_LOG_STEP: f64 = 8.0;

/// A step to begin with: what Gaussian rows, or columns, of a sample's variances
/// would take, whichever ask for less.
fn first_step(target: Target, subject: &Subject<'_>, samples: &Samples<'_>) -> Result<f64, Error> {
    /// Halvings of all octaves that a step may have.
    const HALVINGS: usize = 12;
    /// What a code takes more than the entropy of its Gaussian: a tenth of a bit.
    const EXCESS: f64 = 1.15;
    match target {
        Target::Bits(wanted) | Target::Nmse(wanted) if wanted > 0.0 && wanted.is_finite() => {}
        Target::Step(step) if step > 0.0 && step.is_finite() => {
            return Ok(step * (-f64::from(subject.exponent)).exp2());
        }
        _ => return Err(Error::BadTarget { what: format!("{target:?} is not a positive number") }),
    }
    let too_large = |variances: &[f64], step: f64| {
        let noise = ERROR_PER_SQUARED_STEP * step * step;
        let mean = |of: &dyn Fn(f64) -> f64| {
            variances.iter().map(|&v| of(v)).sum::<f64>() / variances.len().max(1) as f64
        };
        match target {
            Target::Bits(bits) => mean(&|v| 0.5 * (1.0 + EXCESS * v / noise).log2()) < bits,
            Target::Nmse(nmse) => {
                mean(&|v| v * noise / (v + noise)) > nmse * subject.energy / subject.count as f64
            }
            Target::Step(_) | Target::Lossless => true,
        }
    };
    let steps = samples.variances().map(|variances| {
        let (mut low, mut high) = (f64::from(MIN_STEP).log2(), MAX_LOG_STEP);
        for _ in 0..HALVINGS {
            let middle: f64 = 0.5 * (low + high);
            *(if too_large(&variances, middle.exp2()) { &mut high } else { &mut low }) = middle;
        }
        low.exp2()
    });
    // Fewer bits allow a smaller step; an error, a larger one.
    Ok(if matches!(target, Target::Bits(_)) { steps[0].min(steps[1]) } else { steps[0].max(steps[1]) })
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
        let (subject, mut chosen) = choose_basis(profile, &plans, plain, target, basis)?;
        if let Target::Step(_) = target {
            let Chosen { trial, step, .. } = &chosen;
            let pass = run(&subject, &trial.plan, *step, trial.centroids);
            finish(pass, &trial.plan, &subject, target, *step, 1)?
        } else {
            let start = |chosen: &Chosen| {
                let step = chosen.first_step(&subject, target);
                run(&subject, &chosen.trial.plan, rounded(step), chosen.trial.centroids)
            };
            let mut first = start(&chosen);
            // Where a sample was mistaken about its best plan, the next one may be better.
            let more = surprise(&first, &subject, &chosen.trial);
            let next = chosen.next.take().filter(|next| more > SURPRISE.max(next.behind));
            let mut passes = 0;
            if let Some(next) = next {
                let other = choose_near(profile, &[next.plan], &subject, target)?;
                let pass = start(&other);
                passes = 1;
                if gap(&pass, &subject) < gap(&first, &subject) - MARGIN {
                    (chosen, first) = (other, pass);
                }
            }
            let plan = &chosen.trial.plan;
            let run = |step, centroids| run(&subject, plan, step, centroids);
            let mut encoded = search_step(&subject, &chosen, target, Some(first), run)?;
            encoded.report.passes += passes;
            encoded
        }
    };
    encoded.report.quantization = Some(quantization);
    Ok(encoded)
}

/// Octaves of step by which a choice may miss its target: plans that are best
/// here are best there.
const NEAR: f64 = 0.5;
/// Bits per value at equal error by which a pass may take more than was foreseen for
/// the plan to stand.
const SURPRISE: f64 = 0.08;
/// Choices at most, each nearer to the target than the one before.
const CHOICES: usize = 3;

/// A plan that was chosen, and the step it was chosen at.
pub struct Chosen {
    pub trial: Trial,
    step: f32,
    /// The best that is not like it.
    next: Option<Next>,
}

impl Chosen {
    /// The step of the first pass, in octaves.
    fn first_step(&self, subject: &Subject<'_>, target: Target) -> f64 {
        // An error is told more closely by a sample than a rate is.
        let ahead = octaves_ahead(&self.trial, subject, target) + inside(target).max(0.0);
        (f64::from(self.step).log2() + ahead).clamp(f64::from(MIN_STEP).log2(), MAX_LOG_STEP)
    }
}

/// A step of so many octaves, with twelve bits of mantissa: mathematical libraries
/// differ in the last one, and streams must not.
fn rounded(log_step: f64) -> f32 {
    f32::from_bits((log_step.exp2() as f32).to_bits() & !0x7ff)
}

/// The cheapest plan near the step that meets the target, and that step. What a
/// Gaussian source would take is far from what biased or heavy-tailed values do.
pub fn choose_near(
    profile: &Profile,
    plans: &[Plan],
    subject: &Subject<'_>,
    target: Target,
) -> Result<Chosen, Error> {
    let rounded = |step: f64| Scalars::round_step(step.clamp(f64::from(MIN_STEP), 4.0) as f32);
    let samples = Samples::new(subject, profile);
    let mut step = rounded(first_step(target, subject, &samples)?);
    let (mut trial, mut next) = choose(profile, plans, &samples, step);
    for _ in 1..CHOICES {
        let ahead = octaves_ahead(&trial, subject, target);
        let nearer = rounded(f64::from(step) * ahead.exp2());
        if ahead.abs() <= NEAR || nearer == step {
            break;
        }
        step = nearer;
        (trial, next) = choose(profile, plans, &samples, step);
    }
    Ok(Chosen { trial, step, next })
}

/// Octaves by which the step of a trial should grow, as far as it tells.
fn octaves_ahead(trial: &Trial, subject: &Subject<'_>, target: Target) -> f64 {
    let octaves = match target {
        Target::Bits(bits) => (trial.bits_per_value - bits) / trial.slopes.bits.max(0.3),
        Target::Nmse(nmse) => {
            let error = nmse * subject.energy / subject.count as f64;
            0.5 * (error / trial.error_per_value).log2() / trial.slopes.error.max(0.3)
        }
        _ => 0.0,
    };
    octaves.clamp(-6.0, 6.0)
}

/// The change of basis in which the cheapest plan costs least, that plan, and
/// the step at which it does.
fn choose_basis<'a>(
    profile: &Profile,
    plans: &[Plan],
    plain: Subject<'a>,
    target: Target,
    basis: Option<&'a Basis>,
) -> Result<(Subject<'a>, Chosen), Error> {
    let judge = |subject: Subject<'a>, plans: &[Plan]| {
        let chosen = choose_near(profile, plans, &subject, target)?;
        Ok((subject, chosen))
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
    let mut best: Option<(Subject<'a>, Chosen)> = None;
    let listed = plans[0].preconditioning;
    for change in changes {
        let with = |plan: &Plan| Plan { preconditioning: change, ..plan.clone() };
        let plans: Vec<Plan> = plans.iter().filter(|plan| plan.preconditioning == listed).map(with).collect();
        let (subject, chosen) = judge(plain.turned(change, basis), &plans)?;
        // Steps differ by how well they were guessed, so costs are compared in bits.
        let margin = best.as_ref().map(|(_, best)| best.trial.gap() - MARGIN);
        if margin.is_none_or(|margin| chosen.trial.gap() < margin) {
            best = Some((subject, chosen));
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

/// Bits per value above what the error takes at a rate of six decibels per bit.
fn gap(pass: &Pass, subject: &Subject<'_>) -> f64 {
    let error = pass.squared_error / subject.count as f64;
    bits_per_value(pass, subject) + 0.5 * error.max(f64::MIN_POSITIVE).log2()
}

/// Bits per value at equal error that a pass takes more than was foreseen.
fn surprise(pass: &Pass, subject: &Subject<'_>, trial: &Trial) -> f64 {
    gap(pass, subject) - trial.gap()
}

/// What to aim at inside the tolerance, so that few passes end outside, in octaves.
fn inside(target: Target) -> f64 {
    match target {
        Target::Bits(bits) => 0.4 * RATE_TOLERANCE * bits,
        Target::Nmse(nmse) => -0.4 * ERROR_TOLERANCE * 0.5 * nmse.log2().abs().max(0.33),
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
