//! What every stage spent: the inputs of the silicon model.

use crate::plan::{Entropy, Plan, Prediction};
use crate::rans::LANES;
use crate::static_tile::BLOCK_VALUES;
use crate::transform::{Family, Transform};

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
        let segment = 1usize << plan.log2_segment;
        let states = 1u64 << plan.log2_states;
        // Four subsets of two candidates each; an add–compare–select a state.
        let quantizer_ops = if states == 1 { 3.0 } else { 8.0 * 6.0 + 4.0 * states as f64 };
        let quantizer_serial = if states == 1 { 1 } else { segment / LANES };
        let (context_serial, entropy_serial, entropy) = match plan.entropy {
            Entropy::Adaptive => (tile_values, tile_values / LANES, "adaptive"),
            Entropy::Static => (1, BLOCK_VALUES / LANES, "static"),
            Entropy::Binary => (tile_values, tile_values, "binary"),
            Entropy::Raw => (1, 1, "raw"),
        };
        let stage = |stage, choice: &str, bits, operations, serial| StageCost {
            stage,
            choice: choice.into(),
            bits_per_value: per_value(bits),
            operations_per_value: operations,
            multiplications_per_value: 0.0,
            serial_values: serial,
        };
        let quantizer = if states == 1 { "uniform".into() } else { format!("trellis of {states} states") };
        let mut stages =
            vec![stage("orientation", if plan.transposed { "columns" } else { "rows" }, 0.0, 0.0, 1)];
        if plan.prediction != Prediction::NONE {
            // A mean is a sum and a difference; a row above, a product and a difference.
            // Only the row above must be decoded first.
            let serial = if plan.prediction.above > 0 { tile_values } else { 1 };
            stages.push(stage("prediction", &plan.prediction.to_string(), 0.0, 2.0, serial));
        }
        stages.push(transform_cost(plan.transform, tile_values));
        stages.extend([
            stage("quantization", &quantizer, 0.0, quantizer_ops, quantizer_serial),
            stage("contexts", &format!("weights {}", plan.weights), self.bits.side, 10.0, context_serial),
            stage("entropy coding", entropy, self.bits.symbols, 14.0, entropy_serial),
            stage("raw bits", "", self.bits.raw, 3.0, entropy_serial * LANES),
            stage("headers", "", self.bits.headers, 0.0, 1),
        ]);
        stages
    }
}

/// Analysis in the encoder: as many multiplications as additions, and values
/// that wait for one another.
fn transform_cost(transform: Transform, tile_values: usize) -> StageCost {
    let size = |log2: u32| f64::from(1u32 << log2);
    let (operations, serial) = match transform {
        Transform::None => (0.0, 1),
        Transform::Row { log2_size, .. } => (2.0 * size(log2_size), 1 << log2_size),
        Transform::Block { log2_size, .. } => (4.0 * size(log2_size), 1 << (2 * log2_size)),
        // As much again to gather moments; rotations are spread over many rows.
        Transform::Klt { log2_size } => (5.0 * size(log2_size), tile_values),
    };
    let added_only = matches!(
        transform,
        Transform::Row { family: Family::Hadamard, .. } | Transform::Block { family: Family::Hadamard, .. }
    );
    StageCost {
        stage: "transform",
        choice: transform.to_string(),
        bits_per_value: 0.0,
        operations_per_value: operations,
        multiplications_per_value: if added_only { 0.0 } else { operations / 2.0 },
        serial_values: serial,
    }
}

/// One stage of the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct StageCost {
    pub stage: &'static str,
    /// The alternative that was taken, as profiles name it.
    pub choice: String,
    pub bits_per_value: f64,
    /// Additions, multiplications, comparisons and table look-ups of the
    /// encoder, as the algorithm counts them.
    pub operations_per_value: f64,
    /// Those of the operations that multiply.
    pub multiplications_per_value: f64,
    /// Longest chain of values each of which waits for the one before.
    pub serial_values: usize,
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
