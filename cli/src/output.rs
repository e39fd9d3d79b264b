//! Where results go: the one layer that every command writes through.
//!
//! What it promises, whatever the command:
//! - A file appears whole or not at all: it is written beside its place, then
//!   moved there.
//! - No file is replaced that this run did not write, unless `--force` is
//!   given; a file that already holds the very bytes is left alone. Results in
//!   a folder that the same work wrote before ([`lock`]) may be renewed.
//! - A file that the run reads ([`protect`]) is never replaced, even with
//!   `--force`, under whatever name or link.
//! - Devices, pipes and `/dev/stdout` are written through, and stay what they
//!   are; `-` is stdout.
//! - No two results of a run share a name, and no input of it is in the way of
//!   one unseen.
//! - A disk or folder that cannot be written is a failed run, exit 1.
//!
//! Knows paths and bytes; knows nothing of what they mean.

mod lock;
mod name;
mod place;
mod session;
mod spool;

pub use lock::lock;
pub use name::{Named, format_of};
pub use place::{cannot, is_stdout};
pub use session::{
    are_one, force as forced, may_use_stdout, own, protect, protect_found, refuse_input, set_force, set_json,
};
pub use spool::Spool;

use crate::failure::Failure;
use session::Permission;
use std::{
    fs::{self, File, TryLockError},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};
use trinity_tensor::file::AtomicFile;

/// Writes a whole file at once, creating the folder it lives in.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if holds(path, bytes) {
        session::take(path)?;
        own(path);
        return Ok(());
    }
    let mut draft = Draft::create(path)?;
    draft.put(bytes)?;
    draft.finish()
}

/// As [`write()`], of a file that the run keeps up to date: it may be written
/// again and again.
pub fn renew(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if holds(path, bytes) {
        own(path);
        return Ok(());
    }
    let mut draft = Draft::open(goal(path)?)?;
    draft.put(bytes)?;
    draft.finish()
}

/// Whether a file is there already in these very bytes, and so needs no
/// permission.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes.len() as u64)
        && fs::read(path).is_ok_and(|found| found == bytes)
}

/// Opens a file that grows while the command runs, with what it holds; the
/// rules are those of a file that is replaced, and one run at a time has it.
pub fn grow(path: &Path) -> Result<File, Failure> {
    let Goal::File { path, .. } = goal(path)? else {
        return Err(Failure::input(format_args!("`{}` is no file that can grow", path.display())));
    };
    let opened = File::options().read(true).append(true).create(true).open(&path);
    let file = opened.map_err(|error| cannot("write", &path, &error))?;
    // A file system without locks leaves it to the user not to run one thing twice at once.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(Failure::input(format_args!("another run is writing `{}` right now", path.display()))
            .help("wait for it to end, or choose another folder with --out"));
    }
    own(&path);
    lock::record(&path)?;
    Ok(file)
}

/// Where a draft ends up.
#[derive(Debug)]
enum Goal {
    /// Written beside, then moved; whether it may take the place of another.
    File { path: PathBuf, replace: bool },
    /// Written to directly: a device, a pipe, stdout.
    Through(PathBuf),
}

/// What a draft is written to.
#[derive(Debug)]
enum Sink {
    Beside { file: AtomicFile, replace: bool },
    Through(BufWriter<File>),
}

/// A file being written under a temporary name; [`Draft::finish`] puts it in
/// place, dropping it without that removes it.
#[derive(Debug)]
pub struct Draft {
    sink: Sink,
    path: PathBuf,
}

impl Draft {
    /// Opens a draft beside `path`, creating the folder where it is missing.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let goal = goal(path)?;
        if matches!(goal, Goal::File { .. }) {
            session::take(path)?;
        }
        Self::open(goal)
    }

    fn open(goal: Goal) -> Result<Self, Failure> {
        let through = |file| Sink::Through(BufWriter::with_capacity(1 << 20, file));
        let (opened, path) = match goal {
            Goal::File { path, replace } => {
                (AtomicFile::beside(&path).map(|file| Sink::Beside { file, replace }), path)
            }
            Goal::Through(place) if is_stdout(&place) => (stdout().map(through), place),
            Goal::Through(place) => (File::options().write(true).open(&place).map(through), place),
        };
        let sink = opened.map_err(|error| cannot("write", &path, &error))?;
        Ok(Self { sink, path })
    }

    /// Appends bytes; a failure names the file.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write_all(bytes).map_err(|error| cannot("write", &self.path, &error))
    }

    /// Flushes and moves the draft to its final name.
    pub fn finish(self) -> Result<(), Failure> {
        match self.sink {
            Sink::Through(mut file) => file.flush().map_err(|error| cannot("write", &self.path, &error)),
            Sink::Beside { file, replace } => settled(&self.path, file.place(replace)),
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
        session::may_use_stdout()?;
        return Ok(Goal::Through(path.to_path_buf()));
    }
    if path.file_name().is_none() {
        return Err(Failure::input(format_args!("`{}` names no file to write", path.display())));
    }
    let (replace, path) = match session::permission(path)? {
        Permission::Through => return Ok(Goal::Through(path.to_path_buf())),
        Permission::Create => (false, path.to_path_buf()),
        // A link stays one: what it leads to is replaced.
        Permission::Replace => (true, path.canonicalize().unwrap_or_else(|_| path.to_path_buf())),
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| cannot("create the folder of", &path, &error))?;
    }
    Ok(Goal::File { path, replace })
}

/// What became of a file that was moved to its place.
fn settled(path: &Path, moved: io::Result<()>) -> Result<(), Failure> {
    match moved {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(session::exists(path)),
        moved => moved.map_err(|error| cannot("write", path, &error))?,
    }
    own(path);
    lock::record(path)
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Beside { file, .. } => file.write(bytes),
            Sink::Through(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside { file, .. } => file.flush(),
            Sink::Through(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests;
