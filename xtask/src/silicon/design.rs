//! What is built, where, and how it may fail.

use crate::workspace::root;
use std::{fs, path::PathBuf};

/// A top of the RTL: what is synthesized, and the bench that drives it.
#[derive(Debug, Clone, Copy)]
pub struct Design {
    pub top: &'static str,
    pub what: &'static str,
}

pub const DESIGNS: &[Design] =
    &[Design { top: "line_dec", what: "decoder" }, Design { top: "line_enc", what: "encoder" }];

/// What went wrong, and whether it is the machine that lacks something.
#[derive(Debug)]
pub enum Failure {
    Missing(String),
    Failed(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Where everything that is built goes.
pub fn folder() -> PathBuf {
    root().join("target/silicon")
}

/// Files of tensors to take switching from: the captured ones where they are.
pub fn captured() -> Vec<PathBuf> {
    let folder = root().join("../shared/captured");
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .collect();
    files.sort();
    files
}
