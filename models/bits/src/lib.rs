//! Bits and frames: what every codec of Trinity shares.
//!
//! Bit reader and writer, Exp-Golomb codes, the arithmetic engine of both
//! standards ([`cabac`]), a range coder for streams of our own ([`range`]), codes of
//! any order ([`golomb`]), NAL units and Annex B ([`nal`]); [`Frame`], the only thing a video codec sees;
//! [`Rate`] and [`Preset`], what one may be asked for, [`Coded`], what it
//! returns, and [`CodecError`], how it refuses; the loop of every rate search
//! ([`search`]). Knows no standard's syntax: whatever H.264 and H.265 do
//! differently lives in their own crates.
//!
//! ```
//! use trinity_bits::{BitReader, BitWriter};
//! let mut writer = BitWriter::new();
//! writer.ue(42);
//! writer.trailing_bits();
//! assert_eq!(BitReader::new(&writer.into_bytes()).ue(), Ok(42));
//! ```
#![deny(unsafe_code)]

mod bits;
pub mod cabac;
mod codec_error;
mod coded;
mod error;
mod frame;
pub mod golomb;
pub mod huffman;
pub mod intra_modes;
pub mod nal;
pub mod range;
mod request;
pub mod search;
pub mod vui;

pub use bits::{BitReader, BitWriter};
pub use codec_error::{BitstreamError, CodecError, invalid};
pub use coded::{Coded, check_frames, mean_squared_error, squared_error};
pub use error::Error;
pub use frame::{Chroma, Colour, Frame, Plane};
pub use request::{Preset, Rate};
pub use vui::Presentation;
