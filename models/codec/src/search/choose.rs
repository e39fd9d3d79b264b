//! Which plan of a profile suits a matrix near a step.
//!
//! Plans are compared by distortion + λ · rate on a sample of the matrix, the
//! same for all of them, and on a second one where they are close: most by prediction
//! ([`Predictor`]), the best of those and what cannot be predicted by coding a part of
//! the sample. Knows nothing of targets: which step meets
//! one is found outside.

use std::cell::RefCell;
use std::cmp::Reverse;

use crate::bits::Bits;
use crate::entropy::scales::FLAT;
use crate::format::trinity::plan::{Entropy, Plan, Prediction, Tile};
use crate::format::trinity::tiles::code::EncodeTile;
use crate::matrix::Matrix;
use crate::search::estimate;
use crate::search::input::ERROR_PER_SQUARED_STEP;
use crate::search::predictor::{Measured, Predicted, Predictor, tried_bits_per_value};
use crate::search::profile::Profile;
use crate::search::rules::{Rule, THRESHOLDS};
use crate::search::sample::{Beyond, Sample, Samples};
use crate::search::trial::{Slopes, Trial};
use crate::stage::transform::Transform;
use crate::stage::trellis::Centroids;
use trinity_numeric::simd;

/// What might have been chosen instead.
#[derive(Debug, Clone)]
pub struct Next {
    pub plan: Plan,
    /// Bits per value by which it seems to cost more.
    pub behind: f64,
}

/// What plans are compared on.
#[derive(Clone, Copy)]
struct Choice<'a> {
    profile: &'a Profile,
    samples: &'a Samples<'a>,
    step: f32,
}

impl Choice<'_> {
    fn lambda(self) -> f64 {
        f64::from(self.profile.stages.lambda)
    }

    fn few_values(self) -> bool {
        self.samples.input.count <= THRESHOLDS.few_values
    }
}

/// What a plan takes when a part of the sample is coded, points shifted by so much.
fn trial(plan: &Plan, choice: Choice<'_>, shifts: Centroids) -> Trial {
    let Choice { profile, samples, step } = choice;
    let decision = profile.decision();
    let input = samples.input;
    let sample = samples.first(plan.transposed);
    let tried = sample.tried();
    let Matrix { rows, cols, .. } = *tried;
    let tile = Tile { row: 0, col: 0, rows, cols };
    let scalars = &input.scalars(plan, step, shifts);
    let job =
        EncodeTile { plan, scalars, decision, matrix: tried, tile: &tile, feedback: None, scales: None };
    let (coded, _) = simd::widest(job);
    let count = (rows * cols) as f64;
    // Lane states and the like weigh nothing in a tile of full size.
    let Bits { symbols, raw, side, prediction, .. } = coded.bits;
    // What is said of a row holds for all of its columns; modes are of blocks.
    let (of_blocks, of_rows) =
        if plan.prediction.intra { (prediction, side) } else { (0.0, side + prediction) };
    let of_values = (symbols + raw + of_blocks) / count;
    let bits_per_value = sample.bits_per_value(plan, of_values, of_rows / rows as f64);
    let error_per_value = coded.squared_error / count;
    let cost = error_per_value / f64::from(step).powi(2) + choice.lambda() * bits_per_value;
    Trial {
        plan: plan.clone(),
        cost,
        tried_cost: cost,
        bits_per_value,
        error_per_value,
        slopes: Slopes::STEEPEST,
        centroids: centroids(&coded.drift, input.count as f64 / count),
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

/// Values that [`plain`] goes on by: a prime, so that it meets every column.
const PLAIN_STEP: usize = 3;

/// Entropy and error per value of a plain quantizer, as far as a sample tells.
fn plain(values: &[f32], offset: f32, step: f32) -> (f64, f64) {
    // Whatever is beyond may share a count: this is for codes that know few levels.
    const LIMIT: i32 = 1023;
    let inverse = 0.5 / step;
    let mut counts = [0u32; 2 * LIMIT as usize + 1];
    let mut error = 0.0;
    let values = || values.iter().step_by(PLAIN_STEP);
    for value in values() {
        let level = ((value - offset) * inverse).round_ties_even();
        error += f64::from(value - offset - 2.0 * step * level).powi(2);
        counts[((level as i32).clamp(-LIMIT, LIMIT) + LIMIT) as usize] += 1;
    }
    let count = values().count().max(1) as f64;
    let seen = counts.iter().filter(|&&n| n > 0);
    let entropy: f64 = seen.clone().map(|&n| f64::from(n) / count * (count / f64::from(n)).log2()).sum();
    // A sample's entropy falls short by what its counts were fitted to it.
    let bias = seen.count().saturating_sub(1) as f64 / (2.0 * std::f64::consts::LN_2 * count);
    (entropy + bias, error / count)
}

/// Whether a code that goes bit by bit, and so slowly, has a chance: by the
/// entropy of what it would code.
fn binary_may_win(plan: &Plan, best: &Trial, choice: Choice<'_>) -> bool {
    if plan.transform != Transform::None || plan.prediction != Prediction::NONE {
        // Stages that pay before a slow code are those that pay before a quick one.
        return plan.transform == best.plan.transform
            && plan.prediction == best.plan.prediction
            && !is_learned(plan);
    }
    let Choice { samples, step, .. } = choice;
    let sample = &samples.first(plan.transposed).matrix;
    let (entropy, error) = plain(&sample.values, samples.input.offset(plan), step);
    error / f64::from(step).powi(2) + choice.lambda() * (entropy - THRESHOLDS.binary_excess) < best.cost
}

/// Whether a later plan is cheaper by a margin. Simpler plans come first in a
/// profile, so they win ties.
fn is_cheaper(a: &Trial, b: &Trial, choice: Choice<'_>) -> bool {
    let few_values = choice.few_values();
    let size = |t: &Trial| match t.plan.transform {
        Transform::None => 0,
        Transform::Klt { log2_size } => log2_size,
        _ => 1,
    };
    let margin = match (size(a), size(b)) {
        (smaller, larger) if larger > smaller && is_learned(&a.plan) => THRESHOLDS.larger_margin,
        (larger, smaller) if larger > smaller && is_learned(&b.plan) && !few_values => {
            THRESHOLDS.smaller_margin
        }
        (0, 1..) => THRESHOLDS.transform_margin,
        (2.., 1) if !few_values => THRESHOLDS.fixed_margin,
        _ => THRESHOLDS.margin(),
    };
    b.cost < a.cost - choice.lambda() * margin
}

/// The cheapest plan of a profile near `step`, and the next that are not like it.
pub fn choose(profile: &Profile, plans: &[Plan], samples: &Samples<'_>, step: f32) -> (Trial, Vec<Next>) {
    let choice = Choice { profile, samples, step };
    let (predicted, tried): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(|plan| estimate::knows(plan));
    // What is best by prediction is tried like the others, so that costs compare.
    let predicted = choose_by_prediction(&predicted, choice);
    // Blocks leave much the same scales behind, predicted or not.
    let weighed = |plan: &Plan| {
        let alike = Plan { prediction: Prediction::NONE, ..plan.clone() };
        let found = plan.prediction.intra.then(|| choose_by_prediction(&[&alike], choice)).flatten();
        Plan { weights: found.map_or(plan.weights, |(found, _)| found.plan.weights), ..plan.clone() }
    };
    let (binary, others): (Vec<&Plan>, Vec<&Plan>) =
        tried.into_iter().partition(|plan| plan.entropy == Entropy::Binary);
    let next = predicted.as_ref().map_or_else(Vec::new, |(_, next)| next.clone());
    let predicted = predicted.map(|(predictor, _)| predicted_whole(predictor, choice));
    let best = others.into_iter().chain(binary).fold(predicted, |best: Option<Trial>, plan| {
        let has_chance = |best: &Trial| {
            plan.entropy != Entropy::Binary
                || !profile.rules.has(Rule::BinaryEntropy)
                || binary_may_win(plan, best, choice)
        };
        if !best.as_ref().is_none_or(has_chance) {
            return best;
        }
        let new = trial(&weighed(plan), choice, Centroids::default());
        let Some(best) = best else { return Some(new) };
        // A code without stages is compared as both were coded: it has as little to
        // learn as its symbols.
        let is_plain = new.plan.transform == Transform::None && new.plan.prediction == Prediction::NONE;
        let best_cost = if is_plain { best.tried_cost } else { best.cost };
        let as_tried = Trial { cost: best_cost, ..best.clone() };
        Some(if is_cheaper(&as_tried, &new, choice) { new } else { best })
    });
    (best.unwrap_or_else(|| unreachable!("profiles have at least one plan")), next)
}

/// What a predicted plan will take of the whole: what it takes when a part of the
/// sample is coded, as far as predictions tell the two apart.
fn predicted_whole(predictor: Trial, choice: Choice<'_>) -> Trial {
    let Choice { samples, step, .. } = choice;
    // Where points are shifted, other levels are chosen, which shift them in turn.
    let once = trial(&predictor.plan, choice, Centroids::default());
    let found = if once.centroids == Centroids::default() {
        once
    } else {
        let found = trial(&predictor.plan, choice, once.centroids);
        Trial { centroids: once.centroids, ..found }
    };
    let sample = samples.first(predictor.plan.transposed);
    let scalars = samples.input.scalars(&predictor.plan, step, Centroids::default());
    let learned = tried_bits_per_value(&predictor.plan, &scalars, sample) - predictor.bits_per_value;
    let Beyond { bits: beyond, error: times, slopes } = samples.beyond(0, step);
    // Ends of paths are errors rather than bits, and the sample's are its own.
    let paths = sample.path_bits_per_value(&predictor.plan);
    // A code that has learned what is rare spends less on it, at the same cost: at
    // low rates, of which a quarter is left with every bit.
    let spent = found.bits_per_value - paths - learned;
    let correction = (THRESHOLDS.bias_correction * (-2.0 * spent).exp2()).min(0.1);
    let fewer = sample.own_path_bits_per_value(&predictor.plan) - paths;
    Trial {
        bits_per_value: spent - correction,
        error_per_value: found.error_per_value * times * (2.0 * (correction - fewer)).exp2(),
        slopes,
        cost: found.cost - choice.lambda() * (learned + beyond),
        ..found
    }
}

/// The plan of least estimated cost, and the next that are not like it.
fn choose_by_prediction(plans: &[&Plan], choice: Choice<'_>) -> Option<(Trial, Vec<Next>)> {
    let Choice { profile, samples, .. } = choice;
    let matrix = &samples.input.matrix;
    let judge = Judge::new(choice, 0);
    let second = samples.second().map(|which| Judge::new(choice, which));
    let Decided { predictor, also, mut best, next } =
        judge.decide(judge.contenders(plans), second.as_ref())?;
    if profile.stages.context_weights.is_empty() {
        return Some((best, next));
    }
    // Much to learn from makes columns cheap to learn.
    let learns = |weights: &&u8| **weights != FLAT || choice.few_values();
    let weights: Vec<u8> = profile.stages.context_weights.iter().filter(learns).copied().collect();
    let weigh = |plan: &Plan| {
        let trial = judge.weigh(&predictor, plan.weights).trial;
        match second.as_ref().zip(also.as_ref()) {
            Some((second, also)) => trial.and(&second.weigh(also, plan.weights).trial),
            None => trial,
        }
    };
    best = choose_weights(&weights, best, weigh, |a, b| if is_cheaper(&a, &b, choice) { b } else { a });
    // Without columns to learn, the longer rows are better unless shown otherwise.
    let flipped = Plan { transposed: !best.plan.transposed, ..best.plan.clone() };
    let longer = (matrix.rows > matrix.cols) == flipped.transposed;
    let allowed = plans.iter().any(|p| p.transposed == flipped.transposed);
    if flipped.weights == FLAT && longer && allowed {
        let flipped = judge.weigh(&judge.predictor(&flipped), FLAT).trial;
        if flipped.cost < best.cost + choice.lambda() * THRESHOLDS.row_scales_margin {
            best = flipped;
        }
    }
    Some((best, next))
}

/// Predicts what plans cost, on one of the samples.
struct Judge<'a> {
    choice: Choice<'a>,
    which: usize,
    /// Bits per value that the whole takes more than the sample.
    beyond: f64,
    /// Plans without a transform: what they cost.
    untransformed: RefCell<Vec<(Plan, f64, Measured)>>,
}

/// A plan on its way into the comparison, and what was found before it.
struct Considered<'c> {
    plan: &'c Plan,
    found: &'c [(Predictor<'c>, Trial)],
    /// Least costs by orientation of plans that learn no transform and that do.
    least: [[f64; 2]; 2],
    /// Whether any plan of the profile learns a transform.
    learns: bool,
}

type Prunes = fn(&Judge<'_>, &Considered<'_>) -> bool;

/// What leaves plans out, the cheapest to ask first.
const PRUNING: [(Rule, Prunes); 7] = [
    (Rule::SmallerTransform, smaller_transform),
    (Rule::MeansBehind, means_behind),
    (Rule::OrientationBehind, orientation_behind),
    (Rule::SmallerFoundNothing, smaller_found_nothing),
    (Rule::SharedBits, shares_nothing),
    (Rule::TooRough, is_too_rough),
    (Rule::NoMeans, has_no_means),
];

/// A learned transform of a large matrix, unless it is the first, or of the size of the first, or
/// may be better than a larger one: where that one is best.
fn smaller_transform(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    let Considered { plan, found, .. } = *of;
    let larger = found.iter().any(|(_, t)| is_learned(&t.plan) && t.plan.transform != plan.transform);
    let best = found.iter().map(|(_, trial)| trial).min_by(|a, b| a.cost.total_cmp(&b.cost));
    let is_like = |best: &Plan| {
        is_learned(best) && best.transposed == plan.transposed && best.prediction == plan.prediction
    };
    is_learned(plan) && !judge.choice.few_values() && larger && !best.is_some_and(|best| is_like(&best.plan))
}

/// Means that do not pay without a transform do not pay with one.
fn means_behind(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    let plan = of.plan;
    if plan.transform == Transform::None || plan.prediction == Prediction::NONE {
        return false;
    }
    let untransformed = judge.untransformed.borrow();
    let beside = untransformed.iter().filter(|(other, ..)| other.transposed == plan.transposed);
    let least = beside.clone().map(|(_, cost, _)| *cost).fold(f64::INFINITY, f64::min);
    let own = beside.clone().find(|(other, ..)| other.prediction == plan.prediction);
    let behind = own.is_none_or(|(_, cost, _)| judge.is_far(*cost, least, THRESHOLDS.means_behind));
    least.is_finite() && behind
}

/// A larger transform does not save an orientation that is far behind.
fn orientation_behind(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    let all = of.least.as_flattened().iter().copied().fold(f64::INFINITY, f64::min);
    let [unlearned, smaller] = of.least[usize::from(of.plan.transposed)];
    let is_far = || judge.is_far(unlearned.min(smaller), all, THRESHOLDS.orientation_behind);
    is_learned(of.plan) && smaller.is_finite() && is_far()
}

/// Nothing is left for a larger transform where a smaller one finds nothing, or little.
fn smaller_found_nothing(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    let Judge { choice, .. } = judge;
    let needed = if choice.few_values() { choice.lambda() * THRESHOLDS.larger_margin } else { 0.0 };
    let [unlearned, smaller] = of.least[usize::from(of.plan.transposed)];
    !of.found.is_empty() && is_learned(of.plan) && smaller.is_finite() && smaller > unlearned - needed
}

/// Columns that share nothing have nothing to learn; unless there is nothing else.
fn shares_nothing(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    let shared_bits = || judge.sample(of.plan).shared_bits();
    !of.found.is_empty() && is_learned(of.plan) && shared_bits() < THRESHOLDS.shared_bits
}

/// Fixed transforms gather what is smooth alone; where learned ones are allowed, which find the rest.
fn is_too_rough(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    !of.found.is_empty() && of.learns && judge.sample(of.plan).is_too_rough(of.plan)
}

fn has_no_means(judge: &Judge<'_>, of: &Considered<'_>) -> bool {
    !of.found.is_empty() && !judge.sample(of.plan).has_means(of.plan)
}

fn is_learned(plan: &Plan) -> bool {
    matches!(plan.transform, Transform::Klt { .. })
}

impl<'a> Judge<'a> {
    fn new(choice: Choice<'a>, which: usize) -> Self {
        let beyond = choice.samples.beyond(which, choice.step).bits;
        Self { choice, which, beyond, untransformed: RefCell::default() }
    }

    fn sample(&self, plan: &Plan) -> &'a Sample {
        self.choice.samples.of(self.which, plan.transposed)
    }

    fn predictor(&self, plan: &Plan) -> Predictor<'a> {
        let Choice { samples, step, .. } = self.choice;
        let scalars = samples.input.scalars(plan, step, Centroids::default());
        Predictor::new(plan, &scalars, self.sample(plan))
    }

    fn weigh(&self, predictor: &Predictor<'_>, weights: u8) -> Predicted {
        let like = |plan: &Plan| {
            plan.transposed == predictor.plan.transposed && plan.prediction == predictor.plan.prediction
        };
        let untransformed = self.untransformed.borrow();
        let unlearned = untransformed.iter().find(|(plan, ..)| is_learned(&predictor.plan) && like(plan));
        let unlearned = unlearned.map(|(_, _, measured)| *measured);
        let mut predicted = predictor.with_weights(weights, self.choice.lambda(), unlearned);
        predicted.trial.bits_per_value += self.beyond;
        predicted
    }

    /// A prediction of a plan, which others are seen beside if it has no transform.
    fn judge(&self, plan: &Plan) -> (Predictor<'a>, Trial) {
        let predictor = self.predictor(plan);
        let Predicted { trial, measured } = self.weigh(&predictor, plan.weights);
        if plan.transform == Transform::None {
            self.untransformed.borrow_mut().push((plan.clone(), trial.cost, measured));
        }
        (predictor, trial)
    }

    /// Whether a cost is more than so many bits per value behind another.
    fn is_far(&self, cost: f64, least: f64, bits: f64) -> bool {
        cost > least + self.choice.lambda() * bits
    }

    /// Predicts all plans that no rule leaves out.
    fn contenders(&self, plans: &[&Plan]) -> Vec<(Predictor<'a>, Trial)> {
        let learns = plans.iter().any(|plan| is_learned(plan));
        let mut found: Vec<(Predictor<'a>, Trial)> = Vec::new();
        let mut least = [[f64::INFINITY; 2]; 2];
        for plan in self.by_transform(plans) {
            let considered = Considered { plan, found: &found, least, learns };
            let left_out = |(rule, prunes): &(Rule, Prunes)| {
                self.choice.profile.rules.has(*rule) && prunes(self, &considered)
            };
            if PRUNING.iter().any(left_out) {
                continue;
            }
            let (predictor, trial) = self.judge(plan);
            let own = &mut least[usize::from(plan.transposed)][usize::from(is_learned(plan))];
            *own = own.min(trial.cost);
            found.push((predictor, trial));
        }
        found
    }

    /// As a profile lists them, but for all plans of a transform in a row. With many
    /// rows to learn from the larger of learned ones come first, which find what the
    /// smaller find.
    fn by_transform<'p>(&self, plans: &[&'p Plan]) -> Vec<&'p Plan> {
        let size = |plan: &Plan| match plan.transform {
            Transform::Klt { log2_size } if !self.choice.few_values() => Some(Reverse(log2_size)),
            _ => None,
        };
        let first = |like: &dyn Fn(&Plan) -> bool| plans.iter().position(|plan| like(plan));
        let place = |plan: &Plan| match size(plan) {
            Some(_) => first(&is_learned),
            None => first(&|other| other.transform == plan.transform),
        };
        let mut sorted = plans.to_vec();
        sorted.sort_by_key(|plan| (place(plan), size(plan)));
        sorted
    }

    /// The best of them, and the next that are not like it; those that are close are
    /// seen on a second sample, too.
    fn decide(&self, found: Vec<(Predictor<'a>, Trial)>, second: Option<&Self>) -> Option<Decided<'a>> {
        let mut costs: Vec<f64> = found.iter().map(|(_, trial)| trial.cost).collect();
        costs.sort_by(f64::total_cmp);
        let last = costs.get(THRESHOLDS.finalists - 1).or(costs.last())?;
        let close = (costs[0] + self.choice.lambda() * THRESHOLDS.finalist_behind).min(*last);
        let bound = self.choice.profile.rules.bound(Rule::Finalists, close, f64::INFINITY);
        let others: Vec<Trial> = found.iter().map(|(_, trial)| trial.clone()).collect();
        let finalists: Vec<_> = found.into_iter().filter(|(_, trial)| trial.cost <= bound).collect();
        let second = second.filter(|_| finalists.len() > 1);
        let judged = finalists.into_iter().map(|(predictor, trial)| {
            let also = second.map(|second| second.beside_untransformed(&trial.plan));
            let best = also.as_ref().map_or(trial.clone(), |(_, other)| trial.and(other));
            Decided { predictor, also: also.map(|(predictor, _)| predictor), best, next: Vec::new() }
        });
        let better = |a: Decided<'a>, b: Decided<'a>| {
            if is_cheaper(&a.best, &b.best, self.choice) { b } else { a }
        };
        let best = judged.reduce(better)?;
        // What learned less than it seemed to gives way to what has nothing to learn; of
        // coefficients, orientations are as hard to tell apart.
        let chosen = &best.best.plan;
        let is_rebased = self.choice.samples.input.signalled.is_some();
        let learns_less =
            |plan: &Plan| plan.transform != chosen.transform && !(is_learned(chosen) && is_learned(plan));
        let is_across = |plan: &Plan| is_rebased && plan.transposed != chosen.transposed;
        let behind = |trial: &Trial| (trial.cost - costs[0]) / self.choice.lambda();
        let least = |like: &dyn Fn(&Plan) -> bool| {
            let alike = others.iter().filter(|trial| like(&trial.plan));
            let least = alike.min_by(|a, b| a.cost.total_cmp(&b.cost))?;
            Some(Next { behind: behind(least), plan: least.plan.clone() })
        };
        let across = least(&|plan| is_across(plan) && !learns_less(plan));
        let next = least(&learns_less).into_iter().chain(across).collect();
        Some(Decided { next, ..best })
    }

    /// A prediction of a plan, after the one without its transform.
    fn beside_untransformed(&self, plan: &Plan) -> (Predictor<'a>, Trial) {
        let unlearned = Plan { transform: Transform::None, ..plan.clone() };
        let is_seen = self.untransformed.borrow().iter().any(|(seen, ..)| *seen == unlearned);
        if is_learned(plan) && !is_seen {
            self.judge(&unlearned);
        }
        self.judge(plan)
    }
}

struct Decided<'a> {
    predictor: Predictor<'a>,
    also: Option<Predictor<'a>>,
    best: Trial,
    next: Vec<Next>,
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
    let with = |best: Trial, weights: u8| {
        let other = trial(&Plan { weights, ..best.plan.clone() });
        cheaper(best, other)
    };
    let last = weights.len().saturating_sub(1);
    let middle = (last / 2).max(1);
    let mut best = first;
    for index in [middle, middle - 1].into_iter().filter(|index| (1..=last).contains(index)) {
        best = with(best, weights[index]);
    }
    for index in middle + 1..=last {
        if best.plan.weights != weights[index - 1] {
            break;
        }
        best = with(best, weights[index]);
    }
    if let Some(&flat) = flat { with(best, flat) } else { best }
}
