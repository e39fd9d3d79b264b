//! Files that appear whole or not at all: written beside, then put in place.
//!
//! The one writer of the workspace: libraries use it by name, the command adds
//! whose files may be replaced. Knows paths and bytes; what a draft is called
//! and who may remove one is in `draft.rs`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::draft::{Draft, sweep_once};
use crate::Error;

/// A file under construction. Dropped without [`AtomicFile::commit`] or
/// [`AtomicFile::place`], it leaves no trace, and what stood at the path before
/// stays.
#[derive(Debug)]
pub struct AtomicFile {
    writer: Option<BufWriter<File>>,
    draft: Draft,
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
        let draft = reserve(path)?;
        let writer = Some(BufWriter::with_capacity(1 << 20, draft.file().try_clone()?));
        Ok(Self { writer, draft, path: path.to_owned() })
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
        writer.flush()?;
        drop(writer);
        if !is_special(&self.path) {
            // A name that outlives a power cut must not stand for bytes that did not.
            durable(self.draft.file().sync_all())?;
        }
        settle(&self.draft, &self.path, replace)
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// A draft of the file that shall be `path`: beside it, or among temporary
/// files where `path` is a device.
pub fn reserve(path: &Path) -> io::Result<Draft> {
    let temporary = std::env::temp_dir();
    Draft::create(if is_special(path) { &temporary } else { folder_of(path) })
}

/// Moves a finished draft to its place; `AlreadyExists` where another file
/// stands there and `replace` is not given. Who may read and write the file
/// that is replaced may do so with the new one.
pub fn settle(draft: &Draft, path: &Path, replace: bool) -> io::Result<()> {
    let draft_path = draft.path();
    if is_special(path) {
        let mut through = File::options().write(true).open(path)?;
        return io::copy(&mut File::open(draft_path)?, &mut through).map(drop);
    }
    if replace {
        if let Ok(replaced) = fs::metadata(path) {
            fs::set_permissions(draft_path, replaced.permissions())?;
        }
        fs::rename(draft_path, path)?;
    } else {
        // A link, unlike a rename, never takes the place of a file that came to be meanwhile.
        match fs::hard_link(draft_path, path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // A file system without links.
            Err(_) if fs::symlink_metadata(path).is_err() => fs::rename(draft_path, path)?,
            Err(error) => return Err(error),
        }
    }
    sweep_once(folder_of(path));
    sync_folder(folder_of(path));
    Ok(())
}

/// The folder that a file of this name lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Takes it well where a file system knows no way to wait for its disk.
fn durable(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {
            Ok(())
        }
        synced => synced,
    }
}

/// Makes a new name as lasting as the file. The file is there and whole, so a
/// folder that cannot be opened for it is no failure.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
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
        // What is abandoned need not reach the disk first.
        if let Some(writer) = self.writer.take() {
            drop(writer.into_parts());
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

    fn written(path: &Path, bytes: &[u8]) -> AtomicFile {
        let mut file = AtomicFile::beside(path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all_and_replaces_only_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let left = || fs::read_dir(folder.path()).unwrap().count();
        drop(written(&path, b"abandoned"));
        assert_eq!(left(), 0);
        written(&path, b"first").place(false).unwrap();
        let error = written(&path, b"second").place(false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap(), left()), (b"first".to_vec(), 1));
        written(&path, b"third").place(true).unwrap();
        assert_eq!((fs::read(&path).unwrap(), left()), (b"third".to_vec(), 1));
    }

    #[test]
    fn two_writers_of_one_name_never_share_a_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let (ours, theirs) = (written(&path, b"ours"), written(&path, b"theirs, and longer"));
        assert_ne!(ours.draft.path(), theirs.draft.path());
        ours.place(true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        theirs.place(true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"theirs, and longer");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_longest_name_that_the_file_system_takes_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n".repeat(255));
        written(&path, b"whole").place(false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[cfg(unix)]
    #[test]
    fn what_replaces_a_file_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        written(&path, b"new").place(true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    }
}
