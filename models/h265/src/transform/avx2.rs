//! The inverse transform with AVX2: the same sums as the scalar one, sixteen
//! products an instruction.
//!
//! `vpmaddwd` multiplies pairs of 16-bit numbers and adds each pair, so
//! coefficients and basis are taken two frequencies at a time. Only for 16-bit
//! coefficients: extended precision stays scalar.

use std::arch::x86_64::*;

use super::kernel::Kernel;
use super::matrix::{DCT, DST};

/// Two basis values of frequencies 2k and 2k + 1 at one position, the first in
/// the low half.
type Pairs<const N: usize, const HALF: usize> = [[i32; N]; HALF];

const fn pair(low: i16, high: i16) -> i32 {
    (low as u16 as i32) | ((high as i32) << 16)
}

const fn dct_pairs<const N: usize, const HALF: usize>() -> Pairs<N, HALF> {
    let mut pairs = [[0; N]; HALF];
    let mut k = 0;
    while k < HALF {
        let mut x = 0;
        while x < N {
            pairs[k][x] = pair(DCT[2 * k * (32 / N)][x], DCT[(2 * k + 1) * (32 / N)][x]);
            x += 1;
        }
        k += 1;
    }
    pairs
}

static DCT_4: Pairs<4, 2> = dct_pairs();
static DCT_8: Pairs<8, 4> = dct_pairs();
static DCT_16: Pairs<16, 8> = dct_pairs();
static DCT_32: Pairs<32, 16> = dct_pairs();
static DST_4: Pairs<4, 2> = {
    let mut pairs = [[0; 4]; 2];
    let mut at = 0;
    while at < 8 {
        let (k, x) = (at / 4, at % 4);
        pairs[k][x] = pair(DST[2 * k][x], DST[2 * k + 1][x]);
        at += 1;
    }
    pairs
};

/// Same as [`super::inverse`] for coefficients of 16 bits.
#[target_feature(enable = "avx2")]
pub fn inverse(block: &mut [i32], log2: u32, kernel: Kernel, shift: u32) {
    match (log2, kernel) {
        (2, Kernel::Dct) => inverse_4(block, &DCT_4, shift),
        (2, Kernel::Dst) => inverse_4(block, &DST_4, shift),
        (3, _) => inverse_n::<8, 4, 1>(block, &DCT_8, shift),
        (4, _) => inverse_n::<16, 8, 2>(block, &DCT_16, shift),
        _ => inverse_n::<32, 16, 4>(block, &DCT_32, shift),
    }
}

#[target_feature(enable = "avx2")]
fn load(from: &[i32; 8]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store(to: &mut [i32; 8], value: __m256i) {
    // SAFETY: the reference is to 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}

/// Blocks of 8×8 and above: `VECTORS` registers of eight hold a row.
#[target_feature(enable = "avx2")]
fn inverse_n<const N: usize, const HALF: usize, const VECTORS: usize>(
    block: &mut [i32],
    basis: &Pairs<N, HALF>,
    shift: u32,
) {
    // Two coefficient rows in one, and which pairs of rows and columns hold any.
    let mut rows = [[[0i32; 8]; VECTORS]; HALF];
    let mut filled = [false; HALF];
    let mut columns = [_mm256_setzero_si256(); VECTORS];
    let low_half = _mm256_set1_epi32(0xffff);
    for ((row, filled), two) in rows.iter_mut().zip(&mut filled).zip(block.chunks_exact(2 * N)) {
        let (upper, lower) = two.split_at(N);
        let (upper, lower) = (upper.as_chunks::<8>().0, lower.as_chunks::<8>().0);
        let mut any = _mm256_setzero_si256();
        for v in 0..VECTORS {
            let (a, b) = (load(&upper[v]), load(&lower[v]));
            let both = _mm256_or_si256(_mm256_and_si256(a, low_half), _mm256_slli_epi32::<16>(b));
            store(&mut row[v], both);
            any = _mm256_or_si256(any, both);
            columns[v] = _mm256_or_si256(columns[v], both);
        }
        *filled = _mm256_testz_si256(any, any) == 0;
    }
    // Pairs of columns up to the last that holds anything.
    let column_pairs = (0..VECTORS)
        .rev()
        .find(|&v| _mm256_testz_si256(columns[v], columns[v]) == 0)
        .map_or(0, |v| {
            let empty = _mm256_cmpeq_epi32(columns[v], _mm256_setzero_si256());
            let held = !_mm256_movemask_epi8(empty) as u32;
            4 * v + (32 - held.leading_zeros() as usize).div_ceil(8)
        })
        .min(HALF);

    let first_round = _mm256_set1_epi32(64);
    let last_round = _mm256_set1_epi32(1 << (shift - 1));
    let last_shift = _mm_cvtsi32_si128(shift as i32);
    for (y, out) in block.chunks_exact_mut(N).enumerate() {
        // Columns: row y of the intermediate, saturated to 16 bits as clause
        // 8.6.4.2 clips it.
        let mut sums = [first_round; VECTORS];
        for k in 0..HALF {
            if filled[k] {
                let factor = _mm256_set1_epi32(basis[k][y]);
                for v in 0..VECTORS {
                    sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(load(&rows[k][v]), factor));
                }
            }
        }
        let mut middle = [[0i32; 4]; VECTORS];
        for v in 0..VECTORS {
            let sum = _mm256_srai_epi32::<7>(sums[v]);
            let packed = _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
            // SAFETY: the array is 16 writable bytes; the store needs no alignment.
            unsafe { _mm_storeu_si128(middle[v].as_mut_ptr().cast(), packed) }
        }
        // Rows: each pair of intermediates spreads over the whole row.
        let mut sums = [last_round; VECTORS];
        for (k, &two) in middle.as_flattened()[..column_pairs].iter().enumerate() {
            let factor = _mm256_set1_epi32(two);
            let basis = basis[k].as_chunks::<8>().0;
            for v in 0..VECTORS {
                sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(load(&basis[v]), factor));
            }
        }
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
            store(out, _mm256_sra_epi32(sum, last_shift));
        }
    }
}

/// 4×4 blocks, two rows a register.
#[target_feature(enable = "avx2")]
fn inverse_4(block: &mut [i32], basis: &Pairs<4, 2>, shift: u32) {
    let Some(block) = block.first_chunk_mut::<16>() else { return };
    let pairs = |upper: usize, lower: usize| -> [i32; 4] {
        std::array::from_fn(|x| (block[4 * upper + x] & 0xffff) | (block[4 * lower + x] << 16))
    };
    let quad = |values: [i32; 4]| _mm_setr_epi32(values[0], values[1], values[2], values[3]);
    let twice = |values: __m128i| _mm256_broadcastsi128_si256(values);
    // A register holds rows y and y + 1, so factors differ between its halves.
    let halves = |low: i32, high: i32| _mm256_set_m128i(_mm_set1_epi32(high), _mm_set1_epi32(low));
    let coefficients = [twice(quad(pairs(0, 1))), twice(quad(pairs(2, 3)))];
    let rows = [twice(quad(basis[0])), twice(quad(basis[1]))];
    let last_shift = _mm_cvtsi32_si128(shift as i32);
    for y in [0, 2] {
        let mut sum = _mm256_set1_epi32(64);
        for k in 0..2 {
            let factor = halves(basis[k][y], basis[k][y + 1]);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(coefficients[k], factor));
        }
        let middle = _mm256_srai_epi32::<7>(sum);
        // Per half: intermediates 0 to 3 of its row as 16 bits.
        let middle = _mm256_packs_epi32(middle, middle);
        let mut sum = _mm256_set1_epi32(1 << (shift - 1));
        sum =
            _mm256_add_epi32(sum, _mm256_madd_epi16(rows[0], _mm256_shuffle_epi32::<0b00_00_00_00>(middle)));
        sum =
            _mm256_add_epi32(sum, _mm256_madd_epi16(rows[1], _mm256_shuffle_epi32::<0b01_01_01_01>(middle)));
        let out = &mut block.as_chunks_mut::<8>().0[y / 2];
        store(out, _mm256_sra_epi32(sum, last_shift));
    }
}

/// Same as [`super::add_residual`], eight samples at a time; `log2` from 3.
#[target_feature(enable = "avx2")]
pub fn add_residual(plane: &mut [u16], stride: usize, residual: &[i32], log2: u32, depth: u32) {
    let size = 1usize << log2;
    let limit = _mm256_set1_epi32((1 << depth) - 1);
    for (row, residual) in plane.chunks_mut(stride).zip(residual.chunks_exact(size)) {
        let samples = row[..size].as_chunks_mut::<8>().0;
        for (samples, residual) in samples.iter_mut().zip(residual.as_chunks::<8>().0) {
            // SAFETY: the reference is to 16 readable bytes; the load needs no alignment.
            let before = unsafe { _mm_loadu_si128(samples.as_ptr().cast()) };
            let sum = _mm256_add_epi32(_mm256_cvtepu16_epi32(before), load(residual));
            let clipped = _mm256_min_epi32(_mm256_max_epi32(sum, _mm256_setzero_si256()), limit);
            let packed =
                _mm_packus_epi32(_mm256_castsi256_si128(clipped), _mm256_extracti128_si256::<1>(clipped));
            // SAFETY: the reference is to 16 writable bytes; the store needs no alignment.
            unsafe { _mm_storeu_si128(samples.as_mut_ptr().cast(), packed) }
        }
    }
}
