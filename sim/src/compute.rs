//! Time of one layer on one GPU: a roofline per operation, with efficiency
//! curves as data and a floor below which no kernel goes.
//!
//! Knows FLOPs, bytes and one GPU; knows nothing of the network or of the
//! order in which micro-batches run.

use crate::hardware::Cluster;
use crate::job::{AttentionKernel, Job, Math, Phase, Recompute};
use crate::kernels::{Format, Matmul};
use crate::llm::{Attention, Mamba, Moe};

/// Time and work of one pass over some layers on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    pub time_s: f64,
    /// Arithmetic of the matrix units.
    pub flops: f64,
    /// Traffic to GPU memory.
    pub bytes: f64,
}

impl Work {
    /// The same work `factor` times over.
    pub fn times(self, factor: f64) -> Self {
        Self { time_s: self.time_s * factor, flops: self.flops * factor, bytes: self.bytes * factor }
    }
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time_s: self.time_s + other.time_s,
            flops: self.flops + other.flops,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// One micro-batch through one layer, or through embedding and loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passes {
    pub forward: Work,
    /// Forward work done again before the backward pass.
    pub recompute: Work,
    pub backward: Work,
}

impl Passes {
    /// The same passes `factor` times over.
    pub fn times(self, factor: f64) -> Self {
        Self {
            forward: self.forward.times(factor),
            recompute: self.recompute.times(factor),
            backward: self.backward.times(factor),
        }
    }

    /// Seconds of forward, recomputed and backward work.
    pub fn times_s(&self) -> (f64, f64, f64) {
        (self.forward.time_s, self.recompute.time_s, self.backward.time_s)
    }

    /// Seconds of all three.
    pub fn time_s(&self) -> f64 {
        self.forward.time_s + self.recompute.time_s + self.backward.time_s
    }

    /// The same work stretched by `idle_s` in which the GPU waits for launches.
    pub fn stretched(mut self, idle_s: f64) -> Self {
        let busy_s = self.time_s();
        if idle_s > 0.0 && busy_s > 0.0 {
            let stretch = 1.0 + idle_s / busy_s;
            self.forward.time_s *= stretch;
            self.recompute.time_s *= stretch;
            self.backward.time_s *= stretch;
        }
        self
    }
}

impl std::ops::Add for Passes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            recompute: self.recompute + other.recompute,
            backward: self.backward + other.backward,
        }
    }
}

/// The shapes one GPU sees, derived once per estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Tokens of one micro-batch on this GPU.
    pub tokens: f64,
    /// Sequences of one micro-batch.
    pub sequences: f64,
    /// New tokens of each sequence on this GPU, over context parallelism.
    pub queries: f64,
    /// Tokens each query may attend to.
    pub context: f64,
    pub tensor: f64,
    pub activation_bytes: f64,
    pub weight_bytes: f64,
    /// Bytes of one cached value as stored.
    pub kv_bytes: f64,
}

impl Shape {
    pub fn of(job: &Job) -> Self {
        let context_parallel = f64::from(job.parallelism.context);
        let sequence = f64::from(job.sequence);
        let queries = match job.phase {
            Phase::Training | Phase::Prefill => sequence / context_parallel,
            Phase::Decode => 1.0,
        };
        let context = match job.phase {
            Phase::Training | Phase::Prefill => sequence,
            Phase::Decode => sequence / context_parallel,
        };
        let sequences = f64::from(job.microbatch);
        // In training, compressed weights are for the wire; memory holds them raw.
        let stored_weight_bits = match job.phase {
            Phase::Training => job.precision.weight_bits,
            _ => job.compression.weight_bits.unwrap_or(job.precision.weight_bits),
        };
        Self {
            tokens: sequences * queries,
            sequences,
            queries,
            context,
            tensor: f64::from(job.parallelism.tensor),
            activation_bytes: job.precision.activation_bits / 8.0,
            weight_bytes: stored_weight_bits / 8.0,
            kv_bytes: job.compression.kv_bits.unwrap_or(job.precision.kv_bits) / 8.0,
        }
    }
}

/// Head size at which a score product reaches half of what it would with
/// endless heads; efficiencies are stated for heads of 128.
const HALF_EFFICIENT_HEAD: f64 = 64.0;

/// What each further node adds to a tensor-parallel peer's launch cost.
const FARTHER_PEER: f64 = 0.2;

/// Head size that attention's efficiency is stated for.
const FULL_HEAD: f64 = 128.0;

/// Board power of a B200 for each unit of its FP16 rate, which
/// [`crate::Software::power_exponent`] is stated relative to: 1,000 W and 2,250
/// TFLOP/s (NVIDIA HGX B200 datasheet).
const REFERENCE_W_PER_FLOP_PER_S: f64 = 1000.0 / 2250e12;

/// The three kinds of kernel, timed.
struct Kernels<'a> {
    cluster: &'a Cluster,
    math: Math,
    /// Rate of a large product in that format, but for the GPU's own curve.
    rate: f64,
}

impl<'a> Kernels<'a> {
    fn of(cluster: &'a Cluster, math: Math) -> Self {
        let gpu = &cluster.gpu;
        let software = &gpu.software;
        let power = if software.power_exponent > 0.0 {
            let w_per_flop_per_s = gpu.power_w / gpu.peak_flops.fp16;
            (w_per_flop_per_s / REFERENCE_W_PER_FLOP_PER_S).powf(software.power_exponent)
        } else {
            1.0
        };
        // Never more than the units can do.
        let rate = gpu.peak_flops.of(math) * (software.format_efficiency.of(math) * power).min(1.0);
        Self { cluster, math, rate }
    }

    /// These rates for kernels that reach only a share of them.
    fn at(&self, share: f64) -> Self {
        Self { rate: self.rate * share, ..*self }
    }
}

impl Kernels<'_> {
    /// `count` products of m×k and k×n in one launch; `weight_bytes` a value
    /// of the second operand.
    fn gemm(&self, count: f64, m: f64, n: f64, k: f64, shape: &Shape) -> Work {
        let gpu = &self.cluster.gpu;
        let flops = 2.0 * count * m * n * k;
        if let Some(die) = &gpu.die {
            let sizes = (count, m, n, k);
            let kernel = die.roofline.gemm(sizes, shape.activation_bytes, shape.weight_bytes, self.math);
            return Work {
                time_s: kernel.time_s.max(self.cluster.launch_s),
                flops,
                bytes: kernel.memory_bytes,
            };
        }
        let bytes = count * (shape.activation_bytes * m * (n + k) + shape.weight_bytes * n * k);
        let software = &gpu.software;
        let edges = 1.0 + software.tile / 3.0 * (1.0 / m + 1.0 / n + 1.0 / k);
        let arithmetic_s = match self.measured_s(count, m, n, k) {
            Some(measured_s) => measured_s,
            None => flops * edges / (self.rate * gpu.gemm_efficiency.at(flops)),
        };
        let cast = software.cast_bytes.of(self.math) * count * m * k;
        let cast_s = if cast > 0.0 { self.memory_s(cast) } else { 0.0 };
        let time_s = arithmetic_s.max(self.memory_s(bytes)) + cast_s + software.gemm_overhead_s;
        Work { time_s: time_s.max(self.cluster.launch_s), flops, bytes: bytes + cast }
    }

    /// What measured kernels take for `count` products, where the GPU has such
    /// kernels in this format; grouped products of experts have a law of their own.
    fn measured_s(&self, count: f64, m: f64, n: f64, k: f64) -> Option<f64> {
        let gpu = &self.cluster.gpu;
        let curves = gpu.kernels.filter(|_| count == 1.0)?.0;
        let format = match self.math {
            Math::Fp32 => return None,
            Math::Fp16 => Format::Bf16,
            Math::Fp8 => Format::Fp8,
            Math::Fp4 => Format::Nvfp4,
        };
        let timed = curves.matmul_s(&Matmul { m, n, k, format }).ok()?;
        Some(timed.s / gpu.software.kernel_share.of(self.math))
    }

    /// A kernel that only moves bytes.
    fn stream(&self, bytes: f64) -> Work {
        if let Some(die) = &self.cluster.gpu.die {
            let kernel = die.roofline.stream(bytes);
            let time_s = kernel.time_s.max(self.cluster.launch_s);
            return Work { time_s, flops: 0.0, bytes: kernel.memory_bytes };
        }
        Work { time_s: self.memory_s(bytes).max(self.cluster.launch_s), flops: 0.0, bytes }
    }

    fn memory_s(&self, bytes: f64) -> f64 {
        let gpu = &self.cluster.gpu;
        bytes / (gpu.memory_bytes_per_s * gpu.memory_efficiency.at(bytes))
    }

    /// Scores and their product with the values.
    fn attention(&self, job: &Job, shape: &Shape) -> Work {
        let whole = self.attention_over(job, shape, shape.context);
        match job.llm.window {
            // Decoding reads the cache that is there; a window of it is not kept apart.
            Some(window) if job.phase != Phase::Decode => {
                let layers = f64::from(job.llm.layers);
                let narrow = f64::from(window.layers.min(job.llm.layers)) / layers;
                let seen = f64::from(window.tokens).min(shape.context / 2.0);
                // A window has no masked half: twice its tokens stand for it.
                whole.times(1.0 - narrow) + self.attention_over(job, shape, 2.0 * seen).times(narrow)
            }
            _ => whole,
        }
    }

    /// Scores over `context` tokens, half of them masked away in training.
    fn attention_over(&self, job: &Job, shape: &Shape, context: f64) -> Work {
        let gpu = &self.cluster.gpu;
        let heads = f64::from(job.llm.heads) / shape.tensor;
        let (score_dim, value_dim) = job.llm.attention_dims();
        let pairs = shape.sequences * shape.queries * context * heads;
        let square = 2.0 * pairs * (score_dim + value_dim);
        let cached = shape.sequences * shape.context * job.llm.kv_values_per_token_layer() * shape.kv_bytes
            / shape.tensor.min(f64::from(job.llm.kv_heads));
        let vectors = shape.tokens * heads * (score_dim + value_dim) * shape.activation_bytes;
        let (flops, bytes) = match (job.phase, job.attention) {
            (Phase::Decode, _) => (square, cached + vectors),
            // The causal mask leaves half of the square.
            (_, AttentionKernel::Flash) => (square / 2.0, cached + vectors),
            // Scores: written, scaled and masked, softmax, dropout, read.
            (_, AttentionKernel::Materialized) => {
                (square, cached + vectors + gpu.software.score_passes * pairs * shape.activation_bytes)
            }
        };
        if let Some(die) = &gpu.die {
            let scores = flops / (2.0 * (score_dim + value_dim));
            let kernel = die.roofline.attention(flops, scores, bytes, self.math);
            return Work { time_s: kernel.time_s.max(self.cluster.launch_s), flops, bytes };
        }
        let arithmetic_s = flops / (gpu.peak_flops.of(self.math) * gpu.attention_efficiency.at(flops));
        let time_s = match job.attention {
            AttentionKernel::Flash => {
                let narrow = match gpu.software.head_exponent {
                    exponent if exponent > 0.0 && value_dim < FULL_HEAD => {
                        (FULL_HEAD / value_dim).powf(exponent)
                    }
                    _ => 1.0,
                };
                (arithmetic_s * narrow).max(self.memory_s(bytes))
            }
            AttentionKernel::Materialized => {
                // A product over few values of k fills its tiles poorly.
                let shallow = (score_dim + HALF_EFFICIENT_HEAD) / (1.5 * score_dim);
                let aligned = score_dim % 8.0 == 0.0;
                let misaligned = if aligned { 1.0 } else { gpu.software.misaligned_attention };
                arithmetic_s * shallow * misaligned + self.memory_s(bytes)
            }
        };
        Work { time_s: time_s.max(self.cluster.launch_s), flops, bytes }
    }
}

/// What a layer is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Attention and a dense feed-forward block.
    Dense,
    /// Attention and experts.
    Sparse(Moe),
    Attention,
    Experts(Moe),
    Mamba(Mamba),
}

/// One micro-batch through one layer.
pub fn layer(cluster: &Cluster, job: &Job, shape: &Shape, kind: Kind) -> Passes {
    let kernels = Kernels::of(cluster, job.precision.math);
    let attends = matches!(kind, Kind::Dense | Kind::Sparse(_) | Kind::Attention);
    let (attention, projections) = if attends {
        let attention = Kernels::of(cluster, job.precision.attention).attention(job, shape);
        (attention, projections(&kernels, job, shape))
    } else {
        (Work::default(), Work::default())
    };
    let mlp = match kind {
        Kind::Dense => dense_mlp(&kernels, job, shape),
        Kind::Sparse(moe) | Kind::Experts(moe) => sparse_mlp(&kernels, job, shape, moe),
        Kind::Attention => Work::default(),
        Kind::Mamba(mamba) => state_space(&kernels, job, shape, &mamba),
    };
    let ffn = match kind {
        Kind::Dense => f64::from(job.llm.ffn),
        Kind::Sparse(moe) | Kind::Experts(moe) => {
            f64::from(moe.expert_ffn) * f64::from(moe.top_k + moe.shared_experts)
        }
        Kind::Attention | Kind::Mamba(_) => 0.0,
    };
    // A norm and a residual sum for each of a layer's two blocks.
    let streams = if matches!(kind, Kind::Dense | Kind::Sparse(_)) { 1.0 } else { 0.5 };
    let vectors = vector_work(&kernels, job, shape, streams, ffn);
    let forward = attention + projections + mlp + vectors;
    if job.phase != Phase::Training {
        return Passes { forward, ..Passes::default() };
    }
    // A fused kernel computes scores again.
    let products = job.tuning.backward_products();
    let attention_backward = match job.attention {
        AttentionKernel::Flash => cluster.gpu.software.attention_backward,
        AttentionKernel::Materialized => 2.0,
    };
    let backward =
        (projections + mlp).times(products) + vectors.times(1.5) + attention.times(attention_backward);
    let recompute = match (job.recompute, job.attention) {
        (Recompute::None, _) => Work::default(),
        // Norms and activation functions, and what latent attention is projected up to.
        (Recompute::Selective, AttentionKernel::Flash) if attends => {
            vectors + latent_up_projections(&kernels, job, shape)
        }
        (Recompute::Selective, AttentionKernel::Flash) => vectors,
        (Recompute::Selective, AttentionKernel::Materialized) => attention,
        (Recompute::Full, _) => forward,
    };
    Passes { forward, recompute, backward }
}

/// Time below which one layer's forward and backward pass of a micro-batch
/// cannot go, communication included: the host has to launch every kernel.
pub fn launch_floor_s(cluster: &Cluster, job: &Job) -> f64 {
    let software = &cluster.gpu.software;
    let p = &job.parallelism;
    let peers = f64::from(p.tensor - 1);
    let leaves = p.pipeline > 1 && cluster.gpus > cluster.gpus_per_node;
    let launches = if peers > 0.0 && leaves {
        let nodes = f64::from(p.tensor.div_ceil(cluster.gpus_per_node));
        let spread = 1.0 + FARTHER_PEER * (nodes - 1.0);
        software.pipelined_launch + peers * software.pipelined_peer_launch * spread
    } else {
        1.0 + peers * software.peer_launch
    };
    let again = if job.recompute == Recompute::Full { 1.5 } else { 1.0 };
    let blocks = job.llm.blocks();
    let layers = f64::from(job.llm.layers + job.llm.next_token_layers);
    let sparse = (blocks.sparse + blocks.experts) / layers;
    (cluster.layer_launch_s * launches + software.expert_launch_s * sparse) * again
}

/// Query, key, value and output projections.
fn projections(kernels: &Kernels<'_>, job: &Job, shape: &Shape) -> Work {
    let llm = &job.llm;
    let h = f64::from(llm.hidden);
    let tokens = shape.tokens;
    let t = shape.tensor;
    let heads = f64::from(llm.heads) / t;
    let head_dim = f64::from(llm.head_dim);
    match llm.attention {
        Attention::Grouped => {
            let kv_heads = (f64::from(llm.kv_heads) / t).max(1.0);
            kernels.gemm(1.0, tokens, (heads + 2.0 * kv_heads) * head_dim, h, shape)
                + kernels.gemm(1.0, tokens, h, heads * head_dim, shape)
        }
        Attention::Latent { query_rank, kv_rank, rope_dim, value_dim } => {
            let (q_rank, kv_rank) = (f64::from(query_rank), f64::from(kv_rank));
            let (rope, value) = (f64::from(rope_dim), f64::from(value_dim));
            kernels.gemm(1.0, tokens, q_rank + kv_rank + rope, h, shape)
                + latent_up_projections(kernels, job, shape)
                + kernels.gemm(1.0, tokens, h, heads * value, shape)
        }
    }
}

/// Queries, keys and values of latent attention from their narrow forms.
fn latent_up_projections(kernels: &Kernels<'_>, job: &Job, shape: &Shape) -> Work {
    let Attention::Latent { query_rank, kv_rank, rope_dim, value_dim } = job.llm.attention else {
        return Work::default();
    };
    let heads = f64::from(job.llm.heads) / shape.tensor;
    let head_dim = f64::from(job.llm.head_dim);
    let (rope, value) = (f64::from(rope_dim), f64::from(value_dim));
    kernels.gemm(1.0, shape.tokens, heads * (head_dim + rope), f64::from(query_rank), shape)
        + kernels.gemm(1.0, shape.tokens, heads * (head_dim + value), f64::from(kv_rank), shape)
}

fn dense_mlp(kernels: &Kernels<'_>, job: &Job, shape: &Shape) -> Work {
    let h = f64::from(job.llm.hidden);
    let f = f64::from(job.llm.ffn) / shape.tensor;
    let up = (job.llm.mlp_matrices() - 1.0) * f;
    kernels.gemm(1.0, shape.tokens, up, h, shape) + kernels.gemm(1.0, shape.tokens, h, f, shape)
}

/// Routed and shared experts on the rank that most tokens go to; its experts
/// share them evenly.
fn sparse_mlp(kernels: &Kernels<'_>, job: &Job, shape: &Shape, moe: Moe) -> Work {
    let software = &kernels.cluster.gpu.software;
    let p = &job.parallelism;
    let h = f64::from(job.llm.hidden);
    let routed_h = job.llm.routed_width();
    let matrices = job.llm.mlp_matrices() - 1.0;
    let ffn = f64::from(moe.expert_ffn);
    // Experts are cut like the rest, or whole: then each rank routes its own tokens.
    let cut = f64::from(p.expert_tensor);
    let f = ffn / cut;
    let tokens = shape.tokens * cut / shape.tensor;
    let up = matrices * f;
    let routed = tokens * f64::from(moe.top_k) * job.expert_imbalance;
    let local = f64::from(moe.experts) / f64::from(p.expert);
    // A decoding batch may be too small to wake every expert.
    let awake = local.min(routed).max(1.0);
    let each = routed / awake;
    let shared = f64::from(moe.shared_experts);
    let grouped = kernels.at(software.expert_efficiency);
    let moved = software.routed_passes * routed_h + software.routed_ffn_passes * up;
    let mut work = kernels.gemm(1.0, tokens, f64::from(moe.experts), h, shape)
        + kernels.stream(routed * moved * shape.activation_bytes)
        + grouped.gemm(awake, each, up, routed_h, shape)
        + grouped.gemm(awake, each, routed_h, f, shape);
    if moe.latent > 0 {
        work = work
            + kernels.gemm(1.0, tokens, routed_h, h, shape)
            + kernels.gemm(1.0, tokens, h, routed_h, shape);
    }
    if shared > 0.0 {
        let f = ffn / shape.tensor;
        work = work
            + kernels.gemm(1.0, shape.tokens, matrices * f * shared, h, shape)
            + kernels.gemm(1.0, shape.tokens, h, f * shared, shape);
    }
    work
}

/// A state-space layer: its projections, and the scan, which memory bounds.
fn state_space(kernels: &Kernels<'_>, job: &Job, shape: &Shape, mamba: &Mamba) -> Work {
    let h = f64::from(job.llm.hidden);
    let t = shape.tensor;
    let scanned = kernels.cluster.gpu.software.scan_passes * mamba.inner() / t;
    kernels.gemm(1.0, shape.tokens, mamba.input_columns() / t, h, shape)
        + kernels.gemm(1.0, shape.tokens, h, mamba.inner() / t, shape)
        + kernels.stream(shape.tokens * scanned * shape.activation_bytes)
}

/// Norms, residual sums, rotary positions, activation functions: each reads
/// and writes the hidden stream or the feed-forward width.
fn vector_work(kernels: &Kernels<'_>, job: &Job, shape: &Shape, streams: f64, ffn: f64) -> Work {
    let software = &kernels.cluster.gpu.software;
    let h = f64::from(job.llm.hidden);
    let share = if job.parallelism.sequence_parallel { shape.tensor } else { 1.0 };
    let values = streams * software.hidden_passes * h / share + software.mlp_passes * ffn / shape.tensor;
    kernels.stream(shape.tokens * values * shape.activation_bytes)
}

/// Output projection and loss of one micro-batch, on the last stage.
pub fn vocabulary(cluster: &Cluster, job: &Job, shape: &Shape) -> Passes {
    let kernels = Kernels::of(cluster, job.precision.vocabulary);
    let rows = match job.phase {
        Phase::Training | Phase::Decode => shape.tokens,
        // Only the last position predicts.
        Phase::Prefill => shape.sequences,
    };
    let width = f64::from(job.llm.vocab) / shape.tensor;
    let logits = kernels.gemm(1.0, rows, width, f64::from(job.llm.hidden), shape);
    let softmax = kernels.stream(cluster.gpu.software.loss_bytes * rows * width);
    // Each layer that predicts further tokens has a loss of its own.
    let losses = f64::from(1 + job.llm.next_token_layers);
    let forward = (logits + softmax).times(losses);
    if job.phase != Phase::Training {
        return Passes { forward, ..Passes::default() };
    }
    let backward = (logits.times(job.tuning.backward_products()) + softmax).times(losses);
    Passes { forward, recompute: Work::default(), backward }
}

/// Optimizer step over `parameters` of this GPU: read everything, write state
/// and weights.
pub fn optimizer(cluster: &Cluster, job: &Job, parameters: f64) -> Work {
    let precision = &job.precision;
    let bytes = parameters
        * (2.0 * precision.optimizer_bytes_per_parameter
            + precision.gradient_bits / 8.0
            + precision.weight_bits / 8.0);
    if bytes <= 0.0 {
        return Work::default();
    }
    Kernels::of(cluster, precision.math).stream(bytes)
}
