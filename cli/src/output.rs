//! Where results go: the one layer that every command writes through.
//!
//! What it promises, whatever the command:
//! - A file appears whole or not at all: it is written beside its place, then
//!   moved there.
//! - No file is replaced that this run did not write, unless `--force` is
//!   given; a file that already holds the very bytes is left alone. Results in
//!   a folder that the same work wrote before ([`claim`]) may be renewed.
//! - A file that the run reads ([`protect`]) is never replaced, even with
//!   `--force`, under whatever name or link.
//! - Devices, pipes and `/dev/stdout` are written through, and stay what they
//!   are; `-` is stdout.
//! - A disk or folder that cannot be written is a failed run, exit 1.
//!
//! Knows paths and bytes; knows nothing of what they mean.

mod claim;
mod name;
mod session;
mod spool;

pub use claim::claim;
pub use name::{Named, format_of};
pub use session::{force as forced, own, protect, set_force};
pub use spool::Spool;

use crate::failure::Failure;
use session::Permission;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Whether a name stands for stdout.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// Writes a whole file at once, creating the folder it lives in.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    // What is there already in these very bytes needs no permission.
    let same = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes.len() as u64)
        && fs::read(path).is_ok_and(|found| found == bytes);
    if same {
        own(path);
        return Ok(());
    }
    let mut draft = Draft::create(path)?;
    draft.put(bytes)?;
    draft.finish()
}

/// Where a draft ends up.
#[derive(Debug)]
enum Goal {
    /// Written beside, then moved; whether it may take the place of another.
    File { draft_path: PathBuf, path: PathBuf, replace: bool },
    /// Written to directly: a device, a pipe, stdout.
    Through(PathBuf),
}

impl Goal {
    /// As the user knows it.
    fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } | Self::Through(path) => path,
        }
    }
}

/// A file being written under a temporary name; [`Draft::finish`] puts it in
/// place, dropping it without that removes it.
#[derive(Debug)]
pub struct Draft {
    file: Option<BufWriter<File>>,
    goal: Goal,
}

impl Draft {
    /// Opens a draft beside `path`, creating the folder where it is missing.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let goal = goal(path)?;
        let opened = match &goal {
            Goal::File { draft_path, .. } => File::create(draft_path),
            Goal::Through(place) if is_stdout(place) => stdout(),
            Goal::Through(place) => File::options().write(true).open(place),
        };
        let file = opened.map_err(|error| cannot("write", path, &error))?;
        Ok(Self { file: Some(BufWriter::with_capacity(1 << 20, file)), goal })
    }

    /// Appends bytes; a failure names the file.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write_all(bytes).map_err(|error| cannot("write", self.goal.path(), &error))
    }

    /// Flushes and moves the draft to its final name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let written = match self.file.take() {
            Some(file) => file.into_inner().map(drop).map_err(io::IntoInnerError::into_error),
            None => Ok(()),
        };
        written.map_err(|error| cannot("write", self.goal.path(), &error))?;
        match &self.goal {
            Goal::Through(_) => Ok(()),
            Goal::File { draft_path, path, replace } => settle(draft_path, path, *replace),
        }
    }
}

/// The process's stdout as a file, so that it is written as any other.
#[cfg(unix)]
fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

#[cfg(not(unix))]
fn stdout() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Where a file of that name goes, if it may be written at all.
fn goal(path: &Path) -> Result<Goal, Failure> {
    if is_stdout(path) {
        return Ok(Goal::Through(path.to_path_buf()));
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::input(format_args!("`{}` names no file to write", path.display())));
    };
    let (replace, path) = match session::permission(path)? {
        Permission::Through => return Ok(Goal::Through(path.to_path_buf())),
        Permission::Create => (false, path.to_path_buf()),
        // A link stays one: what it leads to is replaced.
        Permission::Replace => (true, path.canonicalize().unwrap_or_else(|_| path.to_path_buf())),
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| cannot("create the folder of", &path, &error))?;
    }
    let mut draft_name = std::ffi::OsString::from(".");
    draft_name.push(name);
    draft_name.push(format!(".{}.part", std::process::id()));
    Ok(Goal::File { draft_path: path.with_file_name(draft_name), path, replace })
}

/// Moves a finished draft to its place.
fn settle(draft_path: &Path, path: &Path, replace: bool) -> Result<(), Failure> {
    let moved = if replace {
        fs::rename(draft_path, path)
    } else {
        // A link, unlike a rename, never takes the place of a file that came to be meanwhile.
        match fs::hard_link(draft_path, path) {
            Ok(()) => fs::remove_file(draft_path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(session::exists(path));
            }
            // A file system without links.
            Err(_) if fs::symlink_metadata(path).is_err() => fs::rename(draft_path, path),
            Err(error) => Err(error),
        }
    };
    moved.map_err(|error| cannot("write", path, &error))?;
    own(path);
    claim::record(path)
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
        // After a finished move there is nothing left under this name.
        if let Goal::File { draft_path, .. } = &self.goal {
            let _ = fs::remove_file(draft_path);
        }
    }
}

/// A failed write: nothing the user's input could mend. Nobody is left to tell
/// where the reader of a pipe has gone.
pub fn cannot(verb: &str, path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::stdout(io::ErrorKind::BrokenPipe.into());
    }
    Failure::run(format_args!("cannot {verb} `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests;
