//! The forward transform with AVX2, eight products of pairs at a time.
//!
//! Same results as the scalar code, which is the reference; a test compares
//! the two. Only for ordinary precision and residuals of 16 bits.
#![allow(unsafe_code)]

use super::kernel::{Kernel, Precision};
use super::matrix::{DCT, DST};
use std::arch::x86_64::*;

/// Matrix entries in pairs, as multiply-add wants them: `[p][y]` holds columns
/// 2p and 2p + 1 of row y.
type Pairs<const N: usize> = [[i32; N]; 16];

const fn pair(low: i16, high: i16) -> i32 {
    (low as u16 as i32) | ((high as i32) << 16)
}

const fn pairs<const N: usize>(dst: bool) -> Pairs<N> {
    let mut out = [[0; N]; 16];
    let mut p = 0;
    while p < N / 2 {
        let mut i = 0;
        while i < N {
            if dst {
                out[p][i] = pair(DST[i][2 * p], DST[i][2 * p + 1]);
            } else {
                let step = 32 / N;
                out[p][i] = pair(DCT[i * step][2 * p], DCT[i * step][2 * p + 1]);
            }
            i += 1;
        }
        p += 1;
    }
    out
}

static DST_4: Pairs<4> = pairs(true);
static DCT_4: Pairs<4> = pairs(false);
static DCT_8: Pairs<8> = pairs(false);
static DCT_16: Pairs<16> = pairs(false);
static DCT_32: Pairs<32> = pairs(false);

/// Whether this machine can run what is below.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// See [`super::forward`]; the caller has asked [`available`].
pub fn forward(block: &mut [i32], log2: u32, kernel: Kernel, precision: Precision) {
    let first = (log2 + precision.depth + 6 - precision.log2_range()).max(1) as i32;
    let second = (log2 + 6) as i32;
    // SAFETY: `available` said that AVX2 is there.
    unsafe {
        match (log2, kernel) {
            (2, Kernel::Dst) => forward_4(block, &DST_4, first, second),
            (2, Kernel::Dct) => forward_4(block, &DCT_4, first, second),
            (3, _) => forward_n::<8>(block, &DCT_8, first, second),
            (4, _) => forward_n::<16>(block, &DCT_16, first, second),
            _ => forward_n::<32>(block, &DCT_32, first, second),
        }
    }
}

#[target_feature(enable = "avx2")]
fn load8(from: &[i32]) -> __m256i {
    let from: &[i32; 8] = from.first_chunk().unwrap_or(&[0; 8]);
    // SAFETY: the array holds exactly 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store8(to: &mut [i32], value: __m256i) {
    if let Some(to) = to.first_chunk_mut::<8>() {
        // SAFETY: the array holds exactly 32 bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }
}

#[target_feature(enable = "avx2")]
fn load4(from: &[i32]) -> __m128i {
    let from: &[i32; 4] = from.first_chunk().unwrap_or(&[0; 4]);
    // SAFETY: the array holds exactly 16 bytes.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store4(to: &mut [i32], value: __m128i) {
    if let Some(to) = to.first_chunk_mut::<4>() {
        // SAFETY: the array holds exactly 16 bytes.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
    }
}

/// Low halves of `low` and `high` side by side: a pair of 16-bit numbers a lane.
#[target_feature(enable = "avx2")]
fn pair8(low: __m256i, high: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32::<16>(high))
}

#[target_feature(enable = "avx2")]
fn pair4(low: __m128i, high: __m128i) -> __m128i {
    _mm_or_si128(_mm_and_si128(low, _mm_set1_epi32(0xffff)), _mm_slli_epi32::<16>(high))
}

/// Rounds, shifts, clips to 16 bits.
#[target_feature(enable = "avx2")]
fn narrow8(sum: __m256i, shift: i32) -> __m256i {
    let rounded = _mm256_add_epi32(sum, _mm256_set1_epi32(1 << (shift - 1)));
    let shifted = _mm256_sra_epi32(rounded, _mm_cvtsi32_si128(shift));
    _mm256_max_epi32(_mm256_min_epi32(shifted, _mm256_set1_epi32(32767)), _mm256_set1_epi32(-32768))
}

/// Y = K · X, four rows of Y at a time: rows of X in pairs, K by `factors[p][y]`.
#[target_feature(enable = "avx2")]
fn left<const N: usize>(pairs: &[[i32; N]; 16], factors: &[[i32; N]; 16], out: &mut [i32], shift: i32) {
    for x in (0..N).step_by(8) {
        for y in (0..N).step_by(4) {
            let mut sums = [_mm256_setzero_si256(); 4];
            for p in 0..N / 2 {
                let data = load8(&pairs[p][x..]);
                for (i, sum) in sums.iter_mut().enumerate() {
                    let factor = _mm256_set1_epi32(factors[p][y + i]);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(data, factor));
                }
            }
            for (i, &sum) in sums.iter().enumerate() {
                store8(&mut out[(y + i) * N + x..], narrow8(sum, shift));
            }
        }
    }
}

/// Y = X · K: `pairs[y * N / 2 + p]` holds columns 2p and 2p + 1 of row y of
/// X, `factors[p][x]` rows of K in pairs. Does not clip: sums of residuals fit.
#[target_feature(enable = "avx2")]
fn right<const N: usize>(pairs: &[i32], factors: &[[i32; N]; 16], out: &mut [i32], shift: i32) {
    let round = _mm256_set1_epi32(1 << (shift - 1));
    let count = _mm_cvtsi32_si128(shift);
    for y in (0..N).step_by(4) {
        for x in (0..N).step_by(8) {
            let mut sums = [round; 4];
            for p in 0..N / 2 {
                let factor = load8(&factors[p][x..]);
                for (i, sum) in sums.iter_mut().enumerate() {
                    let data = _mm256_set1_epi32(pairs[(y + i) * (N / 2) + p]);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(data, factor));
                }
            }
            for (i, &sum) in sums.iter().enumerate() {
                store8(&mut out[(y + i) * N + x..], _mm256_sra_epi32(sum, count));
            }
        }
    }
}

/// Rows 2p and 2p + 1 of `block` as pairs.
#[target_feature(enable = "avx2")]
fn row_pairs<const N: usize>(block: &[i32], out: &mut [[i32; N]; 16]) {
    for p in 0..N / 2 {
        for x in (0..N).step_by(8) {
            let (low, high) = (load8(&block[2 * p * N + x..]), load8(&block[(2 * p + 1) * N + x..]));
            store8(&mut out[p][x..], pair8(low, high));
        }
    }
}

/// Columns 2p and 2p + 1 of every row as pairs.
fn column_pairs(block: &[i32], out: &mut [i32]) {
    for (o, c) in out.iter_mut().zip(block.chunks_exact(2)) {
        *o = pair(c[0] as i16, c[1] as i16);
    }
}

#[target_feature(enable = "avx2")]
fn forward_n<const N: usize>(block: &mut [i32], matrix: &Pairs<N>, first: i32, second: i32) {
    let block = &mut block[..N * N];
    let mut columns = [0; 512];
    column_pairs(block, &mut columns);
    right(&columns, matrix, block, first);
    let mut rows = [[0; N]; 16];
    row_pairs(block, &mut rows);
    left(&rows, matrix, block, second);
}

/// One 4×4 step Y = K · X.
#[target_feature(enable = "avx2")]
fn left_4(block: &mut [i32], factors: &[[i32; 4]; 16], shift: i32) {
    let rows = [load4(block), load4(&block[4..]), load4(&block[8..]), load4(&block[12..])];
    let data = [pair4(rows[0], rows[1]), pair4(rows[2], rows[3])];
    for y in 0..4 {
        let mut sum = _mm_set1_epi32(1 << (shift - 1));
        for p in 0..2 {
            sum = _mm_add_epi32(sum, _mm_madd_epi16(data[p], _mm_set1_epi32(factors[p][y])));
        }
        let shifted = _mm_sra_epi32(sum, _mm_cvtsi32_si128(shift));
        let clipped = _mm_max_epi32(_mm_min_epi32(shifted, _mm_set1_epi32(32767)), _mm_set1_epi32(-32768));
        store4(&mut block[4 * y..], clipped);
    }
}

/// One 4×4 step Y = X · K.
#[target_feature(enable = "avx2")]
fn right_4(block: &mut [i32], factors: &[[i32; 4]; 16], shift: i32) {
    for row in block.chunks_exact_mut(4) {
        let mut sum = _mm_set1_epi32(1 << (shift - 1));
        for p in 0..2 {
            let data = _mm_set1_epi32(pair(row[2 * p] as i16, row[2 * p + 1] as i16));
            sum = _mm_add_epi32(sum, _mm_madd_epi16(data, load4(&factors[p])));
        }
        store4(row, _mm_sra_epi32(sum, _mm_cvtsi32_si128(shift)));
    }
}

#[target_feature(enable = "avx2")]
fn forward_4(block: &mut [i32], matrix: &Pairs<4>, first: i32, second: i32) {
    let block = &mut block[..16];
    right_4(block, matrix, first);
    left_4(block, matrix, second);
}
