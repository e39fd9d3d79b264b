//! The trellis search of 32 lanes, sixteen at a time: all survivors of a tile
//! stay in registers.
//!
//! The same decisions as the scalar search in `quantize`, which is the truth.
// Loads, gathers and stores are checked by slices or by what the caller passes, as each function states.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::entropy::line::registers::{LANES, WIDE, load, mask_of};
use crate::entropy::line::table::MAGNITUDES;
use crate::format::line::plan::LAST_CLASS;

/// Tables that are looked up in registers rather than in memory, at most.
const FEW: usize = 6;
/// Steps after which costs are taken from the least of them: they grow by less than 2^25 a step, and a path that
/// cannot be begins with 2^29.
const SETTLED: usize = 8;
/// Where the lanes whose even level is zero stand among the decisions of a step, for either quantizer.
const ZEROS: i32 = 8;

#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub cols: usize,
    /// What levels are to come near, in the units of the tile.
    pub targets: &'a [i32],
    pub classes: &'a [i32],
    pub row_classes: &'a [i32],
    pub lookup: [u32; 64],
    pub has_raw_bits: bool,
    /// What magnitudes cost, by table.
    pub rates: &'a [[i32; MAGNITUDES]],
    pub never: i32,
    pub far: i32,
}

/// Finds levels and the states that lanes end in. The decisions of a step are lanes: those that reached each state by
/// an odd level, then from [`ZEROS`] on those whose even level is zero.
///
/// # Safety
///
/// The processor has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
pub(crate) unsafe fn search<const S: usize, const H0: i32, const H1: i32>(
    job: &Job<'_>,
    states: &mut [u8],
    decisions: &mut Vec<[u16; WIDE]>,
    levels: &mut [i16],
) {
    for (half, states) in states.as_chunks_mut::<WIDE>().0.iter_mut().enumerate() {
        if job.cols <= WIDE * half {
            break;
        }
        // SAFETY: the same features as here.
        let ends = unsafe {
            match (job.has_raw_bits, job.rates.len() <= FEW) {
                (true, true) => forward::<S, H0, H1, true, true>(job, half, states, decisions),
                (true, false) => forward::<S, H0, H1, true, false>(job, half, states, decisions),
                (false, true) => forward::<S, H0, H1, false, true>(job, half, states, decisions),
                (false, false) => forward::<S, H0, H1, false, false>(job, half, states, decisions),
            }
        };
        // SAFETY: as above.
        unsafe { back::<S, H0, H1>(job, half, ends, decisions, levels) };
        let mut list = [0i32; WIDE];
        // SAFETY: the list holds sixteen.
        unsafe { _mm512_storeu_si512(list.as_mut_ptr().cast(), ends) };
        let used = job.cols - WIDE * half;
        states.iter_mut().zip(list).take(used).for_each(|(state, end)| *state = end as u8);
    }
}

/// Targets of a step; zeros in lanes without a column.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_targets(targets: &[i32], mask: __mmask16, half: usize) -> __m512i {
    let Some(targets) = targets.get(WIDE * half..) else { return _mm512_setzero_si512() };
    // SAFETY: lanes beyond the row are masked, and no others are touched.
    unsafe { _mm512_maskz_loadu_epi32(mask, targets.as_ptr()) }
}

/// Extends all survivors through all steps; the best states to end in.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn forward<const S: usize, const H0: i32, const H1: i32, const RAW: bool, const FEW: bool>(
    job: &Job<'_>,
    half: usize,
    states: &[u8; WIDE],
    decisions: &mut Vec<[u16; WIDE]>,
) -> __m512i {
    let set = |value: i32| _mm512_set1_epi32(value);
    let (zero, never) = (_mm512_setzero_si512(), set(job.never));
    let table = &job.lookup;
    let lookup = [load(table), load(&table[16..]), load(&table[32..]), load(&table[48..])];
    let zero_rates: [i32; WIDE] =
        std::array::from_fn(|table| job.rates.get(table).map_or(0, |rates| rates[0]));
    // SAFETY: sixteen of them.
    let zero_rates = unsafe { _mm512_loadu_si512(zero_rates.as_ptr().cast()) };
    let starts: [i32; WIDE] = states.map(i32::from);
    // SAFETY: sixteen of them.
    let starts = unsafe { _mm512_loadu_si512(starts.as_ptr().cast()) };
    let mut costs = [never; S];
    for (state, cost) in costs.iter_mut().enumerate() {
        *cost = _mm512_mask_mov_epi32(never, _mm512_cmpeq_epi32_mask(starts, set(state as i32)), zero);
    }
    decisions.clear();
    for (row, &row_class) in job.row_classes.iter().enumerate() {
        let row_class = set(row_class);
        let targets = &job.targets[row * job.cols..][..job.cols];
        for first in (0..job.cols).step_by(LANES) {
            let mask = mask_of(job.cols, first, half);
            let target = load_targets(&targets[first..], mask, half);
            let mut found = zero;
            // A single pair of tables is that of all classes.
            if RAW || !FEW || job.rates.len() > 2 {
                // SAFETY: classes are there for whole steps.
                let column =
                    unsafe { _mm512_loadu_si512(job.classes[first + WIDE * half..][..WIDE].as_ptr().cast()) };
                let class = _mm512_add_epi32(column, row_class);
                let class = _mm512_min_epi32(_mm512_max_epi32(class, zero), set(LAST_CLASS));
                let low_half = _mm512_permutex2var_epi32(lookup[0], class, lookup[1]);
                let high_half = _mm512_permutex2var_epi32(lookup[2], class, lookup[3]);
                let upper = _mm512_cmpge_epi32_mask(class, set(32));
                found = _mm512_mask_blend_epi32(upper, low_half, high_half);
            }
            let (subsets, zeros) = candidates::<RAW, FEW>(job, target, found, zero_rates);
            let mut next = [zero; S];
            let mut decided = [0u16; WIDE];
            decided[ZEROS as usize..][..2].copy_from_slice(&zeros);
            for state in 0..S {
                let (quantizer, base) = if state < S / 2 { (0, state) } else { (1, state ^ H0 as usize) };
                let even = _mm512_add_epi32(costs[2 * base + quantizer], subsets[2 * quantizer]);
                let odd =
                    _mm512_add_epi32(costs[2 * (base ^ H1 as usize) + quantizer], subsets[2 * quantizer + 1]);
                next[state] = _mm512_min_epi32(even, odd);
                decided[state] = _mm512_cmplt_epi32_mask(odd, even);
            }
            if decisions.len() % SETTLED == SETTLED - 1 {
                let mut least = next[0];
                for cost in &next[1..] {
                    least = _mm512_min_epi32(least, *cost);
                }
                for cost in &mut next {
                    *cost = _mm512_min_epi32(_mm512_sub_epi32(*cost, least), never);
                }
            }
            for state in 0..S {
                costs[state] = _mm512_mask_mov_epi32(costs[state], mask, next[state]);
            }
            decisions.push(decided);
        }
    }
    let (mut ends, mut least) = (zero, costs[0]);
    for state in 1..S {
        let less = _mm512_cmplt_epi32_mask(costs[state], least);
        ends = _mm512_mask_mov_epi32(ends, less, set(state as i32));
        least = _mm512_min_epi32(least, costs[state]);
    }
    ends
}

/// Costs of the nearest levels by quantizer and parity, and where a zero costs less.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn candidates<const RAW: bool, const FEW: bool>(
    job: &Job<'_>,
    target: __m512i,
    found: __m512i,
    zero_rates: __m512i,
) -> ([__m512i; 4], [__mmask16; 2]) {
    let set = |value: i32| _mm512_set1_epi32(value);
    let zero = _mm512_setzero_si512();
    let square = |distance: __m512i| {
        // Sixteen bits are enough for what is cut off there.
        let near = _mm512_min_epi32(_mm512_abs_epi32(distance), set(job.far));
        _mm512_madd_epi16(near, near)
    };
    let magnitude = _mm512_abs_epi32(target);
    let first = _mm512_and_si512(found, set(0xff));
    let raw_bits = _mm512_srli_epi32::<24>(found);
    let middle = _mm512_srli_epi32::<1>(_mm512_sllv_epi32(set(1), raw_bits));
    let negative = _mm512_movepi32_mask(target);
    let nothing = square(magnitude);
    let (mut subsets, mut zeros) = ([zero; 4], [0; 2]);
    for quantizer in 0..2 {
        let table = _mm512_add_epi32(first, set(quantizer));
        let base = _mm512_slli_epi32::<4>(table);
        let silent = _mm512_add_epi32(nothing, _mm512_permutexvar_epi32(table, zero_rates));
        for parity in 0..2 {
            let level = nearest(magnitude, set(32 + 16 * quantizer - 32 * parity), set(parity));
            let point = _mm512_sub_epi32(_mm512_slli_epi32::<5>(level), set(16 * quantizer));
            let point = if quantizer == 1 && parity == 0 {
                _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(level, level), point)
            } else {
                point
            };
            let symbol = if RAW {
                let signed = _mm512_mask_sub_epi32(level, negative, zero, level);
                _mm512_abs_epi32(_mm512_srav_epi32(_mm512_add_epi32(signed, middle), raw_bits))
            } else {
                level
            };
            let symbol = _mm512_min_epi32(symbol, set(MAGNITUDES as i32 - 1));
            let rate = if FEW {
                among(job.rates, quantizer as usize, first, symbol)
            } else {
                let place = _mm512_add_epi32(base, symbol);
                // SAFETY: `lookup` names pairs of tables that are there; a symbol is below 16.
                unsafe { _mm512_i32gather_epi32::<4>(place, job.rates.as_ptr().cast()) }
            };
            let cost = _mm512_add_epi32(square(_mm512_sub_epi32(magnitude, point)), rate);
            let subset = (2 * quantizer + parity) as usize;
            subsets[subset] = cost;
            if parity == 0 {
                zeros[quantizer as usize] = _mm512_cmplt_epi32_mask(silent, cost);
                subsets[subset] = _mm512_min_epi32(silent, cost);
            }
        }
    }
    (subsets, zeros)
}

/// Rates of symbols in the tables of a quantizer, of pairs that begin with table `first`.
#[inline]
#[target_feature(enable = "avx512f")]
fn among(rates: &[[i32; MAGNITUDES]], quantizer: usize, first: __m512i, symbol: __m512i) -> __m512i {
    let mut rate = _mm512_setzero_si512();
    for (pair, tables) in rates.as_chunks::<2>().0.iter().enumerate() {
        // SAFETY: a table has sixteen rates.
        let own = unsafe { _mm512_loadu_si512(tables[quantizer].as_ptr().cast()) };
        let own = _mm512_permutexvar_epi32(symbol, own);
        let is_own = _mm512_cmpeq_epi32_mask(first, _mm512_set1_epi32(2 * pair as i32));
        rate = if pair == 0 { own } else { _mm512_mask_mov_epi32(rate, is_own, own) };
    }
    rate
}

/// The nearest magnitude of a quantizer and parity; `offset` is 32 + 16 quantizer − 32 parity.
#[inline]
#[target_feature(enable = "avx512f")]
fn nearest(magnitude: __m512i, offset: __m512i, parity: __m512i) -> __m512i {
    let halves = _mm512_srai_epi32::<6>(_mm512_add_epi32(magnitude, offset));
    _mm512_add_epi32(_mm512_slli_epi32::<1>(halves), parity)
}

/// Walks the best paths back and writes their levels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn back<const S: usize, const H0: i32, const H1: i32>(
    job: &Job<'_>,
    half: usize,
    ends: __m512i,
    decisions: &[[u16; WIDE]],
    levels: &mut [i16],
) {
    let set = |value: i32| _mm512_set1_epi32(value);
    let (zero, one) = (_mm512_setzero_si512(), set(1));
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut state = ends;
    let mut kept = decisions.iter().rev();
    for row in (0..job.row_classes.len()).rev() {
        let targets = &job.targets[row * job.cols..][..job.cols];
        let levels = &mut levels[row * job.cols..][..job.cols];
        for (first, kept) in (0..job.cols).step_by(LANES).rev().zip(&mut kept) {
            let mask = mask_of(job.cols, first, half);
            let target = load_targets(&targets[first..], mask, half);
            // SAFETY: sixteen of them.
            let decided = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(kept.as_ptr().cast()) });
            // Whether a lane is among those of its place.
            let is_among = |place: __m512i| {
                _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(place, decided), lanes), one)
            };
            let odd = is_among(state);
            let second = _mm512_cmpge_epi32_mask(state, set(S as i32 / 2));
            let quantizer = _mm512_maskz_mov_epi32(second, one);
            let base = _mm512_xor_si512(state, _mm512_maskz_mov_epi32(second, set(H0)));
            let silent = is_among(_mm512_add_epi32(quantizer, set(ZEROS)));
            let silent = _mm512_test_epi32_mask(_mm512_andnot_si512(odd, silent), one);
            let offset = _mm512_sub_epi32(
                _mm512_add_epi32(set(32), _mm512_slli_epi32::<4>(quantizer)),
                _mm512_slli_epi32::<5>(odd),
            );
            let level = nearest(_mm512_abs_epi32(target), offset, odd);
            let level = _mm512_maskz_mov_epi32(!silent, level);
            let signed = _mm512_mask_sub_epi32(level, _mm512_movepi32_mask(target), zero, level);
            let turned = _mm512_and_si512(_mm512_sub_epi32(zero, odd), set(H1));
            let before = _mm512_slli_epi32::<1>(_mm512_xor_si512(base, turned));
            let before = _mm512_add_epi32(before, quantizer);
            state = _mm512_mask_mov_epi32(state, mask, before);
            if let Some(out) = levels[first..].get_mut(WIDE * half..) {
                // SAFETY: lanes beyond the row are masked.
                unsafe { _mm512_mask_cvtepi32_storeu_epi16(out.as_mut_ptr().cast(), mask, signed) };
            }
        }
    }
}
