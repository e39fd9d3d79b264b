//! Tensors: files, number formats, and the codecs that shrink them.
//!
//! Knows values, shapes and what a tensor is for; knows nothing of clusters.
#![forbid(unsafe_code)]

pub mod allocate;
mod blocks;
mod class;
pub mod codec;
pub mod compare;
mod crop;
pub mod delta;
mod dtype;
mod error;
pub mod file;
mod float8;
mod memory;
pub mod pipeline;
pub mod stats;
mod tensor;
mod zstandard;

pub use class::Class;
pub use crop::crop;
pub use dtype::Dtype;
pub use error::Error;
pub use file::{Entry, TensorFile};
pub use memory::ContentHash;
pub use tensor::Tensor;
