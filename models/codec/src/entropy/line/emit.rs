//! The words of a tile of 32 lanes, in wide registers.
//!
//! The same words as the scalar [`crate::entropy::line::tile::write`], which is the truth.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod narrow;

use crate::entropy::line::coder::{Coder, point, polynomials};
use crate::entropy::line::table::{ESCAPE, MAGNITUDES, SCALE_BITS, Table};
use crate::entropy::line::tile::{self, LEAST_STATE, Parsed, TAIL, steps, write_head, write_row_classes};
use crate::format::line::plan::Tile;
use trinity_numeric::simd::{Kernel, Width, with_width};

const LANES: usize = 32;
/// Symbols of a table with room for an escape on either side.
const SYMBOLS: usize = 2 * ESCAPE + 1;

/// How to push each symbol of each table: bits 0–9 first slot, 10–20 frequency,
/// bit 31 an escape. Bits 21–23 are for raw bits and 24–29 for what they hold.
#[derive(Debug, Clone)]
pub(crate) struct Pushes {
    signed: Vec<u32>,
    unsigned: Vec<u32>,
    /// Frequencies and first slots by magnitude; [`NARROW_ESCAPED`] marks slots of escapes.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kernels of wide registers look
    frequencies: Vec<[u16; MAGNITUDES]>,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    starts: Vec<[u16; MAGNITUDES]>,
}

const ESCAPED: u32 = 1 << 31;
/// Marks the first slot of an escape among sixteen bits.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kernels of wide registers look
const NARROW_ESCAPED: u16 = 1 << 15;

impl Pushes {
    pub(crate) fn new(coder: &Coder) -> Self {
        let of = |table: &Table, at: usize, unsigned: bool| {
            let symbol = at as i32 - ESCAPE as i32;
            let magnitude = symbol.unsigned_abs() as usize;
            if magnitude >= ESCAPE || table.frequency(magnitude) == 0 {
                return table.start(ESCAPE) | table.frequency(ESCAPE) << 10 | ESCAPED;
            }
            let (start, frequency) = (table.start(magnitude), table.frequency(magnitude));
            match (unsigned && magnitude > 0, symbol < 0) {
                (true, _) => start | frequency << 11,
                (false, true) => (start + frequency) | frequency << 10,
                (false, false) => start | frequency << 10,
            }
        };
        let all = |unsigned: bool| {
            let tables = coder.plan.tables.iter();
            tables.flat_map(|table| (0..SYMBOLS).map(move |at| of(table, at, unsigned))).collect()
        };
        let by_magnitude = |of: &dyn Fn(&Table, usize) -> u16| {
            let tables = coder.plan.tables.iter();
            tables.map(|table| std::array::from_fn(|magnitude| of(table, magnitude))).collect()
        };
        // The escape's own where a magnitude is none of the table's.
        let own = |table: &Table, magnitude: usize| {
            if table.frequency(magnitude) == 0 { ESCAPE } else { magnitude }
        };
        Self {
            signed: all(false),
            unsigned: all(true),
            frequencies: by_magnitude(&|table, magnitude| table.frequency(own(table, magnitude)) as u16),
            starts: by_magnitude(&|table, magnitude| match own(table, magnitude) {
                ESCAPE => table.start(ESCAPE) as u16 | NARROW_ESCAPED,
                magnitude => table.start(magnitude) as u16,
            }),
        }
    }
}

pub(crate) fn write_with(
    width: Width,
    coder: &Coder,
    pushes: &Pushes,
    place: &Tile,
    parsed: &Parsed,
    out: &mut Vec<u16>,
) {
    if width == Width::Scalar || coder.plan.log2_lanes != 5 {
        return tile::write(coder, place, parsed, out);
    }
    write_head(parsed, out);
    // A word and an escape for each value at most, and for each row.
    let most = 2 * (place.values() + place.rows) + 1;
    let mut words = WORDS.take();
    words.resize(most.max(words.len()), 0);
    // Words are written from the end, and those alone are read.
    let buffer = &mut words[..most];
    let mut states = [LEAST_STATE; LANES];
    let job = Job { coder, pushes, place, parsed };
    let mut at = if width == Width::Avx512 && Width::widest() == Width::Avx512 {
        emit_wide(job, &mut states, buffer)
    } else {
        emit_by_compiler(width, job, &mut states, buffer)
    };
    write_row_classes(coder, parsed, &mut states, &mut |word| {
        at -= 1;
        buffer[at] = word;
    });
    out.reserve(2 * LANES + buffer.len() - at);
    out.extend(states.iter().flat_map(|&state| [state as u16, (state >> 16) as u16]));
    out.extend_from_slice(&buffer[at..]);
    WORDS.set(words);
}

thread_local! {
    /// Room for the words of a tile, which a thread keeps from one to the next.
    static WORDS: std::cell::Cell<Vec<u16>> = const { std::cell::Cell::new(Vec::new()) };
    /// Room for what the values of a tile push, likewise.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kernels of wide registers use it
    static PACKED: std::cell::Cell<Vec<[u32; LANES]>> = const { std::cell::Cell::new(Vec::new()) };
}

/// A tile and what its values are pushed by.
#[derive(Clone, Copy)]
struct Job<'a> {
    coder: &'a Coder,
    pushes: &'a Pushes,
    place: &'a Tile,
    parsed: &'a Parsed,
}

/// Writes what stands behind the row classes with registers of sixteen lanes;
/// where it starts.
#[cfg(target_arch = "x86_64")]
fn emit_wide(job: Job<'_>, states: &mut [u32; LANES], buffer: &mut [u16]) -> usize {
    let Job { coder, pushes, place, parsed } = job;
    let classes = coder.step_classes(place, parsed.gain);
    let (h0, h1) = polynomials(coder.plan.log2_states);
    if !Coder::has_raw_bits(&classes, &parsed.row_classes) {
        let classes: Vec<i16> =
            classes.iter().map(|&class| class.clamp(i16::MIN.into(), i16::MAX.into()) as i16).collect();
        let job = narrow::Emission {
            cols: place.cols,
            levels: &parsed.levels,
            row_classes: &parsed.row_classes,
            lookup: coder.class_lookup(0),
            classes: &classes,
            frequencies: &pushes.frequencies,
            starts: &pushes.starts,
            h0: h0 as i16,
            h1: h1 as i16,
        };
        let mut packed = PACKED.take();
        // SAFETY: the caller has seen that the processor has AVX-512.
        #[allow(unsafe_code)]
        let at = unsafe { narrow::emit(&job, &mut packed, states, buffer) };
        PACKED.set(packed);
        return at;
    }
    let job = avx512::Emission {
        cols: place.cols,
        levels: &parsed.levels,
        row_classes: &parsed.row_classes,
        lookup: coder.class_lookup(0),
        classes: &classes,
        signed: &pushes.signed,
        unsigned: &pushes.unsigned,
        h0,
        h1,
    };
    // SAFETY: the caller has seen that the processor has AVX-512.
    #[allow(unsafe_code)]
    unsafe {
        avx512::emit(&job, states, buffer)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn emit_wide(job: Job<'_>, states: &mut [u32; LANES], buffer: &mut [u16]) -> usize {
    emit_by_compiler(Width::Scalar, job, states, buffer)
}

/// As [`emit_wide`], in loops that the compiler widens.
fn emit_by_compiler(width: Width, job: Job<'_>, states: &mut [u32; LANES], buffer: &mut [u16]) -> usize {
    let packed = with_width(width, Pack { job, states });
    with_width(width, Push { job, packed: &packed, states, buffer })
}

/// Forwards: what every value pushes, and the signs of the tail.
struct Pack<'a> {
    job: Job<'a>,
    states: &'a mut [u32; LANES],
}

impl Kernel for Pack<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run(self) -> Vec<u32> {
        let Self { job: Job { coder, pushes, place, parsed }, states } = self;
        let mut packed = Vec::with_capacity(place.values());
        let (per_row, total) = steps(place, LANES);
        let polynomials = polynomials(coder.plan.log2_states);
        let classes = &coder.plan.classes[place.col..][..place.cols];
        let mut trellis = [0i32; LANES];
        for step in 0..total {
            let (row, first) = (step / per_row, step % per_row * LANES);
            let (back, active) = (total - 1 - step, LANES.min(place.cols - first));
            let levels = &parsed.levels[row * place.cols + first..][..active];
            let table_of = if back < TAIL { &pushes.unsigned } else { &pushes.signed };
            let row_class = parsed.row_classes[row];
            for lane in 0..active {
                let level = i32::from(levels[lane]);
                let class = Coder::class(classes[first + lane], row_class, parsed.gain);
                let raw_bits = u32::from(coder.raw_bits[class]);
                let half = (1 << raw_bits) >> 1;
                let symbol = (level + half) >> raw_bits;
                let table = usize::from(coder.tables[class]) + (trellis[lane] & 1) as usize;
                let limit = ESCAPE as i32;
                let entry = table_of[table * SYMBOLS + (symbol.clamp(-limit, limit) + limit) as usize];
                let low = (level + half - (symbol << raw_bits)) as u32;
                let low = if entry & ESCAPED == 0 { low } else { 0 };
                packed.push(entry | raw_bits << 21 | low << 24);
                if back < TAIL && entry & ESCAPED == 0 && symbol < 0 {
                    states[lane] |= 1 << back;
                }
                trellis[lane] = point(trellis[lane], level, polynomials).1;
            }
        }
        packed
    }
}

/// Backwards: states and words.
struct Push<'a> {
    job: Job<'a>,
    packed: &'a [u32],
    states: &'a mut [u32; LANES],
    buffer: &'a mut [u16],
}

impl Kernel for Push<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let Self { job: Job { place, parsed, .. }, packed, states, buffer } = self;
        let mut position = buffer.len();
        for row in (0..place.rows).rev() {
            let first = row * place.cols;
            let (whole, rest) = packed[first..][..place.cols].as_chunks::<LANES>();
            if !rest.is_empty() {
                let mut padded = [1 << 10; LANES];
                padded[..rest.len()].copy_from_slice(rest);
                let kept = *states;
                position = push_step(&padded, rest.len(), states, buffer, position);
                states[rest.len()..].copy_from_slice(&kept[rest.len()..]);
                let levels = &parsed.levels[first + whole.len() * LANES..][..rest.len()];
                position = push_escapes(rest, levels, buffer, position);
            }
            for (index, entries) in whole.iter().enumerate().rev() {
                position = push_step(entries, LANES, states, buffer, position);
                if entries.iter().fold(0, |any, entry| any | entry) & ESCAPED != 0 {
                    let levels = &parsed.levels[first + index * LANES..][..LANES];
                    position = push_escapes(entries, levels, buffer, position);
                }
            }
        }
        position
    }
}

/// Pushes one symbol in every lane; words of the first `active` lanes alone count.
#[inline(always)]
fn push_step(
    entries: &[u32; LANES],
    active: usize,
    states: &mut [u32; LANES],
    buffer: &mut [u16],
    mut position: usize,
) -> usize {
    let mut full = [0u32; LANES];
    for lane in 0..LANES {
        let (frequency, raw_bits) = (entries[lane] >> 10 & 0x7ff, entries[lane] >> 21 & 7);
        full[lane] = u32::from(states[lane] >= frequency << (32 - SCALE_BITS - raw_bits));
    }
    for lane in (0..active).rev() {
        // Written in any case, and kept if the state is full.
        buffer[position - 1] = states[lane] as u16;
        position -= full[lane] as usize;
    }
    for lane in 0..LANES {
        let (frequency, raw_bits) = (entries[lane] >> 10 & 0x7ff, entries[lane] >> 21 & 7);
        let low = entries[lane] >> 24 & 0x3f;
        let state = states[lane] >> (16 * full[lane]);
        let raised = state << raw_bits | low;
        // Half above the dividend, the quotient is never so near to a whole number
        // that rounding could cross it.
        let quotient = ((f64::from(raised) + 0.5) / f64::from(frequency)) as u32;
        let rest = raised.wrapping_sub(quotient.wrapping_mul(frequency));
        states[lane] = quotient << SCALE_BITS | rest.wrapping_add(entries[lane] & 0x3ff);
    }
    position
}

/// Writes the levels of a step's escapes.
#[inline(always)]
fn push_escapes(entries: &[u32], levels: &[i16], buffer: &mut [u16], mut position: usize) -> usize {
    for (&entry, &level) in entries.iter().zip(levels).rev() {
        if entry & ESCAPED != 0 {
            position -= 1;
            buffer[position] = level as u16;
        }
    }
    position
}
