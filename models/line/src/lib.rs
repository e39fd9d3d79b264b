//! The line-rate codec: one stream, at home on a CPU, on a GPU and in silicon.
//!
//! ```
//! use trinity_line::{Effort, Settings, Target, decode, encode_to};
//! let values: Vec<f32> = (0..64 * 96).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
//! let bytes = encode_to(&values, 64, 96, Target::Bits(4.0), Effort::Best, &Settings::default())?;
//! assert!(8 * bytes.len() <= 4 * values.len());
//! assert_eq!(decode(&bytes)?.2.len(), values.len());
//! # Ok::<(), trinity_line::Error>(())
//! ```
//!
//! The key decision: everything a value's parsing needs is stated ahead, in the
//! header (column classes, tables, matrices) or at the start of its tile (row
//! classes). No symbol waits for another value, so 32 lanes run side by side, and
//! the trellis search sees exact rates. A [`Plan`] is small and is chosen once
//! ([`choose`]); coding under a plan ([`encode`]) is integer arithmetic that gives
//! the same bytes everywhere.
//!
//! Knows matrices of single-precision values; knows no files and no tensors'
//! names. The bitstream is described in `FORMAT.md` beside this crate.
#![deny(unsafe_code)]

mod analyse;
mod coder;
mod codes;
mod device;
mod emit;
mod error;
mod fit;
mod matrix;
mod options;
// Tiles are made ready for wide registers there; other machines have none.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
mod parse;
mod plan;
mod quantize;
mod rate;
mod reconstruct;
mod scaled;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
mod search;
mod simd;
mod stream;
mod table;
mod tile;

pub use analyse::choose;
pub use coder::{Coder, Costs, LIMIT, TRANSFORM_LIMIT, UNITS, next_state, units};
pub use device::{Cpu, Device};
pub use error::Error;
pub use matrix::{ONE, Synthesis, WHOLE, analyse_whole, whole_analysis};
pub use options::{Effort, Family, Held, Options, TILE_VALUES};
pub use parse::parse_with;
pub use plan::{
    BASE_CLASSES, CLASSES, MAX_PAIRS, MAX_TILE, Plan, Tile, Transform, UNIT_CLASS, check_density,
};
pub use quantize::{Analysis, Quantizer, class_weight, quantize, quarter_log2, targets};
pub use rate::{Target, encode_on, encode_to, encode_under};
pub use reconstruct::{Bf16, Number, Sample, reconstruct};
pub use scaled::{Scale, decode_scaled, encode_scaled};
pub use simd::Width;
pub use stream::{LAMBDA, Settings, Stream, decode, decode_bf16, encode, encode_tile, encode_with};
pub use table::{ESCAPE, MAGNITUDES, SCALE, SCALE_BITS, Slot, Table};
pub use tile::{Exception, LEAST_STATE, MAX_GAIN, Parsed, TAIL, parse, steps, write};
pub use trinity_coding::reflections::Reflections;
