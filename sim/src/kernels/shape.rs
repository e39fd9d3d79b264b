//! What a kernel is asked for, and the roofline that its time is measured by.
//!
//! Each shape turns into [`Coordinates`]: the sizes that decide how far from
//! the roofline a kernel of its kind stays, and the roofline itself. The
//! distiller and the queries call the same functions, so that a curve means
//! the same to both.

use super::error::Error;
use super::kind::{Collective, Device, Format, MlaFormats};

/// Coordinates that any kind has at most.
pub const MAX_COORDINATES: usize = 9;

/// Where a kernel stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coordinates {
    pub roofline_s: f64,
    /// Logarithms of what [`Kind::coordinates`] names.
    pub log2: [f64; MAX_COORDINATES],
    /// Whether the shape has a trait that no measured kernel had.
    pub unmeasured: bool,
}

impl Coordinates {
    fn new(roofline_s: f64, values: &[f64]) -> Self {
        let mut log2 = [0.0; MAX_COORDINATES];
        for (log2, value) in log2.iter_mut().zip(values) {
            *log2 = value.log2();
        }
        Self { roofline_s, log2, unmeasured: false }
    }
}

/// Refuses sizes below `least`, infinite ones and those that are no number.
fn sizes(least: f64, given: &[(&'static str, f64)]) -> Result<(), Error> {
    match given.iter().find(|(_, value)| !(value.is_finite() && *value >= least)) {
        Some(&(what, value)) => Err(Error::Size { what, value }),
        None => Ok(()),
    }
}

/// A product of matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matmul {
    /// Rows: tokens.
    pub m: f64,
    /// Columns: what comes out of each token.
    pub n: f64,
    /// What is summed over.
    pub k: f64,
    pub format: Format,
}

/// Launch and drain of a kernel that does next to nothing.
const MATMUL_FLOOR_S: f64 = 2e-6;
const ATTENTION_FLOOR_S: f64 = 10e-6;
const MOE_FLOOR_S: f64 = 20e-6;
const COLLECTIVE_FLOOR_S: f64 = 10e-6;

impl Matmul {
    pub fn coordinates(&self, device: &Device) -> Result<Coordinates, Error> {
        let Self { m, n, k, format } = *self;
        sizes(1.0, &[("m", m), ("n", n), ("k", k)])?;
        let compute_s = 2.0 * m * n * k / format.flops(device);
        let bytes = format.weight_bytes() * (m * k + n * k) + 2.0 * m * n;
        let roofline_s = compute_s + bytes / device.memory_bytes_per_s + MATMUL_FLOOR_S;
        // Rows that fill no whole tile of 16 take other kernels, padding or both; scales of blocks
        // want rows in fours.
        let whole = |tile: f64| m.round() % tile == 0.0;
        let ragged = if whole(16.0) {
            1.0
        } else if whole(4.0) {
            2.0
        } else {
            4.0
        };
        let waves = |tile_n: f64| (m / 128.0).ceil() * (n / tile_n).ceil() / device.sms;
        Ok(Coordinates::new(roofline_s, &[m, n, k, ragged, waves(128.0), waves(256.0)]))
    }
}

/// Attention while a prompt is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextAttention {
    pub batch: f64,
    /// New tokens of each sequence.
    pub tokens: f64,
    /// Tokens before them that are in the cache.
    pub prefix: f64,
    pub heads: f64,
    pub kv_heads: f64,
    pub head_dim: f64,
    /// How far back a token looks; everything before it where none is said.
    pub window: Option<f64>,
    /// Format of the cache.
    pub kv: Format,
}

/// Pairs of a query and a key it sees, where `tokens` follow a `prefix`.
fn causal_pairs(tokens: f64, prefix: f64, window: f64) -> f64 {
    // Token i sees min(prefix + i, window) keys.
    let growing = (window - prefix).clamp(0.0, tokens);
    growing * prefix + growing * (growing + 1.0) / 2.0 + (tokens - growing) * window
}

impl ContextAttention {
    pub fn coordinates(&self, device: &Device) -> Result<Coordinates, Error> {
        let Self { batch, tokens, prefix, heads, kv_heads, head_dim, window, .. } = *self;
        sizes(1.0, &[("batch", batch), ("tokens", tokens), ("heads", heads)])?;
        sizes(1.0, &[("kv-heads", kv_heads), ("head-dim", head_dim)])?;
        sizes(0.0, &[("prefix", prefix)])?;
        let all = tokens + prefix;
        let window = window.map_or(all, |window| window.clamp(1.0, all));
        let flops = 4.0 * batch * heads * head_dim * causal_pairs(tokens, prefix, window);
        let keys = tokens + prefix.min(window);
        let bytes = 4.0 * batch * head_dim * (tokens * heads + keys * kv_heads);
        let roofline_s = flops / device.bf16_flops + bytes / device.memory_bytes_per_s + ATTENTION_FLOOR_S;
        let group = (heads / kv_heads).max(1.0);
        let windowed = if self.window.is_some() { 2.0 } else { 1.0 };
        // A block of the kernel takes 128 queries of one head.
        let waves = (tokens / 128.0).ceil() * batch * heads / device.sms;
        let at = [tokens, batch * heads, heads, group, head_dim, all / window, batch, windowed, waves];
        // No measured kernel had a prefix: its pairs are counted, its cache is read at the same pace.
        Ok(Coordinates { unmeasured: prefix > 0.0, ..Coordinates::new(roofline_s, &at) })
    }
}

/// Attention while tokens are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationAttention {
    pub batch: f64,
    /// Tokens that the new one looks back at, itself included.
    pub length: f64,
    pub heads: f64,
    pub kv_heads: f64,
    pub head_dim: f64,
    pub window: Option<f64>,
    /// Format of the cache.
    pub kv: Format,
}

impl GenerationAttention {
    pub fn coordinates(&self, device: &Device) -> Result<Coordinates, Error> {
        let Self { batch, length, heads, kv_heads, head_dim, window, kv } = *self;
        sizes(1.0, &[("batch", batch), ("length", length), ("heads", heads)])?;
        sizes(1.0, &[("kv-heads", kv_heads), ("head-dim", head_dim)])?;
        let seen = window.map_or(length, |window| window.clamp(1.0, length));
        // What is read again and again stays in L2, if it fits.
        let cache_bytes = 2.0 * batch * head_dim * kv.weight_bytes() * seen * kv_heads;
        let bytes = cache_bytes + 4.0 * batch * head_dim * heads;
        let roofline_s = bytes / device.memory_bytes_per_s + ATTENTION_FLOOR_S;
        let group = (heads / kv_heads).max(1.0);
        // Heads that share a cache share a block, but in kernels with a window, however short the
        // sequence is: those of FlashAttention 2 then take a block for each head.
        let window_heads = if window.is_some() { 2.0 * batch * heads } else { 1.0 };
        let passed = length / seen;
        let sequence_kv = batch * kv_heads;
        let at = [seen, batch, kv_heads, group, head_dim, passed, sequence_kv, cache_bytes, window_heads];
        Ok(Coordinates::new(roofline_s, &at))
    }
}

/// How tokens spread over experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    Balanced,
    /// A power law of exponent 1.01; the GPU is the one with the most tokens.
    PowerLaw101,
    /// A power law of exponent 1.2.
    PowerLaw120,
}

impl Routing {
    /// The place on the axis of skew, whose knots are these.
    fn skew(self) -> f64 {
        match self {
            Self::Balanced => 1.0,
            Self::PowerLaw101 => 2.0,
            Self::PowerLaw120 => 4.0,
        }
    }
}

/// The routed experts of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moe {
    /// Tokens of all GPUs that share the experts.
    pub tokens: f64,
    pub hidden: f64,
    /// Width of one expert, before it is cut by `tensor_parallel`.
    pub inter: f64,
    pub top_k: f64,
    pub experts: f64,
    pub tensor_parallel: f64,
    pub expert_parallel: f64,
    pub routing: Routing,
    pub format: Format,
}

impl Moe {
    pub fn coordinates(&self, device: &Device) -> Result<Coordinates, Error> {
        let Self { tokens, hidden, top_k, experts, expert_parallel: ep, format, .. } = *self;
        sizes(1.0, &[("tokens", tokens), ("hidden", hidden), ("inter", self.inter), ("top-k", top_k)])?;
        sizes(1.0, &[("experts", experts), ("tensor-parallel", self.tensor_parallel)])?;
        sizes(1.0, &[("expert-parallel", ep)])?;
        let inter = self.inter / self.tensor_parallel;
        let local = experts / ep;
        let routed = tokens * top_k / ep;
        let touched = local * (1.0 - (1.0 - (top_k / experts).min(1.0)).powf(tokens));
        let flops = 6.0 * routed * hidden * inter;
        let weights = 3.0 * touched * hidden * inter * format.weight_bytes();
        let activations = 4.0 * tokens * hidden + 2.0 * routed * (2.0 * hidden + 3.0 * inter);
        let roofline_s =
            flops / format.flops(device) + (weights + activations) / device.memory_bytes_per_s + MOE_FLOOR_S;
        let per_expert = tokens * top_k / experts;
        let skew = self.routing.skew();
        Ok(Coordinates::new(
            roofline_s,
            &[per_expert, local, inter, hidden, top_k, skew, tokens, ep, experts],
        ))
    }
}

/// Width of DeepSeek-V3's latent attention: hidden, compressed queries and
/// keys, and of each head the part that turns with the position.
const HIDDEN: f64 = 7168.0;
const QUERY_RANK: f64 = 1536.0;
const KV_RANK: f64 = 512.0;
const ROPE: f64 = 64.0;
const HEAD: f64 = 128.0;

/// Latent attention of DeepSeek-V3's widths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mla {
    pub batch: f64,
    /// New tokens of each sequence, or the length of its cache.
    pub length: f64,
    /// Heads on this GPU.
    pub heads: f64,
    /// Format of the cache.
    pub kv: Format,
}

impl Mla {
    fn at(&self, roofline_s: f64) -> Coordinates {
        Coordinates::new(roofline_s, &[self.length, self.batch, self.heads, self.batch * self.heads])
    }

    fn sized(&self) -> Result<(), Error> {
        sizes(1.0, &[("batch", self.batch), ("length", self.length), ("heads", self.heads)])
    }

    pub fn context(&self, device: &Device) -> Result<Coordinates, Error> {
        self.sized()?;
        Ok(self.at(self.context_s(device) + ATTENTION_FLOOR_S))
    }

    pub fn generation(&self, device: &Device) -> Result<Coordinates, Error> {
        self.sized()?;
        Ok(self.at(self.generation_s(device) + ATTENTION_FLOOR_S))
    }

    fn context_s(&self, device: &Device) -> f64 {
        let pairs = self.batch * self.heads * causal_pairs(self.length, 0.0, self.length);
        let flops = 2.0 * pairs * (HEAD + ROPE + HEAD);
        let bytes = 2.0 * self.batch * self.length * self.heads * (2.0 * (HEAD + ROPE) + 2.0 * HEAD);
        flops / device.bf16_flops + bytes / device.memory_bytes_per_s
    }

    fn generation_s(&self, device: &Device) -> f64 {
        let cached = self.batch * self.length * (KV_RANK + ROPE);
        let flops = 2.0 * self.batch * self.heads * self.length * (2.0 * KV_RANK + ROPE);
        let bytes = cached * self.kv.weight_bytes() + 4.0 * self.batch * self.heads * (2.0 * KV_RANK + ROPE);
        flops / device.bf16_flops + bytes / device.memory_bytes_per_s
    }
}

/// A whole block of latent attention with its projections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlaModule {
    pub batch: f64,
    /// New tokens of each sequence, or the length of its cache.
    pub length: f64,
    /// Heads on this GPU.
    pub heads: f64,
    pub formats: MlaFormats,
}

impl MlaModule {
    fn attention(&self) -> Mla {
        Mla { batch: self.batch, length: self.length, heads: self.heads, kv: self.formats.kv }
    }

    pub fn context(&self, device: &Device) -> Result<Coordinates, Error> {
        let attention = self.attention();
        attention.sized()?;
        let products_s = self.products_s(device, self.batch * self.length);
        Ok(attention.at(attention.context_s(device) + products_s + MOE_FLOOR_S))
    }

    pub fn generation(&self, device: &Device) -> Result<Coordinates, Error> {
        let attention = self.attention();
        attention.sized()?;
        let products_s = self.products_s(device, self.batch);
        Ok(attention.at(attention.generation_s(device) + products_s + MOE_FLOOR_S))
    }

    fn products_s(&self, device: &Device, tokens: f64) -> f64 {
        let format = self.formats.products;
        let down = HIDDEN * (QUERY_RANK + KV_RANK + ROPE);
        let up = self.heads * (QUERY_RANK * (HEAD + ROPE) + KV_RANK * 2.0 * HEAD + HEAD * HIDDEN);
        let weights = down + up;
        2.0 * tokens * weights / format.flops(device)
            + (weights * format.weight_bytes() + 8.0 * tokens * HIDDEN) / device.memory_bytes_per_s
    }
}

/// A collective among GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveShape {
    pub op: Collective,
    /// As nccl-tests counts them: what every GPU ends up with of an all-gather
    /// or an all-reduce, and what it began with of the others.
    pub bytes: f64,
    pub ranks: f64,
}

impl CollectiveShape {
    /// Fails when fewer than two GPUs take part, or a byte is split.
    pub fn coordinates(&self, device: &Device) -> Result<Coordinates, Error> {
        let Self { op, bytes, ranks } = *self;
        sizes(1.0, &[("bytes", bytes)])?;
        sizes(2.0, &[("ranks", ranks)])?;
        let rounds = match op {
            Collective::AllReduce | Collective::CustomAllReduce => 2.0,
            _ => 1.0,
        };
        let share = rounds * (ranks - 1.0) / ranks;
        let roofline_s = share * bytes / device.link_bytes_per_s + COLLECTIVE_FLOOR_S;
        Ok(Coordinates::new(roofline_s, &[bytes, ranks]))
    }
}
