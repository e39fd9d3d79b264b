//! The best deployment of so many GPUs within objectives: every placement,
//! batch and split of prefill and decode, by the closed form.

use super::closed_form::{Deployment, Predicted, predict};
use super::load::ClosedLoop;

/// What is promised, as means of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub ttft_s: f64,
    pub tpot_s: f64,
}

impl Goal {
    /// The worse of the two overruns; at most 1 where both are kept.
    pub fn overrun(&self, predicted: &Predicted) -> f64 {
        (predicted.ttft_s / self.ttft_s).max(predicted.tpot_s / self.tpot_s)
    }
}

/// A deployment to be judged, under a name that a person can read.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub name: String,
    pub deployment: Deployment,
}

/// A candidate at its best concurrency within the goal.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Found {
    pub name: String,
    pub gpus: u32,
    pub concurrency: u32,
    #[serde(flatten)]
    pub predicted: Predicted,
    pub answer_tokens_per_s_per_gpu: f64,
}

/// What came nearest where nothing keeps the goal.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Nearest {
    #[serde(flatten)]
    pub found: Found,
    /// The worse of TTFT and TPOT over what is promised.
    pub overrun: f64,
}

/// Ranks `candidates` by tokens per second, each at the largest concurrency up
/// to `most` that keeps `goal`. Where none does at any concurrency, fails
/// with the nearest; with none where there are no candidates.
pub fn search(
    candidates: &[Candidate],
    load: &ClosedLoop,
    goal: &Goal,
    most: u32,
) -> Result<Vec<Found>, Option<Nearest>> {
    let waves = (load.requests / load.concurrency.max(1)).max(1);
    let mut kept: Vec<Found> = Vec::new();
    let mut nearest: Option<Nearest> = None;
    for candidate in candidates {
        let mut best: Option<Found> = None;
        for concurrency in concurrencies(most) {
            let own = ClosedLoop { concurrency, requests: concurrency.saturating_mul(waves), ..*load };
            let predicted = predict(&candidate.deployment, &own);
            let (name, gpus) = (candidate.name.clone(), candidate.deployment.gpus());
            let answer_tokens_per_s_per_gpu = predicted.answer_tokens_per_s / f64::from(gpus.max(1));
            let found = Found { name, gpus, concurrency, predicted, answer_tokens_per_s_per_gpu };
            let overrun = goal.overrun(&found.predicted);
            if overrun <= 1.0 {
                let better = best
                    .as_ref()
                    .is_none_or(|b| found.predicted.answer_tokens_per_s > b.predicted.answer_tokens_per_s);
                if better {
                    best = Some(found);
                }
            } else if nearest.as_ref().is_none_or(|n| overrun < n.overrun) {
                nearest = Some(Nearest { found, overrun });
            }
        }
        kept.extend(best);
    }
    if kept.is_empty() {
        return Err(nearest);
    }
    kept.sort_by(|a, b| {
        b.predicted.answer_tokens_per_s.total_cmp(&a.predicted.answer_tokens_per_s).then(a.name.cmp(&b.name))
    });
    Ok(kept)
}

/// 1 to `most` in steps of about a fifth.
pub fn concurrencies(most: u32) -> impl Iterator<Item = u32> {
    let mut next = 1u32;
    std::iter::from_fn(move || {
        let own = next;
        if own > most {
            return None;
        }
        next = if own == most { most.saturating_add(1) } else { (own + (own / 5).max(1)).min(most) };
        Some(own)
    })
}
