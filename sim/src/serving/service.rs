//! What a service is made of, and why one cannot answer: the words that the
//! simulation and its parts share.

use crate::{Cluster, Infeasible, Job};

/// How prompts and decoded tokens share an engine's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Waiting prompts run as steps of their own before decoding goes on.
    PrefillFirst,
    /// Every step decodes the whole batch and takes up to this many tokens of
    /// the prompts that wait.
    Chunked { tokens: u32 },
}

/// Which engines do what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pools {
    /// Every engine reads prompts and decodes.
    Shared { engines: u32 },
    /// Some read prompts, the others decode; the cache crosses the network.
    Disaggregated {
        prefill: u32,
        decode: u32,
        /// Bits per cached value on the wire; `None` sends it as it is stored.
        transfer_bits: Option<f64>,
    },
}

impl Pools {
    /// Engines of both kinds.
    pub fn engines(&self) -> u32 {
        match *self {
            Self::Shared { engines } => engines,
            Self::Disaggregated { prefill, decode, .. } => prefill + decode,
        }
    }
}

/// A service: one engine's machine and model, and how many of them work how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// The machine of one engine.
    pub engine: Cluster,
    /// Model, formats, compression and spill; phase, batch and sequence are
    /// the simulation's to set.
    pub job: Job,
    pub pools: Pools,
    pub batching: Batching,
    /// Sequences an engine decodes together at most.
    pub max_batch: u32,
    /// Share of an answer's cache that is kept free when a request is admitted:
    /// below 1, who came last is thrown out where caches no longer fit, and read anew.
    pub reserved_answer: f64,
    /// Share of each prompt whose cache is there already.
    pub prefix_hits: f64,
    pub usd_per_gpu_hour: f64,
}

/// Why a service cannot answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServingError {
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    #[error(
        "the engine's weights leave {left_gb:.1} GB of {capacity_gb:.1} GB, not enough for one token of cache"
    )]
    NoRoom { left_gb: f64, capacity_gb: f64 },
    #[error("request {index} needs a cache of {needed} tokens, an engine holds {capacity}")]
    TooLong { index: usize, needed: u64, capacity: u64 },
    #[error("request {index} {problem}")]
    Request { index: usize, problem: &'static str },
    #[error("there are no requests")]
    NoRequests,
    #[error("{name} is {value}, but must be {rule}")]
    Setting { name: &'static str, value: f64, rule: &'static str },
    #[error("the placement does not divide: {problem}")]
    Placement { problem: String },
    #[error("{why}; choose a precision whose kernels were measured on {gpu}")]
    Unmeasured { gpu: String, why: String },
    #[error("serving is modelled with tensor parallelism alone; {parallelism} parallelism is {ways}")]
    Parallelism { parallelism: &'static str, ways: u32 },
}

impl ServingError {
    /// Refuses a setting that does not fit its rule.
    pub fn setting(name: &'static str, value: f64, fits: bool, rule: &'static str) -> Result<(), Self> {
        if fits { Ok(()) } else { Err(Self::Setting { name, value, rule }) }
    }
}
