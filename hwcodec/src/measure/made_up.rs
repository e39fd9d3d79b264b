//! Tensors to measure with: the same numbers on every machine.

/// A well-mixed number (SplitMix64).
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A standard normal draw.
fn normal(seed: u64) -> f32 {
    let uniform = |n: u64| ((mix(n) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (uniform(2 * seed), uniform(2 * seed + 1));
    ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
}

/// Gaussian values with scales of rows and columns, as weights have.
pub fn weights(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let row: Vec<f32> = (0..rows).map(|r| (0.25 * normal(seed ^ (r as u64 + 7) << 32)).exp()).collect();
    let col: Vec<f32> = (0..cols).map(|c| (0.35 * normal(seed ^ (c as u64 + 9) << 40)).exp()).collect();
    (0..rows * cols).map(|i| 0.02 * row[i / cols] * col[i % cols] * normal(seed + i as u64)).collect()
}
