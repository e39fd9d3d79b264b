//! A model's `config.json`, as Hugging Face writes it, as the LLM of a study.
//!
//! Reads sizes and nothing else; what a family calls them differs, and each
//! value may stand under any of its names.

use crate::refusal::Refusal;
use serde::Serialize;
use serde_json::Value;

/// A model's shape as assignments of a study.
#[derive(Debug, PartialEq, Serialize)]
pub struct Shape {
    pub model: String,
    /// `study.job.llm.KEY=VALUE`, each.
    pub sets: Vec<String>,
}

/// Keys of a study's LLM, what families call them, and whether there must be one.
const SIZES: [(&str, &[&str], bool); 6] = [
    ("layers", &["num_hidden_layers", "n_layer", "num_layers"], true),
    ("hidden", &["hidden_size", "n_embd", "d_model"], true),
    ("heads", &["num_attention_heads", "n_head"], true),
    ("kv-heads", &["num_key_value_heads", "num_kv_heads"], false),
    ("head-dim", &["head_dim"], false),
    ("vocab", &["vocab_size"], true),
];

const EXPERTS: [(&str, &[&str]); 5] = [
    ("experts", &["n_routed_experts", "num_local_experts", "num_experts"]),
    ("top-k", &["num_experts_per_tok"]),
    ("shared-experts", &["n_shared_experts"]),
    ("expert-ffn", &["moe_intermediate_size"]),
    ("dense-layers", &["first_k_dense_replace"]),
];

/// Reads a `config.json`.
pub fn assignments(text: &str) -> Result<Shape, Refusal> {
    let config: Value = serde_json::from_str(text)
        .map_err(|error| Refusal::new(format!("config.json: this is not JSON: {error}"), ""))?;
    // Models that also see keep the language model's shape in a table of its own.
    let config = config.get("text_config").unwrap_or(&config);
    let size = |names: &[&str]| names.iter().find_map(|name| config.get(name)?.as_u64());
    let mut sets = Vec::new();
    let mut put = |key: &str, value: String| sets.push(format!("study.job.llm.{key}={value}"));
    for (key, names, needed) in SIZES {
        match size(names) {
            Some(value) => put(key, value.to_string()),
            None if needed => {
                return Err(Refusal::new(
                    format!("config.json: no `{}`", names.join("` or `")),
                    "drop the config.json that lies beside a language model's weights",
                ));
            }
            None => {}
        }
    }
    let heads = size(SIZES[2].1).unwrap_or(1).max(1);
    let hidden = size(SIZES[1].1).unwrap_or_default();
    if size(SIZES[3].1).is_none() {
        put("kv-heads", heads.to_string());
    }
    if size(SIZES[4].1).is_none() {
        put("head-dim", (hidden / heads).to_string());
    }
    // GPT-2 leaves the width out where it is four times the hidden size.
    let ffn = size(&["intermediate_size", "n_inner", "ffn_dim"]).unwrap_or(4 * hidden);
    put("ffn", ffn.to_string());
    let family = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let plain = ["gpt2", "gpt_neox", "opt", "bloom", "gptj", "phi"].contains(&family);
    put("mlp", if plain { "gelu" } else { "swi-glu" }.into());
    let said = config.get("tie_word_embeddings").and_then(Value::as_bool);
    let tied = said.unwrap_or(family == "gpt2" || family.starts_with("gemma"));
    put("vocabulary", if tied { "tied" } else { "untied" }.into());
    put("biases", plain.to_string());
    if size(EXPERTS[0].1).is_some_and(|experts| experts > 1) {
        for (key, names) in EXPERTS {
            let value = size(names).or_else(|| (key == "expert-ffn").then_some(ffn));
            if let Some(value) = value {
                put(&format!("moe.{key}"), value.to_string());
            }
        }
    }
    let model = config.get("_name_or_path").or_else(|| config.get("model_type")).and_then(Value::as_str);
    Ok(Shape { model: model.unwrap_or("config.json").to_owned(), sets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_llama_is_read_and_what_has_no_layers_is_refused() {
        let text = r#"{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
            "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"tie_word_embeddings":false}"#;
        let shape = assignments(text).unwrap();
        for wanted in
            ["layers=32", "kv-heads=8", "head-dim=128", "ffn=14336", "mlp=swi-glu", "vocabulary=untied"]
        {
            assert!(shape.sets.contains(&format!("study.job.llm.{wanted}")), "{wanted}: {:?}", shape.sets);
        }
        assert!(assignments("{}").unwrap_err().0["error"].as_str().unwrap().contains("num_hidden_layers"));
        assert!(assignments("[1,").is_err());
    }
}
