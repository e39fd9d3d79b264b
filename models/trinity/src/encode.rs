//! Encoding to a target: a plan is chosen ([`choose`]), then the step that
//! meets the target is searched with whole passes, so that it is met by the
//! very bytes that are returned. Knows nothing of how a plan codes.

mod choose;

use std::sync::OnceLock;

use choose::{MARGIN, Trial, centroids, choose};

use crate::Error;
use crate::basis::Basis;
use crate::plan::{Entropy, Plan, Scalars};
use crate::precondition::Preconditioning;
use crate::profile::Profile;
use crate::report::Report;
use crate::stream::{Matrix, Pass, encode_pass, scale_by};
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
/// What the ends of trellis paths cost in a segment.
const PATH_END_BITS: f64 = 10.0;

/// A matrix ready for coding.
struct Subject<'a> {
    basis: Option<&'a Basis>,
    matrix: Matrix,
    /// Made when a plan that asks for it is chosen.
    transposed: OnceLock<Matrix>,
    exponent: i32,
    /// The mean, where it is worth its bytes.
    offset: f32,
    /// Whether zero is a value like others: it must then be a level of codes
    /// that know no symmetry.
    around_zero: bool,
    energy: f64,
    /// Energy around the offset.
    spread: f64,
    count: usize,
}

impl<'a> Subject<'a> {
    /// As it is.
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
        Ok(Self::of(matrix, exponent, None))
    }

    /// In another basis.
    fn turned(&self, preconditioning: Preconditioning, basis: Option<&'a Basis>) -> Self {
        let mut matrix = self.matrix.clone();
        preconditioning.forward(&mut matrix.values, matrix.cols, basis);
        let basis = basis.filter(|_| matches!(preconditioning, Preconditioning::Basis { .. }));
        Self::of(matrix, self.exponent, basis)
    }

    fn of(matrix: Matrix, exponent: i32, basis: Option<&'a Basis>) -> Self {
        let count = matrix.values.len();
        let mean = sum(&matrix.values, |v| v) / count.max(1) as f64;
        let energy = sum(&matrix.values, |v| v * v);
        // A mean that carries less than this is not worth its four bytes.
        let offset = if mean * mean * count as f64 > 1e-3 * energy { mean as f32 } else { 0.0 };
        let spread =
            if offset == 0.0 { energy } else { sum(&matrix.values, |v| (v - f64::from(offset)).powi(2)) };
        // Within a few deviations of the mean, and so often exact.
        let around_zero = f64::from(offset).powi(2) * count as f64 <= 9.0 * spread;
        let transposed = OnceLock::new();
        Self { basis, matrix, transposed, exponent, offset, around_zero, energy, spread, count }
    }

    fn view(&self, plan: &Plan) -> &Matrix {
        if plan.transposed { self.transposed.get_or_init(|| self.matrix.transposed()) } else { &self.matrix }
    }

    /// A few columns from the middle, as a plan would see them.
    fn strip(&self, plan: &Plan, rows: usize, cols: usize) -> Matrix {
        let (all_rows, all_cols) = if plan.transposed {
            (self.matrix.cols, self.matrix.rows)
        } else {
            (self.matrix.rows, self.matrix.cols)
        };
        let enough = rows * cols;
        // What is small is looked at as a whole.
        let whole = self.count <= STRIP_ROWS * STRIP_COLS;
        let (rows, cols) =
            if whole { (all_rows, all_cols) } else { (all_rows.min(rows), all_cols.min(cols)) };
        // Few rows say as much if there are more columns.
        let cols = if rows == all_rows { all_cols.min(cols.max(enough / rows.max(1))) } else { cols };
        // Two halves, a quarter from either side: neighbours are alike.
        let half = cols.div_ceil(2);
        let place = |col: usize| {
            let start = if col < half { all_cols / 4 } else { all_cols / 4 * 3 };
            if cols == all_cols { col } else { start.min(all_cols - cols) / half * half + col }
        };
        let stride = self.matrix.cols;
        let mut values = vec![0.0; rows * cols];
        if plan.transposed {
            for col in 0..cols {
                let source = &self.matrix.values[place(col) * stride..][..rows];
                let targets = values[col..].iter_mut().step_by(cols);
                targets.zip(source).for_each(|(target, &value)| *target = value);
            }
        } else {
            for (target, source) in values.chunks_exact_mut(cols).zip(self.matrix.values.chunks(stride)) {
                for (i, target) in target.chunks_mut(half).enumerate() {
                    target.copy_from_slice(&source[place(i * half)..][..target.len()]);
                }
            }
        }
        Matrix { rows, cols, values }
    }

    /// Bits per value of the whole from those of a strip: of each value, and of
    /// each row, which all of its columns share.
    fn bits_per_value(&self, plan: &Plan, of_value: f64, of_row: f64) -> f64 {
        let cols = if plan.transposed { self.matrix.rows } else { self.matrix.cols };
        // Trellis paths end with their segment, which costs short rows more.
        let segment = cols.min(plan.path_values()).max(1);
        of_value + of_row / cols as f64 + PATH_END_BITS / segment as f64
    }

    /// What is taken from every value. A mean makes the two sides alike, which
    /// binary codes do not need and values that are exactly zero do not survive.
    fn offset(&self, plan: &Plan) -> f32 {
        if plan.entropy == Entropy::Binary && self.around_zero { 0.0 } else { self.offset }
    }

    fn scalars(&self, plan: &Plan, step: f32, centroids: Centroids) -> Scalars {
        Scalars { step, exponent: self.exponent, offset: self.offset(plan), centroids }
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

/// Error of a value over its squared step, about, for a trellis in its prime.
const ERROR_PER_SQUARED_STEP: f64 = 0.28;

/// A step to begin with: what a Gaussian source would take.
fn first_step(target: Target, subject: &Subject<'_>) -> Result<f64, Error> {
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
fn search_step(
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
        centroids = self::centroids(&pass.drift, 1.0);
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
