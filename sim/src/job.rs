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
    /// NVFP4 or MXFP4.
    Fp4,
}

impl Math {
    /// As a configuration writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
        }
    }

    /// What operators that are kept from narrow formats take where products
    /// take this: attention's scores and the loss.
    pub const fn at_least_fp16(self) -> Self {
        match self {
            Self::Fp32 => Self::Fp32,
            Self::Fp16 | Self::Fp8 | Self::Fp4 => Self::Fp16,
        }
    }
}

/// Number formats by tensor class, in bits a value; the optimizer's state in
/// bytes a parameter, since it mixes formats (12 for Adam with FP32 master).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Products of activations with a layer's weights.
    pub math: Math,
    /// Attention's scores and their product with the values.
    pub attention: Math,
    /// The output projection before the loss.
    pub vocabulary: Math,
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
        attention: Math::Fp16,
        vocabulary: Math::Fp16,
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
    /// What is large and cheap is computed again: attention's quadratic part
    /// (Korthikanti 2022); with a fused kernel norms, activation functions and
    /// the up-projections of latent attention (Megatron-Core's modules).
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

/// Which weights a training step changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// All of them.
    All,
    /// Small adapters beside weights that stay as they are (LoRA): no gradient
    /// of a weight is computed, reduced or kept.
    Adapters,
}

impl Tuning {
    /// Products of the backward pass for each forward one: two, but one where
    /// no weight is trained.
    pub(crate) fn backward_products(self) -> f64 {
        match self {
            Self::All => 2.0,
            Self::Adapters => 1.0,
        }
    }
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
    /// Micro-batches enter at both ends and each GPU holds two stages, so that
    /// one direction's transfers run beside the other's compute (DualPipe,
    /// DeepSeek-V3, arXiv 2412.19437).
    DualPipe,
}

impl Schedule {
    /// Chunks of layers on each stage.
    pub fn chunks(self) -> u32 {
        match self {
            Self::OneFOneB | Self::DualPipe => 1,
            Self::Interleaved(chunks) => chunks.max(1),
        }
    }

    /// Stages of the model that each GPU holds.
    pub fn stages_held(self) -> f64 {
        match self {
            Self::OneFOneB | Self::Interleaved(_) => 1.0,
            Self::DualPipe => 2.0,
        }
    }

    /// Time that filling and draining a pipeline of `stages` leaves a GPU idle,
    /// with one micro-batch's passes and what it loses `between` them.
    /// DualPipe: (p/2 − 1)(F&B + B − 3W), a weight's gradient being half of the
    /// backward pass.
    pub fn filling_s(self, stages: f64, passes: (f64, f64, f64), between_s: f64) -> f64 {
        let (forward_s, recompute_s, backward_s) = passes;
        match self {
            Self::OneFOneB | Self::Interleaved(_) => {
                (stages - 1.0) * (forward_s + recompute_s + backward_s + between_s) / f64::from(self.chunks())
            }
            Self::DualPipe => {
                (stages / 2.0 - 1.0).max(0.0) * (forward_s + 2.0 * recompute_s + backward_s / 2.0 + between_s)
            }
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
/// pipeline from the inside out; experts share the
/// ranks of a stage.
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
    /// Ranks that share each expert: the tensor-parallel ones, or 1 where the
    /// experts' group spans them and each expert is whole.
    pub expert_tensor: u32,
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
        expert_tensor: 1,
        context: 1,
    };

    /// Copies of each expert.
    pub fn expert_copies(&self) -> u32 {
        let stage = self.tensor * self.context * self.data;
        (stage / (self.expert * self.expert_tensor).max(1)).max(1)
    }

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
    /// Reducing gradients.
    pub data: f64,
    /// Gathering weights that data-parallel ranks share out.
    pub gather: f64,
    pub expert: f64,
    pub context: f64,
    /// Decoding weights and KV kept compressed, KV spilled to the host, and KV
    /// sent to the workers that decode.
    pub storage: f64,
}

impl Overlap {
    /// Nothing hides.
    pub const NONE: Self =
        Self { tensor: 0.0, pipeline: 0.0, data: 0.0, gather: 0.0, expert: 0.0, context: 0.0, storage: 0.0 };
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub llm: Llm,
    pub phase: Phase,
    pub tuning: Tuning,
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
    /// Tokens that the busiest rank's experts get, over the mean.
    pub expert_imbalance: f64,
    /// Fraction of the KV cache kept in host memory.
    pub kv_spill: f64,
    /// Fraction of a prompt's KV cache that goes over network cards to workers
    /// that decode; of prefill alone.
    pub kv_transfer: f64,
}

impl Job {
    /// Micro-batches of one data-parallel rank.
    pub fn microbatches(&self) -> u32 {
        self.global_batch / (self.parallelism.data * self.microbatch).max(1)
    }

    /// Sequences that a stage decodes together where nobody says: a rank's whole
    /// batch, in as many parts as there are stages where it divides.
    pub fn decoded_together(&self) -> u32 {
        let sequences = (self.global_batch / self.parallelism.data.max(1)).max(1);
        let stages = self.parallelism.pipeline.max(1);
        if sequences.is_multiple_of(stages) { sequences / stages } else { sequences }
    }

    /// FLOPs that the model itself asks for in one iteration, whatever is computed
    /// twice, cut or cast: two for each parameter a token passes through and for
    /// each pair of its attention, three times as many in training (PaLM's count).
    pub fn model_flops(&self) -> f64 {
        let llm = &self.llm;
        let looked_up = match llm.vocabulary {
            crate::llm::Vocabulary::Tied => 0.0,
            crate::llm::Vocabulary::Untied => llm.embedding_parameters(),
        };
        let products = 2.0 * (llm.active_parameters() - looked_up);
        let (score_dim, value_dim) = llm.attention_dims();
        let blocks = llm.blocks();
        let attending = blocks.dense + blocks.sparse + blocks.attention;
        let narrow = llm.window.map_or(0.0, |window| f64::from(window.layers).min(attending));
        let context = f64::from(self.sequence);
        let seen = match self.phase {
            Phase::Training | Phase::Prefill => context / 2.0,
            Phase::Decode => context,
        };
        let window = llm.window.map_or(seen, |window| f64::from(window.tokens).min(seen));
        let pairs = (attending - narrow) * seen + narrow * window;
        let attention = 2.0 * pairs * f64::from(llm.heads) * (score_dim + value_dim);
        let passes = if self.phase == Phase::Training { 3.0 } else { 1.0 };
        passes * self.tokens() * (products + attention)
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
