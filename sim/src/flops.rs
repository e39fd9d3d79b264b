//! Peak rates of a GPU by number format, whether stated or derived from parts.

use crate::job::Math;

/// Dense peak rates of the matrix units by number format, and of the vector units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeakFlops {
    pub fp32: f64,
    pub fp16: f64,
    pub fp8: f64,
    /// Zero where the matrix units have no FP4.
    pub fp4: f64,
    /// Fused multiply-adds outside the matrix units count two.
    pub vector: f64,
}

impl PeakFlops {
    /// The matrix rate of a number format.
    pub fn of(&self, math: Math) -> f64 {
        match math {
            Math::Fp32 => self.fp32,
            Math::Fp16 => self.fp16,
            Math::Fp8 => self.fp8,
            Math::Fp4 => self.fp4,
        }
    }
}
