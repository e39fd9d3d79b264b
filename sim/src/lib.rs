//! What a cluster does with a language model, in closed form.
//!
//! [`estimate`] is a pure function of plain data: no allocation, no threads,
//! no files. That is what lets a sweep evaluate a million configurations a
//! second on one core and compute any point again from its index.
//!
//! The crate knows GPUs, wires, codecs by their rates, and transformers by
//! their shapes. It does not know how a compression ratio was obtained, nor
//! where a configuration was read from.
//!
//! ```
//! use trinity_sim::collective::{Algorithm, Link, Switching, Topology};
//! use trinity_sim::nccl;
//!
//! let link = Link {
//!     bytes_per_s: 300e9,
//!     latency_s: 1e-6,
//!     launch_s: 5e-6,
//!     topology: Topology::Switch,
//!     switching: Switching::CutThrough,
//!     all_reduce: Algorithm::Nccl,
//!     energy_j_per_bit: 8e-12,
//! };
//! assert!(nccl::all_reduce_s(&link, 8, 2e9) > nccl::all_reduce_s(&link, 8, 1e9));
//! ```
#![forbid(unsafe_code)]

mod best;
pub mod collective;
pub mod compression;
pub mod compute;
pub mod die;
mod energy;
mod estimate;
pub mod event;
mod explain;
mod flops;
mod hardware;
pub mod host;
mod job;
pub mod kernels;
mod layout;
mod levels;
mod link;
mod llm;
pub mod memory;
pub mod nccl;
mod outcome;
mod reason;
mod schedule;
pub mod serving;
mod software;
pub mod sweep;

/// A hash of everything the model is made of: what another version computed is
/// not what this one would.
pub const VERSION: &str = env!("TRINITY_MODEL");

pub use best::best;
pub use compression::{Codec, Compression, Reduction};
pub use estimate::{estimate, time};
pub use explain::{Footprint, explain, footprint};
pub use hardware::{Cluster, Curve, Gpu, MeasuredKernels, Nic, PeakFlops, Tier};
pub use job::{
    AttentionKernel, Job, Math, Overlap, Parallelism, Phase, Precision, Recompute, Schedule, Split, Tuning,
    Zero,
};
pub use layout::{Layout, Search};
pub use levels::{Level, Levels};
pub use llm::{Attention, Blocks, Llm, Mamba, Mlp, Moe, Vocabulary, Window};
pub use outcome::{AreaByKind, Breakdown, EnergyByKind, Estimate, Infeasible, Line, MemoryByKind};
pub use reason::Reason;
pub use software::{ByFormat, Software};
