//! Sums over all values of a tensor, taken in one pass: what several questions about them are answered from before
//! anything is coded (is one no number, how large is the largest, do a few have all the energy).
//!
//! Knows number formats; knows nothing of codecs.

use trinity_numeric::simd::{Kernel, Width, with_width};

use crate::Dtype;

/// Sums over values, of powers in f64, which has room for them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub count: f64,
    pub first: f64,
    pub second: f64,
    /// The largest magnitude; no number counts for none.
    pub largest: f32,
}

impl Sums {
    /// Of little-endian values.
    pub(crate) fn of(dtype: Dtype, bytes: &[u8]) -> Self {
        let mut running = Running::new(dtype);
        running.add(bytes);
        running.finish()
    }

    /// The largest magnitude, where all values are finite as f32.
    pub(crate) fn largest_finite(&self) -> Option<f32> {
        self.second.is_finite().then_some(self.largest)
    }
}

/// Sums kept side by side, in registers.
const LANES: usize = 8;
/// Values that are widened at a time: they stay in the cache.
const PIECE: usize = 4096;

/// Sums of values that come in pieces of whole eights, but for the last.
#[derive(Debug)]
pub(crate) struct Running {
    dtype: Dtype,
    count: usize,
    powers: [[f64; LANES]; 2],
    largest: [f32; LANES],
}

impl Running {
    pub(crate) fn new(dtype: Dtype) -> Self {
        Self { dtype, count: 0, powers: [[0.0; LANES]; 2], largest: [0.0; LANES] }
    }

    /// Adds little-endian values.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let width = self.dtype.bytes();
        self.count += bytes.len() / width;
        let (powers, largest) = (&mut self.powers, &mut self.largest);
        if self.dtype == Dtype::F32 {
            let (pieces, value) = (bytes.as_chunks().0, f32::from_le_bytes);
            return with_width(Width::widest(), Add { pieces, value, powers, largest });
        }
        let mut values = [0f32; PIECE];
        for bytes in bytes.chunks(PIECE * width) {
            let pieces = &mut values[..bytes.len() / width];
            self.dtype.to_f32(bytes, pieces);
            with_width(Width::widest(), Add { pieces, value: |value: f32| value, powers, largest });
        }
    }

    /// Whether all values so far are finite as f32.
    pub(crate) fn is_finite(&self) -> bool {
        self.powers[1].iter().all(|sum| sum.is_finite())
    }

    pub(crate) fn finish(&self) -> Sums {
        let [first, second] = self.powers.map(|lanes| lanes.iter().sum());
        let largest = self.largest.iter().copied().fold(0f32, f32::max);
        Sums { count: self.count as f64, first, second, largest }
    }
}

/// Values as they lie somewhere, and the sums that they join.
struct Add<'a, T, F> {
    pieces: &'a [T],
    value: F,
    powers: &'a mut [[f64; LANES]; 2],
    largest: &'a mut [f32; LANES],
}

impl<T: Copy + Default, F: Fn(T) -> f32> Kernel for Add<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ([mut first, mut second], mut largest) = (*self.powers, *self.largest);
        let (whole, rest) = self.pieces.as_chunks::<LANES>();
        let mut last = [T::default(); LANES];
        last[..rest.len()].copy_from_slice(rest);
        for pieces in whole.iter().chain([&last]) {
            for lane in 0..LANES {
                let narrow = (self.value)(pieces[lane]);
                let value = f64::from(narrow);
                first[lane] += value;
                second[lane] += value * value;
                let magnitude = narrow.abs();
                largest[lane] = if magnitude > largest[lane] { magnitude } else { largest[lane] };
            }
        }
        (*self.powers, *self.largest) = ([first, second], largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_sums_of_the_whole() {
        let values: Vec<f32> = (0..20_003).map(|at| (at * 7919 % 1009) as f32 / 504.5 - 1.0).collect();
        for dtype in Dtype::ALL {
            let mut bytes = Vec::new();
            dtype.extend_from_f32(&values, &mut bytes);
            let whole = Sums::of(dtype, &bytes);
            let mut running = Running::new(dtype);
            bytes.chunks(8 * 1000 * dtype.bytes()).for_each(|piece| running.add(piece));
            let pieces = running.finish();
            let digits = |sums: &Sums| (sums.count, sums.first, sums.second, sums.largest);
            assert_eq!(digits(&whole), digits(&pieces), "{dtype}");
            let mut back = vec![0f32; values.len()];
            dtype.to_f32(&bytes, &mut back);
            let second: f64 = back.iter().map(|&value| f64::from(value).powi(2)).sum();
            assert!((whole.second - second).abs() <= 1e-9 * second, "{dtype}");
            assert_eq!(whole.largest, back.iter().fold(0f32, |most, value| most.max(value.abs())), "{dtype}");
        }
    }

    #[test]
    fn what_is_no_number_is_seen_wherever_it_is() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 5, 8, 1001, 8002] {
                let mut values = vec![1e38f32; 8003];
                let sums = |values: &[f32]| {
                    let mut bytes = Vec::new();
                    Dtype::F32.extend_from_f32(values, &mut bytes);
                    Sums::of(Dtype::F32, &bytes).largest_finite()
                };
                assert_eq!(sums(&values), Some(1e38));
                values[at] = odd;
                assert_eq!(sums(&values), None, "{odd} at {at}");
            }
        }
    }
}
