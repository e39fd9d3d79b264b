//! Parsing of tiles of 32 lanes in wide registers; what surrounds the kernels.
//!
//! Prepares what the wide kernels need, and ends a tile as the scalar
//! [`crate::entropy::line::tile::parse`] does. Other tiles go to that one.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod job;
#[cfg(target_arch = "aarch64")]
mod neon;

use crate::entropy::line::coder::{Coder, polynomials};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::entropy::line::parse::job::{Entries, Job, PADDING, Tail};
use crate::entropy::line::table::SCALE_BITS;
use crate::entropy::line::tile::{self, LEAST_STATE, Parsed, TAIL, parse_head, parse_row_classes, steps};
use crate::format::line::plan::Tile;
use trinity_numeric::simd::Width;

/// Reads a tile with registers of that width.
pub fn parse_with(width: Width, coder: &Coder, place: &Tile, words: &[u16]) -> Result<Parsed, &'static str> {
    if width == Width::Scalar || coder.plan.log2_lanes != 5 || width > Width::widest() {
        return tile::parse(coder, place, words);
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        parse_wide(width, coder, place, words)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    tile::parse(coder, place, words)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn parse_wide(width: Width, coder: &Coder, place: &Tile, words: &[u16]) -> Result<Parsed, &'static str> {
    let (gain, exceptions, start) = parse_head(words, place)?;
    let mut padded = Vec::with_capacity(words.len() + PADDING);
    padded.extend_from_slice(words);
    padded.resize(words.len() + PADDING, 0);
    let lanes = words.get(start..start + 64).ok_or("it ends early")?;
    let mut states = std::array::from_fn(|l| u32::from(lanes[2 * l]) | u32::from(lanes[2 * l + 1]) << 16);
    let mut reader = tile::Words { words, at: start + 64 };
    let row_classes = parse_row_classes(coder, place, &mut states, &mut reader);
    let (per_row, total) = steps(place, 32);
    let classes = coder.step_classes(place, gain);
    let lookup = coder.class_lookup(SCALE_BITS);
    let (h0, h1) = polynomials(coder.plan.log2_states);
    let mut levels = vec![0i16; place.values()];
    let mut job = Job {
        cols: place.cols,
        per_row,
        total,
        words: &padded,
        at: reader.at,
        states,
        trellis: [0; 32],
        h0,
        h1,
        slots: &coder.slots,
        lookup,
        classes: &classes,
        has_raw_bits: Coder::has_raw_bits(&classes, &row_classes),
        entries: Entries::new(&row_classes, per_row),
        levels: &mut levels,
        tail: Tail { symbols: [[0; 32]; TAIL] },
    };
    values(width, &mut job).ok_or("its words do not end with its values")?;
    if job.at != words.len() {
        return Err("its words do not end with its values");
    }
    let (states, tail) = (job.states, job.tail);
    sign_tail(&states, &tail, place, per_row, total, &mut levels)?;
    Ok(Parsed { gain, exceptions, row_classes, levels })
}

/// Parses all values of a tile with registers of a width that the processor has.
#[cfg(target_arch = "x86_64")]
fn values(width: Width, job: &mut Job<'_>) -> Option<()> {
    // SAFETY: the width is one that the processor has.
    #[allow(unsafe_code)]
    unsafe {
        match width {
            Width::Avx512 => avx512::values(job),
            _ => avx2::values(job),
        }
    }
}

/// As above; there is one width.
#[cfg(target_arch = "aarch64")]
fn values(_: Width, job: &mut Job<'_>) -> Option<()> {
    // SAFETY: NEON is part of every aarch64.
    #[allow(unsafe_code)]
    unsafe {
        neon::values(job)
    }
}

/// Gives the levels of the tail their signs, and checks that lanes ended as they must.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn sign_tail(
    states: &[u32; 32],
    tail: &Tail,
    place: &Tile,
    per_row: usize,
    total: usize,
    levels: &mut [i16],
) -> Result<(), &'static str> {
    let mut left = states.map(|state| state ^ LEAST_STATE);
    for (back, symbols) in tail.symbols.iter().enumerate().take(total) {
        let step = total - 1 - back;
        let (row, first) = (step / per_row, step % per_row * 32);
        let levels = &mut levels[row * place.cols + first..(row + 1) * place.cols];
        for ((level, &symbol), left) in levels.iter_mut().zip(symbols).zip(&mut left) {
            if symbol > 0 && *left >> back & 1 == 1 {
                *level = (i32::from(*level) - 2 * symbol) as i16;
                *left ^= 1 << back;
            }
        }
    }
    if left.iter().any(|&left| left != 0) { Err("a lane does not end where it must") } else { Ok(()) }
}
