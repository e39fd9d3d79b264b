//! What a plan would cost, found without coding anything.
//!
//! Values of a strip are rounded where an encoder would search, and their
//! symbols are counted where it would code them: how long an adaptive code
//! gets follows from the counts alone, in whatever order they came. Several
//! times as fast as coding, and as good at telling plans apart. Knows adaptive
//! tiles only, and nothing of how plans are chosen.

use std::sync::LazyLock;

use crate::entropy::model::{ESCAPE, INCREMENT, SYMBOLS};
use crate::entropy::rans::escape_bits;
use crate::entropy::scales::row_class;
use crate::entropy::scales::{CLASSES, FIRST_RAW_CLASS, Scales, WEIGHTS, prior, raw_bits};
use crate::kernels::simd::{self, Kernel};
use crate::matrix::Matrix;
use crate::plan::{Entropy, Plan, Scalars, Tile};
use crate::stages::transform::Transformer;
use crate::stages::trellis::DEAD_ZONE_ROUNDING;
use crate::stages::trellis::{GROUPS, MAX_TARGET};
use crate::tiles::code::{load, tile_means};
use crate::tiles::coded::coded_width;

/// Rounded coefficients of a strip: what all context weights have in common.
#[derive(Debug)]
pub struct Levels {
    width: usize,
    magnitudes: Vec<u32>,
    /// Coded rows after which columns changed their meaning.
    turns: Vec<usize>,
    /// Of values that are not zero.
    signs: u64,
    /// Bits of what is stated ahead of the tile.
    ahead_bits: f64,
    /// In squared steps.
    pub squared_error: f64,
}

/// Bits of a strip by what they grow with.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    /// Symbols, raw bits and signs: of every value.
    pub of_values: f64,
    /// Row classes and means: of every row.
    pub of_rows: f64,
}

/// Whether a plan is one that can be estimated: blocks that predict one another
/// must be coded first.
pub fn knows(plan: &Plan) -> bool {
    plan.entropy == Entropy::Adaptive && !plan.prediction.intra
}

impl Levels {
    /// Rounds a strip as `plan` would see it.
    pub fn new(plan: &Plan, scalars: &Scalars, strip: &Matrix) -> Self {
        simd::widest(Round { plan, scalars, strip })
    }

    /// What an adaptive code of the levels takes, in contexts of some weights.
    pub fn estimate(&self, weights: u8) -> Estimate {
        simd::widest(Count { levels: self, weights })
    }
}

/// The work of [`Levels::new`].
struct Round<'a> {
    plan: &'a Plan,
    scalars: &'a Scalars,
    strip: &'a Matrix,
}

impl Kernel for Round<'_> {
    type Output = Levels;

    #[inline(always)]
    fn run(self) -> Levels {
        let Self { plan, scalars, strip } = self;
        let tile = Tile { row: 0, col: 0, rows: strip.rows, cols: strip.cols };
        let (height, padded) = (plan.transform.height(), tile.cols.next_multiple_of(plan.transform.width()));
        let (width, coded_rows) = (coded_width(plan, tile.cols), tile.rows.div_ceil(height));
        let mut transformer = Transformer::new(plan.transform, coded_rows, padded);
        let batch = transformer.batch();
        let means = tile_means(plan, scalars, strip, &tile);
        let mut ahead = Vec::new();
        means.write(&mut ahead);
        let mut levels = Levels {
            width,
            magnitudes: vec![0; coded_rows * width],
            turns: Vec::new(),
            signs: 0,
            ahead_bits: 8.0 * ahead.len() as f64,
            squared_error: 0.0,
        };
        let (step, prediction) = (scalars.step, f32::from(plan.prediction.above) / 16.0);
        let inverse_step = 1.0 / step;
        let mut values = vec![0.0; batch * width];
        let mut coefficients = vec![0.0; batch * width];
        let mut above = vec![0.0f32; width];
        let rounding = DEAD_ZONE_ROUNDING as f32 / 128.0;
        for (i, magnitudes) in levels.magnitudes.chunks_mut(batch * width).enumerate() {
            let (values, coefficients) =
                (&mut values[..magnitudes.len()], &mut coefficients[..magnitudes.len()]);
            load(strip, &tile, i * batch * height, padded, scalars.offset, values);
            means.add(-1.0, i * batch * height, padded, step, values);
            transformer.forward(values, coefficients);
            for (magnitudes, coefficients) in
                magnitudes.chunks_exact_mut(width).zip(coefficients.chunks_exact_mut(width))
            {
                let mut error = 0.0;
                for ((magnitude, coefficient), above) in
                    magnitudes.iter_mut().zip(coefficients).zip(&mut above)
                {
                    let predicted = *above * prediction;
                    let residual = (*coefficient - predicted) * inverse_step;
                    // As wide as a register where a conversion to unsigned is not.
                    let level = (residual.abs() * 0.5 + rounding).min((MAX_TARGET >> 7) as f32) as i32;
                    let point = (2.0 * level as f32).copysign(residual);
                    error += (residual - point) * (residual - point);
                    *magnitude = level as u32;
                    *coefficient = point * step + predicted;
                    *above = *coefficient;
                }
                levels.squared_error += f64::from(error);
                levels.signs += magnitudes.iter().map(|&m| u64::from(m.min(1))).sum::<u64>();
            }
            // Orthonormal transforms leave the error as it is: no way back is needed.
            if transformer.learn(coefficients) {
                levels.turns.push((i + 1) * batch - 1);
            }
        }
        levels
    }
}

/// The work of [`Levels::estimate`].
struct Count<'a> {
    levels: &'a Levels,
    weights: u8,
}

impl Kernel for Count<'_> {
    type Output = Estimate;

    #[inline(always)]
    fn run(self) -> Estimate {
        let Levels { width, magnitudes, turns, .. } = self.levels;
        let mut scales = Scales::new(WEIGHTS[usize::from(self.weights)], *width);
        let mut counts = vec![[0u32; SYMBOLS]; CLASSES];
        let mut classes = vec![0; *width];
        let mut before = None;
        let mut turns = turns.iter().copied().peekable();
        let (mut raw, mut of_rows) = (self.levels.signs, self.levels.ahead_bits);
        for (row, magnitudes) in magnitudes.chunks_exact(*width).enumerate() {
            let expected: i64 = scales.expect().iter().map(|&e| i64::from(e)).sum();
            let size: u64 = magnitudes.iter().map(|&m| u64::from(m)).sum();
            let class = row_class(size as f32, expected, *width, before);
            // About what an adapted code takes.
            of_rows += if before == Some(class) { 0.5 } else { 3.5 };
            before = Some(class);
            scales.classes(class, &mut classes);
            if classes.iter().any(|&class| class >= FIRST_RAW_CLASS) {
                for (&class, &magnitude) in classes.iter().zip(magnitudes) {
                    let low_bits = raw_bits(class);
                    raw += u64::from(low_bits + count(&mut counts, class, magnitude >> low_bits));
                }
            } else {
                for (&class, &magnitude) in classes.iter().zip(magnitudes) {
                    raw += u64::from(count(&mut counts, class, magnitude));
                }
            }
            scales.update(magnitudes, class);
            if turns.next_if_eq(&row).is_some() {
                scales.rejuvenate(3);
            }
        }
        let symbols: f64 = counts.iter().enumerate().map(|(class, counts)| code_length(class, counts)).sum();
        Estimate { of_values: symbols + raw as f64, of_rows }
    }
}

/// Counts the symbol of a magnitude without its low bits; returns the bits of
/// its escape.
#[inline(always)]
fn count(counts: &mut [[u32; SYMBOLS]], class: u8, high: u32) -> u32 {
    counts[usize::from(class)][high.min(ESCAPE as u32) as usize] += 1;
    if high < ESCAPE as u32 { 0 } else { escape_bits(high - ESCAPE as u32) }
}

/// Bits of an adaptive code for these symbols of a class, half of them in the
/// context of each quantizer: what is known of a symbol before the next is the
/// prior and those so far, so products of their shares make Γ functions.
fn code_length(class: usize, counts: &[u32; SYMBOLS]) -> f64 {
    /// Counts of the priors in symbols, and log2 Γ of them and of their sums.
    static PRIORS: LazyLock<Vec<[(f64, f64); SYMBOLS + 1]>> = LazyLock::new(|| {
        let of = |class| {
            let shares = prior(class).map(|c| f64::from(c) / f64::from(INCREMENT));
            let sum: f64 = shares.iter().sum();
            std::array::from_fn(|s| {
                let share = if s < SYMBOLS { shares[s] } else { sum };
                (share, log2_gamma(share))
            })
        };
        (0..CLASSES).map(of).collect()
    });
    let total: u32 = counts.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let grown = |count: u32, (share, before): (f64, f64)| {
        log2_gamma(share + f64::from(count) / GROUPS as f64) - before
    };
    let [shares @ .., sum] = &PRIORS[class];
    let used = counts.iter().zip(shares).filter(|(count, _)| **count > 0);
    GROUPS as f64 * (grown(total, *sum) - used.map(|(&count, &share)| grown(count, share)).sum::<f64>())
}

/// log2 Γ(x) of a positive number, by Stirling's series.
fn log2_gamma(x: f64) -> f64 {
    use std::f64::consts::{LOG2_E, TAU};
    const LARGE: f64 = 6.0;
    let (mut x, mut below) = (x, 1.0);
    while x < LARGE {
        below *= x;
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let series = inverse * (1.0 / 12.0 - inverse * inverse / 360.0);
    (x - 0.5) * x.log2() + 0.5 * TAU.log2() - below.log2() + LOG2_E * (series - x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_of_whole_numbers_are_factorials() {
        let mut factorial = 1.0f64;
        for n in 1..30 {
            assert!((log2_gamma(f64::from(n)) - factorial.log2()).abs() < 1e-6, "{n}");
            factorial *= f64::from(n);
        }
        assert!((log2_gamma(0.5) - 0.5 * std::f64::consts::PI.log2()).abs() < 1e-6);
    }

    #[test]
    fn the_length_of_a_code_is_that_of_its_symbols_one_after_the_other() {
        let class = 30;
        let counts: [u32; SYMBOLS] = std::array::from_fn(|s| if s < 6 { 20 - 2 * s as u32 } else { 0 });
        let mut shares = prior(class).map(|c| f64::from(c) / f64::from(INCREMENT));
        let mut bits = 0.0;
        for symbol in (0..SYMBOLS).flat_map(|s| std::iter::repeat_n(s, counts[s] as usize / GROUPS)) {
            bits += GROUPS as f64 * (shares.iter().sum::<f64>() / shares[symbol]).log2();
            shares[symbol] += 1.0;
        }
        assert!((code_length(class, &counts) - bits).abs() < 1e-3, "{bits}");
    }
}
