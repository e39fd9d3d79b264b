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

use super::{Encoded, MetricSums, Moments, Rate, StageCost, TensorCodec};
use crate::sums::Sums;
use crate::{Error, Tensor};

/// Bits per value between two rates that are tried.
const RUNG: f64 = 0.5;

/// A codec that keeps the least error of all rates up to the one asked for.
#[derive(Debug)]
pub(crate) struct Rungs(pub Box<dyn TensorCodec>);

impl Rungs {
    fn error(&self, tensor: &Tensor, encoded: &Encoded) -> Result<f64, Error> {
        Ok(self.0.measure(tensor, encoded)?.finish().nmse)
    }

    /// The rate asked for, where what it does to this tensor is a matter of luck.
    fn rate_of_chance(&self, tensor: &Tensor, target: Rate) -> Option<f64> {
        match target {
            Rate::Bits(bits) if !self.has_one_rate() && is_erratic(tensor) => Some(bits),
            _ => None,
        }
    }

    /// The least error of what was asked for and of all rungs below its rate.
    fn best_up_to(&self, bits: f64, tensor: &Tensor, asked: Encoded) -> Result<Encoded, Error> {
        let (mut least, mut best) = (self.error(tensor, &asked)?, asked);
        let mut rung = RUNG * ((bits / RUNG).ceil() - 1.0).min(f64::from(u16::MAX));
        while least > 0.0 && rung > 0.0 {
            match self.0.encode(tensor, Rate::Bits(rung)) {
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
}

impl TensorCodec for Rungs {
    fn name(&self) -> String {
        self.0.name()
    }

    fn has_one_rate(&self) -> bool {
        self.0.has_one_rate()
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let asked = self.0.encode(tensor, target)?;
        match self.rate_of_chance(tensor, target) {
            Some(bits) => self.best_up_to(bits, tensor, asked),
            None => Ok(asked),
        }
    }

    fn encode_measured(&self, tensor: &Tensor, target: Rate) -> Result<(Encoded, MetricSums), Error> {
        let Some(bits) = self.rate_of_chance(tensor, target) else {
            return self.0.encode_measured(tensor, target);
        };
        let best = self.best_up_to(bits, tensor, self.0.encode(tensor, target)?)?;
        let sums = self.0.measure(tensor, &best)?;
        Ok((best, sums))
    }

    fn measure(&self, tensor: &Tensor, encoded: &Encoded) -> Result<MetricSums, Error> {
        self.0.measure(tensor, encoded)
    }

    fn shares_choices(&self) -> bool {
        self.0.shares_choices()
    }

    fn chosen_on(&self, sample: &Tensor, target: Rate) -> Option<Box<dyn TensorCodec>> {
        self.0.chosen_on(sample, target).map(|codec| Box::new(Self(codec)) as Box<dyn TensorCodec>)
    }

    fn takes_moments(&self) -> bool {
        self.0.takes_moments()
    }

    fn needs_moments(&self) -> bool {
        self.0.needs_moments()
    }

    fn encode_weighted(&self, tensor: &Tensor, target: Rate, moments: Moments<'_>) -> Result<Encoded, Error> {
        self.0.encode_weighted(tensor, target, moments)
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        self.0.decode(encoded)
    }

    fn decode_into(&self, encoded: &Encoded, out: &mut [u8]) -> Result<(), Error> {
        self.0.decode_into(encoded, out)
    }

    fn stages(&self, tensor: &Tensor, target: Rate) -> Result<Vec<StageCost>, Error> {
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

/// Values that are read at a time: they stay in the cache.
const PIECE: usize = 4096;

/// Whether the error of a tensor may rise with its bits.
///
/// One pass over all values, unless their sums are known; neighbours are looked at until what a predictor leaves is too
/// much to be next to nothing, which takes a few thousand of them where there is no law.
fn is_erratic(tensor: &Tensor) -> bool {
    if tensor.len() < FEW {
        return true;
    }
    let sums = tensor.sums();
    sums.are_of_few(tensor)
        // The mean says nearly all of a value.
        || sums.variance() < SPREAD * sums.second
        || has_few_values(tensor)
        || is_foretold(tensor, sums)
        || is_a_product(tensor, sums)
}

/// A tensor's values from one place to before another.
fn read(tensor: &Tensor, places: std::ops::Range<usize>, values: &mut Vec<f32>) {
    let bytes = tensor.dtype().bytes();
    values.resize(places.len(), 0.0);
    tensor.dtype().to_f32(&tensor.data()[places.start * bytes..places.end * bytes], values);
}

/// Sums kept side by side.
const LANES: usize = 8;

impl Sums {
    /// Whether a few values have nearly all the energy (the participation ratio (Σx²)² / Σx⁴), or none has any.
    fn are_of_few(&self, tensor: &Tensor) -> bool {
        if !self.second.is_finite() || self.second <= 0.0 {
            return true;
        }
        // Σx⁴ is at most Σx² by the largest square: mostly that settles it, with a little room for rounding.
        let many = MANY as f64;
        if self.second > (many + 1.0) * f64::from(self.largest).powi(2) {
            return false;
        }
        let mut fourth = [0f64; LANES];
        let mut piece = Vec::with_capacity(PIECE);
        for from in (0..tensor.len()).step_by(PIECE) {
            read(tensor, from..tensor.len().min(from + PIECE), &mut piece);
            for values in piece.chunks(LANES) {
                fourth.iter_mut().zip(values).for_each(|(sum, &value)| *sum += f64::from(value).powi(4));
            }
        }
        self.second * self.second < many * fourth.iter().sum::<f64>()
    }

    fn variance(&self) -> f64 {
        self.second - self.first * self.first / self.count
    }
}

fn has_few_values(tensor: &Tensor) -> bool {
    let mut seen = BTreeSet::new();
    let mut value = Vec::with_capacity(1);
    for at in (0..tensor.len()).step_by(tensor.len().div_ceil(SAMPLE)) {
        read(tensor, at..at + 1, &mut value);
        seen.extend(value.first().map(|value| value.to_bits()));
    }
    seen.len() < MANY
}

/// Whether the neighbours above and to the left say nearly all of a value, or those one further away
/// do (a pattern of two).
fn is_foretold(tensor: &Tensor, sums: &Sums) -> bool {
    let (count, cols) = (tensor.len(), tensor.matrix().1);
    // Of one row, the values before stand above.
    let up = if cols < count { cols } else { 1 };
    let bound = FORETOLD * sums.variance();
    let mut values = Vec::new();
    let mut leaves_little = |lag: usize| -> bool {
        let (above, reach) = (lag * up, lag * up + lag);
        let mut rest = 0.0;
        for from in (reach..count).step_by(PIECE) {
            read(tensor, from - reach..count.min(from + PIECE), &mut values);
            let left = |at: usize| f64::from(values[at]) - f64::from(values[at - lag]);
            rest += (reach..values.len()).map(|at| (left(at) - left(at - above)).powi(2)).sum::<f64>();
            if rest >= bound {
                return false;
            }
        }
        true
    };
    leaves_little(1) || leaves_little(2)
}

/// Whether the matrix is a column times a row: every two neighbours have the ratio of those above them.
fn is_a_product(tensor: &Tensor, sums: &Sums) -> bool {
    let (rows, cols) = tensor.matrix();
    if cols < 2 || rows < 2 {
        return false;
    }
    // No product of two values is more than the largest times one of them.
    let most = 2.0 * sums.second / f64::from(sums.largest).powi(2);
    let (mut rest, mut all) = (0f64, 0f64);
    let at_once = PIECE.div_ceil(cols);
    let mut values = Vec::new();
    for first in (1..rows).step_by(at_once) {
        let end = rows.min(first + at_once);
        read(tensor, (first - 1) * cols..end * cols, &mut values);
        let at = |row: usize, col: usize| f64::from(values[row * cols + col] / sums.largest);
        for row in 1..=end - first {
            for col in 1..cols {
                let products = [at(row, col) * at(row - 1, col - 1), at(row, col - 1) * at(row - 1, col)];
                rest += (products[0] - products[1]).powi(2);
                all += products[0].powi(2) + products[1].powi(2);
            }
        }
        if rest >= FORETOLD * most {
            return false;
        }
    }
    rest < FORETOLD * all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Dtype};

    fn tensor(values: &[f32], cols: usize) -> Tensor {
        Tensor::of_f32("t", Class::Other, Dtype::F32, vec![values.len() / cols, cols], values).unwrap()
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

    /// A codec that knows what it did without decoding.
    #[derive(Debug)]
    struct Foresees;

    impl TensorCodec for Foresees {
        fn name(&self) -> String {
            "foresees".into()
        }

        fn encode(&self, tensor: &Tensor, _: Rate) -> Result<Encoded, Error> {
            Ok(Encoded::like(tensor, Vec::new()))
        }

        fn decode(&self, _: &Encoded) -> Result<Tensor, Error> {
            Err(Error::corrupt(0, "it was decoded"))
        }

        fn measure(&self, _: &Tensor, _: &Encoded) -> Result<MetricSums, Error> {
            let mut sums = MetricSums::default();
            sums.add(&[1f32, 1.0], &[1.0, 0.5]);
            Ok(sums)
        }
    }

    #[test]
    fn what_a_codec_measures_by_itself_is_not_decoded() {
        for values in [noise(8192), vec![0.3; 8192]] {
            let tensor = tensor(&values, 64);
            let (_, sums) = Rungs(Box::new(Foresees)).encode_measured(&tensor, Rate::Bits(3.0)).unwrap();
            assert_eq!(sums.finish().nmse, 0.125);
        }
    }
}
