//! High-level syntax (H.264 clauses 7.3.1 to 7.3.3): parameter sets and slice
//! headers, read bit for bit.

pub mod parameter_sets;
pub mod slice_header;
