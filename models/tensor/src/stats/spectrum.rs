//! The two-dimensional power spectrum: what a transform could gain.
//!
//! Averaged over tiles (Bartlett's method), because a single periodogram of
//! white noise is anything but flat.

use std::sync::Arc;

use rustfft::algorithm::Dft;
use rustfft::algorithm::butterflies::{Butterfly4, Butterfly8, Butterfly16, Butterfly32};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection};

use super::sample::{Grid, View};

/// Side of a tile: as large as the largest transform of H.265.
const TILE: usize = 32;
/// Tiles averaged: flatness of white noise then reads 0.999.
const MAX_TILES: usize = 512;

/// Mean power by frequency, scaled so that its mean is 1.
pub(super) fn power(view: &View) -> Option<Grid> {
    let (rows, cols) = view
        .blocks()
        .map(|(cols, values)| ((values.len() / cols).min(TILE), cols.min(TILE)))
        .max()
        .filter(|&(rows, cols)| rows * cols > 1)?;
    let corners = corners(view, rows, cols);
    let stride = corners.len().div_ceil(MAX_TILES).max(1);
    let (across, down) = (transform(cols), transform(rows));
    let mut sums = vec![0f64; rows * cols];
    let mut tile = vec![Complex::default(); rows * cols];
    let mut transposed = tile.clone();
    // A common factor keeps squares of tiny and of huge values within f32.
    let scale = view.blocks().flat_map(|(_, values)| values).fold(0f32, |max, value| max.max(value.abs()));
    for &(block_cols, corner) in corners.iter().step_by(stride) {
        for y in 0..rows {
            for x in 0..cols {
                tile[y * cols + x] = Complex::new(corner[y * block_cols + x] / scale, 0.0);
            }
        }
        across.process(&mut tile);
        for y in 0..rows {
            for x in 0..cols {
                transposed[x * rows + y] = tile[y * cols + x];
            }
        }
        down.process(&mut transposed);
        for y in 0..rows {
            for x in 0..cols {
                sums[y * cols + x] += f64::from(transposed[x * rows + y].norm_sqr());
            }
        }
    }
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    let normal = mean.is_finite() && mean > 0.0;
    normal.then(|| Grid { rows, cols, cells: sums.iter().map(|sum| sum / mean).collect() })
}

/// The transform of so many values, no more than a tile's side. A planner would choose as much, and bring butterflies
/// of every prime along, which take a sixth of what compiles this crate.
fn transform(length: usize) -> Arc<dyn Fft<f32>> {
    let forward = FftDirection::Forward;
    match length {
        4 => Arc::new(Butterfly4::new(forward)),
        8 => Arc::new(Butterfly8::new(forward)),
        16 => Arc::new(Butterfly16::new(forward)),
        32 => Arc::new(Butterfly32::new(forward)),
        _ => Arc::new(Dft::new(length, forward)),
    }
}

/// Every whole tile of the sample: row length and the values from its corner on.
fn corners(view: &View, rows: usize, cols: usize) -> Vec<(usize, &[f32])> {
    let mut corners = Vec::new();
    for (block_cols, values) in view.blocks() {
        let block_rows = values.len() / block_cols;
        for y in (0..(block_rows + 1).saturating_sub(rows)).step_by(rows) {
            for x in (0..(block_cols + 1).saturating_sub(cols)).step_by(cols) {
                corners.push((block_cols, &values[y * block_cols + x..]));
            }
        }
    }
    corners
}

/// Geometric over arithmetic mean. The mean frequency is left out: the
/// tensor's mean was taken off, which would read as a hole in the spectrum.
pub(super) fn flatness(power: &Grid) -> Option<f64> {
    let cells = &power.cells[1..];
    let count = cells.len() as f64;
    let mean = cells.iter().sum::<f64>() / count;
    let log_mean = cells.iter().map(|cell| cell.max(1e-300).ln()).sum::<f64>() / count;
    let value = log_mean.exp() / mean;
    (value.is_finite() && !cells.is_empty()).then_some(value)
}

/// Bits per value to reach `mse` relative to the variance, for Gaussian values
/// with this spectrum: reverse water-filling.
pub(super) fn bound(power: &Grid, mse: f64) -> Option<f64> {
    let cells = &power.cells;
    let count = cells.len() as f64;
    let distortion = |level: f64| cells.iter().map(|cell| cell.min(level)).sum::<f64>() / count;
    let (mut low, mut high) = (0.0, cells.iter().copied().fold(0.0, f64::max));
    if mse.is_nan() || mse <= 0.0 {
        return None;
    }
    if mse >= distortion(high) {
        return Some(0.0);
    }
    for _ in 0..60 {
        let level = 0.5 * (low + high);
        if distortion(level) < mse { low = level } else { high = level }
    }
    let level = 0.5 * (low + high);
    Some(cells.iter().map(|cell| (0.5 * (cell / level).log2()).max(0.0)).sum::<f64>() / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_of_any_length_that_a_tile_has_keeps_energy_and_finds_a_wave() {
        for length in 1..=TILE {
            let wave = |at: usize| (2.0 * std::f32::consts::PI * at as f32 / length as f32).cos();
            let mut values: Vec<Complex<f32>> = (0..length).map(|at| Complex::new(wave(at), 0.0)).collect();
            let before: f32 = values.iter().map(Complex::norm_sqr).sum();
            transform(length).process(&mut values);
            let powers: Vec<f32> = values.iter().map(|value| value.norm_sqr() / length as f32).collect();
            assert!((powers.iter().sum::<f32>() - before).abs() < 1e-4 * before, "{length}: {powers:?}");
            let of_wave = powers[1 % length] + if length > 2 { powers[length - 1] } else { 0.0 };
            assert!((of_wave - before).abs() < 1e-4 * before, "{length}: {powers:?}");
        }
    }

    #[test]
    fn a_white_spectrum_has_the_gaussian_bound() {
        let white = Grid { rows: 4, cols: 4, cells: vec![1.0; 16] };
        assert!((flatness(&white).unwrap() - 1.0).abs() < 1e-12);
        assert!((bound(&white, 0.01).unwrap() - 0.5 * 100f64.log2()).abs() < 1e-9);
        assert_eq!(bound(&white, 2.0), Some(0.0));
    }

    #[test]
    fn a_coloured_spectrum_needs_fewer_bits() {
        let coloured = Grid { rows: 1, cols: 2, cells: vec![1.9, 0.1] };
        let expected = 0.5 * (0.5 * (1.9f64 / 0.01).log2() + 0.5 * (0.1f64 / 0.01).log2());
        assert!((bound(&coloured, 0.01).unwrap() - expected).abs() < 1e-9);
    }
}
