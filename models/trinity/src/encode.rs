//! Choosing: which plan suits a matrix, and which step meets a target.
//!
//! Plans are compared by distortion + λ · rate on a strip of the matrix; the
//! step is then searched with whole passes, so that the target is met by the
//! very bytes that are returned.

use std::cell::OnceCell;
use std::sync::OnceLock;

use crate::Error;
use crate::basis::Basis;
use crate::estimate::{self, Estimate, Levels};
use crate::plan::{Entropy, Plan, Prediction, Scalars, Tile};
use crate::precondition::Preconditioning;
use crate::profile::Profile;
use crate::report::{Bits, Report};
use crate::scales::FLAT;
use crate::stream::{Matrix, Pass, encode_pass, encode_tile, scale_by};
use crate::tile::Decision;
use crate::transform::Transform;
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
/// Bits per value by which a plain quantizer's entropy may exceed the best plan
/// for its code to be tried: contexts beat entropy, if not by much.
const BINARY_HOPE: f64 = 0.1;
/// Neighbours must be alike by this share of their variance for a fixed
/// transform to be tried beside learned ones, which find most of it, too.
const ALIKE: f64 = 0.5;
/// Bits per value by which an alternative must be cheaper to be taken: the
/// strip is only a sample.
const MARGIN: f64 = 0.004;
/// The same between orientations, whose strips are samples of their own.
const ORIENTATION_MARGIN: f64 = 0.015;
/// The margin of a larger learned transform over a smaller one: it takes twice
/// the time.
const LARGER_MARGIN: f64 = 0.25;
/// Matrices of no more values may do without scales of columns.
const FEW_VALUES: usize = 1 << 16;
/// The margin of a fixed transform over none.
const FIXED_MARGIN: f64 = 0.01;
/// What scales of rows must be worth for shorter rows to be kept.
const ROW_SCALES_MARGIN: f64 = 0.03;
/// What the ends of trellis paths cost in a segment.
const PATH_END_BITS: f64 = 10.0;
/// The margin of a learned transform, which slows both sides down.
const LEARNED_MARGIN: f64 = 0.01;

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

/// What a plan costs on the strip.
struct Trial {
    plan: Plan,
    cost: f64,
    bits_per_value: f64,
    error_per_value: f64,
    centroids: Centroids,
}

impl Trial {
    /// Bits per value above what the error takes at a rate of six decibels a bit.
    fn gap(&self) -> f64 {
        self.bits_per_value + 0.5 * self.error_per_value.max(f64::MIN_POSITIVE).log2()
    }
}

fn trial(plan: &Plan, subject: &Subject<'_>, step: f32, decision: (Decision, f32)) -> Trial {
    let lambda = decision.1;
    // What does not learn from rows shows its worth on fewer of them.
    let rows = if plan.entropy == Entropy::Static { STRIP_ROWS / 2 } else { STRIP_ROWS };
    let strip = subject.strip(plan, rows, STRIP_COLS.max(plan.transform.width()));
    let Matrix { rows, cols, .. } = strip;
    let tile = Tile { row: 0, col: 0, rows, cols };
    let (coded, _) =
        encode_tile(plan, &subject.scalars(plan, step, Centroids::default()), decision, &strip, &tile);
    let count = (rows * cols) as f64;
    // Lane states and the like weigh nothing in a tile of full size.
    let Bits { symbols, raw, side, prediction, .. } = coded.bits;
    // What is said of a row holds for all of its columns; modes are of blocks.
    let (of_blocks, of_rows) =
        if plan.prediction.intra { (prediction, side) } else { (0.0, side + prediction) };
    let of_values = (symbols + raw + of_blocks) / count;
    let bits_per_value = subject.bits_per_value(plan, of_values, of_rows / rows as f64);
    let error_per_value = coded.squared_error / count;
    Trial {
        plan: plan.clone(),
        cost: error_per_value / f64::from(step).powi(2) + f64::from(lambda) * bits_per_value,
        bits_per_value,
        error_per_value,
        centroids: centroids(&coded.drift, subject.count as f64 / count),
    }
}

/// Shifts that put reconstruction points where values were, if they are worth
/// their bytes in a matrix `times` as large as what was coded.
fn centroids(drift: &[[(f64, u64); 3]; 2], times: f64) -> Centroids {
    let shifts = drift.map(|quantizer| {
        quantizer.map(|(sum, count)| {
            if count < 16 { 0 } else { (sum / count as f64 * 64.0).round().clamp(-31.0, 31.0) as i8 }
        })
    });
    // What a smaller error is worth in bits where a squared step has 0.28 of it,
    // for all rows: drift is a sample of a quarter of them.
    let squares = drift.as_flattened().iter().zip(shifts.as_flattened());
    let saved: f64 = squares.map(|(d, &shift)| d.1 as f64 * (f64::from(shift) / 64.0).powi(2)).sum();
    if times * 4.0 * saved * 0.72 / ERROR_PER_SQUARED_STEP < CENTROID_BITS {
        Centroids::default()
    } else {
        shifts
    }
}

/// What a header spends on centroids.
const CENTROID_BITS: f64 = 48.0;

/// Bits per value that columns of a strip share with one another, about: what
/// a transform that knows their correlations could save.
fn shared_bits(strip: &Matrix) -> f64 {
    // As many columns as a strip has where there are rows enough.
    let (rows, cols) = (strip.rows as f64, strip.cols.min(STRIP_COLS));
    let mut moments = vec![0.0f32; cols * cols];
    for row in strip.values.chunks_exact(strip.cols.max(1)).map(|row| &row[..cols]) {
        for (moments, &own) in moments.chunks_exact_mut(cols).zip(row) {
            moments.iter_mut().zip(row).for_each(|(m, &other)| *m += own * other);
        }
    }
    let own: Vec<f64> =
        (0..cols).map(|i| f64::from(moments[i * (cols + 1)]).max(f64::MIN_POSITIVE)).collect();
    let correlation = |i: usize| f64::from(moments[i]).powi(2) / (own[i / cols] * own[i % cols]);
    let sum: f64 =
        (0..cols * cols).filter(|i| i / cols < i % cols).map(|i| correlation(i) - 1.0 / rows).sum();
    // The first term of the logarithm of the determinant of correlations.
    sum / (2.0 * std::f64::consts::LN_2 * cols.max(1) as f64)
}

/// Shares of a strip's variance that neighbours along a row, and in a column,
/// have in common.
fn alike(strip: &Matrix) -> (f64, f64) {
    let (cols, count) = (strip.cols.max(1), strip.values.len().max(1) as f64);
    let mean = (sum(&strip.values, |v| v) / count) as f32;
    // Products and squares, in eight interleaved parts each.
    let mut sums = [[[0.0f32; 8]; 2]; 2];
    let add = |[products, squares]: &mut [[f32; 8]; 2], a: &[f32], b: &[f32]| {
        for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
            for i in 0..8 {
                let (a, b) = (a[i] - mean, b[i] - mean);
                products[i] += a * b;
                squares[i] += 0.5 * (a * a + b * b);
            }
        }
    };
    // Every other row says enough.
    let (of_along, of_above) = sums.split_at_mut(1);
    for rows in strip.values.chunks_exact(2 * cols) {
        let (row, below) = rows.split_at(cols);
        add(&mut of_along[0], &row[..cols - 1], &row[1..]);
        add(&mut of_above[0], row, below);
    }
    let [along, above] = sums.map(|[products, squares]| {
        let share = products.iter().sum::<f32>() / squares.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        f64::from(share).max(0.0).powi(2)
    });
    (along, above)
}

/// Entropy and error per value of a plain quantizer, as far as a strip tells.
fn plain(values: &[f32], offset: f32, step: f32) -> (f64, f64) {
    // Whatever is beyond may share a count: this is for codes that know few levels.
    const LIMIT: i32 = 1023;
    let inverse = 0.5 / step;
    let mut counts = [0u32; 2 * LIMIT as usize + 1];
    let mut error = 0.0;
    for value in values {
        let level = ((value - offset) * inverse).round_ties_even();
        error += f64::from(value - offset - 2.0 * step * level).powi(2);
        counts[((level as i32).clamp(-LIMIT, LIMIT) + LIMIT) as usize] += 1;
    }
    let count = values.len().max(1) as f64;
    let seen = counts.iter().filter(|&&n| n > 0);
    let entropy: f64 = seen.clone().map(|&n| f64::from(n) / count * (count / f64::from(n)).log2()).sum();
    // A sample's entropy falls short by what its counts were fitted to it.
    let bias = seen.count().saturating_sub(1) as f64 / (2.0 * std::f64::consts::LN_2 * count);
    (entropy + bias, error / count)
}

/// Whether a code that goes bit by bit, and so slowly, has a chance: by the
/// entropy of what it would code.
fn is_hopeful(plan: &Plan, best: &Trial, subject: &Subject<'_>, step: f32, lambda: f32) -> bool {
    if plan.transform != Transform::None || plan.prediction != Prediction::NONE {
        // Fixed stages that pay before a slow code pay before a quick one, too.
        let fixed = !matches!(best.plan.transform, Transform::None | Transform::Klt { .. });
        return fixed || best.plan.prediction != Prediction::NONE || best.plan.entropy == Entropy::Binary;
    }
    let strip = subject.strip(plan, STRIP_ROWS, STRIP_COLS);
    let (entropy, error) = plain(&strip.values, subject.offset(plan), step);
    error / f64::from(step).powi(2) + f64::from(lambda) * (entropy - BINARY_HOPE) < best.cost
}

/// A strip, and what it has to offer to transforms.
struct Sample {
    shared_bits: f64,
    alike: (f64, f64),
    strip: Matrix,
}

impl Sample {
    fn new(strip: Matrix) -> Self {
        Self { shared_bits: shared_bits(&strip), alike: alike(&strip), strip }
    }
}

/// What a plan costs on a strip by [`estimate`], its weights aside.
struct Guess {
    plan: Plan,
    levels: Levels,
}

impl Guess {
    fn new(plan: &Plan, subject: &Subject<'_>, step: f32, strip: &Matrix) -> Self {
        let scalars = subject.scalars(plan, step, Centroids::default());
        Self { plan: plan.clone(), levels: Levels::new(plan, &scalars, strip) }
    }

    fn with_weights(&self, weights: u8, subject: &Subject<'_>, lambda: f32, strip: &Matrix) -> Trial {
        let plan = Plan { weights, ..self.plan.clone() };
        let Estimate { of_values, of_rows } = self.levels.estimate(weights);
        let count = strip.values.len() as f64;
        let bits_per_value = subject.bits_per_value(&plan, of_values / count, of_rows / strip.rows as f64);
        Trial {
            cost: self.levels.squared_error / count + f64::from(lambda) * bits_per_value,
            bits_per_value,
            error_per_value: 0.0,
            centroids: Centroids::default(),
            plan,
        }
    }
}

/// The better of two plans: the later one must be cheaper by a margin. Simpler
/// plans come first in a profile, so they win ties.
fn cheaper(a: Trial, b: Trial, lambda: f32) -> Trial {
    let learned = |t: &Trial| matches!(t.plan.transform, Transform::Klt { .. });
    let size = |t: &Trial| if let Transform::Klt { log2_size } = t.plan.transform { log2_size } else { 0 };
    let margin = if learned(&a) && size(&b) > size(&a) {
        LARGER_MARGIN
    } else if learned(&b) && !learned(&a) {
        LEARNED_MARGIN
    } else if a.plan.transform == Transform::None && b.plan.transform != Transform::None {
        FIXED_MARGIN
    } else if a.plan.transposed != b.plan.transposed {
        ORIENTATION_MARGIN
    } else {
        MARGIN
    };
    if b.cost < a.cost - f64::from(lambda) * margin { b } else { a }
}

/// The cheapest plan of a profile near `step`.
fn choose(profile: &Profile, plans: &[Plan], subject: &Subject<'_>, step: f32) -> Trial {
    let decision = (profile.stages.quantization.decision(), profile.stages.lambda);
    let (guessed, tried): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(|plan| estimate::knows(plan));
    // What is best by guess is tried like the others, so that costs compare.
    let guessed = choose_by_guess(profile, &guessed, subject, step);
    // Blocks leave much the same scales behind, predicted or not.
    let weighed = |plan: &Plan| {
        let alike = Plan { prediction: Prediction::NONE, ..plan.clone() };
        let found = choose_by_guess(profile, &[&alike], subject, step);
        Plan { weights: found.map_or(plan.weights, |found| found.weights), ..plan.clone() }
    };
    let (binary, others): (Vec<&Plan>, Vec<&Plan>) =
        tried.into_iter().partition(|plan| plan.entropy == Entropy::Binary);
    let best = guessed.iter().chain(others).chain(binary).fold(None, |best: Option<Trial>, plan| {
        let has_chance = |best: &Trial| {
            plan.entropy != Entropy::Binary || is_hopeful(plan, best, subject, step, decision.1)
        };
        if !best.as_ref().is_none_or(has_chance) {
            return best;
        }
        let new = if plan.prediction.intra {
            trial(&weighed(plan), subject, step, decision)
        } else {
            trial(plan, subject, step, decision)
        };
        Some(match best {
            Some(best) => cheaper(best, new, decision.1),
            None => new,
        })
    });
    best.unwrap_or_else(|| unreachable!("profiles have at least one plan"))
}

/// The plan of least estimated cost.
fn choose_by_guess(profile: &Profile, plans: &[&Plan], subject: &Subject<'_>, step: f32) -> Option<Plan> {
    let lambda = profile.stages.lambda;
    let strips: [OnceCell<Sample>; 2] = Default::default();
    let sample = |plan: &Plan| {
        strips[usize::from(plan.transposed)]
            .get_or_init(|| Sample::new(subject.strip(plan, STRIP_ROWS, STRIP_COLS)))
    };
    let learns = plans.iter().any(|plan| matches!(plan.transform, Transform::Klt { .. }));
    let too_rough = |plan: &Plan| {
        let (along, above) = sample(plan).alike;
        match plan.transform {
            Transform::Row { .. } => along < ALIKE,
            Transform::Block { .. } => along.min(above) < ALIKE,
            _ => false,
        }
    };
    let guess_of = |plan: &Plan| Guess::new(plan, subject, step, &sample(plan).strip);
    let weigh =
        |guess: &Guess, weights: u8| guess.with_weights(weights, subject, lambda, &sample(&guess.plan).strip);
    let mut best: Option<(Guess, Trial)> = None;
    // Least costs by orientation of plans that learn no transform and that do.
    let mut least = [[f64::INFINITY; 2]; 2];
    for plan in plans {
        let learned = matches!(plan.transform, Transform::Klt { .. });
        let least = &mut least[usize::from(plan.transposed)];
        // What cannot win is not tried, unless there is nothing else: nothing is
        // left for a larger transform where a smaller one finds nothing.
        let found_nothing = least[1].is_finite() && least[1] > least[0];
        if learned && best.is_some() && (found_nothing || sample(plan).shared_bits < LEARNED_MARGIN / 2.0) {
            continue;
        }
        if learns && best.is_some() && too_rough(plan) {
            continue;
        }
        let new = guess_of(plan);
        let trial = weigh(&new, plan.weights);
        least[usize::from(learned)] = least[usize::from(learned)].min(trial.cost);
        best = match best {
            Some((guess, before)) => {
                let better = cheaper(before, trial, lambda);
                Some(if better.plan == new.plan { (new, better) } else { (guess, better) })
            }
            None => Some((new, trial)),
        };
    }
    let (guess, mut best) = best?;
    if profile.stages.context_weights.is_empty() {
        return Some(best.plan);
    }
    // Much to learn from makes columns cheap to learn.
    let learns = |weights: &&u8| **weights != FLAT || subject.count <= FEW_VALUES;
    let weights: Vec<u8> = profile.stages.context_weights.iter().filter(learns).copied().collect();
    best = choose_weights(&weights, best, |plan| weigh(&guess, plan.weights), |a, b| cheaper(a, b, lambda));
    // Without columns to learn, the longer rows are better unless shown otherwise.
    let turned = Plan { transposed: !best.plan.transposed, ..best.plan.clone() };
    let longer = (subject.matrix.rows > subject.matrix.cols) == turned.transposed;
    let allowed = plans.iter().any(|p| p.transposed == turned.transposed);
    if turned.weights == FLAT && longer && allowed {
        let turned = guess_of(&turned);
        let turned = weigh(&turned, FLAT);
        if turned.cost < best.cost + f64::from(lambda) * ROW_SCALES_MARGIN {
            best = turned;
        }
    }
    Some(best.plan)
}

/// The best of some weights, which a profile lists from steady to quick: from
/// the middle toward where it gets better.
fn choose_weights(
    weights: &[u8],
    first: Trial,
    trial: impl Fn(&Plan) -> Trial,
    cheaper: impl Fn(Trial, Trial) -> Trial,
) -> Trial {
    let (flat, weights) = match weights.split_last() {
        Some((flat, steady)) if *flat == FLAT && !steady.is_empty() => (Some(flat), steady),
        _ => (None, weights),
    };
    let with = |best: Trial, index: usize| {
        let plan = Plan { weights: weights[index], ..best.plan.clone() };
        cheaper(best, trial(&plan))
    };
    let last = weights.len().saturating_sub(1);
    let middle = (last / 2).max(1);
    let mut best = first;
    for index in [middle, middle - 1].into_iter().filter(|index| (1..=last).contains(index)) {
        best = with(best, index);
    }
    for index in middle + 1..=last {
        if best.plan.weights != weights[index - 1] {
            break;
        }
        best = with(best, index);
    }
    match flat {
        Some(&flat) => {
            let plan = Plan { weights: flat, ..best.plan.clone() };
            let plain = trial(&plan);
            cheaper(best, plain)
        }
        None => best,
    }
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
