//! Constants that were chosen by measurement; `cargo xtask tune NAME` prints what other values of one give on
//! captured weights.

use trinity_numeric::tuned::Tuned;

/// The price of a bit in squared quantization steps.
pub static LAMBDA: Tuned = Tuned::new("h265-lambda", "h265-slow", 0.10, &[0.07, 0.085, 0.115, 0.14]);
/// What is added before magnitudes are cut to whole levels: a level more also costs more bits.
pub static DEAD_ZONE: Tuned = Tuned::new("h265-dead-zone", "h265-fast", 0.45, &[0.40, 0.42, 0.48]);
/// What a hidden sign saves in bits, the error it causes taken off.
pub static HIDDEN_SIGN: Tuned = Tuned::new("h265-hidden-sign", "h265-slow", 0.75, &[0.6, 0.9]);
/// By what the shares are multiplied that the rest of a block may turn out to save: the least at which time is saved
/// and hardly a bit lost.
pub static EARLY_EXIT: Tuned = Tuned::new("h265-early-exit", "h265-slow", 1.0, &[0.5, 2.0]);

pub static TUNED: [&Tuned; 4] = [&LAMBDA, &DEAD_ZONE, &HIDDEN_SIGN, &EARLY_EXIT];
