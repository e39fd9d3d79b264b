//! GGUF, versions 2 and 3: typed metadata, tensor descriptions, aligned data.
//!
//! Block formats ([`blocks`]) are presented as f32; their own name stays visible
//! as [`Entry::stored`]. Arrays, such as a tokenizer's vocabulary, are found
//! here and read when asked for ([`Arrays`]).

mod blocks;
mod half;
mod i_quants;
mod k_quants;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use blocks::Block;
use blocks::Blocks;

use super::contents::{List, Lists, TensorFile};
use super::entry::{Entry, count};
use super::source::{Plain, Source};
use crate::{Dtype, Error};

const FORMAT: &str = "GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
/// Arrays of arrays deeper than this are refused; real files nest once.
const MAX_NESTING: usize = 4;
/// Metadata strings longer than this are skipped, not kept (tokenizers).
const MAX_TEXT: u64 = 4096;

pub(super) fn parse(source: &Source) -> Result<TensorFile, Error> {
    let mut cursor = Cursor::new(source, 4);
    let version = cursor.u32()?;
    if version == 0x0300_0000 || version == 0x0200_0000 {
        return Err(cursor.unsupported(4, "big-endian GGUF".into()));
    }
    if !(2..=3).contains(&version) {
        return Err(cursor.unsupported(4, format!("version {version}")));
    }
    let tensor_count = cursor.u64()?;
    let pair_count = cursor.u64()?;
    let mut metadata = BTreeMap::new();
    let mut arrays = BTreeMap::new();
    let mut alignment = DEFAULT_ALIGNMENT;
    for _ in 0..pair_count {
        let key = cursor.string()?;
        let at = cursor.position;
        let kind = cursor.u32()?;
        let value_at = cursor.position;
        if kind == ARRAY {
            arrays.insert(key.clone(), value_at);
        }
        if let Some(text) = cursor.value(kind, 0)? {
            if key == "general.alignment" {
                alignment = text
                    .parse()
                    .ok()
                    .filter(|&value: &u64| value.is_power_of_two() && value <= 1 << 20)
                    .ok_or_else(|| cursor.malformed(at, format!("alignment {text}")))?;
            }
            metadata.insert(key, text);
        }
    }
    let mut infos = Vec::new();
    for at in 0..tensor_count {
        infos.push(cursor.info().map_err(|error| within_info(error, at, tensor_count))?);
    }
    let data_start = cursor.position.next_multiple_of(alignment);
    let entries = place(source, infos, data_start, alignment)?;
    let mut file = TensorFile::new(FORMAT, entries, metadata);
    file.lists = Some(Arc::new(Arrays { source: source.clone(), arrays }));
    Ok(file)
}

/// What is wrong with a tensor's description may be that there is none: the
/// count says more than the file has.
fn within_info(error: Error, at: u64, announced: u64) -> Error {
    match error {
        Error::Malformed { format, offset, problem } => {
            let place = format!("of {announced} tensors announced, number {} cannot be read", at + 1);
            Error::Malformed { format, offset, problem: format!("{problem}: {place}") }
        }
        other => other,
    }
}

/// Where the arrays of a file's metadata are.
#[derive(Debug)]
struct Arrays {
    source: Source,
    arrays: BTreeMap<String, u64>,
}

impl Lists for Arrays {
    fn get(&self, key: &str) -> Result<Option<List>, Error> {
        let Some(&at) = self.arrays.get(key) else { return Ok(None) };
        let mut cursor = Cursor::new(&self.source, at);
        let kind = cursor.u32()?;
        let len = cursor.u64()?;
        // Parsing the header walked over the array: it has the items it says.
        if kind == TEXT {
            return (0..len).map(|_| cursor.string()).collect::<Result<_, _>>().map(|l| Some(List::Texts(l)));
        }
        if kind == ARRAY {
            return Err(cursor.unsupported(at, format!("`{key}`, an array of arrays,")));
        }
        let number = |cursor: &mut Cursor<'_>| {
            let text = cursor.value(kind, 0)?.unwrap_or_default();
            let boolean = f64::from(u8::from(text == "true"));
            Ok(text.parse().unwrap_or(boolean))
        };
        (0..len).map(|_| number(&mut cursor)).collect::<Result<_, _>>().map(|l| Some(List::Numbers(l)))
    }
}

/// The metadata types that this file treats apart.
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// Turns descriptions into entries, checking that each lies in the file and
/// that none overlap.
fn place(source: &Source, infos: Vec<Info>, data_start: u64, alignment: u64) -> Result<Vec<Entry>, Error> {
    let malformed = |offset, problem| Error::Malformed { format: FORMAT, offset, problem };
    let mut spans = Vec::with_capacity(infos.len());
    let mut entries: Vec<Entry> = Vec::with_capacity(infos.len());
    let mut names = std::collections::HashSet::new();
    for info in infos {
        let Info { name, shape, kind, offset, at } = info;
        let (block_values, block_bytes) = kind.block();
        let row = shape.last().copied().unwrap_or(1);
        let size = count(&shape)
            .filter(|_| row.is_multiple_of(block_values))
            .and_then(|values| (values / block_values).checked_mul(block_bytes))
            .and_then(|size| u64::try_from(size).ok());
        let begin = data_start.checked_add(offset).filter(|_| offset.is_multiple_of(alignment));
        let (Some(size), Some(begin)) = (size, begin) else {
            let problem = format!(
                "tensor `{name}`: shape {shape:?} or offset {offset} is impossible for {}",
                kind.name()
            );
            return Err(malformed(at, problem));
        };
        let end =
            begin.checked_add(size).filter(|&end| size == 0 || end <= source.len()).ok_or_else(|| {
                malformed(at, format!("tensor `{name}` of {size} bytes runs past the end of the file"))
            })?;
        if !names.insert(name.clone()) {
            return Err(Error::DuplicateName { name });
        }
        spans.push((begin, end));
        let entry = match kind {
            Kind::Plain(dtype) => Entry::new(
                name,
                dtype,
                shape,
                begin,
                Arc::new(Plain { source: source.clone(), offset: begin }),
            )?,
            Kind::Block(block) => {
                let payload = Blocks { source: source.clone(), offset: begin, block };
                Entry::new(name, Dtype::F32, shape, begin, Arc::new(payload))?.with_stored(block.name())
            }
        };
        entries.push(entry);
    }
    spans.retain(|(begin, end)| begin != end);
    spans.sort_unstable();
    if let Some(pair) = spans.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        return Err(malformed(pair[1].0, "two tensors overlap".into()));
    }
    Ok(entries)
}

/// One tensor description.
struct Info {
    name: String,
    shape: Vec<usize>,
    kind: Kind,
    offset: u64,
    /// Where the description starts.
    at: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain(Dtype),
    Block(Block),
}

impl Kind {
    fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::Plain(Dtype::F32),
            1 => Self::Plain(Dtype::F16),
            24 => Self::Plain(Dtype::I8),
            25 => Self::Plain(Dtype::I16),
            26 => Self::Plain(Dtype::I32),
            27 => Self::Plain(Dtype::I64),
            28 => Self::Plain(Dtype::F64),
            30 => Self::Plain(Dtype::Bf16),
            other => return Block::from_id(other).map(Self::Block),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Block(block) => block.name(),
        }
    }

    /// Values and bytes of the smallest piece.
    fn block(self) -> (usize, usize) {
        match self {
            Self::Plain(dtype) => (1, dtype.bytes()),
            Self::Block(block) => (block.values(), block.bytes()),
        }
    }
}

/// Reads little-endian fields front to back through a small buffer.
struct Cursor<'a> {
    source: &'a Source,
    position: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl<'a> Cursor<'a> {
    fn new(source: &'a Source, position: u64) -> Self {
        Self { source, position, buffer: Vec::new(), buffer_start: 0 }
    }

    fn malformed(&self, offset: u64, problem: String) -> Error {
        Error::Malformed { format: FORMAT, offset, problem }
    }

    fn unsupported(&self, offset: u64, what: String) -> Error {
        Error::Unsupported { format: FORMAT, offset, what }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
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

    fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        let end = self.position.checked_add(bytes).filter(|&end| end <= self.source.len());
        self.position = end.ok_or_else(|| {
            self.malformed(self.position, format!("{bytes} bytes announced past the file's end"))
        })?;
        Ok(())
    }

    fn string(&mut self) -> Result<String, Error> {
        let len = self.u64()?;
        let bytes = self.source.bytes(FORMAT, self.position, len)?;
        let at = self.position;
        self.position += len;
        String::from_utf8(bytes).map_err(|_| self.malformed(at, "a string that is not UTF-8".into()))
    }

    /// A metadata value as text; `None` for arrays and long strings.
    fn value(&mut self, kind: u32, depth: usize) -> Result<Option<String>, Error> {
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

    fn info(&mut self) -> Result<Info, Error> {
        let at = self.position;
        let name = self.string()?;
        let dims = self.u32()?;
        if dims > 8 {
            return Err(self.malformed(at, format!("tensor `{name}` of {dims} dimensions")));
        }
        let mut shape = Vec::new();
        for _ in 0..dims {
            let dim = self.u64()?;
            shape.push(usize::try_from(dim).map_err(|_| self.malformed(at, format!("dimension {dim}")))?);
        }
        // GGUF lists the fastest dimension first.
        shape.reverse();
        let id = self.u32()?;
        let kind = Kind::from_id(id)
            .ok_or_else(|| self.unsupported(at, format!("number format {id} of tensor `{name}`")))?;
        let offset = self.u64()?;
        Ok(Info { name, shape, kind, offset, at })
    }
}
