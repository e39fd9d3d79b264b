//! Levels for CAVLC, priced by its code words themselves.
//!
//! No coefficient pays for a code word alone: coeff_token counts them all, a
//! level's code depends on the ones after it, zeros are told as runs. So a
//! block starts from the nearest levels, and each is lowered, from the last to
//! the first, where squared error plus λ times the bits of the whole block
//! falls.

use super::nearest;
use crate::entropy::writer::code_word_bits;

/// Error that no saving of code words makes up for, in bits' worth of λ.
const DEAREST: f32 = 10.0;

/// Chooses the levels of a block of at most 16 coefficients (scan order) for
/// least `(real − level)²` plus `lambda` a bit; returns that sum. `table` is
/// coeff_token's.
pub fn lower(real: &[f32], table: usize, lambda: f32, max_level: f32, levels: &mut [i32]) -> f32 {
    let mut error = 0.0;
    for (&real, level) in real.iter().zip(levels.iter_mut()) {
        let magnitude = nearest(real.abs().min(max_level));
        error += off(real, magnitude);
        *level = if real < 0.0 { -magnitude } else { magnitude };
    }
    let mut least = error + lambda * code_word_bits(table, levels) as f32;
    for k in (0..real.len()).rev() {
        let level = levels[k];
        if level == 0 {
            continue;
        }
        let lower = level - level.signum();
        let more_error = off(real[k], lower.abs()) - off(real[k], level.abs());
        if more_error > DEAREST * lambda {
            continue;
        }
        levels[k] = lower;
        let cost = error + more_error + lambda * code_word_bits(table, levels) as f32;
        if cost < least {
            least = cost;
            error += more_error;
        } else {
            levels[k] = level;
        }
    }
    let cost_uncoded =
        real.iter().map(|real| real * real).sum::<f32>() + lambda * code_word_bits(table, &[0; 16]) as f32;
    if cost_uncoded <= least {
        levels.fill(0);
        return cost_uncoded;
    }
    least
}

#[inline(always)]
fn off(real: f32, magnitude: i32) -> f32 {
    (real.abs() - magnitude as f32).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(real: &[f32], table: usize, levels: &[i32]) -> f32 {
        let error: f32 = real.iter().zip(levels).map(|(r, &l)| (r - l as f32).powi(2)).sum();
        error + 0.13 * code_word_bits(table, levels) as f32
    }

    proptest! {
        #[test]
        fn the_cost_is_that_of_the_levels_and_never_above_plain_rounding(
            real in prop::collection::vec(-6f32..6.0, 15..=16),
            table in 0usize..4,
        ) {
            let mut levels = vec![0; real.len()];
            let least = lower(&real, table, 0.13, 2063.0, &mut levels);
            prop_assert!((least - cost(&real, table, &levels)).abs() < 1e-3, "{:?}", levels);
            let rounded: Vec<i32> = real.iter().map(|r| r.round() as i32).collect();
            prop_assert!(least <= cost(&real, table, &rounded) + 1e-3);
            for (real, level) in real.iter().zip(levels) {
                prop_assert!(level == 0 || (real - level as f32).abs() <= 1.5, "{} became {}", real, level);
            }
        }
    }
}
