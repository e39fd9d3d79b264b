//! What this run reads, what it has written, and what it may replace.
//!
//! One list for the whole process: whichever module opens an input or writes a
//! result, no other can undo the promise.

use crate::failure::Failure;
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// A file whatever its names: device, inode, and when it was made, since a new file may get the inode of one that is
/// gone.
type Identity = (u64, u64, Option<SystemTime>);

#[derive(Debug, Default)]
struct Session {
    force: bool,
    /// Whether stdout carries JSON about the result.
    json: bool,
    inputs: Vec<Identity>,
    /// Written by this run, or by an earlier one of the same work.
    own: Option<HashSet<PathBuf>>,
    /// Names that results of this run have taken.
    taken: Option<HashSet<PathBuf>>,
}

static SESSION: Mutex<Session> =
    Mutex::new(Session { force: false, json: false, inputs: Vec::new(), own: None, taken: None });

fn session() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `--force` says.
pub fn set_force(force: bool) {
    session().force = force;
}

/// What `--json` says.
pub fn set_json(json: bool) {
    session().json = json;
}

/// Refuses what would put a result and JSON about it on one stdout.
pub fn may_use_stdout() -> Result<(), Failure> {
    if session().json {
        return Err(Failure::input("the result and --json both go to stdout")
            .help("name a file for the result with -o, or leave --json out"));
    }
    Ok(())
}

pub fn force() -> bool {
    session().force
}

#[cfg(unix)]
fn identity(found: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some((found.dev(), found.ino(), found.created().ok()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<Identity> {
    None
}

/// Remembers a file that this run reads: it will not be replaced.
pub fn protect(path: &Path) {
    if let Ok(found) = fs::metadata(path) {
        protect_found(&found);
    }
}

/// As [`protect`], of a file that is open already. Pipes and devices are
/// written through, and lose nothing by it.
pub fn protect_found(found: &Metadata) {
    if let Some(input) = identity(found).filter(|_| found.is_file()) {
        session().inputs.push(input);
    }
}

/// Whether two names lead, or would lead, to one file.
pub fn are_one(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| fs::metadata(path).ok();
    match (found(one), found(other)) {
        (Some(one), Some(other)) => {
            one.is_file() && identity(&one).is_some_and(|id| identity(&other) == Some(id))
        }
        _ => absolute(one) == absolute(other),
    }
}

/// Takes a name for a result; no other result of this run may have it.
pub(super) fn take(path: &Path) -> Result<(), Failure> {
    let absolute = absolute(path);
    if session().taken.get_or_insert_default().insert(absolute) {
        return Ok(());
    }
    Err(Failure::input(format_args!("`{}` would hold two results of this command", path.display()))
        .help("give each result a name of its own"))
}

/// Remembers a file that may be renewed: this run wrote it, or found it to be
/// its own from an earlier run.
pub fn own(path: &Path) {
    session().own.get_or_insert_default().insert(absolute(path));
}

/// One spelling for all names of a file, there or not yet.
fn absolute(path: &Path) -> PathBuf {
    let in_folder = || Some(path.parent()?.join(".").canonicalize().ok()?.join(path.file_name()?));
    let known = path.canonicalize().ok().or_else(in_folder);
    known.or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_path_buf())
}

/// Refuses to write where this run reads.
pub fn refuse_input(path: &Path) -> Result<(), Failure> {
    let found = fs::metadata(path).ok().as_ref().and_then(identity);
    if found.is_some_and(|found| session().inputs.contains(&found)) {
        return Err(Failure::input(format_args!("`{}` is an input of this very command", path.display()))
            .help("choose another name for the result; --force does not replace an input"));
    }
    Ok(())
}

/// How a path may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Create,
    Replace,
    /// A device or a pipe, which nothing must replace.
    Through,
}

pub(super) fn permission(path: &Path) -> Result<Permission, Failure> {
    let Ok(found) = fs::metadata(path) else {
        if fs::symlink_metadata(path).is_ok() {
            return Err(Failure::input(format_args!("`{}` is a link that leads nowhere", path.display()))
                .help("remove it, or choose another name"));
        }
        return Ok(Permission::Create);
    };
    if found.is_dir() {
        return Err(Failure::input(format_args!("`{}` is a folder, not a file to write", path.display())));
    }
    if !found.is_file() {
        return Ok(Permission::Through);
    }
    refuse_input(path)?;
    let session = session();
    let mine = session.own.as_ref().is_some_and(|own| own.contains(&absolute(path)));
    if mine || session.force {
        return Ok(Permission::Replace);
    }
    Err(exists(path))
}

/// Why a file stays as it is.
pub(super) fn exists(path: &Path) -> Failure {
    Failure::input(format_args!("`{}` exists already", path.display()))
        .help("choose another name for the result, or replace the file with --force")
}
