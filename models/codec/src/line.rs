//! The line-rate codec: one stream, at home on a CPU, on a GPU and in silicon.
//!
//! ```
//! use trinity_codec::line::{Options, Settings, Rate, decode, encode_under};
//! let values: Vec<f32> = (0..64 * 96).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
//! let bytes = encode_under(&values, 64, 96, Rate::Bits(4.0), &Options::default(), &Settings::default())?;
//! assert!(8 * bytes.len() <= 4 * values.len());
//! assert_eq!(decode(&bytes)?.2.len(), values.len());
//! # Ok::<(), trinity_codec::line::Error>(())
//! ```
//!
//! The key decision: everything a value's parsing needs is signalled ahead, in the
//! header (column classes, tables, matrices) or at the start of its tile (row
//! classes). No symbol waits for another value, so 32 lanes run side by side, and
//! the trellis search sees exact rates. A [`Plan`] is small and is chosen once
//! ([`choose`]); coding under a plan ([`encode`]) is integer arithmetic that gives
//! the same bytes everywhere.
//!
//! Knows matrices of single-precision values; knows no files and no tensors'
//! names. The bitstream is described in `src/format/line/FORMAT.md`.
pub use crate::entropy::line::coder::{Coder, LIMIT, UNITS, units};
pub use crate::entropy::line::parse::parse_with;
pub use crate::entropy::line::table::{ESCAPE, MAGNITUDES, SCALE, SCALE_BITS, Slot, Table};
pub use crate::entropy::line::tile::{Exception, Parsed, TAIL, parse, steps, write};
pub use crate::format::line::device::{Cpu, Device};
pub use crate::format::line::error::Error;
pub use crate::format::line::numbers;
pub use crate::format::line::plan::{CLASSES, MAX_CLASS, Plan, Tile, Transform, check_density};
pub use crate::format::line::stream::{
    CodedTile, LAMBDA, Settings, Stream, decode, encode, encode_tile, encode_with, in_turn,
};
pub use crate::format::line::values::Values;
pub use crate::search::line::analyse::choose;
pub use crate::search::line::options::{Effort, Family, Fixed, Options, TILE_VALUES};
pub use crate::search::line::rate::{encode_observed, encode_on, encode_under, planned};
pub use crate::search::line::scaled::{Scale, decode_scaled, encode_scaled};
pub use crate::stage::line::matrix::{ONE, Synthesis, WHOLE, analyse_whole, whole_analysis};
pub use crate::stage::line::quantize::{quantize, quarter_log2, targets};
pub use crate::stage::line::quantizer::{Analysis, Quantizer, class_weight};
pub use crate::stage::line::reconstruct::{Bf16, Number, Sample, reconstruct};
pub use trinity_bits::Rate;
pub use trinity_numeric::reflections::Reflections;
pub use trinity_numeric::simd::Width;
