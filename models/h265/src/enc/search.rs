//! The search for a CTU's best coding: coding-unit sizes, modes, transform
//! sizes and levels, by squared error plus price of bits.
//!
//! Works inside one row of CTUs. Candidates are tried in place: samples in the
//! band, levels and modes in the tree; what loses is overwritten or restored.

use super::headers::Sequence;
use super::preset::Effort;
use super::rdoq::Working;
use super::residual::State;
use super::satd::satd;
use super::syntax::{CtuWriter, Surroundings, mode_bits};
use super::tree::{LOG2_CTB, Tree, most_probable, units_in, z_order};
use crate::deblock::chroma_qp;
use crate::intra::{self, MAX_LINE, Smoothing};
use crate::quant::Quantizer;
use crate::transform::Precision;
use trinity_coding::cabac::{BinWriter, BitCounter, ONE_BIT};
use trinity_coding::{Chroma, Plane};

/// One row of CTUs of one component: the last line of the row above, then the
/// row's own reconstruction.
#[derive(Debug, Clone)]
pub struct Band {
    pub width: usize,
    pub samples: Vec<u16>,
}

/// Quantization of one component at one QP, by log2 of the block size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps([Step; 4]);

/// Quantization of one block size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub quantizer: Quantizer,
    pub inverse_step: f32,
}

/// The search over one row of CTUs.
pub struct Search<'a> {
    pub(super) sequence: &'a Sequence,
    pub(super) effort: &'a Effort,
    pub(super) source: &'a [Plane],
    pub bands: Vec<Band>,
    pub tree: Tree,
    /// Whether direction helped to predict the last block that was ranked:
    /// noise gains nothing from 4×4 blocks.
    structured: bool,
    /// Candidates set aside, one tree and sample store a quad-tree depth.
    spare: Vec<(Tree, [Vec<u16>; 3])>,
    pub around: Surroundings,
    /// Top left luma sample of the CTU.
    pub origin: (usize, usize),
    /// The entropy coder's state where the next block starts.
    pub state: State,
    pub(super) steps: [Steps; 3],
    /// Price of a bit in squared sample errors, over 2^15.
    pub(super) lambda: f64,
    /// The same in squared quantization steps.
    pub(super) lambda_steps: f32,
    pub(super) buffers: Box<Buffers>,
}

/// Scratch space of one block.
pub(super) struct Buffers {
    pub line: [u16; MAX_LINE],
    pub smooth: [u16; MAX_LINE],
    pub prediction: [u16; 1024],
    pub residual: [i32; 1024],
    pub coefficients: [i32; 1024],
    pub levels: [i32; 1024],
    pub transformed: [i32; 1024],
    pub candidate: [u16; 1024],
    pub rdoq: Working,
}

impl<'a> Search<'a> {
    pub fn new(sequence: &'a Sequence, effort: &'a Effort, source: &'a [Plane], slice_qp: i32) -> Self {
        let bands = source
            .iter()
            .enumerate()
            .map(|(c, plane)| {
                let sy = if c == 0 { 0 } else { sequence.chroma.shift().1 };
                Band { width: plane.width, samples: vec![0; plane.width * ((1 << (LOG2_CTB - sy)) + 1)] }
            })
            .collect();
        let spare = (3..=LOG2_CTB + 7)
            .map(|log2| {
                let store = [0, 1, 2].map(|c| {
                    if c < sequence.chroma.planes() {
                        vec![0; 1 << (2 * log2.min(LOG2_CTB))]
                    } else {
                        Vec::new()
                    }
                });
                (Tree::new(sequence.chroma), store)
            })
            .collect();
        let mut search = Self {
            sequence,
            effort,
            source,
            bands,
            tree: Tree::new(sequence.chroma),
            structured: false,
            spare,
            around: Surroundings::default(),
            origin: (0, 0),
            state: State::new(slice_qp),
            steps: [Steps::new(0, sequence.depth); 3],
            lambda: 0.0,
            lambda_steps: 0.0,
            buffers: Box::new(Buffers {
                line: [0; MAX_LINE],
                smooth: [0; MAX_LINE],
                prediction: [0; 1024],
                residual: [0; 1024],
                coefficients: [0; 1024],
                levels: [0; 1024],
                transformed: [0; 1024],
                candidate: [0; 1024],
                rdoq: Working::default(),
            }),
        };
        search.set_qp(slice_qp);
        search
    }

    /// QpY of the CTU to come.
    pub fn set_qp(&mut self, qp: i32) {
        let offset = 6 * (self.sequence.depth as i32 - 8);
        let chroma = chroma_qp(qp.clamp(-offset, 57), self.sequence.chroma) + offset;
        let depth = self.sequence.depth;
        self.steps = [Steps::new(qp + offset, depth), Steps::new(chroma, depth), Steps::new(chroma, depth)];
        // The step of an orthonormal transform is 2^((qP - 4) / 6) samples.
        let step = ((f64::from(qp + offset) - 4.0) / 6.0).exp2();
        self.lambda_steps = self.effort.lambda;
        self.lambda = f64::from(self.effort.lambda) * step * step / f64::from(ONE_BIT);
        if self.sequence.lossless {
            self.lambda = 1.0 / f64::from(ONE_BIT);
        }
    }

    /// Finds the coding of the CTU at `self.origin` and leaves it in
    /// `self.tree`, its samples in the bands, and the entropy state after it.
    pub fn ctu(&mut self) {
        if self.effort.quick {
            self.ctu_quickly();
        } else {
            self.quadtree(0, 0, LOG2_CTB);
        }
    }

    pub(super) fn cost(&self, error: u64, bits: u64) -> f64 {
        error as f64 + self.lambda * bits as f64
    }

    pub(super) fn writer<'t>(
        sequence: &'t Sequence,
        tree: &'t Tree,
        origin: (usize, usize),
        around: &'t Surroundings,
    ) -> CtuWriter<'t> {
        CtuWriter { sequence, tree, origin, around, qp_delta: None }
    }

    /// Searches the square at (x, y) inside the CTU; returns its cost and
    /// leaves `self.state` behind it.
    fn quadtree(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let size = 1usize << log2;
        let (width, height) = self.sequence.coded_size();
        let (left, top) = (self.origin.0 + x, self.origin.1 + y);
        if left >= width || top >= height {
            return 0.0;
        }
        let whole = left + size <= width && top + size <= height;
        if !whole {
            return self.split(x, y, log2);
        }
        if log2 == 3 {
            return self.coding_unit(x, y, log2);
        }
        if log2 > self.effort.max_cu_log2 {
            return self.split_flagged(x, y, log2);
        }
        let entry = self.state;
        let mut counter = BitCounter::default();
        self.tree.units[z_order(x, y)].cu_log2 = log2 as u8;
        Self::writer(self.sequence, &self.tree, self.origin, &self.around).split_cu_flag(
            &mut counter,
            &mut self.state,
            x,
            y,
            log2,
            false,
        );
        let whole_cost = self.coding_unit(x, y, log2) + self.lambda * counter.cost as f64;
        if log2 <= self.effort.min_cu_log2 || self.is_settled(x, y, log2) {
            return whole_cost;
        }
        let whole_state = self.state;
        self.set_aside(x, y, log2);
        self.state = entry;
        let split_cost = self.split_flagged(x, y, log2);
        if split_cost < whole_cost {
            return split_cost;
        }
        self.bring_back(x, y, log2);
        self.state = whole_state;
        whole_cost
    }

    /// A coding unit without any level gains nothing from being split.
    fn is_settled(&self, x: usize, y: usize, log2: u32) -> bool {
        let z = z_order(x, y);
        self.tree.units[z..z + units_in(log2)].iter().all(|u| u.cbf == 0)
    }

    fn split_flagged(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let mut counter = BitCounter::default();
        Self::writer(self.sequence, &self.tree, self.origin, &self.around).split_cu_flag(
            &mut counter,
            &mut self.state,
            x,
            y,
            log2,
            true,
        );
        self.split(x, y, log2) + self.lambda * counter.cost as f64
    }

    fn split(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let half = (1 << log2) / 2;
        [(0, 0), (half, 0), (0, half), (half, half)]
            .into_iter()
            .map(|(dx, dy)| self.quadtree(x + dx, y + dy, log2 - 1))
            .sum()
    }

    /// Copies the square's samples between band and spare store.
    fn copy_samples(&mut self, x: usize, y: usize, log2: u32, restore: bool) {
        let spare = &mut self.spare[(log2 - 3) as usize].1;
        for (c, band) in self.bands.iter_mut().enumerate() {
            let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
            let (width, height) = ((1usize << log2) >> sx, (1usize << log2) >> sy);
            let (left, top) = ((self.origin.0 + x) >> sx, (y >> sy) + 1);
            for (row, store) in spare[c].chunks_exact_mut(width).take(height).enumerate() {
                let samples = &mut band.samples[(top + row) * band.width + left..][..width];
                if restore {
                    samples.copy_from_slice(store);
                } else {
                    store.copy_from_slice(samples);
                }
            }
        }
    }

    fn set_aside(&mut self, x: usize, y: usize, log2: u32) {
        self.copy_samples(x, y, log2, false);
        self.tree.copy_run(&mut self.spare[(log2 - 3) as usize].0, z_order(x, y), units_in(log2));
    }

    fn bring_back(&mut self, x: usize, y: usize, log2: u32) {
        self.copy_samples(x, y, log2, true);
        self.spare[(log2 - 3) as usize].0.copy_run(&mut self.tree, z_order(x, y), units_in(log2));
    }

    /// Searches one coding unit in place; returns its cost.
    fn coding_unit(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let entry = self.state;
        let whole = self.coding_unit_as(x, y, log2, false);
        if log2 > 3 || !self.effort.nxn || !self.structured || self.is_settled(x, y, log2) {
            return whole;
        }
        let whole_state = self.state;
        self.set_aside(x, y, log2);
        self.state = entry;
        let parts = self.coding_unit_as(x, y, log2, true);
        if parts < whole {
            return parts;
        }
        self.bring_back(x, y, log2);
        self.state = whole_state;
        whole
    }

    /// Codes a coding unit as 2N×2N or N×N and counts its bits exactly.
    fn coding_unit_as(&mut self, x: usize, y: usize, log2: u32, nxn: bool) -> f64 {
        let entry = self.state;
        let z = z_order(x, y);
        for unit in &mut self.tree.units[z..z + units_in(log2)] {
            unit.cu_log2 = log2 as u8;
            unit.nxn = nxn;
            unit.cbf = 0;
            unit.skip = 0;
            unit.chroma_code = 4;
            unit.tu_log2 = if nxn { 2 } else { log2.min(5) as u8 };
        }
        let (mut error, mut bits) = (0, 0);
        let part_log2 = if nxn { 2 } else { log2 };
        for part in 0..if nxn { 4 } else { 1 } {
            let (px, py) = (x + (part & 1) * 4, y + (part >> 1) * 4);
            let (part_error, part_bits) = self.luma(px, py, part_log2);
            error += part_error;
            bits += part_bits;
        }
        let mut counter = BitCounter { cost: bits };
        let mut writer = Self::writer(self.sequence, &self.tree, self.origin, &self.around);
        if self.sequence.chroma == Chroma::C400 {
            // Luma is counted already, and shares no context with what is left.
            writer.coding_unit_head(&mut counter, &mut self.state, x, y, log2);
        } else {
            error += self.chroma(x, y, log2, nxn);
            self.state = entry;
            counter = BitCounter::default();
            writer = Self::writer(self.sequence, &self.tree, self.origin, &self.around);
            writer.coding_unit(&mut counter, &mut self.state, x, y, log2);
        }
        self.cost(error, counter.cost)
    }

    /// Searches luma of one prediction block; returns its error and the bits of
    /// its transform tree, and leaves the entropy state behind it.
    fn luma(&mut self, x: usize, y: usize, log2: u32) -> (u64, u64) {
        let z = z_order(x, y);
        let count = units_in(log2);
        let (left, above) =
            Self::writer(self.sequence, &self.tree, self.origin, &self.around).candidate_modes(x, y);
        let probable = most_probable(left, above);
        let (modes, found) = self.preselect(x, y, log2, probable);
        let entry = self.state;
        if self.effort.joint
            && log2 <= 5
            && log2 >= self.effort.joint_min_log2
            && self.sequence.max_transform_depth == 0
            && !self.sequence.lossless
        {
            return self.luma_jointly(x, y, log2, &modes[..found], probable);
        }
        let mut best: Option<(f64, u64, u64, u8)> = None;
        let mut best_state = entry;
        for &mode in &modes[..found] {
            self.state = entry;
            for unit in &mut self.tree.units[z..z + count] {
                unit.luma_mode = mode;
                unit.cbf = 0;
                unit.skip = 0;
            }
            let (error, bits) = self.luma_blocks(x, y, log2, 0);
            let side = u64::from(mode_bits(mode, probable) * ONE_BIT);
            let cost = self.cost(error, bits + side);
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, error, bits, mode));
                best_state = self.state;
                if found > 1 {
                    self.luma_copy(self.spare.len() - 1, x, y, log2, false);
                }
            }
        }
        let (_, error, bits, mode) = best.unwrap_or((0.0, 0, 0, 0));
        if found > 1 && mode != modes[found - 1] {
            self.luma_copy(self.spare.len() - 1, x, y, log2, true);
        }
        self.state = best_state;
        (error, bits)
    }

    /// The same where modes are weighed first and only the best is coded, its
    /// levels with all care.
    fn luma_jointly(&mut self, x: usize, y: usize, log2: u32, modes: &[u8], probable: [u8; 3]) -> (u64, u64) {
        let z = z_order(x, y);
        let mut best = (f64::INFINITY, modes[0], false);
        for &mode in modes {
            let (cost, skip) = self.weigh((x, y), log2, mode);
            let cost = cost + self.lambda * f64::from(mode_bits(mode, probable) * ONE_BIT);
            if cost < best.0 {
                best = (cost, mode, skip);
            }
        }
        let (_, mode, skip) = best;
        let outcome = self.block_again(0, (x, y), log2, mode, skip);
        for unit in &mut self.tree.units[z..z + units_in(log2)] {
            unit.luma_mode = mode;
            unit.tu_log2 = log2 as u8;
            unit.cbf = u8::from(outcome.coded);
            unit.skip = u8::from(outcome.skip);
        }
        let mut counter = BitCounter { cost: outcome.bits };
        counter.encode(&mut self.state.contexts.cbf_luma[1], outcome.coded);
        (outcome.error, counter.cost)
    }

    /// Luma blocks of one prediction block with the mode in the tree: whole,
    /// or split as deep as the transform tree may go. Returns error and bits.
    fn luma_blocks(&mut self, x: usize, y: usize, log2: u32, depth: u32) -> (u64, u64) {
        if log2 > 5 {
            return self.luma_quarters(x, y, log2, depth + 1);
        }
        let may_split = log2 > 2 && depth < self.sequence.max_transform_depth;
        let entry = self.state;
        let z = z_order(x, y);
        let mode = self.tree.units[z].luma_mode;
        let outcome = self.block(0, (x, y), log2, mode);
        for unit in &mut self.tree.units[z..z + units_in(log2)] {
            unit.tu_log2 = log2 as u8;
            unit.cbf = (unit.cbf & !1) | u8::from(outcome.coded);
            unit.skip = (unit.skip & !1) | u8::from(outcome.skip);
        }
        let mut counter = BitCounter { cost: outcome.bits };
        counter.encode(&mut self.state.contexts.cbf_luma[usize::from(depth == 0)], outcome.coded);
        if !may_split {
            return (outcome.error, counter.cost);
        }
        let split_context = (5 - log2) as usize;
        counter.encode(&mut self.state.contexts.split_transform_flag[split_context], false);
        let whole = (outcome.error, counter.cost);
        if !outcome.coded {
            return whole;
        }
        let whole_state = self.state;
        let store = self.spare.len() - 1 - log2 as usize;
        self.luma_copy(store, x, y, log2, false);
        self.state = entry;
        let mut counter = BitCounter::default();
        counter.encode(&mut self.state.contexts.split_transform_flag[split_context], true);
        let (error, bits) = self.luma_quarters(x, y, log2, depth + 1);
        let split = (error, bits + counter.cost);
        if self.cost(split.0, split.1) < self.cost(whole.0, whole.1) {
            return split;
        }
        self.luma_copy(store, x, y, log2, true);
        self.state = whole_state;
        whole
    }

    fn luma_quarters(&mut self, x: usize, y: usize, log2: u32, depth: u32) -> (u64, u64) {
        let half = (1 << log2) / 2;
        let mut total = (0, 0);
        for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
            let (error, bits) = self.luma_blocks(x + dx, y + dy, log2 - 1, depth);
            total = (total.0 + error, total.1 + bits);
        }
        total
    }

    /// Sets luma of one block aside in a store behind the quad-tree's own, or
    /// brings it back.
    fn luma_copy(&mut self, index: usize, x: usize, y: usize, log2: u32, restore: bool) {
        let size = 1usize << log2;
        let (tree, store) = &mut self.spare[index];
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
    fn preselect(&mut self, x: usize, y: usize, log2: u32, probable: [u8; 3]) -> ([u8; 8], usize) {
        let keep = self.effort.rd_modes[(log2.min(5) - 2) as usize];
        let log2 = log2.min(5);
        let size = 1usize << log2;
        let depth = self.sequence.depth;
        self.gather(0, (x, y), log2);
        let plane = &self.source[0];
        let at = (self.origin.1 + y) * plane.width + self.origin.0 + x;
        let source = &plane.samples[at..];
        let strong = self.sequence.strong_intra_smoothing;
        let buffers = &mut *self.buffers;
        intra::smooth(
            &buffers.line,
            &mut buffers.smooth,
            size,
            if strong && size == 32 { Smoothing::Strong } else { Smoothing::Weak },
            depth,
        );
        // The square root of the price of a bit is its price in absolute sums.
        let price = (self.lambda * f64::from(ONE_BIT)).sqrt();
        let mut ranked = [(f64::INFINITY, 0u8); 8];
        let mut best_angle = (f64::INFINITY, 0u8);
        let mut rank = |mode: u8, buffers: &mut Buffers| {
            let smoothed = intra::smoothing(mode, size, strong) != Smoothing::None;
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
        let step = self.effort.angle_step;
        let flat = rank(0, buffers).0.min(rank(1, buffers).0);
        let mut centre = 0;
        for mode in (2..=34).step_by(step) {
            centre = rank(mode, buffers).1;
        }
        let mut reach = step as u8 / 2;
        while reach > 0 {
            let middle = centre;
            for mode in [middle.wrapping_sub(reach), middle + reach] {
                if (2..=34).contains(&mode) {
                    centre = rank(mode, buffers).1;
                }
            }
            reach /= 2;
        }
        self.structured = ranked[0].0 < 0.9 * flat;
        (ranked.map(|(_, mode)| mode), keep)
    }

    pub(super) fn candidate_modes(&self, x: usize, y: usize) -> (u8, u8) {
        Self::writer(self.sequence, &self.tree, self.origin, &self.around).candidate_modes(x, y)
    }
}

impl Steps {
    fn new(qp: i32, depth: u32) -> Self {
        let precision = Precision { depth, extended: false };
        Self([2, 3, 4, 5].map(|log2| {
            let quantizer = Quantizer::new(qp, log2, precision);
            Step { quantizer, inverse_step: (1.0 / quantizer.step()) as f32 }
        }))
    }

    pub(super) fn of(&self, log2: u32) -> Step {
        self.0[(log2 - 2) as usize]
    }
}
