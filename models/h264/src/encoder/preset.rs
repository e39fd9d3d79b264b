//! How hard the encoder tries: presets as plain settings.

use trinity_bits::Preset;
use trinity_numeric::tuned::Tuned;

/// The price of a bit in squared steps: flat around its high-rate value, 2 ln 2 / 12.
static LAMBDA: Tuned = Tuned::new("h264-lambda", "h264-slow", 0.13, &[0.09, 0.11, 0.15, 0.18]);
/// What is added before magnitudes are cut to whole levels: the best for Gaussian sources of two to four bits.
static ROUNDING: Tuned = Tuned::new("h264-rounding", "h264-fast", 0.36, &[0.32, 0.40, 0.44]);

/// Every constant of the encoder that was chosen by measurement.
pub static TUNED: [&Tuned; 2] = [&LAMBDA, &ROUNDING];

/// How hard to look.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// 4×4 and 8×8 modes that are coded and weighed; 1 trusts the estimate.
    pub candidates: usize,
    /// How far, as a share, a type may run above what the best one spent on the
    /// same blocks before it is dropped.
    pub early_exit_slack: f32,
    /// What is added to that where the quarters of the best one differ: there
    /// the first says little about the rest.
    pub uneven_exit_slack: f32,
    /// Types whose costs differ by less than this share are told apart by the
    /// bits they really take.
    pub exact_bits_margin: f32,
    /// Where 8×8 was given up, 4×4 is not tried.
    pub skip_four: bool,
}

/// What a preset asks for, with λ and rounding as they were chosen (`cargo xtask tune`).
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    pub effort: Effort,
    pub lambda: f32,
    pub rounding: f32,
}

impl Tuning {
    pub fn of(preset: Preset) -> Self {
        let effort = |candidates, early_exit_slack, uneven_exit_slack, exact_bits_margin| Effort {
            candidates,
            early_exit_slack,
            uneven_exit_slack,
            exact_bits_margin,
            skip_four: preset == Preset::Fast,
        };
        Self {
            effort: match preset {
                Preset::Fast => effort(1, 0.0, 0.0, 0.0),
                Preset::Medium => effort(1, 0.01, 0.0, 0.0),
                Preset::Slow => effort(2, 0.01, 0.2, 0.0),
                Preset::Best => effort(2, 0.01, 0.3, 0.01),
            },
            lambda: LAMBDA.get() as f32,
            rounding: ROUNDING.get() as f32,
        }
    }
}
