//! From coefficients to levels: a dead zone, rate–distortion optimized levels
//! one by one, or those of a sub-block together on a trellis.

pub mod dead_zone;
pub mod rdoq;
pub mod trellis;
