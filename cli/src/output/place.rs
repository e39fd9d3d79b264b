//! Names of places that are no files, and what is said where one cannot be written.

use crate::failure::Failure;
use std::io;
use std::path::Path;

pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// A failed write: nothing the user's input could mend. Nobody is left to tell
/// where the reader of a pipe has gone.
pub fn cannot(verb: &str, path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::stdout(io::ErrorKind::BrokenPipe.into());
    }
    Failure::run(format_args!("cannot {verb} `{}`: {error}", path.display()))
}
