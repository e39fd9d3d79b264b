//! The statistics of `tensors info` against theory and against themselves.

use std::sync::Arc;

use trinity_numeric::random::SplitMix64;
use trinity_tensor::stats::{Law, Profile, profile};
use trinity_tensor::{Dtype, Entry, TensorFile};

use crate::sample_path;

fn measure(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Profile {
    let values: Vec<f32> =
        (0..rows).flat_map(|y| (0..cols).map(move |x| (y, x))).map(|(y, x)| value(y, x)).collect();
    let mut data = Vec::new();
    Dtype::F32.extend_from_f32(&values, &mut data);
    profile(&Entry::in_memory("t", Dtype::F32, vec![rows, cols], Arc::new(data)).unwrap()).unwrap()
}

/// Independent standard normal values, the same on every run.
fn normal(y: usize, x: usize) -> f32 {
    let hash = |seed: u64| {
        let word = SplitMix64::nth(y as u64 * 1_000_003 + x as u64 * 2 + seed);
        (word >> 11) as f64 / (1u64 << 53) as f64
    };
    ((-2.0 * (1.0 - hash(0)).ln()).sqrt() * (std::f64::consts::TAU * hash(1)).cos()) as f32
}

fn near(value: Option<f64>, expected: f64, tolerance: f64) {
    assert!(
        value.is_some_and(|value| (value - expected).abs() <= tolerance),
        "{value:?}, expected {expected}"
    );
}

#[test]
fn white_noise_offers_nothing_but_its_law() {
    let profile = measure(512, 300, |y, x| 5.0 + 2.0 * normal(y, x));
    near(profile.mean, 5.0, 0.02);
    near(profile.std, 2.0, 0.01);
    near(profile.excess_kurtosis, 0.0, 0.03);
    near(profile.row_autocorrelation, 0.0, 0.01);
    near(profile.column_autocorrelation, 0.0, 0.01);
    near(profile.spectral_flatness, 1.0, 0.01);
    near(profile.gaussian_bound_bits, 0.5 * (4.0f64 / (0.01 * 29.0)).log2(), 0.01);
    assert_eq!(profile.law, Some(Law::Normal));
}

#[test]
fn column_scales_and_smooth_rows_are_seen() {
    let scaled = measure(400, 200, |y, x| normal(y, x) * if x % 2 == 0 { 1.0 } else { 4.0 });
    near(scaled.column_scale_spread, 2f64.ln(), 0.03);
    near(scaled.row_scale_spread, 0.0, 0.1);
    let smooth = measure(200, 400, |y, x| (0..8).map(|i| normal(y, x + i)).sum());
    near(smooth.row_autocorrelation, 7.0 / 8.0, 0.01);
    near(smooth.column_autocorrelation, 0.0, 0.02);
    assert!(smooth.spectral_flatness.unwrap() < 0.6);
    assert!(smooth.spectrum_bound_bits.unwrap() < smooth.gaussian_bound_bits.unwrap() - 0.5);
}

#[test]
fn a_large_offset_does_not_spoil_the_moments() {
    let profile = measure(64, 1000, |y, x| 4096.0 + (normal(y, x) * 16.0).round() / 16.0);
    near(profile.std, 1.0, 0.02);
    near(profile.excess_kurtosis, 0.0, 0.1);
}

#[test]
fn a_row_longer_than_a_block_is_still_one_row() {
    let profile = measure(2, 700_000, |y, x| normal(y, x) * if y == 0 { 1.0 } else { 3.0 });
    near(profile.row_scale_spread, 3f64.ln() / 2.0, 0.01);
}

#[test]
fn non_finite_values_are_counted_and_left_out() {
    let profile = measure(10, 100, |y, x| match (y, x) {
        (3, 7) => f32::NAN,
        (5, 0) => f32::INFINITY,
        _ => normal(y, x),
    });
    assert_eq!((profile.non_finite, profile.first_non_finite), (2, Some(307)));
    near(profile.std, 1.0, 0.1);
}

#[test]
fn degenerate_tensors_have_a_profile_without_nonsense() {
    for (rows, cols) in [(0, 5), (5, 0), (1, 1), (1, 5), (5, 1)] {
        let profile = measure(rows, cols, |_, _| 2.0);
        assert_eq!((profile.values, profile.excess_kurtosis, profile.law), (rows * cols, None, None));
    }
    assert_eq!(measure(3, 3, |_, _| 2.0).entropy_8bit_bits, Some(0.0));
    let nothing = measure(2, 2, |_, _| f32::NAN);
    assert_eq!((nothing.mean, nothing.non_finite), (None, 4));
    measure(4, 4, |y, x| if y == x { 1e30 } else { 1e-40 });
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let file = TensorFile::open(&sample_path()).unwrap();
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            file.entries().iter().map(|entry| format!("{:?}", profile(entry).unwrap())).collect::<Vec<_>>()
        })
    };
    assert_eq!(run(1), run(3));
}
