//! H.265 intra coding, bit-exact: a decoder and an encoder.
//!
//! Every stage is a function of its own that can be called, costed and
//! replaced alone: prediction ([`intra`]), transform ([`transform`]),
//! quantization ([`quant`]), loop filters ([`deblock`], [`sao`]). They see
//! samples and coefficients, never bits. [`syntax`] reads and writes parameter
//! sets, [`entropy`] holds contexts and residual coding. Names follow ITU-T
//! H.265.
//!
//! ```
//! use trinity_h265::{Params, Rate, decode, encode};
//! use trinity_bits::{Chroma, Frame};
//! let frame = Frame::filled(64, 48, Chroma::C400, 8, 120);
//! let coded = encode(&[frame], &Params { rate: Rate::Qp(30.0), ..Params::default() })?;
//! assert_eq!(decode(&coded.stream)?, coded.recon);
//! # Ok::<(), trinity_h265::Error>(())
//! ```
#![deny(unsafe_code)]

mod deblock;
mod decoder;
mod encoder;
pub mod entropy;
pub mod intra;
pub mod quant;
mod sao;
pub mod syntax;
pub mod transform;

pub use decoder::{BitCounts, Decoded, Decoder, Frames, HashCheck, decode, decode_keep_going, frames};
pub use encoder::{Params, TUNED, encode};
pub use trinity_bits::{CodecError as Error, Coded, Preset, Rate};
