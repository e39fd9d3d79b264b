//! The words of a tile of 32 lanes whose values have no raw bits: symbols and tables in one register of sixteen bits,
//! states in two of 32.
//!
//! Tables are looked up in registers, however many there are: a gather from memory takes longer than all else. Values
//! with raw bits are left to `avx512`. Knows tables as the caller packed them; knows nothing of plans.
// Loads and stores are checked by slices, or masked to what slices hold, as each function states.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::avx512::{hold, load_levels, next_states, put};
use crate::entropy::line::registers::{LANES, WIDE, load, mask_of, store};
use crate::entropy::line::table::MAGNITUDES;
use crate::entropy::line::tile::TAIL;
use crate::format::line::plan::LAST_CLASS;

#[derive(Debug)]
pub(crate) struct Emission<'a> {
    pub cols: usize,
    pub levels: &'a [i16],
    pub classes: &'a [i16],
    pub row_classes: &'a [i32],
    pub lookup: [u32; 64],
    /// Frequency of each magnitude, by table; of sixteen tables at most.
    pub frequencies: &'a [[u16; MAGNITUDES]],
    /// First slot of each magnitude, by table, or of the escape, then with bit 15.
    pub starts: &'a [[u16; MAGNITUDES]],
    pub h0: i16,
    pub h1: i16,
}

/// Writes a tile's words to the end of `buffer`, backwards; where they start.
/// `states` are those to start with; they become those to be signalled. `packed` is room that may be used again.
///
/// # Safety
///
/// The processor has AVX-512 F, BW, DQ and VL, BMI and POPCNT.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
pub(crate) unsafe fn emit(
    job: &Emission<'_>,
    packed: &mut Vec<[u32; LANES]>,
    states: &mut [u32; LANES],
    buffer: &mut [u16],
) -> usize {
    // SAFETY: the same features as here.
    unsafe {
        match job.frequencies.len() {
            0..=2 => emit_by::<2>(job, packed, states, buffer),
            3 | 4 => emit_by::<4>(job, packed, states, buffer),
            5..=8 => emit_by::<8>(job, packed, states, buffer),
            _ => emit_by::<16>(job, packed, states, buffer),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn emit_by<const TABLES: usize>(
    job: &Emission<'_>,
    packed: &mut Vec<[u32; LANES]>,
    states: &mut [u32; LANES],
    buffer: &mut [u16],
) -> usize {
    let tables = Tables::new(job);
    // SAFETY: the same features as here.
    unsafe {
        if (job.h0, job.h1) == (0, 0) {
            sign::<TABLES>(job, &tables, states);
            let entries = |step: Step, unsigned: bool| {
                pushed::<TABLES>(job, &tables, step, unsigned, _mm512_setzero_si512()).entries
            };
            return push(job, entries, states, buffer);
        }
        let per_row = job.cols.div_ceil(LANES);
        packed.resize(job.row_classes.len() * per_row, [0; LANES]);
        pack::<TABLES>(job, &tables, packed, states);
        let entries = |step: Step, _: bool| {
            let own = &packed[step.row * per_row + step.first / LANES];
            [load(own), load(&own[WIDE..])]
        };
        push(job, entries, states, buffer)
    }
}

/// A step by its row and first column, and the lanes that have a column there.
#[derive(Clone, Copy)]
struct Step {
    row: usize,
    first: usize,
    mask: __mmask32,
}

impl Step {
    #[inline(always)]
    fn new(cols: usize, row: usize, first: usize) -> Self {
        let left = cols - first;
        Self { row, first, mask: if left >= LANES { __mmask32::MAX } else { (1 << left) - 1 } }
    }
}

/// Two tables in each register.
struct Tables {
    frequencies: [__m512i; 8],
    starts: [__m512i; 8],
    /// The place of each class' first table.
    places: [__m512i; 2],
}

impl Tables {
    #[target_feature(enable = "avx512f")]
    fn new(job: &Emission<'_>) -> Self {
        let pairs = |tables: &[[u16; MAGNITUDES]]| {
            let mut registers = [_mm512_setzero_si512(); 8];
            for (register, pair) in registers.iter_mut().zip(tables.chunks(2)) {
                let mut list = [0u16; LANES];
                list.as_chunks_mut().0.iter_mut().zip(pair).for_each(|(place, table)| *place = *table);
                // SAFETY: 32 of them.
                *register = unsafe { _mm512_loadu_si512(list.as_ptr().cast()) };
            }
            registers
        };
        let places = job.lookup.map(|found| (found & 0xff) as u16 * MAGNITUDES as u16);
        // SAFETY: 32 of 64 each.
        let places = unsafe {
            [_mm512_loadu_si512(places.as_ptr().cast()), _mm512_loadu_si512(places[LANES..].as_ptr().cast())]
        };
        Self { frequencies: pairs(job.frequencies), starts: pairs(job.starts), places }
    }
}

/// What stands in tables at some places: a magnitude in the four lowest bits, a table above.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn among<const TABLES: usize>(tables: &[__m512i; 8], place: __m512i) -> __m512i {
    let of_four = |at: usize| _mm512_permutex2var_epi16(tables[at], place, tables[at + 1]);
    let upper = |bit: i16| _mm512_test_epi16_mask(place, _mm512_set1_epi16(bit));
    match TABLES {
        2 => _mm512_permutexvar_epi16(place, tables[0]),
        4 => of_four(0),
        8 => _mm512_mask_mov_epi16(of_four(0), upper(64), of_four(2)),
        _ => {
            let low = _mm512_mask_mov_epi16(of_four(0), upper(64), of_four(2));
            let high = _mm512_mask_mov_epi16(of_four(4), upper(64), of_four(6));
            _mm512_mask_mov_epi16(low, upper(128), high)
        }
    }
}

#[derive(Clone, Copy)]
struct Pushed {
    /// Frequencies, in eleven bits, and first slots above bit 16, of either half of the lanes; below zero, escapes.
    entries: [__m512i; 2],
    level: __m512i,
    /// Lanes with a symbol below zero that is no escape.
    negative: __mmask32,
}

/// What the values of a step push, in machines that stand at `trellis`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn pushed<const TABLES: usize>(
    job: &Emission<'_>,
    tables: &Tables,
    Step { row, first, mask }: Step,
    unsigned: bool,
    trellis: __m512i,
) -> Pushed {
    let set = |value: i16| _mm512_set1_epi16(value);
    let levels = &job.levels[row * job.cols + first..(row + 1) * job.cols];
    // SAFETY: lanes beyond the row are masked, and no others are touched.
    let level = unsafe { _mm512_maskz_loadu_epi16(mask, levels.as_ptr()) };
    // The second table of a pair where the machine is odd.
    let mut place = _mm512_slli_epi16::<4>(_mm512_and_si512(trellis, set(1)));
    let is_one = if job.h0 == 0 { 1 } else { 2 };
    if job.frequencies.len() > is_one {
        // SAFETY: classes are there for whole steps.
        let column = unsafe { _mm512_loadu_si512(job.classes[first..][..LANES].as_ptr().cast()) };
        let row_class = job.row_classes[row].clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        let class = _mm512_max_epi16(_mm512_adds_epi16(column, set(row_class)), _mm512_setzero_si512());
        let class = _mm512_min_epi16(class, set(LAST_CLASS as i16));
        let own = _mm512_permutex2var_epi16(tables.places[0], class, tables.places[1]);
        place = _mm512_add_epi16(place, own);
    }
    let magnitude = _mm512_min_epu16(_mm512_abs_epi16(level), set(MAGNITUDES as i16 - 1));
    place = _mm512_or_si512(place, magnitude);
    let mut frequency = among::<TABLES>(&tables.frequencies, place);
    let mut start = among::<TABLES>(&tables.starts, place);
    let coded = !_mm512_movepi16_mask(start);
    let negative = _mm512_movepi16_mask(level) & coded;
    if unsigned {
        let both = _mm512_test_epi16_mask(magnitude, magnitude) & coded;
        frequency = _mm512_mask_add_epi16(frequency, both, frequency, frequency);
    } else {
        start = _mm512_mask_add_epi16(start, negative, start, frequency);
    }
    // Four lanes of one half and four of the other, as they are joined below.
    let order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    let (frequency, start) =
        (_mm512_permutexvar_epi64(order, frequency), _mm512_permutexvar_epi64(order, start));
    let entries = [_mm512_unpacklo_epi16(frequency, start), _mm512_unpackhi_epi16(frequency, start)];
    Pushed { entries, level, negative }
}

/// Signs of the tail, in the states, of a tile without trellis.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn sign<const TABLES: usize>(job: &Emission<'_>, tables: &Tables, states: &mut [u32; LANES]) {
    let per_row = job.cols.div_ceil(LANES);
    let total = job.row_classes.len() * per_row;
    for back in 0..TAIL.min(total) {
        let step = total - 1 - back;
        let step = Step::new(job.cols, step / per_row, step % per_row * LANES);
        // SAFETY: the same features as here.
        let pushed = unsafe { pushed::<TABLES>(job, tables, step, true, _mm512_setzero_si512()) };
        hold_both(states, pushed.negative, back);
    }
}

/// Notes the signs of a step of the tail.
#[inline]
#[target_feature(enable = "avx512f")]
fn hold_both(states: &mut [u32; LANES], negative: __mmask32, back: usize) {
    hold(&mut states[..WIDE], negative as __mmask16, back);
    hold(&mut states[WIDE..], (negative >> WIDE) as __mmask16, back);
}

/// Forwards: entries of all values, and the signs of the tail in the states.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn pack<const TABLES: usize>(
    job: &Emission<'_>,
    tables: &Tables,
    packed: &mut [[u32; LANES]],
    states: &mut [u32; LANES],
) {
    let set = |value: i16| _mm512_set1_epi16(value);
    let (zero, one) = (_mm512_setzero_si512(), set(1));
    let mut back = packed.len();
    let mut trellis = zero;
    let mut packed = packed.iter_mut();
    for row in 0..job.row_classes.len() {
        for (first, out) in (0..job.cols).step_by(LANES).zip(&mut packed) {
            back -= 1;
            let step = Step::new(job.cols, row, first);
            // SAFETY: the same features as here.
            let Pushed { entries, level, negative } =
                unsafe { pushed::<TABLES>(job, tables, step, back < TAIL, trellis) };
            store(&mut out[..WIDE], entries[0]);
            store(&mut out[WIDE..], entries[1]);
            if back < TAIL {
                hold_both(states, negative, back);
            }
            let odd = |bits: __m512i| _mm512_sub_epi16(zero, _mm512_and_si512(bits, one));
            let machine = _mm512_and_si512(odd(trellis), set(job.h0));
            let parity = _mm512_and_si512(odd(level), set(job.h1));
            let next = _mm512_xor_si512(_mm512_srli_epi16::<1>(trellis), _mm512_xor_si512(machine, parity));
            trellis = _mm512_mask_mov_epi16(trellis, step.mask, next);
        }
    }
}

/// Backwards: states and words. `entries` gives what the values of a step push, and is told whether it is of the tail.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
unsafe fn push(
    job: &Emission<'_>,
    entries: impl Fn(Step, bool) -> [__m512i; 2],
    states: &mut [u32; LANES],
    buffer: &mut [u16],
) -> usize {
    let set = |value: i32| _mm512_set1_epi32(value);
    let mut held = [load(&states[..]), load(&states[WIDE..])];
    let mut at = buffer.len();
    let mut back = 0;
    for row in (0..job.row_classes.len()).rev() {
        for first in (0..job.cols).step_by(LANES).rev() {
            let step = Step::new(job.cols, row, first);
            let own = entries(step, back < TAIL);
            back += 1;
            let mut escapes = [0; 2];
            for half in [1, 0] {
                let (entry, state) = (own[half], held[half]);
                let mask = (step.mask >> (WIDE * half)) as __mmask16;
                escapes[half] = _mm512_movepi32_mask(entry) & mask;
                let full = _mm512_mask_cmpge_epu32_mask(mask, state, _mm512_slli_epi32::<22>(entry));
                at = put(buffer, at, full, state);
                let raised = _mm512_mask_srli_epi32::<16>(state, full, state);
                let frequency = _mm512_and_si512(entry, set(0x7ff));
                let start = _mm512_and_si512(_mm512_srli_epi32::<16>(entry), set(0x3ff));
                let next = next_states(raised, frequency, start);
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
