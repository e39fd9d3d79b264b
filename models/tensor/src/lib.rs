//! Tensors: files, number formats, and the codecs that shrink them.
//!
//! Knows values, shapes and what a tensor is for; knows nothing of clusters.
//!
//! ```
//! use trinity_tensor::codec::{Rate, codec};
//! use trinity_tensor::{Class, Dtype, Tensor};
//!
//! let values: Vec<u8> = (0..4096).flat_map(|at| ((at * 37 % 101) as f32).to_le_bytes()).collect();
//! let tensor = Tensor::new("w", Class::Weight, Dtype::F32, vec![64, 64], values)?;
//! let codec = codec("uniform+ac")?;
//! let encoded = codec.encode(&tensor, Rate::Bits(3.0))?;
//! assert!(encoded.bits_per_value() <= 3.0);
//! assert_eq!(codec.decode(&encoded)?.shape(), [64, 64]);
//! # Ok::<(), trinity_tensor::Error>(())
//! ```
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
pub mod export;
pub mod file;
mod float8;
mod memory;
pub mod pipeline;
pub mod stats;
mod sums;
mod tensor;
mod zstandard;

pub use class::Class;
pub use crop::crop;
pub use dtype::Dtype;
pub use error::{Error, LimitingFactor};
pub use file::{Entry, TensorFile};
pub use memory::ContentHash;
pub use tensor::Tensor;
