//! A model's shape and its family's ways, as Hugging Face's `config.json` gives
//! them. [`crate::gguf`] makes the same out of a GGUF's metadata.

use crate::Error;
use crate::rotary::{Rope, Scaling};
use serde::Deserialize;
use std::path::Path;

/// What a forward pass needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    pub tie_word_embeddings: bool,
    /// `bytes`: a token is a byte. Absent: the tokenizer that comes with the model.
    pub tokenizer: Option<String>,
    pub family: Family,
    pub layers: Vec<LayerKind>,
    /// Positions of layers that see everything, and of those that see a window.
    pub(crate) rope: Rope,
    pub(crate) rope_of_windows: Rope,
    /// What products of queries and keys are multiplied by.
    pub(crate) attention_scale: f32,
    /// What is added to the weights of norms as they are stored.
    pub(crate) norm_offset: f32,
}

/// Models that differ in more than their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2, Mistral: RMSNorm, SwiGLU, no biases.
    Llama,
    /// Qwen 2 and 2.5: biases on Q, K and V.
    Qwen2,
    /// Qwen 3: every head's Q and K through a norm.
    Qwen3,
    /// Gemma 3: norms around each part, GELU, scaled embeddings, Q and K norms.
    Gemma3,
    /// GPT-2: LayerNorm, learnt positions, biases, no gate; weights are stored inputs by outputs.
    Gpt2,
}

impl Family {
    fn of(model_type: &str) -> Option<Self> {
        Some(match model_type {
            "llama" | "mistral" | "smollm2" => Self::Llama,
            "qwen2" => Self::Qwen2,
            "qwen3" => Self::Qwen3,
            "gemma3" | "gemma3_text" => Self::Gemma3,
            "gpt2" => Self::Gpt2,
            _ => return None,
        })
    }

    pub(crate) fn parse(model_type: &str) -> Result<Self, String> {
        Self::of(model_type).ok_or_else(|| {
            format!(
                "models of type `{model_type}` are not supported; llama, qwen2, qwen3, gemma3 and gpt2 are"
            )
        })
    }

    pub(crate) fn has_qkv_bias(self) -> bool {
        self == Self::Qwen2
    }

    pub(crate) fn has_qk_norm(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Gemma3)
    }

    /// Norms after attention and feed-forward, not only before.
    pub(crate) fn has_outer_norms(self) -> bool {
        self == Self::Gemma3
    }

    pub(crate) fn is_gpt2(self) -> bool {
        self == Self::Gpt2
    }

    pub(crate) fn scales_embeddings(self) -> bool {
        self == Self::Gemma3
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Every position before.
    Full,
    /// So many positions, its own included.
    Window(usize),
}

/// `config.json`, as far as it matters here.
#[derive(Deserialize)]
struct Raw {
    model_type: Option<String>,
    // GPT-2 has names of its own.
    #[serde(alias = "n_embd")]
    hidden_size: usize,
    #[serde(alias = "n_layer")]
    num_hidden_layers: usize,
    #[serde(alias = "n_head")]
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(alias = "n_inner")]
    intermediate_size: Option<usize>,
    vocab_size: usize,
    #[serde(default = "default_positions", alias = "n_positions")]
    max_position_embeddings: usize,
    #[serde(default = "default_theta")]
    rope_theta: f64,
    rope_local_base_freq: Option<f64>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRopes>,
    #[serde(default = "default_epsilon", alias = "layer_norm_epsilon")]
    rms_norm_eps: f64,
    tie_word_embeddings: Option<bool>,
    tokenizer: Option<String>,
    #[serde(alias = "hidden_activation", alias = "activation_function")]
    hidden_act: Option<String>,
    #[serde(default)]
    attention_bias: bool,
    query_pre_attn_scalar: Option<f64>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    sliding_window_pattern: Option<usize>,
    partial_rotary_factor: Option<f64>,
    attn_logit_softcapping: Option<f64>,
    final_logit_softcapping: Option<f64>,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default)]
    add_cross_attention: bool,
}

/// Positions of all layers, or of each type of layer.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawRopes {
    ByLayer { full_attention: RawRope, sliding_attention: RawRope },
    One(RawRope),
}

#[derive(Deserialize, Clone, Default)]
struct RawRope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

impl RawRope {
    fn rope(&self, theta: f64) -> Result<Rope, String> {
        let missing = |name: &str| format!("rope_scaling without {name}");
        if self.partial_rotary_factor.is_some_and(|factor| factor != 1.0) {
            return Err("partial_rotary_factor is not supported".into());
        }
        let scaling = match self.rope_type.as_deref().unwrap_or("default") {
            "default" if self.factor.is_none() => Scaling::None,
            "linear" => Scaling::Linear(self.factor.ok_or_else(|| missing("factor"))?),
            "llama3" => Scaling::Llama3 {
                factor: self.factor.ok_or_else(|| missing("factor"))?,
                low_freq_factor: self.low_freq_factor.ok_or_else(|| missing("low_freq_factor"))?,
                high_freq_factor: self.high_freq_factor.ok_or_else(|| missing("high_freq_factor"))?,
                original_positions: self
                    .original_max_position_embeddings
                    .ok_or_else(|| missing("original_max_position_embeddings"))?,
            },
            other => {
                return Err(format!(
                    "rope_scaling of type `{other}` is not supported, only linear and llama3: \
                     positions would be wrong"
                ));
            }
        };
        Ok(Rope { theta: self.rope_theta.unwrap_or(theta), scaling })
    }
}

fn default_positions() -> usize {
    2048
}

fn default_theta() -> f64 {
    10000.0
}

fn default_epsilon() -> f64 {
    1e-6
}

/// Larger than any model that could run here, smaller than any product that could overflow.
const LARGEST: usize = 1 << 24;
/// Gemma 3: every sixth layer sees everything, and windows turn more slowly.
pub(crate) const GEMMA_PATTERN: usize = 6;
pub(crate) const GEMMA_LOCAL_THETA: f64 = 10000.0;

impl Config {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let bad = |reason: String| Error::BadFile { file: file.clone(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        Self::parse(&text, &file)
    }

    /// Out of JSON text; `file` names it in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        let raw: Raw = serde_json::from_str(text)
            .map_err(|e| Error::BadFile { file: file.into(), reason: e.to_string() })?;
        let unsupported = |what: String| Error::Unsupported { file: file.into(), what };
        let config = raw.config().map_err(unsupported)?;
        config.check().map_err(unsupported)?;
        Ok(config)
    }

    /// Refuses what would run wrongly or not at all.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate_size),
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((name, value)) = sizes.into_iter().find(|(_, v)| !(1..=LARGEST).contains(v)) {
            return Err(format!("{name} = {value} makes no model"));
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(format!(
                "num_attention_heads {} is not a multiple of num_key_value_heads {}",
                self.num_attention_heads, self.num_key_value_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) && !self.family.is_gpt2() {
            return Err(format!("rotary positions need an even head size, not {}", self.head_dim));
        }
        let bounded = self.rms_norm_eps > 0.0 && self.rope.theta > 1.0 && self.rope_of_windows.theta > 1.0;
        let scaled = self.attention_scale.is_finite() && self.attention_scale > 0.0;
        if !(bounded && scaled) {
            return Err(
                "rms_norm_eps must be above 0, rope_theta above 1, query_pre_attn_scalar above 0".into()
            );
        }
        if self.layers.len() != self.num_hidden_layers || self.layers.contains(&LayerKind::Window(0)) {
            return Err("layer_types or sliding_window do not fit the layers".into());
        }
        Ok(())
    }

    /// Rows of the table of positions, where there is one.
    pub fn learnt_positions(&self) -> usize {
        if self.family.is_gpt2() { self.max_position_embeddings } else { 0 }
    }

    pub fn kv_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    pub fn q_size(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }
}

impl Raw {
    fn config(self) -> Result<Config, String> {
        // Configurations of our own models name no type.
        let family = Family::parse(self.model_type.as_deref().unwrap_or("llama"))?;
        let heads = self.num_attention_heads.max(1);
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(heads) {
            return Err(format!(
                "hidden_size {} is not a multiple of num_attention_heads {}",
                self.hidden_size, self.num_attention_heads
            ));
        }
        let head_dim = self.head_dim.unwrap_or(self.hidden_size / heads);
        let expected: &[&str] = match family {
            Family::Gemma3 => &["gelu_pytorch_tanh"],
            Family::Gpt2 => &["gelu_new", "gelu_pytorch_tanh"],
            _ => &["silu"],
        };
        if let Some(act) = self.hidden_act.as_deref().filter(|act| !expected.contains(act)) {
            return Err(format!("hidden_act `{act}` is not supported, only `{}` here", expected[0]));
        }
        let softcaps = self.attn_logit_softcapping.or(self.final_logit_softcapping).is_some();
        let unsupported = [
            (
                self.scale_attn_by_inverse_layer_idx || self.add_cross_attention,
                "scale_attn_by_inverse_layer_idx and add_cross_attention are",
            ),
            (self.attention_bias, "attention_bias is"),
            (softcaps, "softcapping of logits is"),
            (self.partial_rotary_factor.is_some_and(|factor| factor != 1.0), "partial_rotary_factor is"),
        ];
        if let Some((_, what)) = unsupported.iter().find(|(asked, _)| *asked) {
            return Err(format!("{what} not supported"));
        }
        let intermediate_size = match (self.intermediate_size, family) {
            (Some(size), _) => size,
            (None, Family::Gpt2) => self.hidden_size.saturating_mul(4),
            (None, _) => return Err("no intermediate_size".into()),
        };
        let (rope, rope_of_windows) = self.ropes(family)?;
        let layers = self.layers(family)?;
        let scalar = self.query_pre_attn_scalar.filter(|_| family == Family::Gemma3);
        Ok(Config {
            hidden_size: self.hidden_size,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            num_key_value_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
            head_dim,
            intermediate_size,
            vocab_size: self.vocab_size,
            max_position_embeddings: self.max_position_embeddings,
            rms_norm_eps: self.rms_norm_eps,
            tie_word_embeddings: self
                .tie_word_embeddings
                .unwrap_or(matches!(family, Family::Gemma3 | Family::Gpt2)),
            tokenizer: self.tokenizer,
            family,
            layers,
            rope,
            rope_of_windows,
            attention_scale: scalar.unwrap_or(head_dim as f64).powf(-0.5) as f32,
            norm_offset: if family == Family::Gemma3 { 1.0 } else { 0.0 },
        })
    }

    fn ropes(&self, family: Family) -> Result<(Rope, Rope), String> {
        let plain = RawRope::default();
        match &self.rope_parameters {
            Some(RawRopes::ByLayer { full_attention, sliding_attention }) => {
                Ok((full_attention.rope(self.rope_theta)?, sliding_attention.rope(GEMMA_LOCAL_THETA)?))
            }
            Some(RawRopes::One(one)) => {
                let rope = one.rope(self.rope_theta)?;
                Ok((rope.clone(), rope))
            }
            None => {
                let full = self.rope_scaling.as_ref().unwrap_or(&plain).rope(self.rope_theta)?;
                let local = self.rope_local_base_freq.unwrap_or(GEMMA_LOCAL_THETA);
                let windows = if family == Family::Gemma3 { plain.rope(local)? } else { full.clone() };
                Ok((full, windows))
            }
        }
    }

    fn layers(&self, family: Family) -> Result<Vec<LayerKind>, String> {
        let count = self.num_hidden_layers.min(LARGEST);
        let on = self.use_sliding_window.unwrap_or(matches!(family, Family::Gemma3 | Family::Llama));
        let window = self.sliding_window.filter(|_| on);
        let kind = |sees_window: bool| match (sees_window, window) {
            (true, Some(window)) => Ok(LayerKind::Window(window)),
            (true, None) => Err("layers of sliding attention, and no sliding_window".to_owned()),
            (false, _) => Ok(LayerKind::Full),
        };
        if let Some(types) = &self.layer_types {
            let one = |name: &String| match name.as_str() {
                "full_attention" => kind(false),
                "sliding_attention" => kind(true),
                other => Err(format!("layers of type `{other}` are not supported")),
            };
            return types.iter().map(one).collect();
        }
        let pattern = self.sliding_window_pattern.unwrap_or(GEMMA_PATTERN).max(1);
        let sees_window = |layer: usize| match family {
            Family::Gemma3 => !(layer + 1).is_multiple_of(pattern),
            _ => window.is_some(),
        };
        (0..count).map(|layer| kind(sees_window(layer))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"{"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3,
        "num_key_value_heads": 3, "intermediate_size": 512, "vocab_size": 256, "tokenizer": "bytes"}"#;

    #[test]
    fn a_plain_configuration_is_read() {
        let config = Config::parse(TINY, "tiny.json").unwrap();
        assert_eq!((config.head_dim, config.kv_size(), config.rope.theta), (64, 192, 10000.0));
        assert_eq!(config.layers, [LayerKind::Full; 6]);
    }

    #[test]
    fn names_of_gpt2_are_understood() {
        let text = r#"{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": null, "vocab_size": 256,
            "n_positions": 128, "n_ctx": 128, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"}"#;
        let config = Config::parse(text, "gpt2.json").unwrap();
        assert_eq!((config.intermediate_size, config.max_position_embeddings), (256, 128));
        assert!(config.tie_word_embeddings && config.rms_norm_eps == 1e-5);
        let inverse = text.replace("\"n_ctx\": 128", "\"scale_attn_by_inverse_layer_idx\": true");
        assert!(Config::parse(&inverse, "gpt2.json").is_err());
    }

    #[test]
    fn what_would_run_wrongly_is_refused_by_name() {
        let vocabulary = "\"vocab_size\": 256";
        let with = |more: &str| format!("{vocabulary}, {more}");
        for (from, to, named) in [
            ("\"hidden_size\": 192", "\"hidden_size\": 0".to_owned(), "hidden_size"),
            ("\"num_attention_heads\": 3", "\"num_attention_heads\": 5".to_owned(), "num_attention_heads"),
            (vocabulary, with("\"hidden_act\": \"gelu\""), "gelu"),
            (vocabulary, with("\"rope_scaling\": {\"factor\": 8, \"rope_type\": \"yarn\"}"), "yarn"),
            (vocabulary, with("\"rope_scaling\": {\"rope_type\": \"llama3\"}"), "factor"),
            (vocabulary, with("\"model_type\": \"mamba\""), "mamba"),
            (vocabulary, with("\"model_type\": \"gemma3_text\""), "sliding_window"),
            (vocabulary, with("\"layer_types\": [\"full_attention\"]"), "layer_types"),
        ] {
            let message = Config::parse(&TINY.replace(from, &to), "c.json").unwrap_err().to_string();
            assert!(message.contains(named) && message.contains("c.json"), "{message}");
        }
        assert!(Config::parse("{", "c.json").is_err());
    }
}
