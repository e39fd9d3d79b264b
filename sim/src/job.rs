//! What is run: model, phase, batch, parallelism, number formats, overlap.

use crate::compression::Compression;
use crate::llm::Llm;

/// Number format of matrix arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Math {
    Fp32,
    /// FP16 or BF16: same rate, same bytes.
    Fp16,
    Fp8,
}

/// Number formats by tensor class, in bits a value; the optimizer's state in
/// bytes a parameter, since it mixes formats (12 for Adam with FP32 master).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    pub math: Math,
    pub weight_bits: f64,
    pub activation_bits: f64,
    /// Gradients as they accumulate in memory.
    pub gradient_bits: f64,
    /// Gradients as the data-parallel reduction carries them.
    pub gradient_reduce_bits: f64,
    pub kv_bits: f64,
    pub optimizer_bytes_per_parameter: f64,
}

impl Precision {
    /// BF16 weights and activations, FP32 gradients, Adam with FP32 state.
    pub const MIXED: Self = Self {
        math: Math::Fp16,
        weight_bits: 16.0,
        activation_bits: 16.0,
        gradient_bits: 32.0,
        gradient_reduce_bits: 32.0,
        kv_bits: 16.0,
        optimizer_bytes_per_parameter: 12.0,
    };
}

/// What activations are kept for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    None,
    /// Attention's quadratic part is computed again (Korthikanti 2022).
    Selective,
    /// Only layer inputs are kept; the forward pass runs twice.
    Full,
}

impl Recompute {
    /// As a configuration writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Full => "full",
        }
    }
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Scores written to memory, the masked half computed too (Megatron 2021).
    Materialized,
    /// Fused, causal, nothing quadratic kept (FlashAttention).
    Flash,
}

/// What data-parallel ranks share out among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Zero {
    /// Nothing: plain data parallelism.
    None,
    Optimizer,
    Gradients,
    Parameters,
}

impl Zero {
    /// Its number, 0 to 3.
    pub const fn stage(self) -> u8 {
        self as u8
    }
}

/// Order of micro-batches in the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    OneFOneB,
    /// Each stage holds this many chunks of layers (Narayanan 2021).
    Interleaved(u32),
}

impl Schedule {
    /// Chunks of layers on each stage.
    pub fn chunks(self) -> u32 {
        match self {
            Self::OneFOneB => 1,
            Self::Interleaved(chunks) => chunks.max(1),
        }
    }
}

/// How layers are dealt out to pipeline stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Equal layers; the last stage also computes the loss (Megatron).
    Layers,
    /// Stages of equal work, the loss counted as the layers it is worth.
    Work,
}

/// How the job is cut over GPUs. Ranks are laid out tensor, context, data,
/// pipeline from the inside out; experts share the data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    pub tensor: u32,
    pub sequence_parallel: bool,
    pub pipeline: u32,
    pub schedule: Schedule,
    pub split: Split,
    pub data: u32,
    pub zero: Zero,
    pub expert: u32,
    pub context: u32,
}

impl Parallelism {
    /// Everything on one GPU.
    pub const SINGLE: Self = Self {
        tensor: 1,
        sequence_parallel: false,
        pipeline: 1,
        schedule: Schedule::OneFOneB,
        split: Split::Layers,
        data: 1,
        zero: Zero::None,
        expert: 1,
        context: 1,
    };

    /// GPUs the job uses.
    pub fn gpus(&self) -> u64 {
        u64::from(self.tensor) * u64::from(self.context) * u64::from(self.data) * u64::from(self.pipeline)
    }
}

/// What is done with the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// One optimizer step.
    Training,
    /// One pass over the prompt.
    Prefill,
    /// One token for every sequence of the batch; `sequence` is the context.
    Decode,
}

/// Fraction of each kind of communication that may run beside compute. The
/// rest is exposed, and so is what compute is too short to hide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    pub tensor: f64,
    pub pipeline: f64,
    pub data: f64,
    pub expert: f64,
    pub context: f64,
    /// Decoding weights and KV kept compressed, and KV spilled to the host.
    pub storage: f64,
}

impl Overlap {
    /// Nothing hides.
    pub const NONE: Self =
        Self { tensor: 0.0, pipeline: 0.0, data: 0.0, expert: 0.0, context: 0.0, storage: 0.0 };
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub llm: Llm,
    pub phase: Phase,
    /// Tokens in a sequence; in decoding, tokens already in the cache.
    pub sequence: u32,
    /// Sequences in the whole batch.
    pub global_batch: u32,
    /// Sequences that pass through the pipeline together.
    pub microbatch: u32,
    pub parallelism: Parallelism,
    pub precision: Precision,
    pub recompute: Recompute,
    pub attention: AttentionKernel,
    pub overlap: Overlap,
    pub compression: Compression,
    /// Fraction of the KV cache kept in host memory.
    pub kv_spill: f64,
}

impl Job {
    /// Micro-batches of one data-parallel rank.
    pub fn microbatches(&self) -> u32 {
        self.global_batch / (self.parallelism.data * self.microbatch).max(1)
    }

    /// Tokens the job reads or writes in one iteration.
    pub fn tokens(&self) -> f64 {
        let each = match self.phase {
            Phase::Training | Phase::Prefill => f64::from(self.sequence),
            Phase::Decode => 1.0,
        };
        each * f64::from(self.global_batch)
    }
}
