//! Residual compensation (the paper's §5.1): Comp(G) plus Comp(G − Comp(G)).
//!
//! Gradients that a codec flattens too much get a second pass over what the
//! first one lost, by the same codec or by plain rounding.

use super::rate::within_after_rounding;
use super::{Encoded, Metrics, Rate, TensorCodec};
use crate::{Dtype, Error, Tensor};

/// Two codecs in a row; named `residual/FIRST/SECOND`.
#[derive(Debug)]
pub(crate) struct Residual {
    pub first: Box<dyn TensorCodec>,
    pub second: Box<dyn TensorCodec>,
}

/// Bytes before the two streams: the length of the first.
const HEADER: usize = 4;

impl Residual {
    fn residual(tensor: &Tensor, approximation: &Tensor) -> Result<Tensor, Error> {
        let pairs = tensor.to_f64().into_iter().zip(approximation.to_f64());
        let values: Vec<f64> = pairs.map(|(exact, near)| exact - near).collect();
        let format = Self::format(tensor.dtype());
        let mut data = Vec::new();
        format.extend_from_f64(&values, &mut data);
        Tensor::new(tensor.name(), tensor.class(), format, tensor.shape().to_vec(), data)
    }

    /// The number format of what is left of a tensor: one that holds it.
    fn format(dtype: Dtype) -> Dtype {
        if dtype.is_wide() { Dtype::F64 } else { Dtype::F32 }
    }

    fn attempt(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let header_bits = 8.0 * HEADER as f64 / tensor.len() as f64;
        let first_target = match target {
            Rate::Bits(bits) => Rate::Bits(bits / 2.0),
            Rate::Nmse(nmse) => Rate::Nmse(nmse.sqrt()),
            other => other,
        };
        let first = self.first.encode(tensor, first_target)?;
        let approximation = self.first.decode(&first)?;
        let second_target = match target {
            Rate::Bits(bits) => Rate::Bits(bits - first.bits_per_value() - header_bits),
            // What is left of the error is the second pass's share of the residual.
            Rate::Nmse(nmse) => {
                let left = Metrics::between(tensor, &approximation).nmse;
                Rate::Nmse((nmse / left.max(f64::MIN_POSITIVE)).min(0.99))
            }
            other => other,
        };
        let second = self.second.encode(&Self::residual(tensor, &approximation)?, second_target)?;
        // A tensor of zeros takes no bytes, as with every codec.
        let mut bytes = Vec::new();
        if !first.bytes.is_empty() || !second.bytes.is_empty() {
            bytes.extend((first.bytes.len() as u32).to_le_bytes());
            bytes.extend(first.bytes);
            bytes.extend(second.bytes);
        }
        Encoded::like(tensor, bytes).within(target, self.name(), "two streams need at least")
    }
}

impl TensorCodec for Residual {
    fn name(&self) -> String {
        format!("residual/{}/{}", self.first.name(), self.second.name())
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        if tensor.is_empty() {
            return Ok(Encoded::like(tensor, Vec::new()));
        }
        match target {
            Rate::Nmse(goal) => {
                within_after_rounding(self, tensor, goal, |asked| self.attempt(tensor, Rate::Nmse(asked)))
            }
            other => self.attempt(tensor, other),
        }
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        let mut data = vec![0; encoded.values() * encoded.dtype.bytes()];
        if !encoded.bytes.is_empty() {
            data.clear();
            let cut = || Error::corrupt(0, "the first of two streams is cut");
            let (header, rest) = encoded.bytes.split_first_chunk::<HEADER>().ok_or_else(cut)?;
            let (first, second) =
                rest.split_at_checked(u32::from_le_bytes(*header) as usize).ok_or_else(cut)?;
            let first = self.first.decode(&Encoded { bytes: first.to_vec(), ..encoded.clone() })?;
            let second = self.second.decode(&Encoded {
                bytes: second.to_vec(),
                dtype: Self::format(encoded.dtype),
                ..encoded.clone()
            })?;
            let pairs = first.to_f64().into_iter().zip(second.to_f64());
            let sums: Vec<f64> = pairs.map(|(near, rest)| near + rest).collect();
            encoded.dtype.extend_from_f64(&sums, &mut data);
        }
        Tensor::new(encoded.name.clone(), encoded.class, encoded.dtype, encoded.shape.clone(), data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::codec::codec;

    #[test]
    fn the_largest_values_of_a_format_stay_finite() {
        let signed = |at: u32| if at.wrapping_mul(2_654_435_761) >> 31 == 0 { f32::MAX } else { -f32::MAX };
        let values: Vec<f32> = (0..4096).map(signed).collect();
        let tensor = Tensor::of_f32("g", Class::Other, Dtype::F32, vec![64, 64], &values).unwrap();
        for name in ["residual/uniform+ac/rtn-128g", "residual/h265-fast/rtn-128g"] {
            let codec = codec(name).unwrap();
            let encoded = codec.encode(&tensor, Rate::Bits(6.0)).unwrap();
            let decoded = codec.decode(&encoded).unwrap().to_f64();
            assert_eq!(decoded.len(), 4096);
            let apart = |(a, b): (f64, f64)| (a - b).abs() / f64::from(f32::MAX);
            let worst = decoded.into_iter().zip(tensor.to_f64()).map(apart).fold(0.0, f64::max);
            assert!(worst < 0.5, "{name}: {worst}");
        }
    }

    #[test]
    fn a_second_pass_halves_the_error_again() {
        let values: Vec<f32> =
            (0..8192u32).map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7 - 0.8).powi(3)).collect();
        let tensor = Tensor::of_f32("g", Class::WeightGradient, Dtype::F32, vec![64, 128], &values).unwrap();
        let twice = codec("residual/uniform+ac/rtn-128g").unwrap();
        let encoded = twice.encode(&tensor, Rate::Bits(7.0)).unwrap();
        assert!(encoded.bits_per_value() <= 7.0);
        let once = codec("uniform+ac").unwrap();
        let single = once.decode(&once.encode(&tensor, Rate::Bits(3.5)).unwrap()).unwrap();
        let (one, two) = (
            Metrics::between(&tensor, &single).nmse,
            Metrics::between(&tensor, &twice.decode(&encoded).unwrap()).nmse,
        );
        assert!(two < one / 4.0, "{one} {two}");
    }
}
