//! What quantizers of layers have in common: the factor by which errors are fed back, and what they are asked for.

use nalgebra::DMatrix;

use super::super::lossy::Matrix;
use crate::Error;

/// What is added to the diagonal of moments: over each entry itself, and over their mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Damping {
    pub(super) own: f64,
    pub(super) mean: f64,
}

/// H = M Mᵀ, M upper triangular: what is left of an error once the inputs after it are known.
pub(super) fn upper_factor(moments: &DMatrix<f64>, damping: Damping) -> Option<DMatrix<f64>> {
    let size = moments.nrows();
    let mean = moments.diagonal().mean().max(f64::MIN_POSITIVE);
    let added = |i: usize| damping.own * moments[(i, i)] + damping.mean * mean;
    let entry = |i: usize, j: usize| moments[(i, j)] + if i == j { added(i) } else { 0.0 };
    // Cholesky goes from the first input on; feedback leaves the last for last.
    let turned = DMatrix::from_fn(size, size, |i, j| entry(size - 1 - i, size - 1 - j));
    let lower = turned.cholesky()?.l();
    Some(DMatrix::from_fn(size, size, |i, j| lower[(size - 1 - i, size - 1 - j)]))
}

/// A quantizer of normalized weights, outputs × inputs.
pub(super) trait Quantizer: std::fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// The rate that it uses where so many bits per value are there; nothing where they are too few.
    fn rate_within(&self, bits: f64) -> Option<f64>;

    /// Bytes of at most so many, for inputs of these moments; nothing where they have no inverse.
    fn encode(&self, matrix: &Matrix, moments: &DMatrix<f64>, most: usize) -> Option<Vec<u8>>;

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error>;
}
