//! How far a decoded tensor is from the original.

use serde::Serialize;

use trinity_numeric::simd::{Kernel, Width, with_width};

use crate::Tensor;

/// Error measures over all values, computed in f64.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Metrics {
    /// Squared error over energy. Zero when nothing changed, also for all zeros.
    pub nmse: f64,
    /// −10 log10 of the NMSE.
    pub snr_db: f64,
    pub mae: f64,
    pub max_abs_error: f64,
}

impl Metrics {
    /// Measures of which only the NMSE is known.
    pub fn from_nmse(nmse: f64) -> Self {
        Self { nmse, snr_db: -10.0 * nmse.log10(), mae: f64::NAN, max_abs_error: f64::NAN }
    }

    /// Compares two tensors of the same shape.
    pub fn between(original: &Tensor, decoded: &Tensor) -> Self {
        MetricSums::between(original, decoded).finish()
    }
}

/// Values that are widened at a time.
const BLOCK: usize = 1024;
/// Sums kept side by side, in registers: as many on every machine, so that each has the same digits.
const LANES: usize = 8;

/// Values and what they became.
struct Differences<'a, const FINITE: bool, A, B, F, G> {
    original: &'a [A],
    decoded: &'a [B],
    /// The value of each.
    values: (F, G),
}

impl<const FINITE: bool, A: Copy + Default, B: Copy + Default, F: Fn(A) -> f64, G: Fn(B) -> f64> Kernel
    for Differences<'_, FINITE, A, B, F, G>
{
    type Output = [[f64; LANES]; 4];

    #[inline(always)]
    fn run(self) -> Self::Output {
        let mut sums = [[0f64; LANES]; 4];
        let (whole, rest) = self.original.as_chunks::<LANES>();
        let (whole_decoded, rest_decoded) = self.decoded.as_chunks::<LANES>();
        for (original, decoded) in whole.iter().zip(whole_decoded) {
            self.add(&mut sums, original, decoded);
        }
        let (mut last, mut last_decoded) = ([A::default(); LANES], [B::default(); LANES]);
        last[..rest.len()].copy_from_slice(rest);
        last_decoded[..rest.len()].copy_from_slice(&rest_decoded[..rest.len()]);
        self.add(&mut sums, &last, &last_decoded);
        sums
    }
}

impl<const FINITE: bool, A: Copy, B: Copy, F: Fn(A) -> f64, G: Fn(B) -> f64>
    Differences<'_, FINITE, A, B, F, G>
{
    /// Adds to energy, squares, magnitudes and the largest of errors.
    // A closure that is called twice is not copied to where registers are wide.
    #[inline(always)]
    fn add(&self, sums: &mut [[f64; LANES]; 4], original: &[A; LANES], decoded: &[B; LANES]) {
        let [energy, squared, absolute, largest] = sums;
        for lane in 0..LANES {
            let (a, b) = ((self.values.0)(original[lane]), (self.values.1)(decoded[lane]));
            // Equal infinities, and NaN kept as NaN, are no error.
            let alike = !FINITE && (a == b) | (a.is_nan() & b.is_nan());
            let error = if alike { 0.0 } else { (a - b).abs() };
            energy[lane] += if FINITE || a.is_finite() { a * a } else { 0.0 };
            squared[lane] += error * error;
            absolute[lane] += error;
            // An error that is no number is seen in the other sums.
            largest[lane] = if error > largest[lane] { error } else { largest[lane] };
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
    /// Of two tensors of the same shape.
    pub(crate) fn between(original: &Tensor, decoded: &Tensor) -> Self {
        let mut sums = Self::default();
        sums.add_tensors(original, decoded);
        sums
    }

    /// Of several parts, in their order.
    pub(crate) fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sums = Self::default();
        parts.into_iter().for_each(|part| sums.merge(part));
        sums
    }

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

    pub fn add<T: Copy + Default + Into<f64>>(&mut self, original: &[T], decoded: &[T]) {
        self.add_by::<false, _, _>(original, decoded, (T::into, T::into));
    }

    /// As [`MetricSums::add`], of values that are all finite: the same sums, sooner.
    pub(crate) fn add_finite(&mut self, original: &[f32], decoded: &[f32]) {
        self.add_by::<true, _, _>(original, decoded, (f64::from, f64::from));
    }

    /// Adds what stands for values, which may all be known to be finite, and for what they became.
    pub(crate) fn add_by<const FINITE: bool, A: Copy + Default, B: Copy + Default>(
        &mut self,
        original: &[A],
        decoded: &[B],
        values: (impl Fn(A) -> f64, impl Fn(B) -> f64),
    ) {
        let len = original.len().min(decoded.len());
        let (original, decoded) = (&original[..len], &decoded[..len]);
        let job = Differences::<FINITE, _, _, _, _> { original, decoded, values };
        let [energy, squared, absolute, largest] = with_width(Width::widest(), job);
        self.energy += energy.iter().sum::<f64>();
        self.squared += squared.iter().sum::<f64>();
        self.absolute += absolute.iter().sum::<f64>();
        self.largest = largest.into_iter().fold(self.largest, f64::max);
        self.count += len as f64;
    }

    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.energy += other.energy;
        self.squared += other.squared;
        self.absolute += other.absolute;
        self.largest = self.largest.max(other.largest);
    }

    /// As if all values had been `factor` times as large.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            count: self.count,
            energy: self.energy * factor * factor,
            squared: self.squared * factor * factor,
            absolute: self.absolute * factor,
            largest: self.largest * factor,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_numeric::random::Lcg;

    #[test]
    fn finite_values_have_the_same_sums_either_way() {
        let mut lcg = Lcg(7);
        for len in [0, 1, 7, 8, 1000] {
            let original: Vec<f32> = (0..len).map(|_| lcg.uniform() - 0.5).collect();
            let decoded: Vec<f32> = original
                .iter()
                .map(|&value| if lcg.uniform() < 0.3 { value } else { value * lcg.uniform() })
                .collect();
            let (mut any, mut finite) = (MetricSums::default(), MetricSums::default());
            any.add(&original, &decoded);
            finite.add_finite(&original, &decoded);
            let sums = |of: &MetricSums| [of.count, of.energy, of.squared, of.absolute, of.largest];
            assert_eq!(sums(&any), sums(&finite), "{len}");
        }
    }
}
