//! The header of a GGUF file, its tokenizer in it, taken over by a file of other
//! tensors.
//!
//! Pairs stay the bytes that they were, but for the few numbers that say how
//! tensors are stored.

use std::ops::Range;

use super::super::source::Source;
use super::cursor::{Cursor, DEFAULT_ALIGNMENT, UINT32, alignment_of};
use crate::Error;

/// The version that is written: 3, whose files differ from those of 2 in nothing that is little-endian.
const VERSION: u32 = 3;

/// Magic, version, two counts, and the pairs of a file's metadata.
#[derive(Debug, Clone)]
pub struct Header {
    bytes: Vec<u8>,
    /// Where each pair lies.
    pairs: Vec<(String, Range<usize>)>,
    /// What tensors' data is aligned to.
    alignment: u64,
    /// Numbers in place of those that the file has, or beside them.
    numbers: Vec<(String, u32)>,
}

impl Header {
    /// A header out of the first bytes of a file, up to its last pair.
    ///
    /// # Errors
    ///
    /// Where the bytes are not those of a header, or more than one.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Error> {
        let source = Source::from_bytes(bytes.clone());
        let mut cursor = Cursor::new(&source, 4);
        let version = cursor.u32()?;
        if !bytes.starts_with(b"GGUF") || !(2..=3).contains(&version) {
            return Err(cursor.unsupported(4, format!("version {version}")));
        }
        cursor.u64()?;
        let (mut pairs, mut alignment) = (Vec::new(), DEFAULT_ALIGNMENT);
        for _ in 0..cursor.u64()? {
            let start = cursor.position;
            let key = cursor.string()?;
            let kind = cursor.u32()?;
            let text = cursor.value(kind, 0)?;
            if key == "general.alignment" {
                alignment = text
                    .and_then(|text| alignment_of(&text))
                    .ok_or_else(|| cursor.malformed(start, "an alignment that is no power of two".into()))?;
            }
            pairs.push((key, start as usize..cursor.position as usize));
        }
        if cursor.position != bytes.len() as u64 {
            return Err(cursor.malformed(cursor.position, "bytes behind the last pair".into()));
        }
        Ok(Self { bytes, pairs, alignment, numbers: Vec::new() })
    }

    /// The same header with a number, in place of the one of that key where it has one.
    #[must_use]
    pub fn with_number(mut self, key: &str, value: u32) -> Self {
        self.pairs.retain(|(own, _)| own != key);
        self.numbers.push((key.to_owned(), value));
        self
    }

    /// What tensors' data is aligned to, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The bytes of a file's header, for so many tensors.
    pub fn write(&self, tensors: u64) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(((self.pairs.len() + self.numbers.len()) as u64).to_le_bytes());
        self.pairs.iter().for_each(|(_, span)| bytes.extend(&self.bytes[span.clone()]));
        for (key, value) in &self.numbers {
            bytes.extend((key.len() as u64).to_le_bytes());
            bytes.extend(key.as_bytes());
            bytes.extend(UINT32.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
        [&(key.len() as u64).to_le_bytes(), key.as_bytes(), &kind.to_le_bytes(), value].concat()
    }

    fn header() -> Vec<u8> {
        let tokens =
            [&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &1u64.to_le_bytes(), b"a", &0u64.to_le_bytes()];
        [
            &b"GGUF"[..],
            &3u32.to_le_bytes(),
            &5u64.to_le_bytes(),
            &3u64.to_le_bytes(),
            &pair("tokenizer.ggml.tokens", 9, &tokens.concat()),
            &pair("general.file_type", 4, &15u32.to_le_bytes()),
            &pair("general.alignment", 4, &64u32.to_le_bytes()),
        ]
        .concat()
    }

    #[test]
    fn pairs_are_kept_to_the_byte_and_one_number_is_another() {
        let bytes = header();
        let own = Header::parse(bytes.clone()).unwrap();
        assert_eq!((own.alignment(), own.write(5)), (64, bytes.clone()));
        let changed = own.with_number("general.file_type", 7).write(9);
        assert_eq!(changed.len(), bytes.len());
        assert_eq!(changed[8..16], 9u64.to_le_bytes());
        let again = Header::parse(changed).unwrap();
        let keys: Vec<&str> = again.pairs.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["tokenizer.ggml.tokens", "general.alignment", "general.file_type"]);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = header();
        for end in 0..bytes.len() {
            assert!(Header::parse(bytes[..end].to_vec()).is_err(), "{end}");
        }
        assert!(Header::parse([&bytes[..], &[0]].concat()).is_err());
    }
}
