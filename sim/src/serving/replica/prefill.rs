//! Workers that read prompts for others: a queue, servers that take as many
//! prompts at once as the token budget allows, and the way of the cache to the
//! workers that decode.

use super::engine::EngineConstants;
use super::step::{PromptWork, StepTable};
use std::collections::VecDeque;

/// Prompts on workers of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefillWorkers<'a> {
    pub table: &'a StepTable,
    pub engine: &'a EngineConstants,
    pub workers: u32,
    /// Attention ranks of a worker, among which prompts are dealt.
    pub ranks: u32,
    pub handoff: Handoff,
}

/// What lies between the last token of a prompt and the first step that
/// decodes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Handoff {
    /// Routing, and the start of the transfer.
    pub fixed_s: f64,
    /// Per token of the prompt: its cache over the link.
    pub token_s: f64,
}

impl Handoff {
    /// Seconds until the cache of `tokens` is across.
    pub fn s(&self, tokens: f64) -> f64 {
        self.fixed_s + self.token_s * tokens
    }
}

/// One worker: when it is free, and what it reads until then.
#[derive(Clone, Debug, Default)]
struct Worker {
    free_s: f64,
    reading: Vec<usize>,
}

/// Prompts that wait and workers that read them.
pub(super) struct Prefill<'a> {
    setting: PrefillWorkers<'a>,
    queue: VecDeque<(usize, f64, f64)>,
    workers: Vec<Worker>,
}

impl<'a> Prefill<'a> {
    pub fn new(setting: PrefillWorkers<'a>) -> Self {
        let workers = vec![Worker::default(); setting.workers.max(1) as usize];
        Self { setting, queue: VecDeque::new(), workers }
    }

    /// A request whose `tokens` are to be read comes at `at_s`.
    pub fn push(&mut self, index: usize, tokens: f64, at_s: f64) {
        self.queue.push_back((index, tokens, at_s));
    }

    /// What `worker` has read.
    pub fn finish(&mut self, worker: usize) -> Vec<usize> {
        std::mem::take(&mut self.workers[worker].reading)
    }

    pub fn handoff(&self) -> Handoff {
        self.setting.handoff
    }

    /// Starts free workers; says when each of them will be done.
    pub fn start(&mut self, mut begun: impl FnMut(usize, f64)) {
        for number in 0..self.workers.len() {
            if !self.workers[number].reading.is_empty() {
                continue;
            }
            let Some(&(_, _, first_s)) = self.queue.front() else { return };
            let start_s = self.workers[number].free_s.max(first_s);
            let (reading, seconds) = self.take(start_s);
            let worker = &mut self.workers[number];
            worker.reading = reading;
            worker.free_s = start_s + seconds;
            begun(number, worker.free_s);
        }
    }

    /// Prompts that a worker reads together from `start_s`, and for how long.
    fn take(&mut self, start_s: f64) -> (Vec<usize>, f64) {
        let ranks = f64::from(self.setting.ranks.max(1));
        let budget = f64::from(self.setting.engine.token_budget);
        let (mut taken, mut tokens, mut squares, mut longest) = (Vec::new(), 0.0, 0.0, 0.0f64);
        while let Some(&(index, own, at_s)) = self.queue.front() {
            let full = !taken.is_empty() && tokens + own > ranks * budget;
            if full || at_s > start_s {
                break;
            }
            self.queue.pop_front();
            taken.push(index);
            tokens += own;
            squares += own * own;
            longest = longest.max(own);
        }
        // The busiest rank decides: prompts are whole.
        let rank_tokens = (tokens / ranks).max(longest);
        let share = rank_tokens / tokens.max(1.0);
        let steps = (rank_tokens / budget).ceil().max(1.0);
        let work = PromptWork {
            tokens: rank_tokens / steps,
            pairs: squares * share / 2.0 / steps,
            finished: taken.len() as f64 * share / steps,
            loaded: 0.0,
        };
        let seconds = steps * self.setting.table.mixed_s(&work, 0.0, 0.0);
        (taken, seconds)
    }
}
