//! Bit-exact H.264 intra coding: a decoder and an encoder.
//!
//! One file for each thing the standard names: intra prediction, transform,
//! quantization, entropy coding (CAVLC and CABAC), deblocking. The stages are
//! plain functions over blocks; [`decode`] and [`encode`] chain them. Knows
//! frames of samples; knows nothing of tensors. Names follow ITU-T H.264.
//!
//! ```
//! use trinity_h264::{Params, Rate, decode, encode};
//! use trinity_bits::{Chroma, Frame};
//! let frame = Frame::filled(64, 48, Chroma::C400, 8, 120);
//! let coded = encode(&[frame], &Params { rate: Rate::Qp(30.0), ..Params::default() })?;
//! assert_eq!(decode(&coded.stream)?, coded.recon);
//! # Ok::<(), trinity_h264::Error>(())
//! ```
#![deny(unsafe_code)]

mod blocks;
mod deblock;
mod decoder;
mod encoder;
mod entropy;
mod intra;
mod macroblock;
mod picture;
mod quant;
mod reconstruct;
pub mod syntax;
mod tables;
mod transform;

pub use decoder::{
    BitUse, Decoder, Frames, Inspection, SliceSummary, decode, decode_keep_going, frames, inspect,
};
pub use encoder::{Entropy, Params, TUNED, encode};
pub use trinity_bits::{CodecError as Error, Coded, Preset, Rate};
