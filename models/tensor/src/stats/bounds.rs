//! Bits that no code can beat: the entropy of symbols, and Shannon's bound for
//! Gaussian values.

/// Order-0 entropy in bits per symbol.
pub fn entropy(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let total = total as f64;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| count as f64 / total)
        .map(|p| -p * p.log2())
        .sum::<f64>()
        .max(0.0)
}

/// Shannon's bound for independent Gaussian values: bits to reach a mean
/// squared error.
pub fn gaussian_bound(variance: f64, mse: f64) -> f64 {
    (0.5 * (variance / mse).log2()).max(0.0)
}
