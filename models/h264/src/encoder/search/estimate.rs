//! A quick estimate at the bits a residual will take, for ranking predictions.
//!
//! After a Hadamard transform a coefficient `c` takes about log2(1 + |c| / step)
//! bits. Eight residuals are transformed side by side, one to a lane: no
//! shuffles, and any vector width does. The estimate for noise is far better than
//! the usual sum of absolute differences, which counts one large coefficient
//! like many small ones.

use trinity_numeric::simd::{Kernel, widest};

/// Eight values of one position.
pub type Lanes = [f32; 8];

#[inline(always)]
fn butterflies<const N: usize, const STRIDE: usize>(values: &mut [Lanes], start: usize) {
    let mut half = N / 2;
    while half > 0 {
        let mut group = 0;
        while group < N {
            for k in group..group + half {
                let (i, j) = (start + k * STRIDE, start + (k + half) * STRIDE);
                let (a, b) = (values[i], values[j]);
                for lane in 0..8 {
                    values[i][lane] = a[lane] + b[lane];
                    values[j][lane] = a[lane] - b[lane];
                }
            }
            group += 2 * half;
        }
        half /= 2;
    }
}

/// log2 of a positive number, straight between powers of two.
#[inline(always)]
fn rough_log2(value: f32) -> f32 {
    value.to_bits() as i32 as f32 / 8_388_608.0 - 127.0
}

#[inline(always)]
fn transform_lanes<const N: usize, const LEN: usize>(values: &mut [Lanes; LEN]) {
    for y in 0..N {
        butterflies::<N, 1>(values, N * y);
    }
    for x in 0..N {
        if N == 4 {
            butterflies::<N, 4>(values, x);
        } else {
            butterflies::<N, 8>(values, x);
        }
    }
}

/// Sums the logarithms of coefficients; `scale` is one over the step and the
/// transform's gain.
#[inline(always)]
fn sum_lanes<const LEN: usize>(coefficients: &[Lanes; LEN], scale: f32) -> [f32; 8] {
    let mut bits = [0f32; 8];
    // Four factors of up to 2^17 each stay within a float.
    for group in coefficients.chunks_exact(4) {
        let mut product = [1f32; 8];
        for values in group {
            for lane in 0..8 {
                product[lane] *= 1.0 + values[lane].abs() * scale;
            }
        }
        for lane in 0..8 {
            bits[lane] += rough_log2(product[lane]);
        }
    }
    bits
}

#[inline(always)]
fn estimate_lanes<const N: usize, const LEN: usize>(residuals: &mut [Lanes; LEN], scale: f32) -> [f32; 8] {
    transform_lanes::<N, LEN>(residuals);
    sum_lanes(residuals, scale)
}

/// The sixteen 4×4 blocks of a macroblock, transformed: eight to a half.
///
/// The transform is linear and exact, so the source is transformed once and
/// the transform of each prediction subtracted. Most predictions have next to
/// none: a vertical one has a first row, a horizontal one a first column, a
/// flat one a first coefficient.
#[derive(Debug, Clone)]
pub struct TransformedMb {
    halves: [[Lanes; 16]; 2],
}

impl TransformedMb {
    pub fn new(samples: &[u16; 256]) -> Self {
        let mut halves = [[[0f32; 8]; 16]; 2];
        for (y, row) in samples.chunks_exact(16).enumerate() {
            let (half, above) = (&mut halves[y / 8], y / 4 % 2 * 4);
            for (x, &sample) in row.iter().enumerate() {
                half[y % 4 * 4 + x % 4][above + x / 4] = f32::from(sample);
            }
        }
        halves.iter_mut().for_each(|half| widest(Transform(half)));
        Self { halves }
    }

    /// Coefficients of a prediction with equal rows.
    pub fn vertical(row: &[u16; 16]) -> Self {
        let mut halves = [[[0f32; 8]; 16]; 2];
        for block in 0..4 {
            let line = hadamard_4(std::array::from_fn(|k| f32::from(row[4 * block + k])));
            for (k, value) in line.into_iter().enumerate() {
                for half in &mut halves {
                    half[k][block] = 4.0 * value;
                    half[k][4 + block] = 4.0 * value;
                }
            }
        }
        Self { halves }
    }

    /// Coefficients of a prediction with equal columns.
    pub fn horizontal(column: &[u16; 16]) -> Self {
        let mut halves = [[[0f32; 8]; 16]; 2];
        for block in 0..4 {
            let line = hadamard_4(std::array::from_fn(|k| f32::from(column[4 * block + k])));
            for (k, value) in line.into_iter().enumerate() {
                let above = block % 2 * 4;
                halves[block / 2][4 * k][above..above + 4].fill(4.0 * value);
            }
        }
        Self { halves }
    }

    /// Coefficients of one value everywhere.
    pub fn flat(value: u16) -> Self {
        let mut halves = [[[0f32; 8]; 16]; 2];
        halves.iter_mut().for_each(|half| half[0] = [16.0 * f32::from(value); 8]);
        Self { halves }
    }

    /// The estimate for this source less a prediction.
    pub fn estimate(&self, prediction: &Self, step: f32) -> f32 {
        let mut sum = 0.0;
        for (own, other) in self.halves.iter().zip(&prediction.halves) {
            sum += widest(Difference(own, other, 0.25 / step)).iter().sum::<f32>();
        }
        sum
    }
}

/// One line of the transform, in the order of [`butterflies`].
fn hadamard_4([a, b, c, d]: [f32; 4]) -> [f32; 4] {
    let (s, t, u, v) = (a + c, b + d, a - c, b - d);
    [s + t, s - t, u + v, u - v]
}

/// Transforms in the widest registers.
struct Transform<'a>(&'a mut [Lanes; 16]);

impl Kernel for Transform<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        transform_lanes::<4, 16>(self.0);
    }
}

/// The estimate for one set of coefficients less another, in the widest registers.
struct Difference<'a>(&'a [Lanes; 16], &'a [Lanes; 16], f32);

impl Kernel for Difference<'_> {
    type Output = [f32; 8];

    #[inline(always)]
    fn run(self) -> [f32; 8] {
        let mut difference = *self.0;
        for (own, other) in difference.iter_mut().zip(self.1) {
            for lane in 0..8 {
                own[lane] -= other[lane];
            }
        }
        sum_lanes(&difference, self.2)
    }
}

/// [`estimate_lanes`] in the widest registers.
struct Estimate<'a, const N: usize, const LEN: usize>(&'a mut [Lanes; LEN], f32);

impl<const N: usize, const LEN: usize> Kernel for Estimate<'_, N, LEN> {
    type Output = [f32; 8];

    #[inline(always)]
    fn run(self) -> [f32; 8] {
        estimate_lanes::<N, LEN>(self.0, self.1)
    }
}

/// The estimate for eight N×N residuals, which it leaves transformed.
pub fn estimate<const N: usize, const LEN: usize>(residuals: &mut [Lanes; LEN], step: f32) -> [f32; 8] {
    widest(Estimate::<N, LEN>(residuals, 1.0 / N as f32 / step))
}

/// The estimate for one block given its transformed coefficients.
#[inline(always)]
pub fn estimate_one<const N: usize, const LEN: usize>(coefficient: impl Fn(usize) -> f32, step: f32) -> f32 {
    let scale = 1.0 / (N as f32 * step);
    let mut bits = 0.0;
    for group in (0..LEN).step_by(4) {
        let mut product = 1f32;
        for k in group..group + 4 {
            product *= 1.0 + coefficient(k).abs() * scale;
        }
        bits += rough_log2(product);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<const LEN: usize>() -> [Lanes; LEN] {
        std::array::from_fn(|k| {
            std::array::from_fn(|lane| ((k * 53 + lane * 29 + k * k) % 511) as f32 - 255.0)
        })
    }

    #[test]
    fn both_builds_agree_to_the_last_bit() {
        assert_eq!(estimate::<4, 16>(&mut sample(), 2.0), estimate_lanes::<4, 16>(&mut sample(), 0.125));
        assert_eq!(estimate::<8, 64>(&mut sample(), 2.0), estimate_lanes::<8, 64>(&mut sample(), 0.0625));
    }

    #[test]
    fn a_prediction_subtracted_after_the_transform_is_one_subtracted_before() {
        let source: [u16; 256] = std::array::from_fn(|k| ((k * 53 + k * k * 7) % 256) as u16);
        let line: [u16; 16] = std::array::from_fn(|k| (k * k % 200) as u16);
        let flat = |mode: usize, k: usize| [line[k % 16], line[k / 16], 77][mode];
        let quick =
            [TransformedMb::vertical(&line), TransformedMb::horizontal(&line), TransformedMb::flat(77)];
        for (mode, quick) in quick.iter().enumerate() {
            let full = TransformedMb::new(&std::array::from_fn(|k| flat(mode, k)));
            assert_eq!(quick.halves, full.halves, "mode {mode}");
            let mut expected = 0.0;
            for half in 0..2 {
                let mut lanes: [Lanes; 16] = std::array::from_fn(|k| {
                    std::array::from_fn(|lane| {
                        let (x, y) = (4 * (lane % 4) + k % 4, 8 * half + 4 * (lane / 4) + k / 4);
                        f32::from(source[16 * y + x]) - f32::from(flat(mode, 16 * y + x))
                    })
                });
                expected += estimate::<4, 16>(&mut lanes, 3.0).iter().sum::<f32>();
            }
            assert_eq!(TransformedMb::new(&source).estimate(quick, 3.0), expected, "mode {mode}");
        }
    }

    #[test]
    fn the_estimate_follows_its_definition() {
        let lanes = sample::<16>();
        let hadamard = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let exact: f64 = (0..16)
            .map(|c| {
                let value: f64 = (0..16)
                    .map(|k| f64::from(lanes[k][3]) * hadamard(c / 4, k / 4) * hadamard(c % 4, k % 4))
                    .sum();
                (1.0 + value.abs() / 4.0 / 2.0).log2()
            })
            .sum();
        let estimate = f64::from(estimate::<4, 16>(&mut lanes.clone(), 2.0)[3]);
        // The straight-line logarithm is at most 0.09 low, once for every four coefficients.
        assert!(estimate <= exact + 1e-3 && estimate >= exact - 4.0 * 0.09, "{estimate} {exact}");
    }
}
