//! The line-rate codec as a codec of multiprocessors: its speed for each of
//! them, what a matrix product beside it loses, and its energy.
//!
//! Fitted to what `measure::line` recorded; a GPU is not needed for that.

use crate::recording::{Beside, Recorded, Speed};
use crate::stats::Measured;
use serde::{Deserialize, Serialize};

/// Throughput and cost of the codec, values counted as bf16.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftwareCodec {
    /// States of the trellis that the encoder searches.
    pub states: u32,
    pub multiprocessors: u32,
    pub bits_per_value: f64,
    /// Of each multiprocessor; bounds are the least and the most over all counts.
    pub encode_gb_per_s: Measured,
    pub decode_gb_per_s: Measured,
    /// Share of a large product's speed that each multiprocessor takes while it codes.
    pub product_loss: Measured,
    /// Above idle, on the whole GPU.
    pub encode_j_per_gb: f64,
    pub decode_j_per_gb: f64,
}

impl SoftwareCodec {
    /// The codec with `states` as it was recorded; nothing where it was not.
    pub fn of(recorded: &Recorded, states: u32) -> Option<Self> {
        let what = format!("trinity-lite, {states} states");
        let largest = recorded.speeds.iter().filter(|s| s.what == what).map(|s| s.input_bytes).max()?;
        let rows: Vec<&Speed> =
            recorded.speeds.iter().filter(|s| s.what == what && s.input_bytes == largest).collect();
        let each = |speed: fn(&Speed) -> f64| {
            range(rows.iter().map(|row| speed(row) / f64::from(row.multiprocessors.max(1))))
        };
        // As kernels run where nobody arranges it: multiprocessors of their own cost a product more but for a few
        // of them. On all of them nothing is beside the product, one waits for the other.
        let some = recorded
            .beside
            .iter()
            .filter(|b| !b.urgent && !b.apart && b.multiprocessors < recorded.multiprocessors);
        let loss = |b: &Beside| {
            (1.0 - b.product_alone_s / b.product_beside_s).max(0.0) / f64::from(b.multiprocessors.max(1))
        };
        let bounds = range(some.clone().map(loss))?;
        // A product loses much to the first multiprocessors and little to the next: the
        // share is that of the most which were tried.
        let most = some.clone().map(|b| b.multiprocessors).max()?;
        let there: Vec<f64> = some.filter(|b| b.multiprocessors == most).map(loss).collect();
        let product_loss = Measured { value: there.iter().sum::<f64>() / there.len() as f64, ..bounds };
        let energy = |way: &str| {
            let what = format!("{way}, {states} states");
            recorded.energy.iter().find(|e| e.what == what).map(|e| e.j_per_gb())
        };
        Some(Self {
            states,
            multiprocessors: recorded.multiprocessors,
            bits_per_value: rows.first()?.bits_per_value(),
            encode_gb_per_s: each(Speed::encode_gb_per_s)?,
            decode_gb_per_s: each(Speed::decode_gb_per_s)?,
            product_loss,
            encode_j_per_gb: energy("encode")?,
            decode_j_per_gb: energy("decode")?,
        })
    }

    /// Multiprocessors that encode, and that decode, so many GB/s; nothing
    /// where all of them do not.
    pub fn multiprocessors_for(&self, gb_per_s: f64) -> (Option<u32>, Option<u32>) {
        let count = |each: &Measured| {
            let count = (gb_per_s / each.value).ceil();
            (count <= f64::from(self.multiprocessors)).then_some(count as u32)
        };
        (count(&self.encode_gb_per_s), count(&self.decode_gb_per_s))
    }
}

/// Median, least and most.
fn range(values: impl Iterator<Item = f64>) -> Option<Measured> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    Some(Measured { value: values[values.len() / 2], low, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Energy;

    fn speed(multiprocessors: u32, encode_s: f64, input_bytes: usize) -> Speed {
        Speed {
            what: "trinity-lite, 8 states".into(),
            multiprocessors,
            input_bytes,
            coded_bytes: input_bytes * 3 / 16,
            encode_s,
            decode_s: encode_s / 4.0,
            nmse: 0.01,
        }
    }

    fn recorded() -> Recorded {
        let beside = |multiprocessors, product_beside_s| Beside {
            what: "encode".into(),
            multiprocessors,
            urgent: false,
            apart: false,
            product_alone_s: 0.8,
            product_beside_s,
            codec_alone_s: 1.0,
            codec_beside_s: 1.0,
        };
        let energy =
            |what: &str, busy_w| Energy { what: what.into(), idle_w: 100.0, busy_w, gb_per_s: 100.0 };
        Recorded {
            gpu: "made up".into(),
            multiprocessors: 100,
            speeds: vec![
                speed(1, 1.0, 1_000_000_000),
                speed(10, 0.1, 1_000_000_000),
                speed(100, 0.02, 1_000_000_000),
                speed(100, 1.0, 1_000),
            ],
            beside: vec![beside(10, 1.0), beside(100, 8.0)],
            energy: vec![energy("encode, 8 states", 300.0), energy("decode, 8 states", 150.0)],
            ..Recorded::default()
        }
    }

    #[test]
    fn a_multiprocessor_codes_its_share_of_the_largest_tensor() {
        let codec = SoftwareCodec::of(&recorded(), 8).unwrap();
        assert_eq!(codec.encode_gb_per_s, Measured { value: 1.0, low: 0.5, high: 1.0 });
        assert_eq!(codec.decode_gb_per_s.value, 4.0);
        assert!((codec.product_loss.value - 0.02).abs() < 1e-12, "{:?}", codec.product_loss);
        assert_eq!((codec.encode_j_per_gb, codec.decode_j_per_gb), (2.0, 0.5));
        assert!((codec.bits_per_value - 3.0).abs() < 1e-9);
        assert_eq!(codec.multiprocessors_for(12.5), (Some(13), Some(4)));
        assert_eq!(codec.multiprocessors_for(200.0), (None, Some(50)));
    }

    #[test]
    fn what_was_not_recorded_is_nothing() {
        assert_eq!(SoftwareCodec::of(&recorded(), 4), None);
        let without = Recorded { beside: Vec::new(), ..recorded() };
        assert_eq!(SoftwareCodec::of(&without, 8), None);
    }
}
