//! The stages of the chain, each a function that can be left out: a change of
//! basis, prediction, transform, quantization. None knows how symbols become
//! bits.

pub mod basis;
pub mod combine;
pub mod feedback;
pub mod intra;
pub mod klt;
pub mod line;
pub mod means;
pub mod precondition;
pub mod row_scales;
pub mod signalled;
pub mod transform;
pub mod trellis;
