//! A model's shape, as Hugging Face's `config.json` gives it.

use crate::Error;
use serde::Deserialize;
use std::path::Path;

/// The fields of `config.json` that a Llama-style forward pass needs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Config {
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    /// Fewer than the heads: grouped-query attention.
    #[serde(default)]
    num_key_value_heads: Option<usize>,
    #[serde(default)]
    head_dim: Option<usize>,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    #[serde(default = "default_positions")]
    pub max_position_embeddings: usize,
    #[serde(default = "default_theta")]
    pub rope_theta: f64,
    #[serde(default)]
    rope_scaling: Option<serde_json::Value>,
    #[serde(default = "default_epsilon")]
    pub rms_norm_eps: f64,
    #[serde(default)]
    pub tie_word_embeddings: bool,
    /// `bytes`: a token is a byte. Absent: `tokenizer.json` beside the model.
    #[serde(default)]
    pub tokenizer: Option<String>,
    #[serde(default)]
    hidden_act: Option<String>,
    #[serde(default)]
    attention_bias: bool,
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

impl Config {
    /// Reads and checks a configuration.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let bad = |reason: String| Error::BadFile { file: file.clone(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        Self::parse(&text, &file)
    }

    /// Out of JSON text; `file` names it in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        let config: Self = serde_json::from_str(text)
            .map_err(|e| Error::BadFile { file: file.into(), reason: e.to_string() })?;
        config.check().map_err(|what| Error::Unsupported { file: file.into(), what })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.kv_heads()),
            ("intermediate_size", self.intermediate_size),
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((name, value)) = sizes.into_iter().find(|(_, v)| !(1..=LARGEST).contains(v)) {
            return Err(format!("{name} = {value} makes no model"));
        }
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return Err(format!(
                "hidden_size {} is not a multiple of num_attention_heads {}",
                self.hidden_size, self.num_attention_heads
            ));
        }
        if !self.num_attention_heads.is_multiple_of(self.kv_heads()) {
            return Err(format!(
                "num_attention_heads {} is not a multiple of num_key_value_heads {}",
                self.num_attention_heads,
                self.kv_heads()
            ));
        }
        if !self.head_dim().is_multiple_of(2) || !(1..=LARGEST).contains(&self.head_dim()) {
            return Err(format!("rotary positions need an even head size, not {}", self.head_dim()));
        }
        if self.rope_scaling.as_ref().is_some_and(|v| !v.is_null()) {
            return Err("rope_scaling is not supported: positions would be wrong".into());
        }
        if let Some(act) = self.hidden_act.as_deref().filter(|&a| a != "silu") {
            return Err(format!("hidden_act `{act}` is not supported, only `silu` (SwiGLU)"));
        }
        if self.attention_bias {
            return Err("attention_bias is not supported".into());
        }
        let positive = self.rms_norm_eps > 0.0 && self.rope_theta > 1.0;
        if !positive {
            return Err("rms_norm_eps must be above 0 and rope_theta above 1".into());
        }
        Ok(())
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Channels of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Channels of K and of V.
    pub fn kv_size(&self) -> usize {
        self.kv_heads() * self.head_dim()
    }

    /// Channels of Q.
    pub fn q_size(&self) -> usize {
        self.num_attention_heads * self.head_dim()
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
        assert_eq!((config.head_dim(), config.kv_size(), config.rope_theta), (64, 192, 10000.0));
    }

    #[test]
    fn what_would_run_wrongly_is_refused_by_name() {
        for (from, to, named) in [
            ("\"hidden_size\": 192", "\"hidden_size\": 0", "hidden_size"),
            ("\"num_attention_heads\": 3", "\"num_attention_heads\": 5", "num_attention_heads"),
            ("\"vocab_size\": 256", "\"vocab_size\": 256, \"hidden_act\": \"gelu\"", "gelu"),
            ("\"vocab_size\": 256", "\"vocab_size\": 256, \"rope_scaling\": {\"factor\": 8}", "rope_scaling"),
        ] {
            let message = Config::parse(&TINY.replace(from, to), "c.json").unwrap_err().to_string();
            assert!(message.contains(named) && message.contains("c.json"), "{message}");
        }
        assert!(Config::parse("{", "c.json").is_err());
    }
}
