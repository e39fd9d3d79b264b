//! From a target to a step: bits or an error per value.

use crate::Error;
use crate::analyse::{Effort, Options, choose_fitted};
use crate::fit::{Fitted, fit};
use crate::stream::{Settings, decode, encode};

/// What an encoder is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most so many bits per value, everything counted.
    Bits(f64),
    /// Squared error over energy at most this.
    Nmse(f64),
    /// This step: half the distance of a quantizer's points.
    Step(f32),
}

/// Trials before the best so far is taken.
const TRIALS: usize = 8;

/// Codes a matrix with an eight-state trellis so that the target is met.
pub fn encode_to(
    values: &[f32],
    rows: usize,
    cols: usize,
    target: Target,
    effort: Effort,
    settings: &Settings,
) -> Result<Vec<u8>, Error> {
    let budgeted = settings.tile_budget.is_some();
    let (lambda, rounding) = (settings.lambda, settings.rounding);
    let options = Options { effort, lambda, rounding, budgeted, ..Options::default() };
    encode_under(values, rows, cols, target, &options, settings)
}

/// As [`encode_to`], with all options.
pub fn encode_under(
    values: &[f32],
    rows: usize,
    cols: usize,
    target: Target,
    options: &Options,
    settings: &Settings,
) -> Result<Vec<u8>, Error> {
    if values.len() != rows * cols || values.is_empty() {
        return Err(Error::Mismatch { what: format!("{} values for {rows} × {cols}", values.len()) });
    }
    let unreachable = |reason: String| Error::Unreachable { target: format!("{target:?}"), reason };
    let plan_at = |step: f32| choose_fitted(values, rows, cols, step, options);
    let no_step = || unreachable("no step leads there".into());
    if let Target::Step(step) = target {
        let plan = plan_at(step).ok_or_else(no_step)?.plan;
        return encode(&plan, values, settings);
    }
    let energy = energy(values);
    let mut step = first_step(energy, values.len(), target);
    // The choice of stages is made once, near the target; steps then move with it.
    let mut fitted = plan_at(step).ok_or_else(no_step)?;
    let first = step;
    for _ in 0..3 {
        let next = step * correction(&fitted, energy / values.len() as f64, target);
        if !(next / step - 1.0).abs().is_finite() || (next / step).ln().abs() < 0.02 {
            break;
        }
        step = next;
        fitted = refit(&fitted, values, step, options).ok_or_else(no_step)?;
    }
    // Far from where stages were chosen, others may be better.
    if (step / first).ln().abs() > 0.4 {
        fitted = plan_at(step).ok_or_else(no_step)?;
    }
    let mut best: Option<(f64, Vec<u8>)> = None;
    let mut bounds = (0.0f32, f32::INFINITY);
    for _ in 0..TRIALS {
        let bytes = encode(&fitted.plan, values, settings)?;
        let bits = 8.0 * bytes.len() as f64 / values.len() as f64;
        // How far the stream is from the target, in bits to spend.
        let (within, room) = match target {
            Target::Bits(goal) => (bits <= goal, goal * 0.997 - bits),
            _ => {
                let Target::Nmse(goal) = target else { return Err(no_step()) };
                let found = squared(values, &decode(&bytes)?.2) / energy.max(f64::MIN_POSITIVE);
                (found <= goal, 0.5 * (found / (goal * 0.995)).log2())
            }
        };
        if within {
            let closeness = -room.abs();
            if best.as_ref().is_none_or(|(before, _)| closeness > *before) {
                best = Some((closeness, bytes));
            }
            if room.abs() < 0.004 * bits.max(0.5) {
                break;
            }
        }
        // More room for bits: a smaller step.
        if room > 0.0 {
            bounds.1 = bounds.1.min(step)
        } else {
            bounds.0 = bounds.0.max(step)
        }
        let mut next = step * (-room * 1.05).exp2() as f32;
        if next <= bounds.0 || next >= bounds.1 {
            next = if bounds.1.is_finite() && bounds.0 > 0.0 { (bounds.0 * bounds.1).sqrt() } else { next };
        }
        if !next.is_normal() || next == step {
            break;
        }
        step = next;
        fitted = refit(&fitted, values, step, options).ok_or_else(no_step)?;
    }
    best.map(|(_, bytes)| bytes).ok_or_else(|| unreachable("headers and lanes alone take more".into()))
}

/// The same stages at another step.
fn refit(fitted: &Fitted, values: &[f32], step: f32, options: &Options) -> Option<Fitted> {
    let mut plan = fitted.plan.clone();
    let ratio = f64::from(plan.step) / f64::from(step);
    let shift = (4.0 * ratio.log2()).round() as i32;
    for class in &mut plan.classes {
        *class = (*class + shift).clamp(-crate::plan::MAX_CLASS, crate::plan::MAX_CLASS);
    }
    for mean in &mut plan.means {
        let moved = f64::from(*mean) * ratio;
        *mean =
            moved.round().clamp(f64::from(-crate::plan::MAX_MEAN), f64::from(crate::plan::MAX_MEAN)) as i32;
    }
    plan.step = step;
    fit(plan, values, options)
}

/// By how much a step must change, as far as a fitted plan can tell.
fn correction(fitted: &Fitted, mean_square: f64, target: Target) -> f32 {
    let octaves = match target {
        Target::Bits(goal) => fitted.bits_per_value - goal,
        Target::Nmse(goal) => 0.5 * (goal * mean_square / fitted.error.max(f64::MIN_POSITIVE)).log2(),
        Target::Step(_) => 0.0,
    };
    octaves.clamp(-8.0, 8.0).exp2() as f32
}

/// A step for independent Gaussian values.
fn first_step(energy: f64, count: usize, target: Target) -> f32 {
    let deviation = (energy / count as f64).sqrt();
    let bits = match target {
        Target::Bits(bits) => bits,
        Target::Nmse(nmse) => -0.5 * nmse.log2() + 0.1,
        Target::Step(_) => 0.0,
    };
    // Two steps between the points of a quantizer.
    ((4.13 * deviation / bits.exp2()) * 0.5).max(f64::from(f32::MIN_POSITIVE)) as f32
}

fn energy(values: &[f32]) -> f64 {
    values.iter().filter(|v| v.is_finite()).map(|&v| f64::from(v) * f64::from(v)).sum()
}

fn squared(values: &[f32], decoded: &[f32]) -> f64 {
    let finite = values.iter().zip(decoded).filter(|(v, _)| v.is_finite());
    finite.map(|(&a, &b)| f64::from(a - b).powi(2)).sum()
}
