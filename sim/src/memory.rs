//! Memory of the fullest GPU, by kind.
//!
//! Training activations follow Korthikanti et al. 2022 (arXiv 2205.05198,
//! equations 1–6), extended to grouped queries, gated feed-forward blocks,
//! fused attention and context parallelism.

use crate::hardware::Cluster;
use crate::job::{AttentionKernel, Job, Math, Phase, Recompute, Schedule, Split, Tuning, Zero};
use crate::llm::{Attention, Mlp, Vocabulary};
use crate::outcome::MemoryByKind;
use crate::software::Software;

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

/// Layers of the stage that memory is counted on.
fn stage_layers(job: &Job) -> f64 {
    match job.parallelism.split {
        Split::Layers => f64::from(layers_per_stage(job)),
        Split::Work => mean_layers_per_stage(job),
    }
}

/// Parameters held by one GPU of the fullest stage, before ZeRO.
pub fn local_parameters(job: &Job) -> LocalParameters {
    let llm = &job.llm;
    let t = f64::from(job.parallelism.tensor);
    let layers = stage_layers(job);
    let blocks = llm.blocks();
    let (shared, experts) = llm.moe.map_or((0.0, 0.0), |moe| {
        let router = f64::from(llm.hidden) * f64::from(moe.experts);
        let shared = f64::from(moe.shared_experts) * llm.shared_expert_parameters() / t;
        let cut = f64::from(job.parallelism.expert) * f64::from(job.parallelism.expert_tensor);
        (router + shared + llm.latent_parameters(), f64::from(moe.experts) / cut * llm.expert_parameters())
    });
    let attending = blocks.dense + blocks.sparse + blocks.attention;
    let sparse = blocks.sparse + blocks.experts;
    let dense_layers = attending * llm.attention_parameters() / t
        + f64::from(llm.layers + llm.next_token_layers) * llm.norm_parameters()
        + blocks.dense * llm.dense_mlp_parameters() / t
        + blocks.mamba * llm.mamba_parameters() / t
        + sparse * shared;
    let copies = match (llm.vocabulary, job.parallelism.pipeline) {
        (Vocabulary::Untied, 1) => 2.0,
        _ => 1.0,
    };
    let embeddings = copies * llm.embedding_parameters() / t
        + f64::from(llm.positions) * f64::from(llm.hidden)
        + f64::from(llm.hidden);
    let stage = |layers: f64, embeddings: f64| {
        let share = layers / f64::from(llm.layers);
        LocalParameters { dense: share * dense_layers + embeddings, experts: share * sparse * experts }
    };
    if !ends_are_shorter(job) {
        return stage(layers, embeddings);
    }
    let (middle, end) = (stage(layers, 0.0), stage(layers - 1.0, embeddings));
    if middle.dense + middle.experts > end.dense + end.experts { middle } else { end }
}

/// Whether the stages with embedding and loss have a layer less than others:
/// where layers do not divide (Llama 3, arXiv 2407.21783, section 3.3.2).
fn ends_are_shorter(job: &Job) -> bool {
    let p = &job.parallelism;
    let lacking = layers_per_stage(job) * p.pipeline - job.llm.layers;
    p.split == Split::Layers && p.pipeline > 2 && lacking >= 2
}

/// Parameters after sharing `kind` over the ranks that would hold copies.
pub fn sharded_parameters(job: &Job, local: &LocalParameters, kind: Zero) -> f64 {
    let p = &job.parallelism;
    if p.zero < kind {
        return local.dense + local.experts;
    }
    let replicas = f64::from(p.data) * f64::from(p.context);
    local.dense / replicas + local.experts / f64::from(p.expert_copies())
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
    // A pipeline that runs both ways keeps two stages; their optimizer states are
    // shared with the GPU that keeps the same two.
    let held = job.parallelism.schedule.stages_held();
    let mut memory = MemoryByKind {
        weights_bytes: held * sharded_parameters(job, local, Zero::Parameters) * stored_bits / 8.0,
        buffers_bytes: cluster.gpu.reserved_bytes,
        ..MemoryByKind::default()
    };
    match job.phase {
        Phase::Training => {
            if job.tuning == Tuning::All {
                memory.gradients_bytes =
                    held * sharded_parameters(job, local, Zero::Gradients) * precision.gradient_bits / 8.0;
                let copies = if job.parallelism.zero < Zero::Optimizer { held } else { 1.0 };
                memory.optimizer_bytes = copies
                    * sharded_parameters(job, local, Zero::Optimizer)
                    * precision.optimizer_bytes_per_parameter;
            }
            memory.activations_bytes = training_activations_bytes(&cluster.gpu.software, job);
        }
        Phase::Prefill | Phase::Decode => {
            memory.activations_bytes = inference_activations_bytes(job);
            memory.kv_bytes = kv_bytes(job);
        }
    }
    memory
}

/// Micro-batches whose activations a stage keeps, counted from the first: as
/// many as enter before the first of them comes back.
fn in_flight(job: &Job, stage: f64) -> f64 {
    let p = &job.parallelism;
    let stages = f64::from(p.pipeline);
    let ahead = match p.schedule {
        _ if p.pipeline == 1 => 1.0,
        Schedule::OneFOneB => stages - stage,
        Schedule::Interleaved(chunks) => stages + (stages - 1.0 - 2.0 * stage) / f64::from(chunks.max(1)),
        Schedule::DualPipe => stages + 1.0,
    };
    ahead.min(f64::from(job.microbatches()))
}

/// Layers whose activations a stage keeps times the micro-batches that it keeps
/// them of, on the stage where that is most: the second, where the first has a
/// layer less.
fn kept_layers(job: &Job) -> f64 {
    let p = &job.parallelism;
    let most = f64::from(layers_per_stage(job));
    match p.split {
        Split::Work => mean_layers_per_stage(job) * in_flight(job, 0.0),
        Split::Layers if ends_are_shorter(job) => {
            ((most - 1.0) * in_flight(job, 0.0)).max(most * in_flight(job, 1.0))
        }
        Split::Layers => most * in_flight(job, 0.0),
    }
}

/// Activations kept between forward and backward passes on the fuller of the
/// stages at the front, which have most micro-batches in flight, and the last,
/// which has the loss.
fn training_activations_bytes(software: &Software, job: &Job) -> f64 {
    let all = layer_activations_bytes(software, job);
    let (kept, working) = match job.recompute {
        // While a checkpointed layer runs backward, all of it is alive once.
        Recompute::Full => (layer_input_bytes(job), all),
        _ => (all, 0.0),
    };
    let first = kept_layers(job) * kept;
    let last = stage_layers(job) * kept + logits_bytes(software, job);
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
    // Products keep their operand in their own format.
    let operand = match job.precision.math {
        Math::Fp32 | Math::Fp16 => bytes,
        Math::Fp8 => bytes.min(1.0),
        Math::Fp4 => bytes.min(0.5625),
    };
    let blocks = llm.blocks();
    let layers = f64::from(llm.layers + llm.next_token_layers);
    let attend = (blocks.dense + blocks.sparse + blocks.attention) / layers;
    let sparse = (blocks.sparse + blocks.experts) / layers;
    let dense = blocks.dense / layers;
    let scan = blocks.mamba / layers;
    // Inputs of two norms, of attention and of the feed-forward block, and two
    // dropout masks of one byte: 10·s·b·h of the paper at two bytes. Models
    // without biases train without dropout.
    let masks = if llm.biases { 2.0 } else { 0.0 };
    let halves = attend + dense + sparse + scan;
    // Computed again in the backward pass: outputs of norms and of activation
    // functions, which a product would keep as its operand.
    let again = job.recompute == Recompute::Selective && job.attention == AttentionKernel::Flash;
    let remade = if again { 0.0 } else { operand };
    let stream = h * (halves * (bytes + remade) + masks) / share;
    // Queries, keys, values, and the input of the output projection.
    let projected = match llm.attention {
        Attention::Latent { query_rank, kv_rank, rope_dim, .. } if again => {
            f64::from(query_rank + kv_rank + rope_dim) * t
        }
        Attention::Latent { rope_dim, value_dim, .. } => {
            f64::from(llm.heads) * f64::from(2 * (llm.head_dim + rope_dim) + value_dim)
        }
        Attention::Grouped => q + kv,
    };
    let attention = attend * (projected * bytes + q * operand) / t;
    let gate = match llm.mlp {
        Mlp::Gelu => 1.0,
        Mlp::SwiGlu => 2.0,
    };
    // Beside adapters of attention the feed-forward block has no gradient of a
    // weight: its products keep nothing, and the activation function its input in
    // the format of the products (Megatron-Core's `activation_func_fp8_input_store`).
    let (passed, fed) = match job.tuning {
        Tuning::All => (bytes, remade),
        Tuning::Adapters => (bytes.min(operand.max(1.0)), 0.0),
    };
    let kept_mlp = |width: f64| width * (gate * passed + fed);
    let experts = llm.moe.map_or(0.0, |moe| {
        let routed = f64::from(moe.top_k);
        let shared = f64::from(moe.shared_experts);
        let width = f64::from(moe.expert_ffn);
        // A routed token is kept as its expert received it.
        let inputs = routed * llm.routed_width() * operand;
        routed * kept_mlp(width) + inputs + shared * kept_mlp(width)
    });
    let mamba = llm.mamba.map_or(0.0, |mamba| (mamba.input_columns() + mamba.inner()) * bytes);
    let mlp = (dense * kept_mlp(f64::from(llm.ffn)) + sparse * experts + scan * mamba) / t;
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
    // A cache that is sent on is coded on its way out; attention reads it as it is.
    let sent_on = job.phase == Phase::Prefill && job.kv_transfer > 0.0;
    let coded = job.compression.kv_bits.filter(|_| !sent_on);
    let bits = coded.unwrap_or(job.precision.kv_bits);
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
