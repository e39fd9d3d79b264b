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

/// What the software calls the stage that a module is.
const PARTS: &[(&str, &[&str])] = &[
    (
        "alignment",
        &["line_align", "line_align_lane", "line_float", "line_float_lane", "line_format", "line_exceptions"],
    ),
    ("prediction", &["line_enc_front", "line_row_class"]),
    ("transform", &["line_hadamard_inv"]),
    (
        "quantization",
        &[
            "line_candidates",
            "line_enc_forward",
            "line_trellis",
            "line_trellis_lane",
            "line_survivors",
            "line_traceback",
            "line_dequant",
        ],
    ),
    (
        "entropy",
        &[
            "line_classes",
            "line_enc_backward",
            "line_symbols",
            "line_rans_enc",
            "line_rans_push",
            "line_stack",
            "line_tables",
            "line_rans_dec",
            "line_search",
            "line_tail",
        ],
    ),
    ("framing", &["line_enc", "line_enc_out", "line_dec", "line_dec_ctl", "line_feed", "line_skid"]),
];

/// The part that a module is; an error where a new module has none.
pub fn part_of(module: &str) -> Result<&'static str, String> {
    let found = PARTS.iter().find(|(_, modules)| modules.contains(&module));
    found.map(|(part, _)| *part).ok_or_else(|| format!("{module} is part of no stage: see design.rs"))
}

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
