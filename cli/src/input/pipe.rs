//! Which files are pipes.

use std::fs::Metadata;

/// Whether what was found is a pipe, which waits for its other end.
#[cfg(unix)]
pub fn is_pipe(found: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type())
}

#[cfg(not(unix))]
pub fn is_pipe(_: &Metadata) -> bool {
    false
}
