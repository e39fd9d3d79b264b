//! Tensor codecs: a tensor goes in, a target is met, a tensor comes out.
//!
//! Every codec stands behind [`TensorCodec`] and is found by name in the
//! registry ([`codec`]). Most are a [`MatrixCodec`] (bytes for a matrix of
//! finite values at one setting of a knob) under [`Lossy`], which normalizes
//! values, turns the knob until the target is met, and rounds to the tensor's
//! number format. All bytes count: scales, headers, tables.

pub mod ablate;
mod align;
mod arith;
mod basis;
mod cache;
mod contract;
mod device;
mod entropy;
mod ffmpeg;
mod frame_codec;
mod grouped;
mod k_quants;
mod layer;
mod line;
mod lossless;
mod lossy;
mod metrics;
mod mix;
mod mx;
mod precondition;
mod rate;
mod registry;
mod residual;
mod rungs;
mod scalar;
mod symbols;
pub mod table;
mod tag;
mod tiling;
mod trinity;
mod uniform;
mod video;

pub use basis::Basis;
pub use cache::CACHES;
pub use contract::{Encoded, TensorCodec};
pub use device::{StreamCounts, decoded_counts, encoded_counts, use_device};
pub use entropy::{SYMBOL_CODERS, SymbolCoder};
pub use grouped::{Grouped, Method, bits_per_value as grouped_bits_per_value, width_within};
pub use k_quants::KQuant;
pub use line::{device_of, has_kernels, line_stream};
pub use lossy::{Lossy, Matrix, MatrixCodec};
pub use metrics::{MetricSums, Metrics};
pub use mx::{Element, MX_BLOCK, MxBlock};
pub(crate) use precondition::PcaLearner;
pub use precondition::{PcaBasis, Precondition, Preconditioned};
pub(crate) use registry::decoder;
pub use registry::{CALIBRATED, PAPER_BASELINES, calibrated_rate, codec, file_names, is_external, names};
pub use trinity_bits::Rate;
pub use trinity_codec::line::Device;
pub use trinity_codec::{Inputs, Moments, StageCost};

pub use scalar::{NF4_BLOCK, NF4_LEVELS};
pub use tiling::{Limits, Tiling};
pub use uniform::order0;

/// A hash of everything the codecs are made of: results of another version are
/// not results of this one.
pub const VERSION: &str = env!("TRINITY_CODECS");
