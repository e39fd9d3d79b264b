//! 8×8 Hadamard sums in 16-bit lanes: two blocks side by side in one register.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Whether this machine can run what is below.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Sum over a block of 16×16 or 32×32 with 8×8 transforms, for samples of up
/// to 9 bits: six doublings then still fit 16 bits. The caller has asked
/// [`available`].
pub fn sum_wide(source: &[u16], stride: usize, prediction: &[u16], size: usize) -> u64 {
    // SAFETY: `available` said that AVX2 is there.
    unsafe { sum_wide_inner(source, stride, prediction, size) }
}

#[target_feature(enable = "avx2")]
fn sum_wide_inner(source: &[u16], stride: usize, prediction: &[u16], size: usize) -> u64 {
    let mut total = 0;
    for y in (0..size).step_by(8) {
        for x in (0..size).step_by(16) {
            let mut rows = [_mm256_setzero_si256(); 8];
            for (i, row) in rows.iter_mut().enumerate() {
                let s = load16(&source[(y + i) * stride + x..]);
                let p = load16(&prediction[(y + i) * size + x..]);
                *row = _mm256_sub_epi16(s, p);
            }
            total += pair_of_blocks(rows);
        }
    }
    total
}

/// Sum over one 8×8 block; the caller has asked [`available`].
pub fn sum_8(source: &[u16], stride: usize, prediction: &[u16], pitch: usize) -> u64 {
    // SAFETY: `available` said that AVX2 is there.
    unsafe { sum_8_inner(source, stride, prediction, pitch) }
}

#[target_feature(enable = "avx2")]
fn sum_8_inner(source: &[u16], stride: usize, prediction: &[u16], pitch: usize) -> u64 {
    let mut rows = [_mm256_setzero_si256(); 8];
    for (i, row) in rows.iter_mut().enumerate() {
        let s = load8(&source[i * stride..]);
        let p = load8(&prediction[i * pitch..]);
        *row = _mm256_castsi128_si256(_mm_sub_epi16(s, p));
        *row = _mm256_inserti128_si256::<1>(*row, _mm_setzero_si128());
    }
    pair_of_blocks(rows)
}

#[target_feature(enable = "avx2")]
fn load16(from: &[u16]) -> __m256i {
    let from: &[u16; 16] = from.first_chunk().unwrap_or(&[0; 16]);
    // SAFETY: the array holds exactly 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn load8(from: &[u16]) -> __m128i {
    let from: &[u16; 8] = from.first_chunk().unwrap_or(&[0; 8]);
    // SAFETY: the array holds exactly 16 bytes.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn pair_of_blocks(mut rows: [__m256i; 8]) -> u64 {
    butterflies(&mut rows);
    transpose(&mut rows);
    butterflies(&mut rows);
    let mut sum = _mm256_setzero_si256();
    let ones = _mm256_set1_epi16(1);
    for row in rows {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_abs_epi16(row), ones));
    }
    // Each half is one block, rounded like the scalar code.
    let add = |v: __m128i| {
        let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
        let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v));
        _mm_cvtsi128_si32(v) as u32 as u64 / 8
    };
    add(_mm256_castsi256_si128(sum)) + add(_mm256_extracti128_si256::<1>(sum))
}

#[target_feature(enable = "avx2")]
fn butterflies(rows: &mut [__m256i; 8]) {
    for half in [4, 2, 1] {
        for start in (0..8).step_by(2 * half) {
            for i in start..start + half {
                let (a, b) = (rows[i], rows[i + half]);
                rows[i] = _mm256_add_epi16(a, b);
                rows[i + half] = _mm256_sub_epi16(a, b);
            }
        }
    }
}

/// Transposes the 8×8 block in each half.
#[target_feature(enable = "avx2")]
fn transpose(rows: &mut [__m256i; 8]) {
    let r = *rows;
    let mut a = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        a[2 * i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    let mut b = [_mm256_setzero_si256(); 8];
    for i in 0..2 {
        b[4 * i] = _mm256_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
    }
    for i in 0..4 {
        rows[2 * i] = _mm256_unpacklo_epi64(b[i], b[i + 4]);
        rows[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 4]);
    }
}
