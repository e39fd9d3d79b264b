//! What stands before a slab's stream under the names of the line-rate codec: whose stream it is, and the exponent that
//! normalizes its values.
//!
//! Two bytes, little-endian: bits 0 to 11 hold the exponent in two's complement, bits 12 to 15 a tag.
//!
//! | tag | stream |
//! |---|---|
//! | 1 | of the line-rate codec (`models/codec/src/format/line/FORMAT.md`) |
//! | 2 | of `uniform+ac` |
//! | 0, 15 | containers before version 3, the exponent alone: the Trinity codec's, which begins with `TC`, or the line-rate codec's |
//! | 3, 4 | containers before version 3, with 0x4000 added to the exponent: of `uniform+ac` |
//!
//! Exponents of numbers in any format lie within ±1100, so no old slab has another's tag. Knows no codec.

use super::lossy::HEADER;
use crate::Error;

/// Whose stream a slab holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Line,
    Uniform,
    /// Not written since 0.1.0.
    Trinity,
}

/// The line-rate codec's tag.
pub(crate) const LINE: u16 = 1;
/// That of `uniform+ac`.
pub(crate) const UNIFORM: u16 = 2;
const EXPONENT_BITS: u32 = 12;
/// First bytes of the Trinity codec's streams.
const TRINITY_MAGIC: &[u8] = b"TC";
/// What marked `uniform+ac` before there were tags.
const MARK: i16 = 0x4000;

/// A slab that is not all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slab<'a> {
    pub kind: Kind,
    pub exponent: i16,
    pub stream: &'a [u8],
}

impl<'a> Slab<'a> {
    /// The slab that bytes are; nothing for zeros, which have none.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Option<Self>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (header, stream) =
            bytes.split_first_chunk::<HEADER>().ok_or_else(|| Error::corrupt(0, "the header is cut"))?;
        let header = u16::from_le_bytes(*header);
        // The top bit of the exponent is its sign.
        let low = (header << (16 - EXPONENT_BITS)) as i16 >> (16 - EXPONENT_BITS);
        let whole = header as i16;
        let (kind, exponent) = match header >> EXPONENT_BITS {
            LINE => (Kind::Line, low),
            UNIFORM => (Kind::Uniform, low),
            0 | 15 if stream.starts_with(TRINITY_MAGIC) => (Kind::Trinity, whole),
            0 | 15 => (Kind::Line, whole),
            3 | 4 => (Kind::Uniform, whole - MARK),
            tag => {
                let known = "1 is the line-rate codec's, 2 that of uniform+ac";
                return Err(Error::corrupt(
                    0,
                    format!("no stream of this version has the tag {tag}: {known}"),
                ));
            }
        };
        Ok(Some(Self { kind, exponent, stream }))
    }
}

/// The bytes before a stream.
pub(crate) fn tagged(tag: u16, exponent: i16) -> [u8; HEADER] {
    (tag << EXPONENT_BITS | exponent as u16 & ((1 << EXPONENT_BITS) - 1)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(header: [u8; 2], stream: &[u8]) -> Result<(Kind, i16), Error> {
        let bytes = [&header[..], stream].concat();
        Slab::open(&bytes).map(|slab| slab.map(|slab| (slab.kind, slab.exponent)).unwrap())
    }

    /// From the least subnormal of double precision to its largest number.
    #[test]
    fn slabs_of_today_and_of_before_are_told_apart_at_every_exponent() {
        for exponent in -1100..=1100i16 {
            assert_eq!(opened(tagged(LINE, exponent), b"TL").unwrap(), (Kind::Line, exponent));
            assert_eq!(opened(tagged(UNIFORM, exponent), b"TL").unwrap(), (Kind::Uniform, exponent));
            let before = exponent.to_le_bytes();
            assert_eq!(opened(before, b"TL").unwrap(), (Kind::Line, exponent));
            assert_eq!(opened(before, b"TC").unwrap(), (Kind::Trinity, exponent));
            let marked = (exponent + 0x4000).to_le_bytes();
            assert_eq!(opened(marked, b"TC").unwrap(), (Kind::Uniform, exponent));
        }
    }

    #[test]
    fn a_tag_that_nobody_writes_is_refused_by_its_number() {
        for tag in 5..15 {
            let error = opened(tagged(tag, -3), b"TL").unwrap_err().to_string();
            assert!(error.contains(&format!("the tag {tag}")), "{error}");
        }
        assert!(Slab::open(&[1]).is_err());
        assert_eq!(Slab::open(&[]).unwrap(), None);
    }
}
