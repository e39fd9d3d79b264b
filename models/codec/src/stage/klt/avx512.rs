//! A round of rotations in registers of sixteen values.
//!
//! [`super::rotate_pair`] is the truth; a test compares both. A product is
//! rounded before it is added, as everywhere: no fused operations.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use super::angles::{Angles, MAX_SIDE};
use std::arch::x86_64::*;

/// Values of a register.
pub const STRIP: usize = 16;
/// Registers of the longest row.
const STRIPS: usize = MAX_SIDE / STRIP;

/// As [`super::rotate_pair`] for every pair; `N` is a multiple of [`STRIP`].
#[target_feature(enable = "avx512f")]
pub fn rotate_pairs<const N: usize>(
    basis: &mut [[f32; N]],
    moments: &mut [[f32; N]],
    round: usize,
    angles: &Angles<N>,
) {
    // SAFETY: a strip is sixteen floats, as wide as a register.
    let load = |strip: &[f32; STRIP]| unsafe { _mm512_loadu_ps(strip.as_ptr()) };
    // SAFETY: as above.
    let store = |strip: &mut [f32; STRIP], v: __m512| unsafe { _mm512_storeu_ps(strip.as_mut_ptr(), v) };
    let order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let met_at = _mm512_xor_si512(order, _mm512_set1_epi32((round % STRIP) as i32));
    let (cosines, _) = angles.cosines.as_chunks::<STRIP>();
    let (sines, _) = angles.sines.as_chunks::<STRIP>();
    for p in (0..N).filter(|p| *p < p ^ round) {
        let q = p ^ round;
        let (cosine, sine) = (_mm512_set1_ps(angles.cosines[q]), _mm512_set1_ps(angles.sines[q]));
        let rotated = |a: __m512, b: __m512| {
            let upper = _mm512_sub_ps(_mm512_mul_ps(cosine, a), _mm512_mul_ps(sine, b));
            let lower = _mm512_add_ps(_mm512_mul_ps(sine, a), _mm512_mul_ps(cosine, b));
            (upper, lower)
        };
        if let Ok([a, b]) = basis.get_disjoint_mut([p, q]) {
            let (a, b) = (a.as_chunks_mut::<STRIP>().0, b.as_chunks_mut::<STRIP>().0);
            for (a, b) in a.iter_mut().zip(b) {
                let (upper, lower) = rotated(load(a), load(b));
                store(a, upper);
                store(b, lower);
            }
        }
        if let Ok([a, b]) = moments.get_disjoint_mut([p, q]) {
            let (a, b) = (a.as_chunks_mut::<STRIP>().0, b.as_chunks_mut::<STRIP>().0);
            let mut rows = [[_mm512_setzero_ps(); STRIPS]; 2];
            for (strip, (a, b)) in a.iter().zip(&*b).enumerate() {
                (rows[0][strip], rows[1][strip]) = rotated(load(a), load(b));
            }
            for (out, row) in [a, b].into_iter().zip(&rows) {
                for (strip, out) in out.iter_mut().enumerate() {
                    let met = row[(strip ^ (round / STRIP)) % (N / STRIP)];
                    let met = _mm512_permutexvar_ps(met_at, met);
                    let own = _mm512_mul_ps(load(&cosines[strip]), row[strip]);
                    store(out, _mm512_add_ps(own, _mm512_mul_ps(load(&sines[strip]), met)));
                }
            }
        }
    }
}
