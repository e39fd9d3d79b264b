//! The trellis search of 32 lanes in one register: costs, targets and decisions in sixteen bits.
//!
//! What a step adds to a path is small: a level of the right parity is within 32 units, and a rate is bounded
//! ([`DEAREST`]). Rows with raw bits and targets beyond sixteen bits are left to `avx512`. The same decisions
//! as the scalar search in `quantize`, which is the truth.
// Loads and stores are checked by slices, or masked to what slices hold, as each function states.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::entropy::line::registers::LANES;
use crate::entropy::line::table::MAGNITUDES;
use crate::format::line::plan::LAST_CLASS;

/// The most that a magnitude may cost here: a step then adds at most 2^12 to the least cost of a state, with the square
/// of the 32 units that a level is off.
pub(crate) const DEAREST: i32 = (1 << 12) - 32 * 32;
/// Where a path begins that cannot be: above all that can be, which are at most three steps from each other.
const NEVER: i16 = 16_000;
/// Steps after which costs are taken from the least of them: until then they stay within sixteen bits.
const SETTLED: usize = 4;
/// Targets up to this are searched here.
const LARGEST: i16 = 32_000;
/// Magnitudes up to this are squared: a zero in place of a larger one costs more than any level.
const NEAR: i16 = 127;
/// Bits of a decision that say whether the even level of either quantizer is zero; those below are the states'.
const ZEROS: u32 = 8;

#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub cols: usize,
    /// What levels are to come near, in the units of the tile.
    pub targets: &'a [i32],
    pub classes: &'a [i16],
    pub row_classes: &'a [i32],
    pub lookup: [u32; 64],
    /// What magnitudes cost, by table, at most [`DEAREST`]; of eight pairs at most.
    pub rates: &'a [[i32; MAGNITUDES]],
}

/// Finds levels and the states that lanes end in; false where a target is too large, and the levels are of no meaning.
/// The decisions of a step are bits of lanes.
///
/// # Safety
///
/// The processor has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
pub(crate) unsafe fn search<const S: usize, const H0: i16, const H1: i16>(
    job: &Job<'_>,
    states: &mut [u8; LANES],
    decisions: &mut Vec<[u16; LANES]>,
    levels: &mut [i16],
) -> bool {
    // SAFETY: the same features as here.
    let ends = unsafe {
        match job.rates.len() / 2 {
            0 | 1 => forward::<S, H0, H1, 1>(job, states, decisions, levels),
            2 => forward::<S, H0, H1, 2>(job, states, decisions, levels),
            3 | 4 => forward::<S, H0, H1, 4>(job, states, decisions, levels),
            _ => forward::<S, H0, H1, 8>(job, states, decisions, levels),
        }
    };
    let Some(ends) = ends else { return false };
    // SAFETY: as above.
    unsafe { back::<S, H0, H1>(job, ends, decisions, levels) };
    let mut list = [0i16; LANES];
    // SAFETY: the list holds 32.
    unsafe { _mm512_storeu_si512(list.as_mut_ptr().cast(), ends) };
    states.iter_mut().zip(list).take(job.cols).for_each(|(state, end)| *state = end as u8);
    true
}

/// Lanes that have a column in the step that starts there.
#[inline]
fn mask_of(cols: usize, first: usize) -> __mmask32 {
    let left = cols - first;
    if left >= LANES { __mmask32::MAX } else { (1 << left) - 1 }
}

/// Targets of a step in sixteen bits, the nearest where they are beyond them; zeros in lanes without a column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_targets(targets: &[i32], mask: __mmask32) -> __m512i {
    // SAFETY: lanes beyond the row are masked, and no others are touched.
    let low = unsafe { _mm512_maskz_loadu_epi32(mask as __mmask16, targets.as_ptr()) };
    let high = match targets.get(16..) {
        // SAFETY: as above.
        Some(targets) => unsafe { _mm512_maskz_loadu_epi32((mask >> 16) as __mmask16, targets.as_ptr()) },
        None => _mm512_setzero_si512(),
    };
    // Four of one half and four of the other come in turn.
    let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_permutexvar_epi64(order, _mm512_packs_epi32(low, high))
}

/// What magnitudes cost under a quantizer: two pairs of tables in each register.
#[target_feature(enable = "avx512f")]
fn tables(rates: &[[i32; MAGNITUDES]], quantizer: usize) -> [__m512i; 4] {
    let mut tables = [_mm512_setzero_si512(); 4];
    for (at, table) in tables.iter_mut().enumerate() {
        let mut list = [0i16; LANES];
        for (pair, list) in (2 * at..).zip(list.as_chunks_mut::<MAGNITUDES>().0) {
            let own = rates.get(2 * pair + quantizer).unwrap_or(&[0; MAGNITUDES]);
            list.iter_mut().zip(own).for_each(|(place, &rate)| *place = rate as i16);
        }
        // SAFETY: 32 of them.
        *table = unsafe { _mm512_loadu_si512(list.as_ptr().cast()) };
    }
    tables
}

/// Rates at some places, a magnitude in the four lowest bits and a pair of tables above it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn rate<const PAIRS: usize>(tables: &[__m512i; 4], place: __m512i) -> __m512i {
    match PAIRS {
        1 | 2 => _mm512_permutexvar_epi16(place, tables[0]),
        4 => _mm512_permutex2var_epi16(tables[0], place, tables[1]),
        _ => {
            let upper = _mm512_test_epi16_mask(place, _mm512_set1_epi16(64));
            let low = _mm512_permutex2var_epi16(tables[0], place, tables[1]);
            let high = _mm512_permutex2var_epi16(tables[2], place, tables[3]);
            _mm512_mask_mov_epi16(low, upper, high)
        }
    }
}

/// Extends all survivors through all steps; the best states to end in. Leaves the targets among the levels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn forward<const S: usize, const H0: i16, const H1: i16, const PAIRS: usize>(
    job: &Job<'_>,
    states: &[u8; LANES],
    decisions: &mut Vec<[u16; LANES]>,
    levels: &mut [i16],
) -> Option<__m512i> {
    let set = |value: i16| _mm512_set1_epi16(value);
    let (zero, never) = (_mm512_setzero_si512(), set(NEVER));
    let tables = [tables(job.rates, 0), tables(job.rates, 1)];
    // The place of each class' tables among the rates.
    let lookup = job.lookup.map(|found| ((found & 0xff) / 2 * MAGNITUDES as u32) as i16);
    // SAFETY: 32 of 64 each.
    let (low_classes, high_classes) = unsafe {
        (_mm512_loadu_si512(lookup.as_ptr().cast()), _mm512_loadu_si512(lookup[LANES..].as_ptr().cast()))
    };
    let starts: [i16; LANES] = states.map(i16::from);
    // SAFETY: 32 of them.
    let starts = unsafe { _mm512_loadu_si512(starts.as_ptr().cast()) };
    let mut costs = [never; S];
    for (state, cost) in costs.iter_mut().enumerate() {
        *cost = _mm512_mask_mov_epi16(never, _mm512_cmpeq_epi16_mask(starts, set(state as i16)), zero);
    }
    let mut largest = zero;
    decisions.clear();
    decisions.reserve(job.row_classes.len() * job.cols.div_ceil(LANES));
    for (row, &row_class) in job.row_classes.iter().enumerate() {
        let row_class = set(row_class.clamp(i16::MIN.into(), i16::MAX.into()) as i16);
        let targets = &job.targets[row * job.cols..][..job.cols];
        let levels = &mut levels[row * job.cols..][..job.cols];
        for first in (0..job.cols).step_by(LANES) {
            let mask = mask_of(job.cols, first);
            let target = load_targets(&targets[first..], mask);
            // SAFETY: lanes beyond the row are masked.
            unsafe { _mm512_mask_storeu_epi16(levels[first..].as_mut_ptr(), mask, target) };
            let mut pair = zero;
            if PAIRS > 1 {
                // SAFETY: classes are there for whole steps.
                let column = unsafe { _mm512_loadu_si512(job.classes[first..][..LANES].as_ptr().cast()) };
                let class = _mm512_max_epi16(_mm512_adds_epi16(column, row_class), zero);
                let class = _mm512_min_epi16(class, set(LAST_CLASS as i16));
                pair = _mm512_permutex2var_epi16(low_classes, class, high_classes);
            }
            let magnitude = _mm512_abs_epi16(target);
            largest = _mm512_max_epu16(largest, magnitude);
            let (subsets, mut decided) = candidates::<PAIRS>(magnitude, pair, &tables);
            let mut next = [zero; S];
            for state in 0..S {
                let (quantizer, base) = if state < S / 2 { (0, state) } else { (1, state ^ H0 as usize) };
                let even = _mm512_add_epi16(costs[2 * base + quantizer], subsets[2 * quantizer]);
                let odd =
                    _mm512_add_epi16(costs[2 * (base ^ H1 as usize) + quantizer], subsets[2 * quantizer + 1]);
                next[state] = _mm512_min_epi16(even, odd);
                let by_odd = _mm512_cmplt_epi16_mask(odd, even);
                decided = _mm512_mask_add_epi16(decided, by_odd, decided, set(1 << state));
            }
            if mask != __mmask32::MAX {
                for (next, &cost) in next.iter_mut().zip(&costs) {
                    *next = _mm512_mask_mov_epi16(cost, mask, *next);
                }
            }
            costs = next;
            // Lanes without a column, too: theirs may be the turn of a step that they have no part in.
            if decisions.len() % SETTLED == SETTLED - 1 {
                let mut least = costs[0];
                for cost in &costs[1..] {
                    least = _mm512_min_epi16(least, *cost);
                }
                for cost in &mut costs {
                    *cost = _mm512_min_epi16(_mm512_sub_epi16(*cost, least), never);
                }
            }
            let mut kept = [0; LANES];
            // SAFETY: room for 32.
            unsafe { _mm512_storeu_si512(kept.as_mut_ptr().cast(), decided) };
            decisions.push(kept);
        }
    }
    let (mut ends, mut least) = (zero, costs[0]);
    for state in 1..S {
        let less = _mm512_cmplt_epi16_mask(costs[state], least);
        ends = _mm512_mask_mov_epi16(ends, less, set(state as i16));
        least = _mm512_min_epi16(least, costs[state]);
    }
    (_mm512_cmpgt_epu16_mask(largest, set(LARGEST)) == 0).then_some(ends)
}

/// Costs of the nearest levels by quantizer and parity, and bits from [`ZEROS`] on where a zero costs less.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn candidates<const PAIRS: usize>(
    magnitude: __m512i,
    pair: __m512i,
    tables: &[[__m512i; 4]; 2],
) -> ([__m512i; 4], __m512i) {
    let set = |value: i16| _mm512_set1_epi16(value);
    let zero = _mm512_setzero_si512();
    let square = |distance: __m512i| _mm512_mullo_epi16(distance, distance);
    let nothing = square(_mm512_min_epi16(magnitude, set(NEAR)));
    let (mut subsets, mut decided) = ([zero; 4], zero);
    for quantizer in 0..2 {
        let rates = &tables[quantizer];
        let odd_raised = _mm512_add_epi16(magnitude, set(16 * quantizer as i16));
        let even_raised = _mm512_add_epi16(odd_raised, set(32));
        for (parity, raised) in [even_raised, odd_raised].into_iter().enumerate() {
            // Levels of a parity are 64 units apart; the nearest is as far off as what is left says. Of a magnitude
            // whose even level is the zero of the second quantizer it says more, and the zero below is taken.
            let level =
                _mm512_add_epi16(_mm512_slli_epi16::<1>(_mm512_srli_epi16::<6>(raised)), set(parity as i16));
            let away = _mm512_sub_epi16(_mm512_and_si512(raised, set(63)), set(32));
            let symbol = _mm512_min_epi16(level, set(MAGNITUDES as i16 - 1));
            let own = rate::<PAIRS>(rates, _mm512_or_si512(symbol, pair));
            subsets[2 * quantizer + parity] = _mm512_add_epi16(square(away), own);
        }
        let even = &mut subsets[2 * quantizer];
        let silent = _mm512_add_epi16(nothing, rate::<PAIRS>(rates, pair));
        let is_silent = _mm512_cmplt_epi16_mask(silent, *even);
        decided = _mm512_mask_add_epi16(decided, is_silent, decided, set(1 << (ZEROS + quantizer as u32)));
        *even = _mm512_min_epi16(silent, *even);
    }
    (subsets, decided)
}

/// Walks the best paths back and writes their levels in place of their targets.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn back<const S: usize, const H0: i16, const H1: i16>(
    job: &Job<'_>,
    ends: __m512i,
    decisions: &[[u16; LANES]],
    levels: &mut [i16],
) {
    let set = |value: i16| _mm512_set1_epi16(value);
    let (zero, one) = (_mm512_setzero_si512(), set(1));
    let mut state = ends;
    let mut kept = decisions.iter().rev();
    for row in (0..job.row_classes.len()).rev() {
        let levels = &mut levels[row * job.cols..][..job.cols];
        for (first, kept) in (0..job.cols).step_by(LANES).rev().zip(&mut kept) {
            let mask = mask_of(job.cols, first);
            let levels = &mut levels[first..];
            // SAFETY: lanes beyond the row are masked.
            let target = unsafe { _mm512_maskz_loadu_epi16(mask, levels.as_ptr()) };
            // SAFETY: 32 of them.
            let decided = unsafe { _mm512_loadu_si512(kept.as_ptr().cast()) };
            let odd = _mm512_and_si512(_mm512_srlv_epi16(decided, state), one);
            // Upper states come from the second quantizer.
            let second = _mm512_cmpge_epi16_mask(state, set(S as i16 / 2));
            let quantizer = _mm512_maskz_mov_epi16(second, one);
            let base = _mm512_xor_si512(state, _mm512_maskz_mov_epi16(second, set(H0)));
            let silent = _mm512_srlv_epi16(decided, _mm512_add_epi16(quantizer, set(ZEROS as i16)));
            let silent = _mm512_test_epi16_mask(_mm512_andnot_si512(odd, silent), one);
            let raised = _mm512_add_epi16(_mm512_abs_epi16(target), _mm512_slli_epi16::<4>(quantizer));
            let raised = _mm512_sub_epi16(_mm512_add_epi16(raised, set(32)), _mm512_slli_epi16::<5>(odd));
            let level = _mm512_add_epi16(_mm512_slli_epi16::<1>(_mm512_srli_epi16::<6>(raised)), odd);
            let level = _mm512_maskz_mov_epi16(!silent, level);
            let signed = _mm512_mask_sub_epi16(level, _mm512_movepi16_mask(target), zero, level);
            let turned = _mm512_and_si512(_mm512_sub_epi16(zero, odd), set(H1));
            let before = _mm512_slli_epi16::<1>(_mm512_xor_si512(base, turned));
            state = _mm512_mask_add_epi16(state, mask, before, quantizer);
            // SAFETY: as above.
            unsafe { _mm512_mask_storeu_epi16(levels.as_mut_ptr(), mask, signed) };
        }
    }
}
