//! Values in the stream: a symbol in one of four lanes, escape and low bits
//! raw; the signs of many values in a row after that. Adaptive and static
//! tiles write and read values here, so that they cannot differ.

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::Error;
use crate::entropy::model::{Contexts, ESCAPE};
#[cfg(target_arch = "x86_64")]
use crate::entropy::rans::Avx2;
use crate::entropy::rans::{
    Decoder, Find, LANES, Plain, RawReader, RawWriter, Recorder, SIGNS, get_escape, packed, put_escape,
};
use crate::entropy::scales::raw_bits;
use crate::stage::trellis::{Code, MAX_LEVEL, Points};
#[cfg(target_arch = "x86_64")]
use trinity_numeric::simd;

/// The context of a value of `class` where the state machine says `state`.
#[inline(always)]
pub fn context(class: u8, state: u8) -> u8 {
    class << 1 | state & 1
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
    /// The raw bits of a value, without its sign.
    #[inline(always)]
    pub fn put_raw(&mut self, class: u8, magnitude: u32) {
        let low_bits = raw_bits(class);
        let high = magnitude >> low_bits;
        if high >= ESCAPE as u32 {
            put_escape(&mut self.raw, high - ESCAPE as u32);
        }
        self.raw.put(magnitude & ((1 << low_bits) - 1), low_bits);
    }

    /// The signs of values that are not zero.
    #[inline(always)]
    pub fn put_signs(&mut self, magnitudes: &[u32], values: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        let wide = simd::has_avx2();
        for (magnitudes, values) in magnitudes.chunks(SIGNS).zip(values.chunks(SIGNS)) {
            #[cfg(target_arch = "x86_64")]
            if let (true, Ok(magnitudes), Ok(values)) = (wide, magnitudes.try_into(), values.try_into()) {
                // SAFETY: the processor has said that it has these instructions.
                #[allow(unsafe_code)]
                unsafe {
                    avx2::put_signs(&mut self.raw, magnitudes, values);
                }
                continue;
            }
            put_signs(&mut self.raw, magnitudes, values);
        }
    }

    /// Symbols and raw bits of a row's segment, in `L` lanes; magnitudes
    /// become levels: with the quantizer that their machines say in the last
    /// bit. `RAW` where classes may have low bits.
    #[inline(always)]
    pub fn levels<const L: usize, const RAW: bool>(
        &mut self,
        states: &mut [u8; LANES],
        classes: &[u8],
        code: &Code,
        contexts: &mut Contexts,
        levels: &mut [u32],
    ) {
        let Self { recorder, raw } = self;
        let symbols = recorder.more(levels.len()).as_chunks_mut::<LANES>();
        let (classes, levels) = (classes.as_chunks::<LANES>(), levels.as_chunks_mut::<LANES>());
        // A copy stays in registers, where lanes are written out one by one.
        let mut machines = *states;
        for ((&[a, b, c, d], levels), symbols) in classes.0.iter().zip(levels.0).zip(symbols.0) {
            let [at, bt, ct, dt] = levels;
            if !RAW && (*at).max(*bt).max((*ct).max(*dt)) < ESCAPE as u32 {
                // Nearly always: nothing is called here, so that all stays in registers.
                let [w, x, y, z] = &mut machines;
                let mut level = |lane: usize, machine: &mut u8, class: u8, level: &mut u32| {
                    let (state, magnitude) = (*machine, *level);
                    let context = &mut contexts[usize::from(context(class, state))];
                    context.count(magnitude as usize);
                    *level = magnitude << 1 | u32::from(state & 1);
                    *machine = code.next(state, magnitude);
                    packed(lane, context.starts.range(magnitude as usize))
                };
                *symbols = [
                    level(0, w, a, at),
                    level(1 % L, x, b, bt),
                    level(2 % L, y, c, ct),
                    level(3 % L, z, d, dt),
                ];
                continue;
            }
            let mut level = |lane: usize, machine: usize, class: u8, level: &mut u32| {
                let machine = &mut machines[machine];
                any_level::<RAW>(lane, machine, class, code, contexts, raw, level)
            };
            *symbols =
                [level(0, 0, a, at), level(1 % L, 1, b, bt), level(2 % L, 2, c, ct), level(3 % L, 3, d, dt)];
        }
        for (i, ((&class, last), symbol)) in classes.1.iter().zip(levels.1).zip(symbols.1).enumerate() {
            *symbol = any_level::<RAW>(i % L, &mut machines[i], class, code, contexts, raw, last);
        }
        *states = machines;
    }
}

/// The symbol of a magnitude, which becomes a level, and its raw bits.
#[inline(always)]
fn any_level<const RAW: bool>(
    lane: usize,
    machine: &mut u8,
    class: u8,
    code: &Code,
    contexts: &mut Contexts,
    raw: &mut RawWriter,
    level: &mut u32,
) -> u32 {
    let (state, magnitude) = (*machine, *level);
    let low_bits = if RAW { raw_bits(class) } else { 0 };
    let high = magnitude >> low_bits;
    let symbol = high.min(ESCAPE as u32) as usize;
    let context = &mut contexts[usize::from(context(class, state))];
    context.count(symbol);
    if high >= ESCAPE as u32 {
        put_escape(raw, high - ESCAPE as u32);
    }
    if RAW {
        raw.put(magnitude & ((1 << low_bits) - 1), low_bits);
    }
    *level = magnitude << 1 | u32::from(state & 1);
    *machine = code.next(state, magnitude);
    packed(lane, context.starts.range(symbol))
}

/// Writes the signs of at most [`SIGNS`] values.
#[inline(always)]
fn put_signs(raw: &mut RawWriter, magnitudes: &[u32], values: &[f32]) {
    let (mut signs, mut count) = (0, 0);
    for (&magnitude, value) in magnitudes.iter().zip(values) {
        let there = u32::from(magnitude != 0);
        signs |= (value.to_bits() >> 31 & there).wrapping_shl(count);
        count += there;
    }
    raw.put(signs, count);
}

/// Where levels stand, in `unit`s, with the signs of `values`; of the levels the
/// magnitudes stay.
#[inline(always)]
pub fn placed(levels: &mut [u32], values: &[f32], points: &Points, unit: f32, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    let wide = simd::has_avx2();
    let chunks = levels.chunks_mut(SIGNS).zip(values.chunks(SIGNS)).zip(out.chunks_mut(SIGNS));
    for ((levels, values), out) in chunks {
        #[cfg(target_arch = "x86_64")]
        if let (true, Some(levels), Ok(values), Some(out)) =
            (wide, levels.first_chunk_mut(), values.try_into(), out.first_chunk_mut())
        {
            // SAFETY: the processor has said that it has these instructions.
            #[allow(unsafe_code)]
            unsafe {
                avx2::placed(levels, values, points, unit, out);
            }
            continue;
        }
        for ((level, value), out) in levels.iter_mut().zip(values).zip(out) {
            *out = point(level, value.to_bits() >> 31, points, unit);
        }
    }
}

/// Where a level with a sign stands, in `unit`s; of the level the magnitude stays.
#[inline(always)]
fn point(level: &mut u32, sign: u32, points: &Points, unit: f32) -> f32 {
    let (magnitude, quantizer) = (*level >> 1, *level & 1);
    *level = magnitude;
    let distance = points.distance(magnitude, quantizer as usize) as f32 * unit;
    f32::from_bits(distance.to_bits() ^ (sign & u32::from(magnitude != 0)) << 31)
}

/// Values on their way in.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    pub symbols: Decoder<'a>,
    pub raw: RawReader<'a>,
    /// Where the state machine of each lane stands.
    pub states: [u8; LANES],
}

impl Reader<'_> {
    /// What the symbols of some values and their raw bits say: magnitudes.
    #[inline(always)]
    fn magnitudes<const RAW: bool>(
        &mut self,
        classes: [u8; LANES],
        symbols: [u32; LANES],
    ) -> Result<[u32; LANES], Error> {
        let low_bits = classes.map(|class| if RAW { raw_bits(class) } else { 0 });
        let count: u32 = low_bits.iter().sum();
        let [a, b, c, d] = symbols;
        if a.max(b).max(c.max(d)) == ESCAPE as u32 || count > 32 {
            let (magnitudes, raw) = one_by_one(low_bits, symbols, self.raw.clone())?;
            self.raw = raw;
            return Ok(magnitudes);
        }
        if !RAW {
            return Ok(symbols);
        }
        let mut low = self.raw.get(count);
        let mut next = |symbol: u32, bits: u32| {
            let magnitude = symbol << bits | low & ((1 << bits) - 1);
            low = low.wrapping_shr(bits);
            magnitude
        };
        Ok([next(a, low_bits[0]), next(b, low_bits[1]), next(c, low_bits[2]), next(d, low_bits[3])])
    }

    /// Levels of a row's segment, in one lane or all: magnitudes, each with the
    /// quantizer that its machine says in the last bit. `raw` where classes may
    /// have low bits.
    #[inline(always)]
    pub fn levels(
        &mut self,
        (lanes, raw): (usize, bool),
        classes: &[u8],
        code: &Code,
        contexts: &mut Contexts,
        levels: &mut [u32],
    ) -> Result<(), Error> {
        #[cfg(target_arch = "x86_64")]
        if simd::has_avx2() {
            return match (lanes, raw) {
                (LANES, false) => self.levels_by::<Avx2, LANES, false>(classes, code, contexts, levels),
                (LANES, true) => self.levels_by::<Avx2, LANES, true>(classes, code, contexts, levels),
                _ => self.levels_by::<Plain, 1, true>(classes, code, contexts, levels),
            };
        }
        match (lanes, raw) {
            (LANES, _) => self.levels_by::<Plain, LANES, true>(classes, code, contexts, levels),
            _ => self.levels_by::<Plain, 1, true>(classes, code, contexts, levels),
        }
    }

    /// As [`Reader::levels`], for `L` lanes.
    #[inline(always)]
    fn levels_by<F: Find, const L: usize, const RAW: bool>(
        &mut self,
        classes: &[u8],
        code: &Code,
        contexts: &mut Contexts,
        levels: &mut [u32],
    ) -> Result<(), Error> {
        // Copies stay in registers: lanes are written out one by one, and their machines are no array,
        // whose bytes would be stored apart and read back together.
        let mut reader = self.clone();
        let [mut a, mut b, mut c, mut d] = reader.states;
        let (classes, levels) = (classes.as_chunks::<LANES>(), levels.as_chunks_mut::<LANES>());
        for (&classes, levels) in classes.0.iter().zip(levels.0) {
            let [at, bt, ct, dt] = classes;
            let (at, bt, ct, dt) = (context(at, a), context(bt, b), context(ct, c), context(dt, d));
            let mut ahead = reader.symbols.ahead();
            let symbols = [
                counted::<F>(&mut reader.symbols, 0, at, contexts, &mut ahead),
                counted::<F>(&mut reader.symbols, 1 % L, bt, contexts, &mut ahead),
                counted::<F>(&mut reader.symbols, 2 % L, ct, contexts, &mut ahead),
                counted::<F>(&mut reader.symbols, 3 % L, dt, contexts, &mut ahead),
            ];
            let [e, f, g, h] = reader.magnitudes::<RAW>(classes, symbols)?;
            let level = |magnitude: u32, state: u8| magnitude << 1 | u32::from(state & 1);
            *levels = [level(e, a), level(f, b), level(g, c), level(h, d)];
            (a, b, c, d) = (code.next(a, e), code.next(b, f), code.next(c, g), code.next(d, h));
        }
        reader.states = [a, b, c, d];
        for (i, (&class, level)) in classes.1.iter().zip(levels.1).enumerate() {
            let state = reader.states[i];
            let context = &mut contexts[usize::from(context(class, state))];
            let symbol = reader.symbols.symbol(i % L, &context.starts);
            context.count(symbol);
            let magnitudes = reader.magnitudes::<RAW>([class, 0, 0, 0], [symbol as u32, 0, 0, 0])?;
            reader.states[i] = code.next(state, magnitudes[0]);
            *level = magnitudes[0] << 1 | u32::from(state & 1);
        }
        *self = reader;
        Ok(())
    }

    /// Where levels stand, in `unit`s, once their signs are read; of the levels
    /// the magnitudes stay.
    #[inline(always)]
    pub fn signed(&mut self, levels: &mut [u32], points: &Points, unit: f32, out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        let wide = simd::has_avx2();
        for (levels, out) in levels.chunks_mut(SIGNS).zip(out.chunks_mut(SIGNS)) {
            #[cfg(target_arch = "x86_64")]
            if let (true, Some(levels), Some(out)) = (wide, levels.first_chunk_mut(), out.first_chunk_mut()) {
                // SAFETY: the processor has said that it has these instructions.
                #[allow(unsafe_code)]
                unsafe {
                    avx2::signed(&mut self.raw, levels, points, unit, out);
                }
                continue;
            }
            signed(&mut self.raw, levels, points, unit, out);
        }
    }

    pub fn check(&self) -> Result<(), Error> {
        self.symbols.check()?;
        self.raw.check()
    }

    pub fn finish(&self) -> Result<(), Error> {
        self.raw.finish(self.symbols.finish()?)
    }
}

/// The next symbol of a lane, counted in its context.
#[inline(always)]
fn counted<F: Find>(
    symbols: &mut Decoder<'_>,
    lane: usize,
    context: u8,
    contexts: &mut Contexts,
    ahead: &mut u64,
) -> u32 {
    let context = &mut contexts[usize::from(context)];
    let symbol = symbols.take::<F>(lane, &context.starts, ahead);
    context.count(symbol);
    symbol as u32
}

/// Reads the signs of at most [`SIGNS`] levels and says where they stand.
#[inline(always)]
fn signed(raw: &mut RawReader<'_>, levels: &mut [u32], points: &Points, unit: f32, out: &mut [f32]) {
    let mut signs = raw.get(levels.iter().map(|&level| u32::from(level > 1)).sum());
    for (level, out) in levels.iter_mut().zip(out) {
        *out = point(level, signs & 1, points, unit);
        signs >>= u32::from(*level != 0);
    }
}

/// Magnitudes among which are escapes, or many low bits. The reader is handed
/// through, so that it can live in registers where there are none.
#[cold]
#[inline(never)]
fn one_by_one(
    low_bits: [u32; LANES],
    symbols: [u32; LANES],
    mut raw: RawReader<'_>,
) -> Result<([u32; LANES], RawReader<'_>), Error> {
    let mut magnitudes = symbols;
    for (magnitude, low_bits) in magnitudes.iter_mut().zip(low_bits) {
        if *magnitude == ESCAPE as u32 {
            let high = u64::from(get_escape(&mut raw)) + ESCAPE as u64;
            if high << low_bits >= MAX_LEVEL as u64 {
                return Err(Error::Damaged { what: "a level is out of range" });
            }
            *magnitude = high as u32;
        }
        *magnitude = *magnitude << low_bits | raw.get(low_bits);
    }
    Ok((magnitudes, raw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn signs_come_back_by_every_way(levels in prop::collection::vec(-3i32..=3, 0..200)) {
            let magnitudes: Vec<u32> = levels.iter().map(|l| l.unsigned_abs()).collect();
            let packed: Vec<u32> = magnitudes.iter().enumerate().map(|(i, m)| m << 1 | (i % 3 == 0) as u32).collect();
            let values: Vec<f32> = levels.iter().map(|&l| l as f32).collect();
            let points = Points::new(&[[1, 2, 3], [-4, -5, -6]]);
            let mut writer = Writer::default();
            writer.put_signs(&magnitudes, &values);
            let bytes = writer.raw.finish();
            let start = Reader { symbols: Decoder::new(&[], 0).unwrap(), raw: RawReader::new(&bytes), states: [0; LANES] };
            let (mut wide, mut plain) = (vec![0.0; levels.len()], vec![0.0; levels.len()]);
            let (mut wide_levels, mut plain_levels) = (packed.clone(), packed.clone());
            start.clone().signed(&mut wide_levels, &points, 0.5, &mut wide);
            let mut raw = start.raw;
            for (levels, out) in plain_levels.chunks_mut(SIGNS).zip(plain.chunks_mut(SIGNS)) {
                signed(&mut raw, levels, &points, 0.5, out);
            }
            prop_assert_eq!(&wide_levels, &magnitudes);
            prop_assert_eq!(&plain_levels, &magnitudes);
            let expected: Vec<f32> = packed
                .iter()
                .zip(&values)
                .map(|(p, v)| v.signum() * 0.5 * points.distance(p >> 1, (p & 1) as usize) as f32)
                .collect();
            prop_assert_eq!(&wide, &expected);
            prop_assert_eq!(&plain, &expected);
            let (mut placed_levels, mut one_by_one) = (packed.clone(), packed);
            placed(&mut placed_levels, &values, &points, 0.5, &mut wide);
            prop_assert_eq!(&placed_levels, &magnitudes);
            let bits = |v: f32| v.to_bits();
            for ((level, value), wide) in one_by_one.iter_mut().zip(&values).zip(&wide) {
                prop_assert_eq!(bits(point(level, bits(*value) >> 31, &points, 0.5)), bits(*wide));
            }
        }
    }
}
