//! Which transform a block uses, and the range of its arithmetic.

use super::matrix::{DCT, DST};

/// The arithmetic range of a component: its depth, and whether
/// `extended_precision_processing_flag` widens the intermediates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    pub depth: u32,
    pub extended: bool,
}

impl Precision {
    /// log2TransformRange of clause 8.6.3: 15 but for extended precision.
    pub fn log2_range(self) -> u32 {
        if self.extended { 15.max(self.depth + 6) } else { 15 }
    }

    pub fn coeff_min(self) -> i32 {
        -(1 << self.log2_range())
    }

    pub fn coeff_max(self) -> i32 {
        (1 << self.log2_range()) - 1
    }

    /// bdShift of clause 8.6.2, the last shift of every residual.
    pub fn residual_shift(self) -> u32 {
        (20 - self.depth).max(if self.extended { 11 } else { 0 })
    }

    /// tsShift of clause 8.6.4.2 for a block of 2^`log2`.
    pub fn skip_shift(self, log2: u32) -> u32 {
        log2 + if self.extended { 5.min(self.residual_shift() - 2) } else { 5 }
    }
}

/// Which transform a block uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Dct,
    /// 4×4 intra luma.
    Dst,
}

impl Kernel {
    /// Row `frequency` of the `size`-point matrix.
    #[inline]
    pub(super) fn row(self, frequency: usize, size: usize) -> &'static [i16] {
        match self {
            Self::Dct => &DCT[frequency * (32 / size)][..size],
            Self::Dst => &DST[frequency],
        }
    }
}
