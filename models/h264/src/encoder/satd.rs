//! Sums of absolute Hadamard-transformed differences, the quick measure of
//! what a residual will cost.
//!
//! Eight residuals are transformed side by side, one to a lane: no shuffles,
//! and any vector width does. All sums are in the unit of an orthonormal
//! transform, so that block sizes compare.

/// Eight values of one position.
pub type Lanes = [i32; 8];

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

#[inline(always)]
fn satd_lanes<const N: usize, const LEN: usize>(residuals: &mut [Lanes; LEN]) -> [u32; 8] {
    for y in 0..N {
        butterflies::<N, 1>(residuals, N * y);
    }
    if N == 4 {
        for x in 0..N {
            butterflies::<N, 4>(residuals, x);
        }
    } else {
        for x in 0..N {
            butterflies::<N, 8>(residuals, x);
        }
    }
    let mut sums = [0u32; 8];
    for values in residuals {
        for lane in 0..8 {
            sums[lane] += values[lane].unsigned_abs();
        }
    }
    sums.map(|sum| sum / N as u32)
}

/// SATD of eight 4×4 residuals.
pub fn satd_4x4(residuals: &mut [Lanes; 16]) -> [u32; 8] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        #[allow(unsafe_code)]
        return unsafe { avx2::satd_4x4(residuals) };
    }
    satd_lanes::<4, 16>(residuals)
}

/// SATD of eight 8×8 residuals.
pub fn satd_8x8(residuals: &mut [Lanes; 64]) -> [u32; 8] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        #[allow(unsafe_code)]
        return unsafe { avx2::satd_8x8(residuals) };
    }
    satd_lanes::<8, 64>(residuals)
}

/// The same code, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Lanes, satd_lanes};

    #[target_feature(enable = "avx2")]
    pub fn satd_4x4(residuals: &mut [Lanes; 16]) -> [u32; 8] {
        satd_lanes::<4, 16>(residuals)
    }

    #[target_feature(enable = "avx2")]
    pub fn satd_8x8(residuals: &mut [Lanes; 64]) -> [u32; 8] {
        satd_lanes::<8, 64>(residuals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_agree_with_the_definition() {
        let mut lanes = [[0i32; 8]; 16];
        for (k, values) in lanes.iter_mut().enumerate() {
            for (lane, value) in values.iter_mut().enumerate() {
                *value = (k * 37 + lane * 11 + k * k * lane) as i32 % 511 - 255;
            }
        }
        let hadamard = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1 } else { -1 };
        let expected: [u32; 8] = std::array::from_fn(|lane| {
            let mut sum = 0;
            for v in 0..4 {
                for u in 0..4 {
                    let value: i32 =
                        (0..16).map(|k| lanes[k][lane] * hadamard(v, k / 4) * hadamard(u, k % 4)).sum();
                    sum += value.unsigned_abs();
                }
            }
            sum / 4
        });
        assert_eq!(satd_4x4(&mut lanes.clone()), expected);
        assert_eq!(satd_lanes::<4, 16>(&mut lanes), expected);
    }

    #[test]
    fn both_builds_of_the_8x8_sum_agree() {
        let mut lanes: [Lanes; 64] =
            std::array::from_fn(|k| std::array::from_fn(|lane| (k * 53 + lane * 29) as i32 % 301 - 150));
        assert_eq!(satd_8x8(&mut lanes.clone()), satd_lanes::<8, 64>(&mut lanes));
    }
}
