//! An estimate of what a block will cost, without choosing its levels: good enough
//! to tell which of many candidates deserve to be coded.
//!
//! Greater-than flags and Rice parameters follow the magnitudes of a
//! sub-block, so what it costs is, but for a few bits, a function of their
//! sum. What that leaves out differs by block size and between transformed
//! and plain blocks, but hardly from block to block: that share is learned as coding
//! goes ([`Bias`]).

/// Coefficients of one block, as they would be quantized.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Row by row.
    pub coefficients: &'a [i32],
    pub log2: u32,
    /// 1 / step, in units of the coefficients.
    pub inverse_step: f32,
    /// The step in samples, if coefficients are samples: levels are then
    /// rounded one by one.
    pub sample_step: Option<f32>,
}

/// What coding is estimated to come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The error in squared steps.
    pub error: f32,
    pub bits: f32,
}

/// Adding this rounds a float to the nearest whole number, ties to even.
const WHOLE: f32 = 12_582_912.0;
/// How far rounding leans towards zero: a level less is cheaper.
const DOWNWARD: f32 = 0.08;
/// What a stream can say at most (CoeffMaxY): the rest of a magnitude is error.
const MAX_LEVEL: f32 = 32767.0;

pub fn of(block: Block<'_>) -> Estimate {
    match block.sample_step {
        Some(step) => sum(block, |level| ((level * step + WHOLE) - WHOLE) / step),
        None => sum(block, |level| level),
    }
}

#[inline(always)]
fn sum(block: Block<'_>, value: impl Fn(f32) -> f32) -> Estimate {
    let size = 1usize << block.log2;
    let mut error = [0f32; 4];
    let mut bits = 0.0;
    for band in block.coefficients[..size * size].chunks_exact(4 * size) {
        for x in (0..size).step_by(4) {
            let mut sums = [0f32; 4];
            for row in band.chunks_exact(size) {
                for ((&c, sum), error) in row[x..x + 4].iter().zip(&mut sums).zip(&mut error) {
                    let magnitude = (c as f32 * block.inverse_step).abs();
                    let level = ((magnitude - DOWNWARD + WHOLE) - WHOLE).min(MAX_LEVEL);
                    let off = magnitude - value(level);
                    *error += off * off;
                    *sum += level;
                }
            }
            bits += sub_block_bits(sums.iter().sum());
        }
    }
    Estimate { error: error.iter().sum(), bits }
}

/// Bits of a sub-block whose magnitudes have this sum, as fitted to blocks of
/// captured tensors at 1 to 4 bits per value.
#[inline(always)]
fn sub_block_bits(sum: f32) -> f32 {
    // The exponent and mantissa of a float are a piecewise linear log2.
    let log2 = ((1.0 + 0.33 * sum).to_bits() as i32 - 1f32.to_bits() as i32) as f32 / (1 << 23) as f32;
    18.2 * log2
}

/// By what share estimates are off, by block size and whether transformed.
#[derive(Debug, Clone, Copy)]
pub struct Bias([[Sums; 2]; 4]);

/// Bits of blocks, the latest weighing most.
#[derive(Debug, Clone, Copy)]
struct Sums {
    estimated: f32,
    real: f32,
}

impl Default for Bias {
    fn default() -> Self {
        Self([[Sums { estimated: 100.0, real: 100.0 }; 2]; 4])
    }
}

impl Bias {
    /// What an estimate is to be multiplied by.
    pub fn of(&self, log2: u32, skip: bool) -> f32 {
        let sums = &self.0[(log2 - 2) as usize][usize::from(skip)];
        sums.real / sums.estimated
    }

    /// Takes note of what a block really cost.
    pub fn learn(&mut self, log2: u32, skip: bool, estimated: f32, bits: f32) {
        let sums = &mut self.0[(log2 - 2) as usize][usize::from(skip)];
        // Even a block without levels keeps the sums away from zero.
        sums.estimated = (sums.estimated + estimated) * (15.0 / 16.0) + 1.0;
        sums.real = (sums.real + bits) * (15.0 / 16.0) + 1.0;
    }
}

/// What rounding transformed samples back to whole ones adds to their mean
/// squared error: nothing while errors are too small to survive it.
pub fn rounding(mean_squared_error: f32) -> f32 {
    (0.6 * (mean_squared_error - 0.08)).clamp(0.0, 1.0 / 12.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_samples_have_no_error_at_a_step_of_one() {
        let coefficients: Vec<i32> = (0..64).map(|i| (i * 37 % 41) - 20).collect();
        let block = Block { coefficients: &coefficients, log2: 3, inverse_step: 1.0, sample_step: Some(1.0) };
        assert!(of(block).error < 1e-6);
    }

    #[test]
    fn what_no_level_can_say_is_error() {
        let mut coefficients = vec![0; 64];
        coefficients[0] = 30_000;
        let error = |inverse_step| {
            of(Block { coefficients: &coefficients, log2: 3, inverse_step, sample_step: None }).error
        };
        assert!(error(1.0) < 1.0);
        let missing = 1.5 * 30_000.0 - MAX_LEVEL;
        assert!((error(1.5) / (missing * missing) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn larger_coefficients_cost_more() {
        let bits = |scale: i32| {
            let coefficients: Vec<i32> = (0..256).map(|i| ((i * 37 % 41) - 20) * scale).collect();
            of(Block { coefficients: &coefficients, log2: 4, inverse_step: 0.1, sample_step: None }).bits
        };
        assert!(bits(0) == 0.0 && bits(1) > 0.0 && bits(2) > bits(1) && bits(8) > bits(2));
    }

    #[test]
    fn a_bias_settles_on_the_share_that_is_missing() {
        let mut bias = Bias::default();
        for _ in 0..200 {
            bias.learn(4, true, 100.0, 112.0);
        }
        assert!((bias.of(4, true) - 1.12).abs() < 0.01);
        assert_eq!(bias.of(4, false), 1.0);
    }
}
