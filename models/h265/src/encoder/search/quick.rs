//! The quick way through a CTU: modes by Hadamard sums over source neighbours,
//! sizes by these or by an estimate of the bits, one quantization per block, nothing
//! counted.
//!
//! An order of magnitude faster than trying everything, because on noise-like
//! samples most of what could be tried changes little.

use crate::encoder::quantize::dead_zone::{self, Proxy};
use crate::encoder::quantize::rdoq::{self, Care, Quantization};
use crate::encoder::search::Search;
use crate::encoder::search::blocks::{clips, rebuild, shape_of};
use crate::encoder::search::satd::satd;
use crate::encoder::syntax::mode_bits;
use crate::encoder::tree::{LOG2_CTB, Unit, position, units_in, z_order};
use crate::intra::chroma_mode;
use crate::intra::{self, Smoothing};
use crate::transform::{self, Kernel, Precision};
use trinity_bits::Chroma;
use trinity_bits::cabac::{BitCounter, ONE_BIT};

/// A planned square: what it would cost, and whether direction mattered.
#[derive(Debug, Clone, Copy)]
struct Plan {
    cost: f64,
    directional: bool,
}

impl Search<'_> {
    pub fn ctu_quickly(&mut self) {
        self.plan(0, 0, LOG2_CTB, true);
        self.code_planned(0, 0, LOG2_CTB);
        // Contexts settle soon: pricing levels by those of a few CTUs back
        // costs little, counting every CTU would cost much.
        if (self.origin.0 >> LOG2_CTB).is_multiple_of(8) || self.origin.0 == 1 << LOG2_CTB {
            let mut writer = Self::writer(self.sequence, &self.tree, self.origin, &self.around);
            writer.ctu(&mut BitCounter::default(), &mut self.state);
        }
    }

    fn reach(&self, x: usize, y: usize, log2: u32) -> (bool, bool) {
        let size = 1usize << log2;
        let (width, height) = self.sequence.coded_size();
        let (left, top) = (self.origin.0 + x, self.origin.1 + y);
        (left < width && top < height, left + size <= width && top + size <= height)
    }

    /// Decides sizes and modes of a square, into the tree.
    fn plan(&mut self, x: usize, y: usize, log2: u32, directional: bool) -> Plan {
        let (inside, whole) = self.reach(x, y, log2);
        if !inside {
            return Plan { cost: 0.0, directional: false };
        }
        if log2 > 5 || !whole {
            return self.plan_quarters(x, y, log2, directional);
        }
        let (z, count) = (z_order(x, y), units_in(log2));
        let (plan, mode) = self.plan_mode(x, y, log2, directional);
        let unit = Unit {
            cu_log2: log2 as u8,
            tu_log2: log2 as u8,
            luma_mode: mode,
            chroma_code: 4,
            ..Unit::default()
        };
        self.tree.units[z..z + count].fill(unit);
        let beyond = self.is_beyond_precision(log2);
        if log2 == 3
            && !beyond
            && !(self.effort.nxn && (plan.directional || self.learned.split_statistics[3][0].tries()))
        {
            return plan;
        }
        let quarters =
            if log2 == 3 { self.plan_parts(x, y) } else { self.plan_quarters(x, y, log2, plan.directional) };
        if log2 == 3 {
            self.learned.split_statistics[3][0].learn(quarters.cost < plan.cost);
        }
        if quarters.cost < plan.cost {
            return quarters;
        }
        self.tree.units[z..z + count].fill(unit);
        plan
    }

    fn plan_quarters(&mut self, x: usize, y: usize, log2: u32, directional: bool) -> Plan {
        let half = (1 << log2) / 2;
        let mut total = Plan { cost: 0.0, directional: false };
        for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
            let part = self.plan(x + dx, y + dy, log2 - 1, directional);
            total.cost += part.cost;
            total.directional |= part.directional;
        }
        total
    }

    /// Plans an 8×8 coding unit as four 4×4 blocks.
    fn plan_parts(&mut self, x: usize, y: usize) -> Plan {
        let z = z_order(x, y);
        let mut total = Plan { cost: 0.0, directional: true };
        for part in 0..4 {
            let (plan, mode) = self.plan_mode(x + (part & 1) * 4, y + (part >> 1) * 4, 2, true);
            let unit = &mut self.tree.units[z + part];
            *unit = Unit { nxn: true, tu_log2: 2, luma_mode: mode, ..*unit };
            total.cost += plan.cost;
        }
        total
    }

    /// The mode with the least Hadamard sum and what it costs. Angles are looked at
    /// closely only where coarse ones beat flat prediction.
    fn plan_mode(&mut self, x: usize, y: usize, log2: u32, directional: bool) -> (Plan, u8) {
        let size = 1usize << log2;
        let depth = self.sequence.depth;
        let probable = self.most_probable(x, y);
        let available = self.available(0, (x, y), log2);
        let plane = &self.source[0];
        let (left, top) = (self.origin.0 + x, self.origin.1 + y);
        let source = &plane.samples[top * plane.width + left..];
        let buffers = &mut *self.buffers;
        intra::gather(&mut buffers.line, &plane.samples, plane.width, (left, top), size, available, depth);
        intra::smooth(&buffers.line, &mut buffers.smooth, size, Smoothing::Weak, depth);
        let price = (self.lambda * f64::from(ONE_BIT)).sqrt();
        let mut cost = |mode: u8| {
            let smoothed = intra::smoothing(mode, size, false) != Smoothing::None;
            let line = if smoothed { &buffers.smooth } else { &buffers.line };
            let edge = intra::edge_filter(mode, 0, size, false);
            intra::predict(mode, line, size, depth, edge, &mut buffers.prediction, size);
            let sum = satd(source, plane.width, &buffers.prediction, size, depth);
            sum as f64 + price * f64::from(mode_bits(mode, probable))
        };
        let mut best = (cost(1), 1);
        let mut consider = |mode: u8, best: &mut (f64, u8)| {
            let cost = cost(mode);
            if cost < best.0 {
                *best = (cost, mode);
            }
        };
        consider(0, &mut best);
        let flat = best.0;
        let coarse: &[u8] = if directional { &[10, 26, 2, 18, 34] } else { &[10, 26] };
        for &mode in coarse {
            consider(mode, &mut best);
        }
        let directional = best.0 < 0.93 * flat;
        if directional {
            for reach in [4i8, 2, 1] {
                let centre = best.1 as i8;
                for mode in [centre - reach, centre + reach] {
                    if (2..=34).contains(&mode) {
                        consider(mode as u8, &mut best);
                    }
                }
            }
        }
        // Splitting costs a flag here and its share above.
        const SPLIT: u32 = 2;
        let (hadamard, mode) = best;
        // Hadamard sums know nothing of what coefficients cannot say; at 8×8 both
        // sides of a comparison must be estimates of the same.
        let beyond = self.is_beyond_precision(3);
        let cost = if (self.effort.hadamard_sizes && !beyond) || self.sequence.lossless {
            hadamard + price * f64::from(SPLIT)
        } else {
            let side = mode_bits(mode, probable) + SPLIT;
            let price = self.lambda * f64::from(ONE_BIT);
            self.estimate((x, y), log2, mode)
                .map(|(_, estimated)| {
                    f64::from(estimated.error) + price * (f64::from(estimated.bits) + f64::from(side))
                })
                .into_iter()
                .fold(f64::INFINITY, f64::min)
        };
        (Plan { cost, directional }, mode)
    }

    fn code_planned(&mut self, x: usize, y: usize, log2: u32) {
        let (inside, _) = self.reach(x, y, log2);
        if !inside {
            return;
        }
        let z = z_order(x, y);
        if log2 > u32::from(self.tree.units[z].cu_log2) {
            let half = (1 << log2) / 2;
            for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
                self.code_planned(x + dx, y + dy, log2 - 1);
            }
            return;
        }
        let chroma = self.sequence.chroma;
        let nxn = self.tree.units[z].nxn;
        let (parts, log2) = if nxn { (4, 2) } else { (1, log2) };
        for part in z..z + parts {
            self.code_and_note(0, part, log2, self.tree.units[part].luma_mode);
        }
        // Four 4×4 luma blocks share one chroma block where it is subsampled.
        let (parts, log2) = match chroma {
            Chroma::C400 => return,
            Chroma::C444 => (parts, log2),
            _ => (1, (log2 - 1).max(2)),
        };
        for c in 1..3 {
            for part in z..z + parts {
                self.code_and_note(c, part, log2, chroma_mode(4, self.tree.units[part].luma_mode));
            }
        }
    }

    fn code_and_note(&mut self, c: usize, z: usize, log2: u32, mode: u8) {
        let at = position(z);
        let (coded, skip) = if self.sequence.lossless {
            let outcome = self.block(c, at, log2, mode);
            (outcome.coded, false)
        } else {
            self.quick_block(c, at, log2, mode)
        };
        let count = units_in(u32::from(self.tree.units[z].tu_log2));
        for unit in &mut self.tree.units[z..z + count] {
            unit.cbf |= u8::from(coded) << c;
            unit.skip |= u8::from(skip) << c;
        }
    }

    /// Codes one block: transformed or not by an estimate of the bits, levels by
    /// a dead zone. Returns (coded, transform_skip).
    fn quick_block(&mut self, c: usize, (x, y): (usize, usize), log2: u32, mode: u8) -> (bool, bool) {
        let size = 1usize << log2;
        let count = size * size;
        let depth = self.sequence.depth;
        let precision = Precision { depth, extended: false };
        self.predict_block(c, (x, y), log2, mode);
        let steps = self.steps[c].of(log2);
        let tools = self.sequence.tools;
        let kernel = if c == 0 && log2 == 2 { Kernel::Dst } else { Kernel::Dct };
        let z = z_order(x, y);
        let may_skip = self.may_skip(log2);
        let buffers = &mut *self.buffers;

        buffers.coefficients[..count].copy_from_slice(&buffers.residual[..count]);
        transform::forward(&mut buffers.coefficients, log2, kernel, precision);
        let mut skip = false;
        if may_skip {
            let scale = (precision.residual_shift() as i32 - precision.skip_shift(log2) as i32) as f32;
            let transformed = Proxy::of(&buffers.coefficients[..count], steps.inverse_step);
            let plain = Proxy::of(&buffers.residual[..count], steps.inverse_step * scale.exp2());
            skip = plain.bits < 0.995 * transformed.bits
                || clips(&buffers.coefficients[..count], steps.inverse_step);
            if skip {
                buffers.coefficients[..count].copy_from_slice(&buffers.residual[..count]);
                transform::forward_skip(&mut buffers.coefficients, log2, precision);
            }
        }
        let shape = shape_of(self.sequence, c, log2, mode, skip);
        let levels = self.tree.block_mut(c, z, log2);
        let coefficients = &buffers.coefficients[..count];
        // Pricing levels pays where most are zero.
        let share = dead_zone::share_of_levels(coefficients, steps.inverse_step);
        let coded = if share > self.effort.dead_zone_above {
            let zero_below = dead_zone::zero_threshold(share, self.effort.lambda);
            let hides = shape.hides_signs(&tools);
            dead_zone::dead_zone(coefficients, levels, &shape, steps.inverse_step, zero_below, hides)
        } else {
            let (inverse_step, lambda) = (steps.inverse_step, self.lambda_steps);
            let quantization = Quantization { inverse_step, lambda, care: Care::Hidden };
            let coded = rdoq::quantize(
                &mut buffers.rdoq,
                &buffers.coefficients,
                &mut buffers.levels,
                &shape,
                &tools,
                &self.state,
                quantization,
            );
            levels.copy_from_slice(&buffers.levels[..count]);
            coded
        };
        if coded {
            let kernel = (!skip).then_some(kernel);
            rebuild(&mut buffers.coefficients, levels, log2, kernel, &steps.quantizer, precision);
            let residual = &buffers.coefficients[..count];
            transform::add_residual(&mut buffers.prediction, size, residual, log2, depth);
        }
        self.store_prediction(c, (x, y), log2);
        (coded, coded && skip)
    }
}
