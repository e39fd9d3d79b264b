//! How close a coded model's predictions are to the uncoded one's, token by
//! token on the same text: KL divergence, agreement about the likeliest token,
//! and the loss in bits per byte with how sure it is.
//!
//! Knows logits; where they come from is [`crate::score`]'s affair.

use crate::Text;
use crate::model::HookBits;

/// A coded model beside the uncoded one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fidelity {
    /// Mean KL divergence from the uncoded model's next-token distribution to
    /// the coded model's, in nats per token.
    pub kl_nats: f64,
    /// Half of the 95 % confidence interval of `kl_nats`.
    pub kl_ci95: f64,
    /// The KL divergence that 99 % of tokens stay below.
    pub kl_nats_p99: f64,
    /// Share of tokens for which both models hold the same one likeliest.
    pub top1_agreement: f64,
    /// Bits per byte lost, and half of its 95 % confidence interval, from the
    /// differences of both models on the same tokens.
    pub lost_bits_per_byte: f64,
    pub lost_ci95: f64,
}

/// Neighbouring tokens are not independent; differences are averaged over
/// blocks of so many, which nearly are, before their spread is taken.
const BLOCK_TOKENS: usize = 128;
/// The normal distribution's 97.5th percentile.
const Z_95: f64 = 1.959_964;

#[derive(Debug, Clone, Default)]
pub(crate) struct WindowOutcome {
    /// What the head reads; kept by a reference only.
    pub hidden: Vec<f32>,
    pub tokens: Vec<TokenLoss>,
    pub bits: HookBits,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenLoss {
    /// −ln p of the token that came.
    pub nats: f64,
    pub kl_nats: f64,
    pub agrees: bool,
}

impl TokenLoss {
    /// Out of a row of logits, and the uncoded model's where there is one.
    pub(crate) fn of(ours: &[f32], theirs: Option<&[f32]>, token: usize) -> Self {
        let (top, sum) = top_and_sum(ours);
        let log_sum = f64::from(ours[top]) + sum.ln();
        let nats = log_sum - f64::from(ours[token]);
        let Some(theirs) = theirs else { return Self { nats, kl_nats: 0.0, agrees: true } };
        let (their_top, their_sum) = top_and_sum(theirs);
        let their_log_sum = f64::from(theirs[their_top]) + their_sum.ln();
        let shift = their_log_sum - log_sum;
        let kl: f64 = theirs
            .iter()
            .zip(ours)
            .map(|(&t, &o)| {
                f64::from((f64::from(t) - their_log_sum) as f32).exp() * (f64::from(t - o) - shift)
            })
            .sum();
        // Rounding may leave a hair below zero.
        Self { nats, kl_nats: kl.max(0.0), agrees: top == their_top }
    }
}

/// Where the largest logit is, and the sum of exponentials relative to it; in f64, since the many small ones of a
/// large vocabulary would be lost beside the first.
fn top_and_sum(row: &[f32]) -> (usize, f64) {
    let top = row.iter().enumerate().fold(0, |best, (i, &l)| if l > row[best] { i } else { best });
    (top, row.iter().map(|&l| f64::from((l - row[top]).exp())).sum())
}

impl Fidelity {
    /// What windows came to, beside what they came to uncoded.
    pub(crate) fn of(uncoded: &[WindowOutcome], text: &Text, coded: &[WindowOutcome]) -> Self {
        let mut divergences = Vec::new();
        let mut agreeing = 0usize;
        // Sums of a block: bits lost, bytes; nats of divergence, tokens.
        let (mut lost, mut diverged) = (Vec::new(), Vec::new());
        for ((window, ours), theirs) in text.windows.iter().zip(coded).zip(uncoded) {
            let pairs: Vec<_> = ours.tokens.iter().zip(&theirs.tokens).zip(&window.token_bytes).collect();
            for block in pairs.chunks(BLOCK_TOKENS) {
                let nats: f64 = block.iter().map(|((a, b), _)| a.nats - b.nats).sum();
                let bytes: f64 = block.iter().map(|(_, bytes)| f64::from(**bytes)).sum();
                lost.push((nats / std::f64::consts::LN_2, bytes));
                diverged.push((block.iter().map(|((a, _), _)| a.kl_nats).sum(), block.len() as f64));
            }
            divergences.extend(ours.tokens.iter().map(|token| token.kl_nats));
            agreeing += ours.tokens.iter().filter(|token| token.agrees).count();
        }
        divergences.sort_by(f64::total_cmp);
        let count = divergences.len().max(1);
        let p99 = divergences.get((count * 99).div_ceil(100) - 1).copied().unwrap_or(0.0);
        let (kl_nats, kl_ci95) = ratio(&diverged);
        let (lost_bits_per_byte, lost_ci95) = ratio(&lost);
        Self {
            kl_nats,
            kl_ci95,
            kl_nats_p99: p99,
            top1_agreement: agreeing as f64 / count as f64,
            lost_bits_per_byte,
            lost_ci95,
        }
    }
}

/// Σa / Σb over blocks, and half of its 95 % confidence interval; infinite
/// where one block is all there is.
fn ratio(blocks: &[(f64, f64)]) -> (f64, f64) {
    let (a, b) = blocks.iter().fold((0.0, 0.0), |sum, block| (sum.0 + block.0, sum.1 + block.1));
    if b <= 0.0 {
        return (0.0, f64::INFINITY);
    }
    let ratio = a / b;
    let count = blocks.len() as f64;
    let spread: f64 = blocks.iter().map(|block| (block.0 - ratio * block.1).powi(2)).sum();
    let half =
        if blocks.len() < 2 { f64::INFINITY } else { Z_95 * (spread * count / (count - 1.0)).sqrt() / b };
    (ratio, half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_what_its_definition_says() {
        let (ours, theirs) = ([1.0f32, 0.5, -2.0], [0.2f32, 0.9, -1.0]);
        let softmax = |x: [f32; 3]| {
            let sum: f64 = x.iter().map(|&v| f64::from(v).exp()).sum();
            x.map(|v| f64::from(v).exp() / sum)
        };
        let (p, q) = (softmax(theirs), softmax(ours));
        let expected: f64 = p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum();
        let token = TokenLoss::of(&ours, Some(&theirs), 2);
        assert!((token.kl_nats - expected).abs() < 1e-6, "{} {expected}", token.kl_nats);
        assert!((token.nats + q[2].ln()).abs() < 1e-6);
        assert!(!token.agrees && TokenLoss::of(&ours, Some(&ours), 0).kl_nats < 1e-7);
    }

    #[test]
    fn an_interval_shrinks_with_blocks_and_is_infinite_for_one() {
        let blocks: Vec<(f64, f64)> = (0..64).map(|i| (if i % 2 == 0 { 1.0 } else { 3.0 }, 1.0)).collect();
        let (few, many) = (ratio(&blocks[..4]), ratio(&blocks));
        assert_eq!((few.0, many.0), (2.0, 2.0));
        assert!(many.1 < few.1 / 3.0 && (many.1 - 1.96 / 8.0).abs() < 0.01, "{} {}", few.1, many.1);
        assert!(ratio(&blocks[..1]).1.is_infinite());
    }
}
