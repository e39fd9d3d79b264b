//! Text as windows of tokens.

use crate::{Checkpoint, Error};

/// Tokens the model sees at once, and the bytes they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub tokens: Vec<u32>,
    /// Bytes of the tokens that are predicted: all but the first.
    pub predicted_bytes: usize,
}

/// A text cut into windows that are scored apart.
#[derive(Debug, Clone)]
pub struct Text {
    pub windows: Vec<Window>,
}

impl Text {
    /// Windows of `length` tokens; a rest of fewer than two predicts nothing and is left out.
    pub fn new(bytes: &[u8], checkpoint: &Checkpoint, length: usize) -> Result<Self, Error> {
        let length = length.clamp(2, checkpoint.config.max_position_embeddings.max(2));
        let tokens = if checkpoint.config.tokenizer.as_deref() == Some("bytes") {
            bytes.iter().map(|&b| (u32::from(b), 1)).collect()
        } else {
            tokenize(bytes, checkpoint)?
        };
        Self::cut(&tokens, length, checkpoint.config.vocab_size)
    }

    fn cut(tokens: &[(u32, usize)], length: usize, vocabulary: usize) -> Result<Self, Error> {
        if let Some(&(token, _)) = tokens.iter().find(|t| t.0 as usize >= vocabulary) {
            return Err(Error::BadFile {
                file: "text".into(),
                reason: format!("token {token} is outside the model's vocabulary of {vocabulary}"),
            });
        }
        let windows: Vec<Window> = tokens
            .chunks(length)
            .filter(|w| w.len() >= 2)
            .map(|w| Window {
                tokens: w.iter().map(|t| t.0).collect(),
                predicted_bytes: w[1..].iter().map(|t| t.1).sum(),
            })
            .collect();
        if windows.is_empty() {
            return Err(Error::TextTooShort { tokens: tokens.len() });
        }
        Ok(Self { windows })
    }
}

/// Tokens with the bytes each covers, through `tokenizer.json`.
#[cfg(feature = "tokenizers")]
fn tokenize(bytes: &[u8], checkpoint: &Checkpoint) -> Result<Vec<(u32, usize)>, Error> {
    let path = checkpoint.config_path.with_file_name("tokenizer.json");
    let bad = |reason: String| Error::BadFile { file: path.display().to_string(), reason };
    let tokenizer = tokenizers::Tokenizer::from_file(&path).map_err(|e| bad(e.to_string()))?;
    let text = std::str::from_utf8(bytes)
        .map_err(|e| Error::BadFile { file: "text".into(), reason: format!("not UTF-8: {e}") })?;
    let encoding = tokenizer.encode(text, false).map_err(|e| bad(e.to_string()))?;
    let ends: Vec<usize> = encoding.get_offsets().iter().map(|&(_, end)| end).collect();
    Ok(encoding.get_ids().iter().copied().zip(spans(&ends)).collect())
}

/// Bytes that each token stands for, out of where tokens end: what a tokenizer
/// skips, such as a space, belongs to the token after it.
#[cfg(any(feature = "tokenizers", test))]
fn spans(ends: &[usize]) -> Vec<usize> {
    let mut last = 0;
    let span = |&end: &usize| {
        let span = end.saturating_sub(last);
        last = last.max(end);
        span
    };
    ends.iter().map(span).collect()
}

#[cfg(not(feature = "tokenizers"))]
fn tokenize(_bytes: &[u8], checkpoint: &Checkpoint) -> Result<Vec<(u32, usize)>, Error> {
    Err(Error::Unsupported {
        file: checkpoint.config_path.display().to_string(),
        what: "not a byte-level model; build with `--features tokenizers` to read tokenizer.json".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_text_and_leave_out_a_lone_token() {
        let tokens: Vec<(u32, usize)> = (0..9).map(|i| (i, 1)).collect();
        let text = Text::cut(&tokens, 4, 256).unwrap();
        assert_eq!(text.windows.iter().map(|w| w.tokens.len()).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(text.windows[0].predicted_bytes, 3);
    }

    #[test]
    fn skipped_bytes_belong_to_the_next_token() {
        assert_eq!(spans(&[3, 3, 8, 12]), [3, 0, 5, 4]);
    }

    #[cfg(feature = "tokenizers")]
    #[test]
    fn a_tokenizer_file_beside_the_configuration_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"bits": 0, "per": 1, "byte": 2, "?": 3}, "unk_token": "?"}}"#;
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer).unwrap();
        let mut checkpoint = crate::builtin::tiny().unwrap();
        checkpoint.config.tokenizer = None;
        checkpoint.config_path = folder.path().join("config.json");
        let text = Text::new("bits per  byte, bits".as_bytes(), &checkpoint, 16).unwrap();
        assert_eq!(text.windows.len(), 1);
        assert_eq!(text.windows[0].tokens, [0, 1, 2, 3, 0]);
        // Everything but the first token's four bytes.
        assert_eq!(text.windows[0].predicted_bytes, 16);
        std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
        let message = Text::new(b"bits", &checkpoint, 16).unwrap_err().to_string();
        assert!(message.contains("tokenizer.json"), "{message}");
    }

    #[test]
    fn short_texts_and_foreign_tokens_are_errors() {
        assert!(matches!(Text::cut(&[(1, 1)], 4, 256), Err(Error::TextTooShort { tokens: 1 })));
        assert!(Text::cut(&[(1, 1), (300, 1)], 4, 256).is_err());
    }
}
