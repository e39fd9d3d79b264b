//! Quantizers of KV caches that codecs are held against: KIVI, KVQuant, TurboQuant and KVTC, written from their papers.
//!
//! A row is a token, a column a channel of K or V. All that a decoder needs is in the bytes and counts: widths,
//! scales, levels, outliers, plans. What a paper learns ahead and shares (a basis for KVTC, keys before rotary
//! positions) is the caller's affair: this module knows matrices, and which of them are keys by their name.

mod kivi;
mod kvquant;
mod kvtc;
mod levels;
mod quantizer;
mod turboquant;

use super::contract::missed;
use super::lossy::{HEADER, restored_finite};
use super::{Encoded, Rate, TensorCodec};
use crate::{Error, Tensor};
use quantizer::{Quantizer, Refusal, Side};

/// Quantizers of KV caches, by name. [`super::names`] leaves them out: most have whole bits, and no error to aim at.
pub const CACHES: [&str; 5] = ["kivi-64g", "kvquant", "kvquant-1p", "turboquant", "kvtc"];

/// A quantizer of caches as a codec of tensors.
#[derive(Debug)]
pub(crate) struct Cache(Box<dyn Quantizer>);

impl Cache {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(Self(match name {
            "kivi-64g" => Box::new(kivi::Kivi),
            "kvquant" => Box::new(kvquant::KvQuant { outliers: false }),
            "kvquant-1p" => Box::new(kvquant::KvQuant { outliers: true }),
            "turboquant" => Box::new(turboquant::TurboQuant),
            "kvtc" => Box::new(kvtc::Kvtc),
            _ => return None,
        }))
    }
}

/// Bits per value by which a rate may be missed, so that one that was printed is enough to ask for.
const SLACK_BITS: f64 = 5e-3;

impl TensorCodec for Cache {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let refuse = |reason: String| missed(target, tensor, self.name(), reason);
        let Rate::Bits(bits) = target else {
            return Err(refuse("it has bits per value, and no other target".into()));
        };
        let most = ((bits + SLACK_BITS) * tensor.len() as f64 / 8.0).floor() as usize;
        Encoded::of_normalized(tensor, |matrix| {
            let coded = self.0.encode(&matrix, Side::of(tensor.name()), most.saturating_sub(HEADER));
            coded.map_err(|refusal| match refusal {
                Refusal::Bytes(least) => {
                    let least = 8.0 * (least + HEADER) as f64 / tensor.len() as f64;
                    refuse(format!("all counted it takes {least:.3} bits/value or more here"))
                }
                Refusal::Wide(most) => refuse(format!("it plans rows of up to {most} values")),
            })
        })
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

    /// Keys as caches have them: a channel is far from zero, another large, tokens alike.
    pub(super) fn keys(rows: usize, cols: usize) -> Vec<f32> {
        let mut lcg = Lcg(7);
        let mut normal = || lcg.gaussian();
        let values = (0..rows * cols).map(|at| match at % cols {
            3 => 30.0 + 4.0 * normal(),
            9 => 8.0 * normal(),
            _ => normal(),
        });
        values.collect()
    }

    pub(super) fn tensor(name: &str, values: &[f32], cols: usize) -> Tensor {
        Tensor::of_f32(name, Class::KvCache, Dtype::F32, vec![values.len() / cols, cols], values).unwrap()
    }

    pub(super) fn nmse(codec: &str, tensor: &Tensor, bits: f64) -> f64 {
        let codec = Cache::named(codec).unwrap();
        let encoded = codec.encode(tensor, Rate::Bits(bits)).unwrap();
        assert!(encoded.bits_per_value() <= bits + SLACK_BITS, "{}", encoded.bits_per_value());
        super::super::Metrics::between(tensor, &codec.decode(&encoded).unwrap()).nmse
    }

    #[test]
    fn names_say_what_is_a_key() {
        for key in ["k", "layers.3.k_cache", "past_key_values.0.key", "K"] {
            assert_eq!(Side::of(key), Side::Keys, "{key}");
        }
        for value in ["v", "layers.3.v_cache", "matrix", "tokens"] {
            assert_eq!(Side::of(value), Side::Values, "{value}");
        }
    }

    #[test]
    fn each_is_finer_with_more_bits_and_says_where_it_ends() {
        let tensor = tensor("k", &keys(256, 64), 64);
        for name in CACHES {
            let errors = [2.6, 3.6, 4.6].map(|bits| nmse(name, &tensor, bits));
            assert!(errors[0] > 1.1 * errors[1] && errors[1] > 1.1 * errors[2], "{name}: {errors:?}");
            let codec = Cache::named(name).unwrap();
            let few = self::tensor("k", &keys(1, 16), 16);
            let refused = codec.encode(&few, Rate::Bits(0.1)).unwrap_err().to_string();
            assert!(refused.contains("bits/value or more"), "{refused}");
            assert!(codec.encode(&tensor, Rate::Nmse(0.1)).is_err());
        }
    }

    #[test]
    fn every_cut_stream_is_an_error_and_odd_shapes_come_back() {
        for (rows, cols) in [(1, 16), (5, 48), (67, 20), (130, 96), (3, 7)] {
            for side in ["k", "v"] {
                let tensor = tensor(side, &keys(rows, cols), cols);
                for name in CACHES {
                    let codec = Cache::named(name).unwrap();
                    let encoded = codec.encode(&tensor, Rate::Bits(200.0)).unwrap();
                    assert_eq!(codec.decode(&encoded).unwrap().shape(), tensor.shape());
                    // Every one with `--all`; heads and ends are where fields are.
                    let step = if std::env::var_os("TRINITY_TEST_ALL").is_some() { 1 } else { 7 };
                    let length = encoded.bytes.len();
                    let near = (1..length.min(64)).chain(length.saturating_sub(32).max(1)..length);
                    for cut in near.chain((1..length).step_by(step)) {
                        assert!(codec.decode(&encoded.cut(cut)).is_err(), "{name} {rows}×{cols}: {cut}");
                    }
                    // Whatever a damaged byte makes of it, it is values of that shape or an error.
                    for at in 2..encoded.bytes.len().min(40) {
                        let mut bytes = encoded.bytes.clone();
                        bytes[at] ^= 0x91;
                        let _ = codec.decode(&Encoded { bytes, ..encoded.clone() });
                    }
                }
            }
        }
    }
}
