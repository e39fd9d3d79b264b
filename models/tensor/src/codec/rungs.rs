//! More bits never mean more error.
//!
//! Where the error of a tensor is the sum of many small ones, it falls as bits
//! grow. Where a few values carry it all (an outlier, a constant, a handful of
//! integers), a predictor may hit every value or none (a ramp, a pattern), or
//! what is said beside the values takes much of the bits (a small tensor), it is
//! a matter of luck: a coarse step may meet them and a finer one miss. For such
//! tensors every multiple of half a bit below the rate asked for is tried as
//! well, and the least error is kept. So no rate gives more error than a multiple of
//! half a bit below it. Knows nothing of how a codec works.

use std::collections::BTreeSet;

use super::{Encoded, Metrics, Moments, StageCost, Target, TensorCodec};
use crate::{Error, Tensor};

/// Bits per value between two rates that are tried.
const RUNG: f64 = 0.5;

/// A codec that keeps the least error of all rates up to the one asked for.
#[derive(Debug)]
pub(crate) struct Rungs(pub Box<dyn TensorCodec>);

impl Rungs {
    fn error(&self, tensor: &Tensor, encoded: &Encoded) -> Result<f64, Error> {
        Ok(Metrics::between(tensor, &self.0.decode(encoded)?).nmse)
    }
}

impl TensorCodec for Rungs {
    fn name(&self) -> String {
        self.0.name()
    }

    fn has_one_rate(&self) -> bool {
        self.0.has_one_rate()
    }

    fn encode(&self, tensor: &Tensor, target: Target) -> Result<Encoded, Error> {
        let asked = self.0.encode(tensor, target)?;
        let Target::Bits(bits) = target else { return Ok(asked) };
        if self.has_one_rate() || !is_erratic(tensor) {
            return Ok(asked);
        }
        let (mut least, mut best) = (self.error(tensor, &asked)?, asked);
        let mut rung = RUNG * ((bits / RUNG).ceil() - 1.0).min(f64::from(u16::MAX));
        while least > 0.0 && rung > 0.0 {
            match self.0.encode(tensor, Target::Bits(rung)) {
                Ok(encoded) => {
                    let error = self.error(tensor, &encoded)?;
                    if error < least {
                        (least, best) = (error, encoded);
                    }
                }
                // Too few for this codec, and so is anything below.
                Err(Error::Unreachable { .. }) => break,
                Err(error) => return Err(error),
            }
            rung -= RUNG;
        }
        Ok(best)
    }

    fn takes_moments(&self) -> bool {
        self.0.takes_moments()
    }

    fn needs_moments(&self) -> bool {
        self.0.needs_moments()
    }

    fn encode_weighted(
        &self,
        tensor: &Tensor,
        target: Target,
        moments: Moments<'_>,
    ) -> Result<Encoded, Error> {
        self.0.encode_weighted(tensor, target, moments)
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        self.0.decode(encoded)
    }

    fn stages(&self, tensor: &Tensor, target: Target) -> Result<Vec<StageCost>, Error> {
        self.0.stages(tensor, target)
    }
}

/// Fewer values leave their error to chance, and are coded in no time.
const FEW: usize = 4096;
/// Values that must share the energy, and the values that a sample must have.
const MANY: usize = 64;
/// Values looked at for how many different ones there are.
const SAMPLE: usize = 1024;
/// A share of the variance, below which what a predictor leaves is next to nothing.
const FORETOLD: f64 = 1e-4;

/// A share of the energy, below which the variance leaves all values in one place.
const SPREAD: f64 = 1e-2;

/// Whether the error of a tensor may rise with its bits.
fn is_erratic(tensor: &Tensor) -> bool {
    if tensor.len() < FEW {
        return true;
    }
    let mut values = vec![0f32; tensor.len()];
    tensor.dtype().to_f32(tensor.data(), &mut values);
    let cols = tensor.matrix().1;
    is_of_few(&values) || has_few_values(&values) || is_foretold(&values, cols) || is_a_product(&values, cols)
}

/// Whether a few values have nearly all the energy: the participation ratio (Σx²)² / Σx⁴.
fn is_of_few(values: &[f32]) -> bool {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return true;
    }
    let (mut second, mut fourth) = (0f64, 0f64);
    for value in values {
        let square = f64::from(value / largest).powi(2);
        second += square;
        fourth += square * square;
    }
    second * second < MANY as f64 * fourth
}

fn has_few_values(values: &[f32]) -> bool {
    let step = values.len().div_ceil(SAMPLE);
    let seen: BTreeSet<u32> = values.iter().step_by(step).map(|value| value.to_bits()).collect();
    seen.len() < MANY
}

/// Whether the neighbours above and to the left say nearly all of a value, those one further away
/// do (a pattern of two), or the mean does.
fn is_foretold(values: &[f32], cols: usize) -> bool {
    let count = values.len() as f64;
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let variance = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>();
    // Of one row, the values before stand above.
    let up = if cols < values.len() { cols } else { 1 };
    let energy = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
    if variance < SPREAD * energy {
        return true;
    }
    let rest = |lag: usize| -> f64 {
        let left = |at: usize| f64::from(values[at]) - f64::from(values[at - lag]);
        (lag * up + lag..values.len()).map(|at| (left(at) - left(at - lag * up)).powi(2)).sum()
    };
    rest(1) < FORETOLD * variance || rest(2) < FORETOLD * variance
}

/// Whether the matrix is a column times a row: every two neighbours have the ratio of those above them.
fn is_a_product(values: &[f32], cols: usize) -> bool {
    if cols < 2 || values.len() < 2 * cols {
        return false;
    }
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let at = |row: usize, col: usize| f64::from(values[row * cols + col] / largest);
    let (mut rest, mut all) = (0f64, 0f64);
    for row in 1..values.len() / cols {
        for col in 1..cols {
            let products = [at(row, col) * at(row - 1, col - 1), at(row, col - 1) * at(row - 1, col)];
            rest += (products[0] - products[1]).powi(2);
            all += products[0].powi(2) + products[1].powi(2);
        }
    }
    rest < FORETOLD * all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Dtype};

    fn tensor(values: &[f32], cols: usize) -> Tensor {
        let mut data = Vec::new();
        Dtype::F32.extend_from_f32(values, &mut data);
        Tensor::new("t", Class::Other, Dtype::F32, vec![values.len() / cols, cols], data).unwrap()
    }

    fn noise(count: u32) -> Vec<f32> {
        (0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5).collect()
    }

    #[test]
    fn chance_is_told_from_law() {
        let law = noise(8192);
        assert!(!is_erratic(&tensor(&law, 64)));
        let mut outlier = law.clone();
        outlier[7] = 1e6;
        let ramp: Vec<f32> = (0..8192).map(|at| at as f32).collect();
        let integers: Vec<f32> = law.iter().map(|value| (value * 6.0).round()).collect();
        let far_off: Vec<f32> = law.iter().map(|value| 1e3 + value).collect();
        let pattern = law.iter().enumerate().map(|(at, noise)| ((at / 64 + at) % 2) as f32 + 1e-3 * noise);
        let product =
            (0..8192).map(|at| ((at / 64 * 37 % 23) as f32 - 11.0) * ((at % 64 * 41 % 29) as f32 - 14.0));
        for (name, values) in [
            ("pattern", pattern.collect()),
            ("product", product.collect()),
            ("small", law[..2048].to_vec()),
            ("outlier", outlier),
            ("ramp", ramp),
            ("integers", integers),
            ("far off", far_off),
            ("constant", vec![0.3; 8192]),
        ] {
            assert!(is_erratic(&tensor(&values, 64)), "{name}");
        }
    }
}
