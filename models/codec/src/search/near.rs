//! The plan that is best near a target, and the step there: choices at steps that
//! come nearer. Knows samples and targets; runs no whole pass.

use crate::Error;
use crate::format::trinity::plan::{Plan, Scalars};
use crate::search::choose::{Next, choose};
use crate::search::input::{ERROR_PER_SQUARED_STEP, Input};
use crate::search::profile::Profile;
use crate::search::sample::Samples;
use crate::search::trial::Trial;
use trinity_bits::Rate;

/// Streams may be this much smaller than their target.
pub const RATE_TOLERANCE: f64 = 0.009;
/// Errors may be this much smaller than their target, in decibels over decibels.
pub const ERROR_TOLERANCE: f64 = 0.008;
/// Smallest step of values normalized to below 2: levels stay within 23 bits.
pub const MIN_STEP: f32 = 1.0 / (1 << 21) as f32;
/// Largest step, in octaves.
pub const MAX_LOG_STEP: f64 = 8.0;

/// Octaves of step by which a choice may miss its target: plans that are best
/// here are best there.
const NEAR: f64 = 0.5;
/// Choices at most, each nearer to the target than the one before.
const CHOICES: usize = 3;

#[derive(Clone)]
pub struct Chosen {
    pub trial: Trial,
    pub step: f32,
    /// The best that are not like it.
    pub next: Vec<Next>,
}

impl Chosen {
    /// The step of the first pass, in octaves.
    pub fn first_step(&self, input: &Input<'_>, target: Rate) -> f64 {
        // An error is told more closely by a sample than a rate is.
        let ahead = octaves_ahead(&self.trial, input, target) + inside(target).max(0.0);
        (f64::from(self.step).log2() + ahead).clamp(f64::from(MIN_STEP).log2(), MAX_LOG_STEP)
    }
}

/// A step of so many octaves, with twelve bits of mantissa: mathematical libraries
/// differ in the last one, and streams must not.
pub fn rounded(log_step: f64) -> f32 {
    f32::from_bits((log_step.exp2() as f32).to_bits() & !0x7ff)
}

/// The cheapest plan near the step that meets the target, and that step. What a
/// Gaussian source would take is far from what biased or heavy-tailed values do.
/// The choice begins at `from` where the caller knows a step that is not far.
pub fn choose_near(
    profile: &Profile,
    plans: &[Plan],
    input: &Input<'_>,
    target: Rate,
    from: Option<f64>,
) -> Result<Chosen, Error> {
    let rounded = |step: f64| Scalars::round_step(step.clamp(f64::from(MIN_STEP), 4.0) as f32);
    let samples = Samples::new(input, profile);
    let mut step = rounded(match from {
        Some(step) => step,
        None => first_step(target, input, &samples)?,
    });
    let mut choices = 1;
    loop {
        let (trial, next) = choose(profile, plans, &samples, step);
        let ahead = octaves_ahead(&trial, input, target);
        let nearer = rounded(f64::from(step) * ahead.exp2());
        if choices == CHOICES || ahead.abs() <= NEAR || nearer == step {
            return Ok(Chosen { trial, step, next });
        }
        (step, choices) = (nearer, choices + 1);
    }
}

/// Octaves by which the step of a trial should grow, as far as it tells.
fn octaves_ahead(trial: &Trial, input: &Input<'_>, target: Rate) -> f64 {
    let octaves = match target {
        Rate::Bits(bits) => (trial.bits_per_value - bits) / trial.slopes.bits.max(0.3),
        Rate::Nmse(nmse) => {
            let error = nmse * input.energy / input.count as f64;
            0.5 * (error / trial.error_per_value).log2() / trial.slopes.error.max(0.3)
        }
        _ => 0.0,
    };
    octaves.clamp(-6.0, 6.0)
}

/// What to aim at inside the tolerance, so that few passes end outside, in octaves.
pub fn inside(target: Rate) -> f64 {
    match target {
        Rate::Bits(bits) => 0.4 * RATE_TOLERANCE * bits,
        Rate::Nmse(nmse) => -0.4 * ERROR_TOLERANCE * 0.5 * nmse.log2().abs().max(0.33),
        _ => 0.0,
    }
}

/// A step to begin with: what Gaussian rows, or columns, of a sample's variances
/// would take, whichever ask for less.
pub fn first_step(target: Rate, input: &Input<'_>, samples: &Samples<'_>) -> Result<f64, Error> {
    /// Halvings of all octaves that a step may have.
    const HALVINGS: usize = 12;
    /// What a code takes more than the entropy of its Gaussian: a tenth of a bit.
    const EXCESS: f64 = 1.15;
    match target {
        Rate::Bits(wanted) | Rate::Nmse(wanted) if wanted > 0.0 && wanted.is_finite() => {}
        Rate::Step(step) if step > 0.0 && step.is_finite() => {
            return Ok(step * (-f64::from(input.exponent)).exp2());
        }
        _ => {
            return Err(Error::BadTarget {
                what: format!("{target} is none: bits, an error or a step above zero"),
            });
        }
    }
    let too_large = |variances: &[f64], step: f64| {
        let noise = ERROR_PER_SQUARED_STEP * step * step;
        let mean = |of: &dyn Fn(f64) -> f64| {
            variances.iter().map(|&v| of(v)).sum::<f64>() / variances.len().max(1) as f64
        };
        match target {
            Rate::Bits(bits) => mean(&|v| 0.5 * (1.0 + EXCESS * v / noise).log2()) < bits,
            Rate::Nmse(nmse) => mean(&|v| v * noise / (v + noise)) > nmse * input.energy / input.count as f64,
            _ => true,
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
    Ok(if matches!(target, Rate::Bits(_)) { steps[0].min(steps[1]) } else { steps[0].max(steps[1]) })
}
