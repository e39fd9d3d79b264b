//! Bytes at a position: a file, or a buffer standing in for one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use super::entry::{Payload, ValueStream};
use crate::Error;

/// Read-only bytes with positioned access; clones share the file.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    bytes: Bytes,
    len: u64,
}

#[derive(Debug, Clone)]
enum Bytes {
    File(Arc<File>),
    Memory(Arc<[u8]>),
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Elsewhere a file has one position, so readers take turns.
#[cfg(not(unix))]
fn read_exact_at(mut file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _mine = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(buffer)
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // Looked at before it is opened: opening a pipe waits for who writes to it.
        let metadata = std::fs::metadata(path).map_err(Error::io("opening the file"))?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() {
                "it is a folder"
            } else {
                "it is a pipe or a device, and tensors are read in any order: save it as a file first"
            };
            return Err(Error::io("opening the file")(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let file = File::open(path).map_err(Error::io("opening the file"))?;
        Ok(Self { bytes: Bytes::File(Arc::new(file)), len: metadata.len() })
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        Self { bytes: Bytes::Memory(bytes.into()), len }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from `offset` on; an error when the file ends before.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        match &self.bytes {
            Bytes::File(file) => read_exact_at(file, buffer, offset)
                .map_err(Error::io("reading past the end of the file, or from it,")),
            Bytes::Memory(bytes) => {
                let range = usize::try_from(offset)
                    .ok()
                    .and_then(|start| Some(start..start.checked_add(buffer.len())?));
                let slice = range.and_then(|range| bytes.get(range));
                buffer
                    .copy_from_slice(slice.ok_or_else(|| Error::ended("reading past the end of the file"))?);
                Ok(())
            }
        }
    }

    /// `len` bytes from `offset` on, after checking that the file has them.
    pub(crate) fn bytes(&self, format: &'static str, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let Some(size) = usize::try_from(len).ok().filter(|_| within) else {
            let problem = format!("{len} bytes announced, but the file ends at byte {}", self.len);
            return Err(Error::malformed(format, offset, problem));
        };
        let mut bytes = vec![0; size];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// A reader with a position of its own, ending at `end`.
    pub(crate) fn reader(&self, start: u64, end: u64) -> SourceReader {
        SourceReader { source: self.clone(), position: start, end: end.min(self.len) }
    }
}

/// [`Read`] and [`Seek`] over a [`Source`].
#[derive(Debug, Clone)]
pub(crate) struct SourceReader {
    source: Source,
    position: u64,
    end: u64,
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.position);
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.source.read_at(self.position, &mut buffer[..step]).map_err(io::Error::other)?;
        self.position += step as u64;
        Ok(step)
    }
}

impl Seek for SourceReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(delta) => self.end.checked_add_signed(delta),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// Values that lie in the file as they are.
#[derive(Debug)]
pub(crate) struct Plain {
    pub source: Source,
    pub offset: u64,
}

impl Payload for Plain {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        Ok(Box::new(PlainStream { source: &self.source, position: self.offset }))
    }

    fn open_at(&self, byte: u64) -> Option<Box<dyn ValueStream + '_>> {
        Some(Box::new(PlainStream { source: &self.source, position: self.offset.checked_add(byte)? }))
    }
}

struct PlainStream<'a> {
    source: &'a Source,
    position: u64,
}

impl ValueStream for PlainStream<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.source.read_at(self.position, bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}
