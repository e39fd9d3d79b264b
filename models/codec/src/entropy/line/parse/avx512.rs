//! Parsing of 32 lanes in two registers of sixteen.
// Gathers and loads of words are checked by what the caller passes, as each function states.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::entropy::line::parse::job::{Job, PADDING};
use crate::entropy::line::registers::{WIDE, load, store};
use crate::entropy::line::table::{ESCAPE, SCALE, SCALE_BITS};
use crate::entropy::line::tile::TAIL;
use crate::format::line::plan::LAST_CLASS;

/// Parses all values of a tile; where the words end too early, `None`.
///
/// # Safety
///
/// The processor has AVX-512 F, BW, DQ and VL, BMI and POPCNT.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
pub(crate) unsafe fn values(job: &mut Job<'_>) -> Option<()> {
    let (tail, raw) = (job.total.saturating_sub(TAIL), job.has_raw_bits);
    entries(job);
    // SAFETY: the same features as here.
    unsafe {
        match raw {
            true => {
                range::<false, true>(job, 0, tail)?;
                range::<true, true>(job, tail, job.total)
            }
            false => {
                range::<false, false>(job, 0, tail)?;
                range::<true, false>(job, tail, job.total)
            }
        }
    }
}

/// Looks up what each column has, for every class of rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
fn entries(job: &mut Job<'_>) {
    let set = |value: i32| _mm512_set1_epi32(value);
    let table = &job.lookup;
    let lookup = [load(table), load(&table[16..]), load(&table[32..]), load(&table[48..])];
    for (row_class, row) in job.entries.rows() {
        for (classes, found) in job.classes.chunks_exact(WIDE).zip(row.chunks_exact_mut(WIDE)) {
            let class = _mm512_add_epi32(load(classes), set(row_class));
            let class = _mm512_min_epi32(_mm512_max_epi32(class, set(0)), set(LAST_CLASS));
            let low_half = _mm512_permutex2var_epi32(lookup[0], class, lookup[1]);
            let high_half = _mm512_permutex2var_epi32(lookup[2], class, lookup[3]);
            let high = _mm512_cmpge_epi32_mask(class, set(32));
            store(found, _mm512_mask_blend_epi32(high, low_half, high_half));
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn range<const IN_TAIL: bool, const RAW: bool>(
    job: &mut Job<'_>,
    from: usize,
    to: usize,
) -> Option<()> {
    let set = |value: i32| _mm512_set1_epi32(value);
    let one = set(1);
    let (h0, h1) = (set(job.h0), set(job.h1));
    let mut states = [load(&job.states), load(&job.states[WIDE..])];
    let mut trellis = [load(&job.trellis), load(&job.trellis[WIDE..])];
    let mut at = job.at;
    let (mut row, mut first) = (from / job.per_row, from % job.per_row * 32);
    for step in from..to {
        // All that a step may read lies before the padding's end.
        if at + PADDING > job.words.len() {
            return None;
        }
        let active = job.active(first);
        let entries = job.entries.row(row);
        let (mut symbols, mut levels) = ([one; 2], [one; 2]);
        let mut escapes = 0u32;
        for half in 0..2 {
            let mask = (active >> (16 * half)) as __mmask16;
            let entry = load(&entries[first + WIDE * half..]);
            let state = states[half];
            let table = _mm512_add_epi32(
                _mm512_and_si512(entry, set(0xffff)),
                _mm512_slli_epi32::<10>(_mm512_and_si512(trellis[half], one)),
            );
            let slot = _mm512_add_epi32(table, _mm512_and_si512(state, set(SCALE as i32 - 1)));
            // SAFETY: `lookup` names tables below `job.slots.len() / 1024`, both
            // quantizers of a pair where `trellis` may be odd.
            let found = unsafe { _mm512_i32gather_epi32::<4>(slot, job.slots.as_ptr().cast()) };
            let mut frequency = _mm512_and_si512(found, set(0x7ff));
            let mut bias = _mm512_and_si512(_mm512_srli_epi32::<11>(found), set(0x7ff));
            let mut symbol = _mm512_srai_epi32::<22>(found);
            let escaped = _mm512_mask_cmpeq_epi32_mask(mask, symbol, set(ESCAPE as i32));
            if IN_TAIL {
                let negative = _mm512_cmplt_epi32_mask(symbol, set(0));
                let signed = _mm512_cmpneq_epi32_mask(symbol, set(0))
                    & !_mm512_cmpeq_epi32_mask(symbol, set(ESCAPE as i32));
                bias = _mm512_mask_add_epi32(bias, negative, bias, frequency);
                frequency = _mm512_mask_slli_epi32::<1>(frequency, signed, frequency);
                symbol = _mm512_abs_epi32(symbol);
            }
            let mut next =
                _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32::<SCALE_BITS>(state)), bias);
            let mut level = symbol;
            let mut scaled = symbol;
            if RAW {
                let raw_bits = _mm512_srli_epi32::<24>(entry);
                let power = _mm512_sllv_epi32(one, raw_bits);
                let low = _mm512_and_si512(next, _mm512_sub_epi32(power, one));
                next = _mm512_srlv_epi32(next, raw_bits);
                scaled = _mm512_sllv_epi32(symbol, raw_bits);
                level = _mm512_add_epi32(scaled, _mm512_sub_epi32(low, _mm512_srli_epi32::<1>(power)));
            }
            states[half] = _mm512_mask_mov_epi32(state, mask, next);
            (symbols[half], levels[half]) = (scaled, level);
            escapes |= u32::from(escaped) << (16 * half);
        }
        if escapes != 0 {
            for half in 0..2 {
                let mask = (escapes >> (16 * half)) as __mmask16;
                let taken = expand(job.words, at, mask);
                let signed = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(taken));
                levels[half] = _mm512_mask_mov_epi32(levels[half], mask, signed);
                symbols[half] = _mm512_mask_mov_epi32(symbols[half], mask, set(0));
                at += mask.count_ones() as usize;
            }
        }
        for half in 0..2 {
            let mask = (active >> (16 * half)) as __mmask16;
            let needs = _mm512_mask_cmplt_epu32_mask(mask, states[half], set(1 << 16));
            let words = expand(job.words, at, needs);
            let raised = _mm512_or_si512(_mm512_slli_epi32::<16>(states[half]), words);
            states[half] = _mm512_mask_mov_epi32(states[half], needs, raised);
            at += needs.count_ones() as usize;
            let old = trellis[half];
            let zero = _mm512_setzero_si512();
            let machine = _mm512_and_si512(_mm512_sub_epi32(zero, _mm512_and_si512(old, one)), h0);
            let parity = _mm512_and_si512(_mm512_sub_epi32(zero, _mm512_and_si512(levels[half], one)), h1);
            let new = _mm512_xor_si512(_mm512_srli_epi32::<1>(old), _mm512_xor_si512(machine, parity));
            trellis[half] = _mm512_mask_mov_epi32(old, mask, new);
            let out = &mut job.levels[row * job.cols + first..];
            if mask != 0 {
                // SAFETY: the mask leaves lanes without a column alone.
                unsafe {
                    _mm512_mask_cvtepi32_storeu_epi16(
                        out.as_mut_ptr().add(WIDE * half).cast(),
                        mask,
                        levels[half],
                    );
                }
            }
            if IN_TAIL {
                let kept = _mm512_maskz_mov_epi32(mask, symbols[half]);
                store(&mut job.tail.symbols[job.total - 1 - step][WIDE * half..], kept);
            }
        }
        first += 32;
        if first >= job.cols {
            (row, first) = (row + 1, 0);
        }
    }
    for half in 0..2 {
        store(&mut job.states[WIDE * half..], states[half]);
        store(&mut job.trellis[WIDE * half..], trellis[half]);
    }
    job.at = at;
    Some(())
}

/// The next words, one for every lane of the mask in order.
#[inline]
#[target_feature(enable = "avx512f")]
fn expand(words: &[u16], at: usize, mask: __mmask16) -> __m512i {
    // SAFETY: the slice is checked to hold sixteen.
    let taken = unsafe { _mm256_loadu_si256(words[at..at + WIDE].as_ptr().cast()) };
    _mm512_maskz_expand_epi32(mask, _mm512_cvtepu16_epi32(taken))
}
