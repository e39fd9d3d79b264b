//! How a stream begins, and how much it may stand for.
//!
//! ```text
//! magic  rows  cols | header | tile lengths | tiles
//! ```
//! Tiles are independent and are coded in parallel; the bytes do not depend
//! on how many threads there are.

use crate::Error;
use crate::format::trinity::bytes::Reader;

/// First bytes of every stream; a byte of version and kind follows.
pub const MAGIC: [u8; 2] = *b"TC";
/// The version that this code writes and reads.
const VERSION: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A matrix of values through the chain of stages.
    Matrix = 0,
    /// A matrix of words, exact.
    Words = 1,
    /// A picture whose planes are streams of their own.
    Picture = 2,
    /// Aligned values through H.264.
    Paper = 3,
    /// A picture as above, behind a checksum.
    CheckedPicture = 4,
}

pub fn put_magic(out: &mut Vec<u8>, kind: Kind) {
    out.extend_from_slice(&MAGIC);
    out.push(VERSION << 4 | kind as u8);
}

/// Bytes of magic and kind.
pub const HEAD: usize = 3;

pub fn read_magic(reader: &mut Reader<'_>) -> Result<Kind, Error> {
    let [t, c, version] = reader.array("magic")?;
    if [t, c] != MAGIC {
        return Err(Error::NotTrinity { what: format!("it begins with {t:#04x} {c:#04x}") });
    }
    let (version, kind) = (version >> 4, version & 15);
    if version != VERSION {
        return Err(Error::NotTrinity { what: format!("version {version}, this decoder knows {VERSION}") });
    }
    match kind {
        0 => Ok(Kind::Matrix),
        1 => Ok(Kind::Words),
        2 => Ok(Kind::Picture),
        3 => Ok(Kind::Paper),
        4 => Ok(Kind::CheckedPicture),
        _ => Err(Error::NotTrinity { what: format!("kind {kind} is unknown") }),
    }
}

/// Values that a byte of stream may stand for at most: beyond this a header
/// announces more than its stream can hold. Generous: a tile spends at least
/// 1/1500 of a bit on every value, and constants are padded with zeros.
pub const MAX_VALUES_PER_BYTE: u64 = 1 << 14;
