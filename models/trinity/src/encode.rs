//! Choosing: which plan suits a matrix, and which step meets a target.
//!
//! Plans are compared by distortion + λ · rate on a strip of the matrix; the
//! step is then searched with whole passes, so that the target is met by the
//! very bytes that are returned.

use std::sync::OnceLock;

use crate::Error;
use crate::plan::{Entropy, Plan, Scalars, Tile};
use crate::profile::Profile;
use crate::report::Report;
use crate::stream::{Matrix, Pass, encode_pass, encode_tile, scale_by};
use crate::trellis::Centroids;

/// What an encoding has to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most this many bits per value, everything counted.
    Bits(f64),
    /// At most this squared error over the squared values.
    Nmse(f64),
    /// This distance between neighbouring reconstruction points.
    Step(f64),
    /// Every bit comes back.
    Lossless,
}

/// A stream, what it decodes to, and how it came about.
#[derive(Debug, Clone)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    pub recon: Vec<f32>,
    pub report: Report,
}

/// Streams may be this much smaller than their target.
const RATE_TOLERANCE: f64 = 0.009;
/// Errors may be this much smaller than their target, in decibels over decibels.
const ERROR_TOLERANCE: f64 = 0.008;
/// Passes over the matrix before the best one found is taken.
const MAX_PASSES: usize = 14;
/// Smallest step of values normalized to below 2: levels stay within 23 bits.
const MIN_STEP: f32 = 1.0 / (1 << 21) as f32;
/// Columns and rows of the strip on which plans are compared.
const STRIP_COLS: usize = 64;
const STRIP_ROWS: usize = 512;

/// A matrix ready for coding.
struct Subject {
    matrix: Matrix,
    /// Made when a plan that asks for it is chosen.
    transposed: OnceLock<Matrix>,
    exponent: i32,
    offset: f32,
    energy: f64,
    /// Energy around the offset.
    spread: f64,
    count: usize,
}

impl Subject {
    fn new(values: &[f32], rows: usize, cols: usize) -> Result<Self, Error> {
        if values.len() != rows.saturating_mul(cols) {
            return Err(Error::Shape { rows, cols, found: values.len() });
        }
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(Error::NotFinite { row: i / cols, col: i % cols, value: values[i] });
        }
        let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        // The exponent of the largest value, subnormal or not.
        let exponent = if largest == 0.0 { 0 } else { (f64::from(largest).to_bits() >> 52) as i32 - 1023 };
        let mut matrix = Matrix { rows, cols, values: values.to_vec() };
        scale_by(&mut matrix.values, -exponent);
        let count = values.len();
        let mean = sum(&matrix.values, |v| v) / count.max(1) as f64;
        let energy = sum(&matrix.values, |v| v * v);
        // A mean that carries less than this is not worth its four bytes.
        let offset = if mean * mean * count as f64 > 1e-3 * energy { mean as f32 } else { 0.0 };
        let spread =
            if offset == 0.0 { energy } else { sum(&matrix.values, |v| (v - f64::from(offset)).powi(2)) };
        Ok(Self { matrix, transposed: OnceLock::new(), exponent, offset, energy, spread, count })
    }

    fn view(&self, plan: &Plan) -> &Matrix {
        if plan.transposed { self.transposed.get_or_init(|| self.matrix.transposed()) } else { &self.matrix }
    }

    /// A few columns from the middle, as a plan would see them.
    fn strip(&self, plan: &Plan, rows: usize) -> Matrix {
        let (all_rows, all_cols) = if plan.transposed {
            (self.matrix.cols, self.matrix.rows)
        } else {
            (self.matrix.rows, self.matrix.cols)
        };
        let (rows, cols) = (all_rows.min(rows), all_cols.min(STRIP_COLS));
        let middle = (all_cols - cols) / 2 / STRIP_COLS * STRIP_COLS;
        let stride = self.matrix.cols;
        let at =
            |row: usize, col: usize| if plan.transposed { col * stride + row } else { row * stride + col };
        let values = (0..rows * cols).map(|i| self.matrix.values[at(i / cols, middle + i % cols)]).collect();
        Matrix { rows, cols, values }
    }

    fn scalars(&self, step: f32, centroids: Centroids) -> Scalars {
        Scalars { step, offset: self.offset, centroids }
    }
}

/// Sum over all values, in eight interleaved parts: one alone would wait for
/// every addition.
fn sum(values: &[f32], of: impl Fn(f64) -> f64) -> f64 {
    let mut parts = [0.0; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        parts.iter_mut().zip(chunk).for_each(|(part, &value)| *part += of(f64::from(value)));
    }
    parts.iter().sum::<f64>() + rest.iter().map(|&value| of(f64::from(value))).sum::<f64>()
}

/// What a plan costs on the strip.
struct Trial {
    plan: Plan,
    cost: f64,
    bits_per_value: f64,
    error_per_value: f64,
    centroids: Centroids,
}

fn trial(plan: &Plan, subject: &Subject, step: f32, lambda: f32) -> Trial {
    // What does not learn from rows shows its worth on fewer of them.
    let rows = if plan.entropy == Entropy::Static { STRIP_ROWS / 2 } else { STRIP_ROWS };
    let strip = subject.strip(plan, rows);
    let Matrix { rows, cols, .. } = strip;
    let tile = Tile { row: 0, col: 0, rows, cols };
    let (coded, _) = encode_tile(plan, &subject.scalars(step, Centroids::default()), lambda, &strip, &tile);
    let count = (rows * cols) as f64;
    let all_cols = if plan.transposed { subject.matrix.rows } else { subject.matrix.cols };
    // Lane states and the like weigh nothing in a tile of full size.
    let bits_per_value =
        (coded.bits.symbols + coded.bits.raw + coded.bits.side * cols as f64 / all_cols as f64) / count;
    let error_per_value = coded.squared_error / count;
    Trial {
        plan: plan.clone(),
        cost: error_per_value / f64::from(step).powi(2) + f64::from(lambda) * bits_per_value,
        bits_per_value,
        error_per_value,
        centroids: centroids(&coded.drift),
    }
}

/// Shifts that put reconstruction points where values were.
fn centroids(drift: &[[(f64, u64); 3]; 2]) -> Centroids {
    drift.map(|quantizer| {
        quantizer.map(|(sum, count)| {
            if count < 64 { 0 } else { (sum / count as f64 * 64.0).round().clamp(-31.0, 31.0) as i8 }
        })
    })
}

/// The cheapest plan of a profile near `step`.
fn choose(profile: &Profile, plans: &[Plan], subject: &Subject, step: f32) -> Trial {
    let lambda = profile.stages.lambda;
    // A strip is a sample: what looks cheaper by less than this is not. Simpler
    // plans come first in a profile, so they win ties.
    let cheaper_by = |margin_bits: f64| {
        move |a: Trial, b: Trial| if b.cost < a.cost - f64::from(lambda) * margin_bits { b } else { a }
    };
    // Alternatives differ by far more than the last trellis states.
    let quick = |plan: &Plan| Plan { log2_states: plan.log2_states.min(2), ..plan.clone() };
    let first = plans.iter().map(|p| trial(&quick(p), subject, step, lambda)).reduce(cheaper_by(0.02));
    let mut best = first.unwrap_or_else(|| unreachable!("profiles have at least one plan"));
    let alternatives =
        if best.plan.entropy == Entropy::Adaptive { &profile.stages.context_weights[..] } else { &[] };
    for &weights in alternatives.iter().skip(1) {
        let plan = Plan { weights, ..best.plan.clone() };
        best = cheaper_by(0.003)(best, trial(&plan, subject, step, lambda));
    }
    if best.plan.entropy != Entropy::Binary {
        best.plan.log2_states = profile.stages.trellis_states.ilog2();
    }
    best
}

/// Error of a value over its squared step, about, for a trellis in its prime.
const ERROR_PER_SQUARED_STEP: f64 = 0.28;

/// A step to begin with: what a Gaussian source would take.
fn first_step(target: Target, subject: &Subject) -> Result<f64, Error> {
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
pub fn encode_lossy(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Target,
) -> Result<Encoded, Error> {
    let plans = profile.candidates()?;
    let subject = Subject::new(values, rows, cols)?;
    let lambda = profile.stages.lambda;
    let run = |plan: &Plan, step: f32, centroids: Centroids| {
        encode_pass(
            plan,
            &subject.scalars(step, centroids),
            lambda,
            subject.view(plan),
            subject.exponent,
            profile.parallel.tile_values,
        )
    };
    if subject.spread <= f64::from(f32::EPSILON).powi(2) * subject.energy {
        // Constant: step 0 stands for "nothing but the offset".
        let pass = run(&plans[0], 0.0, Centroids::default());
        return finish(pass, &plans[0], &subject, target, 0.0, 1);
    }
    let guess = first_step(target, &subject)?.clamp(f64::from(MIN_STEP), 4.0) as f32;
    let chosen = choose(profile, &plans, &subject, guess);
    let plan = &chosen.plan;
    if let Target::Step(_) = target {
        let pass = run(plan, guess, chosen.centroids);
        return finish(pass, plan, &subject, target, guess, 1);
    }
    search_step(&subject, &chosen, target, guess, |step, centroids| run(plan, step, centroids))
}

/// How far a pass is from its target, as octaves of step: positive means a
/// larger step (fewer bits, more error) is called for or allowed.
fn octaves_left(pass: &Pass, subject: &Subject, target: Target) -> f64 {
    match target {
        Target::Bits(bits) => bits_per_value(pass, subject) - bits,
        Target::Nmse(nmse) => 0.5 * (nmse * subject.energy / pass.squared_error).log2(),
        Target::Step(_) | Target::Lossless => 0.0,
    }
}

fn bits_per_value(pass: &Pass, subject: &Subject) -> f64 {
    8.0 * pass.bytes.len() as f64 / subject.count as f64
}

/// Whether a pass keeps its promise, and whether it is close enough to stop.
fn verdict(pass: &Pass, subject: &Subject, target: Target) -> (bool, bool) {
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
fn search_step(
    subject: &Subject,
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
    let mut log_step = f64::from(guess).log2() + ahead.clamp(-6.0, 6.0);
    let (mut low, mut high) = (f64::from(MIN_STEP).log2(), 8.0f64);
    let mut centroids = chosen.centroids;
    let mut best: Option<(Pass, f32)> = None;
    let mut previous: Option<(f64, f64)> = None;
    let mut closest = f64::INFINITY;
    for passes in 1..=MAX_PASSES {
        log_step = log_step.clamp(low, high);
        // Twelve bits of mantissa: mathematical libraries differ in the last one,
        // and streams must not.
        let step = f32::from_bits((log_step.exp2() as f32).to_bits() & !0x7ff);
        let pass = run(step, centroids);
        centroids = self::centroids(&pass.drift);
        let left = octaves_left(&pass, subject, target);
        let (kept, close) = verdict(&pass, subject, target);
        closest = closest.min(match target {
            Target::Bits(_) => bits_per_value(&pass, subject),
            _ => pass.squared_error / subject.energy,
        });
        // More bits than allowed ask for larger steps; more error than
        // allowed for smaller ones.
        let larger = matches!(target, Target::Bits(_)) != kept;
        if larger {
            low = log_step;
        } else {
            high = log_step;
        }
        let better = kept
            && best.as_ref().is_none_or(|(b, _)| match target {
                Target::Bits(_) => pass.bytes.len() > b.bytes.len(),
                _ => pass.squared_error > b.squared_error,
            });
        if better {
            best = Some((pass, step));
        }
        if close || high - low < 1e-4 || passes == MAX_PASSES {
            return match best {
                Some((pass, step)) => finish(pass, &chosen.plan, subject, target, step, passes),
                None => Err(unreachable_target(target, closest)),
            };
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
        log_step = if next > low && next < high { next } else { 0.5 * (low + high) };
    }
    Err(unreachable_target(target, closest))
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
    subject: &Subject,
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
        step: f64::from(step) * f64::from(subject.exponent).exp2(),
        nmse,
        passes,
        bits: pass.bits,
    };
    let mut recon = if plan.transposed { pass.recon.transposed() } else { pass.recon };
    scale_by(&mut recon.values, subject.exponent);
    Ok(Encoded { bytes: pass.bytes, recon: recon.values, report })
}
