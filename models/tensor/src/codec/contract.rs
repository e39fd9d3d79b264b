//! What a tensor codec is: asked for a target, it returns bytes from which it
//! makes a tensor again. Knows no codec.

use trinity_bits::Rate;
use trinity_codec::{Moments, StageCost};

use super::metrics::MetricSums;
use crate::{Class, Dtype, Error, LimitingFactor, Tensor};

/// What a codec says that came as near to a target as it can, and not there.
pub(crate) fn missed(target: Rate, tensor: &Tensor, codec: String, reason: impl Into<Box<str>>) -> Error {
    let limiting_factor = match target {
        Rate::Bits(_) => LimitingFactor::Rate,
        Rate::Nmse(_) => LimitingFactor::Error,
        _ => LimitingFactor::Target,
    };
    Error::unreachable(tensor.name(), codec, target, limiting_factor, reason)
}

/// A target in a sentence: bits that headers have been taken from have too many digits.
pub(crate) fn in_words(target: Rate) -> String {
    match target {
        Rate::Bits(bits) => format!("{bits:.3} bits/value"),
        other => other.to_string(),
    }
}

/// A coded tensor. Name, class, format and shape belong to the container;
/// `bytes` hold all else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    pub name: String,
    pub class: Class,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Encoded {
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bits per value, everything counted.
    pub fn bits_per_value(&self) -> f64 {
        8.0 * self.bytes.len() as f64 / self.values().max(1) as f64
    }

    pub(crate) fn like(tensor: &Tensor, bytes: Vec<u8>) -> Self {
        Self {
            name: tensor.name().to_owned(),
            class: tensor.class(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes,
        }
    }

    /// Its first bytes alone.
    #[cfg(test)]
    pub(crate) fn cut(&self, bytes: usize) -> Self {
        Self { bytes: self.bytes[..bytes].to_vec(), ..self.clone() }
    }

    /// An error where bytes are not those of as many values.
    pub(crate) fn fits(&self, out: &[u8]) -> Result<(), Error> {
        let bytes = self.values() * self.dtype.bytes();
        if bytes == out.len() {
            return Ok(());
        }
        Err(Error::corrupt(0, format!("{bytes} bytes of values for a place of {}", out.len())))
    }

    /// Itself, or an error where it takes more bits than the target allows;
    /// `needs` goes before how many it takes.
    pub(crate) fn within(self, target: Rate, codec: String, needs: &str) -> Result<Self, Error> {
        let found = self.bits_per_value();
        match target {
            Rate::Bits(bits) if found > bits => {
                let reason = format!("{needs} {found:.3} bits/value here");
                Err(Error::unreachable(&self.name, codec, target, LimitingFactor::Rate, reason))
            }
            _ => Ok(self),
        }
    }
}

pub trait TensorCodec: std::fmt::Debug + Send + Sync {
    /// The name it has in the registry.
    fn name(&self) -> String;

    /// Whether the bit rate is what it is: a number format, or a lossless code.
    fn has_one_rate(&self) -> bool {
        false
    }

    /// Codes a tensor so that the target is met, or says why it cannot be: of bits, at least 99 % are used where the
    /// tensor needs them.
    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error>;

    /// Whether slabs of one tensor share choices, which [`TensorCodec::chosen_on`] makes.
    fn shares_choices(&self) -> bool {
        false
    }

    /// This codec for all slabs of a tensor, of which `sample` has rows from everywhere: what is the same for all of a
    /// tensor, such as an orientation, is not looked for again. `None` where there is nothing to go by.
    fn chosen_on(&self, _sample: &Tensor, _target: Rate) -> Option<Box<dyn TensorCodec>> {
        None
    }

    /// Whether it can weigh its error by the inputs of a linear layer.
    fn takes_moments(&self) -> bool {
        self.needs_moments()
    }

    /// Whether it cannot do without them.
    fn needs_moments(&self) -> bool {
        false
    }

    /// As [`TensorCodec::encode`], of a weight whose columns, or rows, are a
    /// layer's inputs: the error counts as their second moments weigh it. Codecs
    /// that take no moments refuse.
    fn encode_weighted(
        &self,
        tensor: &Tensor,
        target: Rate,
        _moments: Moments<'_>,
    ) -> Result<Encoded, Error> {
        let reason = "it takes no moments of a layer's inputs";
        Err(Error::unreachable(tensor.name(), self.name(), target, LimitingFactor::Target, reason))
    }

    /// The tensor that [`TensorCodec::encode`] promised.
    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error>;

    /// As [`TensorCodec::decode`], over the bytes of as many values: codecs that make them piece by piece need no
    /// second place for all of them.
    fn decode_into(&self, encoded: &Encoded, out: &mut [u8]) -> Result<(), Error> {
        encoded.fits(out)?;
        let decoded = self.decode(encoded)?.into_data();
        if decoded.len() != out.len() {
            return Err(Error::corrupt(0, "another number of values than the shape has"));
        }
        out.copy_from_slice(&decoded);
        Ok(())
    }

    /// What coding did to a tensor's values, measured on what [`TensorCodec::decode`] makes of them.
    fn measure(&self, tensor: &Tensor, encoded: &Encoded) -> Result<MetricSums, Error> {
        Ok(MetricSums::between(tensor, &self.decode(encoded)?))
    }

    /// As [`TensorCodec::encode`], and what coding did to the values: measured on the reconstruction where an
    /// encoder has made it on the way (it is what decoding gives, to the bit), else on what decoding gives.
    fn encode_measured(&self, tensor: &Tensor, target: Rate) -> Result<(Encoded, MetricSums), Error> {
        let encoded = self.encode(tensor, target)?;
        let sums = self.measure(tensor, &encoded)?;
        Ok((encoded, sums))
    }

    /// What each stage chose and spent on the way to the target, where a codec
    /// can say; nothing for a tensor of zeros.
    fn stages(&self, _tensor: &Tensor, _target: Rate) -> Result<Vec<StageCost>, Error> {
        Ok(Vec::new())
    }
}
