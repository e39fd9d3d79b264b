//! Where inputs come from: files, and stdin as `-`.
//!
//! Whatever is opened here, or named by an argument ([`register`]), is safe
//! from this very run: results never take its place (see `output`).

mod arguments;
mod pipe;

pub use arguments::{READ_BY_PARENT, protect, register};

use crate::failure::Failure;
use crate::output;
use pipe::is_pipe;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long a pipe may be without a writer.
const PATIENCE: Duration = Duration::from_secs(5);

pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether an input can be read once only, from front to back: stdin, a pipe.
pub fn is_streamed(path: &Path) -> bool {
    is_stdin(path) || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// An input to be read from front to back, and its length where it says so.
pub fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    if is_stdin(path) {
        return Ok((Box::new(io::stdin()), None));
    }
    output::protect(path);
    let waits = std::fs::metadata(path).is_ok_and(|found| is_pipe(&found));
    let file = if waits { open_pipe(path)? } else { File::open(path)? };
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((Box::new(file), found.is_file().then_some(found.len())))
}

/// Opens a pipe, unless nobody comes to write into it.
fn open_pipe(path: &Path) -> io::Result<File> {
    let (sender, opened) = mpsc::channel();
    let path = path.to_owned();
    // Opening waits for the writer, and nothing can call it back: it is left to wait on its own.
    std::thread::spawn(move || sender.send(File::open(path)));
    opened.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "it is a pipe, and nobody writes into it"))
    })
}

pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|(mut file, _)| file.read_to_end(&mut bytes));
    read.map_err(|error| unreadable(path, &error))?;
    Ok(bytes)
}

/// An input that is not there, or does not come.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::input(format_args!("cannot read `{}`: {error}", path.display()))
}
