//! Reaching a rate or an error between two QPs: whole QPs by interpolation,
//! the rest by how many macroblocks of each frame take the next one.

use std::convert::Infallible;

use crate::encoder::slice::QpPlan;
use trinity_bits::search::{self, Trial, Tried};
use trinity_bits::{Coded, Frame, Rate};

/// Close enough, as a ratio.
const TOLERANCE: f64 = 5e-4;
/// Encodings at most; each one halves the bracket at the least.
const MAX_RUNS: usize = 16;

/// Encodes with `run` until `rate` is met as closely as macroblocks allow.
pub fn search(
    frames: &[Frame],
    rate: Rate,
    lowest_qp: i32,
    mbs: usize,
    run: impl Fn(QpPlan) -> Coded,
) -> Coded {
    // Both grow with QP, about linearly.
    let measure = |coded: &Coded| match rate {
        Rate::Bits(_) => -coded.bits_per_sample(frames).ln(),
        _ => coded.mse.max(1e-9).ln(),
    };
    let target = match rate {
        Rate::Bits(bits) => -bits.ln(),
        Rate::Mse(mse) => mse.ln(),
        _ => 0.0,
    };
    // A position counts macroblock steps from the lowest QP.
    let plan = |position: usize| QpPlan {
        qp: lowest_qp + (position / mbs) as i32,
        switch_at: if position.is_multiple_of(mbs) { usize::MAX } else { mbs - position % mbs },
    };
    let last = (51 - lowest_qp) as usize * mbs;
    let attempt = |position: usize| -> Result<_, Infallible> {
        let coded = run(plan(position));
        let value = measure(&coded);
        // Met from below: what overshoots counts only until something does not.
        let over = match rate {
            Rate::Bits(_) => value < target,
            _ => value > target,
        };
        let off = (value - target).abs();
        Ok(Trial { cost: value, over, close: off <= TOLERANCE && !over, rank: (over, off), result: coded })
    };
    let next = |tried: &Tried<usize>| {
        let (position, value) = tried.last;
        // Fewer bits come of a higher QP, less error of a lower one.
        let (below, above) = match rate {
            Rate::Bits(_) => (tried.over, tried.under),
            _ => (tried.under, tried.over),
        };
        match (below, above) {
            (Some((low, low_value)), Some((high, high_value))) => {
                if high - low <= 1 {
                    return None;
                }
                let share = (target - low_value) / (high_value - low_value).max(1e-12);
                let estimate = low + (share * (high - low) as f64).round() as usize;
                // Whole QPs first: they say the most about the curve.
                let whole = (estimate + mbs / 2) / mbs * mbs;
                Some(if (low + 1..high).contains(&whole) { whole } else { estimate.clamp(low + 1, high - 1) })
            }
            (Some((low, _)), None) if low == last => None,
            (None, Some((0, _))) => None,
            (Some((low, _)), None) => {
                Some((low + (target - value).mul_add(6.0, 1.0) as usize * mbs).clamp(low + 1, last))
            }
            (None, Some(_)) => {
                let down = (value - target).mul_add(6.0, 1.0) as usize * mbs;
                Some(position.saturating_sub(down).min(position - 1))
            }
            (None, None) => None,
        }
    };
    let first = ((24 - lowest_qp) as usize * mbs).min(last);
    let Ok(found) = search::search(first, MAX_RUNS, attempt, next);
    match found.best {
        Some(((false, _), coded)) => coded,
        // Only what misses the target was tried: the last QP decides whether any meets it.
        _ => run(plan(if matches!(rate, Rate::Bits(_)) { last } else { 0 })),
    }
}
