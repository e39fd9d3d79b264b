//! Contexts: how large the next values will be, from what is already known.
//!
//! Every column keeps running means of the magnitudes seen in the rows above;
//! every row states how it stands to them (its class, in quarter octaves).
//! The product picks the alphabet of each value before the row is parsed:
//! inside a row nothing depends on its own values. Integers only.

use crate::entropy::model::{SYMBOLS, geometric_prior};

/// Contexts of a quarter octave each: means of 2^-6 to 2^14.
pub const CLASSES: usize = 80;
/// Fraction bits of the running means.
const FRACTION: u32 = 16;
/// Class of a mean of 1.
pub const UNIT_CLASS: i32 = 24;
/// Row classes that a stream may state.
pub const ROW_CLASSES: std::ops::RangeInclusive<i32> = -64..=63;
/// 2^(-i/4) in 16 bits of fraction.
const QUARTER: [u32; 4] = [65536, 55109, 46341, 38968];

/// How the running means are weighed, signalled by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Weights in sixteenths of the slow mean, the fast mean, and the fast
    /// means of both neighbouring columns together.
    pub slow: i32,
    pub fast: i32,
    pub beside: i32,
    /// Adaptation shifts that the slow and fast mean settle at.
    pub slow_shift: u32,
    pub fast_shift: u32,
}

/// The index of the weights that see no columns: every value of a row has the
/// same class. What is small or all alike learns fastest this way.
pub const FLAT: u8 = 5;

pub const WEIGHTS: [Weights; 6] = [
    Weights { slow: 16, fast: 0, beside: 0, slow_shift: 7, fast_shift: 4 },
    Weights { slow: 14, fast: 1, beside: 1, slow_shift: 6, fast_shift: 3 },
    Weights { slow: 12, fast: 4, beside: 0, slow_shift: 5, fast_shift: 2 },
    Weights { slow: 9, fast: 4, beside: 3, slow_shift: 5, fast_shift: 2 },
    Weights { slow: 2, fast: 6, beside: 8, slow_shift: 3, fast_shift: 1 },
    Weights { slow: 0, fast: 0, beside: 0, slow_shift: 7, fast_shift: 4 },
];

#[derive(Debug, Clone)]
pub struct Scales {
    weights: Weights,
    slow: Vec<i32>,
    fast: Vec<i32>,
    /// Rows since the columns last changed their meaning.
    age: u32,
    expected: Vec<i32>,
}

impl Scales {
    pub fn new(weights: Weights, cols: usize) -> Self {
        let start = 1 << FRACTION;
        Self {
            weights,
            slow: vec![start; cols],
            fast: vec![start; cols],
            age: 0,
            expected: vec![start; cols],
        }
    }

    /// Lets the means move quickly again, after a change of basis.
    pub fn rejuvenate(&mut self, age: u32) {
        self.age = self.age.min(age);
    }

    /// Renews the expected magnitudes (16 bits of fraction) for the next row.
    #[inline(always)]
    pub fn expect(&mut self) -> &[i32] {
        let Weights { slow, fast, beside, .. } = self.weights;
        let floor = 1 << (FRACTION - 6);
        if beside == 0 {
            for ((out, &s), &f) in self.expected.iter_mut().zip(&self.slow).zip(&self.fast) {
                *out = (s >> 4) * slow + (f >> 4) * fast + floor;
            }
        } else {
            let mean = |slow_mean: i32, left: i32, here: i32, right: i32| {
                (slow_mean >> 4) * slow + (here >> 4) * fast + ((left >> 5) + (right >> 5)) * beside + floor
            };
            let inner = self.expected.iter_mut().zip(&self.slow).skip(1).zip(self.fast.windows(3));
            for ((out, &s), near) in inner {
                *out = mean(s, near[0], near[1], near[2]);
            }
            // At the edges the column itself stands in for its neighbour.
            let last = self.fast.len() - 1;
            let inward = last.min(1);
            self.expected[0] = mean(self.slow[0], self.fast[0], self.fast[0], self.fast[inward]);
            self.expected[last] =
                mean(self.slow[last], self.fast[last - inward], self.fast[last], self.fast[last]);
        }
        &self.expected
    }

    /// The class of every column for a row of class `row_class`, after
    /// [`Scales::expect`].
    #[inline(always)]
    pub fn classes(&self, row_class: i32, out: &mut [u8]) {
        for (class, &expected) in out.iter_mut().zip(&self.expected) {
            *class = (quarter_log2(expected) + row_class + UNIT_CLASS).clamp(0, CLASSES as i32 - 1) as u8;
        }
    }

    /// Takes a coded row into the means.
    #[inline(always)]
    pub fn update(&mut self, magnitudes: &[u32], row_class: i32) {
        let settle = |shift: u32| self.age.saturating_add(2).ilog2().min(shift);
        let (slow_shift, fast_shift) = (settle(self.weights.slow_shift), settle(self.weights.fast_shift));
        // What a magnitude of one is worth in this row.
        let octaves = row_class >> 2;
        let quarter = QUARTER[(row_class & 3) as usize];
        let worth = if octaves >= 0 { quarter >> octaves } else { quarter << -octaves.max(-14) };
        let largest = ((1 << 30) / worth).min(1 << 14);
        for ((slow, fast), &magnitude) in self.slow.iter_mut().zip(&mut self.fast).zip(magnitudes) {
            let scaled = (magnitude.min(largest) * worth) as i32;
            *slow += (scaled - *slow) >> slow_shift;
            *fast += (scaled - *fast) >> fast_shift;
        }
        self.age = self.age.saturating_add(1);
    }
}

/// Four times the binary logarithm of a mean with 16 bits of fraction,
/// linear between octaves: the top bits of the number as a float.
#[inline(always)]
pub fn quarter_log2(mean: i32) -> i32 {
    ((mean as f32).to_bits() >> 21) as i32 - ((127 + FRACTION as i32) << 2)
}

/// [`quarter_log2`] in 1/256.
#[inline(always)]
pub fn fine_quarter_log2(mean: i32) -> i32 {
    ((mean as f32).to_bits() >> 13) as i32 - ((127 + FRACTION as i32) << 10)
}

/// What a change of class costs, over what a value loses by a class that is
/// one too large or too small: four bits over 0.022.
const CHANGE: f32 = 180.0;

/// The class of a row of `width` values whose magnitudes add up to `size` where
/// its columns expect `expected`, after a row of class `before`.
#[inline(always)]
pub fn row_class(size: f32, expected: i64, width: usize, before: Option<i32>) -> i32 {
    let ratio = (size * 65536.0 + 1024.0 * width as f32) / expected as f32;
    let exact = fine_quarter_log2(((ratio * 1.09 * 65536.0) as i32).max(1));
    // A class that is a little off costs its row less than a change of class.
    let stays = before.filter(|before| {
        let off = (exact - 256 * before - 128) as f32 / 256.0;
        off * off * width as f32 <= CHANGE
    });
    stays.unwrap_or(exact >> 8).clamp(*ROW_CLASSES.start(), *ROW_CLASSES.end())
}

/// Bits of a magnitude that are sent raw in `class`, so that what is left
/// fits sixteen symbols.
#[inline(always)]
pub fn raw_bits(class: u8) -> u32 {
    (i32::from(class) / 4 - UNIT_CLASS / 4 - 1).max(0) as u32
}

/// The first class with raw bits.
pub const FIRST_RAW_CLASS: u8 = 4 * (UNIT_CLASS as u8 / 4 + 2);

/// What a context believes before it has seen anything.
pub fn prior(class: usize) -> [u32; SYMBOLS] {
    // The middle of the class in sixteenths, after its raw bits are gone.
    let octave = class as i32 / 4 - UNIT_CLASS / 4 - raw_bits(class as u8) as i32;
    let middle = 18 + 4 * (class as i32 % 4);
    let mean_q4 = if octave >= 0 { middle << octave } else { middle >> -octave };
    geometric_prior(mean_q4.max(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_column_settles_at_its_mean() {
        for weights in WEIGHTS {
            let mut scales = Scales::new(weights, 3);
            for _ in 0..500 {
                scales.update(&[0, 4, 40], 0);
            }
            scales.expect();
            let mut classes = [0; 3];
            scales.classes(0, &mut classes);
            if weights == WEIGHTS[usize::from(FLAT)] {
                assert_eq!(classes, [0; 3]);
                continue;
            }
            if weights.beside == 0 {
                assert_eq!(classes[1], 24 + 8, "{weights:?}");
                assert!((44..=46).contains(&classes[2]), "{weights:?} {classes:?}");
            }
            assert!(classes[0] < classes[1] && classes[1] < classes[2], "{weights:?} {classes:?}");
        }
    }

    #[test]
    fn row_class_shifts_every_column_and_leaves_the_means() {
        let mut scales = Scales::new(WEIGHTS[0], 1);
        for _ in 0..2000 {
            scales.update(&[64], 16);
        }
        scales.expect();
        let mut class = [0];
        scales.classes(0, &mut class);
        assert_eq!(class[0], 24 + 8);
        scales.classes(16, &mut class);
        assert_eq!(class[0], 24 + 24);
    }

    #[test]
    fn extreme_levels_and_classes_stay_in_range() {
        for row_class in ROW_CLASSES {
            let mut scales = Scales::new(WEIGHTS[4], 2);
            for _ in 0..40 {
                scales.update(&[u32::MAX, 0], row_class);
                assert!(scales.expect().iter().all(|&e| e > 0));
            }
        }
    }
}
