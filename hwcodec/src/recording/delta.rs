//! What applying a delta took.

use crate::stats::Spread;
use serde::{Deserialize, Serialize};

/// Who decompresses a delta in a pipelined run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeltaDecoder {
    /// zstd on CPU threads.
    Cpu,
    /// nvCOMP's zstd on the GPU.
    Nvcomp,
    /// The line-rate codec on the GPU, at steps that give every number back.
    Line,
    /// The line-rate codec on the GPU, of a difference in every value, at a loss;
    /// the synchronous run decodes on all CPU threads.
    LineDense,
}

/// The delta pipeline: decompress, copy, add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeltaPoint {
    /// What decompresses in the pipelined run: CPU threads, or 0 for nvCOMP on the GPU. The
    /// synchronous run has one thread.
    pub threads: u32,
    /// Who decompresses in the pipelined run; recordings of before have none, and `threads` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<DeltaDecoder>,
    pub elements: u64,
    pub changed: u64,
    pub chunks: u32,
    pub compressed_bytes: u64,
    pub synchronous_s: Spread,
    pub pipelined_s: Spread,
    /// The stages alone, one thread.
    pub decompress_s: f64,
    pub copy_and_scatter_s: f64,
    /// The reconstruction equalled the tuned tensor exactly.
    pub exact: bool,
}
