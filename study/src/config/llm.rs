//! Language models in files.

use super::names::{MlpName, VocabularyName};
use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Diagnostic};
use trinity_sim::{Attention, Llm, Mamba, Moe, Window};

settable! {
    LlmFile { layers, hidden, heads, kv_heads, head_dim, ffn, mlp, vocab, vocabulary, positions, biases, latent, window, mamba, moe, next_token_layers }
    Window { tokens, layers }
    Mamba { layers, attention_layers, heads, head_dim, state, groups }
    LatentFile { query_rank, kv_rank, rope_dim, value_dim }
    Moe { experts, top_k, shared_experts, expert_ffn, dense_layers, latent, most_nodes }
}

/// A decoder-only transformer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LlmFile {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    /// As many as heads, where it is not said.
    pub kv_heads: Option<u32>,
    /// Hidden size over heads, where it is not said.
    pub head_dim: Option<u32>,
    pub ffn: u32,
    pub mlp: MlpName,
    pub vocab: u32,
    pub vocabulary: VocabularyName,
    /// Learned positions, if any.
    #[serde(default)]
    pub positions: u32,
    #[serde(default)]
    pub biases: bool,
    /// Latent attention (DeepSeek).
    pub latent: Option<LatentFile>,
    /// Layers that attend only to the last tokens.
    pub window: Option<Window>,
    /// State-space layers (Mamba-2).
    pub mamba: Option<Mamba>,
    /// Mixture of experts.
    pub moe: Option<Moe>,
    /// Further layers that predict tokens beyond the next.
    #[serde(default)]
    pub next_token_layers: u32,
}

/// Latent attention: ranks and widths.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LatentFile {
    pub query_rank: u32,
    pub kv_rank: u32,
    pub rope_dim: u32,
    pub value_dim: u32,
}

impl LlmFile {
    pub fn resolve(&self) -> Llm {
        Llm {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads.unwrap_or(self.heads),
            head_dim: self.head_dim.unwrap_or(self.hidden / self.heads.max(1)),
            ffn: self.ffn,
            mlp: self.mlp.resolve(),
            vocab: self.vocab,
            vocabulary: self.vocabulary.resolve(),
            positions: self.positions,
            biases: self.biases,
            attention: self.latent.map_or(Attention::Grouped, |latent| Attention::Latent {
                query_rank: latent.query_rank,
                kv_rank: latent.kv_rank,
                rope_dim: latent.rope_dim,
                value_dim: latent.value_dim,
            }),
            window: self.window,
            mamba: self.mamba,
            next_token_layers: self.next_token_layers,
            moe: self.moe,
        }
    }
}

impl Checked for LlmFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let counts = [
            ("layers", f64::from(self.layers)),
            ("hidden", f64::from(self.hidden)),
            ("heads", f64::from(self.heads)),
            ("kv-heads", f64::from(self.kv_heads.unwrap_or(1))),
            ("head-dim", f64::from(self.head_dim.unwrap_or(1))),
            ("ffn", f64::from(self.ffn)),
            ("vocab", f64::from(self.vocab)),
        ];
        let uneven = !self.heads.is_multiple_of(self.kv_heads.unwrap_or(self.heads));
        let uneven = uneven.then(|| {
            let what = format_args!("{} heads cannot share these KV heads evenly", self.heads);
            at.refuse("kv-heads", what, "a divisor of the number of heads")
        });
        let unsound = self.moe.as_ref().is_some_and(|moe| {
            !(moe.experts > 0 && (1..=moe.experts).contains(&moe.top_k) && moe.dense_layers <= self.layers)
        });
        let experts = unsound.then(|| {
            let expected = "top-k from 1 to the number of experts, dense-layers within layers";
            at.refuse("moe", "this mixture of experts cannot be", expected)
        });
        let kinds = self.mamba.as_ref().map_or(0, |mamba| mamba.layers + mamba.attention_layers);
        let hybrid = (kinds > self.layers).then(|| {
            let what = format_args!("{kinds} layers of {} are state-space or attention", self.layers);
            at.refuse("mamba", what, "at most as many as the model has")
        });
        let counts = at.positive(&counts);
        // Heads that are none divide nothing; that is one mistake, not two.
        let uneven = uneven.filter(|_| counts.is_ok());
        Diagnostic::gather([counts].into_iter().chain(uneven).chain(experts).chain(hybrid))
    }
}
