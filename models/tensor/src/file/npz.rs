//! NumPy's `.npz`: a zip archive of npy members, stored or deflated.
//!
//! The zip crate reads the directory; members are inflated here, so that each
//! can be streamed from its start while others are open.

use std::io::Read;
use std::sync::Arc;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use zip::{CompressionMethod, ZipArchive};

use super::contents::TensorFile;
use super::entry::{Entry, Payload, ValueStream};
use super::npy::Header;
use super::source::{Source, SourceReader};
use crate::Error;

const FORMAT: &str = "npz";
/// As much of a member as its npy header can take.
const HEADER_PREFIX: u64 = (1 << 16) + 12;

pub(super) fn parse(source: &Source) -> Result<TensorFile, Error> {
    let malformed = |offset, problem: String| Error::Malformed { format: FORMAT, offset, problem };
    let directory = |error: zip::result::ZipError| malformed(source.len(), format!("zip directory: {error}"));
    let mut archive = ZipArchive::new(source.reader(0, source.len())).map_err(directory)?;
    let mut entries: Vec<Entry> = Vec::new();
    for index in 0..archive.len() {
        let file = archive.by_index_raw(index).map_err(directory)?;
        let Some(name) = file.name().strip_suffix(".npy").map(str::to_owned) else { continue };
        let deflated = match file.compression() {
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            other => {
                let what = format!("zip compression {other} of member `{name}`");
                return Err(Error::Unsupported { format: FORMAT, offset: file.header_start(), what });
            }
        };
        if file.encrypted() {
            let what = format!("encryption of member `{name}`");
            return Err(Error::Unsupported { format: FORMAT, offset: file.header_start(), what });
        }
        let start = file.data_start();
        let mut member = Member {
            source: source.clone(),
            start,
            end: start.saturating_add(file.compressed_size()),
            deflated,
            size: file.size(),
            crc: file.crc32(),
            header_len: 0,
        };
        drop(file);
        if member.end > source.len() {
            return Err(malformed(start, format!("member `{name}` runs past the end of the file")));
        }
        let mut prefix = Vec::new();
        member
            .decoder()
            .take(HEADER_PREFIX.min(member.size))
            .read_to_end(&mut prefix)
            .map_err(|error| malformed(start, format!("member `{name}` cannot be inflated: {error}")))?;
        if !prefix.starts_with(b"\x93NUMPY") {
            return Err(malformed(start, format!("member `{name}` is not an npy")));
        }
        let header = Header::parse(&prefix)?;
        let left = member.size.saturating_sub(header.data_start);
        if header.bytes() != Some(left) {
            return Err(header.size_error(left));
        }
        member.header_len = header.data_start;
        if entries.iter().any(|entry| entry.name() == name) {
            return Err(Error::DuplicateName { name });
        }
        entries.push(header.entry(name, start, Arc::new(member))?);
    }
    if entries.is_empty() {
        let held = match archive.len() {
            0 => "an empty zip archive".to_owned(),
            members => format!("none of the zip archive's {members} members is an .npy array"),
        };
        return Err(malformed(0, held));
    }
    Ok(TensorFile::new(FORMAT, entries, Default::default()))
}

/// A zip member whose values follow a header of `header_len` bytes.
#[derive(Debug)]
pub(super) struct Member {
    pub source: Source,
    pub start: u64,
    pub end: u64,
    pub deflated: bool,
    pub size: u64,
    pub crc: u32,
    pub header_len: u64,
}

impl Member {
    pub(super) fn decoder(&self) -> Decoder {
        let raw = self.source.reader(self.start, self.end);
        if self.deflated {
            Decoder::Deflated(Box::new(DeflateDecoder::new(raw)))
        } else {
            Decoder::Stored(raw)
        }
    }
}

pub(super) enum Decoder {
    Stored(SourceReader),
    Deflated(Box<DeflateDecoder<SourceReader>>),
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Stored(reader) => reader.read(buffer),
            Self::Deflated(reader) => reader.read(buffer),
        }
    }
}

impl Payload for Member {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        let mut stream = MemberStream { member: self, decoder: self.decoder(), crc: Crc::new(), filled: 0 };
        let mut header = vec![0; self.header_len as usize];
        stream.fill(&mut header)?;
        Ok(Box::new(stream))
    }
}

struct MemberStream<'a> {
    member: &'a Member,
    decoder: Decoder,
    crc: Crc,
    filled: u64,
}

impl ValueStream for MemberStream<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let malformed = |problem| Error::Malformed { format: FORMAT, offset: self.member.start, problem };
        self.decoder
            .read_exact(bytes)
            .map_err(|error| malformed(format!("member cannot be read: {error}")))?;
        self.crc.update(bytes);
        self.filled += bytes.len() as u64;
        if self.filled == self.member.size && self.crc.sum() != self.member.crc {
            return Err(malformed(format!(
                "checksum {:08x}, expected {:08x}",
                self.crc.sum(),
                self.member.crc
            )));
        }
        Ok(())
    }
}
