//! Rate control: turn a knob until a target is met.
//!
//! A knob goes from coarse to fine; bits grow with it and error falls, nearly
//! monotonously and nearly linearly in bits. Knows nothing of what it turns.

use crate::Error;

/// A target below this share of which an encoder keeps trying.
const TOLERANCE: f64 = 0.99;
/// Trials before the best so far is taken.
const MAX_TRIALS: usize = 24;

/// What one setting of the knob gave.
#[derive(Debug)]
pub(crate) struct Trial<T> {
    /// Grows with the knob, and must end at or below the goal.
    pub cost: f64,
    pub result: T,
}

/// The finest setting whose cost is at most `goal`, to within 1 %; the outer
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
    let mut best: Option<Trial<T>> = None;
    // The finest setting below the goal and the coarsest above, with their costs.
    let mut low: Option<(f64, f64)> = None;
    let mut high: Option<(f64, f64)> = None;
    let mut before: Option<(f64, f64)> = None;
    let mut knob = model(aim).map_or(0.5 * (coarse + fine), |knob| knob.clamp(coarse, fine));
    for trial in 0..MAX_TRIALS {
        let outcome = attempt(knob)?;
        let cost = outcome.cost;
        if cost <= goal {
            low = Some((knob, cost));
            if best.as_ref().is_none_or(|best| cost >= best.cost) {
                best = Some(outcome);
            }
            if cost >= TOLERANCE * goal || knob >= fine {
                break;
            }
        } else {
            if knob <= coarse {
                return Ok(best.map(|best| best.result).ok_or(cost));
            }
            high = Some((knob, cost));
        }
        let here = (knob, cost);
        knob = match (low, high) {
            // Every fourth trial halves the interval, so that a crooked curve
            // cannot stall the search.
            (Some((a, cost_a)), Some((b, cost_b))) => {
                let share =
                    if trial % 4 == 3 { 0.5 } else { ((aim - cost_a) / (cost_b - cost_a)).clamp(0.02, 0.98) };
                if b - a < 1e-9 * (fine - coarse).abs() {
                    break;
                }
                a + share * (b - a)
            }
            (None, None) => break,
            _ => {
                let far = (fine - coarse) * 2f64.powi(trial as i32) / 64.0;
                let step = step(here, before, aim, &model).filter(|step| step.is_finite());
                // Upwards from below the goal, downwards from above, and never so
                // little that nothing changes nor beyond what doubling would reach.
                let step =
                    step.map_or(far, f64::abs).clamp(far * 2f64.powi(-2 * trial as i32 - 8), 4.0 * far);
                (if cost <= goal { knob + step } else { knob - step }).clamp(coarse, fine)
            }
        };
        before = Some(here);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_smooth_curve_is_met_within_a_percent(goal in 0.5f64..6.0, bend in 0.2f64..3.0) {
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
    fn what_is_out_of_reach_is_said() {
        let above =
            finest_within(1.0, (0.0, 1.0), |_| None, |knob| Ok(Trial { cost: 2.0 + knob, result: () }));
        assert_eq!(above.unwrap().unwrap_err(), 2.0);
        let below =
            finest_within(9.0, (0.0, 1.0), |_| None, |knob| Ok(Trial { cost: 2.0 + knob, result: knob }));
        assert_eq!(below.unwrap().unwrap(), 1.0);
    }
}
