//! The line-rate codec as a tensor codec.
//!
//! Finds a step for the target, and says what its stages did.

use trinity_line::{Effort, Options, Plan, Settings, Transform};

use super::lossy::{HEADER, normalize, restored};
use super::rate::within_after_rounding;
use super::trinity::folded;
use super::{Encoded, Matrix, StageCost, Target, TensorCodec};
use crate::{Error, Tensor};

/// The line-rate codec at one effort.
#[derive(Debug)]
pub(crate) struct Line {
    name: &'static str,
    options: Options,
}

/// Names, and what they may choose from.
const NAMES: [(&str, Effort, u32); 3] =
    [("line", Effort::Best, 3), ("line-fast", Effort::Fast, 3), ("line-uniform", Effort::Fast, 0)];

impl Line {
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, ..)| *name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let &(name, effort, log2_states) = NAMES.iter().find(|(own, ..)| *own == name)?;
        Some(Self { name, options: Options { effort, log2_states, ..Options::default() } })
    }

    /// The stream of a matrix, as it is folded.
    fn stream(&self, matrix: &Matrix, target: trinity_line::Target) -> Result<Vec<u8>, trinity_line::Error> {
        let (rows, cols) = folded(matrix.rows, matrix.cols);
        let settings = Settings::default();
        trinity_line::encode_under(&matrix.values, rows, cols, target, &self.options, &settings)
    }

    fn attempt(&self, tensor: &Tensor, target: trinity_line::Target) -> Result<Encoded, Error> {
        let Some((matrix, exponent)) = normalize(tensor)? else {
            return Ok(Encoded::like(tensor, Vec::new()));
        };
        let stream = self.stream(&matrix, target).map_err(|error| Error::Unreachable {
            name: tensor.name().to_owned(),
            codec: self.name(),
            target: in_words(target),
            reason: error.to_string(),
        })?;
        let mut bytes = exponent.to_le_bytes().to_vec();
        bytes.extend(stream);
        Ok(Encoded::like(tensor, bytes))
    }

    fn refused(&self, tensor: &Tensor, target: Target, reason: &str) -> Error {
        Error::Unreachable {
            name: tensor.name().to_owned(),
            codec: self.name(),
            target: target.to_string(),
            reason: reason.into(),
        }
    }
}

/// The codec's own target, which leaves room for our header.
fn in_words(target: trinity_line::Target) -> String {
    match target {
        trinity_line::Target::Bits(bits) => format!("{bits:.3} bits/value"),
        trinity_line::Target::Nmse(nmse) => format!("NMSE {nmse}"),
        trinity_line::Target::Step(step) => format!("steps of {step}"),
    }
}

impl TensorCodec for Line {
    fn name(&self) -> String {
        self.name.into()
    }

    fn encode(&self, tensor: &Tensor, target: Target) -> Result<Encoded, Error> {
        let header_bits = 8.0 * HEADER as f64 / tensor.len().max(1) as f64;
        match target {
            Target::Bits(bits) => {
                let target_bits = (bits - header_bits).max(1e-6);
                let encoded = self.attempt(tensor, trinity_line::Target::Bits(target_bits))?;
                encoded.within(target, self.name(), "it needs at least")
            }
            Target::Nmse(goal) => within_after_rounding(self, tensor, goal, |asked| {
                self.attempt(tensor, trinity_line::Target::Nmse(asked))
            }),
            Target::Qp(_) => Err(self.refused(tensor, target, "it has no quantization parameter")),
            Target::Lossless => {
                Err(self.refused(tensor, target, "values are normalized first; `zstd` is lossless"))
            }
        }
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        restored(encoded, |bytes, _, _| {
            let decoded = trinity_line::decode(bytes);
            Ok(decoded.map_err(|error| Error::corrupt(HEADER, error.to_string()))?.2)
        })
    }

    fn stages(&self, tensor: &Tensor, target: Target) -> Result<Vec<StageCost>, Error> {
        if matches!(target, Target::Qp(_) | Target::Lossless) {
            return Ok(Vec::new());
        }
        let encoded = self.encode(tensor, target)?;
        let Some(stream) = encoded.bytes.get(HEADER..) else { return Ok(Vec::new()) };
        let (plan, header) = Plan::read(stream).map_err(|error| Error::corrupt(HEADER, error.to_string()))?;
        Ok(stages(&plan, header + HEADER, encoded.bytes.len(), tensor.len()))
    }
}

/// What every stage chose, the bits it spends, and the operations of its encoder.
fn stages(plan: &Plan, header: usize, total: usize, values: usize) -> Vec<StageCost> {
    let bits = |bytes: usize| 8.0 * bytes as f64 / values.max(1) as f64;
    let lane_values = plan.tile_rows * plan.tile_cols / plan.lanes();
    let predicts = plan.above.iter().any(|&above| above > 0);
    let (size, transform) = match &plan.transform {
        Transform::None => (0, "none".to_owned()),
        Transform::Hadamard => (32, "hadamard-32".into()),
        Transform::Dct => (32, "dct-32".into()),
        Transform::Stated { size, .. } => (*size, format!("stated-{size}")),
    };
    let states = if plan.log2_states == 0 { 1 } else { 1usize << plan.log2_states };
    let cost =
        |stage, choice: String, bits_per_value, operations: f64, multiplications: f64, serial| StageCost {
            stage,
            choice,
            bits_per_value,
            operations_per_value: operations,
            multiplications_per_value: multiplications,
            serial_values: serial,
        };
    // A product and a sum for each coefficient; a product, a sum and two shifts for
    // the prediction; four squared distances and the way into each state; a division
    // by multiplication, and a look-up.
    let (trellis, squares) = if states == 1 { (4.0, 0.0) } else { (32.0 + 4.0 * states as f64, 4.0) };
    let path = if states == 1 {
        1
    } else if predicts {
        plan.tile_cols.div_ceil(plan.lanes())
    } else {
        lane_values
    };
    let quantization = if states == 1 { "dead-zone".to_owned() } else { format!("trellis-{states}") };
    let prediction = if predicts { "above by column" } else { "column means" };
    vec![
        cost(
            "headers",
            format!("{} tables", plan.tables.len()),
            bits(header + 4 * plan.tiles()),
            0.0,
            0.0,
            1,
        ),
        cost("orientation", if plan.transposed { "columns" } else { "rows" }.into(), 0.0, 0.0, 0.0, 1),
        cost("prediction", prediction.into(), 0.0, 4.0, 1.0, if predicts { plan.tile_rows } else { 1 }),
        cost("transform", transform, 0.0, 2.0 * size as f64, size as f64, 1),
        cost("quantization", quantization, 0.0, trellis, squares, path),
        cost("entropy", "stated".into(), bits(total - header - 4 * plan.tiles()), 10.0, 2.0, lane_values),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::codec;
    use crate::{Class, Dtype};

    fn tensor() -> Tensor {
        let values: Vec<f32> = (0..64 * 96).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new("t", Class::Weight, Dtype::F32, vec![64, 96], data).unwrap()
    }

    #[test]
    fn every_effort_meets_its_target_and_names_its_stages() {
        let tensor = tensor();
        for name in Line::names() {
            let line = codec(name).unwrap();
            let encoded = line.encode(&tensor, Target::Bits(4.0)).unwrap();
            assert_eq!(&encoded.bytes[HEADER..HEADER + 2], b"TL");
            assert!(encoded.bits_per_value() <= 4.0 && encoded.bits_per_value() > 3.8, "{name}");
            let stages = line.stages(&tensor, Target::Bits(4.0)).unwrap();
            let bits: f64 = stages.iter().map(|stage| stage.bits_per_value).sum();
            assert!((bits - encoded.bits_per_value()).abs() < 0.01, "{name}: {bits}");
            assert!(line.encode(&tensor, Target::Lossless).is_err());
            let mut cut = encoded.clone();
            cut.bytes.truncate(encoded.bytes.len() - 1);
            assert!(line.decode(&cut).is_err());
        }
    }
}
