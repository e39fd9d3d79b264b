//! One tile without feedback: everything a value needs is stated ahead.
//!
//! Column classes, row classes and ranges come first; then blocks of rows,
//! each with lanes and raw bits of its own. No value waits for another block,
//! which is what a codec at line rate in silicon needs. Plays the part of
//! [`crate::tile`] for plans with static entropy coding.

use crate::Error;
use crate::bytes::{Reader, put_varint};
use crate::model::{ESCAPE, SYMBOLS, Starts, cost_q12, ranges, unzigzag, zigzag};
use crate::plan::{Plan, Scalars};
use crate::rans::{Decoder, RawReader, RawWriter, Recorder, escape_bits, get_escape, put_escape};
use crate::scales::{CLASSES, UNIT_CLASS, prior, quarter_log2, raw_bits};
use crate::tile::{Coded, RowRates, coded_width, large, symbol_costs};
use crate::transform::Transformer;
use crate::trellis::{Code, GROUPS, Search, group, position};

/// Values of a block, about; a whole number of coded rows.
pub const BLOCK_VALUES: usize = 1 << 14;
/// Contexts of a tile.
const CONTEXTS: usize = GROUPS * CLASSES;
/// Ranges are sent with this many bits less than they are used with.
const COARSE: u32 = 5;
/// Rounding of a plain uniform quantizer: what a Laplacian source at some
/// three bits a value asks of a rate-aware one.
const ROUNDING: f32 = 0.40;

/// Rows of a block.
fn block_rows(width: usize) -> usize {
    BLOCK_VALUES.div_ceil(width.max(1))
}

/// What is stated ahead of a tile.
struct Stated {
    columns: Vec<i32>,
    rows: Vec<i32>,
    tables: Vec<Starts>,
}

impl Stated {
    /// Contexts of a row's values.
    fn classes(&self, row: usize, out: &mut [u8]) {
        let row = self.rows[row] + UNIT_CLASS;
        for (class, &column) in out.iter_mut().zip(&self.columns) {
            *class = (column + row).clamp(0, CLASSES as i32 - 1) as u8;
        }
    }

    fn default_tables() -> Vec<Starts> {
        (0..CONTEXTS).map(|context| ranges(&prior(context / GROUPS))).collect()
    }
}

/// Differences of neighbouring classes: four bits, or eleven.
fn put_classes(raw: &mut RawWriter, classes: &[i32]) {
    let mut before = 0;
    for &class in classes {
        let difference = zigzag(class - before);
        raw.put(difference.min(15) as u32, 4);
        if difference >= 15 {
            raw.put((class + 64) as u32, 7);
        }
        before = class;
    }
}

fn get_classes(raw: &mut RawReader<'_>, count: usize) -> Result<Vec<i32>, Error> {
    let mut before = 0;
    // Four bits at least for each: the size is checked before it is taken.
    raw.expect_bits(4 * count as u64)?;
    Ok((0..count)
        .map(|_| {
            let difference = raw.get(4) as usize;
            before = if difference == 15 {
                raw.get(7) as i32 - 64
            } else {
                (before + unzigzag(difference)).clamp(-64, 63)
            };
            before
        })
        .collect())
}

/// Ranges of the contexts that occurred, where they are worth their bits.
fn put_tables(raw: &mut RawWriter, counts: &[[u32; SYMBOLS]], tables: &mut [Starts]) {
    for (counts, table) in counts.iter().zip(tables) {
        let described = coarse(counts);
        let learned = ranges(&described);
        let bits = |starts: &Starts| -> u64 {
            (0..SYMBOLS).map(|s| u64::from(counts[s]) * u64::from(cost_q12(starts[s + 1] - starts[s]))).sum()
        };
        let description_bits: u32 = described.iter().map(|&d| escape_bits(d)).sum();
        let own = bits(&learned) + (u64::from(description_bits) << 12) < bits(table);
        raw.put(u32::from(own), 1);
        if own {
            described.iter().for_each(|&d| put_escape(raw, d));
            *table = learned;
        }
    }
}

/// Frequencies as they are sent.
fn coarse(counts: &[u32; SYMBOLS]) -> [u32; SYMBOLS] {
    let fine = ranges(counts);
    std::array::from_fn(|s| u32::from(fine[s + 1] - fine[s]) >> COARSE)
}

fn get_tables(raw: &mut RawReader<'_>, tables: &mut [Starts]) {
    for table in tables {
        if raw.get(1) == 1 {
            // Bounded, so that damage cannot overflow the sum.
            let coarse: [u32; SYMBOLS] = std::array::from_fn(|_| get_escape(raw).min(1 << 20));
            *table = ranges(&coarse);
        }
    }
}

/// Encodes all coded rows of a tile; `rows` holds their values and gets their
/// reconstruction.
pub fn encode(plan: &Plan, scalars: &Scalars, lambda: f32, cols: usize, rows: &mut [f32]) -> Coded {
    let width = coded_width(plan, cols);
    let padded = cols.next_multiple_of(plan.transform.width());
    let mut transformer = Transformer::new(plan.transform, padded);
    let inverse_step = 1.0 / scalars.step;
    let mut targets = vec![0.0; rows.len()];
    for (values, targets) in rows.chunks_exact(width).zip(targets.chunks_exact_mut(width)) {
        transformer.forward(values, targets);
        targets.iter_mut().for_each(|t| *t *= inverse_step);
    }
    let (columns, row_classes) = classify(&targets, width);
    let mut stated = Stated { columns, rows: row_classes, tables: Stated::default_tables() };
    let mut coded = Coded::default();
    let levels = quantize(plan, scalars, lambda, &stated, &targets, width, &mut coded);
    let counts = census(plan, &stated, &levels, width);
    let mut head = RawWriter::default();
    put_classes(&mut head, &stated.columns);
    put_classes(&mut head, &stated.rows);
    put_tables(&mut head, &counts, &mut stated.tables);
    coded.bits.side = head.bits() as f64;
    let head = head.finish();
    put_varint(&mut coded.bytes, head.len() as u64);
    coded.bytes.extend_from_slice(&head);
    write_blocks(plan, &stated, &levels, width, &mut coded);
    let mut coefficients = vec![0.0; width];
    for (values, levels) in rows.chunks_exact_mut(width).zip(levels.chunks_exact(width)) {
        reconstruct(plan, scalars, levels, &mut coefficients);
        let original = values.to_vec();
        transformer.inverse(&coefficients, values);
        coded.squared_error +=
            values.iter().zip(&original).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    }
    coded
}

/// Column classes from mean magnitudes, row classes from what is left.
fn classify(targets: &[f32], width: usize) -> (Vec<i32>, Vec<i32>) {
    let count = (targets.len() / width).max(1) as f32;
    let mut means = vec![0.0f32; width];
    for row in targets.chunks_exact(width) {
        means.iter_mut().zip(row).for_each(|(m, t)| *m += t.abs());
    }
    // Magnitudes of levels are half those of steps; 16 bits of fraction.
    let class = |mean: f32| quarter_log2(((mean * 32768.0).min(2e9) as i32).max(1 << 10)).clamp(-24, 60);
    let columns: Vec<i32> = means.iter().map(|m| class(m / count)).collect();
    let expected: f32 = means.iter().sum::<f32>() / count;
    let rows = targets
        .chunks_exact(width)
        .map(|row| {
            let sum: f32 = row.iter().map(|t| t.abs()).sum();
            let ratio = if expected > 0.0 { sum / expected * 1.09 } else { 1.0 };
            quarter_log2(((ratio * 65536.0).min(2e9) as i32).max(1)).clamp(-63, 63)
        })
        .collect();
    (columns, rows)
}

/// Levels of the whole tile.
fn quantize(
    plan: &Plan,
    scalars: &Scalars,
    lambda: f32,
    stated: &Stated,
    targets: &[f32],
    width: usize,
    coded: &mut Coded,
) -> Vec<i32> {
    let mut levels = vec![0; targets.len()];
    if plan.log2_states == 0 {
        for (level, &target) in levels.iter_mut().zip(targets) {
            *level = (target * 0.5 + ROUNDING.copysign(target)) as i32;
        }
    } else {
        let code = Code::new(plan.log2_states)
            .unwrap_or_else(|| unreachable!("plans are checked when made or read"));
        let costs: Vec<[f32; 16]> = stated.tables.iter().map(|t| symbol_costs(t, lambda)).collect();
        let mut classes = vec![0; width];
        let mut search = Search::default();
        for (row, (targets, levels)) in
            targets.chunks_exact(width).zip(levels.chunks_exact_mut(width)).enumerate()
        {
            stated.classes(row, &mut classes);
            let rates = RowRates { classes: &classes, costs: &costs, lambda };
            for first in (0..width).step_by(1 << plan.log2_segment) {
                let last = (first + (1 << plan.log2_segment)).min(width);
                search.run(
                    &code,
                    &targets[first..last],
                    &rates,
                    first,
                    &scalars.centroids,
                    &mut levels[first..last],
                );
            }
        }
    }
    note_drift(plan, &levels, targets, width, coded);
    levels
}

/// Follows the state machine over every segment of a row.
#[inline(always)]
fn walk(code: &Code, segment: usize, levels: &[i32], mut visit: impl FnMut(usize, u16, i32)) {
    for (first, levels) in (0..).step_by(segment).zip(levels.chunks(segment)) {
        let mut state = 0;
        for (column, &level) in (first..).zip(levels) {
            visit(column, state, level);
            state = code.next(state, (level & 1) as u16);
        }
    }
}

/// The state machine and segment length of a plan.
fn machine(plan: &Plan) -> (Code, usize) {
    let code =
        Code::new(plan.log2_states).unwrap_or_else(|| unreachable!("plans are checked when made or read"));
    (code, 1 << plan.log2_segment)
}

fn note_drift(plan: &Plan, levels: &[i32], targets: &[f32], width: usize, coded: &mut Coded) {
    let (code, segment) = machine(plan);
    // A sample of the rows is plenty for six means.
    for (levels, targets) in levels.chunks_exact(width).zip(targets.chunks_exact(width)).step_by(4) {
        walk(&code, segment, levels, |column, state, level| {
            if level != 0 {
                let (quantizer, magnitude) = (usize::from(state & 1), level.unsigned_abs());
                let (sum, count) = &mut coded.drift[quantizer][magnitude.min(3) as usize - 1];
                *sum += f64::from(targets[column].abs()) - f64::from(2 * magnitude - quantizer as u32);
                *count += 1;
            }
        });
    }
}

/// How often each symbol occurs in each context.
fn census(plan: &Plan, stated: &Stated, levels: &[i32], width: usize) -> Vec<[u32; SYMBOLS]> {
    let (code, segment) = machine(plan);
    let mut counts = vec![[0; SYMBOLS]; CONTEXTS];
    let mut classes = vec![0; width];
    for (row, levels) in levels.chunks_exact(width).enumerate() {
        stated.classes(row, &mut classes);
        walk(&code, segment, levels, |column, state, level| {
            let class = classes[column];
            let symbol = (level.unsigned_abs() >> raw_bits(class)).min(ESCAPE as u32);
            counts[GROUPS * usize::from(class) + group(state)][symbol as usize] += 1;
        });
    }
    counts
}

fn write_blocks(plan: &Plan, stated: &Stated, levels: &[i32], width: usize, coded: &mut Coded) {
    let (code, segment) = machine(plan);
    let mut classes = vec![0; width];
    let rows = block_rows(width);
    for (block, levels) in levels.chunks(rows * width).enumerate() {
        let (mut recorder, mut raw) = (Recorder::with_capacity(levels.len()), RawWriter::default());
        for (row, levels) in levels.chunks_exact(width).enumerate() {
            stated.classes(block * rows + row, &mut classes);
            walk(&code, segment, levels, |column, state, level| {
                let class = classes[column];
                let magnitude = level.unsigned_abs();
                let low = raw_bits(class);
                let symbol = (magnitude >> low).min(ESCAPE as u32) as usize;
                let starts = &stated.tables[GROUPS * usize::from(class) + group(state)];
                recorder.push(starts[symbol], starts[symbol + 1] - starts[symbol]);
                if symbol == ESCAPE {
                    put_escape(&mut raw, (magnitude >> low) - ESCAPE as u32);
                }
                if low > 0 {
                    raw.put(magnitude & ((1 << low) - 1), low);
                }
                raw.put(u32::from(level < 0), u32::from(level != 0));
            });
        }
        coded.bits.raw += raw.bits() as f64;
        let (symbols, raw) = (recorder.finish(), raw.finish());
        coded.bits.symbols += 8.0 * symbols.len() as f64;
        put_varint(&mut coded.bytes, symbols.len() as u64);
        put_varint(&mut coded.bytes, raw.len() as u64);
        coded.bytes.extend_from_slice(&symbols);
        coded.bytes.extend_from_slice(&raw);
    }
}

/// Coefficients of one coded row.
fn reconstruct(plan: &Plan, scalars: &Scalars, levels: &[i32], coefficients: &mut [f32]) {
    let unit = scalars.step / 64.0;
    let (code, segment) = machine(plan);
    walk(&code, segment, levels, |column, state, level| {
        coefficients[column] = position(level, usize::from(state & 1), &scalars.centroids) as f32 * unit;
    });
}

/// Decodes all coded rows of a tile.
pub fn decode(
    plan: &Plan,
    scalars: &Scalars,
    cols: usize,
    count: usize,
    bytes: &[u8],
) -> Result<Vec<f32>, Error> {
    let width = coded_width(plan, cols);
    let mut reader = Reader::new(bytes);
    let length = reader.varint("tile")?;
    let mut head = RawReader::new(reader.slice(length, "classes of a tile")?);
    let mut stated = Stated {
        columns: get_classes(&mut head, width)?,
        rows: get_classes(&mut head, count)?,
        tables: Stated::default_tables(),
    };
    get_tables(&mut head, &mut stated.tables);
    head.finish()?;
    let padded = cols.next_multiple_of(plan.transform.width());
    let mut transformer = Transformer::new(plan.transform, padded);
    let mut values = vec![0.0; count * width];
    let (mut levels, mut coefficients) = (vec![0; width], vec![0.0; width]);
    let rows = block_rows(width);
    for (block, values) in values.chunks_mut(rows * width).enumerate() {
        let (symbols, raw) = (reader.varint("block")?, reader.varint("block")?);
        let mut symbols = Decoder::new(reader.slice(symbols, "symbols of a block")?)?;
        let mut raw = RawReader::new(reader.slice(raw, "raw bits of a block")?);
        for (row, values) in values.chunks_exact_mut(width).enumerate() {
            read_row(plan, &stated, block * rows + row, &mut symbols, &mut raw, &mut levels)?;
            reconstruct(plan, scalars, &levels, &mut coefficients);
            transformer.inverse(&coefficients, values);
        }
        symbols.finish()?;
        raw.finish()?;
    }
    if reader.left() != 0 {
        return Err(Error::Damaged { what: "bytes after the last block" });
    }
    Ok(values)
}

fn read_row(
    plan: &Plan,
    stated: &Stated,
    row: usize,
    symbols: &mut Decoder<'_>,
    raw: &mut RawReader<'_>,
    levels: &mut [i32],
) -> Result<(), Error> {
    let code =
        Code::new(plan.log2_states).unwrap_or_else(|| unreachable!("plans are checked when made or read"));
    let row = stated.rows[row] + UNIT_CLASS;
    let segment = 1 << plan.log2_segment;
    for (levels, columns) in levels.chunks_mut(segment).zip(stated.columns.chunks(segment)) {
        let mut state = 0;
        for (level, &column) in levels.iter_mut().zip(columns) {
            let class = (column + row).clamp(0, CLASSES as i32 - 1) as u8;
            let symbol = symbols.symbol(&stated.tables[GROUPS * usize::from(class) + group(state)]);
            let low = raw_bits(class);
            let mut magnitude = symbol as u32;
            if low > 0 || symbol == ESCAPE {
                magnitude = large(magnitude, low, raw)?;
            }
            let sign = raw.get(u32::from(magnitude != 0)) as i32;
            *level = (magnitude as i32 ^ -sign) + sign;
            state = code.next(state, (magnitude & 1) as u16);
        }
    }
    symbols.check()?;
    raw.check()
}
