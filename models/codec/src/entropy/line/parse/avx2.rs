//! Parsing of 32 lanes in four registers of eight.
// Gathers and loads of words are checked by what the caller passes, as each function states.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::entropy::line::parse::job::{Job, PADDING};
use crate::entropy::line::registers::{load_half, store_half};
use crate::entropy::line::table::{ESCAPE, SCALE, SCALE_BITS};
use crate::entropy::line::tile::TAIL;
use crate::format::line::plan::LAST_CLASS;

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
    entries(job);
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

/// Looks up what each column has, for every class of rows.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn entries(job: &mut Job<'_>) {
    for (row_class, row) in job.entries.rows() {
        for (classes, found) in job.classes.chunks_exact(WIDE).zip(row.chunks_exact_mut(WIDE)) {
            let class = _mm256_add_epi32(load_half(classes), _mm256_set1_epi32(row_class));
            let zero = _mm256_setzero_si256();
            let class = _mm256_min_epi32(_mm256_max_epi32(class, zero), _mm256_set1_epi32(LAST_CLASS));
            // SAFETY: a class is at most `LAST_CLASS` and `lookup` has 64 entries.
            let entry = unsafe { _mm256_i32gather_epi32::<4>(job.lookup.as_ptr().cast(), class) };
            store_half(found, entry);
        }
    }
}

/// The lanes of a tile, in registers.
struct Lanes {
    states: [__m256i; PARTS],
    trellis: [__m256i; PARTS],
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn range<const IN_TAIL: bool, const RAW: bool>(
    job: &mut Job<'_>,
    from: usize,
    to: usize,
) -> Option<()> {
    let mut lanes = Lanes {
        states: std::array::from_fn(|part| load_half(&job.states[WIDE * part..])),
        trellis: std::array::from_fn(|part| load_half(&job.trellis[WIDE * part..])),
    };
    let (mut row, mut first) = (from / job.per_row, from % job.per_row * 32);
    for step in from..to {
        // All that a step may read lies before the padding's end.
        if job.at + PADDING > job.words.len() {
            return None;
        }
        // SAFETY: the same features as here.
        unsafe {
            if first + 32 <= job.cols {
                one_step::<IN_TAIL, RAW, true>(job, &mut lanes, step, row, first);
            } else {
                one_step::<IN_TAIL, RAW, false>(job, &mut lanes, step, row, first);
            }
        }
        first += 32;
        if first >= job.cols {
            (row, first) = (row + 1, 0);
        }
    }
    for part in 0..PARTS {
        store_half(&mut job.states[WIDE * part..], lanes.states[part]);
        store_half(&mut job.trellis[WIDE * part..], lanes.trellis[part]);
    }
    Some(())
}

/// One step, of all lanes where it is `WHOLE`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn one_step<const IN_TAIL: bool, const RAW: bool, const WHOLE: bool>(
    job: &mut Job<'_>,
    lanes: &mut Lanes,
    step: usize,
    row: usize,
    first: usize,
) {
    let set = |value: i32| _mm256_set1_epi32(value);
    let (zero, one) = (_mm256_setzero_si256(), set(1));
    let (h0, h1) = (set(job.h0), set(job.h1));
    let each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let active = job.active(first);
    let chosen = |new: __m256i, old: __m256i, mask: __m256i| {
        if WHOLE { new } else { _mm256_blendv_epi8(old, new, mask) }
    };
    let within = |flags: __m256i, mask: __m256i| if WHOLE { flags } else { _mm256_and_si256(flags, mask) };
    let entries = &job.entries.row(row)[first..first + 32];
    let mut at = job.at;
    let (mut symbols, mut levels, mut masks) = ([zero; PARTS], [zero; PARTS], [zero; PARTS]);
    let mut escaped = [zero; PARTS];
    for part in 0..PARTS {
        if !WHOLE {
            let bits = set((active >> (WIDE * part) & 0xff) as i32);
            masks[part] = _mm256_cmpeq_epi32(_mm256_and_si256(bits, each), each);
        }
        let entry = load_half(&entries[WIDE * part..]);
        let state = lanes.states[part];
        let table = _mm256_add_epi32(
            _mm256_and_si256(entry, set(0xffff)),
            _mm256_slli_epi32::<10>(_mm256_and_si256(lanes.trellis[part], one)),
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
        lanes.states[part] = chosen(next, state, masks[part]);
        (symbols[part], levels[part]) = (scaled, level);
        escaped[part] = within(escape, masks[part]);
    }
    let any = escaped.iter().fold(zero, |any, &escape| _mm256_or_si256(any, escape));
    if _mm256_testz_si256(any, any) == 0 {
        for part in 0..PARTS {
            let bits = bits_of(escaped[part]);
            let taken = expand(job.words, at, bits);
            let signed = _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(taken));
            levels[part] = _mm256_blendv_epi8(levels[part], signed, escaped[part]);
            symbols[part] = _mm256_andnot_si256(escaped[part], symbols[part]);
            at += bits.count_ones() as usize;
        }
    }
    for part in 0..PARTS {
        let upper = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(lanes.states[part]), zero);
        let needs = within(upper, masks[part]);
        let bits = bits_of(needs);
        let words = expand(job.words, at, bits);
        let raised = _mm256_or_si256(_mm256_slli_epi32::<16>(lanes.states[part]), words);
        lanes.states[part] = _mm256_blendv_epi8(lanes.states[part], raised, needs);
        at += bits.count_ones() as usize;
        let old = lanes.trellis[part];
        let machine = _mm256_and_si256(_mm256_sub_epi32(zero, _mm256_and_si256(old, one)), h0);
        let parity = _mm256_and_si256(_mm256_sub_epi32(zero, _mm256_and_si256(levels[part], one)), h1);
        let new = _mm256_xor_si256(_mm256_srli_epi32::<1>(old), _mm256_xor_si256(machine, parity));
        lanes.trellis[part] = chosen(new, old, masks[part]);
        if IN_TAIL {
            let kept = within(symbols[part], masks[part]);
            store_half(&mut job.tail.symbols[job.total - 1 - step][WIDE * part..], kept);
        }
    }
    job.at = at;
    store_levels::<WHOLE>(&mut job.levels[row * job.cols + first..], &levels, active);
}

/// The levels of a step, as many as there are columns.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn store_levels<const WHOLE: bool>(target: &mut [i16], levels: &[__m256i; PARTS], active: u32) {
    if WHOLE {
        for (pair, target) in target[..32].chunks_exact_mut(2 * WIDE).enumerate() {
            store_i16(target, levels[2 * pair], levels[2 * pair + 1]);
        }
    } else {
        let mut out = [0i16; 32];
        for (pair, out) in out.chunks_exact_mut(2 * WIDE).enumerate() {
            store_i16(out, levels[2 * pair], levels[2 * pair + 1]);
        }
        let count = active.count_ones() as usize;
        target[..count].copy_from_slice(&out[..count]);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits_of(mask: __m256i) -> u32 {
    _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u32
}

/// The low halves of sixteen levels, in their order.
#[inline]
#[target_feature(enable = "avx2")]
fn store_i16(list: &mut [i16], low: __m256i, high: __m256i) {
    let halves = |levels: __m256i| _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(levels));
    let packed = _mm256_packs_epi32(halves(low), halves(high));
    let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
    // SAFETY: the slice is checked to hold sixteen.
    unsafe { _mm256_storeu_si256(list[..2 * WIDE].as_mut_ptr().cast(), ordered) }
}

/// The next words, one for every lane of the mask in order; others get any.
#[inline]
#[target_feature(enable = "avx2")]
fn expand(words: &[u16], at: usize, mask: u32) -> __m256i {
    // SAFETY: the slice is checked to hold eight.
    let taken = unsafe { _mm_loadu_si128(words[at..at + WIDE].as_ptr().cast()) };
    let ranks = load_half(&RANKS[(mask & 0xff) as usize]);
    _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(taken), ranks)
}
