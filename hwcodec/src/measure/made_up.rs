//! Tensors to measure with: the same numbers on every machine.

use trinity_numeric::random::SplitMix64;

/// A well-mixed number.
pub(super) fn mix(seed: u64) -> u64 {
    SplitMix64::nth(seed.wrapping_add(1))
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
