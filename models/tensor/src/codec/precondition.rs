//! Preconditioning: an orthonormal change of basis along rows before a codec.
//!
//! Energy is kept, so an error bound after the transform is one before it, but
//! for what rounding back to the tensor's number format adds.
//! The randomized Hadamard transform spreads outliers (QuaRot); PCA gathers
//! energy in few columns, and its basis travels apart from the tensors.

use std::sync::Arc;

use trinity_codec::hadamard;

use super::contract::missed;
use super::rate::within_after_rounding;
use super::{Encoded, Rate, TensorCodec};
use crate::{Dtype, Error, LimitingFactor, Tensor};

/// What stands before the hash of a basis in the name of a codec.
pub(super) const PCA: &str = "pca:";

/// A change of basis of row vectors.
#[derive(Debug, Clone)]
pub enum Precondition {
    /// Random signs, then Walsh–Hadamard over the largest power of two that
    /// divides the row length.
    Hadamard,
    /// Principal components; see [`PcaBasis`].
    Pca(Arc<PcaBasis>),
}

/// Principal components of sample rows: an orthonormal basis, cut to a rank.
///
/// Beside [`trinity_codec::Basis`], which turns groups of at most 128 columns
/// without a mean and always back to the same number of them: this one takes
/// whole rows around their mean and may leave components out. Files of both
/// exist, and a stream names its basis by the hash of its numbers, so neither
/// can be learned by the other's arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub struct PcaBasis {
    pub cols: usize,
    pub rank: usize,
    mean: Vec<f32>,
    /// Component by component, each `cols` long.
    components: Vec<f32>,
}

/// Sums over rows from which a basis is made; rows come a piece at a time, so
/// samples may be larger than memory.
#[derive(Debug)]
pub(crate) struct PcaLearner {
    cols: usize,
    rows: usize,
    mean: Vec<f64>,
    covariance: nalgebra::DMatrix<f64>,
}

impl PcaLearner {
    pub(crate) fn new(cols: usize) -> Result<Self, Error> {
        let zeros = crate::memory::zeroed(cols.saturating_mul(cols))?;
        let covariance = nalgebra::DMatrix::from_vec(cols, cols, zeros);
        Ok(Self { cols, rows: 0, mean: vec![0.0; cols], covariance })
    }

    /// Adds whole rows.
    pub(crate) fn add(&mut self, tensor: &Tensor) -> Result<(), Error> {
        let (rows, width) = tensor.matrix();
        if width != self.cols {
            let target = format!("a basis of {} columns", self.cols);
            let reason = format!("its rows have {width} values");
            return Err(Error::unreachable(
                tensor.name(),
                "pca".into(),
                target,
                LimitingFactor::Shape,
                reason,
            ));
        }
        let mut values = crate::memory::zeroed(tensor.len())?;
        tensor.dtype().to_f64(tensor.data(), &mut values);
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::NonFinite { name: tensor.name().to_owned(), index, value: values[index] });
        }
        for row in values.chunks_exact(self.cols) {
            self.mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        // nalgebra stores columns: the row-major matrix is its transpose as it is.
        let columns = nalgebra::DMatrix::from_vec(self.cols, rows, values);
        self.covariance += &columns * columns.transpose();
        self.rows += rows;
        Ok(())
    }

    pub(crate) fn finish(self, rank: usize) -> PcaBasis {
        let Self { rows, mut mean, mut covariance, .. } = self;
        let count = rows.max(1) as f64;
        mean.iter_mut().for_each(|sum| *sum /= count);
        let mean_vector = nalgebra::DVector::from_column_slice(&mean);
        covariance = covariance / count - &mean_vector * mean_vector.transpose();
        PcaBasis::from_covariance(&mean, covariance.as_slice(), rank)
    }
}

impl PcaBasis {
    /// The first `rank` components of a law by its mean and its covariance, columns × columns.
    ///
    /// # Panics
    ///
    /// Where the covariance is of another number of columns than the mean.
    pub fn from_covariance(mean: &[f64], covariance: &[f64], rank: usize) -> Self {
        let cols = mean.len();
        let eigen = nalgebra::DMatrix::from_column_slice(cols, cols, covariance).symmetric_eigen();
        let mut order: Vec<usize> = (0..cols).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        let rank = rank.clamp(1, cols.max(1)).min(cols);
        let components = order[..rank]
            .iter()
            .flat_map(|&component| {
                eigen.eigenvectors.column(component).iter().map(|&value| value as f32).collect::<Vec<_>>()
            })
            .collect();
        Self { cols, rank, mean: mean.iter().map(|&value| value as f32).collect(), components }
    }

    /// The first `rank` components of the rows of some tensors, by the
    /// symmetric eigen-decomposition of their covariance.
    pub fn from_samples(samples: &[&Tensor], rank: usize) -> Result<Self, Error> {
        let mut learner = PcaLearner::new(samples.first().map_or(0, |tensor| tensor.matrix().1))?;
        samples.iter().try_for_each(|tensor| learner.add(tensor))?;
        Ok(learner.finish(rank))
    }

    /// Bits the basis takes as a file: f32 mean and components.
    pub fn bits(&self) -> usize {
        8 * self.to_bytes().len()
    }

    /// The basis as a file of its own: "TPCA", columns, rank, mean, components.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = b"TPCA".to_vec();
        bytes.extend((self.cols as u32).to_le_bytes());
        bytes.extend((self.rank as u32).to_le_bytes());
        Dtype::F32.extend_from_f32(&self.mean, &mut bytes);
        Dtype::F32.extend_from_f32(&self.components, &mut bytes);
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let word =
            |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
        let (Some(b"TPCA"), Some(cols), Some(rank)) = (bytes.get(..4), word(4), word(8)) else {
            return Err(Error::corrupt(0, "not a PCA basis"));
        };
        let floats = &bytes[12..];
        if rank > cols
            || cols.checked_mul(rank + 1).and_then(|count| count.checked_mul(4)) != Some(floats.len())
        {
            return Err(Error::corrupt(4, "a PCA basis of another size than it says"));
        }
        let mut values = vec![0f32; cols * (rank + 1)];
        Dtype::F32.to_f32(floats, &mut values);
        let components = values.split_off(cols);
        Ok(Self { cols, rank, mean: values, components })
    }

    fn forward(&self, row: &[f32], out: &mut Vec<f32>) {
        let centred: Vec<f32> = row.iter().zip(&self.mean).map(|(value, mean)| value - mean).collect();
        for component in self.components.chunks_exact(self.cols) {
            out.push(component.iter().zip(&centred).map(|(a, b)| a * b).sum());
        }
    }

    fn inverse(&self, scores: &[f32], out: &mut Vec<f32>) {
        let start = out.len();
        out.extend(&self.mean);
        for (component, &score) in self.components.chunks_exact(self.cols).zip(scores) {
            for (value, weight) in out[start..].iter_mut().zip(component) {
                *value += weight * score;
            }
        }
    }
}

/// A sign for each column, the same in encoder and decoder.
fn sign(column: usize) -> f32 {
    let hash = (column as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63 == 0 { 1.0 } else { -1.0 }
}

fn energy(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum()
}

fn hadamard_block(cols: usize) -> usize {
    1 << cols.trailing_zeros().min(12)
}

/// A randomized Hadamard transform of rows of `cols` values: each sign changed as its place says, then all mixed.
pub(super) fn turn(values: &mut [f32], cols: usize, sign: impl Fn(usize) -> f32) {
    for row in values.chunks_exact_mut(cols.max(1)) {
        row.iter_mut().enumerate().for_each(|(column, value)| *value *= sign(column));
        hadamard(row, hadamard_block(cols));
    }
}

/// Turns back what [`turn`] turned.
pub(super) fn turn_back(values: &mut [f32], cols: usize, sign: impl Fn(usize) -> f32) {
    for row in values.chunks_exact_mut(cols.max(1)) {
        hadamard(row, hadamard_block(cols));
        row.iter_mut().enumerate().for_each(|(column, value)| *value *= sign(column));
    }
}

impl Precondition {
    /// The name in codec names, by which a decoder knows what it needs.
    pub fn name(&self) -> String {
        match self {
            Self::Hadamard => "hadamard".into(),
            Self::Pca(basis) => format!("{PCA}{:016x}", trinity_codec::Basis::hash_of(&basis.to_bytes())),
        }
    }

    /// Turns rows of `cols` values; answers how long they are then, and how
    /// much energy a truncated basis has lost.
    pub fn forward(&self, values: &mut Vec<f32>, cols: usize) -> Result<(usize, f64), Error> {
        match self {
            Self::Hadamard => {
                turn(values, cols, sign);
                Ok((cols, 0.0))
            }
            Self::Pca(basis) if basis.cols == cols => {
                let mut scores = Vec::with_capacity(values.len() / cols * basis.rank);
                values.chunks_exact(cols).for_each(|row| basis.forward(row, &mut scores));
                let distances = values.iter().zip(basis.mean.iter().cycle());
                let around: f64 = distances.map(|(value, mean)| f64::from(value - mean).powi(2)).sum();
                let lost = if basis.rank < cols { (around - energy(&scores)).max(0.0) } else { 0.0 };
                *values = scores;
                Ok((basis.rank, lost))
            }
            Self::Pca(basis) => Err(Error::Basis {
                problem: format!("it is for rows of {} values, and these have {cols}", basis.cols),
            }),
        }
    }

    /// Turns back what [`Precondition::forward`] turned, into rows of `cols` values.
    pub fn inverse(&self, values: &mut Vec<f32>, cols: usize) {
        match self {
            Self::Hadamard => turn_back(values, cols, sign),
            Self::Pca(basis) => {
                let mut rows = Vec::with_capacity(values.len() / basis.rank * cols);
                values.chunks_exact(basis.rank).for_each(|scores| basis.inverse(scores, &mut rows));
                *values = rows;
            }
        }
    }
}

/// A codec in another basis.
#[derive(Debug)]
pub struct Preconditioned {
    pub precondition: Precondition,
    pub inner: Box<dyn TensorCodec>,
}

/// No sum of the 4096 values that a transform takes at most leaves f32 below this.
const LARGEST: f32 = f32::MAX / 8192.0;

impl Preconditioned {
    fn too_large(&self, tensor: &Tensor, target: Rate) -> Error {
        let reason = format!("it turns values in f32, and some are beyond {LARGEST:.1e}");
        Error::unreachable(tensor.name(), self.name(), target, LimitingFactor::Target, reason)
    }
}

impl TensorCodec for Preconditioned {
    fn name(&self) -> String {
        format!("{}/{}", self.precondition.name(), self.inner.name())
    }

    fn has_one_rate(&self) -> bool {
        self.inner.has_one_rate()
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let (rows, cols) = tensor.matrix();
        if target == Rate::Lossless {
            return Err(missed(target, tensor, self.name(), "a change of basis rounds; leave it out"));
        }
        // Values in their own units: a basis made from samples knows those.
        let mut values = tensor.to_f32();
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            let value = tensor.to_f64()[index];
            if value.is_finite() {
                return Err(self.too_large(tensor, target));
            }
            return Err(Error::NonFinite { name: tensor.name().to_owned(), index, value });
        }
        if tensor.is_empty() {
            return Ok(Encoded::like(tensor, Vec::new()));
        }
        if values.iter().any(|value| value.abs() > LARGEST) {
            return Err(self.too_large(tensor, target));
        }
        let before = energy(&values);
        let (width, lost) = self
            .precondition
            .forward(&mut values, cols)
            .map_err(|error| Error::InTensor { name: tensor.name().to_owned(), source: Box::new(error) })?;
        if values.iter().any(|value| value.is_nan() || value.abs() > LARGEST) {
            return Err(self.too_large(tensor, target));
        }
        let after = energy(&values);
        let turned = Tensor::of_f32(tensor.name(), tensor.class(), Dtype::F32, vec![rows, width], &values)?;
        // A truncated basis has fewer scores than values; the budget is the values'.
        let attempt = |target: Rate| -> Result<Encoded, Error> {
            Ok(Encoded::like(tensor, self.inner.encode(&turned, target)?.bytes))
        };
        match target {
            Rate::Bits(bits) => attempt(Rate::Bits(bits * cols as f64 / width as f64)),
            Rate::Nmse(goal) if after > 0.0 && goal * before <= lost => {
                let reason = format!("a rank of {width} alone loses {:.3e}", lost / before);
                Err(missed(target, tensor, self.name(), reason))
            }
            // The error is of the values, which have their mean and what truncation lost besides.
            Rate::Nmse(goal) => within_after_rounding(self, tensor, goal, |asked| {
                let own = if after > 0.0 { (asked * before - lost) / after } else { asked };
                // Where truncation takes nearly all, what is left of the goal stays above zero.
                let own = own.max(1e-3 * asked);
                attempt(Rate::Nmse(own))
            }),
            other => attempt(other),
        }
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        let values: usize = encoded.values();
        let cols = encoded.shape.last().copied().unwrap_or(1);
        let mut data = Vec::new();
        if values > 0 {
            let width = match &self.precondition {
                Precondition::Hadamard => cols,
                Precondition::Pca(basis) => basis.rank,
            };
            let turned = Encoded { dtype: Dtype::F32, shape: vec![values / cols, width], ..encoded.clone() };
            let mut narrow = self.inner.decode(&turned)?.to_f32();
            self.precondition.inverse(&mut narrow, cols);
            let largest = encoded.dtype.largest_f32();
            narrow.iter_mut().for_each(|value| *value = value.clamp(-largest, largest));
            encoded.dtype.extend_from_f32(&narrow, &mut data);
        }
        Tensor::new(encoded.name.clone(), encoded.class, encoded.dtype, encoded.shape.clone(), data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::codec::{Metrics, codec};

    fn smooth(rows: usize, cols: usize) -> Tensor {
        let values: Vec<f32> = (0..rows * cols)
            .map(|i| {
                ((i % cols) as f32 * 0.1 + (i / cols) as f32 * 0.37).sin() + ((i * 7919) % 97) as f32 * 1e-3
            })
            .collect();
        Tensor::of_f32("t", Class::Other, Dtype::F32, vec![rows, cols], &values).unwrap()
    }

    fn pca(tensor: &Tensor, rank: usize) -> Preconditioned {
        let basis = PcaBasis::from_samples(&[tensor], rank).unwrap();
        assert_eq!(PcaBasis::from_bytes(&basis.to_bytes()).unwrap(), basis);
        let precondition = Precondition::Pca(Arc::new(basis));
        Preconditioned { precondition, inner: codec("uniform+ac").unwrap() }
    }

    #[test]
    fn a_change_of_basis_keeps_the_target() {
        let tensor = smooth(64, 96);
        let hadamard = Preconditioned { precondition: Precondition::Hadamard, ..pca(&tensor, 1) };
        for codec in [hadamard, pca(&tensor, 96)] {
            let encoded = codec.encode(&tensor, Rate::Nmse(0.01)).unwrap();
            let nmse = Metrics::between(&tensor, &codec.decode(&encoded).unwrap()).nmse;
            assert!(nmse < 0.0101 && nmse > 0.009, "{}: {nmse}", codec.name());
        }
    }

    #[test]
    fn a_truncated_basis_keeps_the_target_or_says_why_not() {
        let tensor = smooth(64, 96);
        let codec = pca(&tensor, 8);
        let encoded = codec.encode(&tensor, Rate::Nmse(0.01)).unwrap();
        let nmse = Metrics::between(&tensor, &codec.decode(&encoded).unwrap()).nmse;
        assert!(nmse < 0.0101 && nmse > 0.008, "{nmse}");
        let error = pca(&tensor, 1).encode(&tensor, Rate::Nmse(0.01)).unwrap_err().to_string();
        assert!(error.contains("a rank of 1 alone loses"), "{error}");
    }

    #[test]
    fn principal_components_gather_what_rows_share() {
        let tensor = smooth(256, 64);
        let plain = codec("uniform+ac").unwrap().encode(&tensor, Rate::Nmse(0.01)).unwrap();
        let turned = pca(&tensor, 64).encode(&tensor, Rate::Nmse(0.01)).unwrap();
        assert!(turned.bytes.len() * 2 < plain.bytes.len(), "{} {}", turned.bytes.len(), plain.bytes.len());
    }
}
