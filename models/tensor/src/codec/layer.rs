//! Quantizers of a layer's weights from the field, each for what the layer reads: a trellis after QTIP, and
//! entropy-coded integers after WaterSIC, written from their papers.
//!
//! Both feed what quantization did to the inputs before into the rest (LDLQ). All that a decoder needs is in the
//! bytes and counts. Knows matrices and second moments; where those come from is the caller's affair.

mod qtip;
mod quantizer;
mod trellis;
mod watersic;

use nalgebra::DMatrix;

use super::contract::missed;
use super::lossy::{HEADER, restored_finite};
use super::{Encoded, Inputs, Moments, Rate, TensorCodec};
use crate::{Error, Tensor};
use quantizer::Quantizer;

/// Such a quantizer as a codec of tensors.
#[derive(Debug)]
pub(crate) struct Layer(Box<dyn Quantizer>);

impl Layer {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(Self(match name {
            "qtip" => Box::new(qtip::Qtip),
            "watersic" => Box::new(watersic::WaterSic),
            _ => return None,
        }))
    }

    /// The rate that it uses where so many bits per value are there.
    pub(crate) fn rate_within(&self, bits: f64) -> Option<f64> {
        self.0.rate_within(bits)
    }

    fn refuse(&self, tensor: &Tensor, target: Rate, reason: &str) -> Error {
        missed(target, tensor, self.name(), reason)
    }
}

impl TensorCodec for Layer {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn needs_moments(&self) -> bool {
        true
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let reason = "it rounds a layer's weights for what the layer reads, which a calibration says";
        Err(self.refuse(tensor, target, reason))
    }

    fn encode_weighted(&self, tensor: &Tensor, target: Rate, moments: Moments<'_>) -> Result<Encoded, Error> {
        let Rate::Bits(bits) = target else {
            return Err(self.refuse(tensor, target, "it has bits per value, and no other target"));
        };
        if self.0.rate_within(bits).is_none() {
            return Err(self.refuse(tensor, target, "that is too few for it"));
        }
        // A hair above, so that a rate that was printed is enough.
        let most = ((bits + 5e-3) * tensor.len() as f64 / 8.0) as usize;
        let encoded = Encoded::of_normalized(tensor, |matrix| {
            let cols = matrix.cols;
            if moments.inputs != Inputs::Columns || moments.values.len() != cols * cols {
                return Err(self.refuse(tensor, target, "it takes moments of inputs that are columns"));
            }
            let known = DMatrix::from_fn(cols, cols, |i, j| f64::from(moments.values[i * cols + j]));
            let coded = self.0.encode(&matrix, &known, most.saturating_sub(HEADER));
            coded.ok_or_else(|| self.refuse(tensor, target, "its moments have no inverse"))
        })?;
        encoded.within(Rate::Bits(bits + 5e-3), self.name(), "with its scales it takes")
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        restored_finite(encoded, |bytes, rows, cols| self.0.decode(bytes, rows, cols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Dtype};
    use trinity_numeric::random::Lcg;

    /// Nearly normal numbers.
    pub(super) fn normal(count: usize) -> Vec<f32> {
        let mut lcg = Lcg(11);
        (0..count).map(|_| lcg.gaussian()).collect()
    }

    pub(super) fn tensor(values: &[f32], cols: usize) -> Tensor {
        Tensor::of_f32("w", Class::Weight, Dtype::F32, vec![values.len() / cols, cols], values).unwrap()
    }

    /// Inputs of which neighbours lean on each other, or none does.
    pub(super) fn moments(cols: usize, leaning: f32) -> Vec<f32> {
        let distance = |at: usize| (at / cols).abs_diff(at % cols) as i32;
        (0..cols * cols).map(|at| leaning.powi(distance(at))).collect()
    }

    /// Cost of the errors over that of leaving everything out, and bits per value.
    pub(super) fn coded(name: &str, values: &[f32], cols: usize, moments: &[f32], bits: f64) -> (f64, f64) {
        let (codec, tensor) = (Layer::named(name).unwrap(), tensor(values, cols));
        let encoded = codec.encode_weighted(&tensor, Rate::Bits(bits), Moments::of_columns(moments)).unwrap();
        lost(&codec, &encoded, values, cols, moments)
    }

    fn lost(
        codec: &dyn TensorCodec,
        encoded: &Encoded,
        values: &[f32],
        cols: usize,
        moments: &[f32],
    ) -> (f64, f64) {
        let back = codec.decode(encoded).unwrap().to_f32();
        let known = DMatrix::from_fn(cols, cols, |i, j| f64::from(moments[i * cols + j]));
        let cost = |rows: Vec<f64>| {
            let rows = DMatrix::from_vec(cols, values.len() / cols, rows);
            (&known * &rows).component_mul(&rows).sum()
        };
        let lost = cost(values.iter().zip(&back).map(|(a, b)| f64::from(a - b)).collect());
        (lost / cost(values.iter().map(|&v| f64::from(v)).collect()), encoded.bits_per_value())
    }

    /// The least share of the cost that any code of so many bits leaves of a normal weight: the waterfilling bound.
    pub(super) fn bound(moments: &[f32], cols: usize, bits: f64) -> f64 {
        let known = DMatrix::from_fn(cols, cols, |i, j| f64::from(moments[i * cols + j]));
        let law = known.symmetric_eigen().eigenvalues;
        let rate = |level: f64| law.iter().map(|v| (0.5 * (v / level).log2()).max(0.0)).sum::<f64>();
        let (mut low, mut high) = (1e-12, law.max());
        for _ in 0..200 {
            let level = (low * high).sqrt();
            if rate(level) > bits * cols as f64 { low = level } else { high = level }
        }
        law.iter().map(|v| v.min(low)).sum::<f64>() / law.sum()
    }

    #[test]
    fn streams_come_back_and_cut_ones_are_errors() {
        let (rows, cols) = (20, 40);
        let (values, moments) = (normal(rows * cols), moments(cols, 0.8));
        let tensor = tensor(&values, cols);
        for name in ["qtip", "watersic"] {
            let codec = Layer::named(name).unwrap();
            let known = Moments::of_columns(&moments);
            let encoded = codec.encode_weighted(&tensor, Rate::Bits(3.3), known).unwrap();
            assert_eq!(codec.decode(&encoded).unwrap().shape(), tensor.shape());
            for cut in 1..encoded.bytes.len().min(60) {
                assert!(codec.decode(&encoded.cut(cut)).is_err(), "{name}: {cut}");
            }
            for at in 2..encoded.bytes.len() {
                let mut bytes = encoded.bytes.clone();
                bytes[at] ^= 0x55;
                let _ = codec.decode(&Encoded { bytes, ..encoded.clone() });
            }
            assert!(codec.encode(&tensor, Rate::Bits(3.0)).is_err());
            assert!(codec.encode_weighted(&tensor, Rate::Lossless, known).is_err());
            assert!(codec.encode_weighted(&tensor, Rate::Bits(0.01), known).is_err());
        }
    }

    /// Bits per value that a code takes more than any needs for what it loses, on normal weights.
    #[test]
    #[ignore = "takes long: cargo xtask test --all"]
    fn gaps_to_the_bound_of_the_weighted_normal_law() {
        let (rows, cols) = (512, 64);
        let values = normal(rows * cols);
        let known = moments(cols, 0.9);
        let gap = |lost: f64, bits: f64| {
            let needed =
                (0..1200).map(|at| f64::from(at) * 0.005).find(|&rate| bound(&known, cols, rate) <= lost);
            bits - needed.unwrap_or(6.0)
        };
        let trinity = super::super::codec("trinity").unwrap();
        for bits in [2.0, 3.0, 4.0] {
            let subject = tensor(&values, cols);
            let encoded =
                trinity.encode_weighted(&subject, Rate::Bits(bits), Moments::of_columns(&known)).unwrap();
            let (lost, spent) = lost(trinity.as_ref(), &encoded, &values, cols, &known);
            let [qtip, watersic] = ["qtip", "watersic"].map(|name| {
                let (lost, spent) = coded(name, &values, cols, &known, bits);
                gap(lost, spent)
            });
            let trinity = gap(lost, spent);
            eprintln!(
                "{bits} bits: trinity {trinity:.3}, watersic {watersic:.3}, qtip {qtip:.3} bits from the bound"
            );
            assert!(trinity > 0.0 && trinity < watersic, "{bits} bits: {trinity} against {watersic}");
            assert!(qtip > 0.0 && qtip < 0.8, "{bits} bits: {qtip}");
        }
    }

    #[test]
    fn the_bound_of_a_white_law_is_six_decibels_a_bit() {
        assert!((bound(&moments(8, 0.0), 8, 2.0) - 0.0625).abs() < 1e-6);
        assert!(bound(&moments(32, 0.9), 32, 2.0) < 0.03);
    }
}
