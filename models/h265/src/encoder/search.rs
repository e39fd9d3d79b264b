//! The search for a CTU's best coding: coding-unit sizes, modes, transform
//! sizes and levels, by squared error plus price of bits.
//!
//! Works inside one row of CTUs. Candidates are tried in place: samples in the
//! band, levels and modes in the tree; what loses is overwritten or restored.

mod blocks;
mod chroma;
mod estimate;
mod luma;
mod quick;
mod satd;

use crate::deblock::chroma_qp;
use crate::encoder::headers::Sequence;
use crate::encoder::preset::Effort;
use crate::encoder::quantize::rdoq::Working;
use crate::encoder::search::estimate::Bias;
use crate::encoder::syntax::{CtuWriter, Surroundings};
use crate::encoder::tree::{LOG2_CTB, Tree, units_in, z_order};
use crate::encoder::tuned::EARLY_EXIT;
use crate::entropy::residual::State;
use crate::intra::MAX_LINE;
use crate::quant::Quantizer;
use crate::transform::Precision;
use trinity_bits::cabac::{BitCounter, ONE_BIT};
use trinity_bits::{Chroma, Plane};

/// The largest coding block tried, by log2: the largest transform's.
const MAX_CU_LOG2: u32 = 5;

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
    pub learned: Learned,
    /// Candidates set aside, one tree and sample store per quad-tree depth, and the last for luma alone.
    pub(super) spare: Vec<(Tree, [Vec<u16>; 3])>,
    pub around: Surroundings,
    /// Top left luma sample of the CTU.
    pub origin: (usize, usize),
    /// The entropy coder's state where the next block starts.
    pub state: State,
    pub(super) steps: [Steps; 3],
    /// Price of a bit in squared sample errors, over 2^15.
    pub(super) lambda: f64,
    /// Price of a bit in squared quantization steps.
    pub(super) lambda_steps: f32,
    pub(super) buffers: Box<Buffers>,
}

/// What the search has learned of the picture so far, to leave out what will hardly pay.
#[derive(Debug, Clone, Copy, Default)]
pub struct Learned {
    /// How often splitting paid of late, by log2 of what was split and its kind.
    pub(super) split_statistics: [[SplitStatistics; 6]; 7],
    /// How far off estimates of bits are.
    pub(super) bias: Bias,
}

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
        let spare = (3..=LOG2_CTB)
            .map(|log2| {
                let planes = sequence.chroma.planes();
                let store = [0, 1, 2].map(|c| if c < planes { vec![0; 1 << (2 * log2)] } else { Vec::new() });
                (Tree::new(sequence.chroma), store)
            })
            .collect();
        let mut search = Self {
            sequence,
            effort,
            source,
            bands,
            tree: Tree::new(sequence.chroma),
            learned: Learned::default(),
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
        CtuWriter { sequence, tree, origin, around, qp_delta: None, qp_delta_unit: None }
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
            return self.split(x, y, log2, Whole::ANY);
        }
        if log2 == 3 {
            return self.coding_unit(x, y, log2);
        }
        if log2 > MAX_CU_LOG2 {
            return self.split_flagged(x, y, log2, Whole::ANY);
        }
        let entry = self.state;
        self.tree.units[z_order(x, y)].cu_log2 = log2 as u8;
        let flag = self.split_flag(x, y, log2, false);
        let whole_cost = self.coding_unit(x, y, log2) + self.lambda * flag as f64;
        let even = self.is_even(x, y, log2);
        let beyond = self.is_beyond_precision(log2);
        if self.is_settled(x, y, log2) || !(beyond || self.split_statistics(x, y, log2, even).tries()) {
            return whole_cost;
        }
        let whole_state = self.state;
        self.set_aside(x, y, log2);
        self.state = entry;
        let whole = Whole { cost: whole_cost, even };
        let split_cost = self.split_flagged(x, y, log2, whole);
        self.split_statistics(x, y, log2, even).learn(split_cost < whole_cost);
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

    /// How often splitting squares like this one paid: as uneven, with as many
    /// smaller neighbours.
    fn split_statistics(&mut self, x: usize, y: usize, log2: u32, even: bool) -> &mut SplitStatistics {
        let unit = |x: usize, y: usize| {
            let unit = self.tree.units[z_order(x, y)];
            if unit.nxn { 2 } else { unit.cu_log2 }
        };
        let left = match x {
            0 => self.around.left.map(|(_, sizes)| sizes[y >> 2]),
            _ => Some(unit(x - 1, y)),
        };
        let above = match y {
            0 => self.around.above.map(|sizes| sizes[x >> 2]),
            _ => Some(unit(x, y - 1)),
        };
        let smaller = |size: Option<u8>| usize::from(size.is_some_and(|s| u32::from(s) < log2));
        &mut self.learned.split_statistics[log2 as usize]
            [2 * (smaller(left) + smaller(above)) + usize::from(even)]
    }

    /// Whether the source is about as busy in each quarter.
    fn is_even(&self, x: usize, y: usize, log2: u32) -> bool {
        let plane = &self.source[0];
        let half = (1usize << log2) / 2;
        let busy = [(0, 0), (half, 0), (0, half), (half, half)].map(|(dx, dy)| {
            let at = (self.origin.1 + y + dy) * plane.width + self.origin.0 + x + dx;
            let rows = (0..half).map(|row| &plane.samples[at + row * plane.width..][..half]);
            rows.map(|row| row.windows(2).map(|w| u32::from(w[0].abs_diff(w[1]))).sum::<u32>()).sum::<u32>()
        });
        let (least, most) = busy.iter().fold((u32::MAX, 0), |(a, b), &n| (a.min(n), b.max(n)));
        u64::from(most) * 2 < u64::from(least) * 3
    }

    fn split_flagged(&mut self, x: usize, y: usize, log2: u32, whole: Whole) -> f64 {
        let flag = self.split_flag(x, y, log2, true);
        self.split(x, y, log2, whole) + self.lambda * flag as f64
    }

    /// What split_cu_flag costs.
    fn split_flag(&mut self, x: usize, y: usize, log2: u32, split: bool) -> u64 {
        let mut counter = BitCounter::default();
        let writer = Self::writer(self.sequence, &self.tree, self.origin, &self.around);
        writer.split_cu_flag(&mut counter, &mut self.state, x, y, log2, split);
        counter.cost
    }

    /// Codes the four quarters; returns their cost, or infinity as soon as they
    /// are not going to cost less than the whole.
    fn split(&mut self, x: usize, y: usize, log2: u32, whole: Whole) -> f64 {
        let half = (1 << log2) / 2;
        let mut cost = 0.0;
        for (part, (dx, dy)) in [(0, 0), (half, 0), (0, half), (half, half)].into_iter().enumerate() {
            if whole.is_out_of_reach(cost, part) {
                return f64::INFINITY;
            }
            cost += self.quadtree(x + dx, y + dy, log2 - 1);
        }
        cost
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
        let whole = self.coding_unit_as(x, y, log2, None);
        if log2 > 3 || !self.effort.nxn || self.is_settled(x, y, log2) {
            return whole;
        }
        let even = self.is_even(x, y, log2);
        let beyond = self.is_beyond_precision(log2);
        if !beyond && !self.split_statistics(x, y, log2, even).tries() {
            return whole;
        }
        let whole_state = self.state;
        self.set_aside(x, y, log2);
        self.state = entry;
        let parts = self.coding_unit_as(x, y, log2, Some(Whole { cost: whole, even }));
        self.split_statistics(x, y, log2, even).learn(parts < whole);
        if parts < whole {
            return parts;
        }
        self.bring_back(x, y, log2);
        self.state = whole_state;
        whole
    }

    /// Codes a coding unit as 2N×2N, or as N×N if that may cost less than
    /// `whole`, and counts its bits exactly.
    fn coding_unit_as(&mut self, x: usize, y: usize, log2: u32, whole: Option<Whole>) -> f64 {
        let nxn = whole.is_some();
        let entry = self.state;
        let z = z_order(x, y);
        for unit in &mut self.tree.units[z..z + units_in(log2)] {
            unit.cu_log2 = log2 as u8;
            unit.nxn = nxn;
            unit.cbf = 0;
            unit.skip = 0;
            unit.chroma_code = 4;
            unit.tu_log2 = if nxn { 2 } else { log2 as u8 };
        }
        let (mut error, mut bits) = (0, 0);
        let part_log2 = if nxn { 2 } else { log2 };
        for part in 0..if nxn { 4 } else { 1 } {
            let (px, py) = (x + (part & 1) * 4, y + (part >> 1) * 4);
            if whole.is_some_and(|whole| whole.is_out_of_reach(self.cost(error, bits), part)) {
                return f64::INFINITY;
            }
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

    pub(super) fn most_probable(&self, x: usize, y: usize) -> [u8; 3] {
        Self::writer(self.sequence, &self.tree, self.origin, &self.around).most_probable(x, y)
    }
}

/// Whether splitting squares of one size pays: where it hardly ever does, as
/// in noise, it is tried only now and then.
#[derive(Debug, Clone, Copy)]
pub struct SplitStatistics {
    /// Share of splits that paid, the latest weighing most.
    paid: f32,
    /// How many splits the share stands for.
    seen: f32,
    passed: u32,
}

impl Default for SplitStatistics {
    fn default() -> Self {
        Self { paid: 0.5, seen: 4.0, passed: 0 }
    }
}

impl SplitStatistics {
    /// The share from which on splitting is tried always.
    const OFTEN: f32 = 0.07;
    /// How many squares in a row are left whole otherwise.
    const PAUSE: u32 = 16;
    /// How many splits are remembered.
    const MEMORY: f32 = 64.0;

    pub(super) fn tries(&mut self) -> bool {
        if self.paid >= Self::OFTEN || self.passed >= Self::PAUSE {
            self.passed = 0;
            return true;
        }
        self.passed += 1;
        false
    }

    pub(super) fn learn(&mut self, paid: bool) {
        self.seen = (self.seen + 1.0).min(Self::MEMORY);
        self.paid += (f32::from(u8::from(paid)) - self.paid) / self.seen;
    }
}

/// What the quarters of a square must not cost for splitting it to pay.
#[derive(Debug, Clone, Copy)]
struct Whole {
    cost: f64,
    /// Whether the quarters look as if each cost about the same.
    even: bool,
}

impl Whole {
    const ANY: Self = Self { cost: f64::INFINITY, even: false };

    /// Whether quarters that came to `cost` after `parts` of them will not come
    /// to less.
    fn is_out_of_reach(self, cost: f64, parts: usize) -> bool {
        /// Share of the whole that the rest may turn out to save.
        const EARLY_EXIT_SLACK: [f64; 4] = [1.0, 0.08, 0.06, 0.04];
        let slack = EARLY_EXIT.get() * EARLY_EXIT_SLACK[parts];
        let share = if self.even { parts as f64 / 4.0 + slack } else { 1.0 };
        cost > self.cost * share
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
