//! Sums of absolute Hadamard-transformed differences: how much a prediction
//! leaves to code, without coding it.

#[cfg(target_arch = "x86_64")]
mod avx2;

/// Over a `size`×`size` block; `prediction` rows are `size` apart. Scaled so
/// that white noise sums to about what its absolute values do.
pub fn satd(source: &[u16], stride: usize, prediction: &[u16], size: usize, depth: u32) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if depth <= 9 && size >= 8 && avx2::available() {
        return if size == 8 {
            avx2::sum_8(source, stride, prediction, size)
        } else {
            avx2::sum_wide(source, stride, prediction, size)
        };
    }
    let _ = depth;
    if size == 4 {
        return hadamard_4(source, stride, prediction);
    }
    satd_scalar(source, stride, prediction, size)
}

fn satd_scalar(source: &[u16], stride: usize, prediction: &[u16], size: usize) -> u64 {
    let step = size.min(8);
    let mut sum = 0;
    for y in (0..size).step_by(step) {
        for x in (0..size).step_by(step) {
            let (source, prediction) = (&source[y * stride + x..], &prediction[y * size + x..]);
            sum += if step == 8 {
                hadamard::<8>(source, stride, prediction, size)
            } else {
                hadamard::<4>(source, stride, prediction, size)
            };
        }
    }
    sum
}

/// [`hadamard`] of a lone 4×4 block, four columns at a time.
fn hadamard_4(source: &[u16], stride: usize, prediction: &[u16]) -> u64 {
    let rows: [[i32; 4]; 4] = std::array::from_fn(|y| {
        let (source, prediction) = (&source[y * stride..][..4], &prediction[4 * y..][..4]);
        std::array::from_fn(|x| i32::from(source[x]) - i32::from(prediction[x]))
    });
    let across = |rows: [[i32; 4]; 4]| -> [[i32; 4]; 4] {
        let add = |a: [i32; 4], b: [i32; 4]| -> [i32; 4] { std::array::from_fn(|i| a[i] + b[i]) };
        let take = |a: [i32; 4], b: [i32; 4]| -> [i32; 4] { std::array::from_fn(|i| a[i] - b[i]) };
        let [a, b, c, d] = rows;
        let (e, f, g, h) = (add(a, b), take(a, b), add(c, d), take(c, d));
        [add(e, g), take(e, g), add(f, h), take(f, h)]
    };
    let columns = across(rows);
    let columns = across(std::array::from_fn(|x| std::array::from_fn(|y| columns[y][x])));
    let sum: u32 = columns.as_flattened().iter().map(|v| v.unsigned_abs()).sum();
    u64::from(sum / 4)
}

fn hadamard<const N: usize>(source: &[u16], stride: usize, prediction: &[u16], pitch: usize) -> u64 {
    let mut block = [[0i32; N]; N];
    for (y, row) in block.iter_mut().enumerate() {
        for (x, d) in row.iter_mut().enumerate() {
            *d = i32::from(source[y * stride + x]) - i32::from(prediction[y * pitch + x]);
        }
    }
    for row in &mut block {
        butterflies(row);
    }
    let mut sum = 0u64;
    for x in 0..N {
        let mut column = [0i32; N];
        for y in 0..N {
            column[y] = block[y][x];
        }
        butterflies(&mut column);
        sum += column.iter().map(|v| u64::from(v.unsigned_abs())).sum::<u64>();
    }
    // An orthonormal transform would divide by N.
    sum / N as u64
}

fn butterflies<const N: usize>(values: &mut [i32; N]) {
    let mut half = N / 2;
    while half > 0 {
        for start in (0..N).step_by(2 * half) {
            for i in start..start + half {
                (values[i], values[i + half]) = (values[i] + values[i + half], values[i] - values[i + half]);
            }
        }
        half /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_difference_has_one_coefficient() {
        for size in [4, 8, 16, 32] {
            let (source, prediction) = (vec![110; size * size], vec![100; size * size]);
            assert_eq!(satd(&source, size, &prediction, size, 8), 10 * (size * size / size.min(8)) as u64);
        }
    }

    #[test]
    fn vector_code_equals_scalar_code() {
        for size in [4, 8, 16, 32] {
            let noise = |seed: u32| -> Vec<u16> {
                (0..40 * 40u32)
                    .map(|i| (i.wrapping_mul(seed).wrapping_mul(2_654_435_761) >> 23) as u16)
                    .collect()
            };
            let (source, prediction) = (noise(77), noise(91));
            assert_eq!(satd(&source, 40, &prediction, size, 9), satd_scalar(&source, 40, &prediction, size));
        }
    }
}
