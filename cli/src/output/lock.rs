//! Folders of results, and whose they are.
//!
//! A folder that a command fills (`--out`) holds a small file that says which
//! work wrote it and which files are its own. The same work may renew those;
//! other work is refused, by both names, so that no result of one sweep is lost
//! to another. As long as a run lives it holds that file's lock, together with
//! other parts of the same work: nobody takes the folder from under it.

use super::place::cannot;
use super::session;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file's name: the work on its first line, then a file on each.
pub const MARKER: &str = ".trinity-run";

#[derive(Debug)]
struct FolderLock {
    folder: PathBuf,
    files: BTreeSet<String>,
    /// Open for appending, and locked until the process ends.
    marker: File,
}

static LOCKS: Mutex<Vec<FolderLock>> = Mutex::new(Vec::new());

/// Takes a folder for a piece of work, named as a user would know it again.
pub fn lock(folder: &Path, work: &str) -> Result<(), Failure> {
    let work = work.replace(['\n', '\r'], " ");
    let path = folder.join(MARKER);
    let failed = |error: io::Error| cannot("write", &path, &error);
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // A folder taken twice by one run is let go first, lest it wait for itself.
    locks.retain(|lock| lock.folder != folder);
    fs::create_dir_all(folder).map_err(|error| cannot("create the folder", folder, &error))?;
    let mut marker = File::options().read(true).append(true).create(true).open(&path).map_err(failed)?;
    let alone = match marker.try_lock() {
        // Where a file system has no locks, the names in the file are all there is.
        Ok(()) | Err(TryLockError::Error(_)) => true,
        Err(TryLockError::WouldBlock) => {
            // Others are at work here; what they are at is said in a moment.
            let _ = marker.lock_shared();
            false
        }
    };
    let mut found = String::new();
    // A marker that is no text says nothing.
    marker.read_to_string(&mut found).unwrap_or_default();
    let mut lines = found.lines();
    let other = lines.next().filter(|other| *other != work);
    // What a failed run left is a claim to nothing.
    let mut files: BTreeSet<String> =
        lines.filter(|file| folder.join(file).exists()).map(String::from).collect();
    match other {
        Some(other) if !alone => return Err(busy(folder, other, &work)),
        Some(other) if !files.is_empty() && !session::force() => {
            return Err(Failure::input(format_args!(
                "`{}` holds the results of `{other}`, and this is `{work}`",
                folder.display()
            ))
            .help("choose another folder with --out, or replace those results with --force"));
        }
        Some(_) => files.clear(),
        None => {}
    }
    if alone && (other.is_some() || found.is_empty()) {
        let written = marker.set_len(0).and_then(|()| marker.rewind());
        written.and_then(|()| marker.write_all(format!("{work}\n").as_bytes())).map_err(|error| {
            // What is left of it says nothing, and the failure is said already.
            let _ = fs::remove_file(&path);
            failed(error)
        })?;
    }
    if alone {
        // Parts of the same work may come now; other work may have come in between.
        let _ = marker.lock_shared();
        if let Some(other) = first_line(&mut marker).filter(|other| *other != work) {
            return Err(busy(folder, &other, &work));
        }
    }
    for file in &files {
        session::own(&folder.join(file));
    }
    locks.push(FolderLock { folder: folder.to_path_buf(), files, marker });
    Ok(())
}

fn first_line(marker: &mut File) -> Option<String> {
    let mut text = String::new();
    marker.rewind().and_then(|()| marker.read_to_string(&mut text)).ok()?;
    text.lines().next().map(str::to_owned)
}

fn busy(folder: &Path, other: &str, work: &str) -> Failure {
    Failure::input(format_args!(
        "`{}` is being filled by `{other}` right now, and this is `{work}`",
        folder.display()
    ))
    .help("choose another folder with --out, or wait for that run to end")
}

/// Notes a file just written, if it lies in a folder that was taken.
pub(super) fn record(path: &Path) -> Result<(), Failure> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |lock: &&mut FolderLock| {
        lock.folder == folder || lock.folder.canonicalize().is_ok_and(|own| own == folder)
    };
    let Some(lock) = locks.iter_mut().find(same) else { return Ok(()) };
    if !lock.files.insert(name.to_owned()) {
        return Ok(());
    }
    // Parts of one work may do so at the same time: a line each, in one piece, at the end.
    let written = lock.marker.write_all(format!("{name}\n").as_bytes());
    written.map_err(|error| cannot("write", &lock.folder.join(MARKER), &error))
}
