//! Entropy coding of the line format: contexts signalled ahead, 32 interleaved rANS states, tables that never
//! adapt. [`tile`] is the truth; [`parse`] and [`emit`] are its twins for wide registers.

pub mod coder;
pub mod codes;
pub mod emit;
// Tiles are made ready for wide registers there; other machines have none.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod parse;
#[cfg(target_arch = "x86_64")]
pub(crate) mod registers;
pub mod table;
pub mod tile;
