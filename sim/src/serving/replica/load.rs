//! What a service is asked: a closed loop of users, or requests that come when
//! they come. Knows tokens and times; knows nothing of engines.

use crate::serving::workload::Random;
use crate::serving::{ServingError, ServingRequest};

/// A closed loop: so many users, each of whom sends again when answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Requests in flight.
    pub concurrency: u32,
    /// Requests that are sent in all.
    pub requests: u32,
    /// Prompt tokens, drawn evenly from this range.
    pub prompt: (f64, f64),
    /// Answer tokens, drawn evenly from this range.
    pub answer: (f64, f64),
    pub reuse: Reuse,
    pub seed: u64,
}

/// What of a prompt is in the cache already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reuse {
    /// Turns of a conversation; each sends all that was said before it, which
    /// is still cached.
    pub turns: u32,
    /// Time between an answer and the next turn.
    pub think_s: f64,
    /// Share of a first prompt that is cached: instructions that all users share.
    pub prefix_hits: f64,
}

impl Default for Reuse {
    fn default() -> Self {
        Self { turns: 1, think_s: 0.0, prefix_hits: 0.0 }
    }
}

/// Requests by what makes them come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load<'a> {
    Closed(ClosedLoop),
    /// A trace, or draws with a rate; with the share of each prompt that is cached.
    Open {
        requests: &'a [ServingRequest],
        prefix_hits: f64,
    },
}

/// One request before it is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ask {
    /// When it comes; none where an answer makes it come.
    pub at_s: Option<f64>,
    pub prompt: f64,
    pub hit: f64,
    pub answer: f64,
    /// Whether its answer makes the next one of the list come.
    pub goes_on: bool,
}

impl Load<'_> {
    /// Longest request: prompt and answer.
    pub(super) fn longest(&self) -> f64 {
        match self {
            Self::Closed(load) => f64::from(load.reuse.turns.max(1)) * (load.prompt.1 + load.answer.1),
            Self::Open { requests, .. } => requests
                .iter()
                .map(|request| f64::from(request.prompt_tokens) + f64::from(request.output_tokens))
                .fold(0.0, f64::max),
        }
    }

    pub(super) fn check(&self) -> Result<(), ServingError> {
        let setting = ServingError::setting;
        let hits = match self {
            Self::Closed(load) => load.reuse.prefix_hits,
            Self::Open { prefix_hits, .. } => *prefix_hits,
        };
        setting("prefix-hits", hits, (0.0..1.0).contains(&hits), "at least 0 and below 1")?;
        let load = match self {
            Self::Open { requests, .. } => return crate::serving::Requests::check(requests),
            Self::Closed(load) => load,
        };
        let think_s = load.reuse.think_s;
        setting("concurrency", f64::from(load.concurrency), load.concurrency > 0, "at least 1")?;
        setting("turns", f64::from(load.reuse.turns), load.reuse.turns > 0, "at least 1")?;
        setting("think time", think_s, think_s >= 0.0 && think_s.is_finite(), "at least 0 seconds")?;
        if load.requests == 0 {
            return Err(ServingError::NoRequests);
        }
        for (name, (least, most)) in [("prompt", load.prompt), ("answer", load.answer)] {
            let ascends = least >= 1.0 && most >= least && most.is_finite();
            setting(name, least, ascends, "at least one token, and a range that ascends")?;
        }
        Ok(())
    }

    /// All requests in the order in which they come, turns of a conversation
    /// side by side.
    pub(super) fn asks(&self) -> Vec<Ask> {
        match self {
            Self::Open { requests, prefix_hits } => requests
                .iter()
                .map(|request| {
                    let prompt = f64::from(request.prompt_tokens);
                    Ask {
                        at_s: Some(request.arrival_s),
                        prompt,
                        hit: (prompt * prefix_hits).floor(),
                        answer: f64::from(request.output_tokens),
                        goes_on: false,
                    }
                })
                .collect(),
            Self::Closed(load) => load.asks(),
        }
    }
}

impl ClosedLoop {
    fn asks(&self) -> Vec<Ask> {
        let mut random = Random::new(self.seed);
        let mut draw =
            |(least, most): (f64, f64)| (least + random.uniform() * (most - least)).round().max(1.0);
        let mut said = 0.0;
        (0..self.requests)
            .map(|index| {
                let turn = index % self.reuse.turns;
                if turn == 0 {
                    said = 0.0;
                }
                let new = draw(self.prompt);
                let answer = draw(self.answer);
                let hit = if turn == 0 { (new * self.reuse.prefix_hits).floor() } else { said };
                let prompt = said + new;
                said = prompt + answer;
                let goes_on = turn + 1 < self.reuse.turns && index + 1 < self.requests;
                Ask { at_s: None, prompt, hit, answer, goes_on }
            })
            .collect()
    }
}
