//! Memory of the fullest GPU, by kind.
//!
//! Training activations follow Korthikanti et al. 2022 (arXiv 2205.05198,
//! equations 1–6), extended to grouped queries, gated feed-forward blocks,
//! fused attention and context parallelism.

use crate::hardware::{Cluster, Software};
use crate::job::{AttentionKernel, Job, Phase, Recompute, Split, Zero};
use crate::llm::{Mlp, Vocabulary};
use crate::outcome::MemoryByKind;

/// Parameters of the fullest pipeline stage on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LocalParameters {
    /// Replicated over all data-parallel ranks.
    pub dense: f64,
    /// Replicated only over the ranks that hold the same experts.
    pub experts: f64,
}

/// Layers of the fullest stage.
pub fn layers_per_stage(job: &Job) -> u32 {
    job.llm.layers.div_ceil(job.parallelism.pipeline)
}

/// Layers of the mean stage. Where layers do not divide, frameworks count the
/// vocabulary as layers to even stages out, so the mean is what a step takes.
pub fn mean_layers_per_stage(job: &Job) -> f64 {
    f64::from(job.llm.layers) / f64::from(job.parallelism.pipeline)
}

/// Parameters held by one GPU of the fullest stage, before ZeRO.
pub fn local_parameters(job: &Job) -> LocalParameters {
    let llm = &job.llm;
    let t = f64::from(job.parallelism.tensor);
    let layers = match job.parallelism.split {
        Split::Layers => f64::from(layers_per_stage(job)),
        Split::Work => mean_layers_per_stage(job),
    };
    let sparse_fraction =
        llm.moe.map_or(0.0, |moe| 1.0 - f64::from(moe.dense_layers) / f64::from(llm.layers));
    let (router, shared, experts) = llm.moe.map_or((0.0, 0.0, 0.0), |moe| {
        (
            f64::from(llm.hidden) * f64::from(moe.experts),
            f64::from(moe.shared_experts) * llm.expert_parameters() / t,
            f64::from(moe.experts) / f64::from(job.parallelism.expert) * llm.expert_parameters() / t,
        )
    });
    let dense_layer = llm.attention_parameters() / t
        + llm.norm_parameters()
        + (1.0 - sparse_fraction) * llm.dense_mlp_parameters() / t
        + sparse_fraction * (router + shared);
    let copies = match (llm.vocabulary, job.parallelism.pipeline) {
        (Vocabulary::Untied, 1) => 2.0,
        _ => 1.0,
    };
    let embeddings = copies * llm.embedding_parameters() / t
        + f64::from(llm.positions) * f64::from(llm.hidden)
        + f64::from(llm.hidden);
    LocalParameters { dense: layers * dense_layer + embeddings, experts: layers * sparse_fraction * experts }
}

/// Parameters after sharing `kind` over the ranks that would hold copies.
pub fn sharded_parameters(job: &Job, local: &LocalParameters, kind: Zero) -> f64 {
    let p = &job.parallelism;
    if p.zero < kind {
        return local.dense + local.experts;
    }
    let replicas = f64::from(p.data) * f64::from(p.context);
    local.dense / replicas + local.experts / (replicas / f64::from(p.expert)).max(1.0)
}

/// Memory of the fullest GPU.
pub fn memory(cluster: &Cluster, job: &Job) -> MemoryByKind {
    MemoryByKind {
        codec_staging_bytes: codec_staging_bytes(cluster, job),
        ..without_codec(cluster, job, &local_parameters(job))
    }
}

/// Everything but the codec's staging.
pub(crate) fn without_codec(cluster: &Cluster, job: &Job, local: &LocalParameters) -> MemoryByKind {
    let precision = &job.precision;
    let stored_bits = match job.phase {
        Phase::Training => precision.weight_bits,
        _ => job.compression.weight_bits.unwrap_or(precision.weight_bits),
    };
    let mut memory = MemoryByKind {
        weights_bytes: sharded_parameters(job, local, Zero::Parameters) * stored_bits / 8.0,
        buffers_bytes: cluster.gpu.reserved_bytes,
        ..MemoryByKind::default()
    };
    match job.phase {
        Phase::Training => {
            memory.gradients_bytes =
                sharded_parameters(job, local, Zero::Gradients) * precision.gradient_bits / 8.0;
            memory.optimizer_bytes =
                sharded_parameters(job, local, Zero::Optimizer) * precision.optimizer_bytes_per_parameter;
            memory.activations_bytes = training_activations_bytes(&cluster.gpu.software, job);
        }
        Phase::Prefill | Phase::Decode => {
            memory.activations_bytes = inference_activations_bytes(job);
            memory.kv_bytes = kv_bytes(job);
        }
    }
    memory
}

/// Activations kept between forward and backward passes on the fuller of the
/// first stage, which has most micro-batches in flight, and the last, which
/// has the loss.
fn training_activations_bytes(software: &Software, job: &Job) -> f64 {
    let p = &job.parallelism;
    let layers = match p.split {
        Split::Layers => f64::from(layers_per_stage(job)),
        Split::Work => mean_layers_per_stage(job),
    };
    let stages = f64::from(p.pipeline);
    let chunks = f64::from(p.schedule.chunks());
    let in_flight = if p.pipeline == 1 {
        1.0
    } else {
        let ahead = if chunks > 1.0 { 1.0 + (stages - 1.0) / (stages * chunks) } else { 1.0 };
        (stages * ahead).min(f64::from(job.microbatches()))
    };
    let kept = match job.recompute {
        Recompute::Full => layer_input_bytes(job),
        _ => layer_activations_bytes(software, job),
    };
    // While a checkpointed layer runs backward, all of it is alive once.
    let working = match job.recompute {
        Recompute::Full => layer_activations_bytes(software, job),
        _ => 0.0,
    };
    let first = layers * in_flight * kept;
    let last = layers * kept + logits_bytes(software, job);
    working + first.max(last)
}

fn tokens(job: &Job) -> f64 {
    f64::from(job.microbatch) * f64::from(job.sequence) / f64::from(job.parallelism.context)
}

fn layer_input_bytes(job: &Job) -> f64 {
    let share = if job.parallelism.sequence_parallel { f64::from(job.parallelism.tensor) } else { 1.0 };
    tokens(job) * f64::from(job.llm.hidden) * job.precision.activation_bits / 8.0 / share
}

/// Everything one layer keeps for its backward pass.
fn layer_activations_bytes(software: &Software, job: &Job) -> f64 {
    let llm = &job.llm;
    let t = f64::from(job.parallelism.tensor);
    let share = if job.parallelism.sequence_parallel { t } else { 1.0 };
    let h = f64::from(llm.hidden);
    let bytes = job.precision.activation_bits / 8.0;
    let q = f64::from(llm.heads) * f64::from(llm.head_dim);
    let kv = llm.kv_values_per_token_layer();
    // Inputs of two norms, of attention and of the feed-forward block, and
    // two dropout masks of one byte: 10·s·b·h of the paper at two bytes.
    let stream = h * (4.0 * bytes + 2.0) / share;
    // Queries, keys, values, and the input of the output projection.
    let attention = (2.0 * q + kv) * bytes / t;
    let (width, tokens_factor) = llm.moe.map_or((f64::from(llm.ffn), 1.0), |moe| {
        (f64::from(moe.expert_ffn), f64::from(moe.top_k + moe.shared_experts))
    });
    let mlp_values = match llm.mlp {
        Mlp::Gelu => 2.0 * width,
        Mlp::SwiGlu => 3.0 * width,
    };
    let mlp = tokens_factor * mlp_values * bytes / t;
    let scores = match (job.attention, job.recompute) {
        (AttentionKernel::Materialized, Recompute::None | Recompute::Full) => {
            // Softmax output, dropout mask, dropout output.
            f64::from(llm.heads) * f64::from(job.sequence) * (2.0 * bytes + 1.0) / t
        }
        _ => 0.0,
    };
    tokens(job) * (software.saved_hidden * (stream + attention) + software.saved_mlp * mlp + scores)
}

/// Logits and their gradient, on the stage that computes the loss.
fn logits_bytes(software: &Software, job: &Job) -> f64 {
    software.logit_bytes * tokens(job) * f64::from(job.llm.vocab) / f64::from(job.parallelism.tensor)
}

/// The widest moment of a forward pass: two copies of the stream and of the
/// feed-forward block.
fn inference_activations_bytes(job: &Job) -> f64 {
    let tokens = match job.phase {
        Phase::Decode => f64::from(job.microbatch),
        _ => tokens(job),
    };
    let t = f64::from(job.parallelism.tensor);
    let widest = f64::from(job.llm.ffn) * job.llm.mlp_matrices() / t;
    tokens * (2.0 * f64::from(job.llm.hidden) + widest) * job.precision.activation_bits / 8.0
}

/// Keys and values of every sequence this GPU serves, less what is spilled.
pub fn kv_bytes(job: &Job) -> f64 {
    let p = &job.parallelism;
    let sequences = f64::from(job.global_batch) / f64::from(p.data);
    let bits = job.compression.kv_bits.unwrap_or(job.precision.kv_bits);
    let values = sequences
        * f64::from(job.sequence)
        * f64::from(layers_per_stage(job))
        * job.llm.kv_values_per_token_layer()
        / (f64::from(p.tensor.min(job.llm.kv_heads)) * f64::from(p.context));
    values * bits / 8.0 * (1.0 - job.kv_spill)
}

/// Two chunks at each end of the codec: one filling, one draining.
pub(crate) fn codec_staging_bytes(cluster: &Cluster, job: &Job) -> f64 {
    let c = &job.compression;
    let classes =
        [c.weight_bits, c.weight_gradient_bits, c.activation_bits, c.activation_gradient_bits, c.kv_bits];
    if cluster.codecs_per_gpu <= 0.0 || classes.iter().all(Option::is_none) {
        return 0.0;
    }
    4.0 * cluster.codec.chunk_values * cluster.codecs_per_gpu * job.precision.activation_bits / 8.0
}
