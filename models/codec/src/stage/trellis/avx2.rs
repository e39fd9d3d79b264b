//! Candidates of eight values at a time, and Viterbi over 32 states with a
//! state in every sixteen bits of two registers.
//!
//! [`super::candidates`] and [`super::step`] are the truth; this is the same
//! arithmetic, in the order the registers like. Tests compare both.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use super::points::{Candidates, Costs, GROUPS, LOST, Points};
use std::arch::x86_64::*;

/// Values of a register.
const WIDE: usize = 8;

/// As [`super::candidates`] of as many values as fill registers; returns how
/// many those are.
#[target_feature(enable = "avx2")]
pub fn consider(
    points: &Points,
    targets: &[i32],
    classes: &[u8],
    costs: &[Costs],
    out: &mut [Candidates],
    zeros: &mut [u8],
) -> usize {
    // Beyond this there is nothing to look up.
    let Some(last_class) = (costs.len() / GROUPS).checked_sub(1) else { return 0 };
    let last_class = _mm256_set1_epi32(last_class as i32);
    let set = |n: i32| _mm256_set1_epi32(n);
    let (nothing, one, two) = (_mm256_setzero_si256(), set(1), set(2));
    // SAFETY: two quantizers with four shifts each fill a register.
    let shifts = unsafe { _mm256_loadu_si256(points.shifts().as_ptr().cast()) };
    let error = |distance: __m256i| {
        let near = _mm256_min_epi32(_mm256_abs_epi32(distance), set(1 << 14));
        // A square of sixteen bits, the upper half being zero.
        _mm256_srli_epi32::<4>(_mm256_madd_epi16(near, near))
    };
    let (targets, _) = targets.as_chunks::<WIDE>();
    let (classes, _) = classes.as_chunks::<WIDE>();
    let ((out, _), (zeros, _)) = (out.as_chunks_mut::<WIDE>(), zeros.as_chunks_mut::<WIDE>());
    let mut done = 0;
    for ((target, class), (out, zeros)) in targets.iter().zip(classes).zip(out.iter_mut().zip(zeros)) {
        // SAFETY: eight integers are as wide as a register, eight bytes as half of a short one.
        let (target, class) =
            unsafe { (_mm256_loadu_si256(target.as_ptr().cast()), _mm_loadl_epi64(class.as_ptr().cast())) };
        let class = _mm256_min_epi32(_mm256_cvtepu8_epi32(class), last_class);
        // As `raw_bits`.
        let raw_bits = _mm256_max_epi32(_mm256_sub_epi32(_mm256_srli_epi32::<2>(class), set(7)), nothing);
        let cost_of = |quantizer: i32, symbol: __m256i| {
            let context = _mm256_add_epi32(_mm256_slli_epi32::<5>(class), set(16 * quantizer));
            // SAFETY: contexts of classes up to the last one, symbols below sixteen.
            unsafe { _mm256_i32gather_epi32::<4>(costs.as_ptr().cast(), _mm256_add_epi32(context, symbol)) }
        };
        let zero_error = error(target);
        let cost = |quantizer: i32, parity: i32| {
            let from = _mm256_add_epi32(target, set(128 - 128 * parity + 64 * quantizer));
            let pairs = _mm256_srli_epi32::<8>(from);
            let magnitude = _mm256_or_si256(_mm256_slli_epi32::<1>(pairs), set(parity));
            let symbol = _mm256_min_epi32(_mm256_srlv_epi32(magnitude, raw_bits), set(15));
            let at = _mm256_or_si256(_mm256_min_epi32(magnitude, set(3)), set(4 * quantizer));
            let shift = _mm256_permutevar8x32_epi32(shifts, at);
            let distance = _mm256_add_epi32(_mm256_slli_epi32::<7>(magnitude), shift);
            _mm256_add_epi32(error(_mm256_sub_epi32(target, distance)), cost_of(quantizer, symbol))
        };
        let even = |quantizer: i32| {
            let (level, zero) =
                (cost(quantizer, 0), _mm256_add_epi32(zero_error, cost_of(quantizer, nothing)));
            (_mm256_min_epi32(level, zero), _mm256_cmpgt_epi32(level, zero))
        };
        let ((c0, zero0), c1) = (even(0), cost(0, 1));
        let ((c2, zero1), c3) = (even(1), cost(1, 1));
        let least = _mm256_min_epi32(_mm256_min_epi32(c0, c1), _mm256_min_epi32(c2, c3));
        let above = |c: __m256i| _mm256_min_epi32(_mm256_sub_epi32(c, least), set(LOST));
        let pair =
            |low: __m256i, high: __m256i| _mm256_or_si256(above(low), _mm256_slli_epi32::<16>(above(high)));
        let (first, second) = (pair(c0, c1), pair(c2, c3));
        let low = _mm256_unpacklo_epi32(first, second);
        let high = _mm256_unpackhi_epi32(first, second);
        let flags = _mm256_or_si256(_mm256_and_si256(zero0, one), _mm256_and_si256(zero1, two));
        let flags = _mm_packs_epi32(_mm256_castsi256_si128(flags), _mm256_extracti128_si256::<1>(flags));
        // SAFETY: eight candidates fill two registers, eight bytes half of a short one.
        unsafe {
            let out: *mut __m256i = out.as_mut_ptr().cast();
            _mm256_storeu_si256(out, _mm256_permute2x128_si256::<0x20>(low, high));
            _mm256_storeu_si256(out.add(1), _mm256_permute2x128_si256::<0x31>(low, high));
            _mm_storel_epi64(zeros.as_mut_ptr().cast(), _mm_packs_epi16(flags, flags));
        }
        done += WIDE;
    }
    done
}

/// Costs of even and of odd states, sixteen each.
#[derive(Clone, Copy)]
pub struct States {
    even: __m256i,
    odd: __m256i,
}

#[target_feature(enable = "avx2")]
#[inline]
pub fn load(costs: &[i16; 32]) -> States {
    let (low, high) = costs.split_at(16);
    // SAFETY: both halves hold 32 bytes.
    let (low, high) =
        unsafe { (_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())) };
    dealt(low, high)
}

/// States 0 to 15 and 16 to 31, dealt into even and odd ones.
#[target_feature(enable = "avx2")]
#[inline]
fn dealt(low: __m256i, high: __m256i) -> States {
    let mask = _mm256_set1_epi32(0xffff);
    let even = _mm256_packus_epi32(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask));
    let odd = _mm256_packus_epi32(_mm256_srli_epi32::<16>(low), _mm256_srli_epi32::<16>(high));
    // Packing goes half by half of a register.
    States { even: _mm256_permute4x64_epi64::<0xd8>(even), odd: _mm256_permute4x64_epi64::<0xd8>(odd) }
}

/// One stage; the decisions are bits in the order of [`bit`].
#[target_feature(enable = "avx2")]
#[inline]
pub fn step(states: States, value: &[i16; 4]) -> (States, u32) {
    let [c0, c1, c2, c3] = value.map(|c| _mm256_set1_epi16(c));
    // Into state t of the lower half lead 2 t and 2 (t ^ 4).
    let a = _mm256_add_epi16(states.even, c0);
    let b = _mm256_add_epi16(_mm256_shuffle_epi32::<0x4e>(states.even), c1);
    let low = _mm256_sub_epi16(b, a);
    // Into state 16 + t of the upper half lead 2 (t ^ 2) + 1 and 2 (t ^ 6) + 1.
    let c = _mm256_add_epi16(_mm256_shuffle_epi32::<0xb1>(states.odd), c2);
    let d = _mm256_add_epi16(_mm256_shuffle_epi32::<0x1b>(states.odd), c3);
    let high = _mm256_sub_epi16(d, c);
    let zero = _mm256_setzero_si256();
    let next_low = _mm256_add_epi16(a, _mm256_min_epi16(low, zero));
    let next_high = _mm256_add_epi16(c, _mm256_min_epi16(high, zero));
    let decisions = _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32;
    (dealt(next_low, next_high), decisions)
}

/// The bit of a state among the decisions.
#[inline(always)]
pub fn bit(state: usize) -> usize {
    (state & 7) | (state >> 1 & 8) | (state << 1 & 16)
}

/// The costs of all states in their order.
#[target_feature(enable = "avx2")]
#[inline]
pub fn store(states: States) -> [i16; 32] {
    let (mut even, mut odd) = ([0i16; 16], [0i16; 16]);
    // SAFETY: both arrays hold 32 bytes.
    unsafe {
        _mm256_storeu_si256(even.as_mut_ptr().cast(), states.even);
        _mm256_storeu_si256(odd.as_mut_ptr().cast(), states.odd);
    }
    std::array::from_fn(|state| if state % 2 == 0 { even[state / 2] } else { odd[state / 2] })
}
