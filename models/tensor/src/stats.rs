//! What a codec could exploit in a tensor, measured in one streaming pass.
//!
//! Moments, extremes and row and column scales are exact over all values.
//! What costs more than a few operations a value (law, entropy, correlation,
//! spectrum) looks at a sample of at most [`SAMPLE_VALUES`], evenly spread in
//! blocks of whole rows; smaller tensors are their own sample.
//!
//! Blocks are measured in parallel and merged in file order, so results do not
//! depend on the number of threads.

mod bounds;
mod law;
mod sample;
mod scan;
mod spectrum;

use rayon::prelude::*;
use serde::Serialize;

pub use bounds::{entropy, gaussian_bound};
pub use law::Law;
use sample::{BLOCK_VALUES, Sample};
pub use sample::{Grid, SAMPLE_VALUES};
use scan::{Scan, Totals};

use crate::blocks::BlockPlan;
use crate::{Entry, Error};

/// The error at which rate–distortion bounds are quoted.
pub const BOUND_NMSE: f64 = 0.01;
/// A tensor's profile. `None` where a statistic has no meaning (one row has no
/// row spread, a constant no kurtosis) or overflows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Profile {
    pub values: usize,
    /// NaN and infinite values; every other statistic leaves them out.
    pub non_finite: u64,
    /// Index of the first of them.
    pub first_non_finite: Option<u64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub mean: Option<f64>,
    pub std: Option<f64>,
    pub absmax_over_std: Option<f64>,
    pub excess_kurtosis: Option<f64>,
    /// The likeliest of normal, Laplace and Student-t (Akaike's criterion).
    pub law: Option<Law>,
    /// Standard deviation over rows of the natural logarithm of a row's RMS.
    pub row_scale_spread: Option<f64>,
    /// How far the scales of columns spread.
    pub column_scale_spread: Option<f64>,
    /// Correlation of neighbours within a row.
    pub row_autocorrelation: Option<f64>,
    /// Correlation of neighbours within a column.
    pub column_autocorrelation: Option<f64>,
    /// Geometric over arithmetic mean of the two-dimensional power spectrum: 1 is white.
    pub spectral_flatness: Option<f64>,
    /// Order-0 entropy after rounding to 256 levels between minimum and maximum.
    pub entropy_8bit_bits: Option<f64>,
    /// Bits per value that no code can beat on independent Gaussian values of
    /// this variance, at an error of [`BOUND_NMSE`] of the energy.
    pub gaussian_bound_bits: Option<f64>,
    /// The same for Gaussian values with this tensor's power spectrum.
    pub spectrum_bound_bits: Option<f64>,
    /// How many values the sampled statistics saw.
    pub sampled: usize,
    #[serde(skip)]
    pub pictures: Pictures,
}

impl Profile {
    /// The profile of values that nobody can read.
    pub fn unread(values: usize) -> Self {
        Self { values, ..Self::default() }
    }
}

/// What a report draws.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// Sampled values per level of 256 between minimum and maximum.
    pub histogram: Vec<u64>,
    /// RMS of the cells of a grid laid over the sample, row by row.
    pub heat_map: Grid,
    /// Mean power by vertical and horizontal frequency, row by row.
    pub spectrum: Grid,
}

/// Measures one tensor of a file.
pub fn profile(entry: &Entry) -> Result<Profile, Error> {
    let (rows, cols) = entry.matrix();
    let scan = Scan::new(entry.dtype(), rows, cols);
    let mut totals = Totals::default();
    let blocks = BlockPlan::new(rows, cols, BLOCK_VALUES);
    let mut sample = Sample::new(entry.dtype(), blocks.len());
    let mut stream = entry.stream()?;
    let mut pivot = None;
    let batch = rayon::current_num_threads().max(1);
    let mut buffers = vec![Vec::new(); batch];
    for group in (0..blocks.len()).collect::<Vec<_>>().chunks(batch) {
        for (&index, buffer) in group.iter().zip(&mut buffers) {
            buffer.resize(blocks.values(index).len() * entry.dtype().bytes(), 0);
            stream.fill(buffer)?;
        }
        let pivot = *pivot.get_or_insert_with(|| scan.mean(&buffers[0]));
        let partials: Vec<_> = group
            .par_iter()
            .zip(&buffers)
            .map(|(&index, buffer)| scan.block(blocks.values(index), buffer, pivot))
            .collect();
        for ((partial, &index), buffer) in partials.into_iter().zip(group).zip(&buffers) {
            totals.merge(partial);
            sample.offer(index, &blocks.values(index), cols, buffer);
        }
    }
    Ok(summarize(entry.len(), pivot.unwrap_or(0.0), totals, &sample))
}

fn summarize(values: usize, pivot: f64, totals: Totals, sample: &Sample) -> Profile {
    let (row_scale_spread, column_scale_spread) = totals.scale_spreads();
    let count = totals.count as f64;
    let [first, second, third, fourth] = totals.moments.map(|sum| sum / count);
    // Moments about the pivot, moved to the mean.
    let variance = (second - first * first).max(0.0);
    let central4 = fourth - 4.0 * first * third + 6.0 * first * first * second - 3.0 * first.powi(4);
    let std = variance.sqrt();
    let mean = pivot + first;
    let any = totals.count > 0;
    let varies = any && variance > 0.0;
    let (min, max) = (totals.min, totals.max);
    let absmax = min.abs().max(max.abs());
    let known = |when: bool, value: f64| (when && value.is_finite()).then_some(value);
    let energy = variance + mean * mean;
    let view = sample.view(mean);
    let spectrum = varies.then(|| spectrum::power(&view)).flatten();
    let histogram = sample.histogram(min, max);
    Profile {
        values,
        non_finite: totals.non_finite,
        first_non_finite: totals.first_non_finite,
        min: known(any, min),
        max: known(any, max),
        mean: known(any, mean),
        std: known(any, std),
        absmax_over_std: known(varies, absmax / std),
        excess_kurtosis: known(varies, central4 / (variance * variance) - 3.0),
        law: varies.then(|| Law::fit(&view.thinned(law::FIT_VALUES))).flatten(),
        row_scale_spread,
        column_scale_spread,
        row_autocorrelation: view.row_autocorrelation().filter(|_| varies),
        column_autocorrelation: view.column_autocorrelation().filter(|_| varies),
        spectral_flatness: spectrum.as_ref().and_then(spectrum::flatness),
        entropy_8bit_bits: known(any, entropy(&histogram)),
        gaussian_bound_bits: known(any, gaussian_bound(variance, BOUND_NMSE * energy)),
        spectrum_bound_bits: spectrum
            .as_ref()
            .and_then(|power| spectrum::bound(power, BOUND_NMSE * energy / variance)),
        sampled: view.len(),
        pictures: Pictures { histogram, heat_map: view.heat_map(64), spectrum: spectrum.unwrap_or_default() },
    }
}
