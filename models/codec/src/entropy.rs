//! From symbols to bits and back: range asymmetric numeral systems with the
//! statistics and contexts that feed them, and a binary arithmetic coder.

pub mod binary;
pub mod lanes;
pub mod line;
pub mod model;
pub mod rans;
pub mod scales;
