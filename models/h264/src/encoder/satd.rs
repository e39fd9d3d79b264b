//! Sums of absolute Hadamard-transformed differences, the quick measure of
//! what a residual will cost.

/// One pass over a line of values that lie `stride` apart.
#[inline(always)]
fn butterflies<const N: usize>(values: &mut [i32], start: usize, stride: usize) {
    let mut half = N / 2;
    while half > 0 {
        for group in (0..N).step_by(2 * half) {
            for k in group..group + half {
                let (a, b) = (values[start + k * stride], values[start + (k + half) * stride]);
                values[start + k * stride] = a + b;
                values[start + (k + half) * stride] = a - b;
            }
        }
        half /= 2;
    }
}

/// SATD of a 4×4 residual, in units of an orthonormal transform's sum.
#[inline]
pub fn satd_4x4(residual: &[i32; 16]) -> u32 {
    let mut values = *residual;
    for y in 0..4 {
        butterflies::<4>(&mut values, 4 * y, 1);
    }
    for x in 0..4 {
        butterflies::<4>(&mut values, x, 4);
    }
    values.iter().map(|v| v.unsigned_abs()).sum::<u32>() / 4
}

/// SATD of an 8×8 residual, in the same unit.
#[inline]
pub fn satd_8x8(residual: &[i32; 64]) -> u32 {
    let mut values = *residual;
    for y in 0..8 {
        butterflies::<8>(&mut values, 8 * y, 1);
    }
    for x in 0..8 {
        butterflies::<8>(&mut values, x, 8);
    }
    values.iter().map(|v| v.unsigned_abs()).sum::<u32>() / 8
}
