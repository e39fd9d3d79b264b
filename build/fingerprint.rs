//! A hash of sources, for build scripts: what code computed is told apart by it
//! from what other code would have. Build scripts include this file by its path.

#[path = "../models/numeric/src/hash.rs"]
#[allow(dead_code, reason = "one function of a file that others use more of")]
mod hash;

use std::path::{Path, PathBuf};

/// Passes the 64-bit FNV-1a hash of all Rust and TOML files under some folders
/// to the crate's code as an environment variable.
///
/// A folder that is not there stops the build: its code would go unnoticed, and
/// cargo would take what is built for stale every time.
pub fn state(variable: &str, folders: &[PathBuf]) {
    let mut files = Vec::new();
    for folder in folders {
        if !folder.is_dir() {
            println!("cargo::error=no folder {} to take the hash of for {variable}", folder.display());
        }
        println!("cargo::rerun-if-changed={}", folder.display());
        gather(folder, &mut files);
    }
    // The order of a folder's files is the file system's; that of a sorted list is not.
    files.sort();
    let texts = files.iter().flat_map(|path| std::fs::read(path).unwrap_or_default().into_iter().chain([0]));
    let hash = hash::fnv1a(texts);
    println!("cargo::rustc-env={variable}={hash:016x}");
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            gather(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "toml") {
            files.push(path);
        }
    }
}
