//! Which plan of a profile suits a matrix near a step.
//!
//! Plans are compared by distortion + λ · rate on a strip of the matrix: most
//! by [`estimate`], the best of those and what cannot be estimated by coding
//! the strip. Knows nothing of targets: which step meets one is found outside.

use std::cell::OnceCell;

use crate::bits::Bits;
use crate::encoder::estimate::{self, Estimate, Levels};
use crate::encoder::profile::Profile;
use crate::encoder::subject::{ERROR_PER_SQUARED_STEP, STRIP_COLS, STRIP_ROWS, Subject, sum};
use crate::entropy::scales::FLAT;
use crate::matrix::Matrix;
use crate::plan::{Entropy, Plan, Prediction, Tile};
use crate::stages::transform::Transform;
use crate::stages::trellis::Centroids;
use crate::stages::trellis::Decision;
use crate::tiles::code::encode_tile;

/// Bits per value by which a plain quantizer's entropy may exceed the best plan
/// for its code to be tried: contexts beat entropy, if not by much.
const BINARY_MARGIN_BITS: f64 = 0.1;
/// Neighbours must be alike by this share of their variance for a fixed
/// transform to be tried beside learned ones, which find most of it, too.
const ALIKE: f64 = 0.5;
/// Bits per value by which an alternative must be cheaper to be taken: the
/// strip is only a sample (`cargo xtask tune trinity-margin`).
pub const MARGIN: f64 = 0.004;
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
/// The margin of a learned transform, which slows both sides down.
const LEARNED_MARGIN: f64 = 0.01;

/// What a plan costs on the strip.
pub struct Trial {
    pub plan: Plan,
    pub cost: f64,
    pub bits_per_value: f64,
    pub error_per_value: f64,
    pub centroids: Centroids,
}

impl Trial {
    /// Bits per value above what the error takes at a rate of six decibels per bit.
    pub fn gap(&self) -> f64 {
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
pub fn centroids(drift: &[[(f64, u64); 3]; 2], times: f64) -> Centroids {
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
fn binary_may_win(plan: &Plan, best: &Trial, subject: &Subject<'_>, step: f32, lambda: f32) -> bool {
    if plan.transform != Transform::None || plan.prediction != Prediction::NONE {
        // Fixed stages that pay before a slow code pay before a quick one, too.
        let fixed = !matches!(best.plan.transform, Transform::None | Transform::Klt { .. });
        return fixed || best.plan.prediction != Prediction::NONE || best.plan.entropy == Entropy::Binary;
    }
    let strip = subject.strip(plan, STRIP_ROWS, STRIP_COLS);
    let (entropy, error) = plain(&strip.values, subject.offset(plan), step);
    error / f64::from(step).powi(2) + f64::from(lambda) * (entropy - BINARY_MARGIN_BITS) < best.cost
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
pub fn choose(profile: &Profile, plans: &[Plan], subject: &Subject<'_>, step: f32) -> Trial {
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
            plan.entropy != Entropy::Binary || binary_may_win(plan, best, subject, step, decision.1)
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
