//! Files that appear whole or not at all: written beside, then renamed.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// A file under construction. Dropped without [`AtomicFile::commit`], it
/// leaves no trace, and what stood at the path before stays.
#[derive(Debug)]
pub struct AtomicFile {
    writer: Option<BufWriter<File>>,
    partial: PathBuf,
    path: PathBuf,
}

impl AtomicFile {
    /// Starts a file that will appear at `path`.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        let file = File::create(&partial)
            .map_err(|source| Error::Io { doing: "creating the file", source }.in_file(path))?;
        Ok(Self { writer: Some(BufWriter::with_capacity(1 << 20, file)), partial, path: path.to_owned() })
    }

    /// Makes the file appear at its path.
    pub fn commit(mut self) -> Result<(), Error> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let finished = writer.flush().and_then(|()| std::fs::rename(&self.partial, &self.path));
        finished.map_err(|source| {
            // The partial file would otherwise outlive this failed commit.
            std::fs::remove_file(&self.partial).ok();
            Error::Io { doing: "writing the file", source }.in_file(&self.path)
        })
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer()?.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.writer()?.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            std::fs::remove_file(&self.partial).ok();
        }
    }
}
