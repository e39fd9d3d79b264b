//! Fields of a GGUF file, front to back: numbers, strings, typed values.
//!
//! Knows how a value is written; what it says is for who reads it.

use super::super::source::Source;
use crate::Error;

pub const FORMAT: &str = "GGUF";
/// What data is aligned to where a file says nothing.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// Arrays of arrays deeper than this are refused; real files nest once.
const MAX_NESTING: usize = 4;
/// Metadata strings longer than this are skipped, not kept (tokenizers).
const MAX_TEXT: u64 = 4096;

/// The metadata types that readers treat apart.
pub const UINT32: u32 = 4;
pub const TEXT: u32 = 8;
pub const ARRAY: u32 = 9;

/// What tensors' data is aligned to, as a file states it; nothing where that cannot be.
pub fn alignment_of(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&value: &u64| value.is_power_of_two() && value <= 1 << 20)
}

/// Reads little-endian fields front to back through a small buffer.
pub struct Cursor<'a> {
    source: &'a Source,
    pub position: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(source: &'a Source, position: u64) -> Self {
        Self { source, position, buffer: Vec::new(), buffer_start: 0 }
    }

    pub fn malformed(&self, offset: u64, problem: String) -> Error {
        Error::Malformed { format: FORMAT, offset, problem }
    }

    pub fn unsupported(&self, offset: u64, what: String) -> Error {
        Error::Unsupported { format: FORMAT, offset, what }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let left = self.source.len().saturating_sub(self.position);
        if left < N as u64 {
            return Err(self.malformed(self.position, "the file ends inside its header".into()));
        }
        let start = self.position.wrapping_sub(self.buffer_start);
        if self.position < self.buffer_start || start + N as u64 > self.buffer.len() as u64 {
            self.buffer.resize(left.min(1 << 16) as usize, 0);
            self.source.read_at(self.position, &mut self.buffer)?;
            self.buffer_start = self.position;
        }
        let start = (self.position - self.buffer_start) as usize;
        self.position += N as u64;
        Ok(std::array::from_fn(|i| self.buffer[start + i]))
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        let end = self.position.checked_add(bytes).filter(|&end| end <= self.source.len());
        self.position = end.ok_or_else(|| {
            self.malformed(self.position, format!("{bytes} bytes announced past the file's end"))
        })?;
        Ok(())
    }

    pub fn string(&mut self) -> Result<String, Error> {
        let len = self.u64()?;
        let bytes = self.source.bytes(FORMAT, self.position, len)?;
        let at = self.position;
        self.position += len;
        String::from_utf8(bytes).map_err(|_| self.malformed(at, "a string that is not UTF-8".into()))
    }

    /// A metadata value as text; `None` for arrays and long strings.
    pub fn value(&mut self, kind: u32, depth: usize) -> Result<Option<String>, Error> {
        let at = self.position;
        Ok(Some(match kind {
            0 => self.array::<1>()?[0].to_string(),
            1 => (self.array::<1>()?[0] as i8).to_string(),
            2 => u16::from_le_bytes(self.array()?).to_string(),
            3 => i16::from_le_bytes(self.array()?).to_string(),
            4 => self.u32()?.to_string(),
            5 => i32::from_le_bytes(self.array()?).to_string(),
            6 => f32::from_le_bytes(self.array()?).to_string(),
            7 => (self.array::<1>()?[0] != 0).to_string(),
            8 => {
                let len = self.u64()?;
                if len > MAX_TEXT {
                    self.skip(len)?;
                    return Ok(None);
                }
                self.position -= 8;
                self.string()?
            }
            9 => {
                self.skip_array(depth)?;
                return Ok(None);
            }
            10 => self.u64()?.to_string(),
            11 => i64::from_le_bytes(self.array()?).to_string(),
            12 => f64::from_le_bytes(self.array()?).to_string(),
            _ => return Err(self.malformed(at, format!("metadata of unknown type {kind}"))),
        }))
    }

    fn skip_array(&mut self, depth: usize) -> Result<(), Error> {
        let at = self.position;
        if depth >= MAX_NESTING {
            return Err(self.malformed(at, format!("arrays nested more than {MAX_NESTING} deep")));
        }
        let kind = self.u32()?;
        let len = self.u64()?;
        let fixed = match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            8 | 9 => None,
            _ => return Err(self.malformed(at, format!("an array of unknown type {kind}"))),
        };
        if let Some(width) = fixed {
            let bytes = len
                .checked_mul(width)
                .ok_or_else(|| self.malformed(at, format!("an array of {len} values")))?;
            return self.skip(bytes);
        }
        for _ in 0..len {
            if kind == 8 {
                let bytes = self.u64()?;
                self.skip(bytes)?;
            } else {
                self.skip_array(depth + 1)?;
            }
        }
        Ok(())
    }
}
