//! Tensor codecs in the loop: the one module here that knows them.
//!
//! Weights are coded before a run, each tensor with the bits an [`Allocation`]
//! gives it; K, V and activations are coded during the run, block by block of
//! tokens, as a cache stores them and a wire carries them.

use crate::{Error, Hooks, Matrix, Model, Weight};
use rayon::prelude::*;
use trinity_tensor::allocate::{Allocation, Curve, allocate};
use trinity_tensor::codec::{self, Target, TensorCodec};
use trinity_tensor::{Class, Dtype, Tensor};

/// `CODEC@BITS`: a codec and what it may spend.
#[derive(Debug)]
pub struct Coding {
    name: String,
    bits: f64,
    coder: Coder,
}

#[derive(Debug)]
enum Coder {
    /// Round-to-nearest with whole-bit integers and one f32 scale a row, as
    /// published figures define it: the scales come on top of the bits.
    Rtn(u32),
    /// Any other: the target counts everything.
    Codec(Box<dyn TensorCodec>),
    /// A randomized Hadamard rotation of both sides of a weight (as QuaRot
    /// does) around another codec.
    Rotated(Box<dyn TensorCodec>),
}

impl std::str::FromStr for Coding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bits) = text
            .rsplit_once('@')
            .ok_or_else(|| format!("`{text}` is not CODEC@BITS, such as h265@3 or rtn@4"))?;
        let bits: f64 = bits.parse().map_err(|_| format!("`{bits}` is no number of bits per value"))?;
        Self::new(name, bits)
    }
}

impl Coding {
    /// A codec by name; `hadamard+NAME` rotates weights first.
    pub fn new(name: &str, bits: f64) -> Result<Self, String> {
        if !(bits.is_finite() && (0.05..=32.0).contains(&bits)) {
            return Err(format!("{bits} bits per value is outside 0.05 to 32"));
        }
        let find = |name: &str| codec::codec(name).map_err(|e| e.to_string());
        let coder = if name == "rtn" && bits.fract() == 0.0 && (2.0..=8.0).contains(&bits) {
            Coder::Rtn(bits as u32)
        } else if let Some(inner) = name.strip_prefix("hadamard+") {
            Coder::Rotated(find(inner)?)
        } else {
            Coder::Codec(find(name)?)
        };
        Ok(Self { name: name.into(), bits, coder })
    }

    /// The codec's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bits per value asked for.
    pub fn bits(&self) -> f64 {
        self.bits
    }

    /// Codes a matrix in place; answers the bits it takes.
    pub fn apply(
        &self,
        class: Class,
        rows: usize,
        cols: usize,
        values: &mut [f32],
        bits: f64,
    ) -> Result<u64, String> {
        if values.is_empty() {
            return Ok(0);
        }
        match &self.coder {
            Coder::Rtn(width) => Ok(rtn(*width, cols, values)),
            Coder::Codec(codec) => through(codec.as_ref(), class, rows, cols, values, bits),
            Coder::Rotated(codec) => {
                let seed = (rows as u64) << 32 | cols as u64;
                rotate(values, cols, seed, Direction::Forward);
                let spent = through(codec.as_ref(), class, rows, cols, values, bits);
                rotate(values, cols, seed, Direction::Backward);
                spent
            }
        }
    }
}

fn through(
    codec: &dyn TensorCodec,
    class: Class,
    rows: usize,
    cols: usize,
    values: &mut [f32],
    bits: f64,
) -> Result<u64, String> {
    let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensor =
        Tensor::new("matrix", class, Dtype::F32, vec![rows, cols], data).map_err(|e| e.to_string())?;
    let encoded = codec.encode(&tensor, Target::Bits(bits)).map_err(|e| e.to_string())?;
    let decoded = codec.decode(&encoded).map_err(|e| e.to_string())?;
    decoded.dtype().to_f32(decoded.data(), values);
    Ok(8 * encoded.bytes.len() as u64)
}

/// Symmetric: `q = clamp(round(w / m · (2^(b−1) − 1)), −2^(b−1), 2^(b−1) − 1)`, `m` the row's largest.
fn rtn(width: u32, cols: usize, values: &mut [f32]) -> u64 {
    let levels = ((1i32 << (width - 1)) - 1) as f32;
    let mut bits = 0;
    for row in values.chunks_mut(cols) {
        let top = row.iter().fold(0f32, |m, v| m.max(v.abs()));
        if top > 0.0 {
            for v in row.iter_mut() {
                let q = (*v / top * levels).round().clamp(-levels - 1.0, levels);
                *v = q * top / levels;
            }
        }
        bits += u64::from(width) * row.len() as u64 + 32;
    }
    bits
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Random signs and a Walsh–Hadamard transform over blocks of each row. The
/// block is the largest power of two that divides a row; orthonormal, so that
/// error outside equals error inside. Signs come from the shape: nothing to send.
fn rotate(values: &mut [f32], cols: usize, seed: u64, direction: Direction) {
    let block = 1usize << cols.trailing_zeros();
    let scale = 1.0 / (block as f32).sqrt();
    let mut state = seed | 1;
    let signs: Vec<f32> = (0..cols)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if state >> 63 == 0 { 1.0 } else { -1.0 }
        })
        .collect();
    for row in values.chunks_mut(cols) {
        if direction == Direction::Forward {
            row.iter_mut().zip(&signs).for_each(|(v, s)| *v *= s);
        }
        for part in row.chunks_mut(block) {
            walsh_hadamard(part);
            part.iter_mut().for_each(|v| *v *= scale);
        }
        if direction == Direction::Backward {
            row.iter_mut().zip(&signs).for_each(|(v, s)| *v *= s);
        }
    }
}

/// In place, unnormalized; the length is a power of two.
fn walsh_hadamard(x: &mut [f32]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// What coding the weights came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodedWeights {
    pub bits_per_value: f64,
    /// Squared error over energy, all weights together.
    pub nmse: f64,
}

/// Codes every linear weight of `model`; the average over all values is the coding's bits.
pub fn code_weights(
    model: &mut Model,
    coding: &Coding,
    allocation: Allocation,
) -> Result<CodedWeights, Error> {
    let originals = model.weights();
    let budgets = budgets(&originals, coding, allocation)?;
    let coded: Vec<(Weight, u64)> = originals
        .par_iter()
        .zip(&budgets)
        .map(|(weight, &bits)| {
            let mut coded = weight.clone();
            let spent = coding
                .apply(Class::Weight, weight.rows, weight.cols, &mut coded.values, bits)
                .map_err(|reason| Error::Hook { place: weight.name.clone(), reason })?;
            Ok((coded, spent))
        })
        .collect::<Result<_, Error>>()?;
    let values: u64 = originals.iter().map(|w| w.values.len() as u64).sum();
    let spent: u64 = coded.iter().map(|c| c.1).sum();
    let (error, energy) = originals.iter().zip(&coded).fold((0.0, 0.0), |(error, energy), (a, (b, _))| {
        (
            error + squared_error(&a.values, &b.values),
            energy + a.values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>(),
        )
    });
    let weights: Vec<Weight> = coded.into_iter().map(|c| c.0).collect();
    model.replace_weights(&weights)?;
    Ok(CodedWeights {
        bits_per_value: spent as f64 / values.max(1) as f64,
        nmse: error / energy.max(f64::MIN_POSITIVE),
    })
}

fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x - y).powi(2)).sum()
}

/// Rates at which each tensor's error is measured, around the average.
const PROBES: [f64; 3] = [-1.0, 0.0, 1.0];
/// No tensor is probed below this: a codec's headers alone take about as much.
const LEAST_BITS: f64 = 0.5;

/// Bits per value for each weight. Relative errors weigh alike: a linear
/// layer's output is as wrong as its weight is, whatever its scale.
fn budgets(weights: &[Weight], coding: &Coding, allocation: Allocation) -> Result<Vec<f64>, Error> {
    // Plain RTN has whole bits only, and equal shares need no curve.
    if matches!(coding.coder, Coder::Rtn(_)) || allocation == Allocation::Equal {
        return Ok(vec![coding.bits; weights.len()]);
    }
    let curves: Vec<Curve> = weights
        .par_iter()
        .map(|weight| {
            let energy: f64 = weight.values.iter().map(|&v| f64::from(v).powi(2)).sum();
            let points = PROBES
                .iter()
                .map(|probe| {
                    let mut coded = weight.values.clone();
                    let spent = coding
                        .apply(
                            Class::Weight,
                            weight.rows,
                            weight.cols,
                            &mut coded,
                            (coding.bits + probe).max(LEAST_BITS),
                        )
                        .map_err(|reason| Error::Hook { place: weight.name.clone(), reason })?;
                    let nmse = squared_error(&weight.values, &coded) / energy.max(f64::MIN_POSITIVE);
                    Ok((spent as f64 / coded.len() as f64, nmse.max(1e-12)))
                })
                .collect::<Result<Vec<_>, Error>>()?;
            let layer = weight.name.split('.').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
            Ok(Curve { values: weight.values.len(), weight: 1.0, layer, points })
        })
        .collect::<Result<_, Error>>()?;
    Ok(allocate(&curves, coding.bits, allocation))
}

/// Codecs on the way: KV cache and pipeline activations.
#[derive(Debug)]
pub struct CodedPaths {
    pub kv: Option<Coding>,
    pub activations: Option<Coding>,
    pub stages: usize,
    /// Tokens coded together.
    pub block: usize,
}

impl CodedPaths {
    fn in_blocks(&self, coding: &Coding, class: Class, matrix: Matrix<'_>) -> Result<u64, String> {
        let cols = matrix.cols;
        matrix.values.chunks_mut(self.block.max(1) * cols).try_fold(0, |bits, block| {
            Ok(bits + coding.apply(class, block.len() / cols, cols, block, coding.bits)?)
        })
    }
}

impl Hooks for CodedPaths {
    fn kv(&self, _: usize, _: &'static str, matrix: Matrix<'_>) -> Result<u64, String> {
        self.kv.as_ref().map_or(Ok(0), |coding| self.in_blocks(coding, Class::KvCache, matrix))
    }

    fn activation(&self, _: usize, matrix: Matrix<'_>) -> Result<u64, String> {
        self.activations.as_ref().map_or(Ok(0), |coding| self.in_blocks(coding, Class::Activation, matrix))
    }

    fn wants_kv(&self) -> bool {
        self.kv.is_some()
    }

    fn stages(&self) -> usize {
        if self.activations.is_some() { self.stages } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_is_undone_exactly_enough_and_keeps_energy() {
        let original: Vec<f32> = (0..48 * 5).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut turned = original.clone();
        rotate(&mut turned, 48, 7, Direction::Forward);
        let energy = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
        assert!((energy(&turned) / energy(&original) - 1.0).abs() < 1e-5);
        assert!(turned != original);
        rotate(&mut turned, 48, 7, Direction::Backward);
        for (a, b) in turned.iter().zip(&original) {
            assert!((a - b).abs() < 1e-5);
        }
    }

    #[test]
    fn codings_are_parsed_or_refused_with_a_reason() {
        assert!("rtn@4".parse::<Coding>().is_ok());
        for bad in ["rtn", "rtn@x", "rtn@0", "nothing@3", "rtn@-1"] {
            assert!(bad.parse::<Coding>().is_err(), "{bad}");
        }
    }
}
