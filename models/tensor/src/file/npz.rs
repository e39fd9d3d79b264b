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
    let mut archive = Archive::open(FORMAT, source)?;
    let mut entries: Vec<Entry> = Vec::new();
    for index in 0..archive.len() {
        let Some((name, mut member)) = archive.member(index, |name| name.strip_suffix(".npy"))? else {
            continue;
        };
        let start = member.start;
        let prefix = member.content(FORMAT, &name, HEADER_PREFIX)?;
        if !prefix.starts_with(b"\x93NUMPY") {
            return Err(Error::malformed(FORMAT, start, format!("member `{name}` is not an npy")));
        }
        let header = Header::parse(&prefix)?;
        let left = member.size.saturating_sub(header.data_start);
        if header.bytes() != Some(left) {
            return Err(header.size_error(left));
        }
        member.header_len = header.data_start;
        entries.push(header.entry(name, start, Arc::new(member))?);
    }
    if entries.is_empty() {
        let held = match archive.len() {
            0 => "an empty zip archive".to_owned(),
            members => format!("none of the zip archive's {members} members is an .npy array"),
        };
        return Err(Error::malformed(FORMAT, 0, held));
    }
    TensorFile::new(FORMAT, entries, Default::default())
}

/// A zip archive of a file of some format.
pub(super) struct Archive<'a> {
    format: &'static str,
    source: &'a Source,
    zip: ZipArchive<SourceReader>,
}

impl<'a> Archive<'a> {
    pub(super) fn open(format: &'static str, source: &'a Source) -> Result<Self, Error> {
        let zip = ZipArchive::new(source.reader(0, source.len()));
        Ok(Self { format, source, zip: zip.map_err(|error| directory(format, source, &error))? })
    }

    pub(super) fn len(&self) -> usize {
        self.zip.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.zip.file_names()
    }

    /// A member and what `own` makes of its name; nothing where that is nothing.
    pub(super) fn member(
        &mut self,
        index: usize,
        own: impl Fn(&str) -> Option<&str>,
    ) -> Result<Option<(String, Member)>, Error> {
        let (format, source) = (self.format, self.source);
        let file = self.zip.by_index_raw(index).map_err(|error| directory(format, source, &error))?;
        let Some(name) = own(file.name()).map(str::to_owned) else { return Ok(None) };
        let unsupported = |what| Err(Error::unsupported(format, file.header_start(), what));
        let deflated = match file.compression() {
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            other => return unsupported(format!("zip compression {other} of member `{name}`")),
        };
        if file.encrypted() {
            return unsupported(format!("encryption of member `{name}`"));
        }
        let (start, size, crc) = (file.data_start(), file.size(), file.crc32());
        let end = start.saturating_add(file.compressed_size());
        if end > source.len() {
            let problem = format!("member `{name}` runs past the end of the file");
            return Err(Error::malformed(format, start, problem));
        }
        let source = source.clone();
        Ok(Some((name, Member { source, start, end, deflated, size, crc, header_len: 0 })))
    }
}

fn directory(format: &'static str, source: &Source, error: &zip::result::ZipError) -> Error {
    Error::malformed(format, source.len(), format!("zip directory: {error}"))
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
    fn decoder(&self) -> Box<dyn Read + Send> {
        let raw = self.source.reader(self.start, self.end);
        if self.deflated { Box::new(DeflateDecoder::new(raw)) } else { Box::new(raw) }
    }

    /// Its first bytes, at most so many.
    pub(super) fn content(&self, format: &'static str, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let read = self.decoder().take(most.min(self.size)).read_to_end(&mut bytes);
        let inflated = |error| {
            Error::malformed(format, self.start, format!("member `{name}` cannot be inflated: {error}"))
        };
        read.map_err(inflated)?;
        Ok(bytes)
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
    decoder: Box<dyn Read + Send>,
    crc: Crc,
    filled: u64,
}

impl ValueStream for MemberStream<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let malformed = |problem| Error::malformed(FORMAT, self.member.start, problem);
        self.decoder
            .read_exact(bytes)
            .map_err(|error| malformed(format!("member cannot be read: {error}")))?;
        self.crc.update(bytes);
        self.filled += bytes.len() as u64;
        let (found, stated) = (self.crc.sum(), self.member.crc);
        if self.filled == self.member.size && found != stated {
            return Err(malformed(format!("checksum {found:08x}, expected {stated:08x}")));
        }
        Ok(())
    }
}
