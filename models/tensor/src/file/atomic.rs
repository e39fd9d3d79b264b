//! Files that appear whole or not at all: written beside, then put in place.
//!
//! The one writer of the workspace: libraries use it by name, the command adds
//! whose files may be replaced. Knows paths and bytes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// A file under construction. Dropped without [`AtomicFile::commit`] or
/// [`AtomicFile::place`], it leaves no trace, and what stood at the path before
/// stays.
#[derive(Debug)]
pub struct AtomicFile {
    writer: Option<BufWriter<File>>,
    draft_path: PathBuf,
    path: PathBuf,
}

impl AtomicFile {
    /// Starts a file that will appear at `path`. A device or pipe there is
    /// written through once all is known to be well.
    pub fn create(path: &Path) -> Result<Self, Error> {
        Self::beside(path).map_err(|source| Error::Write { doing: "creating the file", source }.in_file(path))
    }

    /// As [`AtomicFile::create`], with the error of the file system as it is.
    pub fn beside(path: &Path) -> io::Result<Self> {
        let draft_path = draft_path(path);
        let file = File::create(&draft_path)?;
        let writer = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { writer, draft_path, path: path.to_owned() })
    }

    /// Makes the file appear at its path, in place of any other.
    pub fn commit(self) -> Result<(), Error> {
        let path = self.path.clone();
        self.place(true).map_err(|source| Error::Write { doing: "writing the file", source }.in_file(&path))
    }

    /// Makes the file appear at its path; `AlreadyExists` where another stands
    /// there and `replace` is not given.
    pub fn place(mut self, replace: bool) -> io::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let finished = writer.flush().and_then(|()| settle(&self.draft_path, &self.path, replace));
        if finished.is_err() {
            // The draft would otherwise outlive this failure.
            fs::remove_file(&self.draft_path).ok();
        }
        finished
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// Where the file that shall be `path` is written first: beside it, or among
/// temporary files where `path` is a device.
pub fn draft_path(path: &Path) -> PathBuf {
    let end = format!(".{}.part", std::process::id());
    if is_special(path) {
        return std::env::temp_dir().join(format!("trinity{end}"));
    }
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(end);
    path.with_file_name(name)
}

/// Moves a finished draft to its place; `AlreadyExists` where another file
/// stands there and `replace` is not given.
pub fn settle(draft_path: &Path, path: &Path, replace: bool) -> io::Result<()> {
    if is_special(path) {
        let mut through = File::options().write(true).open(path)?;
        io::copy(&mut File::open(draft_path)?, &mut through)?;
        return fs::remove_file(draft_path);
    }
    if replace {
        return fs::rename(draft_path, path);
    }
    // A link, unlike a rename, never takes the place of a file that came to be meanwhile.
    match fs::hard_link(draft_path, path) {
        Ok(()) => fs::remove_file(draft_path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links.
        Err(_) if fs::symlink_metadata(path).is_err() => fs::rename(draft_path, path),
        Err(error) => Err(error),
    }
}

/// Whether a path leads to a device or a pipe, which no file may replace.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
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
            fs::remove_file(&self.draft_path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_through_and_stays_a_device() {
        for path in ["/dev/null", "/dev/full"].map(Path::new).into_iter().filter(|path| path.exists()) {
            let mut file = AtomicFile::create(path).unwrap();
            file.write_all(b"gone").unwrap();
            assert_eq!(file.commit().is_ok(), path == Path::new("/dev/null"));
            assert!(is_special(path));
        }
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all_and_replaces_only_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let written = |bytes: &[u8]| {
            let mut file = AtomicFile::beside(&path).unwrap();
            file.write_all(bytes).unwrap();
            file
        };
        let left = || fs::read_dir(folder.path()).unwrap().count();
        drop(written(b"abandoned"));
        assert_eq!(left(), 0);
        written(b"first").place(false).unwrap();
        let error = written(b"second").place(false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap(), left()), (b"first".to_vec(), 1));
        written(b"third").place(true).unwrap();
        assert_eq!((fs::read(&path).unwrap(), left()), (b"third".to_vec(), 1));
    }
}
