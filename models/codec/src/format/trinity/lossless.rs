//! Lossless: every bit of single-precision words, whatever they mean.
//!
//! Exponents go through the adaptive coder, relative to running means of
//! their column and the signalled offset of their row; signs and mantissas are
//! raw, except bits that no value of the matrix has: the low sixteen of bf16,
//! or everything below one in a matrix of integers. Any word comes back, NaN
//! payloads included.

use crate::Error;
use crate::bits::Bits;
use crate::entropy::model::{ESCAPE, Model, SYMBOLS};
use crate::entropy::rans::{Decoder, LANES, RawReader, RawWriter, Recorder};
use crate::format::trinity::bytes::{Reader, put_varint};
use crate::format::trinity::plan::{Tile, Tiling};
use crate::format::trinity::stream::{Kind, MAX_VALUES_PER_BYTE, put_magic};
use crate::format::trinity::tiles::code::joined;
use crate::matrix::Matrix;
use crate::search::report::{Encoded, Report};
use trinity_bits::golomb::{unzigzag, zigzag};
use trinity_numeric::threads;

const TILE_VALUES: usize = 1 << 20;
/// Columns between renewals of the ranges.
const SEGMENT: usize = 1024;
const ZERO: usize = 0;
/// Symbol of an exponent that is just as expected.
const CENTRE: i32 = 9;
/// Contexts: quarters of the expected exponent; then the row offsets.
const ROW_CONTEXT: usize = 4;
/// Exponents are expected here before any was seen.
const FIRST_EXPONENT: i32 = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mantissas {
    /// Stored bits, counted from the top.
    bits: u32,
    /// No normal value has a bit that stands for less than 2^`unit`.
    unit: i32,
}

impl Mantissas {
    fn of(words: &[u32]) -> Self {
        let zeros = words.iter().map(|w| (w | 1 << 23).trailing_zeros()).min().unwrap_or(23);
        let unit = words
            .iter()
            .filter(|&&w| (1..255).contains(&(w >> 23 & 255)))
            .map(|w| (w >> 23 & 255) as i32 - 150 + (w | 1 << 23).trailing_zeros() as i32)
            .min();
        Self { bits: 23 - zeros, unit: unit.unwrap_or(-150) }
    }

    /// How many mantissa bits per value of this exponent has.
    #[inline(always)]
    fn count(self, exponent: u32) -> u32 {
        if exponent == 0 || exponent == 255 {
            self.bits
        } else {
            (exponent as i32 - 127 - self.unit).clamp(0, self.bits as i32) as u32
        }
    }
}

/// What both sides know before a row.
struct State {
    model: Model,
    /// Running mean exponent of each column, in 1/256.
    means: Vec<i32>,
    offset: i32,
    age: u32,
}

impl State {
    fn new(cols: usize) -> Self {
        let flat = [4; SYMBOLS];
        Self {
            model: Model::new((0..=ROW_CONTEXT).map(|_| flat)),
            means: vec![FIRST_EXPONENT << 8; cols],
            offset: 0,
            age: 0,
        }
    }

    /// Context, and the exponent that symbol 0 would stand for.
    #[inline(always)]
    fn expect(&self, col: usize) -> (usize, i32) {
        let mean = self.means[col];
        ((mean >> 6 & 3) as usize, (mean >> 8) + self.offset - CENTRE)
    }

    fn learn(&mut self, exponents: &[u8]) {
        let shift = (32 - self.age.leading_zeros()).min(4);
        for (mean, &exponent) in self.means.iter_mut().zip(exponents) {
            if exponent != 0 {
                *mean += (((i32::from(exponent) - self.offset) << 8) - *mean) >> shift;
            }
        }
        self.age += 1;
    }
}

fn encode_tile(words: &[u32], stride: usize, tile: &Tile, mantissas: Mantissas) -> Vec<u8> {
    let mut state = State::new(tile.cols);
    let (mut recorder, mut raw) = (Recorder::default(), RawWriter::default());
    let mut exponents = vec![0u8; tile.cols];
    let push = |model: &mut Model, recorder: &mut Recorder, lane: usize, context: usize, symbol: usize| {
        let context = &mut model.contexts[context];
        recorder.push(lane % LANES, context.starts.range(symbol));
        context.count(symbol);
    };
    for row in 0..tile.rows {
        let words = &words[(tile.row + row) * stride + tile.col..][..tile.cols];
        exponents.iter_mut().zip(words).for_each(|(e, w)| *e = (w >> 23) as u8);
        let offset = row_offset(&exponents, &state.means);
        let change = zigzag(offset - state.offset) as usize;
        push(&mut state.model, &mut recorder, 0, ROW_CONTEXT, change.min(ESCAPE));
        if change >= ESCAPE {
            raw.put((offset + 256) as u32, 9);
        }
        state.offset = offset;
        for (col, &word) in words.iter().enumerate() {
            let exponent = word >> 23 & 255;
            let (context, base) = state.expect(col);
            let relative = exponent as i32 - base;
            let inside = (1..ESCAPE as i32).contains(&relative) && exponent != 0;
            let symbol = if word == 0 {
                ZERO
            } else if inside {
                relative as usize
            } else {
                ESCAPE
            };
            push(&mut state.model, &mut recorder, col, context, symbol);
            if symbol == ESCAPE {
                raw.put(exponent, 8);
            }
            if word != 0 {
                let count = mantissas.count(exponent);
                raw.put((word & 0x7f_ffff) >> (23 - count), count);
                raw.put(word >> 31, 1);
            }
            if (col + 1) % SEGMENT == 0 {
                state.model.adapt();
            }
        }
        state.model.adapt();
        state.learn(&exponents);
    }
    let mut bytes = recorder.finish(LANES);
    bytes.extend_from_slice(&raw.finish());
    bytes
}

/// Mean distance of a row's exponents from their columns' means.
fn row_offset(exponents: &[u8], means: &[i32]) -> i32 {
    let (mut sum, mut count) = (0i64, 0i64);
    for (&exponent, &mean) in exponents.iter().zip(means).filter(|(e, _)| **e != 0) {
        sum += (i64::from(exponent) << 8) - i64::from(mean);
        count += 1;
    }
    if count == 0 { 0 } else { ((sum / count + 128) >> 8) as i32 }
}

fn decode_tile(bytes: &[u8], tile: &Tile, mantissas: Mantissas) -> Result<Vec<u32>, Error> {
    let (mut symbols, mut raw) = (Decoder::new(bytes, LANES)?, RawReader::new(bytes));
    let mut state = State::new(tile.cols);
    let mut exponents = vec![0u8; tile.cols];
    let mut words = Vec::with_capacity(tile.rows * tile.cols);
    for _ in 0..tile.rows {
        let rows = &mut state.model.contexts[ROW_CONTEXT];
        let change = symbols.symbol(0, &rows.starts);
        rows.count(change);
        let offset =
            if change == ESCAPE { raw.get(9) as i32 - 256 } else { state.offset + unzigzag(change as u32) };
        state.offset = offset.clamp(-256, 255);
        for col in 0..tile.cols {
            let (context, base) = state.expect(col);
            let context = &mut state.model.contexts[context];
            let symbol = symbols.symbol(col % LANES, &context.starts);
            context.count(symbol);
            let exponent = match symbol {
                ZERO => 0,
                ESCAPE => raw.get(8),
                _ => (base + symbol as i32) as u32 & 255,
            };
            exponents[col] = exponent as u8;
            words.push(if symbol == ZERO {
                0
            } else {
                let count = mantissas.count(exponent);
                let mantissa = raw.get(count) << (23 - count);
                raw.get(1) << 31 | exponent << 23 | mantissa
            });
            if (col + 1) % SEGMENT == 0 {
                state.model.adapt();
            }
        }
        symbols.check()?;
        raw.check()?;
        state.model.adapt();
        state.learn(&exponents);
    }
    raw.finish(symbols.finish()?)?;
    Ok(words)
}

/// Encodes 32-bit words, each read as the pattern of a single-precision value.
pub fn encode_words(words: &[u32], rows: usize, cols: usize) -> Result<Vec<u8>, Error> {
    if words.len() != rows.saturating_mul(cols) {
        return Err(Error::Shape { rows, cols, found: words.len() });
    }
    let mut bytes = Vec::new();
    put_magic(&mut bytes, Kind::Words);
    put_varint(&mut bytes, rows as u64);
    put_varint(&mut bytes, cols as u64);
    if words.is_empty() {
        return Ok(bytes);
    }
    let mantissas = Mantissas::of(words);
    bytes.push(mantissas.bits as u8);
    put_varint(&mut bytes, (mantissas.unit + 256) as u64);
    let tiling = Tiling::new(rows, cols, TILE_VALUES);
    tiling.write(&mut bytes);
    let tiles: Vec<Tile> = tiling.tiles().collect();
    let coded = threads::map(&tiles, |tile| encode_tile(words, cols, tile, mantissas));
    coded.iter().for_each(|tile| put_varint(&mut bytes, tile.len() as u64));
    coded.iter().for_each(|tile| bytes.extend_from_slice(tile));
    Ok(bytes)
}

/// A matrix of words in row order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub rows: usize,
    pub cols: usize,
    pub words: Vec<u32>,
}

/// Decodes what follows the magic of a matrix of words.
pub fn decode_words(mut reader: Reader<'_>) -> Result<Words, Error> {
    let (rows, cols) = (reader.varint("rows")?, reader.varint("columns")?);
    let Some(count) = rows.checked_mul(cols).filter(|&n| n / MAX_VALUES_PER_BYTE <= reader.left() as u64)
    else {
        return Err(Error::Damaged { what: "the matrix is larger than its stream can hold" });
    };
    let (rows, cols) = (rows as usize, cols as usize);
    if count == 0 {
        return Ok(Words { rows, cols, words: Vec::new() });
    }
    let [bits] = reader.array("mantissa width")?;
    let unit = reader.varint("unit")?;
    if bits > 23 || unit > 512 {
        return Err(Error::Damaged { what: "mantissas out of range" });
    }
    let mantissas = Mantissas { bits: u32::from(bits), unit: unit as i32 - 256 };
    let tiling = Tiling::read(&mut reader, rows, cols)?;
    let tiles = tiling.bounded_tiles(reader.left())?;
    let lengths = tiles.iter().map(|_| reader.varint("tile length")).collect::<Result<Vec<_>, _>>()?;
    let work = reader.tiles(&tiles, &lengths)?;
    if reader.left() != 0 {
        return Err(Error::Damaged { what: "bytes after the last tile" });
    }
    let decoded = threads::map(&work, |(tile, bytes)| decode_tile(bytes, tile, mantissas));
    Ok(Words { rows, cols, words: joined(&tiles, decoded.into_iter().collect::<Result<_, _>>()?) })
}

pub fn encode(values: &[f32], rows: usize, cols: usize) -> Result<Encoded, Error> {
    let words: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
    let bytes = encode_words(&words, rows, cols)?;
    let report = Report {
        values: values.len(),
        passes: 1,
        bits: Bits { symbols: 8.0 * bytes.len() as f64, ..Bits::default() },
        ..Report::default()
    };
    Ok(Encoded { bytes, recon: values.to_vec(), report })
}

/// Decodes what follows the magic of a matrix of words, as values.
pub fn decode(reader: Reader<'_>) -> Result<Matrix, Error> {
    let Words { rows, cols, words } = decode_words(reader)?;
    Ok(Matrix { rows, cols, values: words.into_iter().map(f32::from_bits).collect() })
}
