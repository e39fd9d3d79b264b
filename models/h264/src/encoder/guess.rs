//! A quick guess at the bits a residual will take, for ranking predictions.
//!
//! After a Hadamard transform a coefficient `c` takes about log2(1 + |c| / step)
//! bits. Eight residuals are transformed side by side, one to a lane: no
//! shuffles, and any vector width does. The guess for noise is far better than
//! the usual sum of absolute differences, which counts one large coefficient
//! like many small ones.

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

/// Transforms `residuals` in place and sums the logarithms; `scale` is one
/// over the step and the transform's gain.
#[inline(always)]
fn guess_lanes<const N: usize, const LEN: usize>(residuals: &mut [Lanes; LEN], scale: f32) -> [f32; 8] {
    for y in 0..N {
        butterflies::<N, 1>(residuals, N * y);
    }
    for x in 0..N {
        if N == 4 {
            butterflies::<N, 4>(residuals, x);
        } else {
            butterflies::<N, 8>(residuals, x);
        }
    }
    let mut bits = [0f32; 8];
    // Four factors of up to 2^17 each stay within a float.
    for group in residuals.chunks_exact(4) {
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

/// The guess for eight 4×4 residuals, which it leaves transformed.
pub fn guess_4x4(residuals: &mut [Lanes; 16], step: f32) -> [f32; 8] {
    let scale = 0.25 / step;
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        #[allow(unsafe_code)]
        return unsafe { avx2::guess_4x4(residuals, scale) };
    }
    guess_lanes::<4, 16>(residuals, scale)
}

/// The same for 8×8.
pub fn guess_8x8(residuals: &mut [Lanes; 64], step: f32) -> [f32; 8] {
    let scale = 0.125 / step;
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        #[allow(unsafe_code)]
        return unsafe { avx2::guess_8x8(residuals, scale) };
    }
    guess_lanes::<8, 64>(residuals, scale)
}

/// The guess for one block given its transformed coefficients.
#[inline(always)]
pub fn guess_one<const N: usize, const LEN: usize>(coefficient: impl Fn(usize) -> f32, step: f32) -> f32 {
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

/// The same code, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Lanes, guess_lanes};

    #[target_feature(enable = "avx2")]
    pub fn guess_4x4(residuals: &mut [Lanes; 16], scale: f32) -> [f32; 8] {
        guess_lanes::<4, 16>(residuals, scale)
    }

    #[target_feature(enable = "avx2")]
    pub fn guess_8x8(residuals: &mut [Lanes; 64], scale: f32) -> [f32; 8] {
        guess_lanes::<8, 64>(residuals, scale)
    }
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
        assert_eq!(guess_4x4(&mut sample(), 2.0), guess_lanes::<4, 16>(&mut sample(), 0.125));
        assert_eq!(guess_8x8(&mut sample(), 2.0), guess_lanes::<8, 64>(&mut sample(), 0.0625));
    }

    #[test]
    fn the_guess_follows_its_definition() {
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
        let guess = f64::from(guess_4x4(&mut lanes.clone(), 2.0)[3]);
        // The straight-line logarithm is at most 0.09 low, once for every four coefficients.
        assert!(guess <= exact + 1e-3 && guess >= exact - 4.0 * 0.09, "{guess} {exact}");
    }
}
