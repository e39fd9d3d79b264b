//! One value in the stream: its symbol in one of four lanes, then low bits,
//! escape and sign as raw bits. Adaptive and static tiles write and read
//! values here, so that they cannot differ.

use crate::Error;
use crate::model::ESCAPE;
use crate::rans::{Decoder, LANES, RawReader, RawWriter, Recorder, Starts, get_escape, put_escape};
use crate::scales::raw_bits;
use crate::trellis::{Code, GROUPS, MAX_LEVEL, Points};

/// The context of a value of `class` where the state machine says `state`.
#[inline(always)]
pub fn context(class: u8, state: u8) -> usize {
    GROUPS * usize::from(class) + usize::from(state & 1)
}

/// The symbol of a magnitude in `class`.
#[inline(always)]
pub fn symbol(class: u8, magnitude: u32) -> usize {
    (magnitude >> raw_bits(class)).min(ESCAPE as u32) as usize
}

/// Symbols and raw bits of values on their way out.
#[derive(Debug, Default)]
pub struct Writer {
    pub recorder: Recorder,
    pub raw: RawWriter,
}

impl Writer {
    /// The raw bits of a value.
    #[inline(always)]
    pub fn put_raw(&mut self, class: u8, magnitude: u32, negative: bool) {
        let low_bits = raw_bits(class);
        let high = magnitude >> low_bits;
        if high >= ESCAPE as u32 {
            put_escape(&mut self.raw, high - ESCAPE as u32);
        }
        let low = magnitude & ((1 << low_bits) - 1);
        let nonzero = u32::from(magnitude != 0);
        self.raw.put(low | (u32::from(negative) & nonzero) << low_bits, low_bits + nonzero);
    }
}

/// Values on their way in.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    pub symbols: Decoder<'a>,
    pub raw: RawReader<'a>,
    /// Where the state machine of each lane stands.
    pub states: [u8; LANES],
}

/// What was read of a value.
#[derive(Debug, Clone, Copy)]
pub struct Value {
    pub context: usize,
    pub symbol: usize,
    pub magnitude: u32,
    /// Where it stands, in 1/64 step.
    pub point: i32,
}

impl Reader<'_> {
    /// The next value of a lane.
    #[inline(always)]
    pub fn value(
        &mut self,
        lane: usize,
        class: u8,
        code: &Code,
        points: &Points,
        ranges: &[Starts],
    ) -> Result<Value, Error> {
        let state = self.states[lane];
        let context = context(class, state);
        let symbol = self.symbols.symbol(lane, &ranges[context]);
        let low_bits = raw_bits(class);
        let mut high = symbol as u32;
        if symbol == ESCAPE {
            (high, self.raw) = escaped(low_bits, self.raw.clone())?;
        }
        let magnitude = high << low_bits | self.raw.get(low_bits);
        // No class has so many low bits that the sign is not there yet.
        let sign = self.raw.take(u32::from(magnitude != 0)) as i32;
        let point = (points.distance(magnitude, usize::from(state & 1)) ^ -sign) + sign;
        self.states[lane] = code.next(state, magnitude);
        Ok(Value { context, symbol, magnitude, point })
    }

    /// Whether all that was read so far existed.
    pub fn check(&self) -> Result<(), Error> {
        self.symbols.check()?;
        self.raw.check()
    }

    /// Whether this was the end.
    pub fn finish(&self) -> Result<(), Error> {
        self.symbols.finish()?;
        self.raw.finish()
    }
}

/// The high part of a magnitude after an escape. The reader is handed through,
/// so that it can live in registers where there is none.
#[cold]
#[inline(never)]
fn escaped(low_bits: u32, mut raw: RawReader<'_>) -> Result<(u32, RawReader<'_>), Error> {
    let high = u64::from(get_escape(&mut raw)) + ESCAPE as u64;
    if high << low_bits >= MAX_LEVEL as u64 {
        return Err(Error::Damaged { what: "a level is out of range" });
    }
    Ok((high as u32, raw))
}
