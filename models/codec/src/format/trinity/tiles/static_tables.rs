//! One tile without feedback: everything a value needs is signalled ahead.
//!
//! Column classes, row classes and ranges come first; then blocks of rows,
//! each with lanes and raw bits of its own. No value waits for another block,
//! which is what a codec at line rate in silicon needs. Plays the part of
//! [`crate::format::trinity::tiles::adaptive`] for plans with static entropy coding.

use crate::Error;
use crate::entropy::lanes::{self, Writer, context, symbol};
use crate::entropy::model::{Context, ESCAPE, SYMBOLS, contexts, cost_q12, ranges};
use crate::entropy::rans::{
    Decoder, LANES, RawReader, RawWriter, Starts, escape_bits, get_escape, packed, put_escape,
};
use crate::entropy::scales::{CLASSES, FIRST_RAW_CLASS, UNIT_CLASS, prior, quarter_log2};
use crate::format::trinity::bytes::{Reader, put_varint};
use crate::format::trinity::plan::{Plan, Scalars};
use crate::format::trinity::tiles::coded::{self, Coded, coded_width, note_drift, symbol_costs};
use crate::stage::transform::Transformer;
use crate::stage::trellis::Decision;
use crate::stage::trellis::{Code, Costs, GROUPS, MAX_TARGET, Points, Search};
use trinity_bits::golomb::{unzigzag, zigzag};

/// Values of a block, about; a whole number of coded rows.
pub const BLOCK_VALUES: usize = 1 << 14;
const CONTEXTS: usize = GROUPS * CLASSES;
/// Ranges are sent with this many bits less than they are used with.
const COARSE: u32 = 5;
/// Rounding of a plain uniform quantizer: what a Laplacian source at some
/// three bits per value asks of a rate-aware one. Beside the adaptive coder's
/// 51/128 (`DEAD_ZONE`): streams of both are pinned.
const ROUNDING: f32 = 0.40;
/// Where every lane's state machine stands at the start of a row.
const START: [u8; LANES] = [0; LANES];

fn block_rows(width: usize) -> usize {
    BLOCK_VALUES.div_ceil(width.max(1))
}

/// What is signalled ahead of a tile.
struct Signalled {
    columns: Vec<i32>,
    rows: Vec<i32>,
    tables: Vec<Starts>,
}

impl Signalled {
    #[inline(always)]
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
        raw.put(difference.min(15), 4);
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
            let difference = raw.get(4);
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
        if counts.iter().all(|&n| n == 0) {
            raw.put(0, 1);
            continue;
        }
        let described = coarse(counts);
        let learned = ranges(&described);
        let bits = |starts: &Starts| -> u64 {
            (0..SYMBOLS).map(|s| u64::from(counts[s]) * u64::from(cost_q12(starts.range(s).1))).sum()
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
    std::array::from_fn(|s| u32::from(fine.range(s).1) >> COARSE)
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
#[inline(always)]
pub fn encode(
    plan: &Plan,
    scalars: &Scalars,
    decision: (Decision, f32),
    cols: usize,
    rows: &mut [f32],
) -> Coded {
    let width = coded_width(plan, cols);
    let padded = cols.next_multiple_of(plan.transform.width());
    let mut transformer = Transformer::new(plan.transform, 1, padded);
    let inverse_step = 1.0 / scalars.step;
    let mut residuals = vec![0.0; rows.len()];
    for (values, residuals) in rows.chunks_exact(width).zip(residuals.chunks_exact_mut(width)) {
        transformer.forward(values, residuals);
        residuals.iter_mut().for_each(|r| *r *= inverse_step);
    }
    let (columns, row_classes) = classify(&residuals, width);
    let mut signalled = Signalled { columns, rows: row_classes, tables: Signalled::default_tables() };
    let mut coded = Coded::default();
    let code = machine(plan);
    let magnitudes = quantize(&code, scalars, decision, &signalled, &residuals, width);
    for (magnitudes, residuals) in
        magnitudes.chunks_exact(width).zip(residuals.chunks_exact(width)).step_by(4)
    {
        // A sample of the rows is plenty for six means.
        note_drift(&code, START, magnitudes, residuals, &mut coded.drift);
    }
    let symbols = census(&code, &signalled, &magnitudes, width);
    let mut head = RawWriter::default();
    put_classes(&mut head, &signalled.columns);
    put_classes(&mut head, &signalled.rows);
    put_tables(&mut head, &symbols.counts, &mut signalled.tables);
    coded.bits.side = head.bits() as f64;
    let head = head.finish();
    put_varint(&mut coded.bytes, head.len() as u64);
    coded.bytes.extend_from_slice(&head);
    write_blocks(&signalled, &symbols, &magnitudes, &residuals, width, &mut coded);
    let points = Points::new(&scalars.centroids);
    let mut coefficients = vec![0.0; width];
    let mut original = vec![0.0; width];
    for ((values, magnitudes), residuals) in
        rows.chunks_exact_mut(width).zip(magnitudes.chunks_exact(width)).zip(residuals.chunks_exact(width))
    {
        let mut lanes = START;
        for (i, ((coefficient, &magnitude), residual)) in
            coefficients.iter_mut().zip(magnitudes).zip(residuals).enumerate()
        {
            let state = &mut lanes[i % LANES];
            let distance = points.distance(magnitude, usize::from(*state & 1));
            let point = if residual.is_sign_negative() { -distance } else { distance };
            *coefficient = point as f32 * (scalars.step / 64.0);
            *state = code.next(*state, magnitude);
        }
        original.copy_from_slice(values);
        transformer.inverse(&coefficients, values);
        let errors = values.iter().zip(&original).map(|(a, b)| (a - b) * (a - b));
        coded.squared_error += f64::from(errors.sum::<f32>());
    }
    coded
}

fn machine(plan: &Plan) -> Code {
    Code::new(plan.log2_states).unwrap_or_else(|| unreachable!("plans are checked when made or read"))
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

/// Magnitudes of the whole tile.
#[inline(always)]
fn quantize(
    code: &Code,
    scalars: &Scalars,
    (decision, lambda): (Decision, f32),
    signalled: &Signalled,
    residuals: &[f32],
    width: usize,
) -> Vec<u32> {
    let mut magnitudes = vec![0; residuals.len()];
    if decision == Decision::DeadZone {
        for (magnitude, residual) in magnitudes.iter_mut().zip(residuals) {
            *magnitude = (residual.abs() * 0.5 + ROUNDING).min((MAX_TARGET >> 7) as f32) as u32;
        }
        return magnitudes;
    }
    let costs: Vec<Costs> = signalled.tables.iter().map(|t| symbol_costs(t, lambda)).collect();
    let points = Points::new(&scalars.centroids);
    let mut classes = vec![0; width];
    let mut targets = vec![0; width];
    let mut search = Search::default();
    for (row, (residuals, magnitudes)) in
        residuals.chunks_exact(width).zip(magnitudes.chunks_exact_mut(width)).enumerate()
    {
        signalled.classes(row, &mut classes);
        for (target, residual) in targets.iter_mut().zip(residuals) {
            *target = coded::target(*residual);
        }
        search.run((code, &points), START, &targets, &classes, &costs, magnitudes);
    }
    magnitudes
}

/// Context and symbol of every value (16 · context + symbol), and how often
/// each occurs.
struct Census {
    symbols: Vec<u16>,
    counts: Vec<[u32; SYMBOLS]>,
}

#[inline(always)]
fn census(code: &Code, signalled: &Signalled, magnitudes: &[u32], width: usize) -> Census {
    let mut census = Census { symbols: vec![0; magnitudes.len()], counts: vec![[0; SYMBOLS]; CONTEXTS] };
    let mut classes = vec![0; width];
    for (row, (magnitudes, symbols)) in
        magnitudes.chunks_exact(width).zip(census.symbols.chunks_exact_mut(width)).enumerate()
    {
        signalled.classes(row, &mut classes);
        let mut lanes = START;
        for (i, ((&magnitude, &class), out)) in magnitudes.iter().zip(&classes).zip(symbols).enumerate() {
            let state = &mut lanes[i % LANES];
            let (context, symbol) = (context(class, *state), symbol(class, magnitude));
            let context = usize::from(context);
            census.counts[context][symbol] += 1;
            *out = (SYMBOLS * context + symbol) as u16;
            *state = code.next(*state, magnitude);
        }
    }
    census
}

#[inline(always)]
fn write_blocks(
    signalled: &Signalled,
    census: &Census,
    magnitudes: &[u32],
    residuals: &[f32],
    width: usize,
    coded: &mut Coded,
) {
    // As symbols of the first lane.
    let ranges: Vec<u32> =
        signalled.tables.iter().flat_map(|t| (0..SYMBOLS).map(|symbol| packed(0, t.range(symbol)))).collect();
    let values = block_rows(width) * width;
    for ((symbols, magnitudes), residuals) in
        census.symbols.chunks(values).zip(magnitudes.chunks(values)).zip(residuals.chunks(values))
    {
        let mut writer = Writer::default();
        for row in symbols.chunks_exact(width) {
            for (i, (out, &symbol)) in writer.recorder.more(width).iter_mut().zip(row).enumerate() {
                *out = ranges[usize::from(symbol)] | ((i % LANES) as u32) << 30;
            }
        }
        let rows = symbols.chunks_exact(width).zip(magnitudes.chunks_exact(width));
        for ((symbols, magnitudes), residuals) in rows.zip(residuals.chunks_exact(width)) {
            for (&symbol, &magnitude) in symbols.iter().zip(magnitudes) {
                let class = (usize::from(symbol) / (SYMBOLS * GROUPS)) as u8;
                if class >= FIRST_RAW_CLASS || magnitude >= ESCAPE as u32 {
                    writer.put_raw(class, magnitude);
                }
            }
            writer.put_signs(magnitudes, residuals);
        }
        let Writer { recorder, raw } = writer;
        coded.bits.raw += raw.bits() as f64;
        let (symbols, raw) = (recorder.finish(LANES), raw.finish());
        coded.bits.symbols += 8.0 * symbols.len() as f64;
        put_varint(&mut coded.bytes, (symbols.len() + raw.len()) as u64);
        coded.bytes.extend_from_slice(&symbols);
        coded.bytes.extend_from_slice(&raw);
    }
}

/// Decodes all coded rows of a tile.
#[inline(always)]
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
    let mut signalled = Signalled {
        columns: get_classes(&mut head, width)?,
        rows: get_classes(&mut head, count)?,
        tables: Signalled::default_tables(),
    };
    get_tables(&mut head, &mut signalled.tables);
    head.finish(0)?;
    let padded = cols.next_multiple_of(plan.transform.width());
    let mut transformer = Transformer::new(plan.transform, 1, padded);
    let mut values = vec![0.0; count * width];
    let mut coefficients = vec![0.0; width];
    let mut classes = vec![0; width];
    let mut levels = vec![0; width];
    let mut contexts = contexts(signalled.tables.iter().map(|&starts| Context::of(starts)));
    let (code, points, unit) = (machine(plan), Points::new(&scalars.centroids), scalars.step / 64.0);
    let rows = block_rows(width);
    for (block, values) in values.chunks_mut(rows * width).enumerate() {
        let length = reader.varint("block")?;
        let bytes = reader.slice(length, "block")?;
        let (symbols, raw) = (Decoder::new(bytes, LANES)?, RawReader::new(bytes));
        let mut block_reader = lanes::Reader { symbols, raw, states: START };
        for (row, values) in values.chunks_exact_mut(width).enumerate() {
            signalled.classes(block * rows + row, &mut classes);
            block_reader.states = START;
            let raw = classes.iter().fold(0, |most, &class| class.max(most)) >= FIRST_RAW_CLASS;
            block_reader.levels((LANES, raw), &classes, &code, &mut contexts, &mut levels)?;
            block_reader.signed(&mut levels, &points, unit, &mut coefficients);
            block_reader.check()?;
            transformer.inverse(&coefficients, values);
        }
        block_reader.finish()?;
    }
    if reader.left() != 0 {
        return Err(Error::Damaged { what: "bytes after the last block" });
    }
    Ok(values)
}
