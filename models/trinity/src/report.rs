//! What every stage spent: the inputs of the silicon model.

use crate::plan::Plan;

/// How an encoding came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub values: usize,
    /// What was chosen for every stage.
    pub plan: Plan,
    pub step: f64,
    /// Squared error over squared values.
    pub nmse: f64,
    /// Passes over the whole matrix until the target was met.
    pub passes: usize,
    pub bits: Bits,
}

impl Report {
    /// Everything counted.
    pub fn bits_per_value(&self) -> f64 {
        self.bits.total() / self.values.max(1) as f64
    }
}

/// Bits by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bits {
    /// Stream and tile headers.
    pub headers: f64,
    /// Row classes, column classes, transmitted ranges.
    pub side: f64,
    /// Magnitudes through the entropy coder.
    pub symbols: f64,
    /// Signs, low bits and escapes.
    pub raw: f64,
}

impl Bits {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.headers + self.side + self.symbols + self.raw
    }

    /// Adds another tile's.
    pub fn add(&mut self, other: &Self) {
        self.headers += other.headers;
        self.side += other.side;
        self.symbols += other.symbols;
        self.raw += other.raw;
    }
}
