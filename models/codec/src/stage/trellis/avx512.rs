//! Candidates of sixteen values at a time, Viterbi over 32 states with all of them in one register, and the way
//! back in all lanes at once.
//!
//! [`super::candidates`], [`super::step`] and [`super::trace`] are the truth; this is the same arithmetic. Tests
//! compare both.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use super::points::{Candidates, Costs, GROUPS, LOST, Points};
use crate::entropy::rans::LANES;
use std::arch::x86_64::*;

/// Values of a register.
const WIDE: usize = 16;
/// Classes whose costs are looked up in registers, at most.
const FEW: usize = 4;

/// As [`super::candidates`] of as many values as fill registers; returns how many those are.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
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
    // SAFETY: two quantizers with four shifts each are half as wide as a register.
    let shifts = unsafe { _mm256_loadu_si256(points.shifts().as_ptr().cast()) };
    let shifts = _mm512_castsi256_si512(shifts);
    let (targets, _) = targets.as_chunks::<WIDE>();
    let (classes, _) = classes.as_chunks::<WIDE>();
    let ((out, _), (zeros, _)) = (out.as_chunks_mut::<WIDE>(), zeros.as_chunks_mut::<WIDE>());
    if classes.is_empty() {
        return 0;
    }
    // Few classes are looked up in registers: a gather takes as long as many tables.
    let (least, most) = bounds(classes);
    let few = most <= last_class && most < least + FEW;
    let rows = |quantizer: usize| -> [__m512i; FEW] {
        std::array::from_fn(|at| {
            let class = (least + at).min(last_class);
            // SAFETY: a context has sixteen costs.
            unsafe { _mm512_loadu_si512(costs[GROUPS * class + quantizer].as_ptr().cast()) }
        })
    };
    let rows = [rows(0), rows(1)];
    let used = if few { most - least } else { 0 };
    let mut done = 0;
    for ((target, class), (out, zeros)) in targets.iter().zip(classes).zip(out.iter_mut().zip(zeros)) {
        // SAFETY: sixteen integers are as wide as a register, sixteen bytes as a short one.
        let (target, bytes) =
            unsafe { (_mm512_loadu_si512(target.as_ptr().cast()), _mm_loadu_si128(class.as_ptr().cast())) };
        let class = _mm512_min_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(last_class as i32));
        let looked_up = if few {
            let mut own = [0; FEW];
            for (at, own) in own.iter_mut().enumerate() {
                *own = _mm512_cmpeq_epi32_mask(class, _mm512_set1_epi32((least + at) as i32));
            }
            cheapest_of(target, class, shifts, |quantizer, symbol| {
                let rows = &rows[quantizer];
                let mut found = _mm512_permutexvar_epi32(symbol, rows[0]);
                if used > 0 {
                    found = _mm512_mask_permutexvar_epi32(found, own[1], symbol, rows[1]);
                }
                if used > 1 {
                    found = _mm512_mask_permutexvar_epi32(found, own[2], symbol, rows[2]);
                    found = _mm512_mask_permutexvar_epi32(found, own[3], symbol, rows[3]);
                }
                found
            })
        } else {
            let base = _mm512_slli_epi32::<5>(class);
            cheapest_of(target, class, shifts, |quantizer, symbol| {
                let context = _mm512_add_epi32(base, _mm512_set1_epi32(16 * quantizer as i32));
                // SAFETY: contexts of classes up to the last one, symbols below sixteen.
                unsafe {
                    _mm512_i32gather_epi32::<4>(_mm512_add_epi32(context, symbol), costs.as_ptr().cast())
                }
            })
        };
        let ([c0, c1, c2, c3], [zero0, zero1]) = looked_up;
        let least = _mm512_min_epi32(_mm512_min_epi32(c0, c1), _mm512_min_epi32(c2, c3));
        let above = |c: __m512i| _mm512_min_epi32(_mm512_sub_epi32(c, least), _mm512_set1_epi32(LOST));
        let pair =
            |low: __m512i, high: __m512i| _mm512_or_si512(above(low), _mm512_slli_epi32::<16>(above(high)));
        let (first, second) = (pair(c0, c1), pair(c2, c3));
        let (low, high) = (_mm512_unpacklo_epi32(first, second), _mm512_unpackhi_epi32(first, second));
        let front = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
        let back = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
        let flags = _mm_or_si128(_mm_maskz_set1_epi8(zero0, 1), _mm_maskz_set1_epi8(zero1, 2));
        // SAFETY: sixteen candidates fill two registers, sixteen bytes a short one.
        unsafe {
            let out: *mut __m512i = out.as_mut_ptr().cast();
            _mm512_storeu_si512(out, front);
            _mm512_storeu_si512(out.add(1), back);
            _mm_storeu_si128(zeros.as_mut_ptr().cast(), flags);
        }
        done += WIDE;
    }
    done
}

/// The least and the largest of some classes.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
fn bounds(classes: &[[u8; WIDE]]) -> (usize, usize) {
    let (mut least, mut most) = (_mm_set1_epi8(-1), _mm_setzero_si128());
    for class in classes {
        // SAFETY: sixteen bytes fill a short register.
        let class = unsafe { _mm_loadu_si128(class.as_ptr().cast()) };
        (least, most) = (_mm_min_epu8(least, class), _mm_max_epu8(most, class));
    }
    let (mut of_least, mut of_most) = ([0u8; WIDE], [0u8; WIDE]);
    // SAFETY: as above.
    unsafe {
        _mm_storeu_si128(of_least.as_mut_ptr().cast(), least);
        _mm_storeu_si128(of_most.as_mut_ptr().cast(), most);
    }
    let least = of_least.into_iter().fold(u8::MAX, u8::min);
    (usize::from(least), usize::from(of_most.into_iter().fold(0, u8::max)))
}

/// What the nearest level of each quantizer and parity costs, or zero where that is cheaper; and where it is.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn cheapest_of(
    target: __m512i,
    class: __m512i,
    shifts: __m512i,
    cost_of: impl Fn(usize, __m512i) -> __m512i,
) -> ([__m512i; 4], [__mmask16; 2]) {
    let set = |n: i32| _mm512_set1_epi32(n);
    let nothing = _mm512_setzero_si512();
    let error = |distance: __m512i| {
        let near = _mm512_min_epi32(_mm512_abs_epi32(distance), set(1 << 14));
        // A square of sixteen bits, the upper half being zero.
        _mm512_srli_epi32::<4>(_mm512_madd_epi16(near, near))
    };
    // As `raw_bits`.
    let raw_bits = _mm512_max_epi32(_mm512_sub_epi32(_mm512_srli_epi32::<2>(class), set(7)), nothing);
    let mut errors = [error(target); 6];
    // Of zeros first, then of levels by quantizer and parity.
    let mut symbols = [nothing; 6];
    for subset in 0..4 {
        let (quantizer, parity) = (subset as i32 >> 1, subset as i32 & 1);
        let from = _mm512_add_epi32(target, set(128 - 128 * parity + 64 * quantizer));
        let pairs = _mm512_srli_epi32::<8>(from);
        let magnitude = _mm512_or_si512(_mm512_slli_epi32::<1>(pairs), set(parity));
        symbols[2 + subset] = _mm512_min_epi32(_mm512_srlv_epi32(magnitude, raw_bits), set(15));
        let at = _mm512_or_si512(_mm512_min_epi32(magnitude, set(3)), set(4 * quantizer));
        let shift = _mm512_permutexvar_epi32(at, shifts);
        let distance = _mm512_add_epi32(_mm512_slli_epi32::<7>(magnitude), shift);
        errors[2 + subset] = error(_mm512_sub_epi32(target, distance));
    }
    // In one place, so that what looks up is copied here.
    const QUANTIZERS: [usize; 6] = [0, 1, 0, 0, 1, 1];
    let mut costs = errors;
    for at in 0..6 {
        costs[at] = _mm512_add_epi32(errors[at], cost_of(QUANTIZERS[at], symbols[at]));
    }
    let [zero0, zero1, c0, c1, c2, c3] = costs;
    let is_zero = [_mm512_cmpgt_epi32_mask(c0, zero0), _mm512_cmpgt_epi32_mask(c2, zero1)];
    ([_mm512_min_epi32(c0, zero0), c1, _mm512_min_epi32(c2, zero1), c3], is_zero)
}

/// Costs of all states: of even ones, then of odd ones, state 2 (i ^ 2) + 1 in place 16 + i.
#[derive(Clone, Copy)]
pub struct States(__m512i);

/// The state in each place of [`States`].
const PLACES: [i16; 32] = {
    let mut places = [0; 32];
    let mut i = 0;
    while i < 16 {
        places[i] = 2 * i as i16;
        places[16 + i] = 2 * (i as i16 ^ 2) + 1;
        i += 1;
    }
    places
};

/// Bytes of a value's candidates that ways into the lower and the upper half of the states cost: by an even level
/// (0 and 2) or an odd one (1 and 3).
const fn bytes_of(low: i8, high: i8) -> [i8; 64] {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = 2 * (if i < 32 { low } else { high }) + (i % 2) as i8;
        i += 1;
    }
    bytes
}

const EVEN: [i8; 64] = bytes_of(0, 2);
const ODD: [i8; 64] = bytes_of(1, 3);

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub fn load(costs: &[i16; 32]) -> States {
    // SAFETY: 32 costs, and as many places, fill a register.
    let (places, costs) =
        unsafe { (_mm512_loadu_si512(PLACES.as_ptr().cast()), _mm512_loadu_si512(costs.as_ptr().cast())) };
    States(_mm512_permutexvar_epi16(places, costs))
}

/// The costs of all states in their order.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub fn store(states: States) -> [i16; 32] {
    let mut placed = [0i16; 32];
    // SAFETY: 32 costs fill a register.
    unsafe { _mm512_storeu_si512(placed.as_mut_ptr().cast(), states.0) };
    let mut costs = [0; 32];
    PLACES.iter().zip(placed).for_each(|(&place, cost)| costs[place as usize] = cost);
    costs
}

/// One stage; bit t of the decisions is that of state t.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub fn step(States(costs): States, value: &Candidates) -> (States, u32) {
    // SAFETY: tables of 64 bytes fill a register, and four candidates an integer of 64 bits.
    let (places, even, odd, value) = unsafe {
        (
            _mm512_loadu_si512(PLACES.as_ptr().cast()),
            _mm512_loadu_si512(EVEN.as_ptr().cast()),
            _mm512_loadu_si512(ODD.as_ptr().cast()),
            _mm512_set1_epi64(value.as_ptr().cast::<i64>().read_unaligned()),
        )
    };
    // Into state t of the lower half lead 2 t and 2 (t ^ 4); into state 16 + t of the upper one 2 (t ^ 2) + 1 and
    // 2 (t ^ 6) + 1.
    let even = _mm512_add_epi16(costs, _mm512_shuffle_epi8(value, even));
    let odd = _mm512_add_epi16(_mm512_shuffle_epi32::<0x4e>(costs), _mm512_shuffle_epi8(value, odd));
    let less = _mm512_movepi16_mask(_mm512_sub_epi16(odd, even));
    let next = _mm512_mask_blend_epi16(less, even, odd);
    (States(_mm512_permutexvar_epi16(places, next)), less)
}

/// As [`super::trace`] for 32 states, of decisions as [`step`] gives them.
#[target_feature(enable = "avx512f,avx512vl,avx2")]
pub fn trace(ends: [usize; LANES], decisions: &[[u32; LANES]], subsets: &mut [[u8; LANES]]) {
    let [a, b, c, d] = ends.map(|end| end as i32);
    let mut state = _mm_setr_epi32(a, b, c, d);
    let (one, even_part) = (_mm_set1_epi32(1), _mm_set1_epi32(30));
    for (decisions, subset) in decisions.iter().zip(subsets).rev() {
        // SAFETY: four integers fill a short register.
        let decisions = unsafe { _mm_loadu_si128(decisions.as_ptr().cast()) };
        let parity = _mm_and_si128(_mm_srlv_epi32(decisions, state), one);
        let odd = _mm_srli_epi32::<4>(state);
        let packed = _mm_cvtepi32_epi8(_mm_or_si128(_mm_slli_epi32::<1>(odd), parity));
        *subset = _mm_cvtsi128_si32(packed).to_le_bytes();
        // Twice the place within a half, turned by 2 in the upper one and by 4 for an odd level, and the half.
        let turned = _mm_or_si128(_mm_slli_epi32::<2>(odd), odd);
        let before = _mm_xor_si128(_mm_and_si128(_mm_slli_epi32::<1>(state), even_part), turned);
        state = _mm_xor_si128(before, _mm_slli_epi32::<3>(parity));
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace as plain_trace;
    use super::*;
    use trinity_numeric::random::Lcg;
    use trinity_numeric::simd::Width;

    #[test]
    fn registers_and_arrays_walk_a_path_back_alike() {
        if Width::widest() != Width::Avx512 {
            eprintln!("no AVX-512 here: nothing to compare");
            return;
        }
        let mut lcg = Lcg(1);
        let decided: Vec<[u32; LANES]> =
            (0..125).map(|_| [(); LANES].map(|_| (lcg.state() >> 32) as u32)).collect();
        let ends = [31, 0, 17, 6];
        let (mut ours, mut truth) = (vec![[9; LANES]; decided.len()], vec![[9; LANES]; decided.len()]);
        // SAFETY: the processor has AVX-512.
        unsafe { trace(ends, &decided, &mut ours) };
        let parity = |i: usize, lane: usize, state: usize| (decided[i][lane] >> state & 1) as usize;
        plain_trace::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(ends, parity, &mut truth);
        assert_eq!(ours, truth);
    }
}
