//! Time of one kernel on a GPU given by its parts: a roofline with a roof for
//! each level that operands cross.
//!
//! A matrix product is cut into tiles as large as shared memory and registers
//! allow; the tile decides how often operands cross the L2, the L2's size how
//! often they come from memory, and the number of tiles how many waves the SMs
//! run in. Every constant that the hardware does not state is in `fit`, with
//! what it was taken from: the products, copies and attention kernels of
//! `validation/data/h200`, of which `trinity validate` shows the error.
//!
//! Clocks: for as long as a power supply and a heat sink do not notice, a
//! product runs at the clock its rate is stated at ([`Roofline::burst`]); in a
//! long job at the one that the power limit allows ([`Roofline::of`]).

use super::parts::Die;
use super::roofline::{Roofline, TILES, Tile};
use crate::Infeasible;
use crate::job::Math;
use trinity_silicon::die::{Activity, AreaByPart, power, supply_ratio};

/// What software and latency leave of the hardware's rates: the only numbers
/// here that no datasheet states.
mod fit {
    /// Fraction of its clocks in which a matrix unit gets an operand: products
    /// of 10¹² FLOPs on an H200 reach 0.83 to 0.84 of the rate at their clock.
    pub const MATRIX_ISSUE: f64 = 0.84;
    /// Fraction of the L2's ports that tiles and plain loads are served by: no
    /// product of an H200 is slower than 0.9 allows, a copy within L2 has 0.6.
    pub const L2_TILES: f64 = 0.9;
    pub const L2_LOADS: f64 = 0.6;
    /// Fraction of memory bandwidth that long reads and writes reach: refresh,
    /// turnarounds, row misses. A copy on an H200 moves 4.27 of 4.8 TB/s.
    pub const MEMORY_ISSUE: f64 = 0.88;
    /// Filling a pipeline of tiles and draining the last one, for each wave.
    pub const WAVE_S: f64 = 0.9e-6;
    /// From the start of a product to its first tile and from the last to its
    /// end; of a kernel that only loads and stores.
    pub const PRODUCT_S: f64 = 3.0e-6;
    pub const STREAM_S: f64 = 1.0e-6;
    /// Bytes of k in one stage of the shared-memory pipeline, and stages.
    pub const STAGE_BYTES: f64 = 128.0;
    pub const STAGES: f64 = 3.0;
    /// Share of the register file that sums may take.
    pub const SUM_REGISTERS: f64 = 0.75;
    /// Share of the L2 that one operand may hold on to.
    pub const L2_RESIDENT: f64 = 0.5;
    /// Values of k below which splitting a sum among SMs does not pay.
    pub const SPLIT_K: f64 = 256.0;
    /// Vector FLOPs that a score takes beside its exponential.
    pub const SCORE_FLOPS: f64 = 5.0;
}

/// What holds a kernel up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The matrix units, or the vector units of attention.
    Arithmetic,
    L2,
    Memory,
    /// Starting and draining.
    Latency,
}

impl Level {
    /// As a report writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::L2 => "L2",
            Self::Memory => "memory",
            Self::Latency => "latency",
        }
    }
}

/// One kernel: how long, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    pub time_s: f64,
    pub level: Level,
    /// Bytes from memory, and from L2 to the SMs.
    pub memory_bytes: f64,
    pub l2_bytes: f64,
}

/// The smallest whole number not below `x`, for what fits 53 bits; the
/// library's own is a call.
fn ceil(x: f64) -> f64 {
    let whole = x as i64 as f64;
    if whole < x { whole + 1.0 } else { whole }
}

fn index(math: Math) -> usize {
    match math {
        Math::Fp32 => 0,
        Math::Fp16 => 1,
        Math::Fp8 | Math::Fp4 => 2,
    }
}

impl Die {
    /// Derives what kernels ask for.
    pub fn settle(&mut self) {
        self.roofline = Roofline::of(self);
    }
}

impl Roofline {
    /// The roofs of a die in a long job.
    pub fn of(die: &Die) -> Self {
        let area = die.area(0.0);
        Self::at(die, &area, sustained_clock_hz(die, &area))
    }

    /// The roofs of a die for a moment, before power is counted.
    pub fn burst(die: &Die) -> Self {
        Self::at(die, &die.area(0.0), die.matrix_clock_hz)
    }

    fn at(die: &Die, area: &AreaByPart, clock_hz: f64) -> Self {
        let parts = die.parts(0.0);
        let rates = die.matrix_flop_per_clock;
        let sm = |flop_per_clock: f64| flop_per_clock * clock_hz * fit::MATRIX_ISSUE;
        let nominal_hz = die.nominal_clock_hz();
        let idle = power(die.constants, &parts, area, &Activity::default(), die.clock_hz / nominal_hz);
        let busy = power(die.constants, &parts, area, &activity(die, clock_hz), clock_hz / nominal_hz);
        let mut roofline = Self {
            sms: die.sms,
            sm_flop_per_s: [sm(rates.fp32), sm(rates.fp16), sm(rates.fp8)],
            special_per_s: die.sms * die.special_per_clock * clock_hz,
            vector_flop_per_s: die.sms * die.sm.fp32_lanes * 2.0 * clock_hz,
            l2_bytes_per_s: die.l2_bytes_per_clock * clock_hz,
            l2_bytes: die.l2_mib * 1_048_576.0,
            memory_bytes_per_s: die.memory_bytes_per_s() * fit::MEMORY_ISSUE,
            tiles: [Tile::default(); TILES.len()],
            fitting: 0,
            sharing: die.sms_sharing_loads.max(1.0),
            area_mm2: area.total_mm2(),
            edge_mm: trinity_silicon::die::edge_mm(die.constants, &parts) / parts.dies,
            dies: parts.dies,
            reticle_mm2: die.constants.reticle_mm2,
            shoreline: die.constants.shoreline,
            clock_hz: die.clock_hz.max(die.matrix_clock_hz),
            most_clock_hz: die.most_clock_hz(),
            power_limit_w: die.power_limit_w,
            sustained_clock_hz: clock_hz,
            busy_power_w: busy.total_w(),
            idle_power_w: idle.total_w(),
        };
        for (rows, columns) in TILES {
            let shared = fit::STAGES * (rows + columns) * fit::STAGE_BYTES;
            let sums = rows * columns * 4.0;
            if shared <= die.sm.shared_kib * 1024.0
                && sums <= die.sm.register_kib * 1024.0 * fit::SUM_REGISTERS
            {
                roofline.tiles[roofline.fitting] = Tile { rows, columns };
                roofline.fitting += 1;
            }
        }
        if roofline.fitting == 0 {
            // Too small for three stages: the smallest tile, with fewer.
            let (rows, columns) = TILES[TILES.len() - 1];
            roofline.tiles[0] = Tile { rows, columns };
            roofline.fitting = 1;
        }
        roofline
    }

    /// The rules of [`Die::buildable`], from what is derived.
    pub(crate) fn check(&self, codec_mm2: f64) -> Result<(), Infeasible> {
        let area_mm2 = (self.area_mm2 + codec_mm2) / self.dies;
        if area_mm2 > self.reticle_mm2 {
            return Err(Infeasible::Reticle { area_mm2, reticle_mm2: self.reticle_mm2 });
        }
        // One side of a die is its neighbour's.
        let sides = if self.dies > 1.0 { 3.0 } else { 4.0 };
        let edge_mm = sides * area_mm2.sqrt() * self.shoreline;
        if self.edge_mm > edge_mm {
            return Err(Infeasible::Shoreline { needed_mm: self.edge_mm, edge_mm });
        }
        if self.clock_hz > self.most_clock_hz {
            let (clock_ghz, most_ghz) = (self.clock_hz / 1e9, self.most_clock_hz / 1e9);
            return Err(Infeasible::Clock { clock_ghz, most_ghz });
        }
        if self.power_limit_w < self.idle_power_w {
            return Err(Infeasible::Power { limit_w: self.power_limit_w, idle_w: self.idle_power_w });
        }
        Ok(())
    }

    /// `count` products of m×k and k×n in one launch. `activation_bytes` a value
    /// of the first operand, the result, and of the second once it is on its
    /// way to the SMs; `weight_bytes` a value of the second as it lies in memory.
    pub fn gemm(
        &self,
        (count, m, n, k): (f64, f64, f64, f64),
        activation_bytes: f64,
        weight_bytes: f64,
        math: Math,
    ) -> Kernel {
        let sm_flop_per_s = self.sm_flop_per_s[index(math)];
        let mut best = (f64::INFINITY, 0.0, 0.0, 1.0);
        for tile in &self.tiles[..self.fitting] {
            let tiles = count * ceil(m / tile.rows) * ceil(n / tile.columns);
            // Few tiles: the sum over k is split among idle SMs.
            let split = (self.sms / tiles).min(k / fit::SPLIT_K).max(1.0);
            let waves = if split > 1.0 { 1.0 } else { ceil(tiles / self.sms) };
            let tile_s = 2.0 * tile.rows * tile.columns * k / (split * sm_flop_per_s);
            let arithmetic_s = waves * (tile_s + fit::WAVE_S);
            let l2_bytes = tiles * k * activation_bytes * (tile.rows / self.sharing + tile.columns);
            let l2_s = l2_bytes / (self.l2_bytes_per_s * fit::L2_TILES);
            let time_s = if arithmetic_s > l2_s { arithmetic_s } else { l2_s };
            if time_s < best.0 {
                best = (time_s, arithmetic_s, l2_s, l2_bytes);
            }
        }
        let (_, arithmetic_s, l2_s, l2_bytes) = best;
        let first = m * k * activation_bytes;
        let second = n * k * weight_bytes;
        // Rows whose operand stays in L2 while the columns go by.
        let resident = self.l2_bytes * fit::L2_RESIDENT;
        let passes = ceil(first.min(second) / resident).max(1.0);
        let memory_bytes =
            count * (first.min(second) + passes * first.max(second) + m * n * activation_bytes);
        self.slowest(arithmetic_s, l2_s, (l2_bytes, memory_bytes), fit::PRODUCT_S)
    }

    /// Scores and their product with the values, fused: `scores` of them, each
    /// behind `flops ÷ scores` of the matrix units.
    pub fn attention(&self, flops: f64, scores: f64, memory_bytes: f64, math: Math) -> Kernel {
        let matrix_s = flops / (self.sms * self.sm_flop_per_s[index(math)]);
        let softmax_s = scores / self.special_per_s + scores * fit::SCORE_FLOPS / self.vector_flop_per_s;
        self.slowest(matrix_s + softmax_s, 0.0, (memory_bytes, memory_bytes), fit::PRODUCT_S)
    }

    /// A kernel that reads and writes `bytes`; what the kernel before it has
    /// just written is still in L2 as far as it fits.
    pub fn stream(&self, bytes: f64) -> Kernel {
        let kept = (bytes / 2.0).min(self.l2_bytes * fit::L2_RESIDENT);
        let l2_s = bytes / (self.l2_bytes_per_s * fit::L2_LOADS);
        self.slowest(0.0, l2_s, (bytes, bytes - kept), fit::STREAM_S)
    }

    fn slowest(
        &self,
        arithmetic_s: f64,
        l2_s: f64,
        (l2_bytes, memory_bytes): (f64, f64),
        overhead_s: f64,
    ) -> Kernel {
        let memory_s = memory_bytes / self.memory_bytes_per_s;
        let (mut busy_s, mut level) = (arithmetic_s, Level::Arithmetic);
        if l2_s > busy_s {
            (busy_s, level) = (l2_s, Level::L2);
        }
        if memory_s > busy_s {
            (busy_s, level) = (memory_s, Level::Memory);
        }
        if overhead_s > busy_s {
            level = Level::Latency;
        }
        Kernel { time_s: busy_s + overhead_s, level, memory_bytes, l2_bytes }
    }
}

/// What a large product keeps busy at a clock: the matrix units, the L2 behind
/// the largest tile, and a tenth of the memory's bandwidth.
fn activity(die: &Die, clock_hz: f64) -> Activity {
    let matrix_flop_per_s = die.sms * die.matrix_flop_per_clock.fp16 * clock_hz * fit::MATRIX_ISSUE;
    // A tile of 256 × 128 with FP16 operands: 2·rows·columns FLOPs a value of
    // k for 2·(rows + columns) bytes.
    let flop_per_byte = 256.0 * 128.0 / (256.0 / die.sms_sharing_loads.max(1.0) + 128.0);
    Activity {
        matrix_flop_per_s,
        l2_bytes_per_s: matrix_flop_per_s / flop_per_byte,
        memory_bytes_per_s: 0.1 * die.memory_bytes_per_s(),
        ..Activity::default()
    }
}

/// The clock at which a large product draws the power limit, at most the one
/// that matrix rates are stated at.
///
/// Power is leakage and memory, nearly fixed, and what goes with the clock and
/// the square of the supply: rising, so the clock is found by halving.
fn sustained_clock_hz(die: &Die, area: &AreaByPart) -> f64 {
    let parts = die.parts(0.0);
    let boost_ratio = die.clock_hz / die.nominal_clock_hz();
    let boost = power(die.constants, &parts, area, &activity(die, die.clock_hz), boost_ratio);
    let most = die.clock_hz.min(die.matrix_clock_hz);
    if boost.total_w() <= die.power_limit_w || die.power_limit_w <= 0.0 {
        return most;
    }
    let clocked = boost.matrix_w + boost.l2_w;
    let boost_supply = supply_ratio(die.constants, boost_ratio);
    let draw = |ratio: f64| {
        let supply = supply_ratio(die.constants, ratio * boost_ratio) / boost_supply;
        boost.memory_w + boost.leakage_w * supply + clocked * ratio * supply * supply
    };
    let third = 1.0 / 3.0;
    let (mut low, mut high) = if draw(third) > die.power_limit_w { (0.0, third) } else { (third, 1.0) };
    // Twelve halvings: within a quarter of a thousandth of the clock.
    for _ in 0..12 {
        let middle = 0.5 * (low + high);
        if draw(middle) > die.power_limit_w { high = middle } else { low = middle }
    }
    (0.5 * (low + high) * die.clock_hz).min(most)
}
