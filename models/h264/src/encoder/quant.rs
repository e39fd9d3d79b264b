//! Quantization in the encoder: real-valued levels, rounding with a dead zone,
//! and rate–distortion optimal levels by a trellis over CABAC's level contexts.
//!
//! A coefficient is divided by its step first, so that distortion comes in
//! units of the squared step and one λ serves every QP.

use crate::entropy::BlockKind;
use crate::entropy::cabac::{
    ABS_LEVEL, CHROMA_DC_420, CODED_BLOCK_FLAG, LAST, LAST_8X8, SIGNIFICANT, SIGNIFICANT_8X8,
};
use crate::scaling::{norm_adjust_4x4, norm_adjust_8x8};
use crate::transform::{NORMS_4, norm_8};
use trinity_coding::cabac::{Context, ONE_BIT};

/// Largest level written: what level_prefix 15 can carry in CAVLC, and far
/// above what any 8-bit block needs.
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
    /// Forward coefficient to real-valued level, by raster position.
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
        let per_level_4x4 = std::array::from_fn(|at| {
            let scale = 16.0 * f64::from(norm_adjust_4x4(rem, at as u8)) * power / 16.0;
            let ((fy, iy), (fx, ix)) = (NORMS_4[at / 4 % 2], NORMS_4[at % 4 % 2]);
            let step = scale * (iy * ix).sqrt() / 64.0;
            (1.0 / (fy * fx).sqrt() / step) as f32
        });
        let per_level_8x8 = std::array::from_fn(|at| {
            let scale = 16.0 * f64::from(norm_adjust_8x8(rem, at as u8)) * power / 64.0;
            let norm = (norm_8(at / 8) * norm_8(at % 8)).sqrt();
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

/// What the bins of one block cost in the current contexts, in bits.
#[derive(Debug, Clone)]
pub struct BlockCosts {
    /// significant_coeff_flag and last_significant_coeff_flag by scan position.
    significant: [[f32; 2]; 64],
    last: [[f32; 2]; 64],
    /// First bin of coeff_abs_level_minus1 by ctxIdxInc, and its further bins.
    first: [[f32; 2]; 5],
    more: [[f32; 2]; 5],
    coded: [f32; 2],
}

#[inline(always)]
fn bits(context: Context) -> [f32; 2] {
    let unit = 1.0 / ONE_BIT as f32;
    [context.cost(false) as f32 * unit, context.cost(true) as f32 * unit]
}

impl BlockCosts {
    /// For a block of `max` coefficients; `flag` is the ctxIdxInc of its coded_block_flag.
    pub fn new(
        contexts: &[Context; 1024],
        kind: BlockKind,
        component: usize,
        max: usize,
        flag: Option<usize>,
    ) -> Self {
        let k = kind as usize;
        let significant_at = usize::from(SIGNIFICANT[0][component][k]);
        let last_at = usize::from(LAST[0][component][k]);
        let level_at = usize::from(ABS_LEVEL[component][k]);
        let mut costs = Self {
            significant: [[0.0; 2]; 64],
            last: [[0.0; 2]; 64],
            first: std::array::from_fn(|i| bits(contexts[level_at + i])),
            more: std::array::from_fn(|i| bits(contexts[(level_at + 5 + i).min(1023)])),
            coded: flag.map_or([0.0; 2], |increment| {
                bits(contexts[usize::from(CODED_BLOCK_FLAG[component][k]) + increment])
            }),
        };
        if kind == BlockKind::Luma8x8 {
            let significant: [[f32; 2]; 15] = std::array::from_fn(|i| bits(contexts[significant_at + i]));
            let last: [[f32; 2]; 9] = std::array::from_fn(|i| bits(contexts[last_at + i]));
            for position in 0..63 {
                costs.significant[position] = significant[usize::from(SIGNIFICANT_8X8[0][position])];
                costs.last[position] = last[usize::from(LAST_8X8[position])];
            }
        } else {
            for position in 0..max - 1 {
                let increment =
                    if kind == BlockKind::ChromaDc { usize::from(CHROMA_DC_420[position]) } else { position };
                costs.significant[position] = bits(contexts[significant_at + increment]);
                costs.last[position] = bits(contexts[last_at + increment]);
            }
        }
        if kind == BlockKind::ChromaDc {
            costs.more[4] = costs.more[3];
        }
        costs
    }
}

/// The trellis' states: up to three levels of magnitude 1 and none above
/// (0–3), one to four levels above 1 (4–7), no level yet (8).
const STATES: usize = 9;
const NO_LEVEL: usize = 8;
/// ctxIdxInc of the first bin by state.
const FIRST_CONTEXT: [usize; STATES] = [1, 2, 3, 4, 0, 0, 0, 0, 1];
/// ctxIdxInc of further bins, less 5, by state.
const MORE_CONTEXT: [usize; STATES] = [0, 0, 0, 0, 1, 2, 3, 4, 0];
const AFTER_ONE: [usize; STATES] = [1, 2, 3, 3, 4, 5, 6, 7, 1];
const AFTER_MORE: [usize; STATES] = [4, 4, 4, 4, 5, 6, 7, 7, 4];

/// Finds the levels of least `(real − level)² + lambda · bits`. `real` and
/// `levels` are in scan order; returns that sum.
pub fn trellis(real: &[f32], costs: &BlockCosts, lambda: f32, max_level: f32, levels: &mut [i32]) -> f32 {
    let max = real.len();
    let mut cost = [f32::INFINITY; STATES];
    cost[NO_LEVEL] = 0.0;
    // Which state each came from, and with which level.
    let mut from = [[0u8; STATES]; 64];
    let mut chosen = [[0i32; STATES]; 64];
    for position in (0..max).rev() {
        let x = real[position].abs().min(max_level);
        let nearest = (x + 0.5) as i32;
        let mut next = [f32::INFINITY; STATES];
        let (back, pick) = (&mut from[position], &mut chosen[position]);
        let [zero_bits, one_bits] = costs.significant[position];
        for state in 0..STATES {
            if state == NO_LEVEL {
                next[state] = cost[state] + x * x;
            } else {
                next[state] = cost[state] + x * x + lambda * zero_bits;
            }
            back[state] = state as u8;
        }
        if nearest > 0 {
            let lowest = (nearest - 1).max(1);
            for level in lowest..=nearest {
                let error = x - level as f32;
                let shared = error * error + lambda * (1.0 + one_bits);
                for state in 0..STATES {
                    if cost[state] == f32::INFINITY {
                        continue;
                    }
                    let last = costs.last[position][usize::from(state == NO_LEVEL)];
                    let first = costs.first[FIRST_CONTEXT[state]];
                    let (level_bits, to) = if level == 1 {
                        (first[0], AFTER_ONE[state])
                    } else {
                        let more = costs.more[MORE_CONTEXT[state]];
                        (first[1] + more_bits(more, level), AFTER_MORE[state])
                    };
                    let total = cost[state] + shared + lambda * (last + level_bits);
                    if total < next[to] {
                        next[to] = total;
                        back[to] = state as u8;
                        pick[to] = level;
                    }
                }
            }
        }
        // A state kept by a zero must not show a level picked for another.
        cost = next;
    }
    let mut state = NO_LEVEL;
    let mut least = cost[NO_LEVEL] + lambda * costs.coded[0];
    for candidate in 0..NO_LEVEL {
        let total = cost[candidate] + lambda * costs.coded[1];
        if total < least {
            (state, least) = (candidate, total);
        }
    }
    for position in 0..max {
        let level = chosen[position][state];
        levels[position] = if real[position] < 0.0 { -level } else { level };
        state = usize::from(from[position][state]);
    }
    least
}

#[inline(always)]
fn more_bits(more: [f32; 2], level: i32) -> f32 {
    if level < 15 {
        (level - 2) as f32 * more[1] + more[0]
    } else {
        let suffix = level - 15 + 1;
        13.0 * more[1] + (2 * (31 - suffix.leading_zeros()) + 1) as f32
    }
}
