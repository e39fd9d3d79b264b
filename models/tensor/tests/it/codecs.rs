//! Codecs on captured tensors: targets met, figures that agree, damage survived.

use trinity_tensor::codec::{Metrics, Rate, TensorCodec, codec, is_external, names};
use trinity_tensor::{Class, Dtype, Error, Tensor, TensorFile};

use crate::random::Random;
use crate::{sample, sample_path, task};

/// Encodes and decodes; `None` for an error that names its reason.
fn round_trip(codec: &dyn TensorCodec, tensor: &Tensor, target: Rate) -> Option<(f64, Metrics)> {
    let context = || task(codec, tensor, target);
    match codec.encode(tensor, target) {
        Ok(encoded) => {
            let decoded = codec.decode(&encoded).unwrap_or_else(|error| panic!("{}: {error}", context()));
            assert_eq!((decoded.shape(), decoded.dtype()), (tensor.shape(), tensor.dtype()), "{}", context());
            Some((encoded.bits_per_value(), Metrics::between(tensor, &decoded)))
        }
        Err(Error::Unreachable { .. }) => None,
        Err(error) => panic!("{}: {error}", context()),
    }
}

/// Codecs that are quick on small tensors: not those that start a process each
/// time, and one of the Trinity codec's profiles for all.
fn own_names() -> Vec<String> {
    let slow = ["trinity-max", "paper", "paper-cabac"];
    names().into_iter().filter(|name| !slow.contains(&name.as_str()) && !is_external(name)).collect()
}

#[test]
fn captured_tensors_meet_bits_and_error_within_a_percent() {
    for tensor in (0..4).map(|which| sample(which, 96)) {
        for name in [
            "trinity",
            "h265-fast",
            "h264-fast",
            "uniform+ac",
            "rtn",
            "rtn-128g",
            "int+cabac",
            "int+huffman",
            "mxfp+cabac",
        ] {
            let codec = codec(name).unwrap();
            for bits in [2.5, 3.5] {
                let context = task(codec.as_ref(), &tensor, Rate::Bits(bits));
                let found = round_trip(codec.as_ref(), &tensor, Rate::Bits(bits));
                let (found, _) = found.unwrap_or_else(|| panic!("{context}: out of reach"));
                assert!(found <= bits && found >= 0.99 * bits, "{context}: {found}");
            }
            let (_, metrics) = round_trip(codec.as_ref(), &tensor, Rate::Nmse(0.01)).unwrap();
            // 1 % in decibels; plain RTN moves whole rows between widths, in coarser steps.
            let above_db = if name == "rtn" { 0.3 } else { 0.2 };
            let (found, own) = (metrics.snr_db, tensor.name());
            assert!((20.0..=20.0 + above_db).contains(&found), "{name}: {found} dB on {own}");
        }
    }
}

#[test]
fn an_error_as_large_as_the_values_is_no_riddle() {
    let tensor = sample(0, 32);
    for name in ["trinity", "h265-fast", "uniform+ac", "rtn-128g", "int+cabac", "mxfp+lz4"] {
        for goal in [0.9999, 1.0, 2.5] {
            let (_, metrics) =
                round_trip(codec(name).unwrap().as_ref(), &tensor, Rate::Nmse(goal)).expect(name);
            assert!(metrics.nmse <= goal, "{name}: {} for {goal}", metrics.nmse);
        }
    }
}

#[test]
fn an_error_measured_while_encoding_is_that_of_what_decodes() {
    let cropped = sample(0, 64);
    let values = cropped.to_f32();
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::F64] {
        let tensor = Tensor::of_f32("t", cropped.class(), dtype, cropped.shape().to_vec(), &values).unwrap();
        for name in ["trinity", "trinity-lite", "line-uniform", "uniform+ac", "rtn-128g", "h265-fast"] {
            let codec = codec(name).unwrap();
            let (encoded, sums) = codec.encode_measured(&tensor, Rate::Bits(5.0)).expect(name);
            assert_eq!(encoded, codec.encode(&tensor, Rate::Bits(5.0)).unwrap(), "{name} {dtype}");
            let decoded = Metrics::between(&tensor, &codec.decode(&encoded).unwrap());
            // Sums of parts and of the whole may round otherwise in the last digits.
            let (found, near) = (sums.finish(), |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs());
            assert!(
                near(found.nmse, decoded.nmse) && near(found.mae, decoded.mae),
                "{name} {dtype}: {found:?}"
            );
            assert_eq!(found.max_abs_error, decoded.max_abs_error, "{name} {dtype}");
        }
    }
}

#[test]
fn huffman_and_arithmetic_figures_agree_with_the_entropy() {
    let tensor = sample(0, 256);
    // The same grid for both: Huffman may lose up to a bit, arithmetic coding 2 %.
    let [huffman, cabac] = ["int+huffman", "int+cabac"]
        .map(|name| codec(name).unwrap().encode(&tensor, Rate::Nmse(0.01)).unwrap().bits_per_value());
    assert!(huffman >= cabac * 0.99 && huffman < cabac + 1.0, "{huffman} {cabac}");
}

#[test]
fn every_packing_of_a_video_codec_meets_its_rate() {
    let tensor = sample(0, 96);
    for name in ["h265-fast-420", "h265-fast-444", "h264-fast-420", "h264-fast-444"] {
        let codec = codec(name).unwrap();
        assert_eq!(codec.name(), name);
        let (bits, metrics) = round_trip(codec.as_ref(), &tensor, Rate::Bits(3.0)).unwrap();
        assert!((2.97..=3.0).contains(&bits) && metrics.nmse < 0.05, "{name}: {bits} {metrics:?}");
    }
}

#[test]
fn damaged_streams_are_errors_or_values_never_panics() {
    let file = TensorFile::open(&sample_path()).unwrap();
    let whole = file.entries()[3].read().unwrap();
    let tensor =
        Tensor::new("part", Class::Other, whole.dtype(), vec![8, 96], whole.data()[..8 * 96 * 2].to_vec())
            .unwrap();
    for name in own_names() {
        let codec = codec(&name).unwrap();
        let Ok(encoded) = codec.encode(&tensor, Rate::Nmse(0.05)) else { continue };
        let mut random = Random::new(7);
        for _ in 0..60 {
            let mut damaged = encoded.clone();
            match random.below(3) {
                0 => damaged.bytes.truncate(random.below(encoded.bytes.len())),
                _ => {
                    let at = random.below(damaged.bytes.len());
                    damaged.bytes[at] ^= 1 << random.below(8);
                }
            }
            codec.decode(&damaged).ok();
        }
    }
}

#[test]
fn an_external_encoder_meets_a_rate_where_ffmpeg_is_installed() {
    if !names().iter().any(|name| name == "x265") {
        eprintln!("skipped: ffmpeg is not installed");
        return;
    }
    let tensor = sample(1, 64);
    let (bits, metrics) = round_trip(codec("x265").unwrap().as_ref(), &tensor, Rate::Bits(3.0)).unwrap();
    assert!(bits <= 3.0 && bits > 2.9 && metrics.nmse < 0.05, "{bits} {metrics:?}");
}
