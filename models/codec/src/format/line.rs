//! The line format (`FORMAT.md` beside this file's folder): everything that parsing needs is signalled ahead, so that
//! 32 lanes run side by side on a core, on a GPU and in gates.

pub mod device;
pub mod error;
pub mod numbers;
pub mod plan;
pub mod stream;
pub mod values;
