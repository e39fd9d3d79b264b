//! Folders of results, and whose they are.
//!
//! A folder that a command fills (`--out`) holds a small file that says which
//! work wrote it and which files are its own. The same work may renew those;
//! other work is refused, by both names, so that no result of one sweep is lost
//! to another.

use super::place::cannot;
use super::session;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file's name: the work on its first line, then a file on each.
pub const MARKER: &str = ".trinity-run";

#[derive(Debug)]
struct Claim {
    folder: PathBuf,
    work: String,
    files: BTreeSet<String>,
}

static CLAIMS: Mutex<Vec<Claim>> = Mutex::new(Vec::new());

/// Takes a folder for a piece of work, named as a user would know it again.
pub fn claim(folder: &Path, work: &str) -> Result<(), Failure> {
    let work = work.replace(['\n', '\r'], " ");
    let marker = folder.join(MARKER);
    let found = fs::read_to_string(&marker).unwrap_or_default();
    let mut lines = found.lines();
    let other = lines.next().filter(|other| *other != work);
    // What a failed run left is a claim to nothing.
    let mut files: BTreeSet<String> =
        lines.filter(|file| folder.join(file).exists()).map(String::from).collect();
    let other = other.filter(|_| !files.is_empty());
    match other {
        Some(other) if !session::force() => {
            return Err(Failure::input(format_args!(
                "`{}` holds the results of `{other}`, and this is `{work}`",
                folder.display()
            ))
            .help("choose another folder with --out, or replace those results with --force"));
        }
        Some(_) => files.clear(),
        None => {}
    }
    for file in &files {
        session::own(&folder.join(file));
    }
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    claims.retain(|claim| claim.folder != folder);
    claims.push(Claim { folder: folder.to_path_buf(), work, files });
    Ok(())
}

/// Notes a file just written, if it lies in a folder that was taken.
pub(super) fn record(path: &Path) -> Result<(), Failure> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |claim: &&mut Claim| {
        claim.folder == folder || claim.folder.canonicalize().is_ok_and(|own| own == folder)
    };
    let Some(claim) = claims.iter_mut().find(same) else { return Ok(()) };
    if !claim.files.insert(name.to_owned()) {
        return Ok(());
    }
    let lines: String =
        std::iter::once(&claim.work).chain(&claim.files).map(|line| format!("{line}\n")).collect();
    let marker = claim.folder.join(MARKER);
    // Shards of one sweep may do so at the same time: each time the whole file, and the last one stays.
    let part = marker.with_file_name(format!("{MARKER}.{}.part", std::process::id()));
    fs::write(&part, lines).and_then(|()| fs::rename(&part, &marker)).map_err(|error| {
        // What is left of it says nothing, and the failure is said already.
        let _ = fs::remove_file(&part);
        cannot("write", &marker, &error)
    })
}
