//! Text as windows of tokens.

use crate::model::LONGEST_WINDOW;
use crate::tokenizer::{Tokens, tokenize};
use crate::{Checkpoint, Error};
use std::ops::Range;

/// Tokens the model sees at once, and the bytes they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub tokens: Vec<u32>,
    /// Bytes of each token that is predicted: all but the first.
    pub token_bytes: Vec<u32>,
    pub predicted_bytes: usize,
}

/// A text cut into windows that are scored apart.
#[derive(Debug, Clone)]
pub struct Text {
    pub windows: Vec<Window>,
}

impl Window {
    fn part(&self, range: Range<usize>) -> Self {
        let token_bytes = self.token_bytes[range.start..range.end - 1].to_vec();
        Self {
            tokens: self.tokens[range].to_vec(),
            predicted_bytes: token_bytes.iter().map(|&bytes| bytes as usize).sum(),
            token_bytes,
        }
    }
}

impl Text {
    /// Windows of `length` tokens; a rest of fewer than two predicts nothing and is left out.
    pub fn new(bytes: &[u8], checkpoint: &Checkpoint, length: usize) -> Result<Self, Error> {
        let longest = checkpoint.config.max_position_embeddings.clamp(2, LONGEST_WINDOW);
        let tokens = if checkpoint.config.tokenizer.as_deref() == Some("bytes") {
            Tokens { tokens: bytes.iter().map(|&b| (u32::from(b), 1)).collect(), begin: None }
        } else {
            tokenize(bytes, checkpoint)?
        };
        Self::cut(&tokens, length.clamp(2, longest), checkpoint.config.vocab_size)
    }

    pub(crate) fn tokens(&self) -> usize {
        self.windows.iter().map(|window| window.tokens.len()).sum()
    }

    pub(crate) fn longest(&self) -> usize {
        self.windows.iter().map(|window| window.tokens.len()).max().unwrap_or(0)
    }

    /// The first `tokens` tokens of `windows` windows, spread over the text.
    pub(crate) fn beginnings(&self, windows: usize, tokens: usize) -> Self {
        let step = self.windows.len().div_ceil(windows.max(1)).max(1);
        let beginning = |window: &Window| window.part(0..window.tokens.len().min(tokens.max(2)));
        Self { windows: self.windows.iter().step_by(step).map(beginning).collect() }
    }

    /// A text to learn from, and some of its last windows, up to `tokens` tokens of each, to try on what was learned; of
    /// a single window one half each.
    pub(crate) fn held_out(&self, windows: usize, tokens: usize) -> (Self, Self) {
        let Some((last, rest)) = self.windows.split_last() else { return (self.clone(), self.clone()) };
        let part = |windows: &[Window]| Self { windows: windows.to_vec() };
        if rest.is_empty() {
            let half = last.tokens.len() / 2;
            return (
                part(&[last.part(0..half)]),
                part(&[last.part(half..last.tokens.len().min(half + tokens))]),
            );
        }
        let held_out = windows.min(self.windows.len() / 2).max(1);
        let (learned, tried) = self.windows.split_at(self.windows.len() - held_out);
        let beginning = |window: &Window| window.part(0..window.tokens.len().min(tokens));
        (part(learned), Self { windows: tried.iter().map(beginning).collect() })
    }

    fn cut(tokens: &Tokens, length: usize, vocabulary: usize) -> Result<Self, Error> {
        let Tokens { tokens, begin } = tokens;
        let all = tokens.iter().map(|t| t.0).chain(*begin);
        if let Some(token) = all.into_iter().find(|&token| token as usize >= vocabulary) {
            return Err(Error::BadFile {
                file: "text".into(),
                reason: format!(
                    "token {token} is outside the model's vocabulary of {vocabulary}: \
                     the tokenizer belongs to another model"
                ),
            });
        }
        let window = |tokens: &[(u32, usize)]| {
            let begin = *begin;
            let predicted = &tokens[usize::from(begin.is_none())..];
            Window {
                tokens: begin.into_iter().chain(tokens.iter().map(|t| t.0)).collect(),
                token_bytes: predicted.iter().map(|t| t.1 as u32).collect(),
                predicted_bytes: predicted.iter().map(|t| t.1).sum(),
            }
        };
        let windows: Vec<Window> = tokens
            .chunks(length - usize::from(begin.is_some()))
            .filter(|w| w.len() >= 2)
            .map(window)
            .collect();
        if windows.is_empty() {
            return Err(Error::TextTooShort { tokens: tokens.len() });
        }
        Ok(Self { windows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_text_and_leave_out_a_lone_token() {
        let tokens = |begin| Tokens { tokens: (0..9).map(|i| (i, 1)).collect(), begin };
        let text = Text::cut(&tokens(None), 4, 256).unwrap();
        assert_eq!(text.windows.iter().map(|w| w.tokens.len()).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(text.windows[0].predicted_bytes, 3);
        // With a token of its own before it, a window predicts its first byte too.
        let text = Text::cut(&tokens(Some(99)), 4, 256).unwrap();
        assert_eq!(text.windows.iter().map(|w| w.tokens.clone()).collect::<Vec<_>>()[1], [99, 3, 4, 5]);
        assert_eq!((text.windows.len(), text.windows[0].predicted_bytes), (3, 3));
    }

    #[test]
    fn what_is_held_out_is_of_the_end_and_not_learned() {
        let text = |tokens: u32| {
            let tokens = Tokens { tokens: (0..tokens).map(|i| (i, 1)).collect(), begin: None };
            Text::cut(&tokens, 8, 256).unwrap()
        };
        let tokens =
            |text: &Text| text.windows.iter().map(|w| (w.tokens[0], w.tokens.len())).collect::<Vec<_>>();
        let (learned, tried) = text(40).held_out(2, 4);
        assert_eq!(
            (tokens(&learned), tokens(&tried)),
            (vec![(0, 8), (8, 8), (16, 8)], vec![(24, 4), (32, 4)])
        );
        let (learned, tried) = text(16).held_out(2, 99);
        assert_eq!((tokens(&learned), tokens(&tried)), (vec![(0, 8)], vec![(8, 8)]));
        // One window gives a half for each.
        let (learned, tried) = text(7).held_out(2, 99);
        assert_eq!((tokens(&learned), tokens(&tried)), (vec![(0, 3)], vec![(3, 4)]));
        assert_eq!(tried.windows[0].predicted_bytes, 3);
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
        let cut =
            |tokens: &[(u32, usize)]| Text::cut(&Tokens { tokens: tokens.to_vec(), begin: None }, 4, 256);
        assert!(matches!(cut(&[(1, 1)]), Err(Error::TextTooShort { tokens: 1 })));
        assert!(cut(&[(1, 1), (300, 1)]).unwrap_err().to_string().contains("another model"));
    }
}
