//! Decoder-only transformers by shape: what moves time or memory, no more.

use schemars::JsonSchema;
use serde::Deserialize;

/// How a layer attends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attention {
    /// Multi-head, grouped-query or multi-query: `kv_heads` decides.
    Grouped,
    /// DeepSeek's latent attention: keys and values pass through a narrow
    /// vector, which is also all that the cache holds.
    Latent { query_rank: u32, kv_rank: u32, rope_dim: u32, value_dim: u32 },
}

/// The feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// Two matrices.
    Gelu,
    /// Three matrices: gate, up, down.
    SwiGlu,
}

/// Whether input and output embeddings are one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    Tied,
    Untied,
}

/// State-space layers between those that attend (Mamba-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mamba {
    pub layers: u32,
    /// Layers that attend; what is left of the model are feed-forward layers.
    pub attention_layers: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub state: u32,
    pub groups: u32,
}

impl Mamba {
    /// Values of the inner stream.
    pub fn inner(&self) -> f64 {
        f64::from(self.heads) * f64::from(self.head_dim)
    }

    /// Columns of the input projection: gate, stream, both state matrices, step.
    pub fn input_columns(&self) -> f64 {
        2.0 * self.inner() + 2.0 * f64::from(self.groups) * f64::from(self.state) + f64::from(self.heads)
    }
}

/// Layers that attend only to the last tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Window {
    pub tokens: u32,
    pub layers: u32,
}

/// How many blocks of each kind a model has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Blocks {
    /// Attention and a dense feed-forward block.
    pub dense: f64,
    /// Attention and experts.
    pub sparse: f64,
    /// Attention alone.
    pub attention: f64,
    /// Experts alone.
    pub experts: f64,
    pub mamba: f64,
}

/// Mixture of experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Moe {
    pub experts: u32,
    pub top_k: u32,
    /// Experts every token visits.
    #[serde(default)]
    pub shared_experts: u32,
    /// Width of one expert.
    pub expert_ffn: u32,
    /// Layers at the start that stay dense.
    #[serde(default)]
    pub dense_layers: u32,
    /// Width that tokens are projected to before they are routed; zero where
    /// they keep the hidden size.
    #[serde(default)]
    pub latent: u32,
    /// Nodes that a token's experts may lie on (node-limited routing); zero
    /// where the router does not look.
    #[serde(default)]
    pub most_nodes: u32,
}

/// A decoder-only transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llm {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub ffn: u32,
    pub mlp: Mlp,
    pub vocab: u32,
    pub vocabulary: Vocabulary,
    /// Learned positions (GPT-3); zero with rotary or ALiBi positions.
    pub positions: u32,
    /// Whether linear layers carry biases.
    pub biases: bool,
    pub attention: Attention,
    pub window: Option<Window>,
    pub mamba: Option<Mamba>,
    pub moe: Option<Moe>,
    /// Further layers that predict tokens beyond the next (MTP), each with a
    /// loss of its own.
    pub next_token_layers: u32,
}

impl Llm {
    /// Matrices of one feed-forward block.
    pub fn mlp_matrices(&self) -> f64 {
        match self.mlp {
            Mlp::Gelu => 2.0,
            Mlp::SwiGlu => 3.0,
        }
    }

    /// Parameters of one layer's attention.
    pub fn attention_parameters(&self) -> f64 {
        let h = f64::from(self.hidden);
        let heads = f64::from(self.heads);
        let head_dim = f64::from(self.head_dim);
        match self.attention {
            Attention::Grouped => {
                let q = heads * head_dim;
                let kv = f64::from(self.kv_heads) * head_dim;
                let biases = if self.biases { q + 2.0 * kv + h } else { 0.0 };
                h * (q + 2.0 * kv) + q * h + biases
            }
            Attention::Latent { query_rank, kv_rank, rope_dim, value_dim } => {
                let (q_rank, kv_rank) = (f64::from(query_rank), f64::from(kv_rank));
                let (rope, value) = (f64::from(rope_dim), f64::from(value_dim));
                h * q_rank
                    + q_rank * heads * (head_dim + rope)
                    + h * (kv_rank + rope)
                    + kv_rank * heads * (head_dim + value)
                    + heads * value * h
            }
        }
    }

    /// Parameters of one dense feed-forward block.
    pub fn dense_mlp_parameters(&self) -> f64 {
        let (h, f) = (f64::from(self.hidden), f64::from(self.ffn));
        let biases = if self.biases { (self.mlp_matrices() - 1.0) * f + h } else { 0.0 };
        self.mlp_matrices() * h * f + biases
    }

    /// Parameters of one routed expert.
    pub fn expert_parameters(&self) -> f64 {
        self.moe.map_or(0.0, |moe| self.mlp_matrices() * self.routed_width() * f64::from(moe.expert_ffn))
    }

    /// Parameters of one shared expert, which sees the hidden stream as it is.
    pub fn shared_expert_parameters(&self) -> f64 {
        self.moe.map_or(0.0, |moe| self.mlp_matrices() * f64::from(self.hidden) * f64::from(moe.expert_ffn))
    }

    /// Width of a token as it is routed.
    pub fn routed_width(&self) -> f64 {
        f64::from(match self.moe {
            Some(moe) if moe.latent > 0 => moe.latent,
            _ => self.hidden,
        })
    }

    /// Parameters of the projections into the routed width and back.
    pub fn latent_parameters(&self) -> f64 {
        match self.moe {
            Some(moe) if moe.latent > 0 => 2.0 * f64::from(self.hidden) * f64::from(moe.latent),
            _ => 0.0,
        }
    }

    /// Parameters of one state-space layer.
    pub fn mamba_parameters(&self) -> f64 {
        self.mamba.map_or(0.0, |mamba| f64::from(self.hidden) * (mamba.input_columns() + mamba.inner()))
    }

    /// Blocks by kind, those that predict further tokens included.
    pub fn blocks(&self) -> Blocks {
        let layers = f64::from(self.layers);
        let further = f64::from(self.next_token_layers);
        match (self.mamba, self.moe) {
            (Some(mamba), moe) => {
                let attention = f64::from(mamba.attention_layers);
                let rest = (layers - f64::from(mamba.layers) - attention).max(0.0);
                let (dense, experts) = if moe.is_some() { (0.0, rest) } else { (rest, 0.0) };
                // A dense feed-forward layer of a hybrid is timed with its attention.
                let attention = (attention - dense).max(0.0) + further;
                Blocks {
                    dense,
                    sparse: 0.0,
                    attention,
                    experts: experts + further,
                    mamba: f64::from(mamba.layers),
                }
            }
            (None, Some(moe)) => {
                let dense = f64::from(moe.dense_layers);
                Blocks { dense, sparse: layers - dense + further, ..Blocks::default() }
            }
            (None, None) => Blocks { dense: layers + further, ..Blocks::default() },
        }
    }

    /// Norms of one layer.
    pub fn norm_parameters(&self) -> f64 {
        let each = if self.biases { 2.0 } else { 1.0 };
        2.0 * each * f64::from(self.hidden)
    }

    /// One embedding matrix.
    pub fn embedding_parameters(&self) -> f64 {
        f64::from(self.vocab) * f64::from(self.hidden)
    }

    /// All parameters, experts included.
    pub fn parameters(&self) -> f64 {
        let blocks = self.blocks();
        let layers = f64::from(self.layers + self.next_token_layers);
        let attention = (blocks.dense + blocks.sparse + blocks.attention) * self.attention_parameters();
        let sparse = self.moe.map_or(0.0, |moe| {
            f64::from(moe.experts) * self.expert_parameters()
                + f64::from(moe.shared_experts) * self.shared_expert_parameters()
                + self.latent_parameters()
                + f64::from(self.hidden) * f64::from(moe.experts)
        });
        let mlps = blocks.dense * self.dense_mlp_parameters()
            + (blocks.sparse + blocks.experts) * sparse
            + blocks.mamba * self.mamba_parameters();
        let embeddings = match self.vocabulary {
            Vocabulary::Tied => 1.0,
            Vocabulary::Untied => 2.0,
        } * self.embedding_parameters();
        let positions = f64::from(self.positions) * f64::from(self.hidden);
        layers * self.norm_parameters()
            + attention
            + mlps
            + embeddings
            + positions
            + self.norm_parameters() / 2.0
    }

    /// Parameters a token passes through.
    pub fn active_parameters(&self) -> f64 {
        match self.moe {
            None => self.parameters(),
            Some(moe) => {
                let idle = f64::from(moe.experts - moe.top_k.min(moe.experts));
                self.parameters()
                    - (self.blocks().sparse + self.blocks().experts) * idle * self.expert_parameters()
            }
        }
    }

    /// Values of a head that scores and that sums of values are taken over.
    pub fn attention_dims(&self) -> (f64, f64) {
        match self.attention {
            Attention::Grouped => (f64::from(self.head_dim), f64::from(self.head_dim)),
            Attention::Latent { rope_dim, value_dim, .. } => {
                (f64::from(self.head_dim + rope_dim), f64::from(value_dim))
            }
        }
    }

    /// Values one token leaves in one layer's cache.
    pub fn kv_values_per_token_layer(&self) -> f64 {
        match self.attention {
            Attention::Grouped => 2.0 * f64::from(self.kv_heads) * f64::from(self.head_dim),
            Attention::Latent { kv_rank, rope_dim, .. } => f64::from(kv_rank) + f64::from(rope_dim),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama(layers: u32, hidden: u32, heads: u32, kv_heads: u32, ffn: u32, vocab: u32) -> Llm {
        Llm {
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim: hidden / heads,
            ffn,
            mlp: Mlp::SwiGlu,
            vocab,
            vocabulary: Vocabulary::Untied,
            positions: 0,
            biases: false,
            attention: Attention::Grouped,
            window: None,
            mamba: None,
            moe: None,
            next_token_layers: 0,
        }
    }

    #[test]
    fn parameter_counts_equal_the_published_ones() {
        let cases = [
            (llama(32, 4096, 32, 32, 11008, 32000), 6_738_415_616.0),
            (llama(32, 4096, 32, 8, 14336, 128_256), 8_030_261_248.0),
            (llama(80, 8192, 64, 8, 28672, 128_256), 70_553_706_496.0),
        ];
        for (llm, published) in cases {
            assert_eq!(llm.parameters(), published);
        }
    }

    #[test]
    fn deepseek_v3_has_671_billion_of_which_37_are_active() {
        let llm = Llm {
            head_dim: 128,
            attention: Attention::Latent { query_rank: 1536, kv_rank: 512, rope_dim: 64, value_dim: 128 },
            moe: Some(Moe {
                experts: 256,
                top_k: 8,
                shared_experts: 1,
                expert_ffn: 2048,
                dense_layers: 3,
                ..Moe::default()
            }),
            ..llama(61, 7168, 128, 128, 18432, 129_280)
        };
        assert!((llm.parameters() / 671.0e9 - 1.0).abs() < 0.002, "{}", llm.parameters());
        // The report's 37 billion leave the input embedding out (a lookup).
        let active = llm.active_parameters() - llm.embedding_parameters();
        assert!((active / 37.0e9 - 1.0).abs() < 0.02, "{active}");
    }
}
