//! One tile: coded row after coded row through every stage.
//!
//! Encoder and decoder share [`State`], everything that both sides know
//! before a row; what one writes and the other reads about the row is next to
//! each other here. Knows a plan and its numbers; knows nothing of headers,
//! rate control or files.

use crate::Error;
use crate::bytes::{Reader, put_varint};
use crate::model::{ESCAPE, Model, cost_q12, geometric_prior, unzigzag, zigzag};
use crate::plan::{Plan, Scalars};
use crate::rans::{Decoder, RawReader, RawWriter, Recorder, get_escape, put_escape};
use crate::report::Bits;
use crate::scales::{CLASSES, ROW_CLASSES, Scales, WEIGHTS, prior, quarter_log2, raw_bits};
use crate::transform::Transformer;
use crate::trellis::{Code, ColumnRates, GROUPS, MAX_LEVEL, Rates, Search, group, position};

/// Context of the row classes, after those of the values.
const ROW_CONTEXT: usize = GROUPS * CLASSES;

/// What both sides know before a coded row.
struct State {
    code: Code,
    successors: Vec<u16>,
    model: Model,
    scales: Scales,
    transformer: Transformer,
    row_class: i32,
    classes: Vec<u8>,
    levels: Vec<i32>,
    /// Reconstructed coefficients; on entry to a row, those of the row above.
    coefficients: Vec<f32>,
    segment: usize,
    prediction: f32,
    scalars: Scalars,
}

impl State {
    /// For coded rows of `width` values, made from rows of `cols` columns.
    fn new(plan: &Plan, scalars: &Scalars, cols: usize, width: usize) -> Self {
        let code = Code::new(plan.log2_states)
            .unwrap_or_else(|| unreachable!("plans are checked when made or read"));
        let priors = (0..CLASSES).flat_map(|class| [prior(class); GROUPS]).chain([geometric_prior(16)]);
        Self {
            successors: code.table(),
            code,
            model: Model::new(priors),
            scales: Scales::new(WEIGHTS[usize::from(plan.weights)], width),
            transformer: Transformer::new(plan.transform, cols),
            row_class: 0,
            classes: vec![0; width],
            levels: vec![0; width],
            coefficients: vec![0.0; width],
            segment: 1 << plan.log2_segment,
            prediction: f32::from(plan.prediction) / 16.0,
            scalars: *scalars,
        }
    }

    /// From levels to values; then learns from the row.
    fn reconstruct(&mut self, values: &mut [f32]) {
        let unit = self.scalars.step / 64.0;
        for (levels, coefficients) in
            self.levels.chunks(self.segment).zip(self.coefficients.chunks_mut(self.segment))
        {
            let mut state = 0;
            for (&level, coefficient) in levels.iter().zip(coefficients) {
                let point = position(level, usize::from(state & 1), &self.scalars.centroids);
                *coefficient = *coefficient * self.prediction + point as f32 * unit;
                state = self.successors[usize::from(2 * state + (level & 1) as u16)];
            }
        }
        self.transformer.inverse(&self.coefficients, values);
        self.scales.update(&self.levels, self.row_class);
        if self.transformer.learn(&self.coefficients) {
            self.scales.rejuvenate(3);
        }
    }
}

/// What an encoded tile is and how it came out.
#[derive(Debug, Clone, Default)]
pub struct Coded {
    pub bytes: Vec<u8>,
    pub squared_error: f64,
    pub bits: Bits,
    /// Sum of distances from the nominal points in steps, and how many, by
    /// quantizer and magnitude as in [`crate::trellis::Centroids`].
    pub drift: [[(f64, u64); 3]; 2],
}

/// λ · bits of every level in the contexts of one row.
pub struct RowRates<'a> {
    pub classes: &'a [u8],
    pub costs: &'a [[f32; 16]],
    pub lambda: f32,
}

impl Rates for RowRates<'_> {
    #[inline(always)]
    fn column(&self, column: usize) -> ColumnRates<'_> {
        let class = self.classes[column];
        let context = GROUPS * usize::from(class);
        let raw_bits = raw_bits(class);
        ColumnRates {
            costs: [&self.costs[context], &self.costs[context + 1]],
            raw_bits,
            raw_cost: self.lambda * raw_bits as f32,
            lambda: self.lambda,
        }
    }
}

/// The encoder of one tile.
pub struct TileEncoder {
    state: State,
    lambda: f32,
    costs: Vec<[f32; 16]>,
    search: Search,
    recorder: Recorder,
    raw: RawWriter,
    values: Vec<f32>,
    targets: Vec<f32>,
    /// How much larger plain rounding makes a row than the search does.
    rounding_bias: f32,
    coded: Coded,
}

impl std::fmt::Debug for TileEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TileEncoder").field("coded", &self.coded).finish_non_exhaustive()
    }
}

/// λ · bits of the sixteen symbols of a context.
pub fn symbol_costs(starts: &crate::model::Starts, lambda: f32) -> [f32; 16] {
    std::array::from_fn(|s| cost_q12(starts[s + 1] - starts[s]) as f32 / 4096.0 * lambda)
}

impl TileEncoder {
    /// `lambda` weighs bits against squared steps.
    pub fn new(plan: &Plan, scalars: &Scalars, lambda: f32, cols: usize) -> Self {
        let width = coded_width(plan, cols);
        let state = State::new(plan, scalars, cols.next_multiple_of(plan.transform.width()), width);
        Self {
            costs: state.model.starts.iter().map(|s| symbol_costs(s, lambda)).collect(),
            state,
            lambda,
            search: Search::default(),
            recorder: Recorder::default(),
            raw: RawWriter::default(),
            values: vec![0.0; width],
            targets: vec![0.0; width],
            rounding_bias: 1.0,
            coded: Coded::default(),
        }
    }

    /// Codes one coded row of `values` and leaves its reconstruction there.
    pub fn row(&mut self, values: &mut [f32]) {
        let inverse_step = 1.0 / self.state.scalars.step;
        self.state.transformer.forward(values, &mut self.values);
        for ((target, &value), &above) in
            self.targets.iter_mut().zip(&self.values).zip(&self.state.coefficients)
        {
            *target = (value - above * self.state.prediction) * inverse_step;
        }
        self.row_class();
        for first in (0..self.targets.len()).step_by(self.state.segment) {
            self.segment(first);
        }
        self.note_drift();
        self.values.copy_from_slice(values);
        self.state.reconstruct(values);
        self.coded.squared_error +=
            values.iter().zip(&self.values).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    }

    /// States how large the row is against what its columns expect.
    fn row_class(&mut self) {
        let expected: i64 = self.state.scales.expect().iter().map(|&e| i64::from(e)).sum();
        // Magnitudes as rounding with the search's dead zone would make them,
        // in 1/16 to keep small rows apart.
        let rounded: i64 = self.targets.iter().map(|t| i64::from((t.abs() * 0.5 + 0.4) as i32)).sum();
        let size = (rounded as f32 * self.rounding_bias) * 65536.0 + 1024.0 * self.targets.len() as f32;
        let ratio = size / expected as f32;
        let class = quarter_log2(((ratio * 1.09 * 65536.0) as i32).max(1))
            .clamp(*ROW_CLASSES.start(), *ROW_CLASSES.end());
        let difference = zigzag(class - self.state.row_class);
        self.push(ROW_CONTEXT, difference.min(ESCAPE));
        self.coded.bits.side += f64::from(self.cost_bits(ROW_CONTEXT, difference.min(ESCAPE)));
        if difference >= ESCAPE {
            self.raw.put((class + 64) as u32, 7);
            self.coded.bits.side += 7.0;
        }
        self.state.row_class = class;
        self.state.scales.classes(class, &mut self.state.classes);
    }

    fn cost_bits(&self, context: usize, symbol: usize) -> f32 {
        self.costs[context][symbol] / self.lambda
    }

    #[inline(always)]
    fn push(&mut self, context: usize, symbol: usize) {
        let starts = &self.state.model.starts[context];
        self.recorder.push(starts[symbol], starts[symbol + 1] - starts[symbol]);
        self.state.model.count(context, symbol);
    }

    /// Quantizes and codes the segment that begins at column `first`.
    fn segment(&mut self, first: usize) {
        let last = (first + self.state.segment).min(self.targets.len());
        let rates = RowRates { classes: &self.state.classes, costs: &self.costs, lambda: self.lambda };
        self.search.run(
            &self.state.code,
            &self.targets[first..last],
            &rates,
            first,
            &self.state.scalars.centroids,
            &mut self.state.levels[first..last],
        );
        let mut state = 0u16;
        for column in first..last {
            let level = self.state.levels[column];
            let class = self.state.classes[column];
            let magnitude = level.unsigned_abs();
            let raw = raw_bits(class);
            let symbol = (magnitude >> raw).min(ESCAPE as u32);
            self.push(GROUPS * usize::from(class) + group(state), symbol as usize);
            if symbol == ESCAPE as u32 {
                put_escape(&mut self.raw, (magnitude >> raw) - ESCAPE as u32);
            }
            if raw > 0 {
                self.raw.put(magnitude & ((1 << raw) - 1), raw);
            }
            if magnitude != 0 {
                self.raw.put(u32::from(level < 0), 1);
            }
            state = self.state.successors[usize::from(2 * state + (magnitude & 1) as u16)];
        }
        let (costs, lambda) = (&mut self.costs, self.lambda);
        self.state.model.adapt(|context, starts| costs[context] = symbol_costs(starts, lambda));
    }

    /// Remembers where values lie in their intervals, for the next pass.
    fn note_drift(&mut self) {
        let (mut magnitudes, mut rounded) = (0u64, 0u64);
        for (levels, targets) in
            self.state.levels.chunks(self.state.segment).zip(self.targets.chunks(self.state.segment))
        {
            let mut state = 0u16;
            for (&level, &target) in levels.iter().zip(targets) {
                let quantizer = usize::from(state & 1);
                let magnitude = level.unsigned_abs();
                rounded += u64::from((target.abs() * 0.5 + 0.4) as u32);
                if magnitude != 0 {
                    magnitudes += u64::from(magnitude);
                    let nominal = (2 * magnitude - quantizer as u32) as f32;
                    let (sum, count) = &mut self.coded.drift[quantizer][magnitude.min(3) as usize - 1];
                    *sum += f64::from(target.abs() - nominal);
                    *count += 1;
                }
                state = self.state.successors[usize::from(2 * state + (magnitude & 1) as u16)];
            }
        }
        if rounded > 0 {
            let ratio = magnitudes as f32 / rounded as f32;
            self.rounding_bias += (ratio.clamp(0.25, 2.0) - self.rounding_bias) / 16.0;
        }
    }

    /// The tile's bytes and what became of it.
    pub fn finish(mut self) -> Coded {
        self.coded.bits.raw = self.raw.bits() as f64;
        let symbols = self.recorder.finish();
        self.coded.bits.symbols = 8.0 * symbols.len() as f64 - self.coded.bits.side;
        put_varint(&mut self.coded.bytes, symbols.len() as u64);
        self.coded.bytes.extend_from_slice(&symbols);
        self.coded.bytes.extend_from_slice(&self.raw.finish());
        self.coded
    }
}

/// Values of a coded row over `cols` columns.
pub fn coded_width(plan: &Plan, cols: usize) -> usize {
    cols.next_multiple_of(plan.transform.width()) * plan.transform.height()
}

/// The decoder of one tile.
pub struct TileDecoder<'a> {
    state: State,
    symbols: Decoder<'a>,
    raw: RawReader<'a>,
}

impl std::fmt::Debug for TileDecoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TileDecoder").field("symbols", &self.symbols).finish_non_exhaustive()
    }
}

impl<'a> TileDecoder<'a> {
    /// Opens the bytes of one tile.
    pub fn new(plan: &Plan, scalars: &Scalars, cols: usize, bytes: &'a [u8]) -> Result<Self, Error> {
        let width = coded_width(plan, cols);
        let mut reader = Reader::new(bytes);
        let length = reader.varint("tile")?;
        let symbols = Decoder::new(reader.slice(length, "symbols of a tile")?)?;
        let raw = RawReader::new(reader.rest());
        let state = State::new(plan, scalars, cols.next_multiple_of(plan.transform.width()), width);
        Ok(Self { state, symbols, raw })
    }

    /// Decodes the next coded row into `values`.
    pub fn row(&mut self, values: &mut [f32]) -> Result<(), Error> {
        self.row_class();
        for first in (0..self.state.levels.len()).step_by(self.state.segment) {
            self.segment(first)?;
        }
        self.state.reconstruct(values);
        Ok(())
    }

    fn row_class(&mut self) {
        self.state.scales.expect();
        let symbol = self.symbols.symbol(&self.state.model.starts[ROW_CONTEXT]);
        self.state.model.count(ROW_CONTEXT, symbol);
        let class = if symbol == ESCAPE {
            self.raw.get(7) as i32 - 64
        } else {
            self.state.row_class + unzigzag(symbol)
        };
        self.state.row_class = class.clamp(*ROW_CLASSES.start(), *ROW_CLASSES.end());
        self.state.scales.classes(self.state.row_class, &mut self.state.classes);
    }

    fn segment(&mut self, first: usize) -> Result<(), Error> {
        let last = (first + self.state.segment).min(self.state.levels.len());
        let mut state = 0u16;
        let State { model, successors, classes, levels, .. } = &mut self.state;
        for (level, &class) in levels[first..last].iter_mut().zip(&classes[first..last]) {
            let context = GROUPS * usize::from(class) + group(state);
            let symbol = self.symbols.symbol(&model.starts[context]);
            model.count(context, symbol);
            let mut magnitude = symbol as u32;
            let raw = raw_bits(class);
            if raw > 0 || symbol == ESCAPE {
                magnitude = large(magnitude, raw, &mut self.raw)?;
            }
            let nonzero = u32::from(magnitude != 0);
            let sign = self.raw.get(nonzero) as i32;
            *level = (magnitude as i32 ^ -sign) + sign;
            state = successors[usize::from(2 * state + (magnitude & 1) as u16)];
        }
        model.adapt(|_, _| {});
        // Damage is found here at the latest, before more work is done.
        self.symbols.check()?;
        self.raw.check()
    }

    /// Whether the tile was complete.
    pub fn finish(&self) -> Result<(), Error> {
        self.symbols.finish()?;
        self.raw.finish()
    }
}

/// Escapes and low bits of a magnitude.
#[inline(never)]
pub fn large(symbol: u32, raw_bits: u32, raw: &mut RawReader<'_>) -> Result<u32, Error> {
    let mut high = u64::from(symbol);
    if symbol == ESCAPE as u32 {
        high += u64::from(get_escape(raw));
    }
    let magnitude = high << raw_bits | u64::from(raw.get(raw_bits));
    if magnitude > MAX_LEVEL as u64 {
        return Err(Error::Damaged { what: "a level is out of range" });
    }
    Ok(magnitude as u32)
}
