//! NumPy's `.npy`: a magic number, a Python dict as text, then raw values.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::atomic::AtomicFile;
use super::contents::TensorFile;
use super::entry::{Carried, Entry, Payload, ValueStream, advance, count};
use super::source::{Plain, Source};
use crate::{Dtype, Error, Tensor};

const FORMAT: &str = "npy";
/// Longest header accepted; NumPy itself refuses more than 10,000 characters.
const MAX_HEADER: u64 = 1 << 16;

pub(super) fn parse(source: &Source, stem: &str) -> Result<TensorFile, Error> {
    let prefix = source.bytes(FORMAT, 0, source.len().min(MAX_HEADER + 12))?;
    let header = Header::parse(&prefix)?;
    let left = source.len() - header.data_start;
    if header.bytes() != Some(left) {
        return Err(header.size_error(left));
    }
    let plain = Plain { source: source.clone(), offset: header.data_start };
    let offset = header.data_start;
    let entry = header.entry(stem.to_owned(), offset, Arc::new(plain))?;
    TensorFile::new(FORMAT, vec![entry], Default::default())
}

/// What an npy header says.
#[derive(Debug)]
pub(super) struct Header {
    pub dtype: Dtype,
    /// A format that is carried and not understood, by its name.
    carried: Option<String>,
    /// Bytes of a value.
    width: usize,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
    pub data_start: u64,
}

impl Header {
    /// Parses the header at the start of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let malformed = |offset: usize, problem: &str| Error::malformed(FORMAT, offset as u64, problem);
        let version =
            bytes.get(6..8).ok_or_else(|| malformed(bytes.len(), "the file ends in its magic number"))?;
        let rest = &bytes[8..];
        let (start, len) = match version[0] {
            1 => (10, rest.first_chunk().map(|len| u16::from_le_bytes(*len).into())),
            2 | 3 => (12, rest.first_chunk().map(|len| u32::from_le_bytes(*len) as usize)),
            _ => return Err(malformed(6, &format!("version {}.{}", version[0], version[1]))),
        };
        let len = len.ok_or_else(|| malformed(8, "the file ends before its header"))?;
        let text = bytes.get(start..).and_then(|rest| rest.get(..len)).ok_or_else(|| {
            malformed(8, &format!("a header of {len} bytes, longer than the file or than {MAX_HEADER}"))
        })?;
        let dict = Dict { text, position: 0, base: start }.parse()?;
        let Format { dtype, carried, width, big_endian } = dict.format()?;
        Ok(Self {
            dtype,
            carried,
            width,
            big_endian,
            fortran_order: dict.fortran_order,
            shape: dict.shape,
            data_start: (start + len) as u64,
        })
    }

    /// Bytes of all values, unless the product overflows.
    pub(super) fn bytes(&self) -> Option<u64> {
        count(&self.shape)?.checked_mul(self.width).map(|bytes| bytes as u64)
    }

    pub(super) fn size_error(&self, found: u64) -> Error {
        let problem =
            format!("shape {:?} of {} does not take the {found} bytes there are", self.shape, self.dtype);
        Error::malformed(FORMAT, self.data_start, problem)
    }

    /// An entry whose raw bytes come from `raw`, put in our order as needed.
    pub(super) fn entry(self, name: String, offset: u64, raw: Arc<dyn Payload>) -> Result<Entry, Error> {
        let fortran = self.fortran_order && self.shape.len() > 1;
        let payload: Arc<dyn Payload> = if fortran || self.big_endian {
            Arc::new(Reordered {
                raw,
                width: self.width,
                swap: self.big_endian,
                fortran: fortran.then(|| self.shape.clone()),
            })
        } else {
            raw
        };
        match self.carried {
            Some(dtype) => {
                let bytes = count(&self.shape).unwrap_or(0).saturating_mul(self.width);
                let carried = Carried { dtype, shape: self.shape };
                Entry::carried_as(name, carried, bytes, offset, payload)
            }
            None => Entry::new(name, self.dtype, self.shape, offset, payload),
        }
    }
}

/// How values are written.
struct Format {
    dtype: Dtype,
    carried: Option<String>,
    width: usize,
    big_endian: bool,
}

/// A parsed header dict.
struct Fields {
    descr: (usize, String),
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Formats as NumPy writes them on little-endian machines.
const DESCRS: [(Dtype, &str); 9] = [
    (Dtype::F64, "<f8"),
    (Dtype::F32, "<f4"),
    (Dtype::F16, "<f2"),
    // What ml_dtypes' bfloat16 turns into when NumPy saves it.
    (Dtype::Bf16, "<V2"),
    (Dtype::I8, "|i1"),
    (Dtype::U8, "|u1"),
    (Dtype::I16, "<i2"),
    (Dtype::I32, "<i4"),
    (Dtype::I64, "<i8"),
];

impl Fields {
    fn format(&self) -> Result<Format, Error> {
        let (order, kind) = self.descr.1.split_at_checked(1).unwrap_or(("", ""));
        let known = DESCRS.iter().find(|(_, descr)| &descr[1..] == kind).map(|(dtype, _)| *dtype);
        let (carried, width) = match known {
            Some(dtype) => (None, dtype.bytes()),
            None => self.foreign(kind)?,
        };
        let big_endian = match order {
            "<" | "|" | "=" => false,
            ">" => width > 1,
            _ => {
                let problem = format!("byte order `{order}`");
                return Err(Error::malformed(FORMAT, self.descr.0 as u64, problem));
            }
        };
        // Bytes are turned round value by value, and a complex number is two.
        if big_endian && carried.is_some() && !matches!(kind, "u2" | "u4" | "u8") {
            return Err(self.unsupported());
        }
        Ok(Format { dtype: known.unwrap_or(Dtype::U8), carried, width, big_endian })
    }

    fn unsupported(&self) -> Error {
        Error::unsupported(FORMAT, self.descr.0 as u64, format!("number format `{}`", self.descr.1))
    }

    /// A format that is carried: its name, and the bytes of a value.
    fn foreign(&self, kind: &str) -> Result<(Option<String>, usize), Error> {
        const NAMES: [(&str, &str); 5] =
            [("b1", "BOOL"), ("u2", "U16"), ("u4", "U32"), ("u8", "U64"), ("c8", "C64")];
        let unsupported = || self.unsupported();
        let known = NAMES.iter().find(|(own, _)| *own == kind);
        let name = known.map_or_else(|| format!("npy:<{kind}"), |(_, name)| (*name).to_owned());
        // A size in bytes follows the letter; objects have none, texts count characters.
        let (letter, size) = kind.split_at_checked(1).ok_or_else(unsupported)?;
        let digits = size.chars().take_while(char::is_ascii_digit).count();
        let size: usize = size[..digits].parse().map_err(|_| unsupported())?;
        match letter {
            "b" | "u" | "i" | "f" | "c" | "m" | "M" | "S" | "V" if size > 0 => Ok((Some(name), size)),
            "U" if size > 0 => Ok((Some(name), size.checked_mul(4).ok_or_else(unsupported)?)),
            _ => Err(unsupported()),
        }
    }
}

/// A reader of the small part of Python's literal syntax that headers use.
struct Dict<'a> {
    text: &'a [u8],
    position: usize,
    base: usize,
}

impl Dict<'_> {
    fn parse(mut self) -> Result<Fields, Error> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.accept(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            self.skip_space();
            match key.as_str() {
                "descr" => descr = Some((self.base + self.position, self.string()?)),
                "fortran_order" => fortran_order = Some(self.boolean()?),
                "shape" => shape = Some(self.tuple()?),
                _ => return Err(self.error(&format!("unknown key `{key}`"))),
            }
            if !self.accept(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Fields { descr, fortran_order, shape }),
            _ => Err(self.error("one of descr, fortran_order and shape is missing")),
        }
    }

    fn error(&self, problem: &str) -> Error {
        Error::malformed(FORMAT, (self.base + self.position) as u64, problem)
    }

    fn skip_space(&mut self) {
        while self.text.get(self.position).is_some_and(u8::is_ascii_whitespace) {
            self.position += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.get(self.position) == Some(&byte);
        self.position += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.accept(byte) { Ok(()) } else { Err(self.error(&format!("expected `{}`", char::from(byte)))) }
    }

    fn string(&mut self) -> Result<String, Error> {
        self.skip_space();
        let quote = match self.text.get(self.position) {
            Some(&quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.error("expected a quoted string")),
        };
        let rest = &self.text[self.position + 1..];
        let len =
            rest.iter().position(|&byte| byte == quote).ok_or_else(|| self.error("a string without end"))?;
        let text = String::from_utf8_lossy(&rest[..len]).into_owned();
        self.position += len + 2;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, Error> {
        let rest = &self.text[self.position.min(self.text.len())..];
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if rest.starts_with(word) {
                self.position += word.len();
                return Ok(value);
            }
        }
        Err(self.error("expected True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<usize>, Error> {
        let mut dims = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            dims.push(self.integer()?);
            // NumPy allows 64 dimensions; more is an attack or a mistake.
            if dims.len() > 64 {
                return Err(self.error("more than 64 dimensions"));
            }
            if !self.accept(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(dims)
    }

    fn integer(&mut self) -> Result<usize, Error> {
        self.skip_space();
        let digits =
            self.text[self.position.min(self.text.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
        let text = &self.text[self.position..self.position + digits];
        let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let value = value.ok_or_else(|| self.error("expected a dimension below 2^64"))?;
        self.position += digits;
        Ok(value)
    }
}

/// Raw values in foreign byte order, or with the first index running fastest.
#[derive(Debug)]
struct Reordered {
    raw: Arc<dyn Payload>,
    width: usize,
    swap: bool,
    fortran: Option<Vec<usize>>,
}

impl Payload for Reordered {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        let raw = self.raw.open()?;
        let swapped = Swapped { raw, width: if self.swap { self.width } else { 1 } };
        match &self.fortran {
            None => Ok(Box::new(swapped)),
            Some(shape) => {
                Ok(Box::new(Buffered { bytes: row_major(swapped, shape, self.width)?, position: 0 }))
            }
        }
    }
}

struct Swapped<'a> {
    raw: Box<dyn ValueStream + 'a>,
    width: usize,
}

impl ValueStream for Swapped<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.raw.fill(bytes)?;
        if self.width > 1 {
            bytes.chunks_exact_mut(self.width).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}

/// Transposes a column-major array. Its first row is spread over the whole
/// file, so this one case holds the tensor in memory.
fn row_major(mut stream: Swapped<'_>, shape: &[usize], width: usize) -> Result<Vec<u8>, Error> {
    let values = count(shape).unwrap_or(0);
    let mut column_major = Vec::new();
    while column_major.len() < values * width {
        let start = column_major.len();
        column_major.resize((start + super::BLOCK_BYTES).min(values * width), 0);
        stream.fill(&mut column_major[start..])?;
    }
    let mut bytes = Vec::with_capacity(values * width);
    let mut index = vec![0usize; shape.len()];
    for _ in 0..values {
        let place = index.iter().zip(shape).rev().fold(0, |place, (&i, &dim)| place * dim + i);
        bytes.extend_from_slice(&column_major[place * width..][..width]);
        advance(&mut index, shape);
    }
    Ok(bytes)
}

struct Buffered {
    bytes: Vec<u8>,
    position: usize,
}

impl ValueStream for Buffered {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let slice = self.bytes.get(self.position..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(slice.ok_or_else(|| Error::ended("reading past the end of a tensor"))?);
        self.position += bytes.len();
        Ok(())
    }
}

/// Writes one tensor as npy version 1.0. bf16 is written as NumPy writes the
/// one of ml_dtypes (`<V2`); npy has no name for 8-bit floats.
pub fn write_npy(path: &Path, tensor: &Tensor) -> Result<(), Error> {
    let mut file = begun(path, tensor.dtype(), tensor.shape())?;
    file.write_all(tensor.data()).map_err(not_written(path))?;
    file.commit()
}

/// As [`write_npy`], of a tensor that need not fit into memory; `progress` hears of values.
///
/// # Errors
///
/// Where the tensor cannot be read, npy does not know its number format, or the file cannot be written.
pub fn write_npy_of(path: &Path, entry: &Entry, progress: &dyn Fn(usize)) -> Result<(), Error> {
    let mut file = begun(path, entry.dtype(), entry.shape())?;
    let width = entry.dtype().bytes();
    entry.stream()?.each(entry.len() * width, &mut |bytes| {
        file.write_all(bytes).map_err(not_written(path))?;
        progress(bytes.len() / width);
        Ok(())
    })?;
    file.commit()
}

fn not_written(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |source| Error::Write { doing: "writing the tensor", source }.in_file(path)
}

/// A file with its header.
fn begun(path: &Path, dtype: Dtype, shape: &[usize]) -> Result<AtomicFile, Error> {
    let Some((_, descr)) = DESCRS.iter().find(|(own, _)| *own == dtype) else {
        let what = format!("number format {dtype} (write safetensors instead)");
        return Err(Error::unsupported(FORMAT, 0, what).in_file(path));
    };
    let mut dims = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if shape.len() == 1 {
        dims.push(',');
    }
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    // NumPy aligns values to 64 bytes and ends the header with a newline.
    let padding = (10 + text.len() + 1).next_multiple_of(64) - (10 + text.len() + 1);
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut file = AtomicFile::create(path)?;
    let too_long = |_| Error::unsupported(FORMAT, 8, format!("a shape of {} dimensions", shape.len()));
    let header_len = u16::try_from(text.len()).map_err(too_long)?;
    file.write_all(b"\x93NUMPY\x01\x00")
        .and_then(|()| file.write_all(&header_len.to_le_bytes()))
        .and_then(|()| file.write_all(text.as_bytes()))
        .map_err(not_written(path))?;
    Ok(file)
}
