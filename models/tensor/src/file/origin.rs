//! What a container remembers of the file that it was made of, so that one like
//! it can be made again: the header of a GGUF, with its tokenizer, and the index
//! and the small files of a model's folder.
//!
//! They are texts of the container, whose keys begin with [`ORIGIN_KEY`], deflated
//! and in letters. Knows bytes and names; what an engine makes of them is its affair.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::source::Source;
use crate::Error;

/// What the keys of these texts begin with.
pub const ORIGIN_KEY: &str = "trinity.origin.";
/// Bytes that a text may unfold to: tokenizers take some megabytes.
const MOST_BYTES: u64 = 256 << 20;
const FORMAT: &str = "origin";

/// A kind of file that tensors came out of.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// The header of a GGUF: so many bytes of its file, from the first on.
    Gguf { source: Source, bytes: u64 },
    /// The index of a sharded folder.
    Index(Vec<u8>),
}

impl Origin {
    /// Its text, under the key that it has in a container.
    pub fn text(&self) -> Result<(String, String), Error> {
        match self {
            Self::Gguf { source, bytes } => {
                Ok((OriginPart::Gguf.key(), packed(&source.bytes(FORMAT, 0, *bytes)?)?))
            }
            Self::Index(bytes) => Ok((OriginPart::Index.key(), packed(bytes)?)),
        }
    }
}

/// What is kept of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginPart {
    /// The header of a GGUF.
    Gguf,
    /// `*.safetensors.index.json`.
    Index,
    /// Small files of a folder, an object of texts by name.
    Files,
}

impl OriginPart {
    /// The key of its text.
    pub(super) fn key(self) -> String {
        let own = match self {
            Self::Gguf => "gguf",
            Self::Index => "index",
            Self::Files => "files",
        };
        format!("{ORIGIN_KEY}{own}")
    }
}

pub(super) fn malformed(problem: String) -> Error {
    Error::malformed(FORMAT, 0, problem)
}

/// Bytes as a text: deflated, in letters.
pub(super) fn packed(bytes: &[u8]) -> Result<String, Error> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.map(|bytes| letters(&bytes)).map_err(Error::io("packing a header"))
}

/// The bytes of such a text.
pub(super) fn unpacked(text: &str) -> Result<Vec<u8>, Error> {
    let packed = bytes_of(text)?;
    let mut bytes = Vec::new();
    ZlibDecoder::new(packed.as_slice())
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| malformed(error.to_string()))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(malformed(format!("more than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 without padding (RFC 4648, clause 4).
fn letters(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word =
            group.iter().enumerate().fold(0u32, |word, (at, &byte)| word | u32::from(byte) << (16 - 8 * at));
        for at in 0..=group.len() {
            text.push(char::from(LETTERS[(word >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

fn bytes_of(text: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for group in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for (at, letter) in group.iter().enumerate() {
            let value = LETTERS.iter().position(|own| own == letter);
            let value =
                value.ok_or_else(|| malformed(format!("a letter that is not of base64: {letter}")))?;
            word |= (value as u32) << (18 - 6 * at);
        }
        bytes.extend(&word.to_be_bytes()[1..][..group.len().saturating_sub(1)]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_letters_and_what_is_no_letter_is_refused() {
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 % 256) as u8).collect();
            assert_eq!(bytes_of(&letters(&bytes)).unwrap(), bytes, "{len}");
            assert_eq!(unpacked(&packed(&bytes).unwrap()).unwrap(), bytes, "{len}");
        }
        // RFC 4648, clause 10, without its padding.
        assert_eq!(letters(b"foobar"), "Zm9vYmFy");
        assert_eq!(letters(b"foob"), "Zm9vYg");
        assert!(bytes_of("Zm9!").is_err());
        let whole = packed(&[7; 4096]).unwrap();
        assert!(unpacked(&whole[..whole.len() - 4]).is_err());
    }
}
