//! Tensor codecs in the loop: the one module here that knows them.
//!
//! Weights are coded before a run, each tensor with the bits an [`Allocation`]
//! gives it; K, V and activations are coded during the run, block by block of
//! tokens, as a cache stores them and a wire carries them.

use crate::{Error, Hooks, Matrix, Model, Weight};
use rayon::prelude::*;
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
    pub fn apply(&self, class: Class, rows: usize, cols: usize, values: &mut [f32], bits: f64) -> Result<u64, String> {
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
    let tensor = Tensor::new("matrix", class, Dtype::F32, vec![rows, cols], data).map_err(|e| e.to_string())?;
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

/// How a budget is shared among weight tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allocation {
    /// The same bits per value for each.
    Equal,
    /// The paper's `B = k·l + b`: a slope over layers around the same average.
    Linear { bits_per_layer: f64 },
    /// Equal slope: bits go where they remove the most squared error.
    Slope,
}

/// What coding the weights came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodedWeights {
    pub bits_per_value: f64,
    /// Squared error over energy, all weights together.
    pub nmse: f64,
}

/// Codes every linear weight of `model`; the average over all values is the coding's bits.
pub fn code_weights(model: &mut Model, coding: &Coding, allocation: Allocation) -> Result<CodedWeights, Error> {
    let originals = model.weights();
    let budgets = budgets(&originals, coding, allocation, model.config().num_hidden_layers)?;
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
        (error + squared_error(&a.values, &b.values), energy + a.values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>())
    });
    let weights: Vec<Weight> = coded.into_iter().map(|c| c.0).collect();
    model.replace_weights(&weights)?;
    Ok(CodedWeights { bits_per_value: spent as f64 / values.max(1) as f64, nmse: error / energy.max(f64::MIN_POSITIVE) })
}

fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x - y).powi(2)).sum()
}

/// Bits per value for each weight.
fn budgets(weights: &[Weight], coding: &Coding, allocation: Allocation, layers: usize) -> Result<Vec<f64>, Error> {
    let average = coding.bits;
    if matches!(coding.coder, Coder::Rtn(_)) || allocation == Allocation::Equal {
        return Ok(vec![average; weights.len()]);
    }
    let layer = |weight: &Weight| -> f64 {
        let number = weight.name.split('.').nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
        number - (layers as f64 - 1.0) / 2.0
    };
    match allocation {
        Allocation::Linear { bits_per_layer } => {
            Ok(weights.iter().map(|w| (average + bits_per_layer * layer(w)).max(LEAST_BITS)).collect())
        }
        Allocation::Slope => equal_slope(weights, coding, average),
        Allocation::Equal => Ok(vec![average; weights.len()]),
    }
}

/// No tensor goes below this: a codec's headers alone take about as much.
const LEAST_BITS: f64 = 0.5;
/// Rates at which each tensor's error is measured, around the average.
const PROBES: [f64; 4] = [-1.0, -0.35, 0.35, 1.0];

/// Lagrangian allocation on measured curves: for one λ each tensor takes the
/// rate that minimizes error + λ · bits; λ is found so that bits meet the budget.
fn equal_slope(weights: &[Weight], coding: &Coding, average: f64) -> Result<Vec<f64>, Error> {
    let curves: Vec<Vec<(f64, f64)>> = weights
        .par_iter()
        .map(|weight| {
            PROBES
                .iter()
                .map(|probe| {
                    let bits = (average + probe).max(LEAST_BITS);
                    let mut coded = weight.values.clone();
                    let spent = coding
                        .apply(Class::Weight, weight.rows, weight.cols, &mut coded, bits)
                        .map_err(|reason| Error::Hook { place: weight.name.clone(), reason })?;
                    let rate = spent as f64 / coded.len() as f64;
                    // log2 of the error falls almost in a line with the rate.
                    Ok((rate, squared_error(&weight.values, &coded).max(f64::MIN_POSITIVE).log2()))
                })
                .collect::<Result<Vec<_>, Error>>()
        })
        .collect::<Result<_, Error>>()?;
    let total: f64 = weights.iter().map(|w| w.values.len() as f64).sum();
    let rates_at = |lambda: f64| -> Vec<f64> {
        weights.iter().zip(&curves).map(|(w, curve)| best_rate(curve, lambda * w.values.len() as f64)).collect()
    };
    let mean = |rates: &[f64]| weights.iter().zip(rates).map(|(w, r)| w.values.len() as f64 * r).sum::<f64>() / total;
    // λ over thirty orders of magnitude, halved forty times: far below a thousandth of a bit.
    let (mut low, mut high) = (1e-25f64.ln(), 1e15f64.ln());
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if mean(&rates_at(middle.exp())) > average { low = middle } else { high = middle }
    }
    Ok(rates_at(high.exp()))
}

/// The rate on a curve (error in log2, straight between points) that
/// minimizes error + price · rate, to a hundredth of a bit.
fn best_rate(curve: &[(f64, f64)], price: f64) -> f64 {
    let (first, last) = (curve[0].0, curve[curve.len() - 1].0);
    let steps = (((last - first) / 0.01) as usize).max(1);
    let error_at = |rate: f64| {
        let upper = curve.iter().position(|p| p.0 >= rate).unwrap_or(curve.len() - 1).max(1);
        let ((r0, e0), (r1, e1)) = (curve[upper - 1], curve[upper.min(curve.len() - 1)]);
        let t = if r1 > r0 { (rate - r0) / (r1 - r0) } else { 0.0 };
        (e0 + t * (e1 - e0)).exp2()
    };
    (0..=steps)
        .map(|i| first + (last - first) * i as f64 / steps as f64)
        .map(|rate| (error_at(rate) + price * rate, rate))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(first, |best| best.1)
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
    fn equal_slope_gives_more_bits_where_error_falls_faster() {
        // Error 2^(−2r) times 1 and times 16: at equal slope the second takes two bits more.
        let curve = |gain: f64| -> Vec<(f64, f64)> { (0..6).map(|r| (f64::from(r), gain - 2.0 * f64::from(r))).collect() };
        let price = 2.0 * std::f64::consts::LN_2 * 2f64.powf(-4.0);
        let (a, b) = (best_rate(&curve(0.0), price), best_rate(&curve(4.0), price));
        assert!((b - a - 2.0).abs() < 0.6, "{a} {b}");
    }

    #[test]
    fn codings_are_parsed_or_refused_with_a_reason() {
        assert!("rtn@4".parse::<Coding>().is_ok());
        for bad in ["rtn", "rtn@x", "rtn@0", "nothing@3", "rtn@-1"] {
            assert!(bad.parse::<Coding>().is_err(), "{bad}");
        }
    }
}
