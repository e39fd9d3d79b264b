//! The exchange of elements within a row, as one shuffle per register.
//!
//! [`super::rotate_columns`] is the truth; a test compares both.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use super::angles::{Angles, STRIP};
use std::arch::x86_64::*;

/// As [`super::rotate_columns`].
#[target_feature(enable = "avx2")]
#[inline]
pub fn rotate_columns<const N: usize>(row: &[f32; N], round: usize, angles: &Angles<N>, out: &mut [f32; N]) {
    let (row, _) = row.as_chunks::<STRIP>();
    let (cosines, _) = angles.cosines.as_chunks::<STRIP>();
    let (sines, _) = angles.sines.as_chunks::<STRIP>();
    let low = _mm256_set1_epi32((round % STRIP) as i32);
    let met_at = _mm256_xor_si256(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), low);
    // SAFETY: a strip is eight floats, as wide as a register.
    let load = |strip: &[f32; STRIP]| unsafe { _mm256_loadu_ps(strip.as_ptr()) };
    let (out, _) = out.as_chunks_mut::<STRIP>();
    for (strip, (out, (cosines, sines))) in out.iter_mut().zip(cosines.iter().zip(sines)).enumerate() {
        let own = load(&row[strip]);
        let met = load(&row[(strip ^ (round / STRIP)) % (N / STRIP)]);
        let met = _mm256_permutevar8x32_ps(met, met_at);
        let sum = _mm256_add_ps(_mm256_mul_ps(load(cosines), own), _mm256_mul_ps(load(sines), met));
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sum) };
    }
}
