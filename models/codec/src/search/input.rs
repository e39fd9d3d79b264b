//! A matrix made ready for coding: normalized, its mean and energy known. Knows
//! nothing of how plans are chosen.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::Error;
use crate::format::trinity::plan::{Entropy, Plan, Scalars};
use crate::matrix::{Matrix, largest, scale_by};
use crate::stage::basis::Basis;
use crate::stage::precondition::Preconditioning;
use crate::stage::signalled::Signalled;
use crate::stage::trellis::Centroids;
use trinity_numeric::simd::{Kernel, Width, with_width};

/// Error of a value over its squared step, about, for a trellis in its prime.
pub const ERROR_PER_SQUARED_STEP: f64 = 0.28;

pub struct Input<'a> {
    pub basis: Option<Cow<'a, Basis>>,
    /// What the stream says of that basis, and the bits it takes.
    pub signalled: Option<Signalled>,
    signalled_bits: f64,
    pub matrix: Matrix,
    /// Made when a plan that asks for it is chosen.
    pub transposed: OnceLock<Matrix>,
    pub exponent: i32,
    /// The mean, where it is worth its bytes.
    pub offset: f32,
    /// Whether zero is a value like others: it must then be a level of codes
    /// that know no symmetry.
    pub around_zero: bool,
    pub energy: f64,
    /// Energy around the offset.
    pub spread: f64,
    pub count: usize,
}

impl<'a> Input<'a> {
    pub fn new(values: &[f32], rows: usize, cols: usize) -> Result<Self, Error> {
        let mut matrix = Matrix::finite(values, rows, cols)?;
        // The exponent of the largest value, subnormal or not.
        let largest = largest(values);
        let exponent = if largest == 0.0 { 0 } else { (f64::from(largest).to_bits() >> 52) as i32 - 1023 };
        scale_by(&mut matrix.values, -exponent);
        Ok(Self::of(matrix, exponent, None))
    }

    pub fn rebased(&self, preconditioning: Preconditioning, basis: Option<&'a Basis>) -> Self {
        let mut matrix = self.matrix.clone();
        let basis = basis.filter(|_| matches!(preconditioning, Preconditioning::Basis { .. }));
        preconditioning.forward(&mut matrix, basis);
        Self::of(matrix, self.exponent, basis.map(Cow::Borrowed))
    }

    /// The matrix in a basis that the stream states, along rows or columns.
    pub fn rebased_by(&self, signalled: Signalled, columns: bool) -> Self {
        let basis = signalled.basis();
        let along = self.rows_along(columns);
        let rebased = Matrix { values: basis.rebased(&along.values), ..*along };
        let (matrix, transposed) = if columns {
            (rebased.transposed(), OnceLock::from(rebased))
        } else {
            (rebased, OnceLock::new())
        };
        let signalled_bits = 8.0 * signalled.to_bytes().len() as f64;
        let rebased = Self::of(matrix, self.exponent, Some(Cow::Owned(basis)));
        Self { signalled: Some(signalled), signalled_bits, transposed, ..rebased }
    }

    fn of(matrix: Matrix, exponent: i32, basis: Option<Cow<'a, Basis>>) -> Self {
        let count = matrix.values.len();
        let mean = sum(&matrix.values, |v| v) / count.max(1) as f64;
        let energy = sum(&matrix.values, |v| v * v);
        // A mean that carries less than this is not worth its four bytes.
        let offset = if mean * mean * count as f64 > 1e-3 * energy { mean as f32 } else { 0.0 };
        let spread =
            if offset == 0.0 { energy } else { sum(&matrix.values, |v| (v - f64::from(offset)).powi(2)) };
        // Within a few deviations of the mean, and so often exact.
        let around_zero = f64::from(offset).powi(2) * count as f64 <= 9.0 * spread;
        let transposed = OnceLock::new();
        let (signalled, signalled_bits) = (None, 0.0);
        Self {
            basis,
            signalled,
            signalled_bits,
            matrix,
            transposed,
            exponent,
            offset,
            around_zero,
            energy,
            spread,
            count,
        }
    }

    pub fn view(&self, plan: &Plan) -> &Matrix {
        self.rows_along(plan.transposed)
    }

    /// The matrix, or its columns as rows.
    pub fn rows_along(&self, columns: bool) -> &Matrix {
        if columns { self.transposed.get_or_init(|| self.matrix.transposed()) } else { &self.matrix }
    }

    pub fn signalled_bits_per_value(&self) -> f64 {
        self.signalled_bits / self.count.max(1) as f64
    }

    /// What is taken from every value. A mean makes the two sides alike, which
    /// binary codes do not need and values that are exactly zero do not survive.
    pub fn offset(&self, plan: &Plan) -> f32 {
        if plan.entropy == Entropy::Binary && self.around_zero { 0.0 } else { self.offset }
    }

    pub fn scalars(&self, plan: &Plan, step: f32, centroids: Centroids) -> Scalars {
        Scalars { step, exponent: self.exponent, offset: self.offset(plan), centroids }
    }
}

/// Sum over all values, in eight interleaved parts: one alone would wait for
/// every addition.
pub fn sum(values: &[f32], of: impl Fn(f64) -> f64) -> f64 {
    with_width(Width::widest(), Sum { values, of })
}

struct Sum<'a, F> {
    values: &'a [f32],
    of: F,
}

impl<F: Fn(f64) -> f64> Kernel for Sum<'_, F> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut parts = [0.0; 8];
        let (chunks, rest) = self.values.as_chunks::<8>();
        for chunk in chunks {
            for lane in 0..8 {
                parts[lane] += (self.of)(f64::from(chunk[lane]));
            }
        }
        // What is called in two places is not copied to where registers are wide.
        let of: &dyn Fn(f64) -> f64 = &self.of;
        parts.iter().sum::<f64>() + rest.iter().map(|&value| of(f64::from(value))).sum::<f64>()
    }
}
