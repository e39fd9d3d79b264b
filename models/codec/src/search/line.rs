//! The plan of the line format: what it may be, what it is for a tensor, and the step that meets a target.

pub mod analyse;
pub mod fit;
pub mod options;
pub mod rate;
pub mod scaled;
mod sums;
