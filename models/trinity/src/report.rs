//! What every stage spent: the inputs of the silicon model.

use crate::plan::{Entropy, Plan};
use crate::rans::LANES;
use crate::static_tile::BLOCK_VALUES;
use crate::transform::Transform;

/// How an encoding came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub values: usize,
    /// What was chosen for every stage; none where another codec did the work
    /// or nothing was lost.
    pub plan: Option<Plan>,
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

    /// Each stage of the chain with its share of bits, its work and what it
    /// waits for, in tiles of about `tile_values` values.
    pub fn stages(&self, tile_values: usize) -> Vec<StageCost> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let per_value = |bits: f64| bits / self.values.max(1) as f64;
        let (transform_ops, transform_serial) = transform_cost(plan.transform, tile_values);
        let segment = 1usize << plan.log2_segment;
        let states = 1u64 << plan.log2_states;
        // Four subsets of two candidates each; an add–compare–select a state.
        let quantizer_ops = if states == 1 { 3.0 } else { 8.0 * 6.0 + 4.0 * states as f64 };
        let quantizer_serial = if states == 1 { 1 } else { segment / LANES };
        let (context_serial, entropy_serial) = match plan.entropy {
            Entropy::Adaptive => (tile_values, tile_values / LANES),
            Entropy::Static => (1, BLOCK_VALUES / LANES),
            Entropy::Binary => (tile_values, tile_values),
        };
        vec![
            StageCost::new("transform", 0.0, transform_ops, transform_serial),
            StageCost::new("quantization", 0.0, quantizer_ops, quantizer_serial),
            StageCost::new("contexts", per_value(self.bits.side), 10.0, context_serial),
            StageCost::new("entropy coding", per_value(self.bits.symbols), 14.0, entropy_serial),
            StageCost::new("raw bits", per_value(self.bits.raw), 3.0, entropy_serial * LANES),
            StageCost::new("headers", per_value(self.bits.headers), 0.0, 1),
        ]
    }
}

/// Operations a value of analysis and synthesis, and values that wait for
/// one another.
fn transform_cost(transform: Transform, tile_values: usize) -> (f64, usize) {
    let size = |log2: u32| f64::from(1u32 << log2);
    match transform {
        Transform::None => (0.0, 1),
        Transform::Row { log2_size, .. } => (2.0 * size(log2_size), 1 << log2_size),
        Transform::Block { log2_size, .. } => (4.0 * size(log2_size), 1 << (2 * log2_size)),
        // As much again to gather moments; rotations are spread over many rows.
        Transform::Klt { log2_size } => (5.0 * size(log2_size), tile_values),
    }
}

/// One stage of the chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageCost {
    pub stage: &'static str,
    pub bits_per_value: f64,
    /// Additions, multiplications, comparisons and table look-ups of the
    /// encoder, as the algorithm counts them.
    pub operations_per_value: f64,
    /// Longest chain of values each of which waits for the one before.
    pub serial_values: usize,
}

impl StageCost {
    fn new(
        stage: &'static str,
        bits_per_value: f64,
        operations_per_value: f64,
        serial_values: usize,
    ) -> Self {
        Self { stage, bits_per_value, operations_per_value, serial_values }
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
