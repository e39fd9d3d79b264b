//! Bits per byte: what the model still knows.

use crate::model::HookBits;
use crate::{Error, Hooks, Model, Text, Window};
use rayon::prelude::*;

/// How well a model predicts a text, and what its tensors cost on the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Average −log2 p over the bytes that were predicted.
    pub bits_per_byte: f64,
    /// e^(mean −ln p) over tokens.
    pub perplexity: f64,
    pub predicted_tokens: u64,
    pub predicted_bytes: u64,
    /// Average over everything the KV hook saw; None where it saw nothing.
    pub kv_bits_per_value: Option<f64>,
    /// The same for activations between stages.
    pub activation_bits_per_value: Option<f64>,
}

/// Scores a text. Windows run in parallel; the sum is taken in their order, so
/// the answer is the same for any number of threads. `progress` is called once
/// a window.
pub fn score(
    model: &Model,
    text: &Text,
    hooks: &dyn Hooks,
    progress: &(dyn Fn() + Sync),
) -> Result<Score, Error> {
    let longest = text.windows.iter().map(|w| w.tokens.len()).max().unwrap_or(0);
    let results: Vec<(f64, HookBits)> = text
        .windows
        .par_iter()
        .map_init(
            || model.workspace(longest),
            |work, window| {
                let (logits, bits) = model.forward(&window.tokens, work, hooks)?;
                let nats = negative_log_likelihood(logits, window);
                progress();
                Ok((nats, bits))
            },
        )
        .collect::<Result<_, Error>>()?;
    let nats: f64 = results.iter().map(|r| r.0).sum();
    let predicted_tokens: u64 = text.windows.iter().map(|w| w.tokens.len() as u64 - 1).sum();
    let predicted_bytes: u64 = text.windows.iter().map(|w| w.predicted_bytes as u64).sum();
    let total = |f: fn(&HookBits) -> u64| results.iter().map(|r| f(&r.1)).sum::<u64>();
    let per_value = |bits: u64, values: u64| (values > 0).then(|| bits as f64 / values as f64);
    Ok(Score {
        bits_per_byte: nats / std::f64::consts::LN_2 / predicted_bytes.max(1) as f64,
        perplexity: (nats / predicted_tokens.max(1) as f64).exp(),
        predicted_tokens,
        predicted_bytes,
        kv_bits_per_value: per_value(total(|b| b.kv), total(|b| b.kv_values)),
        activation_bits_per_value: per_value(total(|b| b.activation), total(|b| b.activation_values)),
    })
}

/// −ln p of every token but the first, given those before it.
fn negative_log_likelihood(logits: &[f32], window: &Window) -> f64 {
    let vocabulary = logits.len() / window.tokens.len();
    window
        .tokens
        .iter()
        .skip(1)
        .zip(logits.chunks_exact(vocabulary))
        .map(|(&next, row)| {
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = row.iter().map(|&l| (l - top).exp()).sum();
            f64::from(top) + f64::from(sum).ln() - f64::from(row[next as usize])
        })
        .sum()
}
