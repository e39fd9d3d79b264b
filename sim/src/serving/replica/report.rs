//! What a load generator would print, from the books of a run.

use super::engine::EngineConstants;
use super::sent::Sent;
use crate::serving::steady::{Seen, kept};
use crate::serving::{Percentiles, Steady};

/// What a load generator would report.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Replayed {
    /// Mean time to first token over all requests, the first burst included.
    pub ttft_s: f64,
    /// Mean time between tokens after the first.
    pub tpot_s: f64,
    /// Mean time to first token without the first and the last wave of requests.
    pub steady_ttft_s: f64,
    pub ttft: Percentiles,
    pub tpot: Percentiles,
    pub duration_s: f64,
    pub requests_per_s: f64,
    pub answer_tokens_per_s: f64,
    /// Tokens that requests asked for, and tokens that steps produced.
    pub asked_tokens: u64,
    pub produced_tokens: u64,
    /// Requests present, integrated over time, and times summed over requests:
    /// the two sides of Little's law, from separate books.
    pub present_s: f64,
    pub latency_sum_s: f64,
    /// Mean sequences of a decoding step.
    pub mean_batch: f64,
    /// Sequences that were thrown out of the cache to come back later.
    pub preempted: u64,
}

/// A run without its warm-up and cool-down.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Watched {
    pub steady: Steady,
    pub ttft: Percentiles,
    pub tpot: Percentiles,
}

/// Sums that a run keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Books {
    pub present_s: f64,
    pub produced: f64,
    pub decode_steps: f64,
    pub decoded: f64,
    pub preempted: u64,
}

/// Times to first token, and between tokens, as clients see them.
fn seen_by_clients<'a>(
    sent: impl Iterator<Item = &'a Sent> + Clone,
    engine: &EngineConstants,
    seen_steps: f64,
) -> (Vec<f64>, Percentiles) {
    let per_step = engine.tokens_per_step();
    let several = sent.clone().filter(|r| r.answer > 1.0);
    let between: Vec<f64> = several.map(|r| (r.done_s - r.first_s()) / (r.answer - 1.0) / per_step).collect();
    let tpot = Percentiles::of(&between);
    let seen_s = engine.first_token_s + seen_steps * tpot.mean_s * per_step;
    (sent.map(|r| r.first_s() - r.at_s + seen_s).collect(), tpot)
}

impl Books {
    /// The report of a run that began at the first request and ended at
    /// `end_s`, where clients see a first token `seen_steps` decoding steps late.
    pub fn report(
        &self,
        sent: &[Sent],
        end_s: f64,
        wave: usize,
        engine: &EngineConstants,
        seen_steps: f64,
    ) -> Replayed {
        let count = sent.len() as f64;
        let per_step = engine.tokens_per_step();
        let (waits, tpot) = seen_by_clients(sent.iter(), engine, seen_steps);
        let steady = waits.get(2 * wave..waits.len().saturating_sub(wave)).filter(|s| !s.is_empty());
        let steady_ttft_s = steady.map(|own| own.iter().sum::<f64>() / own.len() as f64);
        let ttft = Percentiles::of(&waits);
        let asked: f64 = sent.iter().map(|r| r.answer).sum();
        let start_s = sent.first().map_or(0.0, |r| r.at_s);
        let duration_s = (end_s - start_s).max(f64::MIN_POSITIVE);
        Replayed {
            ttft_s: ttft.mean_s,
            tpot_s: tpot.mean_s,
            steady_ttft_s: steady_ttft_s.unwrap_or(ttft.mean_s),
            ttft,
            tpot,
            duration_s,
            requests_per_s: count / duration_s,
            answer_tokens_per_s: asked * per_step / duration_s,
            asked_tokens: asked as u64,
            produced_tokens: self.produced.round() as u64,
            present_s: self.present_s,
            latency_sum_s: sent.iter().map(|r| r.done_s - r.at_s).sum(),
            mean_batch: self.decoded / self.decode_steps.max(1.0),
            preempted: self.preempted,
        }
    }

    /// The steady part of the same run, whose first tokens clients see
    /// `seen_steps` decoding steps late.
    pub fn watched(sent: &[Sent], engine: &EngineConstants, seen_steps: f64, bound: f64) -> Watched {
        let per_step = engine.tokens_per_step();
        let mut order: Vec<&Sent> = sent.iter().collect();
        order.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let all: Vec<Seen> = order
            .iter()
            .map(|request| Seen {
                arrival_s: request.at_s,
                first_token_s: request.first_s(),
                done_s: request.done_s,
                output_tokens: request.answer * per_step,
            })
            .collect();
        let counted = order[kept(&all)].iter().copied();
        let (waits, tpot) = seen_by_clients(counted, engine, seen_steps);
        Watched { steady: Steady::of(&all, bound), ttft: Percentiles::of(&waits), tpot }
    }
}
