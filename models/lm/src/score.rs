//! Bits per byte: what the model still knows.

use crate::fidelity::{Fidelity, TokenLoss, WindowOutcome};
use crate::linear::Linear;
use crate::model::{HookBits, LOGIT_ROWS, Workspace};
use crate::{Error, Hooks, Model, NoHooks, Text, Window};
use rayon::prelude::*;
use std::sync::Arc;

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
    /// How close to the uncoded model, where one was given to compare with.
    pub fidelity: Option<Fidelity>,
}

/// What the uncoded model made of a text.
#[derive(Debug)]
pub struct Reference {
    pub score: Score,
    head: Arc<Linear>,
    windows: Vec<WindowOutcome>,
}

impl Reference {
    pub fn measure(model: &Model, text: &Text, progress: &(dyn Fn() + Sync)) -> Result<Self, Error> {
        let windows = run(model, text, &NoHooks, None, progress)?;
        Ok(Self { score: summary(text, &windows, None), head: model.head.clone(), windows })
    }
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
    Ok(summary(text, &run(model, text, hooks, None, progress)?, None))
}

/// Scores a text, and compares what is predicted with what the uncoded model
/// predicted for the same text.
pub fn score_against(
    reference: &Reference,
    model: &Model,
    text: &Text,
    hooks: &dyn Hooks,
    progress: &(dyn Fn() + Sync),
) -> Result<Score, Error> {
    if reference.windows.len() != text.windows.len() {
        return Err(Error::BadFile { file: "text".into(), reason: "not the text of the reference".into() });
    }
    let outcomes = run(model, text, hooks, Some(reference), progress)?;
    let fidelity = Fidelity::of(&reference.windows, text, &outcomes);
    Ok(summary(text, &outcomes, Some(fidelity)))
}

fn run(
    model: &Model,
    text: &Text,
    hooks: &dyn Hooks,
    reference: Option<&Reference>,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<WindowOutcome>, Error> {
    text.windows
        .par_iter()
        .enumerate()
        .map_init(
            || (model.workspace(text.longest()), Vec::new()),
            |(work, scratch), (index, window)| {
                model.forward(&window.tokens, work, hooks)?;
                let known = reference.map(|r| (r, r.windows[index].hidden.as_slice()));
                let outcome = losses(model, window, work, known, scratch);
                progress();
                Ok(outcome)
            },
        )
        .collect()
}

/// What each token of a window cost, given those before it.
fn losses(
    model: &Model,
    window: &Window,
    work: &mut Workspace,
    known: Option<(&Reference, &[f32])>,
    scratch: &mut Vec<f32>,
) -> WindowOutcome {
    let (h, vocabulary) = (model.config().hidden_size, model.config().vocab_size);
    let mut outcome = WindowOutcome { bits: work.bits, ..WindowOutcome::default() };
    let (hidden, logits) = work.hidden_and_logits();
    if known.is_none() {
        outcome.hidden = hidden.to_vec();
    }
    let next = &window.tokens[1..];
    for (start, part) in
        (0..next.len()).step_by(LOGIT_ROWS).map(|s| (s, &next[s..(s + LOGIT_ROWS).min(next.len())]))
    {
        let rows = start * h..(start + part.len()) * h;
        let ours = model.logits(&hidden[rows.clone()], logits);
        let theirs = known.map(|(reference, hidden)| reference.head.apply_into(&hidden[rows], scratch));
        for (i, &token) in part.iter().enumerate() {
            let row = &ours[i * vocabulary..][..vocabulary];
            let theirs = theirs.map(|t| &t[i * vocabulary..][..vocabulary]);
            outcome.tokens.push(TokenLoss::of(row, theirs, token as usize));
        }
    }
    outcome
}

fn summary(text: &Text, results: &[WindowOutcome], fidelity: Option<Fidelity>) -> Score {
    let window_nats = |w: &WindowOutcome| w.tokens.iter().map(|t| t.nats).sum::<f64>();
    let nats: f64 = results.iter().map(window_nats).sum();
    let predicted_tokens: u64 = text.windows.iter().map(|w| w.tokens.len() as u64 - 1).sum();
    let predicted_bytes: u64 = text.windows.iter().map(|w| w.predicted_bytes as u64).sum();
    let total = |f: fn(&HookBits) -> u64| results.iter().map(|r| f(&r.bits)).sum::<u64>();
    let per_value = |bits: u64, values: u64| (values > 0).then(|| bits as f64 / values as f64);
    Score {
        bits_per_byte: nats / std::f64::consts::LN_2 / predicted_bytes.max(1) as f64,
        perplexity: (nats / predicted_tokens.max(1) as f64).exp(),
        predicted_tokens,
        predicted_bytes,
        kv_bits_per_value: per_value(total(|b| b.kv), total(|b| b.kv_values)),
        activation_bits_per_value: per_value(total(|b| b.activation), total(|b| b.activation_values)),
        fidelity,
    }
}
