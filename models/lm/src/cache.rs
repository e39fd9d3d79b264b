//! Turns of K and V in which errors count alike.
//!
//! Where errors δ cost δᵀ C δ ([`crate::cache_moments`]) and C = L Lᵀ, a codec that leaves little squared error in
//! Lᵀ x leaves little of that cost. For V the turn can be put into the weights
//! before and after; for K it is a product of each query with L⁻¹. Knows nothing
//! of codecs.

use crate::cache_moments::{CacheMoments, of_kind};
use crate::calibrate::damped;
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};

/// A head's turn, and the way back.
#[derive(Debug, Clone)]
struct Turn {
    forward: DMatrix<f32>,
    inverse: DMatrix<f32>,
}

/// Turns of every layer's K and V, one for each head of the cache.
#[derive(Debug, Clone)]
pub struct CacheTurns {
    layers: Vec<[Vec<Turn>; 2]>,
    head_dim: usize,
}

impl Turn {
    /// The turn that makes errors weighed by `moments` count alike; none where
    /// they are all zero.
    fn new(moments: &DMatrix<f32>) -> Self {
        let size = moments.nrows();
        let plain =
            || Self { forward: DMatrix::identity(size, size), inverse: DMatrix::identity(size, size) };
        let Some(factor) = damped(moments).cholesky() else { return plain() };
        let forward = factor.l().transpose();
        match forward.clone().try_inverse() {
            Some(inverse) => Self { forward: forward.map(|v| v as f32), inverse: inverse.map(|v| v as f32) },
            None => plain(),
        }
    }
}

impl CacheTurns {
    pub fn new(moments: &CacheMoments) -> Self {
        let turns = |costs: &Vec<DMatrix<f32>>| costs.iter().map(Turn::new).collect::<Vec<_>>();
        let layers: Vec<[Vec<Turn>; 2]> =
            moments.layers.iter().map(|layer| layer.costs.each_ref().map(turns)).collect();
        let head_dim = layers.iter().flatten().flatten().next().map_or(1, |turn| turn.forward.nrows());
        Self { layers, head_dim }
    }

    /// A layer's turns of K, or V, as one matrix.
    pub(crate) fn matrix(&self, layer: usize, kind: usize) -> DMatrix<f64> {
        let (turns, dim) = (&self.layers[layer][kind], self.head_dim);
        let mut matrix = DMatrix::zeros(turns.len() * dim, turns.len() * dim);
        for (head, turn) in turns.iter().enumerate() {
            matrix.view_mut((head * dim, head * dim), (dim, dim)).copy_from(&turn.forward.map(f64::from));
        }
        matrix
    }

    /// Turns rows of a layer's K (`kind` "k") or V in place, or back.
    pub(crate) fn apply(&self, layer: usize, kind: &str, direction: Direction, values: &mut [f32]) {
        let turns = &self.layers[layer][of_kind(kind)];
        let dim = self.head_dim;
        let mut head = vec![0.0; values.len() / turns.len().max(1)];
        let mut turned = head.clone();
        for (at, turn) in turns.iter().enumerate() {
            let rows = values.chunks_exact(turns.len() * dim);
            rows.zip(head.chunks_exact_mut(dim))
                .for_each(|(row, to)| to.copy_from_slice(&row[at * dim..][..dim]));
            let matrix = match direction {
                Direction::Forward => &turn.forward,
                Direction::Back => &turn.inverse,
            };
            let tokens = head.len() / dim;
            DMatrixViewMut::from_slice(&mut turned, dim, tokens).gemm(
                1.0,
                matrix,
                &DMatrixView::from_slice(&head, dim, tokens),
                0.0,
            );
            let rows = values.chunks_exact_mut(turns.len() * dim);
            rows.zip(turned.chunks_exact(dim))
                .for_each(|(row, from)| row[at * dim..][..dim].copy_from_slice(from));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}
