//! Stages of the line format, in integers that a GPU and gates repeat to the bit: transform, prediction
//! and the trellis on the way in, reconstruction on the way out.

pub mod matrix;
pub mod quantize;
pub mod quantizer;
pub mod reconstruct;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
mod trellis;
