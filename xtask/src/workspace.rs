//! Where the workspace is.

use crate::files::ending_in;
use std::path::{Path, PathBuf};

/// The folder that holds the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

/// The folder of shared data, beside the repository or further up.
pub fn shared() -> PathBuf {
    let root = root();
    let found = root.ancestors().skip(1).map(|folder| folder.join("shared")).find(|path| path.is_dir());
    found.unwrap_or_else(|| root.join("../shared"))
}

/// Captured tensors beside the repository.
pub fn captured() -> Vec<PathBuf> {
    ending_in(&shared().join("captured"), "safetensors")
}

/// Tensors of models that were not trained here.
pub fn captured_of_others() -> Vec<PathBuf> {
    ending_in(&shared().join("captured/real"), "safetensors")
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root().join(given)
}
