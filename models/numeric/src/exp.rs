//! e^x as a plain loop: the same bits on every machine, in registers of any width.
//!
//! A call of the machine's own `expf` for each value keeps a loop as narrow as it is, and differs from library to
//! library in the last bit. Knows one value; who has many runs it from a [`crate::simd::Kernel`].

/// What is added to a number below 2⁵¹ to round it, and taken off again.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// Beyond these a result is 0 or infinite in f32.
const LEAST: f32 = -104.0;
const MOST: f32 = 89.0;

/// 1 / n! for n from 9 down: the series of e^r is within 10⁻¹¹ for |r| ≤ ln 2 / 2.
const SERIES: [f64; 10] = [
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// e^x, within 0.501 of the last place of an f32.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = f64::from(x.clamp(LEAST, MOST));
    let rounded = x * std::f64::consts::LOG2_E + ROUNDER;
    let rest = x - (rounded - ROUNDER) * std::f64::consts::LN_2;
    let series = SERIES.iter().fold(0.0, |sum, share| sum * rest + share);
    // The whole powers of two are what lies below the rounder's own bits.
    let power = f64::from_bits(rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(1023) << 52);
    (series * power) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Kernel, Width, with_width};

    #[test]
    fn every_value_is_the_nearest_or_next_to_it() {
        let mut off = 0u32;
        let all = (0..=u32::MAX).step_by(4_093).map(f32::from_bits).filter(|x| !x.is_nan());
        let values: Vec<f32> = all.chain((-10_500..9_000).map(|x| x as f32 * 0.01)).collect();
        for &x in &values {
            let (ours, exact) = (exp(x), f64::from(x).exp());
            let nearest = exact as f32;
            assert!(ours.to_bits().abs_diff(nearest.to_bits()) <= 1, "e^{x}: {ours}, {exact}");
            off += u32::from(ours != nearest);
        }
        assert!((off as usize) < values.len() / 200, "{off} of {} are not the nearest", values.len());
        assert_eq!((exp(0.0), exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (1.0, f32::INFINITY, 0.0));
        assert!(exp(f32::NAN).is_nan());
    }

    struct All<'a>(&'a mut [f32]);

    impl Kernel for All<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            self.0.iter_mut().for_each(|x| *x = exp(*x));
        }
    }

    #[test]
    fn registers_of_every_width_give_the_same_bits() {
        let values: Vec<f32> = (0..10_007).map(|x| (x as f32 - 5_000.0) * 0.021).collect();
        let plain: Vec<u32> = values.iter().map(|&x| exp(x).to_bits()).collect();
        for width in Width::available() {
            let mut own = values.clone();
            with_width(width, All(&mut own));
            assert_eq!(own.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), plain, "{width:?}");
        }
    }
}
