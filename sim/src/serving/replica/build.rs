//! Tables of a placement, from measured kernels and an engine's constants.

use super::accelerator::Accelerator;
use super::engine::EngineConstants;
use super::shape::{Format, Placement, Transformer};
use super::step::{
    BATCHES, CodedCache, LEAST_LENGTH, LEAST_PROMPT, LENGTHS, POINTS, PROMPT_LENGTHS, PROMPTS, StepTable,
};
use crate::kernels::{ContextAttention, Format as KernelFormat, GenerationAttention, Moe, Routing};
use crate::serving::ServingError;

/// Steps of at most so many tokens count as decoding ones, those of sixteen
/// times as many as prefill; factors go over in between.
const SMALL_STEP_LOG2: f64 = 8.0;
const SMALL_TO_LARGE_LOG2: f64 = 4.0;

/// Bytes of a normalized or rotated activation that pass through memory per
/// hidden value and layer besides the products.
const ELEMENTWISE_BYTES: f64 = 32.0;

/// Shares that linear attention reaches, read off the measured gated-delta-rule
/// modules (CREDITS.md, kernel tables): of bandwidth and of peak; states are
/// read and written as FP32.
const STATE_MEMORY: f64 = 0.6;
const STATE_COMPUTE: f64 = 0.15;
const STATE_BYTES: f64 = 8.0;

/// DeepSeek sparse attention's indexer: heads, width, and what its extra
/// kernels take per layer.
const INDEX_HEADS: f64 = 64.0;
const INDEX_DIM: f64 = 128.0;
const INDEX_FLOOR_S: f64 = 10e-6;

impl StepTable {
    /// Tabulates a placement of `model` on `gpu`, with a cache of
    /// `kv_value_bytes` a value. Fails when the placement does not divide, a
    /// format was never measured on the GPU, or the weights do not fit.
    pub fn new(
        gpu: &Accelerator,
        model: &Transformer,
        placement: &Placement,
        engine: &EngineConstants,
        kv_value_bytes: f64,
    ) -> Result<Self, ServingError> {
        let build = Build::of(gpu, model, placement, engine, kv_value_bytes)?;
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
    /// although their deployment, as written, could not. Fails as
    /// [`Self::new`], but for the room.
    pub fn without_memory_limit(
        gpu: &Accelerator,
        model: &Transformer,
        placement: &Placement,
        engine: &EngineConstants,
        kv_value_bytes: f64,
    ) -> Result<Self, ServingError> {
        Build::of(gpu, model, placement, engine, kv_value_bytes)?.table(f64::INFINITY)
    }
}

struct Build<'a> {
    gpu: &'a Accelerator,
    model: &'a Transformer,
    placement: &'a Placement,
    engine: &'a EngineConstants,
    kv_value_bytes: f64,
}

impl<'a> Build<'a> {
    fn of(
        gpu: &'a Accelerator,
        model: &'a Transformer,
        placement: &'a Placement,
        engine: &'a EngineConstants,
        kv_value_bytes: f64,
    ) -> Result<Self, ServingError> {
        match placement.problem(model) {
            Some(problem) => Err(ServingError::Placement { problem }),
            None => Ok(Self { gpu, model, placement, engine, kv_value_bytes }),
        }
    }

    fn table(&self, cache_tokens: f64) -> Result<StepTable, ServingError> {
        let engine = self.engine;
        let (mut linear_s, mut head_s) = ([0.0; POINTS], [0.0; POINTS]);
        let small_s = engine.small_kernel_s * self.small_kernels();
        for (index, (linear, head)) in linear_s.iter_mut().zip(&mut head_s).enumerate() {
            let tokens = f64::from(1u32 << index);
            *linear = self.linear_s(tokens)? + small_s;
            *head =
                self.product_s(Format::Bf16, tokens, self.model.vocab / self.tensor(), self.model.hidden)?;
        }
        let state = self.states();
        Ok(StepTable {
            linear_s,
            head_s,
            step_s: engine.step_s,
            sequence_s: engine.sequence_s,
            prompt_step_s: engine.prompt_step_s + engine.prompt_layer_s * self.model.layers,
            decode_s: self.decode_attention_s()?,
            prompts_s: self.prompt_attention_s()?,
            index_s: self.index_s(),
            state_s: state.0 * engine.attention_decode,
            prompt_token_s: state.1 * engine.attention_prefill,
            attended: self.model.latent.and_then(|l| l.sparse_tokens).unwrap_or(f64::INFINITY),
            cache_tokens,
            kv_token_bytes: self.model.kv_bytes_per_token(self.placement, self.kv_value_bytes),
            verified: engine.draft.map_or(1.0, |draft| draft.tokens + 1.0),
            drafting: engine.draft.map_or(0.0, |draft| draft.tokens * draft.cost),
            coded: CodedCache::default(),
        })
    }

    fn tensor(&self) -> f64 {
        f64::from(self.placement.tensor)
    }

    fn product_s(&self, format: Format, m: f64, n: f64, k: f64) -> Result<f64, ServingError> {
        self.gpu.product_s(format, m, n, k)
    }

    /// Products, experts and collectives of a step of `tokens`. Latent
    /// attention has its projections with it.
    fn linear_s(&self, tokens: f64) -> Result<f64, ServingError> {
        let engine = self.engine;
        let large = ((tokens.log2() - SMALL_STEP_LOG2) / SMALL_TO_LARGE_LOG2).clamp(0.0, 1.0);
        let mix = |small: f64, big: f64| small * (1.0 - large) + big * large;
        let products = self.attention_products_s(tokens)? + self.feed_forward_s(tokens)?;
        let experts = self.experts_s(tokens)?;
        let elementwise = self.model.layers * tokens * self.model.hidden * ELEMENTWISE_BYTES
            / self.gpu.device().memory_bytes_per_s;
        Ok(mix(engine.decode, engine.prefill) * products
            + mix(engine.experts_decode, engine.experts_prefill) * experts
            + engine.collective * self.collectives_s(tokens)?
            + elementwise)
    }

    fn attention_products_s(&self, m: f64) -> Result<f64, ServingError> {
        let (model, tensor, h) = (self.model, self.tensor(), self.model.hidden);
        let format = model.formats.attention;
        if let Some(l) = model.latent {
            let Some(_) = l.sparse_tokens else { return Ok(0.0) };
            let index = self.product_s(Format::Bf16, m, INDEX_HEADS * INDEX_DIM / 4.0, l.query_rank)?;
            return Ok(model.layers * (index + INDEX_FLOOR_S));
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

    /// Projections of one layer of latent attention.
    fn latent_products_s(&self, m: f64) -> Result<f64, ServingError> {
        let Some(l) = self.model.latent else { return Ok(0.0) };
        let (h, heads, format) =
            (self.model.hidden, self.model.heads / self.tensor(), self.model.formats.attention);
        Ok(self.product_s(format, m, l.query_rank + l.kv_rank + l.rope_dim, h)?
            + self.product_s(format, m, heads * (l.nope_dim + l.rope_dim), l.query_rank)?
            + self.product_s(format, m, h, heads * l.value_dim)?
            + self.product_s(Format::Bf16, m, heads * (l.nope_dim + l.value_dim), l.kv_rank)?)
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
        let Placement { expert, expert_tensor, attention_data, .. } = *self.placement;
        let shape = Moe {
            tokens: tokens * f64::from(attention_data),
            hidden: self.model.hidden,
            inter: experts.ffn,
            top_k: experts.top_k,
            experts: experts.count,
            tensor_parallel: f64::from(expert_tensor),
            expert_parallel: f64::from(expert),
            routing: Routing::Balanced,
            format: KernelFormat::Bf16,
        };
        let one = self.gpu.experts_s(self.model.formats.experts, shape)?;
        let unevenness = if expert > 1 { self.engine.dealt_experts } else { 1.0 };
        Ok(self.model.expert_layers() * one * unevenness)
    }

    /// All-reduces behind attention and feed-forward blocks; with attention
    /// copies, tokens are gathered before experts and scattered behind them.
    fn collectives_s(&self, tokens: f64) -> Result<f64, ServingError> {
        let model = self.model;
        let bytes = tokens * model.hidden * 2.0;
        let copies = f64::from(self.placement.attention_data);
        let reduce_s =
            if self.placement.tensor > 1 { self.gpu.all_reduce_s(bytes, self.tensor())? } else { 0.0 };
        let behind_experts_s = if self.placement.attention_data > 1 {
            let top_k = model.experts.map_or(1.0, |experts| experts.top_k);
            self.gpu.exchange_s(bytes, copies, top_k, f64::from(self.placement.gpus()))?
        } else {
            reduce_s
        };
        Ok((model.layers + model.dense_layers) * reduce_s + model.expert_layers() * behind_experts_s)
    }

    /// Norms, rotations, activations, quantizations, routing: counted from what
    /// the blocks do.
    fn small_kernels(&self) -> f64 {
        let model = self.model;
        let (attention, dense) = (model.formats.attention.quantizes(), model.formats.dense.quantizes());
        let linear_layers = model.linear.map_or(0.0, |l| l.layers);
        let per_attention = match model.latent {
            Some(l) => 2.0 + if l.sparse_tokens.is_some() { 20.0 } else { 0.0 },
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

    /// Attention of decoding steps over sequences and cached tokens of each.
    fn decode_attention_s(&self) -> Result<Box<[[f64; LENGTHS]; BATCHES]>, ServingError> {
        let mut table = Box::new([[0.0; LENGTHS]; BATCHES]);
        for (row, line) in table.iter_mut().enumerate() {
            for (column, cell) in line.iter_mut().enumerate() {
                let batch = f64::from(1u32 << row);
                let length = LEAST_LENGTH * f64::from(1u32 << column);
                *cell = self.engine.attention_decode * self.one_decode_attention_s(batch, length)?;
            }
        }
        Ok(table)
    }

    /// A cache of fewer bits than 8 is read in proportion.
    fn narrow(&self) -> f64 {
        self.kv_value_bytes.min(1.0)
    }

    fn one_decode_attention_s(&self, batch: f64, length: f64) -> Result<f64, ServingError> {
        let (model, length) = (self.model, length * self.narrow());
        let shape = |window| GenerationAttention {
            batch,
            length: length.max(1.0),
            heads: model.heads / self.tensor(),
            kv_heads: model.kv_heads_per_gpu(self.placement),
            head_dim: model.head_dim,
            window,
            kv: KernelFormat::Bf16,
        };
        let one_s = |window| self.gpu.decode_attention_s(shape(window), self.kv_value_bytes);
        self.one_attention_s((batch, length), false, one_s)
    }

    /// Attention of all layers over `batch` sequences of `length` tokens;
    /// `one_s` is that of one layer with a window or none.
    fn one_attention_s(
        &self,
        (batch, length): (f64, f64),
        prompts: bool,
        one_s: impl Fn(Option<f64>) -> Result<f64, ServingError>,
    ) -> Result<f64, ServingError> {
        let model = self.model;
        if model.latent.is_some() {
            let shape = (batch, length, model.heads / self.tensor());
            let products_s = self.latent_products_s(if prompts { batch * length } else { batch })?;
            let kind = (model.formats.attention, prompts);
            let one = self.gpu.latent_s(kind, shape, self.kv_value_bytes, products_s)?;
            return Ok(model.layers * one);
        }
        let mut total = model.full_layers() * one_s(None)?;
        if let Some(s) = model.sliding {
            total += s.layers * one_s(Some(s.window))?;
        }
        Ok(total)
    }

    fn prompt_attention_s(&self) -> Result<[[f64; PROMPT_LENGTHS]; PROMPTS], ServingError> {
        let mut table = [[0.0; PROMPT_LENGTHS]; PROMPTS];
        for (row, line) in table.iter_mut().enumerate() {
            for (column, cell) in line.iter_mut().enumerate() {
                let count = f64::from(1u32 << (2 * row));
                let length = LEAST_PROMPT * f64::from(1u32 << column);
                *cell = self.engine.attention_prefill * self.one_prompt_attention_s(count, length)?;
            }
        }
        Ok(table)
    }

    fn one_prompt_attention_s(&self, batch: f64, tokens: f64) -> Result<f64, ServingError> {
        let model = self.model;
        let shape = |window| ContextAttention {
            batch,
            tokens,
            prefix: 0.0,
            heads: model.heads / self.tensor(),
            kv_heads: model.kv_heads_per_gpu(self.placement),
            head_dim: model.head_dim,
            window,
            kv: KernelFormat::Bf16,
        };
        let one_s = |window| self.gpu.prompt_attention_s(shape(window), self.kv_value_bytes);
        self.one_attention_s((batch, tokens), true, one_s)
    }

    fn index_s(&self) -> f64 {
        let sparse = self.model.latent.and_then(|l| l.sparse_tokens);
        let bandwidth = self.gpu.device().memory_bytes_per_s * STATE_MEMORY;
        sparse.map_or(0.0, |_| self.model.layers * INDEX_DIM / bandwidth)
    }

    /// Linear attention: seconds per decoding sequence and per prompt token.
    fn states(&self) -> (f64, f64) {
        let device = self.gpu.device();
        self.model.linear.map_or((0.0, 0.0), |l| {
            let state = l.value_heads / self.tensor() * l.key_dim * l.value_dim;
            let decode_s = l.layers * state * STATE_BYTES / (device.memory_bytes_per_s * STATE_MEMORY);
            let prompt_s = l.layers * 8.0 * state / (device.bf16_flops * STATE_COMPUTE);
            (decode_s, prompt_s)
        })
    }
}
