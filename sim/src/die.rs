//! A GPU given by its parts, and what follows from them: peak rates, memory,
//! links, area, the clock that its power allows, and the time of a kernel.
//!
//! A GPU may be given by totals instead, as a datasheet prints them; then none
//! of this is used. Knows counts, sizes, rates a clock; areas and watts are the
//! silicon model's. Knows nothing of transformers or of the network.

mod kernel;
mod marginal;
mod parts;
mod picture;
mod roofline;

pub use kernel::{Kernel, Level};
pub use marginal::{Marginal, marginals};
pub use parts::{Die, MatrixRates};
pub(crate) use picture::lines;
pub use picture::{DiePicture, KernelLevel, picture};
pub use roofline::Roofline;

#[cfg(test)]
pub(crate) mod tests;
