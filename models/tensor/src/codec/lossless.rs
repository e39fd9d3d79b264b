//! Lossless: byte planes through Zstandard.
//!
//! Exponents of neighbouring values resemble each other while mantissas do
//! not; sorting bytes by their place in the value keeps the two apart.

use super::{Encoded, Rate, TensorCodec};
use crate::{Error, Tensor};

/// `zstd`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lossless;

const LEVEL: i32 = 9;

impl TensorCodec for Lossless {
    fn name(&self) -> String {
        "zstd".into()
    }

    fn has_one_rate(&self) -> bool {
        true
    }

    /// Meets any error bound; a bit rate only where the data happens to allow it.
    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let width = tensor.dtype().bytes();
        let mut planes = Vec::with_capacity(tensor.data().len());
        for plane in 0..width {
            planes.extend(tensor.data().iter().skip(plane).step_by(width));
        }
        let bytes = crate::zstandard::compress(&planes, LEVEL).map_err(Error::io("compressing"))?;
        Encoded::like(tensor, bytes).within(target, self.name(), "it is lossless and needs")
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        let width = encoded.dtype.bytes();
        let values = encoded.values();
        let planes = crate::zstandard::decompress(&encoded.bytes, values * width)
            .map_err(|error| Error::corrupt(0, error.to_string()))?;
        if planes.len() != values * width {
            return Err(Error::corrupt(0, "another number of bytes than the shape takes"));
        }
        let mut data = vec![0; planes.len()];
        for (plane, bytes) in planes.chunks_exact(values.max(1)).enumerate() {
            for (value, &byte) in bytes.iter().enumerate() {
                data[value * width + plane] = byte;
            }
        }
        Tensor::new(encoded.name.clone(), encoded.class, encoded.dtype, encoded.shape.clone(), data)
    }
}
