//! Quantization (H.265 clause 8.6.3 and its encoder-side inverse).
//!
//! Levels to coefficients and back. Knows nothing of where levels come from
//! or of bits; rate-distortion optimized quantization lives in the encoder,
//! on top of [`Quantizer`].

use crate::transform::Precision;

/// levelScale of clause 8.6.3.
const LEVEL_SCALE: [i32; 6] = [40, 45, 51, 57, 64, 72];
/// 2^20 / levelScale: the encoder's reciprocal.
const QUANT_SCALE: [i32; 6] = [26214, 23302, 20560, 18396, 16384, 14564];

/// m[x][y] of clause 8.6.3 when no scaling list applies.
pub const FLAT: i32 = 16;
/// Rounding of intra levels in 1/512, a third, as the reference encoder HM rounds without
/// rate–distortion optimization: it leaves a dead zone around zero.
pub const INTRA_ROUNDING: i64 = 171;

/// Scales levels of one block size at one qP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantizer {
    scale: i64,
    quant_scale: i64,
    shift: u32,
    quant_shift: u32,
    low: i32,
    high: i32,
}

impl Quantizer {
    /// `qp` is qP of clause 8.6.2: with QpBdOffset, so never negative.
    pub fn new(qp: i32, log2: u32, precision: Precision) -> Self {
        let (step, period) = ((qp.rem_euclid(6)) as usize, qp.div_euclid(6) as u32);
        let transform_shift = precision.log2_range() as i32 - precision.depth as i32 - log2 as i32;
        Self {
            scale: i64::from(LEVEL_SCALE[step]) << period,
            quant_scale: i64::from(QUANT_SCALE[step]),
            shift: (precision.depth + log2 + 10) - precision.log2_range(),
            quant_shift: (14 + period as i32 + transform_shift) as u32,
            low: precision.coeff_min(),
            high: precision.coeff_max(),
        }
    }

    /// One level to one coefficient; `m` is the scaling factor, [`FLAT`] without lists.
    #[inline]
    pub fn scale(&self, level: i32, m: i32) -> i32 {
        let product = i64::from(level) * i64::from(m) * self.scale;
        ((product + (1 << (self.shift - 1))) >> self.shift).clamp(i64::from(self.low), i64::from(self.high))
            as i32
    }

    /// Scales a whole block without scaling lists, in place; zeros stay zero.
    pub fn scale_flat(&self, block: &mut [i32]) {
        for c in block.iter_mut().filter(|c| **c != 0) {
            *c = self.scale(*c, FLAT);
        }
    }

    /// One coefficient to a level, rounding by `offset`/512 (256 is plain
    /// rounding, [`INTRA_ROUNDING`] leaves the usual dead zone).
    #[inline]
    pub fn quantize(&self, coefficient: i32, offset: i64) -> i32 {
        let product = i64::from(coefficient.unsigned_abs()) * self.quant_scale;
        let level = (product + ((offset << self.quant_shift) >> 9)) >> self.quant_shift;
        let level = level.min(i64::from(self.high)) as i32;
        if coefficient < 0 { -level } else { level }
    }

    /// The distance between neighbouring levels, in coefficients.
    pub fn step(&self) -> f64 {
        (self.scale * i64::from(FLAT)) as f64 / f64::from(1u32 << self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scaling_undoes_quantizing_to_within_half_a_step(coefficient in -32768i32..32768, qp in 0i32..88, log2 in 2u32..=5, depth in 8u32..=16, extended in any::<bool>()) {
            let precision = Precision { depth, extended };
            prop_assume!(qp <= 51 + 6 * (depth as i32 - 8));
            let quantizer = Quantizer::new(qp, log2, precision);
            let step = quantizer.scale(1, FLAT).max(1);
            let level = quantizer.quantize(coefficient, 256);
            prop_assume!(level.abs() < precision.coeff_max());
            let back = quantizer.scale(level, FLAT);
            prop_assert!((i64::from(back) - i64::from(coefficient)).abs() <= i64::from(step) / 2 + i64::from(step) / 50 + 1 + i64::from(coefficient.unsigned_abs()) / 1000,
                "{coefficient} became {back}, step {step}");
        }
    }

    #[test]
    fn the_step_doubles_every_six_qp() {
        let precision = Precision { depth: 8, extended: false };
        for qp in 0..45 {
            let (a, b) = (Quantizer::new(qp, 3, precision), Quantizer::new(qp + 6, 3, precision));
            assert_eq!(2 * a.scale, b.scale);
        }
    }

    #[test]
    fn tables_are_reciprocal() {
        for (level, quant) in LEVEL_SCALE.iter().zip(QUANT_SCALE) {
            assert!((level * quant - (1 << 20)).abs() < 200);
        }
    }
}
