//! One tile's words: lane states, then sixteen-bit words in decoding order.
//!
//! The plain truth, lane after lane. Turns levels into words and words into
//! levels; knows nothing of what a level is worth.

use crate::entropy::line::coder::{Coder, next_state};
use crate::entropy::line::table::{ESCAPE, SCALE, SCALE_BITS, Table};
use crate::format::line::plan::Tile;

/// A lane takes a word when its state falls below this.
pub const LEAST_STATE: u32 = 1 << 16;
/// Steps at the end of a tile whose signs the final states hold.
pub const TAIL: usize = 16;
/// The gain of a tile at most.
pub const MAX_GAIN: u32 = 40;
/// In the first word of a tile: exceptions follow.
pub const EXCEPTIONS: u16 = 1 << 6;

/// A value kept exactly: its place in the tile and its bits in single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exception {
    pub position: u16,
    pub bits: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    pub gain: u32,
    pub exceptions: Vec<Exception>,
    pub row_classes: Vec<i32>,
    pub levels: Vec<i16>,
}

/// Steps of a row, and of the whole tile.
pub fn steps(tile: &Tile, lanes: usize) -> (usize, usize) {
    let per_row = tile.cols.div_ceil(lanes);
    (per_row, per_row * tile.rows)
}

/// Words in order; zeros after the last, which the end of the tile notices.
pub(crate) struct Words<'a> {
    pub words: &'a [u16],
    pub at: usize,
}

impl Words<'_> {
    #[inline]
    fn next(&mut self) -> u16 {
        let word = self.words.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        word
    }
}

/// Reads the head of a tile: gain and exceptions, and where lanes start.
pub(crate) fn parse_head(words: &[u16], tile: &Tile) -> Result<(u32, Vec<Exception>, usize), &'static str> {
    let &head = words.first().ok_or("it is empty")?;
    let gain = u32::from(head & 63);
    if gain > MAX_GAIN || head >> 7 != 0 {
        return Err("its first word is unknown");
    }
    if head & EXCEPTIONS == 0 {
        return Ok((gain, Vec::new(), 1));
    }
    let count = usize::from(*words.get(1).ok_or("it ends early")?) + 1;
    let list = words.get(2..2 + 3 * count).ok_or("it ends early")?;
    let exceptions: Vec<Exception> = list
        .chunks_exact(3)
        .map(|w| Exception { position: w[0], bits: u32::from(w[1]) | u32::from(w[2]) << 16 })
        .collect();
    let ordered = exceptions.windows(2).all(|w| w[0].position < w[1].position);
    if !ordered || exceptions.last().is_some_and(|e| usize::from(e.position) >= tile.values()) {
        return Err("its exceptions are out of order");
    }
    Ok((gain, exceptions, 2 + 3 * count))
}

pub fn parse(coder: &Coder, tile: &Tile, words: &[u16]) -> Result<Parsed, &'static str> {
    let lanes = coder.plan.lanes();
    let (gain, exceptions, at) = parse_head(words, tile)?;
    let mut words = Words { words, at };
    let mut states: Vec<u32> =
        (0..lanes).map(|_| u32::from(words.next()) | u32::from(words.next()) << 16).collect();
    let row_classes = parse_row_classes(coder, tile, &mut states, &mut words);
    let mut levels = vec![0i16; tile.values()];
    let mut trellis = vec![0u8; lanes];
    let (per_row, total) = steps(tile, lanes);
    // Levels of the tail with a negative sign, and where they stand.
    let mut tail: Vec<Option<(usize, i16)>> = vec![None; TAIL * lanes];
    for step in 0..total {
        let (row, first) = (step / per_row, step % per_row * lanes);
        let active = lanes.min(tile.cols - first);
        let in_tail = total - 1 - step < TAIL;
        let mut symbols = [(0i32, 0u32); 32];
        for lane in 0..active {
            let class = Coder::class(coder.plan.classes[tile.col + first + lane], row_classes[row], gain);
            let quantizer = usize::from(trellis[lane] & 1);
            let table = usize::from(coder.tables[class]) + quantizer;
            let raw_bits = u32::from(coder.raw_bits[class]);
            let slot = coder.slots[table * SCALE as usize + (states[lane] & (SCALE - 1)) as usize];
            let (mut frequency, mut bias) = (slot.frequency(), slot.bias());
            let mut symbol = slot.symbol();
            if in_tail && symbol != 0 && symbol != ESCAPE as i32 {
                bias += if symbol < 0 { frequency } else { 0 };
                frequency *= 2;
                symbol = symbol.abs();
            }
            let state = frequency * (states[lane] >> SCALE_BITS) + bias;
            symbols[lane] = (symbol, state & ((1 << raw_bits) - 1));
            states[lane] = state >> raw_bits;
            let place = row * tile.cols + first + lane;
            let low = (state & ((1 << raw_bits) - 1)) as i32 - ((1 << raw_bits) >> 1);
            if symbol != ESCAPE as i32 {
                levels[place] = ((symbol << raw_bits) + low) as i16;
                if in_tail && symbol != 0 {
                    let negative = ((-symbol << raw_bits) + low) as i16;
                    tail[(total - 1 - step) * lanes + lane] = Some((place, negative));
                }
            }
        }
        for lane in (0..active).filter(|&lane| symbols[lane].0 == ESCAPE as i32) {
            levels[row * tile.cols + first + lane] = words.next() as i16;
        }
        for lane in 0..active {
            if states[lane] < LEAST_STATE {
                states[lane] = states[lane] << 16 | u32::from(words.next());
            }
            let odd = levels[row * tile.cols + first + lane] & 1 == 1;
            trellis[lane] = next_state(coder.plan.log2_states, trellis[lane], odd);
        }
    }
    finish(&states, &words, &tail, &mut levels)?;
    Ok(Parsed { gain, exceptions, row_classes, levels })
}

/// Gives the levels of the tail their signs, and checks that all ended as it must.
fn finish(
    states: &[u32],
    words: &Words<'_>,
    tail: &[Option<(usize, i16)>],
    levels: &mut [i16],
) -> Result<(), &'static str> {
    if words.at != words.words.len() {
        return Err("its words do not end with its values");
    }
    for (lane, &state) in states.iter().enumerate() {
        let mut signs = state ^ LEAST_STATE;
        for (back, entry) in tail.chunks_exact(states.len()).map(|step| step[lane]).enumerate() {
            let negative = signs >> back & 1 == 1;
            if let (true, Some((place, level))) = (negative, entry) {
                levels[place] = level;
                signs ^= 1 << back;
            }
        }
        if signs != 0 {
            return Err("a lane does not end where it must");
        }
    }
    Ok(())
}

pub(crate) fn parse_row_classes(
    coder: &Coder,
    tile: &Tile,
    states: &mut [u32],
    words: &mut Words<'_>,
) -> Vec<i32> {
    if coder.plan.row_table.is_none() {
        return vec![0; tile.rows];
    }
    let slots = &coder.slots[coder.plan.tables.len() * SCALE as usize..];
    let mut classes = vec![0; tile.rows];
    for classes in classes.chunks_mut(states.len()) {
        for (class, state) in classes.iter_mut().zip(states.iter_mut()) {
            let slot = slots[(*state & (SCALE - 1)) as usize];
            *class = slot.symbol();
            *state = slot.frequency() * (*state >> SCALE_BITS) + slot.bias();
        }
        for class in classes.iter_mut().filter(|class| **class == ESCAPE as i32) {
            *class = i32::from(words.next() as i16);
        }
        for state in states[..classes.len()].iter_mut().filter(|state| **state < LEAST_STATE) {
            *state = *state << 16 | u32::from(words.next());
        }
    }
    classes
}

/// One symbol as an encoder pushes it: start, frequency, raw bits and how many.
#[derive(Debug, Clone, Copy, Default)]
struct Push {
    start: u32,
    frequency: u32,
    low: u32,
    raw_bits: u32,
    escape: Option<i16>,
}

impl Push {
    fn new(table: &Table, level: i32, raw_bits: u32, unsigned: bool) -> Self {
        let half = (1 << raw_bits) >> 1;
        let symbol = (level + half) >> raw_bits;
        let magnitude = symbol.unsigned_abs() as usize;
        if magnitude >= ESCAPE || table.frequency(magnitude) == 0 {
            // Raw bits of an escape are zero: the word says it all.
            let (start, frequency) = (table.start(ESCAPE), table.frequency(ESCAPE));
            return Self { start, frequency, low: 0, raw_bits, escape: Some(level as i16) };
        }
        let (mut start, mut frequency) = (table.start(magnitude), table.frequency(magnitude));
        if unsigned && magnitude > 0 {
            frequency *= 2;
        } else if symbol < 0 {
            start += frequency;
        }
        let low = (level + half - (symbol << raw_bits)) as u32;
        Self { start, frequency, low, raw_bits, escape: None }
    }

    /// Pushes the symbol; a word that the state had to give first.
    #[inline]
    fn push(&self, state: &mut u32) -> Option<u16> {
        let full = *state >= self.frequency << (32 - SCALE_BITS - self.raw_bits);
        let word = full.then_some(*state as u16);
        if full {
            *state >>= 16;
        }
        let raised = *state << self.raw_bits | self.low;
        *state = (raised / self.frequency) << SCALE_BITS | (raised % self.frequency + self.start);
        word
    }
}

pub fn write(coder: &Coder, tile: &Tile, parsed: &Parsed, out: &mut Vec<u16>) {
    let lanes = coder.plan.lanes();
    let (per_row, total) = steps(tile, lanes);
    write_head(parsed, out);
    let mut states = vec![LEAST_STATE; lanes];
    let mut symbols = Vec::with_capacity(tile.values());
    let mut trellis = vec![0u8; lanes];
    for step in 0..total {
        let (row, first) = (step / per_row, step % per_row * lanes);
        let back = total - 1 - step;
        for lane in 0..lanes.min(tile.cols - first) {
            let level = parsed.levels[row * tile.cols + first + lane];
            let column = coder.plan.classes[tile.col + first + lane];
            let class = Coder::class(column, parsed.row_classes[row], parsed.gain);
            let table = usize::from(coder.tables[class]) + usize::from(trellis[lane] & 1);
            let raw_bits = u32::from(coder.raw_bits[class]);
            let push = Push::new(&coder.plan.tables[table], i32::from(level), raw_bits, back < TAIL);
            let symbol = (i32::from(level) + ((1 << raw_bits) >> 1)) >> raw_bits;
            if back < TAIL && push.escape.is_none() && symbol < 0 {
                states[lane] |= 1 << back;
            }
            symbols.push(push);
            trellis[lane] = next_state(coder.plan.log2_states, trellis[lane], level & 1 == 1);
        }
    }
    let mut backwards = Vec::with_capacity(tile.values() / 4);
    let mut put = |word| backwards.push(word);
    for step in symbols.chunks(tile.cols).rev().flat_map(|row| row.chunks(lanes).rev()) {
        push_step(step, &mut states, &mut put);
    }
    write_row_classes(coder, parsed, &mut states, &mut put);
    out.extend(states.iter().flat_map(|&state| [state as u16, (state >> 16) as u16]));
    out.extend(backwards.iter().rev());
}

/// Pushes a symbol in every lane, the last first: words that states had to give, then those of escapes.
fn push_step(pushes: &[Push], states: &mut [u32], put: &mut impl FnMut(u16)) {
    for (state, push) in states.iter_mut().zip(pushes).rev() {
        push.push(state).into_iter().for_each(&mut *put);
    }
    pushes.iter().rev().filter_map(|push| push.escape).for_each(|level| put(level as u16));
}

/// Pushes the row classes of a tile, which stand in front of its values.
pub(crate) fn write_row_classes(
    coder: &Coder,
    parsed: &Parsed,
    states: &mut [u32],
    put: &mut impl FnMut(u16),
) {
    let Some(table) = &coder.plan.row_table else { return };
    let pushes: Vec<Push> =
        parsed.row_classes.iter().map(|&class| Push::new(table, class, 0, false)).collect();
    pushes.chunks(states.len()).rev().for_each(|step| push_step(step, states, put));
}

pub(crate) fn write_head(parsed: &Parsed, out: &mut Vec<u16>) {
    let exceptions = &parsed.exceptions;
    out.push(parsed.gain as u16 | if exceptions.is_empty() { 0 } else { EXCEPTIONS });
    if !exceptions.is_empty() {
        out.push((exceptions.len() - 1) as u16);
        out.extend(exceptions.iter().flat_map(|e| [e.position, e.bits as u16, (e.bits >> 16) as u16]));
    }
}
