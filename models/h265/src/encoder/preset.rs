//! How hard the encoder tries: presets as plain settings.

use crate::encoder::tuned::LAMBDA;
use trinity_bits::Preset;

/// What a preset switches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Sizes and modes from source neighbours, nothing counted.
    pub quick: bool,
    /// The quick way decides sizes, too, by Hadamard sums, not by estimated bits.
    pub hadamard_sizes: bool,
    /// The quick way prices levels only where fewer than this share are not zero.
    pub dead_zone_above: f32,
    /// The price of a bit in squared quantization steps.
    pub lambda: f32,
    /// Coding-block sizes tried.
    pub max_cu_log2: u32,
    pub min_cu_log2: u32,
    /// Whether 8×8 units are tried as four 4×4.
    pub nxn: bool,
    /// Modes looked at closely besides the most probable, by block size 4 to 32.
    pub close_modes: [usize; 4],
    /// Candidates of these coded for real, each with its transform or without.
    pub finalists: [usize; 4],
    /// Whether the levels of a sub-block are also chosen together, once mode
    /// and transform are.
    pub joint: bool,
    /// The smallest blocks, by log2, this is done for.
    pub joint_min_log2: u32,
    /// Distance of the angles looked at first; a power of two.
    pub angle_step: usize,
    /// Whether chroma tries other modes than luma's.
    pub chroma_modes: bool,
    /// Whether every block is also tried without its transform.
    pub transform_skip: bool,
    /// How unsure an estimate of the bits must be, relative to them, for a block to
    /// be tried both with and without its transform.
    pub skip_margin: f32,
    /// How often a transform block may be split in four.
    pub transform_depth: u32,
}

impl Effort {
    /// The settings of a preset.
    pub fn of(preset: Preset) -> Self {
        let best = Self {
            quick: false,
            hadamard_sizes: false,
            dead_zone_above: 1.0,
            lambda: LAMBDA.get() as f32,
            max_cu_log2: 5,
            min_cu_log2: 3,
            nxn: true,
            close_modes: [2, 3, 2, 1],
            finalists: [2, 3, 2, 2],
            joint: true,
            joint_min_log2: 3,
            angle_step: 8,
            chroma_modes: true,
            transform_skip: true,
            skip_margin: 0.02,
            transform_depth: 0,
        };
        let slow = Self { close_modes: [1; 4], finalists: [1; 4], ..best };
        let medium = Self { quick: true, chroma_modes: false, ..slow };
        match preset {
            Preset::Best => best,
            Preset::Slow => slow,
            Preset::Medium => medium,
            Preset::Fast => Self { dead_zone_above: 0.5, nxn: false, hadamard_sizes: true, ..medium },
        }
    }
}
