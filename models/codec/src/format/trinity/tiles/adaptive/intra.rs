//! Coded rows of blocks that are predicted from decoded neighbours.
//!
//! A block waits for those before it; parsing does not, as contexts come from
//! rows above like everywhere. Plays the part of the row loop in
//! [`super`] for plans with intra prediction.

use super::blocks::Blocks;
use super::{MODE_CONTEXT, TileDecoder, TileEncoder};
use crate::Error;
use crate::entropy::lanes::{context, symbol};
use crate::entropy::model::{ESCAPE, cost_q12};
use crate::entropy::scales::raw_bits;
use crate::format::trinity::tiles::coded;
use crate::stage::intra::{self, CLOSELY, NONE, Neighbours, OTHER, OTHER_BITS, Said};
use crate::stage::trellis::{UNIT, dead_zone_rounding};

impl TileEncoder {
    /// Codes one coded row of `values` and leaves its reconstruction there.
    #[inline(always)]
    pub(super) fn intra_row(&mut self, blocks: &mut Blocks, values: &mut [f32]) {
        self.values.copy_from_slice(values);
        let shortlists = self.foresee(blocks);
        let rounded = self.row_class();
        let size = blocks.side * blocks.side;
        for (block, shortlist) in shortlists.iter().enumerate() {
            let around = blocks.around(values, block);
            let likely = blocks.likely(block);
            let tried = shortlist.iter().chain(&likely).chain([&NONE]).copied();
            let mode = self.choose(blocks, &around, block, likely, tried);
            self.put_mode(intra::say(mode, likely));
            blocks.modes[block] = mode;
            let (first, last) = (block * size, (block + 1) * size);
            self.segment(0, first, last);
            let coefficients = &self.state.coefficients[first..last];
            blocks.rebuild(coefficients, &around, block, values);
            for place in blocks.rows(block) {
                let errors = values[place.clone()].iter().zip(&self.values[place]);
                self.coded.squared_error += f64::from(errors.map(|(a, b)| (a - b) * (a - b)).sum::<f32>());
            }
        }
        self.finish_row(0, rounded);
        blocks.finish_row(values);
    }

    /// What the row will be like, with its own values for neighbours that are
    /// yet to be decoded; and the modes that promise most for each block.
    #[inline(always)]
    fn foresee(&mut self, blocks: &mut Blocks) -> Vec<[u8; CLOSELY]> {
        let original = std::mem::take(&mut self.values);
        let shortlists = (0..blocks.count())
            .map(|block| {
                let around = blocks.around(&original, block);
                let shortlist = blocks.shortlist(&around, &original, block);
                blocks.residual(&around, shortlist[0], self.inverse_step);
                self.aim(block, &blocks.coefficients);
                shortlist
            })
            .collect();
        self.values = original;
        shortlists
    }

    /// The cheapest mode of some, whose residual is then aimed at.
    #[inline(always)]
    fn choose(
        &mut self,
        blocks: &mut Blocks,
        around: &Neighbours,
        block: usize,
        likely: [u8; 3],
        tried: impl Iterator<Item = u8>,
    ) -> u8 {
        blocks.load(&self.values, block);
        let (mut best, mut mode, mut seen) = (f32::INFINITY, NONE, 0u64);
        for one in tried {
            if seen >> one & 1 == 1 {
                continue;
            }
            seen |= 1 << one;
            blocks.residual(around, one, self.inverse_step);
            let bits = self.mode_bits(intra::say(one, likely)) as f32;
            let cost = self.cost(block, &blocks.coefficients) + self.lambda * UNIT * bits;
            if cost < best {
                (best, mode) = (cost, one);
                std::mem::swap(&mut blocks.best, &mut blocks.coefficients);
            }
        }
        self.aim(block, &blocks.best);
        mode
    }

    /// Error and λ · rate of a block's coefficients after plain rounding.
    #[inline(always)]
    fn cost(&self, block: usize, coefficients: &[f32]) -> f32 {
        let classes = &self.state.classes[block * coefficients.len()..];
        let mut sum = 0.0;
        for (coefficient, &class) in coefficients.iter().zip(classes) {
            let target = coded::target(*coefficient);
            let magnitude = ((target + dead_zone_rounding()) >> 7) as u32;
            let distance = (target - ((magnitude as i32) << 7)) as f32 * (1.0 / 64.0);
            let symbol = symbol(class, magnitude);
            let mut rate = self.costs[usize::from(context(class, 0))][symbol] as f32;
            if symbol == ESCAPE {
                let beyond = (magnitude >> raw_bits(class)) - ESCAPE as u32;
                rate += self.lambda * UNIT * (2 * (beyond + 1).ilog2()) as f32;
            }
            sum += distance * distance * UNIT + rate;
        }
        sum
    }

    /// Coefficients in steps that a block's levels should come close to.
    fn aim(&mut self, block: usize, coefficients: &[f32]) {
        let places = block * coefficients.len()..(block + 1) * coefficients.len();
        self.residuals[places.clone()].copy_from_slice(coefficients);
        for (target, residual) in self.targets[places].iter_mut().zip(coefficients) {
            *target = coded::target(*residual);
        }
    }

    fn mode_bits(&self, said: Said) -> f64 {
        let (symbol, raw) = match said {
            Said::Symbol(symbol) => (symbol, 0),
            Said::Other(_) => (OTHER, OTHER_BITS),
        };
        let (_, frequency) = self.state.model.contexts[MODE_CONTEXT].starts.range(symbol);
        f64::from(cost_q12(frequency)) / 4096.0 + f64::from(raw)
    }

    fn put_mode(&mut self, said: Said) {
        self.coded.bits.prediction += self.mode_bits(said);
        let symbol = match said {
            Said::Symbol(symbol) => symbol,
            Said::Other(place) => {
                self.writer.raw.put(place, OTHER_BITS);
                OTHER
            }
        };
        let context = &mut self.state.model.contexts[MODE_CONTEXT];
        self.writer.recorder.push(0, context.starts.range(symbol));
        context.count(symbol);
    }
}

impl TileDecoder<'_> {
    /// Decodes the next coded row into `values`.
    #[inline(always)]
    pub(super) fn intra_row(&mut self, blocks: &mut Blocks, values: &mut [f32]) -> Result<(), Error> {
        self.row_class();
        let size = blocks.side * blocks.side;
        for block in 0..blocks.count() {
            blocks.modes[block] = self.mode(blocks.likely(block));
            let (first, last) = (block * size, (block + 1) * size);
            self.segment(0, first, last)?;
            let around = blocks.around(values, block);
            blocks.rebuild(&self.state.coefficients[first..last], &around, block, values);
        }
        self.state.finish_row(0);
        blocks.finish_row(values);
        Ok(())
    }

    fn mode(&mut self, likely: [u8; 3]) -> u8 {
        let context = &mut self.state.model.contexts[MODE_CONTEXT];
        let symbol = self.reader.symbols.symbol(0, &context.starts);
        context.count(symbol);
        let said =
            if symbol == OTHER { Said::Other(self.reader.raw.get(OTHER_BITS)) } else { Said::Symbol(symbol) };
        intra::heard(said, likely)
    }
}
