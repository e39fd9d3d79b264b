//! The words of a tile of 32 lanes with raw bits, in two registers of sixteen: forwards what
//! every value pushes, then backwards the states and the words they give. Without
//! trellis no symbol follows from others, and all is done on the way back.
//!
//! Knows tables as the caller packed them; knows nothing of plans.
// Loads, gathers and stores are checked by slices or by what the caller passes, as each function states.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::entropy::line::registers::{LANES, WIDE, load, mask_of, store};
use crate::entropy::line::tile::TAIL;
use crate::format::line::plan::LAST_CLASS;

/// Largest magnitude of a symbol, and symbols of a table.
const LARGEST: i32 = 15;
const SYMBOLS: i32 = 2 * LARGEST + 1;

#[derive(Debug)]
pub(crate) struct Emission<'a> {
    pub cols: usize,
    pub levels: &'a [i16],
    pub classes: &'a [i32],
    pub row_classes: &'a [i32],
    pub lookup: [u32; 64],
    /// Entries of 31 symbols for each table, with their signs and without.
    pub signed: &'a [u32],
    pub unsigned: &'a [u32],
    pub h0: i32,
    pub h1: i32,
}

/// Tables that are looked up in registers rather than in memory, at most: a gather takes as long as some six.
const FEW: usize = 4;

/// Writes a tile's words to the end of `buffer`, backwards; where they start.
/// `states` are those to start with; they become those to be signalled.
///
/// # Safety
///
/// The processor has AVX-512 F, BW, DQ and VL, BMI and POPCNT.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
pub(crate) unsafe fn emit(job: &Emission<'_>, states: &mut [u32; LANES], buffer: &mut [u16]) -> usize {
    let few = job.signed.len() <= FEW * SYMBOLS as usize;
    // SAFETY: the same features as here.
    unsafe { if few { emit_by::<true>(job, states, buffer) } else { emit_by::<false>(job, states, buffer) } }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn emit_by<const FEW: bool>(
    job: &Emission<'_>,
    states: &mut [u32; LANES],
    buffer: &mut [u16],
) -> usize {
    // SAFETY: the same features as here.
    unsafe {
        if (job.h0, job.h1) == (0, 0) {
            sign::<FEW>(job, states);
            let entries =
                |of: Half, unsigned: bool| pushed::<FEW>(job, of, unsigned, _mm512_setzero_si512()).entry;
            return push(job, entries, states, buffer);
        }
        let mut packed = vec![0u32; job.row_classes.len() * job.cols.div_ceil(LANES) * LANES];
        pack::<FEW>(job, &mut packed, states);
        let per_row = job.cols.div_ceil(LANES);
        let entries =
            |of: Half, _: bool| load(&packed[of.row * per_row * LANES + of.first + WIDE * of.half..]);
        push(job, entries, states, buffer)
    }
}

/// One half of a step, by its row and first column, and the lanes that have a column there.
#[derive(Clone, Copy)]
struct Half {
    row: usize,
    first: usize,
    half: usize,
    mask: __mmask16,
}

impl Half {
    #[inline(always)]
    fn both(cols: usize, row: usize, first: usize) -> [Self; 2] {
        let is_whole = first + LANES <= cols;
        [0, 1].map(|half| {
            let mask = if is_whole { __mmask16::MAX } else { mask_of(cols, first, half) };
            Self { row, first, half, mask }
        })
    }
}

#[derive(Clone, Copy)]
struct Pushed {
    entry: __m512i,
    level: __m512i,
    /// Lanes with a symbol below zero that is no escape.
    negative: __mmask16,
}

/// What the values of one half of a step push, in machines that stand at `trellis`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn pushed<const FEW: bool>(
    job: &Emission<'_>,
    Half { row, first, half, mask }: Half,
    unsigned: bool,
    trellis: __m512i,
) -> Pushed {
    let set = |value: i32| _mm512_set1_epi32(value);
    let (zero, one) = (_mm512_setzero_si512(), set(1));
    let level = load_levels(&job.levels[row * job.cols + first..(row + 1) * job.cols], mask, half);
    let tables = if unsigned { job.unsigned } else { job.signed };
    let class = _mm512_add_epi32(load(&job.classes[first + WIDE * half..]), set(job.row_classes[row]));
    let class = _mm512_min_epi32(_mm512_max_epi32(class, zero), set(LAST_CLASS));
    let table = &job.lookup;
    let low_half = _mm512_permutex2var_epi32(load(table), class, load(&table[16..]));
    let high_half = _mm512_permutex2var_epi32(load(&table[32..]), class, load(&table[48..]));
    let upper = _mm512_cmpge_epi32_mask(class, set(32));
    let found = _mm512_mask_blend_epi32(upper, low_half, high_half);
    let table = _mm512_add_epi32(_mm512_and_si512(found, set(0xff)), _mm512_and_si512(trellis, one));
    let raw_bits = _mm512_srli_epi32::<24>(found);
    let middle = _mm512_srli_epi32::<1>(_mm512_sllv_epi32(one, raw_bits));
    let raised = _mm512_add_epi32(level, middle);
    let symbol = _mm512_srav_epi32(raised, raw_bits);
    let low = _mm512_sub_epi32(raised, _mm512_sllv_epi32(symbol, raw_bits));
    let near = _mm512_max_epi32(_mm512_min_epi32(symbol, set(LARGEST)), set(-LARGEST));
    let place = _mm512_add_epi32(near, set(LARGEST));
    let mut entry = if FEW {
        among(tables, table, place)
    } else {
        debug_assert!(tables.len().is_multiple_of(SYMBOLS as usize));
        // 31 symbols of a table.
        let base = _mm512_sub_epi32(_mm512_slli_epi32::<5>(table), table);
        // SAFETY: `lookup` names tables that are there, both quantizers of a
        // pair where `trellis` may be odd; a symbol is within its table.
        unsafe { _mm512_i32gather_epi32::<4>(_mm512_add_epi32(base, place), tables.as_ptr().cast()) }
    };
    let escaped = _mm512_movepi32_mask(entry);
    let low = _mm512_maskz_mov_epi32(!escaped, low);
    let both = _mm512_or_si512(_mm512_slli_epi32::<21>(raw_bits), _mm512_slli_epi32::<24>(low));
    entry = _mm512_or_si512(entry, both);
    let negative = _mm512_mask_cmplt_epi32_mask(mask & !escaped, symbol, zero);
    Pushed { entry, level, negative }
}

/// Entries of a few tables at some places.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn among(tables: &[u32], table: __m512i, place: __m512i) -> __m512i {
    let mut found = _mm512_setzero_si512();
    for (at, own) in tables.chunks_exact(SYMBOLS as usize).enumerate() {
        // SAFETY: 31 entries: sixteen, and fifteen under a mask.
        let (front, back) = unsafe {
            (
                _mm512_loadu_si512(own.as_ptr().cast()),
                _mm512_maskz_loadu_epi32(0x7fff, own[WIDE..].as_ptr().cast()),
            )
        };
        let entry = _mm512_permutex2var_epi32(front, place, back);
        let is_own = _mm512_cmpeq_epi32_mask(table, _mm512_set1_epi32(at as i32));
        found = if at == 0 { entry } else { _mm512_mask_mov_epi32(found, is_own, entry) };
    }
    found
}

/// Signs of the tail, in the states, of a tile without trellis.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn sign<const FEW: bool>(job: &Emission<'_>, states: &mut [u32; LANES]) {
    let per_row = job.cols.div_ceil(LANES);
    let total = job.row_classes.len() * per_row;
    for back in 0..TAIL.min(total) {
        let step = total - 1 - back;
        let (row, first) = (step / per_row, step % per_row * LANES);
        for of in Half::both(job.cols, row, first) {
            // SAFETY: the same features as here.
            let pushed = unsafe { pushed::<FEW>(job, of, true, _mm512_setzero_si512()) };
            hold(&mut states[WIDE * of.half..], pushed.negative, back);
        }
    }
}

/// Notes the signs of a step of the tail.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn hold(states: &mut [u32], negative: __mmask16, back: usize) {
    let signed = _mm512_or_si512(load(states), _mm512_set1_epi32(1 << back));
    let held = _mm512_mask_mov_epi32(load(states), negative, signed);
    store(states, held);
}

/// Levels of a step, widened; zeros in lanes without a column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn load_levels(levels: &[i16], mask: __mmask16, half: usize) -> __m512i {
    let Some(levels) = levels.get(WIDE * half..) else { return _mm512_setzero_si512() };
    // SAFETY: lanes beyond the row are masked, and no others are touched.
    _mm512_cvtepi16_epi32(unsafe { _mm256_maskz_loadu_epi16(mask, levels.as_ptr()) })
}

/// Forwards: entries of all values, and the signs of the tail in the states.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn pack<const FEW: bool>(job: &Emission<'_>, entries: &mut [u32], states: &mut [u32; LANES]) {
    let set = |value: i32| _mm512_set1_epi32(value);
    let (zero, one) = (_mm512_setzero_si512(), set(1));
    let (h0, h1) = (set(job.h0), set(job.h1));
    let total = job.row_classes.len() * job.cols.div_ceil(LANES);
    let mut trellis = [zero; 2];
    let (mut steps, mut step) = (entries.as_chunks_mut::<LANES>().0.iter_mut(), 0);
    for row in 0..job.row_classes.len() {
        for (first, out) in (0..job.cols).step_by(LANES).zip(&mut steps) {
            let back = total - 1 - step;
            step += 1;
            for of in Half::both(job.cols, row, first) {
                let half = of.half;
                let old = trellis[half];
                // SAFETY: the same features as here.
                let Pushed { entry, level, negative } = unsafe { pushed::<FEW>(job, of, back < TAIL, old) };
                store(&mut out[WIDE * half..], entry);
                if back < TAIL {
                    hold(&mut states[WIDE * half..], negative, back);
                }
                let machine = _mm512_and_si512(_mm512_sub_epi32(zero, _mm512_and_si512(old, one)), h0);
                let parity = _mm512_and_si512(_mm512_sub_epi32(zero, _mm512_and_si512(level, one)), h1);
                let new = _mm512_xor_si512(_mm512_srli_epi32::<1>(old), _mm512_xor_si512(machine, parity));
                trellis[half] = _mm512_mask_mov_epi32(old, of.mask, new);
            }
        }
    }
}

/// Backwards: states and words. `entries` gives what the values of one half of a step push, by its row and first
/// column, and whether it is of the tail.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn push(
    job: &Emission<'_>,
    entries: impl Fn(Half, bool) -> __m512i,
    states: &mut [u32; LANES],
    buffer: &mut [u16],
) -> usize {
    let set = |value: i32| _mm512_set1_epi32(value);
    let mut held = [load(&states[..]), load(&states[WIDE..])];
    let mut at = buffer.len();
    let mut back = 0;
    for row in (0..job.row_classes.len()).rev() {
        for first in (0..job.cols).step_by(LANES).rev() {
            let mut escapes = [0; 2];
            let of_tail = back < TAIL;
            back += 1;
            let [low, high] = Half::both(job.cols, row, first);
            for of in [high, low] {
                let (half, mask, state) = (of.half, of.mask, held[of.half]);
                let entry = entries(of, of_tail);
                escapes[half] = _mm512_movepi32_mask(entry) & mask;
                let frequency = _mm512_and_si512(_mm512_srli_epi32::<10>(entry), set(0x7ff));
                let raw_bits = _mm512_and_si512(_mm512_srli_epi32::<21>(entry), set(7));
                let bound = _mm512_sllv_epi32(frequency, _mm512_sub_epi32(set(22), raw_bits));
                let full = _mm512_mask_cmpge_epu32_mask(mask, state, bound);
                at = put(buffer, at, full, state);
                let raised = _mm512_mask_srli_epi32::<16>(state, full, state);
                let low = _mm512_and_si512(_mm512_srli_epi32::<24>(entry), set(0x3f));
                let raised = _mm512_or_si512(_mm512_sllv_epi32(raised, raw_bits), low);
                let next = next_states(raised, frequency, _mm512_and_si512(entry, set(0x3ff)));
                held[half] = _mm512_mask_mov_epi32(state, mask, next);
            }
            if escapes != [0; 2] {
                let levels = &job.levels[row * job.cols + first..(row + 1) * job.cols];
                for half in [1, 0] {
                    let mask = mask_of(job.cols, first, half);
                    at = put(buffer, at, escapes[half], load_levels(levels, mask, half));
                }
            }
        }
    }
    store(&mut states[..], held[0]);
    store(&mut states[WIDE..], held[1]);
    at
}

/// States after symbols of such frequencies and first slots, of states that gave their words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
pub(super) fn next_states(raised: __m512i, frequency: __m512i, start: __m512i) -> __m512i {
    // By the inverse of the frequency, which waits for no state: an estimate of 14 bits and one step of
    // Newton's. The quotient is below 2^22, so that three roundings leave it one off at most.
    let divisor = _mm512_cvtepi32_ps(frequency);
    let estimate = _mm512_rcp14_ps(divisor);
    let off = _mm512_fnmadd_ps(divisor, estimate, _mm512_set1_ps(1.0));
    let inverse = _mm512_fmadd_ps(estimate, off, estimate);
    let quotient = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_cvtepu32_ps(raised), inverse));
    let rest = _mm512_sub_epi32(raised, _mm512_mullo_epi32(quotient, frequency));
    let (below, above) = (_mm512_movepi32_mask(rest), _mm512_cmpge_epi32_mask(rest, frequency));
    let next = _mm512_add_epi32(_mm512_slli_epi32::<10>(quotient), _mm512_add_epi32(rest, start));
    // One more of the quotient is a table's slots more of the state, and so many fewer of the rest.
    let one = _mm512_sub_epi32(_mm512_set1_epi32(1 << 10), frequency);
    let next = _mm512_mask_sub_epi32(next, below, next, one);
    _mm512_mask_add_epi32(next, above, next, one)
}

/// Puts the low halves of the lanes of the mask, in order, in front of what a
/// buffer holds from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt,bmi2")]
pub(super) fn put(buffer: &mut [u16], at: usize, mask: __mmask16, words: __m512i) -> usize {
    let count = mask.count_ones() as usize;
    let (start, together) = (at - count, _mm512_maskz_compress_epi32(mask, words));
    let room = &mut buffer[start..at];
    // SAFETY: as many words as the slice holds are stored.
    unsafe {
        _mm512_mask_cvtepi32_storeu_epi16(
            room.as_mut_ptr().cast(),
            ((1u32 << count) - 1) as __mmask16,
            together,
        )
    };
    start
}
