//! What an encoder returns, and what every stage spent: the inputs of the silicon model.

use crate::bits::Bits;
use crate::entropy::rans::LANES;
use crate::format::trinity::plan::{Entropy, Plan};
use crate::format::trinity::tiles::static_tables::BLOCK_VALUES;
use crate::search::profile::Quantization;
use crate::stage::intra::CLOSELY;
use crate::stage::intra::MODES;
use crate::stage::precondition::Preconditioning;
use crate::stage::transform::{Family, Transform};

/// A stream, what it decodes to, and how it came about.
#[derive(Debug, Clone)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    pub recon: Vec<f32>,
    pub report: Report,
}

/// How an encoding came about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    pub values: usize,
    /// What was chosen for every stage; none where another codec did the work
    /// or nothing was lost.
    pub plan: Option<Plan>,
    /// How its levels were chosen, which the stream does not say.
    pub quantization: Option<Quantization>,
    /// Columns that the basis changes together, where there is one.
    pub basis_columns: Option<usize>,
    pub step: f64,
    /// Squared error over squared values.
    pub nmse: f64,
    /// Passes over the whole matrix until the target was met.
    pub passes: usize,
    pub bits: Bits,
}

impl Report {
    pub fn bits_per_value(&self) -> f64 {
        self.bits.total() / self.values.max(1) as f64
    }

    /// Each stage of the chain with its share of bits, its work and what it
    /// waits for, in tiles of about `tile_values` values.
    pub fn stages(&self, tile_values: usize) -> Vec<StageCost> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let stage =
            |stage, choice: String, bits, (operations, multiplications): (f64, f64), serial| StageCost {
                stage,
                choice,
                bits_per_value: bits / self.values.max(1) as f64,
                operations_per_value: operations,
                multiplications_per_value: multiplications,
                serial_values: serial,
            };
        let plain = |operations: f64| (operations, 0.0);
        let (change, change_serial) = preconditioning_cost(plan.preconditioning, self.basis_columns);
        let (predict, predict_serial) = prediction_cost(plan, tile_values);
        let (transform, transform_serial) = transform_cost(plan.transform, tile_values);
        let (quantization, quantize, quantize_serial) = self.quantization_cost(plan);
        let orientation = if plan.transposed { "columns" } else { "rows" };
        // Contexts and what they take; two products and sums a bit for some three bits, or a range and a state a
        // symbol; what waits for one another in contexts, symbols and raw bits, which stand where those before end.
        let (entropy, contexts, context, code, [context_serial, entropy_serial, raw_serial]) =
            match plan.entropy {
                Entropy::Adaptive => {
                    let contexts = format!("weights {}", plan.weights);
                    ("adaptive", contexts, 10.0, (14.0, 1.0), [tile_values, tile_values / LANES, tile_values])
                }
                Entropy::Static => {
                    let serial = [1, BLOCK_VALUES / LANES, BLOCK_VALUES];
                    ("static", "stated rows and columns".into(), 4.0, (14.0, 1.0), serial)
                }
                Entropy::Binary => {
                    ("binary", "left and above".into(), 3.0, (24.0, 3.0), [tile_values, tile_values, 1])
                }
                Entropy::Raw => ("raw", "none".into(), 0.0, plain(0.0), [1; 3]),
            };
        let raw_bits = "signs, low bits, escapes".into();
        vec![
            stage("preconditioning", plan.preconditioning.to_string(), 0.0, change, change_serial),
            stage("orientation", orientation.into(), 0.0, plain(0.0), 1),
            // A power of two and an offset for all values.
            stage("alignment", "one exponent".into(), 0.0, plain(2.0), 1),
            stage("prediction", plan.prediction.to_string(), self.bits.prediction, predict, predict_serial),
            stage("transform", plan.transform.to_string(), 0.0, transform, transform_serial),
            stage("quantization", quantization, 0.0, quantize, quantize_serial),
            stage("contexts", contexts, self.bits.side, plain(context), context_serial),
            stage("entropy coding", entropy.into(), self.bits.symbols, code, entropy_serial),
            stage("raw bits", raw_bits, self.bits.raw, plain(3.0), raw_serial),
            stage("headers", "stream and tiles".into(), self.bits.headers, plain(0.0), 1),
        ]
    }

    /// Name, operations and longest chain of the stage that picks levels.
    fn quantization_cost(&self, plan: &Plan) -> (String, (f64, f64), usize) {
        let path = plan.path_values() / LANES;
        match (plan.entropy, self.quantization) {
            // Nothing but rounding: a product, a sum, a comparison.
            (Entropy::Binary | Entropy::Raw, _) | (_, None) => ("uniform".into(), (3.0, 1.0), 1),
            (_, Some(Quantization::DeadZone)) => ("dead-zone".into(), (3.0, 1.0), 1),
            // Two candidates: distance, its square, a rate, a sum; then the smaller.
            (_, Some(Quantization::Rdoq)) => ("rdoq".into(), (2.0 * 6.0 + 3.0, 3.0), 1),
            // Four subsets of two candidates each; an add–compare–select a state.
            (_, Some(trellis)) => {
                let states = f64::from(1u32 << plan.log2_states);
                (trellis.into(), (8.0 * 6.0 + 4.0 * states, 8.0), path)
            }
        }
    }
}

/// Operations, those that multiply, and the values that wait for one another.
fn preconditioning_cost(change: Preconditioning, basis_columns: Option<usize>) -> ((f64, f64), usize) {
    match change {
        Preconditioning::None => ((0.0, 0.0), 1),
        // A sign, a sum for each octave, a scale.
        Preconditioning::Hadamard { log2_size } => ((f64::from(log2_size) + 2.0, 1.0), 1 << log2_size),
        Preconditioning::Basis { .. } | Preconditioning::Signalled { .. } => {
            let columns = basis_columns.unwrap_or(1);
            ((2.0 * columns as f64, columns as f64), columns)
        }
    }
}

/// Operations, multiplications and serial values of prediction.
fn prediction_cost(plan: &Plan, tile_values: usize) -> ((f64, f64), usize) {
    let prediction = plan.prediction;
    if prediction.intra {
        // All modes: two products, a sum and a scale, a difference, its magnitude and its sum. Then
        // the best few, the likely and none: transform and rate; a block waits for the one before.
        let size = plan.transform.width() as f64;
        let (modes, closely) = (f64::from(MODES), CLOSELY as f64 + 4.0);
        let operations = 7.0 * modes + closely * (4.0 * size + 5.0 + 6.0);
        return ((operations, 3.0 * modes + closely * (2.0 * size + 4.0)), tile_values);
    }
    if prediction.above > 0 {
        return ((2.0, 1.0), tile_values);
    }
    // A mean is a sum and a difference.
    let means = u8::from(prediction.means.rows) + u8::from(prediction.means.columns);
    ((2.0 * f64::from(means), 0.0), 1)
}

/// Analysis in the encoder: as many multiplications as additions, and values
/// that wait for one another.
fn transform_cost(transform: Transform, tile_values: usize) -> ((f64, f64), usize) {
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
    ((operations, if added_only { 0.0 } else { operations / 2.0 }), serial)
}

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
