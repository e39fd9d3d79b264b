//! One tile: coded row after coded row through every stage.
//!
//! Encoder and decoder share [`State`], everything that both sides know
//! before a row; what one writes and the other reads about the row is next to
//! each other here. Knows a plan and its numbers; knows nothing of headers,
//! rate control or files.

mod blocks;
mod intra;

use std::ops::RangeInclusive;

use crate::Error;
use crate::entropy::lanes::{self, Writer, placed};
use crate::entropy::model::{ESCAPE, Model, cost_q12, geometric_prior};
use crate::entropy::rans::{Decoder, LANES, RawReader, Recorder, Starts};
use crate::entropy::scales::{CLASSES, FIRST_RAW_CLASS, ROW_CLASSES, Scales, WEIGHTS, prior, row_class};
use crate::format::trinity::plan::{Plan, Scalars};
use crate::format::trinity::tiles::coded::{self, Coded, coded_width, note_drift, symbol_costs};
use crate::stage::transform::Transformer;
use crate::stage::trellis::{Code, Costs, Decision, GROUPS, Points, Search, dead_zone_rounding, round};

use blocks::{Blocks, by_block, by_frequency};
use trinity_bits::golomb::{unzigzag, zigzag};

/// Context of the row classes, after those of the values.
const ROW_CONTEXT: usize = GROUPS * CLASSES;
const MODE_CONTEXT: usize = ROW_CONTEXT + 1;

/// Values of a tile of which drift and error are noted, at most: more than a sample has, whose are asked for.
const SAMPLED: usize = 1 << 17;

/// Tiles of fewer values have one lane: three states less to send.
const SMALL: usize = 1 << 13;

/// What both sides know before a coded row.
pub(super) struct State {
    code: Code,
    points: Points,
    model: Model,
    scales: Scales,
    transformer: Transformer,
    row_class: i32,
    classes: Vec<u8>,
    /// The least and the largest of them.
    bounds: RangeInclusive<u8>,
    magnitudes: Vec<u32>,
    width: usize,
    /// Reconstructed coefficients of a batch of rows.
    coefficients: Vec<f32>,
    /// Those of the row above, where they predict.
    above: Vec<f32>,
    /// Lanes of the entropy coder in use.
    lanes: usize,
    segment: usize,
    /// Blocks of a coded row, where one is coded after the other.
    in_order: Option<usize>,
    prediction: f32,
    /// A sixty-fourth of a step.
    unit: f32,
}

impl State {
    /// For `rows` coded rows of `width` values, made from rows of `cols` columns.
    fn new(plan: &Plan, scalars: &Scalars, rows: usize, cols: usize, width: usize) -> Self {
        let code = Code::new(plan.log2_states)
            .unwrap_or_else(|| unreachable!("plans are checked when made or read"));
        let priors = (0..CLASSES).flat_map(|class| [prior(class); GROUPS]).chain([geometric_prior(16); 2]);
        let transformer = Transformer::new(plan.transform, rows, cols);
        Self {
            code,
            points: Points::new(&scalars.centroids),
            model: Model::new(priors),
            scales: Scales::new(WEIGHTS[usize::from(plan.weights)], width),
            row_class: 0,
            classes: vec![0; width],
            bounds: 0..=0,
            magnitudes: vec![0; width],
            width,
            coefficients: vec![0.0; width * transformer.batch()],
            above: vec![0.0; width],
            lanes: if rows * width < SMALL { 1 } else { LANES },
            transformer,
            segment: 1 << plan.log2_segment,
            in_order: plan.prediction.intra.then(|| cols / plan.transform.width()),
            prediction: f32::from(plan.prediction.above) / 16.0,
            unit: scalars.step / 64.0,
        }
    }

    /// Coded rows that are taken at a time.
    pub(super) fn batch(&self) -> usize {
        self.transformer.batch()
    }

    /// Expects the class of a row that is by so many classes above the last one, as far as is known.
    pub(super) fn louder(&mut self, classes: i32) {
        self.row_class = (self.row_class + classes).clamp(*ROW_CLASSES.start(), *ROW_CLASSES.end());
    }

    /// Classes of the values of a row whose class is known.
    #[inline(always)]
    fn classify(&mut self) {
        self.scales.classes(self.row_class, &mut self.classes);
        if let Some(blocks) = self.in_order {
            self.classes = by_block(&self.classes, blocks);
        }
        let (least, most) = self.classes.iter().fold((u8::MAX, 0), |(l, m), &c| (l.min(c), m.max(c)));
        self.bounds = least..=most;
    }

    /// Renews the ranges of contexts that the row may have used, if a segment
    /// ends before column `column`; blocks may be shorter.
    #[inline(always)]
    fn adapt(&mut self, column: usize, changed: impl FnMut(usize, &Starts)) {
        if !column.is_multiple_of(self.segment) && column != self.width {
            return;
        }
        let (least, most) = (usize::from(*self.bounds.start()), usize::from(*self.bounds.end()));
        let used = (GROUPS * least..GROUPS * (most + 1)).chain([ROW_CONTEXT, MODE_CONTEXT]);
        self.model.adapt_some(used, changed);
    }

    /// Learns from row `row` of the batch.
    #[inline(always)]
    fn finish_row(&mut self, row: usize) {
        match self.in_order {
            None => self.scales.update(&self.magnitudes, self.row_class),
            Some(blocks) => self.scales.update(&by_frequency(&self.magnitudes, blocks), self.row_class),
        }
        if self.prediction > 0.0 {
            self.above.copy_from_slice(&self.coefficients[row * self.width..][..self.width]);
        }
    }

    /// From the coefficients of the batch to its values; then learns from it.
    #[inline(always)]
    fn finish_batch(&mut self, values: &mut [f32]) {
        let coefficients = &self.coefficients[..values.len()];
        self.transformer.inverse(coefficients, values);
        if self.transformer.learn(coefficients) {
            self.scales.rejuvenate(3);
        }
    }
}

/// Adds what the row above predicts.
#[inline(always)]
fn predict(coefficients: &mut [f32], above: &[f32], prediction: f32) {
    if prediction > 0.0 {
        coefficients.iter_mut().zip(above).for_each(|(c, a)| *c += a * prediction);
    }
}

pub struct TileEncoder {
    pub(super) state: State,
    /// Where the state machine of each lane stands.
    lanes: [u8; LANES],
    decision: Decision,
    lambda: f32,
    inverse_step: f32,
    costs: Vec<Costs>,
    search: Search,
    writer: Writer,
    /// Values of a batch, then their coefficients.
    values: Vec<f32>,
    /// Coefficients less their prediction, in steps; and their magnitudes in
    /// sixty-fourths.
    residuals: Vec<f32>,
    targets: Vec<i32>,
    /// How much larger plain rounding makes a row than the search does.
    rounding_bias: f32,
    /// Blocks that are predicted from one another, if any are.
    blocks: Option<Box<Blocks>>,
    rows: usize,
    coded: Coded,
}

impl TileEncoder {
    /// `lambda` weighs bits against squared steps where they decide.
    pub fn new(
        plan: &Plan,
        scalars: &Scalars,
        (decision, lambda): (Decision, f32),
        rows: usize,
        cols: usize,
    ) -> Self {
        let width = coded_width(plan, cols);
        let padded = cols.next_multiple_of(plan.transform.width());
        let state = State::new(plan, scalars, rows, padded, width);
        let batch = state.batch();
        Self {
            costs: state.model.contexts.iter().map(|c| symbol_costs(&c.starts, lambda)).collect(),
            state,
            lanes: [0; LANES],
            decision,
            lambda,
            inverse_step: 1.0 / scalars.step,
            search: Search::default(),
            writer: Writer { recorder: Recorder::with_capacity(rows * (width + 1)), ..Writer::default() },
            values: vec![0.0; width * batch],
            residuals: vec![0.0; width],
            targets: vec![0; width],
            rounding_bias: 1.0,
            blocks: Blocks::new(plan, padded),
            rows: 0,
            coded: Coded::default(),
        }
    }

    /// Weighs bits against squared steps by another `lambda` from here on.
    pub fn weigh(&mut self, lambda: f32) {
        self.lambda = lambda;
        let contexts = self.state.model.contexts.iter();
        self.costs = contexts.map(|c| symbol_costs(&c.starts, lambda)).collect();
    }

    /// Codes some coded rows of `values`, a batch or the last of them, and
    /// leaves their reconstruction there.
    #[inline(always)]
    pub fn rows(&mut self, values: &mut [f32]) {
        if let Some(mut blocks) = self.blocks.take() {
            self.intra_row(&mut blocks, values);
            self.blocks = Some(blocks);
            return;
        }
        let (width, before) = (self.state.width, self.rows);
        self.state.transformer.forward(values, &mut self.values[..values.len()]);
        for row in 0..values.len() / width {
            self.row(row);
        }
        self.values[..values.len()].copy_from_slice(values);
        self.state.finish_batch(values);
        // One sum after the other takes its time, and of large tiles others ask the whole matrix.
        if before * width >= SAMPLED {
            return;
        }
        for (recon, original) in values.chunks_exact(width).zip(self.values.chunks_exact(width)) {
            let errors = recon.iter().zip(original).map(|(a, b)| (a - b) * (a - b));
            self.coded.squared_error += f64::from(errors.sum::<f32>());
        }
    }

    #[inline(always)]
    fn row(&mut self, row: usize) {
        let (prediction, inverse_step, width) = (self.state.prediction, self.inverse_step, self.state.width);
        let values = &self.values[row * width..][..width];
        for (((residual, target), &value), &above) in
            self.residuals.iter_mut().zip(&mut self.targets).zip(values).zip(&self.state.above)
        {
            *residual = (value - above * prediction) * inverse_step;
            *target = coded::target(*residual);
        }
        let rounded = self.row_class();
        for first in (0..width).step_by(self.state.segment) {
            let last = (first + self.state.segment).min(width);
            self.segment(row, first, last);
        }
        self.finish_row(row, rounded);
    }

    /// Learns from row `row` of the batch, whose magnitudes were `rounded` in
    /// sum after plain rounding.
    #[inline(always)]
    fn finish_row(&mut self, row: usize, rounded: i64) {
        let magnitudes: u64 = self.state.magnitudes.iter().map(|&m| u64::from(m)).sum();
        if rounded > 0 {
            let ratio = magnitudes as f32 / rounded as f32;
            self.rounding_bias += (ratio.clamp(0.25, 2.0) - self.rounding_bias) / 16.0;
        }
        self.rows += 1;
        self.state.finish_row(row);
    }

    /// States how large the row is against what its columns expect; returns
    /// the sum of its magnitudes after plain rounding.
    #[inline(always)]
    fn row_class(&mut self) -> i64 {
        let expected: i64 = self.state.scales.expect().iter().map(|&e| i64::from(e)).sum();
        let rounded: i64 = self.targets.iter().map(|t| i64::from((t + dead_zone_rounding()) >> 7)).sum();
        let size = rounded as f32 * self.rounding_bias;
        let before = (self.rows > 0).then_some(self.state.row_class);
        let class = row_class(size, expected, self.targets.len(), before);
        let difference = zigzag(class - self.state.row_class) as usize;
        let symbol = difference.min(ESCAPE);
        let context = &mut self.state.model.contexts[ROW_CONTEXT];
        let range = context.starts.range(symbol);
        self.writer.recorder.push(0, range);
        context.count(symbol);
        self.coded.bits.side += f64::from(cost_q12(range.1)) / 4096.0;
        if difference >= ESCAPE {
            self.writer.raw.put((class + 64) as u32, 7);
            self.coded.bits.side += 7.0;
        }
        self.state.row_class = class;
        self.state.classify();
        rounded
    }

    /// Quantizes and codes columns `first` to `last`.
    #[inline(always)]
    fn segment(&mut self, row: usize, first: usize, last: usize) {
        let state = &mut self.state;
        let (classes, targets) = (&state.classes[first..last], &self.targets[first..last]);
        let magnitudes = &mut state.magnitudes[first..last];
        match self.decision {
            Decision::DeadZone => round(targets, magnitudes),
            Decision::Rate => {
                let (code, points) = (&state.code, &state.points);
                self.search.run((code, points), self.lanes, targets, classes, &self.costs, magnitudes);
            }
        }
        let residuals = &self.residuals[first..last];
        // A sample of the rows is plenty for six means, which only samples are asked for.
        if self.rows.is_multiple_of(4) && self.rows * state.width < SAMPLED {
            note_drift(&state.code, self.lanes, magnitudes, residuals, &mut self.coded.drift);
        }
        let (code, contexts, lanes) = (&state.code, &mut state.model.contexts, &mut self.lanes);
        match (state.lanes, *state.bounds.end() >= FIRST_RAW_CLASS) {
            (LANES, false) => self.writer.levels::<LANES, false>(lanes, classes, code, contexts, magnitudes),
            (LANES, true) => self.writer.levels::<LANES, true>(lanes, classes, code, contexts, magnitudes),
            _ => self.writer.levels::<1, true>(lanes, classes, code, contexts, magnitudes),
        }
        let coefficients = &mut state.coefficients[row * state.width..][first..last];
        placed(magnitudes, residuals, &state.points, state.unit, coefficients);
        self.writer.put_signs(magnitudes, residuals);
        predict(coefficients, &state.above[first..last], state.prediction);
        let (costs, lambda) = (&mut self.costs, self.lambda);
        state.adapt(last, |context, starts| costs[context] = symbol_costs(starts, lambda));
    }

    /// The tile's bytes and what became of it.
    pub fn finish(mut self) -> Coded {
        self.coded.bits.raw = self.writer.raw.bits() as f64;
        let symbols = self.writer.recorder.finish(self.state.lanes);
        self.coded.bits.symbols =
            8.0 * symbols.len() as f64 - self.coded.bits.side - self.coded.bits.prediction;
        self.coded.bytes.extend_from_slice(&symbols);
        self.coded.bytes.extend_from_slice(&self.writer.raw.finish());
        self.coded
    }
}

pub struct TileDecoder<'a> {
    pub(super) state: State,
    /// Blocks that are predicted from one another, if any are.
    blocks: Option<Box<Blocks>>,
    reader: lanes::Reader<'a>,
}

impl<'a> TileDecoder<'a> {
    pub fn new(
        plan: &Plan,
        scalars: &Scalars,
        rows: usize,
        cols: usize,
        bytes: &'a [u8],
    ) -> Result<Self, Error> {
        let width = coded_width(plan, cols);
        let padded = cols.next_multiple_of(plan.transform.width());
        let state = State::new(plan, scalars, rows, padded, width);
        let (symbols, raw) = (Decoder::new(bytes, state.lanes)?, RawReader::new(bytes));
        let reader = lanes::Reader { symbols, raw, states: [0; LANES] };
        Ok(Self { state, blocks: Blocks::new(plan, padded), reader })
    }

    /// Decodes the next coded rows into `values`: a batch, or the last of them.
    #[inline(always)]
    pub fn rows(&mut self, values: &mut [f32]) -> Result<(), Error> {
        if let Some(mut blocks) = self.blocks.take() {
            let result = self.intra_row(&mut blocks, values);
            self.blocks = Some(blocks);
            return result;
        }
        let width = self.state.width;
        for row in 0..values.len() / width {
            self.row_class();
            for first in (0..width).step_by(self.state.segment) {
                self.segment(row, first, (first + self.state.segment).min(width))?;
            }
            self.state.finish_row(row);
        }
        self.state.finish_batch(values);
        Ok(())
    }

    #[inline(always)]
    fn row_class(&mut self) {
        self.state.scales.expect();
        let context = &mut self.state.model.contexts[ROW_CONTEXT];
        let symbol = self.reader.symbols.symbol(0, &context.starts);
        context.count(symbol);
        let class = if symbol == ESCAPE {
            self.reader.raw.get(7) as i32 - 64
        } else {
            self.state.row_class + unzigzag(symbol as u32)
        };
        self.state.row_class = class.clamp(*ROW_CLASSES.start(), *ROW_CLASSES.end());
        self.state.classify();
    }

    /// Columns `first` to `last` of row `row` of the batch.
    #[inline(always)]
    fn segment(&mut self, row: usize, first: usize, last: usize) -> Result<(), Error> {
        let state = &mut self.state;
        let (classes, levels) = (&state.classes[first..last], &mut state.magnitudes[first..last]);
        let (code, contexts, reader) = (&state.code, &mut state.model.contexts, &mut self.reader);
        let lanes = (state.lanes, *state.bounds.end() >= FIRST_RAW_CLASS);
        reader.levels(lanes, classes, code, contexts, levels)?;
        let coefficients = &mut state.coefficients[row * state.width..][first..last];
        reader.signed(levels, &state.points, state.unit, coefficients);
        predict(coefficients, &state.above[first..last], state.prediction);
        state.adapt(last, |_, _| {});
        // Damage is found here at the latest, before more work is done.
        self.reader.check()
    }

    pub fn finish(&self) -> Result<(), Error> {
        self.reader.finish()
    }
}
