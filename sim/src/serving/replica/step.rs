//! The time of one step of a replica, as a table over its tokens.
//!
//! All that grows with tokens alone is tabulated at powers of two and read off
//! linearly between them; attention over caches stays a coefficient. Built once
//! for a placement, it answers in nanoseconds.

use super::engine::EngineConstants;
use super::roofline::{Accelerator, blend};
use super::shape::{Format, Placement, Transformer};
use crate::serving::ServingError;

/// Table entries: 1 to 32,768 tokens.
const POINTS: usize = 16;

/// Steps of at most so many tokens count as decoding ones, those of sixteen
/// times as many as prefill; factors go over in between.
const SMALL_STEP_LOG2: f64 = 8.0;
const SMALL_TO_LARGE_LOG2: f64 = 4.0;

/// Bytes of a normalized or rotated activation that pass through memory per
/// hidden value and layer besides the products.
const ELEMENTWISE_BYTES: f64 = 32.0;

/// What a step of one replica costs. Tokens and sequences are those of one
/// attention rank; the other ranks are taken to be as busy.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTable {
    linear_s: [f64; POINTS],
    head_s: [f64; POINTS],
    floor_s: f64,
    step_s: f64,
    sequence_s: f64,
    prompt_step_s: f64,
    /// Per cached token that a decoding step reads.
    cache_s: f64,
    /// Per cached token that sparse attention's index reads.
    index_s: f64,
    /// Per decoding sequence: windows and states.
    state_s: f64,
    /// Per pair of a prompt token and a token it attends to.
    pair_s: f64,
    /// Per prompt token: windows and states.
    prompt_token_s: f64,
    /// Tokens of a cache that attention reads at most.
    attended: f64,
    cache_tokens: f64,
}

fn at(table: &[f64; POINTS], tokens: f64) -> f64 {
    let tokens = tokens.max(1.0);
    let below = (tokens.log2() as usize).min(POINTS - 1);
    if below == POINTS - 1 {
        return table[below] * tokens / f64::from(1u32 << below);
    }
    let start = f64::from(1u32 << below);
    table[below] + (table[below + 1] - table[below]) * (tokens - start) / start
}

impl StepTable {
    /// Tabulates a placement of `model` on `gpu`, with a cache of
    /// `kv_value_bytes` a value.
    ///
    /// # Errors
    ///
    /// When the placement does not divide, a format was never measured on the
    /// GPU, or the weights do not fit.
    pub fn new(
        gpu: &Accelerator,
        model: &Transformer,
        placement: &Placement,
        engine: &EngineConstants,
        kv_value_bytes: f64,
    ) -> Result<Self, ServingError> {
        if let Some(problem) = placement.problem(model) {
            return Err(ServingError::Placement { problem });
        }
        let build = Build { gpu, model, placement, engine, kv_value_bytes };
        let weights = model.weight_bytes(placement);
        let room = gpu.memory_bytes * engine.memory_share - weights - engine.workspace_bytes;
        let per_token = model.kv_bytes_per_token(placement, kv_value_bytes);
        if room < per_token {
            return Err(ServingError::NoRoom {
                left_gb: room.max(0.0) / 1e9,
                capacity_gb: gpu.memory_bytes / 1e9,
            });
        }
        build.table(if per_token > 0.0 { room / per_token } else { f64::INFINITY })
    }

    /// The table of a replica whose stated GPUs cannot hold the weights: its
    /// cache is taken to be without limit. For rows of measurements that ran
    /// although their deployment, as written, could not.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], but for the room.
    pub fn without_memory_limit(
        gpu: &Accelerator,
        model: &Transformer,
        placement: &Placement,
        engine: &EngineConstants,
        kv_value_bytes: f64,
    ) -> Result<Self, ServingError> {
        if let Some(problem) = placement.problem(model) {
            return Err(ServingError::Placement { problem });
        }
        Build { gpu, model, placement, engine, kv_value_bytes }.table(f64::INFINITY)
    }

    /// Tokens of cache that one attention rank holds.
    pub fn cache_tokens(&self) -> f64 {
        self.cache_tokens
    }

    /// The same table with another number of cached tokens.
    pub fn with_cache_tokens(self, cache_tokens: f64) -> Self {
        Self { cache_tokens, ..self }
    }

    /// A step that decodes `batch` sequences whose caches hold `cached` tokens.
    pub fn decode_s(&self, batch: f64, cached: f64) -> f64 {
        at(&self.linear_s, batch)
            + at(&self.head_s, batch)
            + self.overhead_s(batch)
            + self.decode_attention_s(batch, cached)
    }

    /// By how much each decoding step is longer than the one before it.
    pub fn decode_growth_s(&self, batch: f64, cached: f64) -> f64 {
        let reading = if cached < self.attended * batch { self.cache_s * batch } else { 0.0 };
        reading + self.index_s * batch
    }

    /// A step with `prompt_tokens` of prompts, `finished` of which end in it,
    /// beside `batch` decoding sequences.
    pub fn mixed_s(&self, prompts: &PromptWork, batch: f64, cached: f64) -> f64 {
        let sampled = batch + prompts.finished;
        at(&self.linear_s, prompts.tokens + batch)
            + at(&self.head_s, sampled)
            + self.overhead_s(sampled)
            + self.prompt_step_s
            + prompts.pairs.min(self.attended * prompts.tokens) * self.pair_s
            + prompts.pairs * self.index_s * INDEX_OF_PROMPTS
            + prompts.tokens * self.prompt_token_s
            + if batch > 0.0 { self.decode_attention_s(batch, cached) } else { 0.0 }
    }

    fn overhead_s(&self, sequences: f64) -> f64 {
        self.floor_s + self.step_s + self.sequence_s * sequences
    }

    fn decode_attention_s(&self, batch: f64, cached: f64) -> f64 {
        self.cache_s * cached.min(self.attended * batch) + self.index_s * cached + self.state_s * batch
    }
}

/// Scoring a prompt's pairs is a matrix product: it takes this share of what
/// reading the index for one token alone does.
const INDEX_OF_PROMPTS: f64 = 0.02;

/// Prompt tokens of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptWork {
    pub tokens: f64,
    /// Pairs of a token and one that it attends to.
    pub pairs: f64,
    /// Prompts that end in the step.
    pub finished: f64,
}

struct Build<'a> {
    gpu: &'a Accelerator,
    model: &'a Transformer,
    placement: &'a Placement,
    engine: &'a EngineConstants,
    kv_value_bytes: f64,
}

impl Build<'_> {
    fn table(&self, cache_tokens: f64) -> Result<StepTable, ServingError> {
        let (mut linear_s, mut head_s) = ([0.0; POINTS], [0.0; POINTS]);
        let floors = self.floors_s()?;
        for (index, (linear, head)) in linear_s.iter_mut().zip(&mut head_s).enumerate() {
            let tokens = f64::from(1u32 << index);
            *linear = self.linear_s(tokens)? + floors;
            *head = self.gpu.product_s(
                Format::Bf16,
                tokens,
                self.model.vocab / self.tensor(),
                self.model.hidden,
            )?;
        }
        let engine = self.engine;
        let attention = self.attention();
        Ok(StepTable {
            linear_s,
            head_s,
            floor_s: self.model.layers * self.gpu.attention.floor_s * engine.kernel_floor,
            step_s: engine.step_s,
            sequence_s: engine.sequence_s,
            prompt_step_s: engine.prompt_step_s + engine.prompt_layer_s * self.model.layers,
            cache_s: attention.cache_s * engine.attention_decode,
            index_s: attention.index_s,
            state_s: attention.state_s * engine.attention_decode,
            pair_s: attention.pair_s * engine.attention_prefill,
            prompt_token_s: attention.prompt_token_s * engine.attention_prefill,
            attended: attention.attended,
            cache_tokens,
        })
    }

    fn tensor(&self) -> f64 {
        f64::from(self.placement.tensor)
    }

    fn product_s(&self, format: Format, m: f64, n: f64, k: f64) -> Result<f64, ServingError> {
        self.gpu.product_s(format, m, n, k)
    }

    /// Products, experts, collectives and small kernels of a step of `tokens`,
    /// without floors.
    fn linear_s(&self, tokens: f64) -> Result<f64, ServingError> {
        let engine = self.engine;
        let large = ((tokens.log2() - SMALL_STEP_LOG2) / SMALL_TO_LARGE_LOG2).clamp(0.0, 1.0);
        let mix = |small: f64, big: f64| small * (1.0 - large) + big * large;
        let products = self.attention_products_s(tokens)? + self.feed_forward_s(tokens)?;
        let experts = self.experts_s(tokens)? * mix(engine.experts_decode, engine.experts_prefill);
        let elementwise = self.model.layers * tokens * self.model.hidden * ELEMENTWISE_BYTES
            / self.gpu.bandwidth_bytes_per_s;
        Ok(mix(engine.decode, engine.prefill) * (products + experts)
            + engine.collective * self.collectives_s(tokens)
            + elementwise)
    }

    fn attention_products_s(&self, m: f64) -> Result<f64, ServingError> {
        let (model, tensor, h) = (self.model, self.tensor(), self.model.hidden);
        let format = model.formats.attention;
        if let Some(l) = model.latent {
            let mut layer = self.product_s(format, m, l.query_rank + l.kv_rank + l.rope_dim, h)?
                + self.product_s(
                    format,
                    m,
                    model.heads / tensor * (l.nope_dim + l.rope_dim),
                    l.query_rank,
                )?
                + self.product_s(format, m, h, model.heads / tensor * l.value_dim)?
                + self.product_s(
                    Format::Bf16,
                    m,
                    model.heads / tensor * (l.nope_dim + l.value_dim),
                    l.kv_rank,
                )?;
            if l.sparse_tokens.is_some() {
                layer += self.product_s(Format::Bf16, m, INDEX_HEADS * INDEX_DIM / 4.0, l.query_rank)?
                    + INDEX_FLOOR_S;
            }
            return Ok(model.layers * layer);
        }
        let queries = model.heads / tensor * if model.gated { 2.0 } else { 1.0 };
        let qkv = (queries + 2.0 * model.kv_heads_per_gpu(self.placement)) * model.head_dim;
        let grouped = model.layers - model.linear.map_or(0.0, |l| l.layers);
        let mut total = grouped
            * (self.product_s(format, m, qkv, h)?
                + self.product_s(format, m, h, model.heads / tensor * model.head_dim)?);
        if let Some(l) = model.linear {
            let values = l.value_heads * l.value_dim;
            total += l.layers
                * (self.product_s(format, m, (2.0 * l.key_heads * l.key_dim + 2.0 * values) / tensor, h)?
                    + self.product_s(format, m, h, values / tensor)?);
        }
        Ok(total)
    }

    fn feed_forward_s(&self, m: f64) -> Result<f64, ServingError> {
        let (model, tensor, h) = (self.model, self.tensor(), self.model.hidden);
        let format = model.formats.dense;
        let block = |ffn: f64| -> Result<f64, ServingError> {
            Ok(self.product_s(format, m, 2.0 * ffn / tensor, h)?
                + self.product_s(format, m, h, ffn / tensor)?)
        };
        let mut total =
            if model.dense_layers > 0.0 { model.dense_layers * block(model.dense_ffn)? } else { 0.0 };
        if let Some(experts) = model.experts {
            if experts.shared_ffn > 0.0 {
                total += model.expert_layers() * block(experts.shared_ffn)?;
            }
            total += model.expert_layers() * self.product_s(Format::Bf16, m, experts.count, h)?;
        }
        Ok(total)
    }

    fn experts_s(&self, tokens: f64) -> Result<f64, ServingError> {
        let Some(experts) = self.model.experts else { return Ok(0.0) };
        let format = self.model.formats.experts;
        let reached = self.gpu.expert(format)?;
        let all = tokens * f64::from(self.placement.attention_data);
        let (groups, cut) = (f64::from(self.placement.expert), f64::from(self.placement.expert_tensor));
        // Experts that at least one token visits, dealt evenly.
        let visited = experts.count / groups * (1.0 - (1.0 - experts.top_k / experts.count).powf(all));
        let values = 3.0 * self.model.hidden * experts.ffn / cut;
        let bytes_s = visited * values * format.bytes() / (self.gpu.bandwidth_bytes_per_s * reached.memory);
        let flops = 2.0 * all * experts.top_k / groups * values;
        let flops_s = flops / (self.gpu.peak_flops * format.speedup() * reached.compute);
        Ok(self.model.expert_layers() * blend(flops_s, bytes_s))
    }

    /// All-reduces behind attention and feed-forward blocks; with attention
    /// copies, tokens are gathered before experts and scattered behind them.
    fn collectives_s(&self, tokens: f64) -> f64 {
        let model = self.model;
        let bytes = tokens * model.hidden * 2.0;
        let reduce_s = self
            .gpu
            .link(self.placement.tensor)
            .map_or(0.0, |link| 2.0 * (self.tensor() - 1.0) / self.tensor() * bytes / link.bus_bytes_per_s);
        let gpus = self.placement.gpus();
        let copies = f64::from(self.placement.attention_data);
        let exchange_s = self.gpu.link(gpus).map_or(0.0, |link| {
            let share = (f64::from(gpus) - 1.0) / f64::from(gpus);
            share * 1.5 * bytes * copies / link.bus_bytes_per_s
        });
        let behind_experts_s = if self.placement.attention_data > 1 { exchange_s } else { reduce_s };
        (model.layers + model.dense_layers) * reduce_s + model.expert_layers() * behind_experts_s
    }

    /// What starting all kernels of a step takes.
    fn floors_s(&self) -> Result<f64, ServingError> {
        let (model, gpu, engine) = (self.model, self.gpu, self.engine);
        let formats = model.formats;
        let linear_layers = model.linear.map_or(0.0, |l| l.layers);
        let grouped = model.layers - linear_layers;
        let each = if model.latent.is_some() { 4.0 } else { 2.0 };
        let expert_layers = model.expert_layers();
        let mut kernels = (grouped * each + 2.0 * linear_layers) * gpu.product(formats.attention)?.floor_s;
        if model.dense_layers > 0.0 {
            kernels += 2.0 * model.dense_layers * gpu.product(formats.dense)?.floor_s;
        }
        if let Some(experts) = model.experts {
            if experts.shared_ffn > 0.0 {
                kernels += 2.0 * expert_layers * gpu.product(formats.dense)?.floor_s;
            }
            kernels +=
                expert_layers * (gpu.product(Format::Bf16)?.floor_s + gpu.expert(formats.experts)?.floor_s);
        }
        let floor = |gpus| gpu.link(gpus).map_or(0.0, |link| link.floor_s);
        let copies = self.placement.attention_data > 1;
        let reduces = model.layers + model.dense_layers + if copies { 0.0 } else { expert_layers };
        let exchanges = if copies { 2.0 * expert_layers } else { 0.0 };
        let collectives = reduces * floor(self.placement.tensor) + exchanges * floor(self.placement.gpus());
        Ok(engine.kernel_floor * kernels
            + engine.collective_floor * collectives
            + engine.small_kernel_s * self.small_kernels())
    }

    /// Norms, rotations, activations, quantizations, routing: counted from what
    /// the blocks do.
    fn small_kernels(&self) -> f64 {
        let model = self.model;
        let (attention, dense) = (model.formats.attention.quantizes(), model.formats.dense.quantizes());
        let linear_layers = model.linear.map_or(0.0, |l| l.layers);
        let per_attention = match model.latent {
            Some(l) => 8.0 + 4.0 * attention + if l.sparse_tokens.is_some() { 20.0 } else { 0.0 },
            None => {
                2.0 + 2.0 * attention
                    + if model.gated { 2.0 } else { 0.0 }
                    + if model.sliding.is_some() { 1.0 } else { 0.0 }
            }
        };
        let per_experts = model.experts.map_or(0.0, |e| {
            let shared = if e.shared_ffn > 0.0 { 3.0 + 2.0 * dense } else { 0.0 };
            3.0 + model.formats.experts.quantizes() + shared
        });
        (model.layers - linear_layers) * per_attention
            + linear_layers * (8.0 + 2.0 * attention)
            + model.dense_layers * (2.0 + 2.0 * dense)
            + model.expert_layers() * per_experts
    }

    fn attention(&self) -> AttentionCosts {
        let (model, gpu, tensor) = (self.model, self.gpu, self.tensor());
        let (peak, bandwidth, shares) = (gpu.peak_flops, gpu.bandwidth_bytes_per_s, gpu.attention);
        let decode_share = if self.kv_value_bytes > 1.0 { shares.decode_16bit } else { shares.decode_8bit };
        let mut costs = AttentionCosts { attended: f64::INFINITY, ..AttentionCosts::default() };
        if let Some(l) = model.latent {
            let width = l.kv_rank + l.rope_dim;
            costs.cache_s = model.layers * width * self.kv_value_bytes / (bandwidth * LATENT_MEMORY)
                + model.layers * 2.0 * model.heads / tensor * (width + l.kv_rank) / (peak * LATENT_COMPUTE);
            costs.pair_s = model.layers * 2.0 * model.heads / tensor
                * (l.nope_dim + l.rope_dim + l.value_dim)
                / (peak * LATENT_COMPUTE);
            if let Some(tokens) = l.sparse_tokens {
                costs.attended = tokens;
                costs.index_s = model.layers * INDEX_DIM / (bandwidth * STATE_MEMORY);
            }
            return costs;
        }
        let kv_values = 2.0 * model.kv_heads_per_gpu(self.placement) * model.head_dim;
        let query_flops = 4.0 * model.heads / tensor * model.head_dim;
        let prompt_share = if model.head_dim >= 128.0 { shares.prompt_wide } else { shares.prompt_narrow };
        costs.cache_s = model.full_layers() * kv_values * self.kv_value_bytes / (bandwidth * decode_share);
        costs.pair_s = model.full_layers() * query_flops / (peak * prompt_share);
        if let Some(s) = model.sliding {
            costs.state_s +=
                s.layers * kv_values * self.kv_value_bytes * s.window / (bandwidth * decode_share);
            costs.prompt_token_s += s.layers * query_flops * s.window / (peak * WINDOW_COMPUTE);
        }
        if let Some(l) = model.linear {
            let state = l.value_heads / tensor * l.key_dim * l.value_dim;
            costs.state_s += l.layers * state * STATE_BYTES / (bandwidth * STATE_MEMORY);
            costs.prompt_token_s += l.layers * 8.0 * state / (peak * STATE_COMPUTE);
        }
        costs
    }
}

/// Shares that attention other than the grouped kind reaches, read off the
/// measured MLA and gated-delta-rule modules (CREDITS.md, kernel tables): of
/// bandwidth and peak with latent caches, of peak within windows, of both with
/// states, which are read and written as FP32.
const LATENT_MEMORY: f64 = 0.75;
const LATENT_COMPUTE: f64 = 0.45;
const WINDOW_COMPUTE: f64 = 0.25;
const STATE_MEMORY: f64 = 0.6;
const STATE_COMPUTE: f64 = 0.15;
const STATE_BYTES: f64 = 8.0;

/// DeepSeek sparse attention's indexer: heads, width, and what its extra
/// kernels take per layer.
const INDEX_HEADS: f64 = 64.0;
const INDEX_DIM: f64 = 128.0;
const INDEX_FLOOR_S: f64 = 10e-6;

#[derive(Clone, Copy, Debug, Default)]
struct AttentionCosts {
    cache_s: f64,
    index_s: f64,
    state_s: f64,
    pair_s: f64,
    prompt_token_s: f64,
    attended: f64,
}
