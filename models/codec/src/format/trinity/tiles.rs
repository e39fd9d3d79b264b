//! Tiles: the independent pieces of a matrix, one coder for each way that
//! symbols become bits. [`code`] picks the one that a plan names.

pub mod adaptive;
pub mod binary;
pub mod code;
pub mod coded;
pub mod raw;
pub mod static_tables;
