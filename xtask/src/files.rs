//! Files and folders, with errors that name them.
//!
//! Knows paths; what a file says is its reader's affair.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What is said where something cannot be done to a file.
fn failed(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("cannot {verb} {path}: {error}")
}

pub fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(failed("read", path))
}

pub fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(failed("read", path))
}

pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(path, content).map_err(failed("write", path))
}

/// Makes a folder, and those it lies in.
pub fn folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(failed("make", path))
}

/// What lies in a folder, in order.
pub fn within(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(failed("read", folder))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

/// What of a folder has that ending, in order; nothing where there is no folder.
pub fn ending_in(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths = within(folder).unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|own| own == ending));
    paths
}
