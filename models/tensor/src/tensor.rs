//! A tensor in memory: a name, a class, a shape, and bytes in a number format.

use std::sync::OnceLock;

use crate::sums::Sums;
use crate::{Class, Dtype, Error};

/// A whole tensor in memory, row-major, bytes little-endian in `dtype`.
///
/// Bytes rather than floats, so that lossless codecs and file round trips are
/// exact to the bit, NaN payloads included.
#[derive(Debug, Clone)]
pub struct Tensor {
    name: String,
    class: Class,
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
    /// Sums over its values, once somebody has taken them.
    sums: OnceLock<Sums>,
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, class, dtype, shape, data, .. } = self;
        (class, dtype, name, shape, data)
            == (&other.class, &other.dtype, &other.name, &other.shape, &other.data)
    }
}

impl Eq for Tensor {}

impl Tensor {
    /// A tensor out of its bytes; an error where shape × dtype ≠ bytes.
    pub fn new(
        name: impl Into<String>,
        class: Class,
        dtype: Dtype,
        shape: Vec<usize>,
        data: Vec<u8>,
    ) -> Result<Self, Error> {
        let name = name.into();
        let expected =
            shape.iter().try_fold(dtype.bytes() as u64, |product, &dim| product.checked_mul(dim as u64));
        if expected != Some(data.len() as u64) {
            return Err(Error::SizeMismatch {
                name,
                shape,
                dtype,
                expected: expected.map_or("more than 2^64".into(), |bytes| bytes.to_string()),
                found: data.len() as u64,
            });
        }
        Ok(Self { name, class, dtype, shape, data, sums: OnceLock::new() })
    }

    /// A tensor of values rounded to its format; an error where there are not as many as its shape has.
    pub fn of_f32(
        name: impl Into<String>,
        class: Class,
        dtype: Dtype,
        shape: Vec<usize>,
        values: &[f32],
    ) -> Result<Self, Error> {
        let mut data = Vec::new();
        dtype.extend_from_f32(values, &mut data);
        Self::new(name, class, dtype, shape, data)
    }

    /// The values in single precision, as [`Dtype::to_f32`] has them.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.len()];
        self.dtype.to_f32(&self.data, &mut values);
        values
    }

    /// The values in double precision, as [`Dtype::to_f64`] has them.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut values = vec![0.0; self.len()];
        self.dtype.to_f64(&self.data, &mut values);
        values
    }

    /// The tensor's name in its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the tensor is for.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The number format of [`Tensor::data`].
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Little-endian bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The bytes alone.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Values in the tensor.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.bytes()
    }

    /// True when a dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Sums over its values, as f32 has them.
    pub(crate) fn sums(&self) -> &Sums {
        self.sums.get_or_init(|| Sums::of(self.dtype, &self.data))
    }

    /// The same, if they are known.
    pub(crate) fn known_sums(&self) -> Option<&Sums> {
        self.sums.get()
    }

    /// Keeps what [`Tensor::sums`] would find, by who has read the same values before.
    pub(crate) fn know(&self, sums: Sums) {
        // What is known already is the same.
        let _ = self.sums.set(sums);
    }

    /// The tensor as a matrix: the last dimension is a row's length, all
    /// others together count rows. A scalar is 1 × 1.
    pub fn matrix(&self) -> (usize, usize) {
        match self.shape.split_last() {
            Some((&cols, outer)) => (outer.iter().product(), cols),
            None => (1, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_lies_is_an_error() {
        let tensor = |shape: Vec<usize>| Tensor::new("t", Class::Other, Dtype::F32, shape, vec![0; 24]);
        assert!(tensor(vec![2, 3]).is_ok());
        assert!(tensor(vec![2, 4]).is_err());
        assert!(tensor(vec![1 << 40, 1 << 40]).is_err());
    }

    #[test]
    fn matrix_folds_outer_dimensions() {
        let tensor = Tensor::new("t", Class::Other, Dtype::U8, vec![2, 3, 4], vec![0; 24]).unwrap();
        assert_eq!(tensor.matrix(), (6, 4));
    }
}
