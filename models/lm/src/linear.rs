//! `y = x · Wᵀ` for a window of tokens: where nearly all the time goes.
//!
//! A window's activations are `tokens × channels`, row by row; the same bytes
//! are a `channels × tokens` matrix in nalgebra's column order, so a linear
//! layer is one product `W · X` without moving anything, or one on the unit for tiles
//! where the processor has one.

use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};
use std::ops::Range;
use trinity_numeric::tiles::{Halves, Side, Sums, Unit, add_products};

/// Tokens from which laying a weight out for the unit for tiles is little beside its products.
const WORTH_TILES: usize = 128;

/// A linear layer's weight, `out × in`, kept in the order products want, and what it adds: nothing where that is empty.
#[derive(Debug, Clone)]
pub struct Linear {
    matrix: DMatrix<f32>,
    bias: Vec<f32>,
}

impl Linear {
    /// From rows of `inputs` values, as checkpoints store them.
    pub fn from_rows(outputs: usize, inputs: usize, rows: &[f32]) -> Self {
        Self { matrix: DMatrix::from_row_slice(outputs, inputs, rows), bias: Vec::new() }
    }

    pub fn with_bias(self, bias: Vec<f32>) -> Self {
        Self { bias, ..self }
    }

    /// What it adds; nothing where that is empty.
    pub fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// Puts another weight of the same shape in the place of its own.
    pub fn replace(&mut self, rows: &[f32]) {
        self.matrix = DMatrix::from_row_slice(self.outputs(), self.inputs(), rows);
    }

    pub fn to_rows(&self) -> Vec<f32> {
        self.matrix.transpose().as_slice().to_vec()
    }

    /// One row of the weight, where it serves as a table.
    pub fn copy_row(&self, row: usize, into: &mut [f32]) {
        into.iter_mut().zip(self.matrix.row(row).iter()).for_each(|(to, &from)| *to = from);
    }

    /// WᵀW of some inputs.
    pub fn column_moments(&self, inputs: Range<usize>) -> DMatrix<f32> {
        let own = self.matrix.columns(inputs.start, inputs.len());
        own.transpose() * own
    }

    pub fn outputs(&self) -> usize {
        self.matrix.nrows()
    }

    pub fn inputs(&self) -> usize {
        self.matrix.ncols()
    }

    /// `y = x · Wᵀ + beta · y`, and the bias, over `tokens` rows.
    pub fn apply(&self, x: &[f32], y: &mut [f32], beta: f32) {
        let tokens = x.len() / self.inputs();
        if let Some(unit) = Unit::get().filter(|_| tokens >= WORTH_TILES) {
            let (inputs, stride) = (self.inputs(), self.outputs());
            let weight = Side::right_of_columns((self.matrix.as_slice(), stride), 0..stride, Halves::Both);
            y.iter_mut().for_each(|y| *y = if beta == 0.0 { 0.0 } else { beta * *y });
            // As many tokens at once as stay in cache.
            let some = x.chunks(WORTH_TILES * inputs).zip(y.chunks_mut(WORTH_TILES * stride));
            some.for_each(|(x, values)| {
                let x = Side::left_of_rows(x, inputs, Halves::Both);
                add_products(unit, &x, &weight, &mut Sums { values, stride, from: 0 });
            });
        } else {
            let x = DMatrixView::from_slice(x, self.inputs(), tokens);
            let mut product = DMatrixViewMut::from_slice(y, self.outputs(), tokens);
            product.gemm(1.0, &self.matrix, &x, beta);
        }
        if !self.bias.is_empty() {
            let rows = y.chunks_exact_mut(self.bias.len());
            rows.for_each(|row| row.iter_mut().zip(&self.bias).for_each(|(y, bias)| *y += bias));
        }
    }

    /// `x · Wᵀ` in a buffer that fits itself to it.
    pub fn apply_into<'y>(&self, x: &[f32], y: &'y mut Vec<f32>) -> &'y [f32] {
        y.resize(x.len() / self.inputs() * self.outputs(), 0.0);
        self.apply(x, y, 0.0);
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_layer_multiplies_rows_by_the_transposed_weight() {
        let layer = Linear::from_rows(2, 3, &[1.0, 2.0, 3.0, -1.0, 0.5, 0.0]);
        let mut y = vec![10.0; 4];
        layer.apply(&[1.0, 0.0, 2.0, 0.0, 4.0, 0.0], &mut y, 0.0);
        assert_eq!(y, [7.0, -1.0, 8.0, 2.0]);
        layer.apply(&[1.0, 0.0, 2.0, 0.0, 4.0, 0.0], &mut y, 1.0);
        assert_eq!(y, [14.0, -2.0, 16.0, 4.0]);
        assert_eq!(layer.to_rows(), [1.0, 2.0, 3.0, -1.0, 0.5, 0.0]);
    }
}
