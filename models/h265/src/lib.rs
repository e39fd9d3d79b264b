//! H.265 intra coding, bit-exact: a decoder and an encoder.
//!
//! Every stage is a function of its own that can be called, costed and
//! replaced alone: prediction ([`intra`]), transform ([`transform`]),
//! quantization ([`quant`]), loop filters ([`deblock`], [`sao`]). They see
//! samples and coefficients, never bits. Names follow ITU-T H.265.
#![deny(unsafe_code)]

pub mod contexts;
pub mod deblock;
pub mod dec;
pub mod enc;
mod error;
pub mod intra;
pub mod quant;
pub mod sao;
pub mod scan;
pub mod syntax;
pub mod transform;

pub use dec::{Decoded, Decoder, decode, decode_keep_going, frames};
pub use enc::{Coded, Effort, Params, encode};
pub use error::Error;
pub use trinity_coding::{Preset, Rate};
