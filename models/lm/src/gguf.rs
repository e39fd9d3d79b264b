//! A model out of a GGUF file: its configuration from the metadata, its
//! tensors under the names the rest of the crate uses.
//!
//! Knows how llama.cpp's converter names and turns things; a block format's
//! values come from `trinity-tensor`.

use crate::config::{Config, Family, GEMMA_LOCAL_THETA, GEMMA_PATTERN, LayerKind};
use crate::rotary::{Rope, Scaling};
use std::collections::BTreeMap;
use trinity_tensor::TensorFile;

/// Gemma 3 of this many layers (27B) scales queries by its width over its
/// heads, all others by the size of a head; the metadata does not say.
const GEMMA_27B_LAYERS: usize = 62;

/// The configuration that a GGUF's metadata describes, or what is wrong with it.
pub fn config(file: &TensorFile) -> Result<Config, String> {
    let metadata = Metadata { values: file.metadata(), family: "general" };
    let architecture = metadata.text("architecture")?;
    let family = Family::parse(architecture)?;
    if family.is_gpt2() {
        return Err("gpt2 in a GGUF is not supported; as safetensors with its config.json it is".into());
    }
    let metadata = Metadata { values: file.metadata(), family: architecture };
    let (hidden_size, layers) = (metadata.size("embedding_length")?, metadata.size("block_count")?);
    let heads = metadata.size("attention.head_count")?;
    let head_dim = match metadata.number("attention.key_length") {
        Some(length) => length as usize,
        None => hidden_size / heads.max(1),
    };
    let vocabulary = file.entry("token_embd.weight").ok().and_then(|entry| entry.shape().first().copied());
    let vocab_size = vocabulary.ok_or("no tensor token_embd.weight")?;
    let rope = rope(file, &metadata)?;
    let window = metadata.number("attention.sliding_window").map(|window| window as usize);
    let sees_window = |layer: usize| family == Family::Gemma3 && !(layer + 1).is_multiple_of(GEMMA_PATTERN);
    let kind = |layer: usize| match window {
        Some(window) if sees_window(layer) => LayerKind::Window(window),
        _ => LayerKind::Full,
    };
    let gemma_27b = family == Family::Gemma3 && layers == GEMMA_27B_LAYERS;
    let scalar = if gemma_27b { hidden_size as f64 / heads.max(1) as f64 } else { head_dim as f64 };
    let config = Config {
        hidden_size,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: metadata.number("attention.head_count_kv").map_or(heads, |n| n as usize),
        head_dim,
        intermediate_size: metadata.size("feed_forward_length")?,
        vocab_size,
        max_position_embeddings: metadata.size("context_length")?,
        rms_norm_eps: metadata.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-6),
        tie_word_embeddings: file.entry("output.weight").is_err(),
        tokenizer: None,
        family,
        layers: (0..layers.min(1 << 16)).map(kind).collect(),
        rope_of_windows: match family {
            Family::Gemma3 => Rope { theta: GEMMA_LOCAL_THETA, scaling: Scaling::None },
            _ => rope.clone(),
        },
        rope,
        attention_scale: scalar.powf(-0.5) as f32,
        // The converter has added Gemma's 1 already.
        norm_offset: 0.0,
    };
    config.check()?;
    Ok(config)
}

fn rope(file: &TensorFile, metadata: &Metadata<'_>) -> Result<Rope, String> {
    let theta = metadata.number("rope.freq_base").unwrap_or(10000.0);
    let scaling = match metadata.values.get(&metadata.key("rope.scaling.type")).map(String::as_str) {
        None | Some("none") => Scaling::None,
        Some("linear") => {
            Scaling::Linear(metadata.number("rope.scaling.factor").ok_or("no rope.scaling.factor")?)
        }
        Some(other) => {
            return Err(format!("rope scaling `{other}` is not supported: positions would be wrong"));
        }
    };
    let Ok(entry) = file.entry("rope_freqs.weight") else { return Ok(Rope { theta, scaling }) };
    let tensor = entry.read().map_err(|e| e.to_string())?;
    let mut factors = vec![0f64; tensor.len()];
    tensor.dtype().to_f64(tensor.data(), &mut factors);
    if !factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
        return Err("rope_freqs.weight holds no factors".into());
    }
    Ok(Rope { theta, scaling: Scaling::Factors(factors) })
}

struct Metadata<'a> {
    values: &'a BTreeMap<String, String>,
    family: &'a str,
}

impl<'a> Metadata<'a> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.family)
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let key = self.key(name);
        self.values.get(&key).map(String::as_str).ok_or_else(|| format!("no {key} in its metadata"))
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.values.get(&self.key(name))?.parse().ok()
    }

    fn size(&self, name: &str) -> Result<usize, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{} = {text} is no size", self.key(name)))
    }
}

/// `blk.3.attn_q.weight` → `layers.3.q_proj.weight`; unknown names stay.
pub fn short_name(name: &str, family: Family) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let ["blk", layer, part, kind] = parts.as_slice() else {
        let known = match name {
            "token_embd.weight" => "embed_tokens.weight",
            "output_norm.weight" => "norm.weight",
            "output.weight" => "lm_head.weight",
            // Read with the configuration.
            "rope_freqs.weight" => "rotary_emb.inv_freq",
            other => other,
        };
        return known.into();
    };
    let gemma = family == Family::Gemma3;
    let part = match *part {
        "attn_q" => "q_proj",
        "attn_k" => "k_proj",
        "attn_v" => "v_proj",
        "attn_output" => "o_proj",
        "attn_q_norm" => "q_norm",
        "attn_k_norm" => "k_norm",
        "attn_norm" => "input_layernorm",
        "ffn_norm" if gemma => "pre_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "post_attention_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_gate" => "gate_proj",
        "ffn_up" => "up_proj",
        "ffn_down" => "down_proj",
        other => other,
    };
    format!("layers.{layer}.{part}.{kind}")
}

/// Puts the rows of a Llama's Q or K back in halves: the converter stores the
/// two channels of a rotary pair side by side. Other families are stored as is.
pub fn unpair_rows(values: &mut Vec<f32>, head_dim: usize, cols: usize) {
    let mut turned = Vec::with_capacity(values.len());
    for row in 0..values.len() / cols.max(1) {
        turned.extend_from_slice(&values[stored_row(row, head_dim) * cols..][..cols]);
    }
    *values = turned;
}

/// The other way round: rows as the converter stores them.
pub fn pair_rows(values: &mut [f32], head_dim: usize, cols: usize) {
    let unpaired = values.to_vec();
    for (row, from) in unpaired.chunks_exact(cols.max(1)).enumerate() {
        values[stored_row(row, head_dim) * cols..][..cols].copy_from_slice(from);
    }
}

/// Where a row of Q or K stands in a file.
fn stored_row(row: usize, head_dim: usize) -> usize {
    let (half, head, channel) = (head_dim / 2, row / head_dim, row % head_dim);
    head * head_dim + 2 * (channel % half) + channel / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_llama_cpp_become_short_ones() {
        assert_eq!(short_name("blk.3.attn_q.weight", Family::Llama), "layers.3.q_proj.weight");
        assert_eq!(short_name("blk.0.attn_q.bias", Family::Qwen2), "layers.0.q_proj.bias");
        let norm = |family| short_name("blk.0.ffn_norm.weight", family);
        assert_eq!(norm(Family::Llama), "layers.0.post_attention_layernorm.weight");
        assert_eq!(norm(Family::Gemma3), "layers.0.pre_feedforward_layernorm.weight");
        assert_eq!(short_name("something", Family::Llama), "something");
    }

    #[test]
    fn pairs_of_rows_become_halves() {
        // Two heads of four channels, one column: stored 0 2 1 3 within each head.
        let mut values = vec![0.0, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0];
        unpair_rows(&mut values, 4, 1);
        assert_eq!(values, [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]);
        pair_rows(&mut values, 4, 1);
        assert_eq!(values, [0.0, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0]);
    }
}
