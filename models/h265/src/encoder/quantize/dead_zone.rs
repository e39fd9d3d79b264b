//! Quantization without pricing: a dead zone, and signs hidden where the
//! error grows least.

use crate::encoder::tuned::DEAD_ZONE;
use crate::entropy::residual::Shape;

/// An estimate of what coefficients cost, for choosing between transforms.
#[derive(Debug, Clone, Copy)]
pub struct Proxy {
    pub bits: f32,
}

impl Proxy {
    /// About log2 of each magnitude in steps, and something for being there.
    pub fn of(coefficients: &[i32], inverse_step: f32) -> Self {
        // The exponent and mantissa of a float are a piecewise linear log2.
        let bits: i64 = coefficients
            .chunks(64)
            .map(|chunk| {
                chunk
                    .iter()
                    .map(|&c| {
                        let scaled = c as f32 * inverse_step;
                        (0.3f32 + scaled * scaled).to_bits() as i32 >> 8
                    })
                    .sum::<i32>() as i64
                    - i64::from((0.3f32.to_bits() >> 8) as i32) * chunk.len() as i64
            })
            .sum();
        Self { bits: bits as f32 / 65536.0 }
    }
}

/// Quantizes; magnitudes below `zero_below` vanish. Returns whether any level
/// is not zero; `levels` is fully written.
pub fn dead_zone(
    coefficients: &[i32],
    levels: &mut [i32],
    shape: &Shape,
    inverse_step: f32,
    zero_below: f32,
    hides: bool,
) -> bool {
    let rounding = DEAD_ZONE.get() as f32;
    let mut any = 0;
    for (level, &c) in levels.iter_mut().zip(coefficients) {
        let exact = (c as f32 * inverse_step).abs();
        let magnitude = if exact < zero_below { 0 } else { (exact + rounding).min(32767.0) as i32 };
        *level = if c < 0 { -magnitude } else { magnitude };
        any |= magnitude;
    }
    if hides && any != 0 {
        hide_signs(coefficients, levels, shape, inverse_step);
    }
    any != 0
}

/// The share of coefficients that will have a level.
pub fn share_of_levels(coefficients: &[i32], inverse_step: f32) -> f32 {
    let present = coefficients.iter().filter(|&&c| (c as f32 * inverse_step).abs() >= 0.6).count();
    (present as f32 + 0.5) / (coefficients.len() as f32 + 1.0)
}

/// Where a magnitude is worth a level at all. The rarer levels are in the
/// block, the more a flag for one costs: that, a sign and a flag for its size.
pub fn zero_threshold(share: f32, lambda: f32) -> f32 {
    let bits = 1.7 + ((1.0 - share) / share).log2();
    0.5 + 0.5 * lambda * bits.clamp(0.0, 8.0)
}

/// Gives every sub-block the parity its hidden sign asks for.
fn hide_signs(coefficients: &[i32], levels: &mut [i32], shape: &Shape, inverse_step: f32) {
    let size = 1usize << shape.log2;
    let positions = shape.scan.positions();
    let offsets: [usize; 16] =
        std::array::from_fn(|n| usize::from(positions[n].1) * size + usize::from(positions[n].0));
    // Where the last level of the block is matters to no parity but its own,
    // and a level of one is never taken away, so the order is free.
    for &(xs, ys) in shape.scan.sub_blocks(shape.log2) {
        let base = usize::from(ys) * 4 * size + usize::from(xs) * 4;
        let mut significant = 0u32;
        let mut sum = 0;
        for (n, offset) in offsets.iter().enumerate() {
            let level = levels[base + offset];
            significant |= u32::from(level != 0) << n;
            sum += level;
        }
        if significant == 0 {
            continue;
        }
        let first = significant.trailing_zeros() as usize;
        let highest = 31 - significant.leading_zeros() as usize;
        // A sum has the parity of the sum of magnitudes.
        let negative = levels[base + offsets[first]] < 0;
        if highest - first <= 3 || (sum & 1 == 1) == negative {
            continue;
        }
        let mut best = (f32::INFINITY, 0, 0);
        for n in first..=highest {
            let at = base + offsets[n];
            let magnitude = (coefficients[at] as f32 * inverse_step).abs();
            let level = levels[at].abs();
            let error = magnitude - level as f32;
            // Towards the true value costs least; a level more takes more bits.
            let (change, cost) = if error > 0.0 {
                (1, 1.0 - 2.0 * error + if level == 0 { 0.35 } else { 0.08 })
            } else if level > 1 {
                (-1, 1.0 + 2.0 * error - 0.08)
            } else if level == 1 && n != first && n != highest {
                (-1, 1.0 + 2.0 * error - 0.25)
            } else {
                (1, 1.0 - 2.0 * error + 0.08)
            };
            if cost < best.0 {
                best = (cost, at, change);
            }
        }
        let (_, at, change) = best;
        let negative = coefficients[at] < 0;
        let level = levels[at].abs() + change;
        levels[at] = if negative { -level } else { level };
    }
}
