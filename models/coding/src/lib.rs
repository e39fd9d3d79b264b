//! Bits and frames: what every codec of Trinity shares.
//!
//! Bit reader and writer, Exp-Golomb codes, the arithmetic engine of both
//! standards ([`cabac`]), NAL units and Annex B, [`Frame`], the only thing a
//! video codec sees, and [`Rate`] and [`Preset`], what one may be asked for. Knows no standard's syntax:
//! whatever H.264 and H.265 do differently lives in their own crates.
#![forbid(unsafe_code)]

mod bits;
pub mod cabac;
mod error;
mod frame;
pub mod huffman;
pub mod nal;
mod request;
pub mod vui;

pub use bits::{BitReader, BitWriter};
pub use error::Error;
pub use frame::{Chroma, Colour, Frame, Plane};
pub use request::{Preset, Rate};
