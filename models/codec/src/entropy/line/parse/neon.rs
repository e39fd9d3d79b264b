//! Parsing of 32 lanes in eight registers of four.
//!
//! As the kernel for AVX2, but tables are read lane by lane: there is no gather.
// Loads and stores of registers, each of a slice that was checked to hold one.
#![allow(unsafe_code)]

use std::arch::aarch64::*;

use crate::entropy::line::parse::job::{Job, PADDING};
use crate::entropy::line::table::{ESCAPE, SCALE, SCALE_BITS, Slot};
use crate::entropy::line::tile::TAIL;
use crate::format::line::plan::LAST_CLASS;

const WIDE: usize = 4;
const PARTS: usize = 32 / WIDE;

/// For every set of lanes: the bytes of the word that each of them takes, of four words of 32 bits.
static RANKS: [[u8; 16]; 16] = {
    let mut ranks = [[0; 16]; 16];
    let mut mask = 0;
    while mask < 16 {
        let (mut lane, mut rank) = (0, 0);
        while lane < WIDE {
            let mut byte = 0;
            while byte < 4 {
                ranks[mask][4 * lane + byte] = (4 * rank + byte) as u8;
                byte += 1;
            }
            rank += mask >> lane & 1;
            lane += 1;
        }
        mask += 1;
    }
    ranks
};

/// Parses all values of a tile; where the words end too early, `None`.
#[target_feature(enable = "neon")]
pub(crate) fn values(job: &mut Job<'_>) -> Option<()> {
    let tail = job.total.saturating_sub(TAIL);
    entries(job);
    if job.has_raw_bits {
        range::<false, true>(job, 0, tail)?;
        range::<true, true>(job, tail, job.total)
    } else {
        range::<false, false>(job, 0, tail)?;
        range::<true, false>(job, tail, job.total)
    }
}

/// Looks up what each column has, for every class of rows.
fn entries(job: &mut Job<'_>) {
    for (row_class, row) in job.entries.rows() {
        for (&class, found) in job.classes.iter().zip(row) {
            *found = job.lookup[(class + row_class).clamp(0, LAST_CLASS) as usize];
        }
    }
}

/// The lanes of a tile, in registers.
struct Lanes {
    states: [uint32x4_t; PARTS],
    trellis: [uint32x4_t; PARTS],
}

#[target_feature(enable = "neon")]
fn range<const IN_TAIL: bool, const RAW: bool>(job: &mut Job<'_>, from: usize, to: usize) -> Option<()> {
    let mut lanes = Lanes {
        states: std::array::from_fn(|part| load(&job.states[WIDE * part..])),
        trellis: std::array::from_fn(|part| load(&job.trellis[WIDE * part..])),
    };
    let (mut row, mut first) = (from / job.per_row, from % job.per_row * 32);
    for step in from..to {
        // All that a step may read lies before the padding's end.
        if job.at + PADDING > job.words.len() {
            return None;
        }
        if first + 32 <= job.cols {
            one_step::<IN_TAIL, RAW, true>(job, &mut lanes, step, row, first);
        } else {
            one_step::<IN_TAIL, RAW, false>(job, &mut lanes, step, row, first);
        }
        first += 32;
        if first >= job.cols {
            (row, first) = (row + 1, 0);
        }
    }
    for part in 0..PARTS {
        store(&mut job.states[WIDE * part..], lanes.states[part]);
        store(&mut job.trellis[WIDE * part..], lanes.trellis[part]);
    }
    Some(())
}

/// One step, of all lanes where it is `WHOLE`.
#[inline]
#[target_feature(enable = "neon")]
fn one_step<const IN_TAIL: bool, const RAW: bool, const WHOLE: bool>(
    job: &mut Job<'_>,
    lanes: &mut Lanes,
    step: usize,
    row: usize,
    first: usize,
) {
    let set = |value: u32| vdupq_n_u32(value);
    let (zero, one) = (set(0), set(1));
    let (h0, h1) = (set(job.h0 as u32), set(job.h1 as u32));
    let each = load(&[1, 2, 4, 8]);
    let active = job.active(first);
    let within = |flags: uint32x4_t, mask: uint32x4_t| if WHOLE { flags } else { vandq_u32(flags, mask) };
    let entries = &job.entries.row(row)[first..first + 32];
    let mut at = job.at;
    let (mut symbols, mut levels) = ([vdupq_n_s32(0); PARTS], [vdupq_n_s32(0); PARTS]);
    let (mut masks, mut escaped, mut any) = ([zero; PARTS], [zero; PARTS], zero);
    for part in 0..PARTS {
        if !WHOLE {
            masks[part] = vtstq_u32(set(active >> (WIDE * part) & 0xf), each);
        }
        let (entry, state) = (load(&entries[WIDE * part..]), lanes.states[part]);
        let table =
            vaddq_u32(vandq_u32(entry, set(0xffff)), vshlq_n_u32::<10>(vandq_u32(lanes.trellis[part], one)));
        let found = gather(job.slots, vaddq_u32(table, vandq_u32(state, set(SCALE - 1))));
        let mut frequency = vandq_u32(found, set(0x7ff));
        let mut bias = vandq_u32(vshrq_n_u32::<11>(found), set(0x7ff));
        let mut symbol = vshrq_n_s32::<22>(vreinterpretq_s32_u32(found));
        let escape = vceqq_s32(symbol, vdupq_n_s32(ESCAPE as i32));
        if IN_TAIL {
            let unsigned = vorrq_u32(vceqzq_s32(symbol), escape);
            bias = vaddq_u32(bias, vandq_u32(vcltzq_s32(symbol), frequency));
            frequency = vaddq_u32(frequency, vbicq_u32(frequency, unsigned));
            symbol = vabsq_s32(symbol);
        }
        let mut next = vmlaq_u32(bias, frequency, vshrq_n_u32::<{ SCALE_BITS as i32 }>(state));
        let (mut level, mut scaled) = (symbol, symbol);
        if RAW {
            let raw_bits = vreinterpretq_s32_u32(vshrq_n_u32::<24>(entry));
            let power = vshlq_u32(one, raw_bits);
            let low = vandq_u32(next, vsubq_u32(power, one));
            next = vshlq_u32(next, vnegq_s32(raw_bits));
            scaled = vshlq_s32(symbol, raw_bits);
            let offset = vsubq_u32(low, vshrq_n_u32::<1>(power));
            level = vaddq_s32(scaled, vreinterpretq_s32_u32(offset));
        }
        lanes.states[part] = if WHOLE { next } else { vbslq_u32(masks[part], next, state) };
        (symbols[part], levels[part]) = (scaled, level);
        escaped[part] = within(escape, masks[part]);
        any = vorrq_u32(any, escaped[part]);
    }
    if vmaxvq_u32(any) != 0 {
        for part in 0..PARTS {
            let bits = bits_of(escaped[part], each);
            let taken = vreinterpretq_s32_u32(expand(job.words, at, bits));
            let signed = vshrq_n_s32::<16>(vshlq_n_s32::<16>(taken));
            levels[part] = vbslq_s32(escaped[part], signed, levels[part]);
            symbols[part] = vbslq_s32(escaped[part], vdupq_n_s32(0), symbols[part]);
            at += bits.count_ones() as usize;
        }
    }
    for part in 0..PARTS {
        let state = lanes.states[part];
        let needs = within(vcltq_u32(state, set(1 << 16)), masks[part]);
        let bits = bits_of(needs, each);
        let raised = vorrq_u32(vshlq_n_u32::<16>(state), expand(job.words, at, bits));
        lanes.states[part] = vbslq_u32(needs, raised, state);
        at += bits.count_ones() as usize;
        let old = lanes.trellis[part];
        let machine = vandq_u32(vtstq_u32(old, one), h0);
        let parity = vandq_u32(vtstq_u32(vreinterpretq_u32_s32(levels[part]), one), h1);
        let new = veorq_u32(vshrq_n_u32::<1>(old), veorq_u32(machine, parity));
        lanes.trellis[part] = if WHOLE { new } else { vbslq_u32(masks[part], new, old) };
        if IN_TAIL {
            let kept = within(vreinterpretq_u32_s32(symbols[part]), masks[part]);
            store_i32(&mut job.tail.symbols[job.total - 1 - step][WIDE * part..], kept);
        }
    }
    job.at = at;
    store_levels::<WHOLE>(&mut job.levels[row * job.cols + first..], &levels, active);
}

/// The levels of a step, as many as there are columns.
#[inline]
#[target_feature(enable = "neon")]
fn store_levels<const WHOLE: bool>(target: &mut [i16], levels: &[int32x4_t; PARTS], active: u32) {
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

/// Which lanes of a mask are set.
#[inline]
#[target_feature(enable = "neon")]
fn bits_of(mask: uint32x4_t, each: uint32x4_t) -> u32 {
    vaddvq_u32(vandq_u32(mask, each))
}

/// The slots at four places.
#[inline]
#[target_feature(enable = "neon")]
fn gather(slots: &[Slot], places: uint32x4_t) -> uint32x4_t {
    let mut at = [0; WIDE];
    store(&mut at, places);
    load(&at.map(|at| slots[at as usize].0))
}

/// The next words, one for every lane of the mask in order; others get any.
#[inline]
#[target_feature(enable = "neon")]
fn expand(words: &[u16], at: usize, mask: u32) -> uint32x4_t {
    let ranks = &RANKS[(mask & 0xf) as usize];
    // SAFETY: the slice is checked to hold four words, and the ranks are sixteen bytes.
    let (taken, ranks) = unsafe { (vld1_u16(words[at..at + WIDE].as_ptr()), vld1q_u8(ranks.as_ptr())) };
    vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(vmovl_u16(taken)), ranks))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(list: &[u32]) -> uint32x4_t {
    // SAFETY: the slice is checked to hold four.
    unsafe { vld1q_u32(list[..WIDE].as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(list: &mut [u32], value: uint32x4_t) {
    // SAFETY: the slice is checked to hold four.
    unsafe { vst1q_u32(list[..WIDE].as_mut_ptr(), value) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_i32(list: &mut [i32], value: uint32x4_t) {
    // SAFETY: the slice is checked to hold four.
    unsafe { vst1q_s32(list[..WIDE].as_mut_ptr(), vreinterpretq_s32_u32(value)) }
}

/// The low halves of eight levels, in their order.
#[inline]
#[target_feature(enable = "neon")]
fn store_i16(list: &mut [i16], low: int32x4_t, high: int32x4_t) {
    let halves = vcombine_s16(vmovn_s32(low), vmovn_s32(high));
    // SAFETY: the slice is checked to hold eight.
    unsafe { vst1q_s16(list[..2 * WIDE].as_mut_ptr(), halves) }
}
