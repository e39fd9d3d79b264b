//! Signs for thirty-two values at a time: bits are dealt out to the values
//! that are not zero by one instruction.
//!
//! The functions of the same names above are the truth; tests compare both.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use crate::entropy::rans::{RawReader, RawWriter, SIGNS};
use crate::stage::trellis::Points;
use std::arch::x86_64::*;

const WIDE: usize = 8;

/// As [`super::signed`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
pub fn signed(
    raw: &mut RawReader<'_>,
    levels: &mut [u32; SIGNS],
    points: &Points,
    unit: f32,
    out: &mut [f32; SIGNS],
) {
    let there = above(levels, 1);
    let signs = _pdep_u32(raw.get(there.count_ones()), there);
    stand(levels, signs, points, unit, out);
}

/// As [`super::placed`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
pub fn placed(
    levels: &mut [u32; SIGNS],
    values: &[f32; SIGNS],
    points: &Points,
    unit: f32,
    out: &mut [f32; SIGNS],
) {
    let signs = negative(values) & above(levels, 1);
    stand(levels, signs, points, unit, out);
}

/// As [`super::put_signs`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
pub fn put_signs(raw: &mut RawWriter, magnitudes: &[u32; SIGNS], values: &[f32; SIGNS]) {
    let there = above(magnitudes, 0);
    raw.put(_pext_u32(negative(values), there), there.count_ones());
}

/// Which numbers, all of less than 31 bits, are above a limit.
#[target_feature(enable = "avx2")]
#[inline]
fn above(numbers: &[u32; SIGNS], limit: i32) -> u32 {
    let limit = _mm256_set1_epi32(limit);
    let mut bits = 0;
    for (i, numbers) in numbers.as_chunks::<WIDE>().0.iter().enumerate() {
        // SAFETY: eight integers are as wide as a register.
        let numbers = unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) };
        let above = _mm256_castsi256_ps(_mm256_cmpgt_epi32(numbers, limit));
        bits |= (_mm256_movemask_ps(above) as u32) << (WIDE * i);
    }
    bits
}

#[target_feature(enable = "avx2")]
#[inline]
fn negative(values: &[f32; SIGNS]) -> u32 {
    let mut bits = 0;
    for (i, values) in values.as_chunks::<WIDE>().0.iter().enumerate() {
        // SAFETY: eight values are as wide as a register.
        let values = unsafe { _mm256_loadu_ps(values.as_ptr()) };
        bits |= (_mm256_movemask_ps(values) as u32) << (WIDE * i);
    }
    bits
}

/// The places of levels, and their magnitudes.
#[target_feature(enable = "avx2")]
#[inline]
fn stand(levels: &mut [u32; SIGNS], signs: u32, points: &Points, unit: f32, out: &mut [f32; SIGNS]) {
    let (one, three) = (_mm256_set1_epi32(1), _mm256_set1_epi32(3));
    let unit = _mm256_set1_ps(unit);
    let top = _mm256_set1_epi32(i32::MIN);
    // SAFETY: two quantizers with four shifts each fill a register.
    let shifts = unsafe { _mm256_loadu_si256(points.shifts().as_ptr().cast()) };
    let mut places = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    for (levels, out) in levels.as_chunks_mut::<WIDE>().0.iter_mut().zip(out.as_chunks_mut::<WIDE>().0) {
        // SAFETY: as above.
        let packed = unsafe { _mm256_loadu_si256(levels.as_ptr().cast()) };
        let magnitude = _mm256_srli_epi32::<1>(packed);
        let quantizer = _mm256_slli_epi32::<2>(_mm256_and_si256(packed, one));
        let at = _mm256_or_si256(quantizer, _mm256_min_epi32(magnitude, three));
        let shift = _mm256_permutevar8x32_epi32(shifts, at);
        let distance = _mm256_add_epi32(_mm256_slli_epi32::<7>(magnitude), shift);
        let value = _mm256_mul_ps(_mm256_cvtepi32_ps(distance), unit);
        let sign = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(signs as i32), places), top);
        let value = _mm256_xor_ps(value, _mm256_castsi256_ps(sign));
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), value);
            _mm256_storeu_si256(levels.as_mut_ptr().cast(), magnitude);
        }
        places = _mm256_sub_epi32(places, _mm256_set1_epi32(WIDE as i32));
    }
}
