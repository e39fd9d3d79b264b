//! Sums of outer products in registers of eight and of sixteen values.
//!
//! [`Outer::plain_sums`] is the truth; a test compares all three. A product is
//! rounded before it is added, as everywhere: no fused operations.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use super::outer::{Outer, ROWS, Sums, WIDE};
use std::arch::x86_64::*;

/// As [`Outer::plain_sums`].
///
/// # Safety
///
/// Every element that [`Outer`] speaks of must be inside its slice.
#[target_feature(enable = "avx512f")]
pub unsafe fn sums_512(outer: &Outer<'_>) -> Sums {
    let mut sums = [_mm512_setzero_ps(); ROWS];
    let (mut tall, mut wide) = (outer.tall.as_ptr(), outer.wide.as_ptr());
    for _ in 0..outer.count {
        // SAFETY: the caller's promise; the pointers are advanced past the last
        // vector without being read.
        unsafe {
            let others = _mm512_loadu_ps(wide);
            for (r, sum) in sums.iter_mut().enumerate() {
                let own = _mm512_set1_ps(*tall.add(r * outer.tall_stride));
                *sum = _mm512_add_ps(*sum, _mm512_mul_ps(own, others));
            }
        }
        (tall, wide) = (tall.wrapping_add(outer.tall_step), wide.wrapping_add(outer.wide_step));
    }
    let mut out = [[0.0; WIDE]; ROWS];
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: a row holds sixteen values.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
    out
}

/// As [`Outer::plain_sums`], half of the rows after the other: sixteen sums
/// leave no register for their factors.
///
/// # Safety
///
/// Every element that [`Outer`] speaks of must be inside its slice.
#[target_feature(enable = "avx2")]
pub unsafe fn sums_256(outer: &Outer<'_>) -> Sums {
    const HALF: usize = ROWS / 2;
    let mut out = [[0.0; WIDE]; ROWS];
    for (half, out) in out.as_chunks_mut::<HALF>().0.iter_mut().enumerate() {
        let mut sums = [[_mm256_setzero_ps(); 2]; HALF];
        let mut tall = outer.tall.as_ptr().wrapping_add(half * HALF * outer.tall_stride);
        let mut wide = outer.wide.as_ptr();
        for _ in 0..outer.count {
            // SAFETY: as above.
            unsafe {
                let others = [_mm256_loadu_ps(wide), _mm256_loadu_ps(wide.add(WIDE / 2))];
                for (r, sums) in sums.iter_mut().enumerate() {
                    let own = _mm256_set1_ps(*tall.add(r * outer.tall_stride));
                    sums[0] = _mm256_add_ps(sums[0], _mm256_mul_ps(own, others[0]));
                    sums[1] = _mm256_add_ps(sums[1], _mm256_mul_ps(own, others[1]));
                }
            }
            (tall, wide) = (tall.wrapping_add(outer.tall_step), wide.wrapping_add(outer.wide_step));
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            // SAFETY: a row holds two registers.
            unsafe {
                _mm256_storeu_ps(out.as_mut_ptr(), sums[0]);
                _mm256_storeu_ps(out.as_mut_ptr().add(WIDE / 2), sums[1]);
            }
        }
    }
    out
}
