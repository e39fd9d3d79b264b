//! Bit-exact H.264 intra coding: a decoder and an encoder.
//!
//! One file for each thing the standard names: [`intra`] prediction,
//! [`transform`] and [`scaling`], [`entropy`] (CAVLC and CABAC), [`deblock`].
//! The stages are plain functions over blocks and can be called one at a time;
//! [`decode`] and [`encode`] chain them. Knows frames of samples; knows nothing
//! of tensors.
#![deny(unsafe_code)]

pub mod blocks;
pub mod deblock;
mod decoder;
mod encoder;
pub mod entropy;
mod error;
pub mod intra;
pub mod macroblock;
pub mod parameter_sets;
pub mod picture;
pub mod reconstruct;
pub mod scaling;
pub mod slice_header;
pub mod tables;
pub mod transform;

pub use decoder::{
    BitUse, Decoder, Frames, Inspection, SliceSummary, decode, decode_keep_going, frames, inspect,
};
pub use encoder::{Coded, Entropy, Params, encode};
pub use error::{Error, Fault};
pub use trinity_coding::{Preset, Rate};
