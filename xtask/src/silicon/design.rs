//! What is built, where, and how it may fail.

use crate::workspace::root;
use std::{fs, path::PathBuf};

/// What is synthesized: a top of the RTL, and how many states of the trellis it has.
#[derive(Debug, Clone, Copy)]
pub struct Design {
    pub name: &'static str,
    /// The module, and the bench that drives it.
    pub top: &'static str,
    pub what: &'static str,
    pub states: u32,
    pub vectors: Vectors,
}

/// What a bench is driven with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vectors {
    /// Whole streams.
    Streams,
    /// Groups of 32 targets under that transform.
    Groups(&'static str),
    /// Numbers of every format.
    Numbers,
}

/// The trellis that the RTL has where nothing is said.
pub const STATES: u32 = 8;

pub const DESIGNS: &[Design] = &[
    codec("line_dec", "line_dec", "decoder", STATES),
    codec("line_enc", "line_enc", "encoder", STATES),
    codec("line_enc_4", "line_enc", "encoder, trellis of 4 states", 4),
    codec("line_enc_1", "line_enc", "encoder without trellis", 1),
    stage("line_hadamard", "Hadamard-32 of an encoder, apart", Vectors::Groups("hadamard")),
    stage("line_dct", "DCT-32 of an encoder, apart", Vectors::Groups("dct")),
];

const fn codec(name: &'static str, top: &'static str, what: &'static str, states: u32) -> Design {
    Design { name, top, what, states, vectors: Vectors::Streams }
}

const fn stage(name: &'static str, what: &'static str, vectors: Vectors) -> Design {
    Design { name, top: name, what, states: STATES, vectors }
}

/// Modules of a design that have a bench of their own.
pub const BENCHES: &[Design] = &[stage("line_widen", "numbers to fp32", Vectors::Numbers)];

impl Design {
    /// Whether it is the RTL as it stands.
    pub fn is_whole(&self) -> bool {
        self.states == STATES
    }

    /// The macro that tools are given.
    pub fn define(&self) -> String {
        format!("-DLINE_STATES={}", self.states)
    }
}

/// What the software calls the stage that a module is.
const PARTS: &[(&str, &[&str])] = &[
    (
        "alignment",
        &[
            "line_widen",
            "line_align",
            "line_align_lane",
            "line_float",
            "line_float_lane",
            "line_format",
            "line_exceptions",
        ],
    ),
    ("prediction", &["line_enc_front", "line_row_class"]),
    ("transform", &["line_hadamard_inv", "line_hadamard", "line_dct"]),
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
