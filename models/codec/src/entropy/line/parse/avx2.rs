//! Parsing of 32 lanes in four registers of eight.
// Gathers and loads of words are checked by what the caller passes, as signalled.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::entropy::line::parse::job::{Job, PADDING};
use crate::entropy::line::table::{ESCAPE, SCALE, SCALE_BITS};
use crate::entropy::line::tile::TAIL;

/// Lanes of a register.
const WIDE: usize = 8;
const PARTS: usize = 32 / WIDE;

/// For every set of lanes: which of the next words each of them takes.
static RANKS: [[u32; 8]; 256] = {
    let mut ranks = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut rank) = (0, 0);
        while lane < 8 {
            ranks[mask][lane] = rank;
            rank += (mask >> lane & 1) as u32;
            lane += 1;
        }
        mask += 1;
    }
    ranks
};

/// Parses all values of a tile; where the words end too early, `None`.
///
/// # Safety
///
/// The processor has AVX2, BMI and POPCNT.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(crate) unsafe fn values(job: &mut Job<'_>) -> Option<()> {
    let tail = job.total.saturating_sub(TAIL);
    // SAFETY: the same features as here.
    unsafe {
        if job.has_raw_bits {
            range::<false, true>(job, 0, tail)?;
            range::<true, true>(job, tail, job.total)
        } else {
            range::<false, false>(job, 0, tail)?;
            range::<true, false>(job, tail, job.total)
        }
    }
}

/// Steps `from` to `to`.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn range<const IN_TAIL: bool, const RAW: bool>(
    job: &mut Job<'_>,
    from: usize,
    to: usize,
) -> Option<()> {
    let set = |value: i32| _mm256_set1_epi32(value);
    let (zero, one) = (_mm256_setzero_si256(), set(1));
    let (h0, h1) = (set(job.h0), set(job.h1));
    let mut states: [__m256i; PARTS] = std::array::from_fn(|part| load(&job.states[WIDE * part..]));
    let mut trellis: [__m256i; PARTS] = std::array::from_fn(|part| load(&job.trellis[WIDE * part..]));
    let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let mut at = job.at;
    for step in from..to {
        let (row, first) = (step / job.per_row, step % job.per_row * 32);
        // All that a step may read lies before the padding's end.
        if at + PADDING > job.words.len() {
            return None;
        }
        let active = job.active(first);
        let row_class = set(job.row_classes[row]);
        let (mut symbols, mut levels, mut masks) = ([zero; PARTS], [zero; PARTS], [zero; PARTS]);
        let mut escapes = 0u32;
        for part in 0..PARTS {
            let bits = set((active >> (WIDE * part) & 0xff) as i32);
            let mask = _mm256_cmpeq_epi32(_mm256_and_si256(bits, lanes), lanes);
            let class = _mm256_add_epi32(load_i32(&job.classes[first + WIDE * part..]), row_class);
            let class = _mm256_min_epi32(_mm256_max_epi32(class, zero), set(55));
            // SAFETY: a class is 0 to 55 and `lookup` has 64 entries.
            let entry = unsafe { _mm256_i32gather_epi32::<4>(job.lookup.as_ptr().cast(), class) };
            let state = states[part];
            let table = _mm256_add_epi32(
                _mm256_and_si256(entry, set(0xffff)),
                _mm256_slli_epi32::<10>(_mm256_and_si256(trellis[part], one)),
            );
            let slot = _mm256_add_epi32(table, _mm256_and_si256(state, set(SCALE as i32 - 1)));
            // SAFETY: `lookup` names tables below `job.slots.len() / 1024`, both
            // quantizers of a pair where `trellis` may be odd.
            let found = unsafe { _mm256_i32gather_epi32::<4>(job.slots.as_ptr().cast(), slot) };
            let mut frequency = _mm256_and_si256(found, set(0x7ff));
            let mut bias = _mm256_and_si256(_mm256_srli_epi32::<11>(found), set(0x7ff));
            let mut symbol = _mm256_srai_epi32::<22>(found);
            let escape = _mm256_cmpeq_epi32(symbol, set(ESCAPE as i32));
            if IN_TAIL {
                let negative = _mm256_cmpgt_epi32(zero, symbol);
                let unsigned = _mm256_or_si256(_mm256_cmpeq_epi32(symbol, zero), escape);
                bias = _mm256_add_epi32(bias, _mm256_and_si256(negative, frequency));
                frequency = _mm256_add_epi32(frequency, _mm256_andnot_si256(unsigned, frequency));
                symbol = _mm256_abs_epi32(symbol);
            }
            let product = _mm256_mullo_epi32(frequency, _mm256_srli_epi32::<{ SCALE_BITS as i32 }>(state));
            let mut next = _mm256_add_epi32(product, bias);
            let (mut level, mut scaled) = (symbol, symbol);
            if RAW {
                let raw_bits = _mm256_srli_epi32::<24>(entry);
                let power = _mm256_sllv_epi32(one, raw_bits);
                let low = _mm256_and_si256(next, _mm256_sub_epi32(power, one));
                next = _mm256_srlv_epi32(next, raw_bits);
                scaled = _mm256_sllv_epi32(symbol, raw_bits);
                level = _mm256_add_epi32(scaled, _mm256_sub_epi32(low, _mm256_srli_epi32::<1>(power)));
            }
            states[part] = _mm256_blendv_epi8(state, next, mask);
            (symbols[part], levels[part], masks[part]) = (scaled, level, mask);
            escapes |= bits_of(_mm256_and_si256(escape, mask)) << (WIDE * part);
        }
        if escapes != 0 {
            for part in 0..PARTS {
                let bits = escapes >> (WIDE * part) & 0xff;
                let mask = _mm256_cmpeq_epi32(_mm256_and_si256(set(bits as i32), lanes), lanes);
                let taken = expand(job.words, at, bits);
                let signed = _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(taken));
                levels[part] = _mm256_blendv_epi8(levels[part], signed, mask);
                symbols[part] = _mm256_andnot_si256(mask, symbols[part]);
                at += bits.count_ones() as usize;
            }
        }
        let mut out = [0i32; 32];
        for part in 0..PARTS {
            let upper = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(states[part]), zero);
            let needs = _mm256_and_si256(upper, masks[part]);
            let bits = bits_of(needs);
            let words = expand(job.words, at, bits);
            let raised = _mm256_or_si256(_mm256_slli_epi32::<16>(states[part]), words);
            states[part] = _mm256_blendv_epi8(states[part], raised, needs);
            at += bits.count_ones() as usize;
            let old = trellis[part];
            let machine = _mm256_and_si256(_mm256_sub_epi32(zero, _mm256_and_si256(old, one)), h0);
            let parity = _mm256_and_si256(_mm256_sub_epi32(zero, _mm256_and_si256(levels[part], one)), h1);
            let new = _mm256_xor_si256(_mm256_srli_epi32::<1>(old), _mm256_xor_si256(machine, parity));
            trellis[part] = _mm256_blendv_epi8(old, new, masks[part]);
            store(&mut out[WIDE * part..], levels[part]);
            if IN_TAIL {
                let kept = _mm256_and_si256(symbols[part], masks[part]);
                store(&mut job.tail.symbols[job.total - 1 - step][WIDE * part..], kept);
            }
        }
        let count = active.count_ones() as usize;
        let target = &mut job.levels[row * job.cols + first..][..count];
        for (level, &value) in target.iter_mut().zip(&out) {
            *level = value as i16;
        }
    }
    for part in 0..PARTS {
        store_u32(&mut job.states[WIDE * part..], states[part]);
        store_u32(&mut job.trellis[WIDE * part..], trellis[part]);
    }
    job.at = at;
    Some(())
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits_of(mask: __m256i) -> u32 {
    _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u32
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(list: &[u32]) -> __m256i {
    // SAFETY: the slice is checked to hold eight.
    unsafe { _mm256_loadu_si256(list[..WIDE].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_i32(list: &[i32]) -> __m256i {
    // SAFETY: the slice is checked to hold eight.
    unsafe { _mm256_loadu_si256(list[..WIDE].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(list: &mut [i32], value: __m256i) {
    // SAFETY: the slice is checked to hold eight.
    unsafe { _mm256_storeu_si256(list[..WIDE].as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_u32(list: &mut [u32], value: __m256i) {
    // SAFETY: the slice is checked to hold eight.
    unsafe { _mm256_storeu_si256(list[..WIDE].as_mut_ptr().cast(), value) }
}

/// The next words, one for every lane of the mask in order; others get any.
#[inline]
#[target_feature(enable = "avx2")]
fn expand(words: &[u16], at: usize, mask: u32) -> __m256i {
    // SAFETY: the slice is checked to hold eight.
    let taken = unsafe { _mm_loadu_si128(words[at..at + WIDE].as_ptr().cast()) };
    let ranks = load(&RANKS[(mask & 0xff) as usize]);
    _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(taken), ranks)
}
