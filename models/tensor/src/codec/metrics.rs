//! How far a decoded tensor is from the original.

use serde::Serialize;

use trinity_numeric::simd::{self, Kernel};

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

/// Values whose errors are found side by side before they are added one after the other.
const BLOCK: usize = 1024;

/// One block of values and what they became.
struct Block<'a, T> {
    original: &'a [T],
    decoded: &'a [T],
    energies: &'a mut [f64],
    errors: &'a mut [f64],
}

impl<T: Copy + Into<f64>> Kernel for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let values = self.original.iter().zip(self.decoded);
        for ((&a, &b), (energy, error)) in values.zip(self.energies.iter_mut().zip(self.errors)) {
            let (a, b): (f64, f64) = (a.into(), b.into());
            // Equal infinities, and NaN kept as NaN, are no error.
            *error = if (a == b) | (a.is_nan() & b.is_nan()) { 0.0 } else { (a - b).abs() };
            *energy = if a.is_finite() { a * a } else { 0.0 };
        }
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
        let (mut a, mut b) = ([0f64; BLOCK], [0f64; BLOCK]);
        let (wa, wb) = (original.dtype().bytes(), decoded.dtype().bytes());
        for (bytes_a, bytes_b) in original.data().chunks(BLOCK * wa).zip(decoded.data().chunks(BLOCK * wb)) {
            let len = (bytes_a.len() / wa).min(bytes_b.len() / wb);
            original.dtype().to_f64(bytes_a, &mut a[..len]);
            decoded.dtype().to_f64(bytes_b, &mut b[..len]);
            self.add(&a[..len], &b[..len]);
        }
    }

    /// Adds values and what they became, in their order.
    pub fn add<T: Copy + Into<f64>>(&mut self, original: &[T], decoded: &[T]) {
        let (mut energies, mut errors) = ([0f64; BLOCK], [0f64; BLOCK]);
        for (original, decoded) in original.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
            let len = original.len().min(decoded.len());
            simd::widest(Block {
                original,
                decoded,
                energies: &mut energies[..len],
                errors: &mut errors[..len],
            });
            for (&energy, &error) in energies[..len].iter().zip(&errors[..len]) {
                self.energy += energy;
                self.squared += error * error;
                self.absolute += error;
                self.largest = self.largest.max(error);
            }
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
