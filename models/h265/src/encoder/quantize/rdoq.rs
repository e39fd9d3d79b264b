//! Rate-distortion optimized quantization: levels that cost least, error and
//! bits together, given the contexts as they stand.
//!
//! Costs are in squared quantization steps, so one multiplier holds at every
//! QP, depth and block size. The result is only a choice of levels; what they
//! really cost is counted afterwards by [`crate::entropy::residual`].

use crate::encoder::quantize::trellis::{self, BASE, NO_FLAGS, Paths, Prices, SubBlock, hides_sign};
use crate::encoder::tuned::HIDDEN_SIGN;
use crate::entropy::contexts::Contexts;
use crate::entropy::residual::{
    ResidualTools, Shape, State, adapt_stat, last_binarization, next_rice, remaining_bits, sig_contexts,
};
use crate::entropy::scan::{Scan, last_prefix_ctx};
use trinity_bits::cabac::{Context, ONE_BIT};

/// More than what sums of costs in one sub-block lose to rounding.
const ROUNDING: f32 = 0.01;

#[derive(Debug, Clone, Copy)]
pub struct Quantization {
    /// 1 / step, in units of the transformed coefficients.
    pub inverse_step: f32,
    /// Price of a bit in squared steps.
    pub lambda: f32,
    pub care: Care,
}

/// How much is done for the levels of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Levels one by one, signs hidden afterwards.
    Hidden,
    /// The levels of a sub-block together ([`trellis`]).
    Joint,
}

/// Everything about the coefficients of one block that pricing needs.
struct Pricing<'a> {
    contexts: &'a Contexts,
    lambda: f32,
    chroma: usize,
    persistent: bool,
    /// Bits of flags, by context set.
    flags: [FlagBits; 4],
}

/// Bits of sign and greater-than flags of a level, by [`Running::flags`] and
/// by whether it is one, two or more.
type FlagBits = [[u32; 4]; 8];

/// Where the greater-than flags and the Rice parameter stand before a level.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// greater1Ctx; 0 once greater2 is used up, too.
    greater1: usize,
    /// Levels seen in this sub-block.
    count: u32,
    rice: u32,
    /// The first coeff_abs_level_remaining, once there was one.
    first_remaining: Option<u32>,
}

impl Running {
    fn new(rice: u32) -> Self {
        Self { greater1: 1, count: 0, rice, first_remaining: None }
    }

    /// Which flags a level gets: those of greater1Ctx, or none after eight levels.
    #[inline(always)]
    fn flags(&self) -> usize {
        if self.count < 8 { self.greater1 & 3 } else { NO_FLAGS }
    }

    #[inline(always)]
    fn advance(&mut self, level: u32, persistent: bool) {
        let flags = self.flags();
        if level >= BASE[flags] {
            if self.first_remaining.is_none() {
                self.first_remaining = Some(level - BASE[flags]);
            }
            self.rice = next_rice(self.rice, level, persistent);
        }
        if flags < NO_FLAGS {
            self.greater1 = next_greater1(flags, level);
        }
        self.count += 1;
    }
}

/// greater1Ctx after a level with flags.
#[inline(always)]
fn next_greater1(greater1: usize, level: u32) -> usize {
    if level > 1 { 0 } else { greater1 + usize::from(greater1 == 1 || greater1 == 2) }
}

impl<'a> Pricing<'a> {
    fn new(contexts: &'a Contexts, lambda: f32, shape: &Shape, persistent: bool) -> Self {
        let chroma = usize::from(shape.c_idx > 0);
        let mut flags = [[[ONE_BIT; 4]; 8]; 4];
        // A lone sub-block comes after none, and chroma has half the sets.
        let sets = if shape.log2 == 2 { 1 } else { 4 - 2 * chroma };
        for (set, flags) in flags[..sets].iter_mut().enumerate() {
            let greater2 = contexts.greater2_flag[4 * chroma + set];
            let greater2 = [greater2.cost(false), greater2.cost(true)];
            for (at, flags) in flags[..NO_FLAGS].iter_mut().enumerate() {
                let greater1 = contexts.greater1_flag[16 * chroma + 4 * set + at];
                let greater = ONE_BIT + greater1.cost(true);
                let [two, more] = if at > 0 { greater2 } else { [0; 2] };
                *flags = [0, ONE_BIT + greater1.cost(false), greater + two, greater + more];
            }
        }
        Self { contexts, lambda, chroma, persistent, flags }
    }

    /// ctxSet of sub-block `b` after one that left greater1Ctx as given.
    #[inline(always)]
    fn set(&self, b: usize, previous_greater1: usize) -> usize {
        (if b == 0 || self.chroma == 1 { 0 } else { 2 }) + usize::from(previous_greater1 == 0)
    }

    #[inline(always)]
    fn bit(&self, context: Context, bin: bool) -> f32 {
        context.cost(bin) as f32 * self.lambda
    }

    /// Price of a level ≥ 1 with its sign, without sig_coeff_flag.
    #[inline(always)]
    fn level(&self, level: u32, flags: &FlagBits, at: &Running) -> f32 {
        let index = at.flags();
        let mut cost = flags[index][level.min(3) as usize];
        if level >= BASE[index] {
            cost += remaining_bits(level - BASE[index], at.rice) * ONE_BIT;
        }
        cost as f32 * self.lambda
    }
}

/// Scratch space: a block in flight, magnitudes in steps and chosen levels, in scan order.
#[derive(Debug)]
pub struct Working {
    magnitude: [[f32; 16]; 64],
    /// Bit n: coefficient n of the sub-block is negative.
    negative: [u32; 64],
    level: [[u16; 16]; 64],
    /// Price of the level and its error, without sig_coeff_flag.
    cost: [[f32; 16]; 64],
    sig_cost: [[f32; 16]; 64],
    paths: Paths,
}

impl Default for Working {
    fn default() -> Self {
        Self {
            magnitude: [[0.0; 16]; 64],
            negative: [0; 64],
            level: [[0; 16]; 64],
            cost: [[0.0; 16]; 64],
            sig_cost: [[0.0; 16]; 64],
            paths: Paths::default(),
        }
    }
}

/// Chooses levels for `coefficients` (row by row). Returns whether there are
/// any but zeros. `levels` is fully written, as far as the block goes.
pub fn quantize(
    work: &mut Working,
    coefficients: &[i32; 1024],
    levels: &mut [i32; 1024],
    shape: &Shape,
    tools: &ResidualTools,
    state: &State,
    quantization: Quantization,
) -> bool {
    let care = quantization.care;
    let size = 1usize << shape.log2;
    let lambda = quantization.lambda / ONE_BIT as f32;
    let order = shape.scan.order(shape.log2).as_chunks::<16>().0;
    for ((order, magnitudes), negative) in order.iter().zip(&mut work.magnitude).zip(&mut work.negative) {
        let mut signs = 0;
        for (n, (magnitude, &at)) in magnitudes.iter_mut().zip(order).enumerate() {
            let coefficient = coefficients[usize::from(at) & 1023];
            signs |= u32::from(coefficient < 0) << n;
            let steps = coefficient.unsigned_abs() as f32 * quantization.inverse_step;
            *magnitude = if steps < 32767.0 { steps } else { 32767.0 };
        }
        *negative = signs;
    }
    levels[..size * size].fill(0);
    let magnitudes = work.magnitude[..order.len()].as_flattened();
    let Some(last) = magnitudes.iter().rposition(|&magnitude| magnitude >= 0.5) else { return false };
    work.level[last / 16][last % 16..].fill(0);
    let pricing = Pricing::new(&state.contexts, lambda, shape, tools.persistent_rice);

    choose(work, shape, tools, state, &pricing, last, care);
    let Some(last) = choose_last(work, shape, &pricing, last) else { return false };
    if care == Care::Joint {
        joint(work, levels, shape, tools, state, &pricing, last);
        return is_any(&levels[..size * size]);
    }

    let hides = shape.hides_signs(tools);
    let rice = if tools.persistent_rice { u32::from(state.stat[shape.stat_index()] / 4) } else { 0 };
    let mut previous_greater1 = 1;
    for b in (0..=last / 16).rev() {
        if hides {
            let end = if b == last / 16 { last % 16 } else { 15 };
            hide_sign(work, b, end, b == last / 16, &pricing, &mut previous_greater1, rice);
        }
        place(levels, &order[b], &work.level[b], work.negative[b]);
    }
    is_any(&levels[..size * size])
}

/// Whether a level is left: the parity of a hidden sign may have taken a lone one.
fn is_any(levels: &[i32]) -> bool {
    levels.iter().any(|&level| level != 0)
}

/// Gives levels of a sub-block their signs and places.
#[inline(always)]
fn place(levels: &mut [i32; 1024], order: &[u16; 16], chosen: &[u16; 16], negative: u32) {
    for (n, (&at, &level)) in order.iter().zip(chosen).enumerate() {
        let sign = -((negative >> n & 1) as i32);
        levels[usize::from(at) & 1023] = (i32::from(level) ^ sign) - sign;
    }
}

/// Chooses the levels of each sub-block together, the last position given.
fn joint(
    work: &mut Working,
    levels: &mut [i32; 1024],
    shape: &Shape,
    tools: &ResidualTools,
    state: &State,
    pricing: &Pricing<'_>,
    last: usize,
) {
    let order = shape.scan.order(shape.log2).as_chunks::<16>().0;
    let sub_blocks = shape.scan.sub_blocks(shape.log2);
    let single = shape.single_sig_context(tools);
    let (contexts, chroma) = (pricing.contexts, pricing.chroma);
    let mut stat = state.stat[shape.stat_index()];
    let mut coded = [0u16; 9];
    let mut previous_greater1 = 1;
    let last_block = last / 16;
    let bit = pricing.lambda * ONE_BIT as f32;
    for b in (0..=last_block).rev() {
        let (xs, ys) = sub_blocks[b];
        let right = (coded[usize::from(ys)] >> (xs + 1)) & 1;
        let below = (coded[usize::from(ys) + 1] >> xs) & 1;
        let pattern = usize::from(right | (below << 1));
        let magnitude = &work.magnitude[b];
        let both = |c: Context| [pricing.bit(c, false), pricing.bit(c, true)];
        let may_be_empty = b < last_block && b > 0;
        let flag = both(contexts.coded_sub_block_flag[2 * chroma + usize::from(pattern != 0)]);
        if may_be_empty {
            // Any level here would cost its sign and at least this much more error.
            let largest = magnitude.iter().fold(0.0, |a: f32, &m| a.max(m));
            let growth = 1.0 - 2.0 * largest;
            if growth > 0.0 && flag[0] + ROUNDING < flag[1] + growth + bit {
                continue;
            }
        }
        let sig = sig_contexts(shape, single, b == 0, pattern);
        let set = pricing.set(b, previous_greater1);
        let prices = Prices {
            sig: sig.map(|c| both(contexts.sig_coeff_flag[usize::from(c)])),
            greater1: std::array::from_fn(|i| both(contexts.greater1_flag[16 * chroma + 4 * set + i])),
            greater2: both(contexts.greater2_flag[4 * chroma + set]),
            bit,
        };
        let block = SubBlock {
            magnitude,
            negative: work.negative[b],
            start: if b == last_block { last % 16 } else { 15 },
            holds_last: b == last_block,
            infers_first: may_be_empty,
            hides_signs: shape.hides_signs(tools),
            rice: if tools.persistent_rice { u32::from(stat / 4) } else { 0 },
            persistent: tools.persistent_rice,
        };
        let mut chosen = trellis::choose(&block, &prices, &mut work.paths);
        if may_be_empty {
            let empty: f32 = magnitude.iter().map(|m| m * m).sum();
            chosen = chosen.filter(|c| c.cost + flag[1] < empty + flag[0]);
        }
        let Some(chosen) = chosen else { continue };
        coded[usize::from(ys)] |= 1 << xs;
        previous_greater1 = chosen.greater1;
        if let (true, Some(value)) = (tools.persistent_rice, chosen.first_remaining) {
            adapt_stat(&mut stat, value);
        }
        place(levels, &order[b], &chosen.levels, work.negative[b]);
    }
}

/// Picks every level on its own, then drops sub-blocks that do not pay. Where
/// levels will be chosen together, goes only as far as the search for the last
/// one looks; no further does it note what levels cost.
fn choose(
    work: &mut Working,
    shape: &Shape,
    tools: &ResidualTools,
    state: &State,
    pricing: &Pricing<'_>,
    last: usize,
    care: Care,
) {
    let single = shape.single_sig_context(tools);
    let sub_blocks = shape.scan.sub_blocks(shape.log2);
    let contexts = &state.contexts;
    let mut stat = state.stat[shape.stat_index()];
    let mut coded = [0u16; 9];
    let mut previous_greater1 = 1;
    let last_block = last / 16;
    let hides = shape.hides_signs(tools);
    let bit = pricing.lambda * ONE_BIT as f32;
    // The search for the last level ends at the first above one.
    let mut may_be_last = true;
    for b in (0..=last_block).rev() {
        let (xs, ys) = sub_blocks[b];
        let right = (coded[usize::from(ys)] >> (xs + 1)) & 1;
        let below = (coded[usize::from(ys) + 1] >> xs) & 1;
        let pattern = usize::from(right | (below << 1));
        let sig = sig_contexts(shape, single, b == 0, pattern);
        let flags = &pricing.flags[pricing.set(b, previous_greater1)];
        let rice = if tools.persistent_rice { u32::from(stat / 4) } else { 0 };
        let mut running = Running::new(rice);
        let (mut coded_cost, mut zero_cost) = (0.0f32, 0.0f32);
        let mut surely = false;
        let mut significant = 0u32;
        let start = if b == last_block { last % 16 } else { 15 };
        let may_be_last_here = may_be_last;
        let (magnitudes, levels) = (&work.magnitude[b], &mut work.level[b]);
        let (costs, sig_costs) = (&mut work.cost[b], &mut work.sig_cost[b]);
        for n in (0..=start).rev() {
            let is_last = b == last_block && n == start;
            let magnitude = magnitudes[n];
            let zero = magnitude * magnitude;
            zero_cost += zero;
            let upper = (magnitude + 0.5) as u32;
            let context = contexts.sig_coeff_flag[usize::from(sig[n])];
            // A large level rounded down, or up by little, is never lowered: four
            // bits would not pay for the error. Nor does its sub-block vanish, so
            // that what it costs does not matter.
            if upper > 2 && 1.0 + 2.0 * (magnitude - upper as f32) > 4.0 * pricing.lambda * ONE_BIT as f32 {
                if may_be_last {
                    sig_costs[n] = if is_last { 0.0 } else { pricing.bit(context, true) };
                    may_be_last = false;
                }
                levels[n] = upper as u16;
                surely = true;
                significant |= 1 << n;
                running.advance(upper, pricing.persistent);
                continue;
            }
            let (absent, present) =
                if is_last { (0.0, 0.0) } else { (pricing.bit(context, false), pricing.bit(context, true)) };
            let mut best = (zero, absent, 0);
            if upper > 0 {
                // Levels of three and more never fall to zero.
                let mut best_total = if upper < 3 { zero + absent } else { f32::INFINITY };
                for level in [upper, upper - 1] {
                    if level == 0 {
                        break;
                    }
                    let error = magnitude - level as f32;
                    let cost = error * error + pricing.level(level, flags, &running);
                    if cost + present < best_total {
                        best_total = cost + present;
                        best = (cost, present, level);
                    }
                }
            }
            let (cost, sig_cost, level) = best;
            levels[n] = level as u16;
            if may_be_last {
                costs[n] = cost;
                sig_costs[n] = sig_cost;
                may_be_last = level <= 1;
            }
            coded_cost += cost + sig_cost;
            if level > 0 {
                significant |= 1 << n;
                running.advance(level, pricing.persistent);
            }
        }
        // A hidden sign saves a bit and now and then costs some error.
        if hides && hides_sign(significant) {
            coded_cost -= HIDDEN_SIGN.get() as f32 * bit;
        }
        let mut keep = running.count > 0;
        if b < last_block && b > 0 && !surely {
            let flag = contexts.coded_sub_block_flag[2 * pricing.chroma + usize::from(pattern != 0)];
            keep &= coded_cost + pricing.bit(flag, true) < zero_cost + pricing.bit(flag, false);
        }
        if keep {
            if care == Care::Joint && levels[..=start].iter().any(|&level| level > 1) {
                break;
            }
            coded[usize::from(ys)] |= 1 << xs;
            previous_greater1 = running.greater1;
            if let (true, Some(value)) = (tools.persistent_rice, running.first_remaining) {
                adapt_stat(&mut stat, value);
            }
        } else {
            may_be_last = may_be_last_here;
            for n in 0..=start {
                levels[n] = 0;
                costs[n] = magnitudes[n] * magnitudes[n];
                sig_costs[n] = 0.0;
            }
        }
    }
}

/// The last position as it is written.
fn last_position(shape: &Shape, i: usize) -> (u32, u32) {
    let (xs, ys) = shape.scan.sub_blocks(shape.log2)[i / 16];
    let (x, y) = shape.scan.positions()[i % 16];
    let (x, y) = (u32::from(xs * 4 + x), u32::from(ys * 4 + y));
    if shape.scan == Scan::Vertical { (y, x) } else { (x, y) }
}

fn last_bits(contexts: &Contexts, shape: &Shape, x: u32, y: u32) -> u32 {
    let (offset, shift) = last_prefix_ctx(shape.log2, shape.c_idx);
    let longest = 2 * shape.log2 - 1;
    let price = |position: u32, contexts: &[Context; 18]| {
        let (prefix, suffix) = last_binarization(position);
        let mut cost = suffix * ONE_BIT;
        for i in 0..prefix {
            cost += contexts[offset + (i >> shift) as usize].cost(true);
        }
        if prefix < longest {
            cost += contexts[offset + (prefix >> shift) as usize].cost(false);
        }
        cost
    };
    price(x, &contexts.last_sig_coeff_x_prefix) + price(y, &contexts.last_sig_coeff_y_prefix)
}

/// Moves the last level towards DC while that pays. Stops at the first level
/// above one, which is always worth its place.
fn choose_last(work: &mut Working, shape: &Shape, pricing: &Pricing<'_>, last: usize) -> Option<usize> {
    // What is saved by everything after position i being zero, so far.
    let mut saved = 0.0f32;
    let mut best = (f32::INFINITY, None);
    for i in (0..=last).rev() {
        let (b, n) = (i / 16, i % 16);
        let level = work.level[b][n];
        if level > 0 {
            let (x, y) = last_position(shape, i);
            let bits = last_bits(pricing.contexts, shape, x, y);
            let cost = bits as f32 * pricing.lambda - work.sig_cost[b][n] - saved;
            if cost < best.0 {
                best = (cost, Some(i));
            }
            if level > 1 {
                break;
            }
        }
        saved += work.cost[b][n] + work.sig_cost[b][n] - work.magnitude[b][n] * work.magnitude[b][n];
    }
    let chosen = best.1?;
    work.level.as_flattened_mut()[chosen + 1..=last].fill(0);
    Some(chosen)
}

/// Makes the parity of a sub-block's levels agree with the sign that is not
/// sent, by the change that costs least (clause 9.3.4.3 derives the sign).
fn hide_sign(
    work: &mut Working,
    b: usize,
    end: usize,
    holds_last: bool,
    pricing: &Pricing<'_>,
    previous_greater1: &mut usize,
    rice: u32,
) {
    let (levels, magnitudes, negative) = (&mut work.level[b], &work.magnitude[b], work.negative[b]);
    let significant = (0..16).fold(0u32, |bits, n| bits | u32::from(levels[n] > 0) << n);
    if significant == 0 {
        return;
    }
    let flags = &pricing.flags[pricing.set(b, *previous_greater1)];
    let (first, highest) = (significant.trailing_zeros() as usize, 31 - significant.leading_zeros() as usize);
    let sum: u32 = levels.iter().map(|&l| u32::from(l)).sum();
    let sign = negative >> first & 1;
    if highest - first > 3 && sum & 1 != sign {
        let mut running = Running::new(rice);
        // One more or one less significance flag costs about a bit.
        let bit = pricing.lambda * ONE_BIT as f32;
        let mut best = (f32::INFINITY, 0, 0);
        for n in (0..=end.min(15)).rev() {
            let (level, magnitude) = (u32::from(levels[n]), magnitudes[n]);
            let error = magnitude - level as f32;
            // Only towards the true value: the other way costs a whole step of error.
            let (to, flag) = if level == 0 {
                // A new first level carries the hidden sign itself.
                if n < first && negative >> n & 1 != sign {
                    continue;
                }
                (1, bit)
            } else if error > 0.0 {
                (level + 1, 0.0)
            } else if level > 1 {
                (level - 1, 0.0)
            } else if n == first || (holds_last && n == highest) {
                (2, 0.0)
            } else {
                (0, -bit)
            };
            let moved = magnitude - to as f32;
            let growth = moved * moved - error * error + flag;
            if growth - 2.0 * bit < best.0 && to <= 32767 {
                let price = |level: u32| if level > 0 { pricing.level(level, flags, &running) } else { 0.0 };
                let change = growth + price(to) - price(level);
                if change < best.0 {
                    best = (change, n, to);
                }
            }
            if level > 0 {
                running.advance(level, pricing.persistent);
            }
        }
        let (_, n, level) = best;
        levels[n & 15] = level as u16;
    }
    // The next sub-block's context set depends on the final levels.
    let mut greater1 = 1;
    for &level in levels.iter().rev().filter(|&&level| level > 0).take(8) {
        greater1 = next_greater1(greater1, u32::from(level));
        if greater1 == 0 {
            break;
        }
    }
    *previous_greater1 = greater1;
}
