//! Files that appear whole or not at all.
//!
//! Written beside their final place, then renamed: an interrupted run leaves
//! no half-written result that a later step would take for a whole one.

use crate::failure::Failure;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Writes a whole file at once, creating the folder it lives in.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut draft = Draft::create(path)?;
    draft.write_all(bytes).map_err(|error| cannot("write", path, &error))?;
    draft.finish()
}

/// A file being written under a temporary name; [`Draft::finish`] puts it in
/// place, dropping it without that removes it.
#[derive(Debug)]
pub struct Draft {
    file: Option<BufWriter<File>>,
    /// `None` where the destination is written to directly.
    draft_path: Option<PathBuf>,
    path: PathBuf,
}

impl Draft {
    /// Opens a draft beside `path`, creating the folder where it is missing.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let Some(name) = path.file_name() else {
            return Err(Failure::input(format_args!("`{}` names no file to write", path.display())));
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| cannot("create the folder of", path, &error))?;
        }
        // A device or a pipe (`-o /dev/null`) is written to, never replaced by a file.
        if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let file =
                File::options().write(true).open(path).map_err(|error| cannot("write", path, &error))?;
            return Ok(Self {
                file: Some(BufWriter::with_capacity(1 << 20, file)),
                draft_path: None,
                path: path.to_path_buf(),
            });
        }
        let mut draft_name = std::ffi::OsString::from(".");
        draft_name.push(name);
        draft_name.push(format!(".{}.part", std::process::id()));
        let draft_path = path.with_file_name(draft_name);
        let file = File::create(&draft_path).map_err(|error| cannot("write", path, &error))?;
        Ok(Self {
            file: Some(BufWriter::with_capacity(1 << 20, file)),
            draft_path: Some(draft_path),
            path: path.to_path_buf(),
        })
    }

    /// Flushes and renames the draft to its final name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let written = match self.file.take() {
            Some(file) => file.into_inner().map(drop).map_err(io::IntoInnerError::into_error),
            None => Ok(()),
        };
        written
            .and_then(|()| self.draft_path.as_ref().map_or(Ok(()), |draft| fs::rename(draft, &self.path)))
            .map_err(|error| cannot("write", &self.path, &error))
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a finished rename there is nothing left under this name.
        if let Some(draft) = &self.draft_path {
            let _ = fs::remove_file(draft);
        }
    }
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::run(format_args!("cannot {verb} `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_draft_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/result.csv");
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_to_and_stays_a_device() {
        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_finished_draft_replaces_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.csv");
        write(&path, b"old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
