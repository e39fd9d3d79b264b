//! Luma of a coding unit: its modes, then its transform tree.
//!
//! Many modes are ranked by Hadamard sums, the better ones by an estimate of their
//! bits ([`crate::encoder::search::estimate`]), and what is left is coded.

use crate::encoder::quantize::rdoq::Care;
use crate::encoder::search::satd::satd;
use crate::encoder::search::{Buffers, Search};
use crate::encoder::syntax::mode_bits;
use crate::encoder::tree::{units_in, z_order};
use crate::entropy::residual::State;
use crate::intra::{self, Smoothing};
use trinity_bits::cabac::{BinWriter, BitCounter, ONE_BIT};

/// Modes that are looked at more closely than by a Hadamard sum, at most.
const MODES: usize = 12;

/// Distance of the angles looked at first; a power of two.
const ANGLE_STEP: usize = 8;

/// How far off an estimate may be, in bits, by block size 4 to 32: what is estimated
/// to cost more than the best by this much is not coded.
const ESTIMATE_SLACK_BITS: [f64; 4] = [5.0, 10.0, 15.0, 30.0];

/// A way to code a luma block.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    mode: u8,
    /// transform_skip_flag, where it is settled already.
    skip: Option<bool>,
    cost: f64,
    /// Bits of the block as estimated.
    bits: f32,
}

impl Search<'_> {
    /// Searches luma of one prediction block; returns its error and the bits of
    /// its transform tree, and leaves the entropy state behind it.
    pub(super) fn luma(&mut self, x: usize, y: usize, log2: u32) -> (u64, u64) {
        let probable = self.most_probable(x, y);
        let (modes, found) = self.preselect(x, y, log2, probable);
        let (candidates, found) = self.shortlist((x, y), log2, &modes[..found], probable);
        let entry = self.state;
        // One candidate gets all care at once; the best of many once it is known.
        let again = log2 > 2 && found > 1;
        let first_care = if log2 > 2 && found == 1 { Care::Joint } else { Care::Hidden };
        let mut best: Option<(f64, u64, u64, usize)> = None;
        let mut best_state = entry;
        for (index, candidate) in candidates[..found].iter().enumerate() {
            self.state = entry;
            let (error, bits) = self.luma_block((x, y), log2, candidate.mode, candidate.skip, first_care);
            if let Some(skip) = candidate.skip {
                self.learned.bias.learn(log2, skip, candidate.bits, bits as f32 / ONE_BIT as f32);
            }
            let side = u64::from(mode_bits(candidate.mode, probable) * ONE_BIT);
            let cost = self.cost(error, bits + side);
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, error, bits, index));
                best_state = self.state;
                if again || index + 1 < found {
                    self.luma_copy(x, y, log2, false);
                }
            }
        }
        let (cost, error, bits, index) = best.unwrap_or((0.0, 0, 0, 0));
        if again
            && let Some(outcome) = self.luma_jointly((x, y), log2, &candidates[index], cost, entry, probable)
        {
            return outcome;
        }
        if again || index + 1 < found {
            self.luma_copy(x, y, log2, true);
        }
        self.state = best_state;
        (error, bits)
    }

    /// Codes the block once more, its levels chosen together; returns error and
    /// bits if that is cheaper than `least`.
    fn luma_jointly(
        &mut self,
        (x, y): (usize, usize),
        log2: u32,
        candidate: &Candidate,
        least: f64,
        entry: State,
        probable: [u8; 3],
    ) -> Option<(u64, u64)> {
        let coded = self.spare[self.spare.len() - 1].0.units[z_order(x, y)];
        if coded.cbf & 1 == 0 {
            return None;
        }
        self.state = entry;
        let skip = Some(coded.skip & 1 == 1);
        let (error, bits) = self.luma_block((x, y), log2, candidate.mode, skip, Care::Joint);
        let side = u64::from(mode_bits(candidate.mode, probable) * ONE_BIT);
        (self.cost(error, bits + side) < least).then_some((error, bits))
    }

    /// The modes worth coding, each with its transform or without, cheapest
    /// first by an estimate of what they cost.
    fn shortlist(
        &mut self,
        at: (usize, usize),
        log2: u32,
        modes: &[u8],
        probable: [u8; 3],
    ) -> ([Candidate; MODES], usize) {
        let unknown = Candidate { mode: 0, skip: None, cost: f64::INFINITY, bits: 0.0 };
        let mut list = [unknown; MODES];
        let keep = self.effort.finalists[(log2 - 2) as usize];
        if self.sequence.lossless {
            let keep = modes.len().min(keep);
            for (candidate, &mode) in list.iter_mut().zip(&modes[..keep]) {
                candidate.mode = mode;
            }
            return (list, keep);
        }
        for &mode in modes {
            let side = f64::from(mode_bits(mode, probable));
            for (skip, estimated) in self.estimate(at, log2, mode) {
                let price = self.lambda * f64::from(ONE_BIT);
                let bits = estimated.bits * self.learned.bias.of(log2, skip);
                let cost = f64::from(estimated.error) + price * (f64::from(bits) + side);
                if let Some(place) = list[..keep].iter().position(|c| cost < c.cost) {
                    list[place..keep].rotate_right(1);
                    list[place] = Candidate { mode, skip: Some(skip), cost, bits: estimated.bits };
                }
            }
        }
        let most = list[0].cost + self.lambda * f64::from(ONE_BIT) * ESTIMATE_SLACK_BITS[(log2 - 2) as usize];
        let found = list[..keep].iter().filter(|c| c.cost <= most).count();
        (list, found)
    }

    /// Codes a luma block, transformed or not as `skip` says where that is settled.
    /// Returns error and bits.
    fn luma_block(
        &mut self,
        (x, y): (usize, usize),
        log2: u32,
        mode: u8,
        skip: Option<bool>,
        care: Care,
    ) -> (u64, u64) {
        let outcome = self.block_with(0, (x, y), log2, mode, skip, care);
        let z = z_order(x, y);
        for unit in &mut self.tree.units[z..z + units_in(log2)] {
            unit.tu_log2 = log2 as u8;
            unit.luma_mode = mode;
            unit.cbf = u8::from(outcome.coded);
            unit.skip = u8::from(outcome.skip);
        }
        let mut counter = BitCounter { cost: outcome.bits };
        counter.encode(&mut self.state.contexts.cbf_luma[1], outcome.coded);
        (outcome.error, counter.cost)
    }

    /// Sets luma of one block aside in the store behind the quad-tree's own, or
    /// brings it back.
    fn luma_copy(&mut self, x: usize, y: usize, log2: u32, restore: bool) {
        let size = 1usize << log2;
        let Some((tree, store)) = self.spare.last_mut() else { return };
        let band = &mut self.bands[0];
        for (row, store) in store[0].chunks_exact_mut(size).take(size).enumerate() {
            let samples = &mut band.samples[(y + 1 + row) * band.width + self.origin.0 + x..][..size];
            if restore {
                samples.copy_from_slice(store);
            } else {
                store.copy_from_slice(samples);
            }
        }
        let (z, count) = (z_order(x, y), units_in(log2));
        let (from, to) = if restore { (&*tree, &mut self.tree) } else { (&self.tree, tree) };
        to.units[z..z + count].copy_from_slice(&from.units[z..z + count]);
        to.levels[0][z << 4..(z + count) << 4].copy_from_slice(&from.levels[0][z << 4..(z + count) << 4]);
    }

    /// Ranks modes by the Hadamard size of what prediction leaves.
    fn preselect(&mut self, x: usize, y: usize, log2: u32, probable: [u8; 3]) -> ([u8; MODES], usize) {
        let keep = self.effort.close_modes[(log2 - 2) as usize];
        let size = 1usize << log2;
        let depth = self.sequence.depth;
        self.gather(0, (x, y), log2);
        let plane = &self.source[0];
        let at = (self.origin.1 + y) * plane.width + self.origin.0 + x;
        let source = &plane.samples[at..];
        let buffers = &mut *self.buffers;
        let kind = if size == 32 { Smoothing::Strong } else { Smoothing::Weak };
        intra::smooth(&buffers.line, &mut buffers.smooth, size, kind, depth);
        // The square root of the price of a bit is its price in absolute sums.
        let price = (self.lambda * f64::from(ONE_BIT)).sqrt();
        let mut ranked = [(f64::INFINITY, 0u8); MODES];
        let mut best_angle = (f64::INFINITY, 0u8);
        let mut rank = |mode: u8, buffers: &mut Buffers| {
            let smoothed = intra::smoothing(mode, size, true) != Smoothing::None;
            let line = if smoothed { &buffers.smooth } else { &buffers.line };
            let edge = intra::edge_filter(mode, 0, size, false);
            intra::predict(mode, line, size, depth, edge, &mut buffers.prediction, size);
            let sum = satd(source, plane.width, &buffers.prediction, size, depth);
            let cost = sum as f64 + price * f64::from(mode_bits(mode, probable));
            if mode > 1 && cost < best_angle.0 {
                best_angle = (cost, mode);
            }
            if let Some(place) = ranked[..keep].iter().position(|&(c, _)| cost < c) {
                ranked[place..keep].rotate_right(1);
                ranked[place] = (cost, mode);
            }
            (cost, best_angle.1)
        };
        rank(0, buffers);
        rank(1, buffers);
        let mut centre = 0;
        for mode in (2..=34).step_by(ANGLE_STEP) {
            centre = rank(mode, buffers).1;
        }
        let mut reach = ANGLE_STEP as u8 / 2;
        while reach > 0 {
            let middle = centre;
            for mode in [middle.wrapping_sub(reach), middle + reach] {
                if (2..=34).contains(&mode) {
                    centre = rank(mode, buffers).1;
                }
            }
            reach /= 2;
        }
        let mut modes = ranked.map(|(_, mode)| mode);
        let mut found = keep;
        // Cheap to name, so worth a closer look wherever they rank.
        for mode in probable {
            if found < MODES && !modes[..found].contains(&mode) {
                modes[found] = mode;
                found += 1;
            }
        }
        (modes, found)
    }
}
