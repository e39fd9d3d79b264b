//! What a plan would cost, found without coding anything.
//!
//! Values of a sample are rounded where an encoder would search, and their
//! symbols are counted where it would code them: how long an adaptive code
//! gets follows from the counts alone, in whatever order they came. Several
//! times as fast as coding, and as good at telling plans apart. Knows adaptive
//! tiles only, and nothing of how plans are chosen.

use std::sync::LazyLock;

use crate::entropy::model::{ESCAPE, INCREMENT, SYMBOLS};
use crate::entropy::rans::escape_bits;
use crate::entropy::scales::row_class;
use crate::entropy::scales::{CLASSES, FIRST_RAW_CLASS, Scales, WEIGHTS, prior, raw_bits};
use crate::format::trinity::plan::{Entropy, Plan, Scalars, Tile};
use crate::format::trinity::tiles::code::{load, tile_means};
use crate::format::trinity::tiles::coded::coded_width;
use crate::matrix::Matrix;
use crate::stage::transform::{Transform, Transformer};
use crate::stage::trellis::dead_zone_rounding;
use crate::stage::trellis::{GROUPS, MAX_TARGET};
use trinity_numeric::simd::{self, Kernel};

/// Rounded coefficients of a sample: what all context weights have in common.
#[derive(Debug)]
pub struct Levels {
    width: usize,
    magnitudes: Vec<u32>,
    /// Coded rows after which columns changed their meaning.
    rotations: Vec<usize>,
    /// Signs of values that are not zero.
    signs: Parts,
    /// Bits of means, which are signalled ahead of the tile.
    mean_bits: f64,
    learns: bool,
    pub squared_error: Parts,
}

/// A sum over the coded rows of a sample: over the first quarter, the second,
/// and the second half.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parts {
    pub first: f64,
    pub second: f64,
    pub late: f64,
}

impl Parts {
    pub fn sum(self) -> f64 {
        self.first + self.second + self.late
    }

    /// The sum over more rows, as many as `later` times those of the second half:
    /// what was learned by then serves them, too.
    pub fn with_later(self, later: f64) -> f64 {
        self.first + self.second + self.late * (1.0 + later)
    }

    /// This and a multiple of another.
    pub fn plus(self, factor: f64, other: Self) -> Self {
        Self {
            first: self.first + factor * other.first,
            second: self.second + factor * other.second,
            late: self.late + factor * other.late,
        }
    }

    fn part(&mut self, row: usize, rows: usize) -> &mut f64 {
        if row >= rows / 2 {
            &mut self.late
        } else if row >= rows / 4 {
            &mut self.second
        } else {
            &mut self.first
        }
    }
}

/// Bits of a sample by what they grow with.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    /// Symbols, raw bits and signs: of every value.
    pub of_values: Parts,
    /// What the first quarter takes less when it is coded once more, after all
    /// rows: what scales and symbols took to be learned. Nothing where a
    /// transform is learned, which is not gone through again.
    pub learning: f64,
    /// Row classes: of every row.
    pub of_rows: Parts,
    /// Means: of the sample's rows, or of its columns.
    pub of_means: f64,
}

/// Whether a plan is one that can be estimated: blocks that predict one another
/// must be coded first.
pub fn knows(plan: &Plan) -> bool {
    plan.entropy == Entropy::Adaptive && !plan.prediction.intra
}

impl Levels {
    /// Rounds a sample as `plan` would see it.
    pub fn new(plan: &Plan, scalars: &Scalars, sample: &Matrix) -> Self {
        simd::widest(Round { plan, scalars, sample })
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
    sample: &'a Matrix,
}

impl Kernel for Round<'_> {
    type Output = Levels;

    #[inline(always)]
    fn run(self) -> Levels {
        let Self { plan, scalars, sample } = self;
        let tile = Tile { row: 0, col: 0, rows: sample.rows, cols: sample.cols };
        let (height, padded) = (plan.transform.height(), tile.cols.next_multiple_of(plan.transform.width()));
        let (width, coded_rows) = (coded_width(plan, tile.cols), tile.rows.div_ceil(height));
        let mut transformer = Transformer::new(plan.transform, coded_rows, padded);
        let batch = transformer.batch();
        let means = tile_means(plan, scalars, sample, &tile);
        let mut ahead = Vec::new();
        means.write(&mut ahead);
        let mut levels = Levels {
            width,
            magnitudes: vec![0; coded_rows * width],
            rotations: Vec::new(),
            signs: Parts::default(),
            mean_bits: 8.0 * ahead.len() as f64,
            learns: matches!(plan.transform, Transform::Klt { .. }),
            squared_error: Parts::default(),
        };
        let (step, prediction) = (scalars.step, f32::from(plan.prediction.above) / 16.0);
        let inverse_step = 1.0 / step;
        let mut values = vec![0.0; batch * width];
        let mut coefficients = vec![0.0; batch * width];
        let mut above = vec![0.0f32; width];
        let mut errors = vec![0.0f32; width];
        let rounding = dead_zone_rounding() as f32 / 128.0;
        for (i, magnitudes) in levels.magnitudes.chunks_mut(batch * width).enumerate() {
            let (values, coefficients) =
                (&mut values[..magnitudes.len()], &mut coefficients[..magnitudes.len()]);
            load(sample, &tile, i * batch * height, padded, scalars.offset, values);
            means.add(-1.0, i * batch * height, padded, step, values);
            transformer.forward(values, coefficients);
            let rows = magnitudes.chunks_exact_mut(width).zip(coefficients.chunks_exact_mut(width));
            for (row, (magnitudes, coefficients)) in rows.enumerate() {
                for (((magnitude, coefficient), above), error) in
                    magnitudes.iter_mut().zip(coefficients).zip(&mut above).zip(&mut errors)
                {
                    let predicted = *above * prediction;
                    let residual = (*coefficient - predicted) * inverse_step;
                    let level = (residual.abs() * 0.5 + rounding).min((MAX_TARGET >> 7) as f32);
                    // SAFETY: `min` leaves no NaN, and a number from 0 to 2^22. A conversion that looks at that
                    // again goes value by value.
                    #[allow(unsafe_code)]
                    let level = unsafe { level.to_int_unchecked::<i32>() };
                    let point = (2.0 * level as f32).copysign(residual);
                    *error = (residual - point) * (residual - point);
                    *magnitude = level as u32;
                    *coefficient = point * step + predicted;
                    *above = *coefficient;
                }
                // Alone, since each addition waits for the one before.
                let error = errors.iter().fold(0.0, |sum, error| sum + error);
                let signs: u32 = magnitudes.iter().map(|&m| m.min(1)).sum();
                *levels.squared_error.part(i * batch + row, coded_rows) += f64::from(error);
                *levels.signs.part(i * batch + row, coded_rows) += f64::from(signs);
            }
            // Orthonormal transforms leave the error as it is: no way back is needed.
            if transformer.learn(coefficients) {
                levels.rotations.push((i + 1) * batch - 1);
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
        let Levels { width, magnitudes, rotations, .. } = self.levels;
        let mut scales = Scales::new(WEIGHTS[usize::from(self.weights)], *width);
        let mut counts = vec![[0u32; SYMBOLS]; CLASSES];
        let mut classes = vec![0; *width];
        let mut before = None;
        let mut rotations = rotations.iter().copied().peekable();
        let rows = magnitudes.len() / (*width).max(1);
        let mut raw = 0u64;
        let (mut of_values, mut of_rows) = (Parts::default(), Parts::default());
        let mut before_part = 0.0;
        let once = magnitudes.chunks_exact(*width).enumerate();
        let again = if self.levels.learns { 0 } else { rows / 4 };
        for (row, magnitudes) in once.clone().chain(once.take(again).map(|(row, m)| (row + rows, m))) {
            if row == rows {
                of_values.late = symbol_bits(&counts) + raw as f64 - before_part;
                before_part += of_values.late;
            }
            if row > 0 && (row == rows / 4 || row == rows / 2) {
                let so_far = symbol_bits(&counts) + raw as f64;
                *of_values.part(row - 1, rows) = so_far - before_part;
                before_part = so_far;
            }
            let expected: i64 = scales.expect().iter().map(|&e| i64::from(e)).sum();
            let size: u64 = magnitudes.iter().map(|&m| u64::from(m)).sum();
            let class = row_class(size as f32, expected, *width, before);
            // About what an adapted code takes.
            if row < rows {
                *of_rows.part(row, rows) += if before == Some(class) { 0.5 } else { 3.5 };
            }
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
            if rotations.next_if_eq(&row).is_some() {
                scales.rejuvenate(3);
            }
        }
        let learning = if again == 0 {
            of_values.late = symbol_bits(&counts) + raw as f64 - before_part;
            0.0
        } else {
            (of_values.first - (symbol_bits(&counts) + raw as f64 - before_part)).max(0.0)
        };
        Estimate {
            learning,
            of_values: of_values.plus(1.0, self.levels.signs),
            of_rows,
            of_means: self.levels.mean_bits,
        }
    }
}

fn symbol_bits(counts: &[[u32; SYMBOLS]]) -> f64 {
    counts.iter().enumerate().map(|(class, counts)| code_length(class, counts)).sum()
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
