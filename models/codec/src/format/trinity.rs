//! The Trinity format (`FORMAT.md` beside this file's folder): contexts adapt row by row, any chain of stages.

pub mod bytes;
pub mod decoder;
pub mod lossless;
pub mod paper;
pub mod pictures;
pub mod plan;
pub mod stream;
pub mod tiles;
