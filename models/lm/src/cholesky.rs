//! Cholesky factors in blocks, so that nearly all of the work is products of matrices.
//!
//! The plain factorization and substitution of a few thousand inputs read a matrix from memory for every column;
//! in blocks they are what processors do best. Same result for any number of threads: columns are solved in
//! pieces of a fixed size. Knows matrices alone.

use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, Dyn};
use rayon::prelude::*;

const BLOCK: usize = 64;
const PIECE: usize = 128;

/// L of a symmetric matrix L Lᵀ, and the inverses of its blocks on the diagonal.
#[derive(Debug, Clone)]
pub(crate) struct Factor {
    lower: DMatrix<f64>,
    inverses: Vec<DMatrix<f64>>,
}

impl Factor {
    /// Factors a symmetric matrix, of which the lower triangle is read; nothing where it is not positive definite.
    pub fn new(mut matrix: DMatrix<f64>) -> Option<Self> {
        let size = matrix.nrows();
        let mut inverses = Vec::with_capacity(size.div_ceil(BLOCK));
        for first in (0..size).step_by(BLOCK) {
            let count = BLOCK.min(size - first);
            let after = first + count;
            let own = matrix.view((first, first), (count, count)).into_owned().cholesky()?.l();
            let inverse = own.solve_lower_triangular(&DMatrix::identity(count, count))?;
            matrix.view_mut((first, first), (count, count)).copy_from(&own);
            let below = matrix.view((after, first), (size - after, count)) * inverse.transpose();
            matrix.view_mut((after, first), (size - after, count)).copy_from(&below);
            // The rest, column block by column block, from the diagonal down.
            let rest = (after..size).step_by(BLOCK).collect::<Vec<_>>();
            let taken: Vec<DMatrix<f64>> = rest
                .par_iter()
                .map(|&column| {
                    let width = BLOCK.min(size - column);
                    let left = below.rows(column - after, size - column);
                    left * below.rows(column - after, width).transpose()
                })
                .collect();
            for (column, taken) in rest.into_iter().zip(taken) {
                let mut part = matrix.view_mut((column, column), taken.shape());
                part -= taken;
            }
            inverses.push(inverse);
        }
        Some(Self { lower: matrix, inverses })
    }

    /// X of L Lᵀ X = B, B as many rows as the matrix.
    pub fn solve(&self, right: &DMatrix<f64>) -> DMatrix<f64> {
        let size = self.lower.nrows();
        let mut solved = right.clone();
        solved.as_mut_slice().par_chunks_mut((size * PIECE).max(1)).for_each(|piece| {
            let mut own = DMatrixViewMut::from_slice(piece, size, piece.len() / size.max(1));
            let width = own.ncols();
            for (block, inverse) in self.inverses.iter().enumerate() {
                let (first, count) = (block * BLOCK, inverse.nrows());
                let known = self.lower.view((first, 0), (count, first)) * own.rows(0, first);
                let rest = own.view((first, 0), (count, width)) - known;
                own.view_mut((first, 0), (count, width)).gemm(1.0, inverse, &rest, 0.0);
            }
            self.back(&mut own);
        });
        solved
    }

    /// X of Lᵀ X = B, B as many rows as the matrix.
    pub fn solve_transposed(&self, right: &DMatrix<f64>) -> DMatrix<f64> {
        let size = self.lower.nrows();
        let mut solved = right.clone();
        solved.as_mut_slice().par_chunks_mut((size * PIECE).max(1)).for_each(|piece| {
            let width = piece.len() / size.max(1);
            self.back(&mut DMatrixViewMut::from_slice(piece, size, width));
        });
        solved
    }

    /// Puts X of Lᵀ X = B in the place of B.
    fn back(&self, own: &mut DMatrixViewMut<'_, f64>) {
        let (size, width) = own.shape();
        for (block, inverse) in self.inverses.iter().enumerate().rev() {
            let (first, count) = (block * BLOCK, inverse.nrows());
            let after = first + count;
            let rest = match size - after {
                0 => own.view((first, 0), (count, width)).into_owned(),
                behind => {
                    // Rows for columns, as it lies: nalgebra's `tr_mul` is a product for each entry.
                    let below = &self.lower.as_slice()[first * size + after..];
                    let below: DMatrixView<'_, f64, Dyn, Dyn> =
                        DMatrixView::from_slice_with_strides(below, count, behind, size, 1);
                    own.view((first, 0), (count, width)) - below * own.rows(after, behind)
                }
            };
            own.view_mut((first, 0), (count, width)).gemm(1.0, &inverse.transpose(), &rest, 0.0);
        }
    }

    pub fn diagonal(&self) -> Vec<f64> {
        self.lower.diagonal().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several blocks, the last not full; several pieces of right-hand sides.
    fn case() -> (DMatrix<f64>, DMatrix<f64>) {
        let size = 2 * BLOCK + 21;
        let value = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1009) as f64 / 504.5 - 1.0;
        let seen = DMatrix::from_fn(size, 3 * size, value);
        let certain = DMatrix::identity(size, size) * size as f64;
        (&seen * seen.transpose() + certain, DMatrix::from_fn(size, PIECE + 9, |i, j| value(j + 3, i)))
    }

    #[test]
    fn blocks_solve_what_the_plain_factor_solves_for_any_number_of_threads() {
        let (matrix, right) = case();
        let plain = matrix.clone().cholesky().unwrap();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let factor = Factor::new(matrix.clone()).unwrap();
                (factor.solve(&right), factor.diagonal())
            })
        };
        let (solved, diagonal) = with(1);
        assert_eq!((solved.clone(), diagonal.clone()), with(3));
        let exact = plain.solve(&right);
        assert!((&solved - &exact).amax() < 1e-9 * exact.amax());
        let half = Factor::new(matrix.clone()).unwrap().solve_transposed(&right);
        assert!((plain.l().transpose() * half - &right).amax() < 1e-9 * right.amax());
        let known = plain.l().diagonal();
        assert!(diagonal.iter().zip(known.iter()).all(|(a, b)| (a / b - 1.0).abs() < 1e-10));
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        let (mut matrix, _) = case();
        matrix[(BLOCK + 3, BLOCK + 3)] = -1.0;
        assert!(Factor::new(matrix).is_none());
    }
}
