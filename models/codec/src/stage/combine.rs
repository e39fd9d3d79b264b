//! The products every transform is made of: a row of weights with a matrix,
//! and sums of outer products.

mod outer;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use outer::{Outer, ROWS, Sums, WIDE};

use trinity_numeric::simd::{self, Kernel};

/// `out = Σ weights[i] · rows[i]`, summed in the order of `i`.
#[inline(always)]
pub fn combine(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    match out.len() {
        n if n.is_multiple_of(64) => strips::<64>(weights, rows, out),
        n if n.is_multiple_of(32) => strips::<32>(weights, rows, out),
        n if n.is_multiple_of(8) => strips::<8>(weights, rows, out),
        _ => strips::<1>(weights, rows, out),
    }
}

/// Combines rows, `W` outputs side by side: their sums stay in registers.
#[inline(always)]
fn strips<const W: usize>(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    let n = out.len();
    for (strip, out) in out.as_chunks_mut::<W>().0.iter_mut().enumerate() {
        let mut sums = [0.0; W];
        for (&weight, row) in weights.iter().zip(rows.chunks_exact(n)) {
            if let Some(row) = row[strip * W..].first_chunk::<W>() {
                sums.iter_mut().zip(row).for_each(|(sum, &r)| *sum += weight * r);
            }
        }
        *out = sums;
    }
}

impl Outer<'_> {
    /// The sums, each in the order of the vectors.
    #[inline(always)]
    pub fn sums(&self) -> Sums {
        #[cfg(target_arch = "x86_64")]
        {
            let last = self.count.saturating_sub(1);
            let tall = last * self.tall_step + (ROWS - 1) * self.tall_stride;
            let fits = tall < self.tall.len() && last * self.wide_step + WIDE <= self.wide.len();
            if fits && simd::has_avx512() {
                // SAFETY: the processor has these instructions, and every
                // element that is read is inside its slice.
                #[allow(unsafe_code)]
                return unsafe { x86::sums_512(self) };
            }
            if fits && simd::has_avx2() {
                // SAFETY: as above.
                #[allow(unsafe_code)]
                return unsafe { x86::sums_256(self) };
            }
        }
        self.plain_sums()
    }

    /// Sums of outer products as every machine can take them.
    fn plain_sums(&self) -> Sums {
        let mut sums = [[0.0; WIDE]; ROWS];
        for i in 0..self.count {
            let wide = &self.wide[i * self.wide_step..][..WIDE];
            for (r, sums) in sums.iter_mut().enumerate() {
                let tall = self.tall[i * self.tall_step + r * self.tall_stride];
                sums.iter_mut().zip(wide).for_each(|(sum, &w)| *sum += tall * w);
            }
        }
        sums
    }
}

/// [`combine`] for many rows of weights, each `stride` after the last, with
/// one square matrix of side `n`.
pub fn combine_rows(weights: &[f32], matrix: &[f32], n: usize, stride: usize, out: &mut [f32]) {
    for (weights, out) in weights.chunks(ROWS * stride).zip(out.chunks_mut(ROWS * stride)) {
        if n.is_multiple_of(WIDE) && weights.len() >= (ROWS - 1) * stride + n {
            for first in (0..n).step_by(WIDE) {
                let outer = Outer {
                    count: n,
                    tall: weights,
                    tall_step: 1,
                    tall_stride: stride,
                    wide: &matrix[first..],
                    wide_step: n,
                };
                for (out, sums) in out.chunks_mut(stride).zip(outer.sums()) {
                    out[first..][..WIDE].copy_from_slice(&sums);
                }
            }
        } else {
            for (weights, out) in weights.chunks(stride).zip(out.chunks_mut(stride)) {
                simd::widest(Combine { weights: &weights[..n], matrix, out: &mut out[..n] });
            }
        }
    }
}

/// [`combine`] as a kernel.
struct Combine<'a> {
    weights: &'a [f32],
    matrix: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        combine(self.weights, self.matrix, self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_sums_in_the_same_order() {
        for n in [1, 5, 8, 24, 32, 36, 64, 96, 128] {
            let weights: Vec<f32> = (0..n).map(|i| 1.0 / (1.0 + i as f32)).collect();
            let rows: Vec<f32> = (0..n * n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
            let mut out = vec![0.0; n];
            combine(&weights, &rows, &mut out);
            for (k, &value) in out.iter().enumerate() {
                let sum = (0..n).fold(0.0, |sum, i| sum + weights[i] * rows[i * n + k]);
                assert_eq!(value.to_bits(), sum.to_bits(), "{n}: {k}");
            }
        }
    }

    #[test]
    fn many_rows_are_as_many_single_ones() {
        for (n, stride, rows) in [(32, 40, 11), (64, 64, 8), (5, 9, 9), (16, 16, 1)] {
            let weights: Vec<f32> = (0..rows * stride).map(|i| (i * 31 % 97) as f32 - 48.0).collect();
            let matrix: Vec<f32> = (0..n * n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
            let mut out = vec![0.0; rows * stride];
            combine_rows(&weights, &matrix, n, stride, &mut out);
            for r in 0..rows {
                let mut one = vec![0.0; n];
                combine(&weights[r * stride..][..n], &matrix, &mut one);
                assert_eq!(out[r * stride..][..n], one, "{n} {stride} {r}");
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_and_arrays_sum_alike() {
        let numbers: Vec<f32> = (0..4000).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        for (count, tall_step, tall_stride) in [(16, 100, 1), (32, 1, 70), (1, 3, 3), (0, 1, 1)] {
            let wide = &numbers[9..];
            let outer = Outer { count, tall: &numbers, tall_step, tall_stride, wide, wide_step: 40 };
            let plain = outer.plain_sums();
            // SAFETY: the processor was asked, and the slices are long enough.
            #[allow(unsafe_code)]
            unsafe {
                assert!(!simd::has_avx2() || x86::sums_256(&outer) == plain, "{outer:?}");
                assert!(!simd::has_avx512() || x86::sums_512(&outer) == plain, "{outer:?}");
            }
        }
    }
}
