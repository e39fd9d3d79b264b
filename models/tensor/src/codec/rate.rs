//! Rate control: turn a knob until a target is met.
//!
//! A knob goes from coarse to fine; bits grow with it and error falls, nearly
//! monotonously and nearly linearly in bits. Knows nothing of what it turns.

use trinity_bits::search::{self, Found, Tried};

use super::contract::missed;
use super::{Encoded, Metrics, Rate, TensorCodec};
use crate::{Error, Tensor};

/// A target below this share of which an encoder keeps trying.
const TOLERANCE: f64 = 0.99;
/// Trials before the best so far is taken.
const MAX_TRIALS: usize = 24;

/// An interval of the knob, as a share of its range, in which a cost that still
/// differs jumps.
const JUMP: f64 = 1e-5;
/// Settings tried around a jump, and how far apart they are, as a share of the range.
const PROBES: u32 = 16;
const PROBE_SPACING: f64 = 1.0 / 600.0;

/// What one setting of the knob gave.
#[derive(Debug)]
pub(crate) struct Trial<T> {
    /// Grows with the knob, and must end at or below the goal.
    pub cost: f64,
    pub result: T,
}

/// The finest setting whose cost is at most `goal`, to within 1 % where there is one; the outer
/// `None` when even the coarsest costs more, with its cost. `model` tells the
/// setting at which a cost is expected: wrong by a shift, it still says how far
/// to go, so that two or three trials will do.
pub(crate) fn finest_within<T>(
    goal: f64,
    (coarse, fine): (f64, f64),
    model: impl Fn(f64) -> Option<f64>,
    mut attempt: impl FnMut(f64) -> Result<Trial<T>, Error>,
) -> Result<Result<T, f64>, Error> {
    // A little below the goal, where both neighbours are within the tolerance.
    let aim = goal * 0.5 * (1.0 + TOLERANCE);
    let mut trials = 0i32;
    let judged = |knob: f64| -> Result<_, Error> {
        let Trial { cost, result } = attempt(knob)?;
        let under = cost <= goal;
        // Of equal costs the later counts.
        trials -= 1;
        let close = if under { cost >= TOLERANCE * goal || knob >= fine } else { knob <= coarse };
        Ok(search::Trial { cost, over: !under, close, rank: (!under, -cost, trials), result })
    };
    let mut before: Option<(f64, f64)> = None;
    let next = |so_far: &Tried<f64>| {
        let (knob, cost) = so_far.last;
        let trial = so_far.count - 1;
        let next = match (so_far.under, so_far.over) {
            // Every fourth trial halves the interval, so that a crooked curve
            // cannot stall the search.
            (Some((a, cost_a)), Some((b, cost_b))) => {
                let share =
                    if trial % 4 == 3 { 0.5 } else { ((aim - cost_a) / (cost_b - cost_a)).clamp(0.02, 0.98) };
                if b - a < JUMP * (fine - coarse) {
                    return None;
                }
                a + share * (b - a)
            }
            _ => {
                let far = (fine - coarse) * 2f64.powi(trial as i32) / 64.0;
                let step = step(so_far.last, before, aim, &model).filter(|step| step.is_finite());
                // Upwards from below the goal, downwards from above, and never so
                // little that nothing changes nor beyond what doubling would reach.
                let step =
                    step.map_or(far, f64::abs).clamp(far * 2f64.powi(-2 * trial as i32 - 8), 4.0 * far);
                (if cost <= goal { knob + step } else { knob - step }).clamp(coarse, fine)
            }
        };
        before = Some(so_far.last);
        Some(next)
    };
    let first = model(aim).map_or(0.5 * (coarse + fine), |knob| knob.clamp(coarse, fine));
    let Found { best, tried } = search::search(first, MAX_TRIALS, judged, next)?;
    let mut best = best.filter(|(rank, _)| !rank.0).map(|(rank, result)| Trial { cost: -rank.1, result });
    let (last, cost) = tried.last;
    if last <= coarse && tried.over == Some(tried.last) {
        return Ok(best.map(|best| best.result).ok_or(cost));
    }
    // An encoder whose decisions feed on each other has a crooked curve: where the
    // goal lies in a jump, settings nearby may still come closer.
    if let (Some((low, _)), Some((high, _))) = (tried.under, tried.over) {
        for probe in 1..=PROBES {
            if best.as_ref().is_some_and(|best| best.cost >= TOLERANCE * goal) {
                break;
            }
            let away = f64::from(probe.div_ceil(2)) * PROBE_SPACING * (fine - coarse);
            let knob = if probe % 2 == 1 { high + away } else { low - away };
            let outcome = attempt(knob.clamp(coarse, fine))?;
            if outcome.cost <= goal && best.as_ref().is_none_or(|best| outcome.cost > best.cost) {
                best = Some(outcome);
            }
        }
    }
    Ok(match best {
        Some(best) => Ok(best.result),
        None => {
            // Only settings above the goal were tried: the coarsest decides.
            let outcome = attempt(coarse)?;
            if outcome.cost <= goal { Ok(outcome.result) } else { Err(outcome.cost) }
        }
    })
}

/// How far the aim is from `here`: along the line through the trial before
/// where there is one that rises, else by the model.
fn step(
    here: (f64, f64),
    before: Option<(f64, f64)>,
    aim: f64,
    model: &impl Fn(f64) -> Option<f64>,
) -> Option<f64> {
    let slope = before.map(|before| (here.1 - before.1) / (here.0 - before.0));
    match slope.filter(|&slope| slope > 0.0) {
        Some(slope) => Some((aim - here.1) / slope),
        None => Some(model(aim)? - model(here.1)?),
    }
}

/// Least and largest factor by which an error asked for shrinks from one
/// attempt to the next, and how many attempts there are.
const TIGHTEN: (f64, f64) = (0.25, 0.97);
const MAX_ATTEMPTS: usize = 16;

/// What `attempt` makes of an NMSE so that the tensor that comes back is within
/// `goal`: for codecs that meet an error before they round to the tensor's
/// number format, or beside what a truncated basis leaves out.
pub(crate) fn within_after_rounding(
    codec: &dyn TensorCodec,
    tensor: &Tensor,
    goal: f64,
    attempt: impl Fn(f64) -> Result<Encoded, Error>,
) -> Result<Encoded, Error> {
    let mut asked = goal;
    for _ in 0..MAX_ATTEMPTS {
        let encoded = attempt(asked)?;
        let found = Metrics::between(tensor, &codec.decode(&encoded)?).nmse;
        if found <= goal {
            return Ok(encoded);
        }
        // What comes on top is about the same next time.
        asked = (goal - (found - asked)).clamp(TIGHTEN.0 * asked, TIGHTEN.1 * asked);
    }
    let reason = format!("rounding to {} or a truncated basis alone exceeds it", tensor.dtype());
    Err(missed(Rate::Nmse(goal), tensor, codec.name(), reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Flatter curves have their goal below what the search's attempts resolve.
        #[test]
        fn a_smooth_curve_is_met_within_a_percent(goal in 0.5f64..6.0, bend in 0.5f64..3.0) {
            let curve = |knob: f64| knob.powf(bend) * 8.0;
            let found = finest_within(goal, (0.0, 1.0), |_| None, |knob| Ok(Trial { cost: curve(knob), result: curve(knob) }));
            let cost = found.unwrap().unwrap();
            prop_assert!(cost <= goal && cost >= 0.99 * goal, "{cost} for {goal}");
        }
    }

    #[test]
    fn a_model_off_by_a_shift_needs_few_trials() {
        for (shift, slope) in [(-0.6, 0.7), (-0.2, 1.3), (0.3, 0.8), (0.7, 1.2)] {
            let mut trials = 0;
            let found = finest_within(
                3.0,
                (-1.0, 28.0),
                |bits| Some(bits + 4.0),
                |knob| {
                    trials += 1;
                    let cost = slope * (knob - 4.0 + shift);
                    Ok(Trial { cost, result: cost })
                },
            );
            let cost = found.unwrap().unwrap();
            assert!((2.97..=3.0).contains(&cost) && trials <= 3, "{cost} after {trials}");
        }
    }

    #[test]
    fn most_goals_in_a_jump_of_a_crooked_curve_are_met_nearby() {
        // Falls within each hundredth of the range and jumps at its end: halving the
        // interval meets one goal in five.
        let curve = |knob: f64| 8.0 * knob - 0.4 * (100.0 * knob).fract();
        let attempt = |knob: f64| Ok(Trial { cost: curve(knob), result: curve(knob) });
        let goals = (0..200).map(|i| 1.0 + f64::from(i) * 0.02);
        let met = goals.filter(|&goal| {
            let cost = finest_within(goal, (0.0, 1.0), |_| None, attempt).unwrap().unwrap();
            assert!(cost <= goal, "{cost} for {goal}");
            cost >= 0.99 * goal
        });
        assert!(met.count() > 150);
    }

    #[test]
    fn what_is_out_of_reach_is_said() {
        let above =
            finest_within(1.0, (0.0, 1.0), |_| None, |knob| Ok(Trial { cost: 2.0 + knob, result: () }));
        assert_eq!(above.unwrap().unwrap_err(), 2.0);
        let below =
            finest_within(9.0, (0.0, 1.0), |_| None, |knob| Ok(Trial { cost: 2.0 + knob, result: knob }));
        assert_eq!(below.unwrap().unwrap(), 1.0);
    }
}
