//! A bit budget for a set of tensors: who gets how much.
//!
//! Three ways: the same for each; the paper's B = k·l + b over layers l, with
//! k searched; and equal slopes, where no bit moved from one tensor to another
//! would lower the total error.

use rayon::prelude::*;

use crate::codec::{Metrics, Rate, TensorCodec};
use crate::{Entry, Error, Tensor};

/// How a budget is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Allocation {
    #[default]
    Equal,
    /// B = k·l + b over the layer number l in a tensor's name.
    Linear,
    /// The same error for the next bit everywhere.
    EqualSlope,
}

impl Allocation {
    const NAMED: [(Self, &str); 3] =
        [(Self::Equal, "equal"), (Self::Linear, "linear"), (Self::EqualSlope, "equal-slope")];
}

impl std::str::FromStr for Allocation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMED.into_iter().find(|(_, own)| *own == name).map(|(allocation, _)| allocation);
        found.ok_or_else(|| format!("`{name}`: expected equal, linear or equal-slope"))
    }
}

impl std::fmt::Display for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(Self::NAMED.iter().find(|(own, _)| own == self).map_or("", |(_, name)| name))
    }
}

/// What a tensor's error does with its bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Values of the tensor.
    pub values: usize,
    /// What an NMSE of one costs per value; its energy per value weighs squared
    /// errors alike, one weighs relative errors alike.
    pub weight: f64,
    /// Layer number.
    pub layer: f64,
    /// (bits per value, NMSE), bits rising.
    pub points: Vec<(f64, f64)>,
    /// Bits per value that it gets at least, where slopes decide.
    pub floor_bits: f64,
}

/// Values of a tensor that its curve is measured on.
const SAMPLE_VALUES: usize = 1 << 18;
/// Fewest and most bits a tensor may get.
const BITS: (f64, f64) = (0.3, 12.0);
/// How far apart the points of a measured curve are.
const SPACING: f64 = 1.0;

impl Curve {
    /// The floor of a tensor that has none of its own.
    pub const LEAST_BITS: f64 = BITS.0;

    /// Measures a tensor's curve around a rate, on its first rows.
    pub fn measure(entry: &Entry, codec: &dyn TensorCodec, bits: f64, weight: f64) -> Result<Self, Error> {
        let (rows, cols) = entry.matrix();
        let rows = (SAMPLE_VALUES / cols.max(1)).clamp(1, rows.max(1)).min(rows);
        let cols = cols.min(SAMPLE_VALUES);
        let mut data = vec![0; rows * cols * entry.dtype().bytes()];
        entry.stream()?.fill(&mut data)?;
        let sample = Tensor::new(entry.name(), entry.class(), entry.dtype(), vec![rows, cols], data)?;
        let mut points = Vec::new();
        for rate in [bits - SPACING, bits, bits + SPACING] {
            let encoded = match codec.encode(&sample, Rate::Bits(rate.max(BITS.0))) {
                Ok(encoded) => encoded,
                Err(Error::Unreachable { .. }) => continue,
                Err(error) => return Err(error),
            };
            let nmse = Metrics::between(&sample, &codec.decode(&encoded)?).nmse;
            points.push((encoded.bits_per_value(), nmse.max(1e-12)));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 - b.0 < 1e-6);
        Ok(Self { values: entry.len(), weight, layer: layer(entry.name()), points, floor_bits: BITS.0 })
    }

    /// log2 of the NMSE at a rate: linear between points, six decibels a bit beyond.
    fn log_nmse(&self, bits: f64) -> f64 {
        let (Some(&first), Some(&last)) = (self.points.first(), self.points.last()) else {
            return -2.0 * bits;
        };
        if bits <= first.0 {
            return first.1.log2() + 2.0 * (first.0 - bits);
        }
        if bits >= last.0 {
            return last.1.log2() - 2.0 * (bits - last.0);
        }
        let above = self.points.partition_point(|point| point.0 < bits).max(1);
        let ((x0, y0), (x1, y1)) = (self.points[above - 1], self.points[above]);
        y0.log2() + (y1.log2() - y0.log2()) * (bits - x0) / (x1 - x0)
    }

    /// The rate at which the weighted error is at most `level`.
    fn rate_for(&self, log_level: f64) -> f64 {
        let (mut low, mut high) = (self.floor_bits.clamp(BITS.0, BITS.1), BITS.1);
        for _ in 0..50 {
            let bits = 0.5 * (low + high);
            if self.weight.log2() + self.log_nmse(bits) > log_level { low = bits } else { high = bits }
        }
        0.5 * (low + high)
    }

    fn cost(&self, bits: f64) -> f64 {
        self.values as f64 * self.weight * self.log_nmse(bits).exp2()
    }
}

/// The first number in a name: its layer.
fn layer(name: &str) -> f64 {
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0.0)
}

/// Measures every tensor's curve.
pub fn curves(
    entries: &[Entry],
    codec: &dyn TensorCodec,
    bits: f64,
    weight: impl Fn(&Entry) -> f64 + Sync,
) -> Result<Vec<Curve>, Error> {
    entries.par_iter().map(|entry| Curve::measure(entry, codec, bits, weight(entry))).collect()
}

/// Bits per value for each tensor, `bits` on average over all values.
pub fn allocate(curves: &[Curve], bits: f64, allocation: Allocation) -> Vec<f64> {
    match allocation {
        Allocation::Equal => vec![bits; curves.len()],
        Allocation::Linear => linear(curves, bits),
        Allocation::EqualSlope => equal_slope(curves, bits),
    }
}

/// Error falls by the same factor for each bit everywhere (six decibels), so
/// slopes are equal where errors are.
fn equal_slope(curves: &[Curve], bits: f64) -> Vec<f64> {
    let (mut low, mut high) = (-80.0, 80.0);
    for _ in 0..80 {
        let level = 0.5 * (low + high);
        let rates: Vec<f64> = curves.iter().map(|curve| curve.rate_for(level)).collect();
        if mean(curves, &rates) > bits { low = level } else { high = level }
    }
    curves.iter().map(|curve| curve.rate_for(high)).collect()
}

fn linear(curves: &[Curve], bits: f64) -> Vec<f64> {
    let layers: Vec<f64> = curves.iter().map(|curve| curve.layer).collect();
    let middle = mean(curves, &layers);
    let rates = |slope: f64| -> Vec<f64> {
        layers.iter().map(|layer| (bits + slope * (layer - middle)).clamp(BITS.0, BITS.1)).collect()
    };
    let cost = |rates: &[f64]| curves.iter().zip(rates).map(|(curve, &rate)| curve.cost(rate)).sum::<f64>();
    let span = layers.iter().fold(0f64, |span, layer| span.max((layer - middle).abs())).max(1.0);
    let best = (-40..=40)
        .map(|step| rates(f64::from(step) / 40.0 * bits / span))
        .filter(|rates| mean(curves, rates) <= bits + 1e-9)
        .min_by(|a, b| cost(a).total_cmp(&cost(b)));
    best.unwrap_or_else(|| vec![bits; curves.len()])
}

fn mean(curves: &[Curve], rates: &[f64]) -> f64 {
    let values: usize = curves.iter().map(|curve| curve.values).sum();
    curves.iter().zip(rates).map(|(curve, rate)| curve.values as f64 * rate).sum::<f64>()
        / values.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: usize, layer: f64, weight: f64) -> Curve {
        let points = [1.0, 2.0, 3.0, 4.0].map(|bits: f64| (bits, 2f64.powf(-2.0 * bits)));
        Curve { values, weight, layer, points: points.into(), floor_bits: Curve::LEAST_BITS }
    }

    #[test]
    fn every_allocation_spends_the_budget_and_no_more() {
        let curves = [curve(1000, 0.0, 1.0), curve(4000, 5.0, 16.0), curve(500, 11.0, 0.1)];
        for allocation in [Allocation::Equal, Allocation::Linear, Allocation::EqualSlope] {
            let rates = allocate(&curves, 2.9, allocation);
            let mean = mean(&curves, &rates);
            assert!(mean <= 2.9 + 1e-9 && mean > 2.85, "{allocation:?}: {rates:?}");
        }
    }

    #[test]
    fn a_floor_holds_and_the_others_pay_for_it() {
        let floored = Curve { floor_bits: 3.0, ..curve(1000, 0.0, 0.01) };
        let curves = [floored, curve(1000, 1.0, 1.0), curve(1000, 2.0, 16.0)];
        let rates = allocate(&curves, 3.0, Allocation::EqualSlope);
        assert!((rates[0] - 3.0).abs() < 1e-6 && (rates[2] - rates[1] - 2.0).abs() < 1e-6, "{rates:?}");
        assert!((mean(&curves, &rates) - 3.0).abs() < 1e-6, "{rates:?}");
        // Where all have one there is nothing to share out.
        let all = [0.1, 8.0].map(|weight| Curve { floor_bits: 3.0, ..curve(500, 0.0, weight) });
        assert!(allocate(&all, 3.0, Allocation::EqualSlope).iter().all(|rate| (rate - 3.0).abs() < 1e-6));
    }

    #[test]
    fn equal_slopes_cost_least() {
        let curves = [curve(1000, 0.0, 1.0), curve(1000, 1.0, 16.0)];
        let cost =
            |rates: &[f64]| curves.iter().zip(rates).map(|(curve, &rate)| curve.cost(rate)).sum::<f64>();
        let [equal, linear, slope] = [Allocation::Equal, Allocation::Linear, Allocation::EqualSlope]
            .map(|allocation| allocate(&curves, 3.0, allocation));
        assert!((slope[1] - slope[0] - 2.0).abs() < 1e-6, "{slope:?}");
        assert!(cost(&slope) < cost(&equal) && cost(&linear) <= cost(&equal));
    }
}
