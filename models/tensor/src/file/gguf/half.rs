//! Scales of blocks, which every family has.

use ::half::f16;

/// The f16 at a byte of a block.
pub fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
