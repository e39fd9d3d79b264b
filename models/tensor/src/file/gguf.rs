//! GGUF, versions 2 and 3: typed metadata, tensor descriptions, aligned data.
//!
//! Block formats ([`blocks`]) are presented as f32; their own name stays visible
//! as [`Entry::stored`]. Arrays, such as a tokenizer's vocabulary, are found
//! here and read when asked for ([`Arrays`]).

mod blocks;
mod cursor;
mod header;
mod i_quants;
mod k_quants;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use blocks::Block;
use blocks::Blocks;
use cursor::{ARRAY, Cursor, DEFAULT_ALIGNMENT, FORMAT, TEXT, alignment_of};
pub use header::Header;

use super::contents::{List, Lists, TensorFile};
use super::entry::{Entry, count};
use super::origin::Origin;
use super::source::{Plain, Source};
use crate::{Dtype, Error};

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
                alignment =
                    alignment_of(&text).ok_or_else(|| cursor.malformed(at, format!("alignment {text}")))?;
            }
            metadata.insert(key, text);
        }
    }
    let header_bytes = cursor.position;
    let mut infos = Vec::new();
    for at in 0..tensor_count {
        infos.push(info(&mut cursor).map_err(|error| within_info(error, at, tensor_count))?);
    }
    let data_start = cursor.position.next_multiple_of(alignment);
    let entries = place(source, infos, data_start, alignment)?;
    let mut file = TensorFile::new(FORMAT, entries, metadata)?;
    file.lists = Some(Arc::new(Arrays { source: source.clone(), arrays }));
    file.origin = Some(Origin::Gguf { source: source.clone(), bytes: header_bytes });
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

/// Turns descriptions into entries, checking that each lies in the file and
/// that none overlap.
fn place(source: &Source, infos: Vec<Info>, data_start: u64, alignment: u64) -> Result<Vec<Entry>, Error> {
    let malformed = |offset, problem: String| Error::malformed(FORMAT, offset, problem);
    let mut spans = Vec::with_capacity(infos.len());
    let mut entries: Vec<Entry> = Vec::with_capacity(infos.len());
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
            let kind = kind.name();
            let problem =
                format!("tensor `{name}`: shape {shape:?} or offset {offset} is impossible for {kind}");
            return Err(malformed(at, problem));
        };
        let end =
            begin.checked_add(size).filter(|&end| size == 0 || end <= source.len()).ok_or_else(|| {
                malformed(at, format!("tensor `{name}` of {size} bytes runs past the end of the file"))
            })?;
        spans.push((begin, end));
        let source = source.clone();
        let entry = match kind {
            Kind::Plain(dtype) => {
                Entry::new(name, dtype, shape, begin, Arc::new(Plain { source, offset: begin }))?
            }
            Kind::Block(block) => {
                let payload = Arc::new(Blocks { source, offset: begin, block });
                Entry::new(name, Dtype::F32, shape, begin, payload)?.with_stored(block.name())
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

/// The next tensor description.
fn info(cursor: &mut Cursor<'_>) -> Result<Info, Error> {
    let at = cursor.position;
    let name = cursor.string()?;
    let dims = cursor.u32()?;
    if dims > 8 {
        return Err(cursor.malformed(at, format!("tensor `{name}` of {dims} dimensions")));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let dim = cursor.u64()?;
        shape.push(usize::try_from(dim).map_err(|_| cursor.malformed(at, format!("dimension {dim}")))?);
    }
    // GGUF lists the fastest dimension first.
    shape.reverse();
    let id = cursor.u32()?;
    let kind = Kind::from_id(id)
        .ok_or_else(|| cursor.unsupported(at, format!("number format {id} of tensor `{name}`")))?;
    let offset = cursor.u64()?;
    Ok(Info { name, shape, kind, offset, at })
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

/// Numbers of plain formats in descriptions; blocks have theirs in [`blocks`].
const PLAIN: [(u32, Dtype); 8] = [
    (0, Dtype::F32),
    (1, Dtype::F16),
    (24, Dtype::I8),
    (25, Dtype::I16),
    (26, Dtype::I32),
    (27, Dtype::I64),
    (28, Dtype::F64),
    (30, Dtype::Bf16),
];

/// The number of a plain format in a tensor's description, where it has one.
pub(crate) fn plain_id(dtype: Dtype) -> Option<u32> {
    PLAIN.iter().find(|(_, own)| *own == dtype).map(|(id, _)| *id)
}

impl Kind {
    fn from_id(id: u32) -> Option<Self> {
        let plain = PLAIN.iter().find(|(own, _)| *own == id).map(|(_, dtype)| Self::Plain(*dtype));
        plain.or_else(|| Block::from_id(id).map(Self::Block))
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
