//! What the Trinity codec promises.

use proptest::prelude::*;
use trinity_codec::{Error, Profile, Target, decode, encode};

/// Approximately Gaussian, the same on every machine.
fn gaussian(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

fn nmse(original: &[f32], recon: &[f32]) -> f64 {
    let error: f64 = original.iter().zip(recon).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    error / original.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
}

#[test]
fn gaussian_within_a_tenth_of_a_bit_of_the_bound() {
    let values = gaussian(256 * 512, 1);
    let profile = Profile::named("trinity").unwrap();
    for bits in [2.0, 3.0, 4.0] {
        let encoded = encode(&values, 256, 512, &profile, Target::Bits(bits)).unwrap();
        let spent = 8.0 * encoded.bytes.len() as f64 / values.len() as f64;
        assert!(spent <= bits && spent >= 0.99 * bits, "{bits}: {spent}");
        let gap = spent + 0.5 * nmse(&values, &encoded.recon).log2();
        // A small matrix pays for learning; 1024 × 1024 stays below 0.10.
        assert!(gap < 0.12, "{bits}: {gap}");
        assert_eq!(decode(&encoded.bytes).unwrap().values, encoded.recon);
    }
}

#[test]
fn correlated_columns_cost_less_than_the_gaussian_bound() {
    let (rows, cols) = (512, 128);
    let hidden = gaussian(rows * 8, 2);
    let mix = gaussian(8 * cols, 3);
    let noise = gaussian(rows * cols, 4);
    let values: Vec<f32> = (0..rows * cols)
        .map(|i| {
            (0..8).map(|k| hidden[i / cols * 8 + k] * mix[k * cols + i % cols]).sum::<f32>() + 0.2 * noise[i]
        })
        .collect();
    let encoded =
        encode(&values, rows, cols, &Profile::named("trinity").unwrap(), Target::Nmse(0.02)).unwrap();
    let got = nmse(&values, &encoded.recon);
    assert!(got <= 0.02 && got.log10() > 0.02f64.log10() * 1.01, "{got}");
    let gap = 8.0 * encoded.bytes.len() as f64 / values.len() as f64 + 0.5 * got.log2();
    assert!(gap < -1.0, "{gap}: {:?}", encoded.report.plan);
    assert_eq!(decode(&encoded.bytes).unwrap().values, encoded.recon);
}

#[test]
fn constants_cost_a_header() {
    let profile = Profile::named("trinity").unwrap();
    for value in [0.0, 1.5, -3e30, 1e-40] {
        let encoded = encode(&[value; 5000], 50, 100, &profile, Target::Nmse(1e-6)).unwrap();
        assert!(encoded.bytes.len() < 24, "{value}: {}", encoded.bytes.len());
        let back = decode(&encoded.bytes).unwrap();
        assert_eq!(back.values, encoded.recon);
        assert!(
            back.values.iter().all(|v| (v - value).abs() <= 1e-6 * value.abs()),
            "{value}: {}",
            back.values[0]
        );
    }
}

#[test]
fn not_a_number_is_named() {
    let mut values = gaussian(100, 5);
    values[37] = f32::NAN;
    let error = encode(&values, 10, 10, &Profile::named("trinity").unwrap(), Target::Bits(3.0)).unwrap_err();
    assert!(matches!(error, Error::NotFinite { row: 3, col: 7, .. }), "{error}");
}

#[test]
fn too_few_bits_is_an_error_that_says_how_many_it_takes() {
    let error =
        encode(&gaussian(9, 6), 3, 3, &Profile::named("trinity").unwrap(), Target::Bits(2.0)).unwrap_err();
    assert!(matches!(error, Error::RateUnreachable { least, .. } if least > 2.0), "{error}");
}

#[test]
fn every_truncation_is_an_error() {
    let values = gaussian(40 * 30, 7);
    for (name, target) in [("trinity", Target::Nmse(0.01)), ("lossless", Target::Lossless)] {
        let encoded = encode(&values, 40, 30, &Profile::named(name).unwrap(), target).unwrap();
        for length in 0..encoded.bytes.len() {
            assert!(decode(&encoded.bytes[..length]).is_err(), "{name}: {length} of {}", encoded.bytes.len());
        }
    }
}

#[test]
fn one_outlier_of_1e30_is_met() {
    let mut values = gaussian(64 * 64, 8);
    values[1000] = 1e30;
    let encoded = encode(&values, 64, 64, &Profile::named("trinity").unwrap(), Target::Nmse(1e-3)).unwrap();
    assert!(nmse(&values, &encoded.recon) <= 1e-3);
    assert_eq!(decode(&encoded.bytes).unwrap().values, encoded.recon);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_shape_comes_back_as_the_encoder_said(rows in 1usize..70, cols in 1usize..150, seed in 1u64.., scale in -40i32..30, step in -6i32..3) {
        let factor = (f64::from(scale)).exp2() as f32;
        let values: Vec<f32> = gaussian(rows * cols, seed).iter().map(|v| v * factor).collect();
        let profile = Profile::named("trinity").unwrap();
        let encoded = encode(&values, rows, cols, &profile, Target::Step(f64::from(scale + step).exp2())).unwrap();
        let back = decode(&encoded.bytes).unwrap();
        prop_assert_eq!((back.rows, back.cols), (rows, cols));
        prop_assert_eq!(back.values, encoded.recon);
    }

    #[test]
    fn lossless_keeps_every_bit(rows in 1usize..20, cols in 1usize..40, words in prop::collection::vec(any::<u32>(), 800), kind in 0..5) {
        let words: Vec<u32> = words[..rows * cols].iter().map(|&w| match kind {
            0 => w,
            1 => w & 0xffff_0000,
            2 => ((w % 256) as f32 - 128.0).to_bits(),
            3 => if w % 10 == 0 { w } else { 0 },
            _ => (w >> 23) | 0x3f00_0000,
        }).collect();
        let bytes = trinity_codec::encode_words(&words, rows, cols).unwrap();
        prop_assert_eq!(trinity_codec::decode_words(&bytes).unwrap().words, words);
    }

    #[test]
    fn damage_never_panics(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), lossless in any::<bool>()) {
        let values = gaussian(50 * 70, 9);
        let (name, target) = if lossless { ("lossless", Target::Lossless) } else { ("trinity", Target::Nmse(0.02)) };
        let mut bytes = encode(&values, 50, 70, &Profile::named(name).unwrap(), target).unwrap().bytes;
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let _ = decode(&bytes);
    }
}
