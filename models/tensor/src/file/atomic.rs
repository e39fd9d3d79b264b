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
        let name = format!(".{}.partial", std::process::id());
        let partial = if is_special(path) {
            std::env::temp_dir().join(format!("trinity{name}"))
        } else {
            let mut partial = path.as_os_str().to_owned();
            partial.push(name);
            PathBuf::from(partial)
        };
        let file = File::create(&partial)
            .map_err(|source| Error::Write { doing: "creating the file", source }.in_file(path))?;
        Ok(Self { writer: Some(BufWriter::with_capacity(1 << 20, file)), partial, path: path.to_owned() })
    }

    /// Makes the file appear at its path.
    pub fn commit(mut self) -> Result<(), Error> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let finished = writer.flush().and_then(|()| self.settle());
        finished.map_err(|source| {
            // The partial file would otherwise outlive this failed commit.
            std::fs::remove_file(&self.partial).ok();
            Error::Write { doing: "writing the file", source }.in_file(&self.path)
        })
    }

    fn settle(&self) -> io::Result<()> {
        if !is_special(&self.path) {
            return std::fs::rename(&self.partial, &self.path);
        }
        let mut through = File::options().write(true).open(&self.path)?;
        io::copy(&mut File::open(&self.partial)?, &mut through)?;
        std::fs::remove_file(&self.partial)
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// Whether a path leads to a device or a pipe, which no file may replace.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_through_and_stays_a_device() {
        for path in ["/dev/null", "/dev/full"].map(Path::new).into_iter().filter(|path| path.exists()) {
            let mut file = AtomicFile::create(path).unwrap();
            file.write_all(b"gone").unwrap();
            assert_eq!(file.commit().is_ok(), path == Path::new("/dev/null"));
            assert!(is_special(path));
        }
    }
}
