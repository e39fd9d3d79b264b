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
    /// Whether 8×8 units are tried as four 4×4.
    pub nxn: bool,
    /// Modes looked at closely besides the most probable, by block size 4 to 32.
    pub close_modes: [usize; 4],
    /// Candidates of these coded for real, each with its transform or without.
    pub finalists: [usize; 4],
    /// Whether chroma tries other modes than luma's.
    pub chroma_modes: bool,
}

impl Effort {
    pub fn of(preset: Preset) -> Self {
        let best = Self {
            quick: false,
            hadamard_sizes: false,
            dead_zone_above: 1.0,
            lambda: LAMBDA.get() as f32,
            nxn: true,
            close_modes: [2, 3, 2, 1],
            finalists: [2, 3, 2, 2],
            chroma_modes: true,
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
