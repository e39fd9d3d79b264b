//! Served models by shape: what decides the time of a step and the room in
//! memory. Knows layers and number formats; knows nothing of machines.

/// How a matrix is stored and multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    Bf16,
    Fp8,
    Nvfp4,
    Int4,
    Mxfp4,
}

impl Format {
    /// Bytes of one weight, scales included: a scale of one byte per 16 values
    /// (NVFP4) or 32 (MXFP4, INT4).
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Nvfp4 => 0.5625,
            Self::Int4 | Self::Mxfp4 => 0.53125,
        }
    }

    /// The format as a person writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Nvfp4 => "nvfp4",
            Self::Int4 => "int4",
            Self::Mxfp4 => "mxfp4",
        }
    }

    /// Whether activations are quantized in a kernel of their own.
    pub(super) fn quantizes(self) -> f64 {
        if self == Self::Bf16 { 0.0 } else { 1.0 }
    }
}

/// Latent attention (DeepSeek's MLA).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latent {
    pub query_rank: f64,
    pub kv_rank: f64,
    pub nope_dim: f64,
    pub rope_dim: f64,
    pub value_dim: f64,
    /// Tokens that sparse attention picks from the cache (DSA).
    pub sparse_tokens: Option<f64>,
}

/// Linear attention layers (gated delta rule).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    pub layers: f64,
    pub key_heads: f64,
    pub value_heads: f64,
    pub key_dim: f64,
    pub value_dim: f64,
}

/// Layers that see a window of the cache only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sliding {
    pub layers: f64,
    pub window: f64,
}

/// Routed experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    pub count: f64,
    pub top_k: f64,
    pub ffn: f64,
    /// Width of the expert that every token visits; 0 without one.
    pub shared_ffn: f64,
}

/// Which format each part of a checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    pub attention: Format,
    pub dense: Format,
    pub experts: Format,
}

/// A served model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transformer {
    pub layers: f64,
    pub hidden: f64,
    pub vocab: f64,
    pub heads: f64,
    pub kv_heads: f64,
    pub head_dim: f64,
    /// Layers with a dense feed-forward block.
    pub dense_layers: f64,
    pub dense_ffn: f64,
    /// Whether attention gates its output, which doubles the query projection.
    pub gated: bool,
    pub latent: Option<Latent>,
    pub sliding: Option<Sliding>,
    pub linear: Option<Linear>,
    pub experts: Option<Experts>,
    pub formats: Formats,
}

impl Transformer {
    /// Layers whose cache grows with every token.
    pub fn full_layers(&self) -> f64 {
        self.layers - self.sliding.map_or(0.0, |s| s.layers) - self.linear.map_or(0.0, |l| l.layers)
    }

    /// Layers with routed experts.
    pub fn expert_layers(&self) -> f64 {
        if self.experts.is_some() { self.layers - self.dense_layers } else { 0.0 }
    }

    /// Bytes of weights on one GPU.
    pub fn weight_bytes(&self, placement: &Placement) -> f64 {
        let tensor = f64::from(placement.tensor);
        let h = self.hidden;
        let attention = match self.latent {
            Some(l) => {
                h * l.query_rank
                    + l.query_rank * self.heads * (l.nope_dim + l.rope_dim)
                    + h * (l.kv_rank + l.rope_dim)
                    + l.kv_rank * self.heads * (l.nope_dim + l.value_dim)
                    + self.heads * l.value_dim * h
            }
            None => h * self.head_dim * (2.0 * self.heads + 2.0 * self.kv_heads),
        };
        let linear_layers = self.linear.map_or(0.0, |l| l.layers);
        let linear = self
            .linear
            .map_or(0.0, |l| h * (2.0 * l.key_heads * l.key_dim + 3.0 * l.value_heads * l.value_dim));
        let formats = self.formats;
        let attending = (self.layers - linear_layers) * attention + linear_layers * linear;
        let dense = self.dense_layers * 3.0 * h * self.dense_ffn;
        let expert_layers = self.expert_layers();
        let (routed, shared) = self.experts.map_or((0.0, 0.0), |e| {
            (expert_layers * e.count * 3.0 * h * e.ffn, expert_layers * 3.0 * h * e.shared_ffn)
        });
        attending * formats.attention.bytes() / tensor
            + (dense + shared) * formats.dense.bytes() / tensor
            + routed * formats.experts.bytes() / f64::from(placement.expert_tensor * placement.expert)
            + 2.0 * self.vocab * h * Format::Bf16.bytes() / tensor
    }

    /// Bytes of cache that a token adds on one GPU.
    pub fn kv_bytes_per_token(&self, placement: &Placement, bytes_per_value: f64) -> f64 {
        let values = match self.latent {
            Some(l) => self.layers * (l.kv_rank + l.rope_dim),
            None => self.full_layers() * 2.0 * self.kv_heads_per_gpu(placement) * self.head_dim,
        };
        values * bytes_per_value
    }

    /// Where there are more GPUs than heads, each holds a copy of one.
    pub(super) fn kv_heads_per_gpu(&self, placement: &Placement) -> f64 {
        (self.kv_heads / f64::from(placement.tensor)).max(1.0)
    }
}

/// How one replica lies on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// GPUs that share each attention layer.
    pub tensor: u32,
    /// Copies of attention, each with its own requests (attention DP).
    pub attention_data: u32,
    /// GPUs that share one expert.
    pub expert_tensor: u32,
    /// Groups among which experts are dealt out.
    pub expert: u32,
}

impl Placement {
    /// GPUs of the replica.
    pub fn gpus(&self) -> u32 {
        self.tensor * self.attention_data
    }

    /// What is wrong with the placement of `model`, where something is.
    pub fn problem(&self, model: &Transformer) -> Option<String> {
        let Self { tensor, attention_data, expert_tensor, expert } = *self;
        if tensor == 0 || attention_data == 0 || expert_tensor == 0 || expert == 0 {
            return Some("a placement needs at least one GPU along every axis".into());
        }
        if model.experts.is_some() && expert_tensor * expert != self.gpus() {
            return Some(format!(
                "experts lie on {expert_tensor} × {expert} GPUs, attention on {tensor} × {attention_data}"
            ));
        }
        if model.heads % f64::from(tensor) != 0.0 {
            return Some(format!("{} heads do not divide among {tensor} GPUs", model.heads));
        }
        let experts = model.experts.map_or(0.0, |e| e.count);
        if experts % f64::from(expert) != 0.0 {
            return Some(format!("{experts} experts do not divide among {expert} groups"));
        }
        None
    }
}
