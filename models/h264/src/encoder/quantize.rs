//! Quantization in the encoder: real-valued levels, rounding with a dead zone,
//! and levels of least distortion plus λ times bits.
//!
//! A coefficient is divided by its step first, so that distortion comes in
//! units of the squared step and one λ serves every QP.

pub mod code_words;

use crate::entropy::BlockKind;
use crate::entropy::cabac::{
    ABS_LEVEL, CHROMA_DC_420, CODED_BLOCK_FLAG, LAST, LAST_8X8, SIGNIFICANT, SIGNIFICANT_8X8,
};
use crate::quant::{norm_adjust_4x4, norm_adjust_8x8};
use crate::tables::{ZIGZAG_4X4, ZIGZAG_8X8};
use crate::transform::{NORMS_4, norm_8};
use trinity_bits::cabac::{Context, ONE_BIT};

/// Largest level written: what level_prefix 15 can carry in CAVLC, and far
/// above what any 4×4 block of 8 bits needs.
pub const MAX_LEVEL_CAVLC: f32 = 2063.0;
/// Largest level in CABAC: its Exp-Golomb suffix has no limit of its own.
pub const MAX_LEVEL_CABAC: f32 = 1_000_000.0;

/// Steps of one component at one QP′.
#[derive(Debug, Clone)]
pub struct Quantizer {
    pub qp_prime: i32,
    /// The step in the orthonormal domain, so that a level costs
    /// `step² · (real − level)²` of squared error.
    pub step: f32,
    /// Forward coefficient to real-valued level, in scan order.
    pub per_level_4x4: [f32; 16],
    pub per_level_8x8: [f32; 64],
    /// For the DC of Intra16x16 after the Hadamard transform, and for chroma DC of 4:2:0.
    pub per_level_dc_16x16: f32,
    pub per_level_dc_chroma: f32,
    pub max_level: f32,
}

impl Quantizer {
    pub fn new(qp_prime: i32, max_level: f32) -> Self {
        let (per, rem) = (qp_prime / 6, (qp_prime % 6) as usize);
        let power = f64::from(1u32 << per);
        let per_level_4x4 = ZIGZAG_4X4.map(|at| {
            let scale = 16.0 * f64::from(norm_adjust_4x4(rem, at)) * power / 16.0;
            let (y, x) = (usize::from(at) / 4 % 2, usize::from(at) % 2);
            let ((fy, iy), (fx, ix)) = (NORMS_4[y], NORMS_4[x]);
            let step = scale * (iy * ix).sqrt() / 64.0;
            (1.0 / (fy * fx).sqrt() / step) as f32
        });
        let per_level_8x8 = ZIGZAG_8X8.map(|at| {
            let scale = 16.0 * f64::from(norm_adjust_8x8(rem, at)) * power / 64.0;
            let norm = (norm_8(usize::from(at) / 8) * norm_8(usize::from(at) % 8)).sqrt();
            let step = scale * norm / 64.0;
            (1.0 / (64.0 * norm) / step) as f32
        });
        let step = 16.0 * f64::from(norm_adjust_4x4(rem, 0)) * power / 256.0;
        Self {
            qp_prime,
            step: step as f32,
            per_level_4x4,
            per_level_8x8,
            per_level_dc_16x16: (1.0 / 16.0 / step) as f32,
            per_level_dc_chroma: (1.0 / 8.0 / step) as f32,
            max_level,
        }
    }
}

/// Rounds a real-valued level towards zero by a dead zone.
#[inline(always)]
pub fn dead_zone(real: f32, rounding: f32, max_level: f32) -> i32 {
    let magnitude = (real.abs() + rounding).min(max_level) as i32;
    if real < 0.0 { -magnitude } else { magnitude }
}

/// What the bins of a block cost in the current contexts, times λ.
#[derive(Debug, Clone)]
pub struct BlockCosts {
    /// significant_coeff_flag 0, by scan position.
    zero: [f32; 64],
    /// A level here that is not the last, and one that is; sign included.
    level: [f32; 64],
    last_level: [f32; 64],
    /// First bin of coeff_abs_level_minus1 by ctxIdxInc, and its further bins.
    first: [[f32; 2]; 5],
    more: [[f32; 2]; 5],
    /// coded_block_flag by ctxIdxInc.
    coded: [[f32; 2]; 4],
    bit: f32,
    /// What a block that begins before position 8, 16… can at most save over
    /// one with levels further on.
    later_start: [f32; 65],
}

impl BlockCosts {
    /// Costs of levels for CABAC blocks of `max` coefficients.
    pub fn cabac(
        contexts: &[Context; 1024],
        kind: BlockKind,
        component: usize,
        max: usize,
        lambda: f32,
    ) -> Self {
        let unit = lambda / ONE_BIT as f32;
        let price = |at: usize| {
            let context = contexts[at];
            [context.cost(false) as f32 * unit, context.cost(true) as f32 * unit]
        };
        let k = kind as usize;
        let significant_at = usize::from(SIGNIFICANT[0][component][k]);
        let last_at = usize::from(LAST[0][component][k]);
        let level_at = usize::from(ABS_LEVEL[component][k]);
        let flag_at = usize::from(CODED_BLOCK_FLAG[component][k]);
        let mut costs = Self {
            zero: [0.0; 64],
            level: [lambda; 64],
            last_level: [lambda; 64],
            first: std::array::from_fn(|i| price(level_at + i)),
            more: std::array::from_fn(|i| price((level_at + 5 + i).min(1023))),
            coded: std::array::from_fn(|i| {
                if kind == BlockKind::Luma8x8 { [0.0; 2] } else { price(flag_at + i) }
            }),
            bit: lambda,
            later_start: [f32::INFINITY; 65],
        };
        let mut place = |position: usize, significant: [f32; 2], last: [f32; 2]| {
            costs.zero[position] = significant[0];
            costs.level[position] = lambda + significant[1] + last[0];
            costs.last_level[position] = lambda + significant[1] + last[1];
        };
        if kind == BlockKind::Luma8x8 {
            let significant: [[f32; 2]; 15] = std::array::from_fn(|i| price(significant_at + i));
            let last: [[f32; 2]; 9] = std::array::from_fn(|i| price(last_at + i));
            for position in 0..63 {
                let (s, l) = (SIGNIFICANT_8X8[0][position], LAST_8X8[position]);
                place(position, significant[usize::from(s)], last[usize::from(l)]);
            }
        } else {
            for position in 0..max - 1 {
                let increment =
                    if kind == BlockKind::ChromaDc { usize::from(CHROMA_DC_420[position]) } else { position };
                place(position, price(significant_at + increment), price(last_at + increment));
            }
        }
        if kind == BlockKind::ChromaDc {
            costs.more[4] = costs.more[3];
        }
        costs.bound_later_starts(max);
        costs
    }

    /// A later start saves the zeros before it, and may find its own level
    /// cheaper to write; never by more than this.
    fn bound_later_starts(&mut self, max: usize) {
        let dearest = |prices: &[[f32; 2]; 5], bin: usize| prices.iter().map(|p| p[bin]).fold(0.0, f32::max);
        let magnitude = dearest(&self.first, 0).max(dearest(&self.first, 1) + dearest(&self.more, 0))
            + 13.0 * dearest(&self.more, 1);
        let mut zeros = 0.0;
        for position in 0..max {
            zeros += self.zero[position] + (self.level[position] - self.last_level[position]).max(0.0);
            self.later_start[position + 1] = zeros + magnitude;
        }
    }

    #[inline(always)]
    fn magnitude(&self, level: i32, first: [f32; 2], more: [f32; 2]) -> f32 {
        if level == 1 {
            first[0]
        } else if level < 15 {
            first[1] + (level - 2) as f32 * more[1] + more[0]
        } else {
            let suffix = level - 14;
            first[1] + 13.0 * more[1] + (2 * (31 - suffix.leading_zeros()) + 1) as f32 * self.bit
        }
    }
}

/// The counters that choose the contexts of levels (clause 9.3.3.1.3).
#[derive(Debug, Clone, Copy)]
struct LevelState {
    first: usize,
    more: usize,
}

impl LevelState {
    const START: Self = Self { first: 1, more: 0 };

    #[inline(always)]
    fn after(self, level: i32) -> Self {
        if level > 1 {
            Self { first: 0, more: (self.more + 1).min(4) }
        } else {
            Self { first: if self.first == 0 { 0 } else { (self.first + 1).min(4) }, more: self.more }
        }
    }
}

/// The nearest whole number of 0 ≤ `x` < 2²²: it comes to rest in the mantissa.
#[inline(always)]
pub fn nearest(x: f32) -> i32 {
    ((x + MANTISSA).to_bits() & 0x7f_ffff) as i32
}

/// 2²³, above which floats are whole.
const MANTISSA: f32 = 8_388_608.0;

/// Levels of all coefficients (a multiple of eight of them) in the state that
/// no level leaves, eight at a time; their cost, or `None` where a level is so
/// large that its price bends.
#[inline(always)]
fn settled(real: &[f32], costs: &BlockCosts, levels: &mut [i32]) -> Option<f32> {
    let ([one, first], [end, more]) = (costs.first[0], costs.more[4]);
    let mut sums = [0f32; 8];
    let mut largest = [0f32; 8];
    let flags = costs.zero.chunks_exact(8).zip(costs.level.chunks_exact(8));
    for ((real, levels), (zero, level)) in real.chunks_exact(8).zip(levels.chunks_exact_mut(8)).zip(flags) {
        for lane in 0..8 {
            let x = real[lane].abs();
            largest[lane] = largest[lane].max(x);
            // Beyond 2²² this is nonsense, and `largest` says so.
            let high = (x + MANTISSA) - MANTISSA;
            let low = (high - 1.0).max(1.0);
            let price = |magnitude: f32| {
                if magnitude < 1.5 { one } else { first + end + (magnitude - 2.0) * more }
            };
            let high_cost = (x - high) * (x - high) + price(high);
            let low_cost = (x - low) * (x - low) + price(low);
            let (mut chosen, mut least) =
                if high_cost <= low_cost { (high, high_cost) } else { (low, low_cost) };
            least += level[lane];
            let cost_of_zero = x * x + zero[lane];
            if cost_of_zero < least || high < 0.5 {
                (chosen, least) = (0.0, cost_of_zero);
            }
            sums[lane] += least;
            levels[lane] = ((chosen + MANTISSA).to_bits() & 0x7f_ffff) as i32;
        }
    }
    let largest = largest.iter().fold(0f32, |a, &b| a.max(b));
    (largest < 14.4).then(|| sums.iter().sum())
}

/// Chooses the levels of a block (scan order) for least `(real − level)²` plus
/// the prices in `costs`; returns that sum. `increment` is coded_block_flag's.
///
/// Two paths are followed from the last coefficient down: no level yet, and
/// the best one with levels. Per coefficient the two nearest levels and zero
/// compete.
#[inline(always)]
pub fn optimize(
    real: &[f32],
    costs: &BlockCosts,
    increment: usize,
    max_level: f32,
    levels: &mut [i32],
) -> f32 {
    let max = real.len();
    let mut empty = 0f32;
    let mut coded = f32::INFINITY;
    let mut state = LevelState::START;
    let mut last = 0;
    let mut position = max;
    while position > 0 {
        // Past its eighth context nothing changes any more, and once silence is
        // far behind no later start can win: each coefficient is for itself.
        if position.is_multiple_of(8)
            && state.more == 4
            && coded + costs.later_start[position] <= empty
            && let Some(rest) = settled(&real[..position], costs, &mut levels[..position])
        {
            coded += rest;
            empty = f32::INFINITY;
            break;
        }
        position -= 1;
        let x = real[position].abs().min(max_level);
        let square = x * x;
        let nearest = nearest(x);
        if nearest == 0 {
            coded += square + costs.zero[position];
            empty += square;
            levels[position] = 0;
            continue;
        }
        let lower = (nearest - 1).max(1);
        let error = |level: i32| {
            let off = x - level as f32;
            off * off
        };
        let (high_error, low_error) = (error(nearest), error(lower));
        // Going on with the coded path.
        let (first, more) = (costs.first[state.first], costs.more[state.more]);
        let high = high_error + costs.magnitude(nearest, first, more);
        let low = low_error + costs.magnitude(lower, first, more);
        let (mut level, mut least) = if high <= low { (nearest, high) } else { (lower, low) };
        least += costs.level[position];
        let zero = square + costs.zero[position];
        if zero < least {
            (level, least) = (0, zero);
        }
        let mut next = coded + least;
        let mut next_state = if level == 0 { state } else { state.after(level) };
        // Beginning here; given up once zeros alone cost more.
        if empty < next {
            let (first, more) = (costs.first[1], costs.more[0]);
            let high = high_error + costs.magnitude(nearest, first, more);
            let low = low_error + costs.magnitude(lower, first, more);
            let (start, price) = if high <= low { (nearest, high) } else { (lower, low) };
            let total = empty + price + costs.last_level[position];
            if total < next {
                next = total;
                level = start;
                next_state = LevelState::START.after(start);
                last = position;
            }
        }
        levels[position] = level;
        coded = next;
        state = next_state;
        empty += square;
    }
    let (cost_uncoded, cost_coded) = (empty + costs.coded[increment][0], coded + costs.coded[increment][1]);
    if cost_uncoded <= cost_coded {
        levels[..max].fill(0);
        return cost_uncoded;
    }
    for position in 0..max {
        if position > last {
            levels[position] = 0;
        } else if real[position] < 0.0 {
            levels[position] = -levels[position];
        }
    }
    cost_coded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::cabac::initial_contexts;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn eight_at_a_time_choose_what_one_at_a_time_does(
            real in prop::collection::vec(-14.3f32..14.3, 64),
            qp in 0i32..51,
        ) {
            let costs = BlockCosts::cabac(&initial_contexts(qp), BlockKind::Luma8x8, 0, 64, 0.13);
            let mut levels = [0; 64];
            let sum = settled(&real, &costs, &mut levels).unwrap();
            let mut expected = 0.0;
            for (k, &real) in real.iter().enumerate() {
                let cost = |level: i32| {
                    let error = (real.abs() - level as f32).powi(2);
                    error + match level {
                        0 => costs.zero[k],
                        _ => costs.level[k] + costs.magnitude(level, costs.first[0], costs.more[4]),
                    }
                };
                let nearest = nearest(real.abs());
                let least = [nearest, (nearest - 1).max(0), 0].map(cost).into_iter().fold(f32::MAX, f32::min);
                prop_assert!((cost(levels[k]) - least).abs() < 1e-4, "{} became {}", real, levels[k]);
                expected += least;
            }
            prop_assert!((sum - expected).abs() < 1e-2);
        }

        #[test]
        fn levels_stay_near_their_coefficients(real in prop::collection::vec(-40f32..40.0, 64), qp in 0i32..51) {
            let costs = BlockCosts::cabac(&initial_contexts(qp), BlockKind::Luma8x8, 0, 64, 0.13);
            let mut levels = [0; 64];
            optimize(&real, &costs, 0, 1e6, &mut levels);
            for (real, level) in real.iter().zip(levels) {
                prop_assert!(level == 0 || (real - level as f32).abs() <= 1.5, "{} became {}", real, level);
            }
        }
    }

    #[test]
    fn a_large_level_is_left_to_the_exact_price() {
        let costs = BlockCosts::cabac(&initial_contexts(26), BlockKind::Luma8x8, 0, 64, 0.13);
        assert!(settled(&[15.0; 8], &costs, &mut [0; 8]).is_none());
        assert!(settled(&[1e9; 8], &costs, &mut [0; 8]).is_none());
    }
}
