//! Rate-distortion optimized quantization: levels that cost least, error and
//! bits together, given the contexts as they stand.
//!
//! Costs are in squared quantization steps, so one multiplier holds at every
//! QP, depth and block size. The result is only a choice of levels; what they
//! really cost is counted afterwards by [`super::residual`].

use super::residual::{
    ResidualTools, Shape, State, adapt_stat, last_binarization, next_rice, remaining_bits, sig_contexts,
};
use super::trellis::{self, Paths, Prices, SubBlock};
use crate::contexts::Contexts;
use crate::scan::{Scan, last_prefix_ctx};
use trinity_coding::cabac::{Context, ONE_BIT};

/// How a block is quantized.
#[derive(Debug, Clone, Copy)]
pub struct Quantization {
    /// 1 / step, in units of the transformed coefficients.
    pub inverse_step: f32,
    /// Price of a bit in squared steps.
    pub lambda: f32,
}

/// How much is done for the levels of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Levels one by one, signs hidden afterwards.
    Hidden,
    /// The levels of a sub-block together ([`trellis`]).
    Joint,
}

/// Everything about the coefficients of one sub-block that pricing needs.
struct Pricing<'a> {
    contexts: &'a Contexts,
    lambda: f32,
    chroma: usize,
    persistent: bool,
}

/// Where the greater-than flags and the Rice parameter stand before a level.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// Index of the context set, then greater1Ctx.
    set: usize,
    greater1: usize,
    /// Levels seen in this sub-block.
    count: u32,
    greater2_used: bool,
    rice: u32,
    /// The first coeff_abs_level_remaining, once there was one.
    first_remaining: Option<u32>,
}

impl Running {
    fn new(set: usize, rice: u32) -> Self {
        Self { set, greater1: 1, count: 0, greater2_used: false, rice, first_remaining: None }
    }

    /// The smallest level that needs coeff_abs_level_remaining.
    #[inline(always)]
    fn base(&self) -> u32 {
        if self.count >= 8 {
            1
        } else if self.greater2_used {
            2
        } else {
            3
        }
    }

    #[inline(always)]
    fn advance(&mut self, level: u32, persistent: bool) {
        let base = self.base();
        if level >= base {
            if self.first_remaining.is_none() {
                self.first_remaining = Some(level - base);
            }
            self.rice = next_rice(self.rice, level, persistent);
        }
        if self.count < 8 {
            if level > 1 {
                self.greater1 = 0;
                self.greater2_used = true;
            } else if self.greater1 > 0 && self.greater1 < 3 {
                self.greater1 += 1;
            }
        }
        self.count += 1;
    }
}

impl Pricing<'_> {
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
    fn level(&self, level: u32, at: &Running) -> f32 {
        let mut cost = ONE_BIT;
        if at.count < 8 {
            let greater1 = self.contexts.greater1_flag[16 * self.chroma + 4 * at.set + at.greater1];
            cost += greater1.cost(level > 1);
            if level > 1 && !at.greater2_used {
                cost += self.contexts.greater2_flag[4 * self.chroma + at.set].cost(level > 2);
            }
        }
        let base = at.base();
        if level >= base {
            cost += remaining_bits(level - base, at.rice) * ONE_BIT;
        }
        cost as f32 * self.lambda
    }
}

/// Scratch space: a block in flight, magnitudes in steps and chosen levels, in scan order.
#[derive(Debug)]
pub struct Working {
    magnitude: [f32; 1024],
    level: [u16; 1024],
    /// Price of the level and its error, without sig_coeff_flag.
    cost: [f32; 1024],
    sig_cost: [f32; 1024],
    paths: Paths,
}

impl Default for Working {
    fn default() -> Self {
        Self {
            magnitude: [0.0; 1024],
            level: [0; 1024],
            cost: [0.0; 1024],
            sig_cost: [0.0; 1024],
            paths: Paths::default(),
        }
    }
}

/// What a hidden sign saves in bits, the error it causes taken off.
const HIDDEN_SIGN: f32 = 0.75;

/// Chooses levels for `coefficients` (row by row). Returns their error and
/// price in squared steps, or none if all are zero. `levels` is fully written.
pub fn quantize(
    work: &mut Working,
    coefficients: &[i32],
    levels: &mut [i32],
    shape: &Shape,
    tools: &ResidualTools,
    state: &State,
    quantization: Quantization,
    care: Care,
) -> Option<f32> {
    let size = 1usize << shape.log2;
    let lambda = quantization.lambda / ONE_BIT as f32;
    let pricing = Pricing {
        contexts: &state.contexts,
        lambda,
        chroma: usize::from(shape.c_idx > 0),
        persistent: tools.persistent_rice,
    };

    let order = shape.scan.order(shape.log2);
    for (magnitude, &at) in work.magnitude.iter_mut().zip(order) {
        let coefficient = coefficients[usize::from(at)].unsigned_abs();
        *magnitude = (coefficient as f32 * quantization.inverse_step).min(32767.0);
    }
    let last = work.magnitude[..order.len()].iter().rposition(|&magnitude| magnitude >= 0.5);
    let levels = &mut levels[..size * size];
    levels.fill(0);
    let last = last?;
    work.level[last + 1..(last / 16 + 1) * 16].fill(0);

    let all = choose(work, shape, tools, state, &pricing, last, care);
    let (last, difference) = choose_last(work, shape, &pricing, last)?;
    if care == Care::Joint {
        return Some(joint(work, coefficients, levels, shape, tools, state, &pricing, last));
    }

    let hides = shape.hides_signs(tools);
    let mut previous_greater1 = 1;
    for b in (0..=last / 16).rev() {
        let at = |n: usize| usize::from(order[16 * b + n]);
        if hides {
            let end = if b == last / 16 { last % 16 } else { 15 };
            let negative: u32 = (0..16).fold(0, |bits, n| bits | u32::from(coefficients[at(n)] < 0) << n);
            hide_sign(
                work,
                b,
                end,
                b == last / 16,
                negative,
                &pricing,
                &mut previous_greater1,
                state,
                tools,
                shape,
            );
        }
        for n in 0..16 {
            let level = i32::from(work.level[16 * b + n]);
            levels[at(n)] = if coefficients[at(n)] < 0 { -level } else { level };
        }
    }
    Some(all + difference)
}

/// Chooses the levels of each sub-block together, the last position given.
fn joint(
    work: &mut Working,
    coefficients: &[i32],
    levels: &mut [i32],
    shape: &Shape,
    tools: &ResidualTools,
    state: &State,
    pricing: &Pricing<'_>,
    last: usize,
) -> f32 {
    let order = shape.scan.order(shape.log2);
    let sub_blocks = shape.scan.sub_blocks(shape.log2);
    let single = shape.single_sig_context(tools);
    let (contexts, chroma) = (pricing.contexts, pricing.chroma);
    let mut stat = state.stat[shape.stat_index()];
    let mut coded = [0u16; 9];
    let mut previous_greater1 = 1;
    let last_block = last / 16;
    let mut total = 0.0;
    for b in (0..=last_block).rev() {
        let (xs, ys) = sub_blocks[b];
        let right = (coded[usize::from(ys)] >> (xs + 1)) & 1;
        let below = (coded[usize::from(ys) + 1] >> xs) & 1;
        let pattern = usize::from(right | (below << 1));
        let sig = sig_contexts(shape, single, b == 0, pattern);
        let set = pricing.set(b, previous_greater1);
        let at = |n: usize| usize::from(order[16 * b + n]);
        let both = |c: Context| [pricing.bit(c, false), pricing.bit(c, true)];
        let prices = Prices {
            sig: sig.map(|c| both(contexts.sig_coeff_flag[usize::from(c)])),
            greater1: std::array::from_fn(|i| both(contexts.greater1_flag[16 * chroma + 4 * set + i])),
            greater2: both(contexts.greater2_flag[4 * chroma + set]),
            bit: pricing.lambda * ONE_BIT as f32,
        };
        let block = SubBlock {
            magnitude: &work.magnitude[16 * b..16 * b + 16],
            negative: (0..16).fold(0, |bits, n| bits | u32::from(coefficients[at(n)] < 0) << n),
            start: if b == last_block { last % 16 } else { 15 },
            holds_last: b == last_block,
            infers_first: b < last_block && b > 0,
            hides_signs: shape.hides_signs(tools),
            rice: if tools.persistent_rice { u32::from(stat / 4) } else { 0 },
            persistent: tools.persistent_rice,
        };
        let mut chosen = trellis::choose(&block, &prices, &mut work.paths);
        let empty: f32 = block.magnitude.iter().map(|m| m * m).sum();
        if b < last_block && b > 0 {
            let flag = both(contexts.coded_sub_block_flag[2 * chroma + usize::from(pattern != 0)]);
            chosen = chosen.filter(|c| c.cost + flag[1] < empty + flag[0]);
            total += flag[usize::from(chosen.is_some())];
        }
        let Some(chosen) = chosen else {
            total += empty;
            continue;
        };
        total += chosen.cost;
        coded[usize::from(ys)] |= 1 << xs;
        previous_greater1 = chosen.greater1;
        if let (true, Some(value)) = (tools.persistent_rice, chosen.first_remaining) {
            adapt_stat(&mut stat, value);
        }
        for n in 0..16 {
            let level = i32::from(chosen.levels[n]);
            levels[at(n)] = if coefficients[at(n)] < 0 { -level } else { level };
        }
    }
    let beyond: f32 = work.magnitude[16 * (last_block + 1)..order.len()].iter().map(|m| m * m).sum();
    let (x, y) = last_position(shape, last);
    total + beyond + last_bits(pricing.contexts, shape, x, y) as f32 * pricing.lambda
}

/// Picks every level on its own, then drops sub-blocks that do not pay.
/// Returns what all comes to without the last position. Where levels will be
/// chosen together, goes only as far as the search for the last one looks.
fn choose(
    work: &mut Working,
    shape: &Shape,
    tools: &ResidualTools,
    state: &State,
    pricing: &Pricing<'_>,
    last: usize,
    care: Care,
) -> f32 {
    let single = shape.single_sig_context(tools);
    let sub_blocks = shape.scan.sub_blocks(shape.log2);
    let contexts = &state.contexts;
    let mut stat = state.stat[shape.stat_index()];
    let mut coded = [0u16; 9];
    let mut previous_greater1 = 1;
    let last_block = last / 16;
    let size = 1usize << shape.log2;
    let hides = shape.hides_signs(tools);
    let bit = pricing.lambda * ONE_BIT as f32;
    let mut total: f32 = work.magnitude[last + 1..size * size].iter().map(|m| m * m).sum();
    for b in (0..=last_block).rev() {
        let (xs, ys) = sub_blocks[b];
        let right = (coded[usize::from(ys)] >> (xs + 1)) & 1;
        let below = (coded[usize::from(ys) + 1] >> xs) & 1;
        let pattern = usize::from(right | (below << 1));
        let sig = sig_contexts(shape, single, b == 0, pattern);
        let set = (if b == 0 || pricing.chroma == 1 { 0 } else { 2 }) + usize::from(previous_greater1 == 0);
        let rice = if tools.persistent_rice { u32::from(stat / 4) } else { 0 };
        let mut running = Running::new(set, rice);
        let (mut coded_cost, mut zero_cost) = (0.0f32, 0.0f32);
        let mut surely = false;
        let mut significant = 0u32;
        let start = if b == last_block { last % 16 } else { 15 };
        for n in (0..=start).rev() {
            let i = 16 * b + n;
            let magnitude = work.magnitude[i];
            let context = contexts.sig_coeff_flag[usize::from(sig[n])];
            let zero = magnitude * magnitude;
            zero_cost += zero;
            let upper = (magnitude + 0.5) as u32;
            // A large level rounded down, or up by little, is never lowered: four
            // bits would not pay for the error. Nor does its sub-block vanish.
            if upper > 2 && 1.0 + 2.0 * (magnitude - upper as f32) > 4.0 * pricing.lambda * ONE_BIT as f32 {
                let error = magnitude - upper as f32;
                work.sig_cost[i] = if i == last { 0.0 } else { pricing.bit(context, true) };
                coded_cost += error * error + pricing.level(upper, &running) + work.sig_cost[i];
                work.level[i] = upper as u16;
                surely = true;
                significant |= 1 << n;
                running.advance(upper, pricing.persistent);
                continue;
            }
            let (absent, present) = if i == last {
                (0.0, 0.0)
            } else {
                (pricing.bit(context, false), pricing.bit(context, true))
            };
            let mut best = (zero, absent, 0);
            if upper > 0 {
                // Levels of three and more never fall to zero.
                let mut best_total = if upper < 3 { zero + absent } else { f32::INFINITY };
                for level in [upper, upper - 1] {
                    if level == 0 {
                        break;
                    }
                    let error = magnitude - level as f32;
                    let cost = error * error + pricing.level(level, &running);
                    if cost + present < best_total {
                        best_total = cost + present;
                        best = (cost, present, level);
                    }
                }
            }
            let (cost, sig_cost, level) = best;
            work.cost[i] = cost;
            work.sig_cost[i] = sig_cost;
            work.level[i] = level as u16;
            coded_cost += cost + sig_cost;
            if level > 0 {
                significant |= 1 << n;
                running.advance(level, pricing.persistent);
            }
        }
        // A hidden sign saves a bit and now and then costs some error.
        if hides
            && significant >> 4 > 0
            && 31 - significant.leading_zeros() - significant.trailing_zeros() > 3
        {
            coded_cost -= HIDDEN_SIGN * bit;
        }
        let mut keep = running.count > 0;
        if b < last_block && b > 0 && !surely {
            let flag = contexts.coded_sub_block_flag[2 * pricing.chroma + usize::from(pattern != 0)];
            keep &= coded_cost + pricing.bit(flag, true) < zero_cost + pricing.bit(flag, false);
            total += pricing.bit(flag, keep);
        }
        total += if keep || b == 0 { coded_cost } else { zero_cost };
        if keep {
            if care == Care::Joint && work.level[16 * b..=16 * b + start].iter().any(|&level| level > 1) {
                break;
            }
            coded[usize::from(ys)] |= 1 << xs;
            previous_greater1 = running.greater1;
            if let (true, Some(value)) = (tools.persistent_rice, running.first_remaining) {
                adapt_stat(&mut stat, value);
            }
        } else {
            for n in 0..=start {
                let i = 16 * b + n;
                work.level[i] = 0;
                work.cost[i] = work.magnitude[i] * work.magnitude[i];
                work.sig_cost[i] = 0.0;
            }
        }
    }
    total
}

/// The last position as it is written.
fn last_position(shape: &Shape, i: usize) -> (u32, u32) {
    let (xs, ys) = shape.scan.sub_blocks(shape.log2)[i / 16];
    let (x, y) = shape.scan.positions()[i % 16];
    let (x, y) = (u32::from(xs * 4 + x), u32::from(ys * 4 + y));
    if shape.scan == Scan::Vertical { (y, x) } else { (x, y) }
}

/// What a last position costs.
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
/// above one, which is always worth its place. Returns it and what it adds.
fn choose_last(
    work: &mut Working,
    shape: &Shape,
    pricing: &Pricing<'_>,
    last: usize,
) -> Option<(usize, f32)> {
    // What is saved by everything after position i being zero, so far.
    let mut saved = 0.0f32;
    let mut best = (f32::INFINITY, None);
    for i in (0..=last).rev() {
        let level = work.level[i];
        if level > 0 {
            let (x, y) = last_position(shape, i);
            let bits = last_bits(pricing.contexts, shape, x, y);
            let cost = bits as f32 * pricing.lambda - work.sig_cost[i] - saved;
            if cost < best.0 {
                best = (cost, Some(i));
            }
            if level > 1 {
                break;
            }
        }
        saved += work.cost[i] + work.sig_cost[i] - work.magnitude[i] * work.magnitude[i];
    }
    let chosen = best.1?;
    work.level[chosen + 1..=last].fill(0);
    Some((chosen, best.0))
}

/// Makes the parity of a sub-block's levels agree with the sign that is not
/// sent, by the change that costs least (clause 9.3.4.3 derives the sign).
fn hide_sign(
    work: &mut Working,
    b: usize,
    end: usize,
    holds_last: bool,
    negative: u32,
    pricing: &Pricing<'_>,
    previous_greater1: &mut usize,
    state: &State,
    tools: &ResidualTools,
    shape: &Shape,
) {
    let levels = &work.level[16 * b..16 * b + 16];
    let significant = (0..16).fold(0u32, |bits, n| bits | u32::from(levels[n] > 0) << n);
    if significant == 0 {
        return;
    }
    let set = (if b == 0 || pricing.chroma == 1 { 0 } else { 2 }) + usize::from(*previous_greater1 == 0);
    let rice = if tools.persistent_rice { u32::from(state.stat[shape.stat_index()] / 4) } else { 0 };
    let (first, highest) = (significant.trailing_zeros() as usize, 31 - significant.leading_zeros() as usize);
    let sum: u32 = levels.iter().map(|&l| u32::from(l)).sum();
    let sign = negative >> first & 1;
    let mut running = Running::new(set, rice);
    if highest - first > 3 && sum & 1 != sign {
        // One more or one less significance flag costs about a bit.
        let bit = pricing.lambda * ONE_BIT as f32;
        let mut best = (f32::INFINITY, 0, 0);
        for n in (0..=end).rev() {
            let i = 16 * b + n;
            let (level, magnitude) = (u32::from(work.level[i]), work.magnitude[i]);
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
                let price = |level: u32| if level > 0 { pricing.level(level, &running) } else { 0.0 };
                let change = growth + price(to) - price(level);
                if change < best.0 {
                    best = (change, i, to);
                }
            }
            if level > 0 {
                running.advance(level, pricing.persistent);
            }
        }
        let (_, i, level) = best;
        work.level[i] = level as u16;
    }
    // The next sub-block's context set depends on the final levels.
    let mut running = Running::new(set, rice);
    for n in (0..16).rev() {
        let level = u32::from(work.level[16 * b + n]);
        if level > 0 {
            running.advance(level, pricing.persistent);
        }
    }
    *previous_greater1 = running.greater1;
}
