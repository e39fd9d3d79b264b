//! Text to tokens: through `tokenizer.json` beside a model, or through the
//! vocabulary that a GGUF file carries.
//!
//! A GGUF's vocabulary is put into the form of a `tokenizer.json`, so that one
//! implementation cuts text for both.

use crate::{Checkpoint, Error};

/// A text's tokens with the bytes each covers, and the token that has to stand
/// before every window, where the model was trained with one.
pub(crate) struct Tokens {
    pub tokens: Vec<(u32, usize)>,
    pub begin: Option<u32>,
}

#[cfg(not(feature = "tokenizers"))]
pub(crate) fn tokenize(_bytes: &[u8], checkpoint: &Checkpoint) -> Result<Tokens, Error> {
    Err(Error::Unsupported {
        file: checkpoint.config_path.display().to_string(),
        what: "not a byte-level model; build with `--features tokenizers` to read its vocabulary".into(),
    })
}

#[cfg(feature = "tokenizers")]
pub(crate) use with_vocabulary::tokenize;

#[cfg(feature = "tokenizers")]
mod with_vocabulary {
    use super::{Checkpoint, Error, Tokens};
    use serde_json::{Value, json};
    use std::collections::HashMap;
    use tokenizers::Tokenizer;
    use trinity_tensor::TensorFile;
    use trinity_tensor::file::List;

    pub(crate) fn tokenize(bytes: &[u8], checkpoint: &Checkpoint) -> Result<Tokens, Error> {
        let path = match checkpoint.gguf() {
            Some(_) => checkpoint.config_path.clone(),
            None => checkpoint.config_path.with_file_name("tokenizer.json"),
        };
        let bad = |reason: String| Error::BadFile { file: path.display().to_string(), reason };
        let (tokenizer, begin) = match checkpoint.gguf() {
            Some(file) => from_gguf(file).map_err(bad)?,
            None => {
                let description = std::fs::read_to_string(&path).map_err(|e| bad(e.to_string()))?;
                let tokenizer = parsed(&description).map_err(bad)?;
                // What a tokenizer puts before an empty text belongs before every window.
                let empty = tokenizer.encode("", true).map_err(|e| bad(e.to_string()))?;
                let begin = empty.get_ids().first().copied();
                (tokenizer, begin)
            }
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Error::BadFile { file: "text".into(), reason: format!("not UTF-8: {e}") })?;
        let encoding = tokenizer.encode(text, false).map_err(|e| bad(e.to_string()))?;
        let ends: Vec<usize> = encoding.get_offsets().iter().map(|&(_, end)| end).collect();
        Ok(Tokens { tokens: encoding.get_ids().iter().copied().zip(spans(&ends)).collect(), begin })
    }

    /// The tokenizer of a `tokenizer.json`. The library's readers of files and bytes are generic, so that all that it can
    /// read would be compiled here a second time.
    fn parsed(description: &str) -> Result<Tokenizer, String> {
        description.parse().map_err(|error: tokenizers::Error| error.to_string())
    }

    /// Bytes that each token stands for, out of where tokens end: what a
    /// tokenizer skips, such as a space, belongs to the token after it.
    fn spans(ends: &[usize]) -> Vec<usize> {
        let mut last = 0;
        let span = |&end: &usize| {
            let span = end.saturating_sub(last);
            last = last.max(end);
            span
        };
        ends.iter().map(span).collect()
    }

    /// Token types of a GGUF vocabulary that are found in text as they are.
    const CONTROL: f64 = 3.0;
    const USER_DEFINED: f64 = 4.0;

    /// The tokenizer of a GGUF file, and the token before every window.
    fn from_gguf(file: &TensorFile) -> Result<(Tokenizer, Option<u32>), String> {
        let text = |key: &str| file.metadata().get(&format!("tokenizer.ggml.{key}")).map(String::as_str);
        let list = |key: &str| file.list(&format!("tokenizer.ggml.{key}")).map_err(|e| e.to_string());
        let Some(List::Texts(vocabulary)) = list("tokens")? else {
            return Err("no vocabulary (tokenizer.ggml.tokens) in its metadata".into());
        };
        let types = match list("token_type")? {
            Some(List::Numbers(types)) => types,
            _ => Vec::new(),
        };
        let model = text("model").unwrap_or("");
        let (description, begins) = match model {
            "gpt2" => {
                let Some(List::Texts(merges)) = list("merges")? else {
                    return Err("no merges (tokenizer.ggml.merges) in its metadata".into());
                };
                (byte_level(&vocabulary, &merges, text("pre").unwrap_or("default"))?, false)
            }
            "llama" => {
                let Some(List::Numbers(scores)) = list("scores")? else {
                    return Err("no scores (tokenizer.ggml.scores) in its metadata".into());
                };
                (sentence_piece(&vocabulary, &scores, text("add_space_prefix") != Some("false")), true)
            }
            other => {
                return Err(format!("a tokenizer of type `{other}` is not supported; gpt2 and llama are"));
            }
        };
        let mut description = description;
        description["added_tokens"] = added(&vocabulary, &types);
        let tokenizer = parsed(&description.to_string())?;
        let begins = text("add_bos_token").map_or(begins, |flag| flag == "true");
        let begin = text("bos_token_id").and_then(|id| id.parse().ok()).filter(|_| begins);
        Ok((tokenizer, begin))
    }

    /// Tokens that are cut out of a text before anything else.
    fn added(vocabulary: &[String], types: &[f64]) -> Value {
        let tokens = vocabulary.iter().zip(types).enumerate();
        let found = tokens.filter(|(_, (_, kind))| [CONTROL, USER_DEFINED].contains(kind));
        found
            .map(|(id, (content, &kind))| {
                json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": kind == USER_DEFINED, "special": kind == CONTROL})
            })
            .collect()
    }

    fn numbered(vocabulary: &[String]) -> Value {
        vocabulary.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect()
    }

    /// Contractions, words, digits and the rest, as Qwen 2 and Llama 3 cut text;
    /// they differ in how many digits stay together.
    fn words(digits: &str) -> String {
        format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    }

    /// Byte-level BPE (GPT-2 and its heirs).
    fn byte_level(vocabulary: &[String], merges: &[String], pre: &str) -> Result<Value, String> {
        let by_bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": use_regex});
        let split = |regex: String| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let (steps, ignore_merges) = match pre {
            "default" | "gpt-2" => (vec![by_bytes(true)], false),
            "smollm" => (vec![json!({"type": "Digits", "individual_digits": true}), by_bytes(true)], false),
            "qwen2" => (vec![split(words(r"\p{N}")), by_bytes(false)], false),
            "llama-bpe" => (vec![split(words(r"\p{N}{1,3}")), by_bytes(false)], true),
            other => {
                return Err(format!(
                    "a tokenizer that cuts words as `{other}` is not supported; gpt-2, smollm, qwen2 and llama-bpe are"
                ));
            }
        };
        let normalizer = if pre == "qwen2" { json!({"type": "NFC"}) } else { Value::Null };
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": normalizer,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": ignore_merges, "vocab": numbered(vocabulary), "merges": merges},
        }))
    }

    /// SentencePiece's BPE: pieces merge in the order of their scores, and
    /// what is in no piece falls back to bytes.
    fn sentence_piece(vocabulary: &[String], scores: &[f64], space_before: bool) -> Value {
        let known: HashMap<&str, usize> =
            vocabulary.iter().enumerate().map(|(i, t)| (t.as_str(), i)).collect();
        let mut merges: Vec<(f64, &str, &str)> = Vec::new();
        for (piece, &score) in vocabulary.iter().zip(scores) {
            for (at, _) in piece.char_indices().skip(1) {
                let (left, right) = piece.split_at(at);
                if known.contains_key(left) && known.contains_key(right) {
                    merges.push((score, left, right));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0));
        let merges: Vec<[&str; 2]> = merges.into_iter().map(|(_, left, right)| [left, right]).collect();
        let mut steps = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
        if space_before {
            steps.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
        }
        let unknown = known.contains_key("<unk>").then_some("<unk>");
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
                "ignore_merges": false, "vocab": numbered(vocabulary), "merges": merges},
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn skipped_bytes_belong_to_the_next_token() {
            assert_eq!(spans(&[3, 3, 8, 12]), [3, 0, 5, 4]);
        }

        fn cut(description: Value, text: &str) -> Vec<u32> {
            let mut description = description;
            description["added_tokens"] = json!([]);
            let tokenizer = parsed(&description.to_string()).unwrap();
            tokenizer.encode(text, false).unwrap().get_ids().to_vec()
        }

        #[test]
        fn pieces_merge_by_score_and_fall_back_to_bytes() {
            let vocabulary = ["<unk>", "▁", "a", "b", "ab", "▁a", "<0xC3>", "<0x9F>"].map(String::from);
            let cut = |scores: [f64; 8]| cut(sentence_piece(&vocabulary, &scores, false), " abß");
            // The better score merges first: "ab" before "▁a", or the other way.
            assert_eq!(cut([0.0, -9.0, -9.0, -9.0, -1.0, -2.0, 0.0, 0.0]), [1, 4, 6, 7]);
            assert_eq!(cut([0.0, -9.0, -9.0, -9.0, -2.0, -1.0, 0.0, 0.0]), [5, 3, 6, 7]);
        }

        #[test]
        fn digits_stay_alone_or_in_threes_as_the_family_has_it() {
            let vocabulary = ["1", "2", "12"].map(String::from);
            let merges = ["1 2".to_string()];
            let cut = |pre: &str| cut(byte_level(&vocabulary, &merges, pre).unwrap(), "12");
            assert_eq!(cut("smollm"), [0, 1]);
            assert_eq!(cut("qwen2"), [0, 1]);
            assert_eq!(cut("llama-bpe"), [2]);
            assert_eq!(cut("gpt-2"), [2]);
            assert!(byte_level(&vocabulary, &merges, "tekken").unwrap_err().contains("tekken"));
        }
    }
}
