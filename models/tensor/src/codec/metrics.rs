//! How far a decoded tensor is from the original.

use serde::Serialize;

use crate::Tensor;

/// Error measures over all values, computed in f64.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Metrics {
    /// Squared error over energy. Zero when nothing changed, also for all zeros.
    pub nmse: f64,
    /// −10 log10 of the NMSE.
    pub snr_db: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Largest absolute error.
    pub max_abs_error: f64,
}

impl Metrics {
    /// Measures of which only the NMSE is known.
    pub fn from_nmse(nmse: f64) -> Self {
        Self { nmse, snr_db: -10.0 * nmse.log10(), mae: f64::NAN, max_abs_error: f64::NAN }
    }

    /// Compares two tensors of the same shape.
    pub fn between(original: &Tensor, decoded: &Tensor) -> Self {
        let mut sums = MetricSums::default();
        sums.add_tensors(original, decoded);
        sums.finish()
    }
}

/// Running sums, for tensors that come in pieces.
#[derive(Debug, Default, Clone, Copy)]
pub struct MetricSums {
    count: f64,
    energy: f64,
    squared: f64,
    absolute: f64,
    largest: f64,
}

impl MetricSums {
    /// Adds two tensors of the same shape, block by block.
    pub fn add_tensors(&mut self, original: &Tensor, decoded: &Tensor) {
        let (mut a, mut b) = ([0f64; 1024], [0f64; 1024]);
        let (wa, wb) = (original.dtype().bytes(), decoded.dtype().bytes());
        for (bytes_a, bytes_b) in original.data().chunks(1024 * wa).zip(decoded.data().chunks(1024 * wb)) {
            let len = (bytes_a.len() / wa).min(bytes_b.len() / wb);
            original.dtype().to_f64(bytes_a, &mut a[..len]);
            decoded.dtype().to_f64(bytes_b, &mut b[..len]);
            self.add(&a[..len], &b[..len]);
        }
    }

    /// Adds values and what they became.
    pub fn add(&mut self, original: &[f64], decoded: &[f64]) {
        for (&a, &b) in original.iter().zip(decoded) {
            // Equal infinities, and NaN kept as NaN, are no error.
            let error = if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).abs() };
            self.energy += if a.is_finite() { a * a } else { 0.0 };
            self.squared += error * error;
            self.absolute += error;
            self.largest = self.largest.max(error);
        }
        self.count += original.len() as f64;
    }

    /// Adds what another sum has seen.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.energy += other.energy;
        self.squared += other.squared;
        self.absolute += other.absolute;
        self.largest = self.largest.max(other.largest);
    }

    /// The measures over everything added.
    pub fn finish(&self) -> Metrics {
        let nmse = if self.squared == 0.0 { 0.0 } else { self.squared / self.energy };
        Metrics {
            nmse,
            snr_db: -10.0 * nmse.log10(),
            mae: self.absolute / self.count.max(1.0),
            max_abs_error: self.largest,
        }
    }
}
