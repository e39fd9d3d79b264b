//! What the explorer's page is made of, for build scripts: the module in the
//! page and the command that carries it state the same hash, or one of them is
//! out of date.

#[path = "fingerprint.rs"]
mod fingerprint;

use std::path::{Path, PathBuf};

/// States the hash of everything that the page computes with as `TRINITY_PAGE_SOURCES`;
/// `package` is the folder of the crate being built.
pub fn state(package: &str) {
    let root = Path::new(package).join("..");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root.join("models"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("src")))
        .filter(|folder| folder.is_dir())
        .collect();
    folders.sort();
    folders.extend(["web/src", "study/src", "sim/src", "configs"].map(|folder| root.join(folder)));
    fingerprint::state("TRINITY_PAGE_SOURCES", &folders);
}
