//! A benchmark replayed: so many requests are always in flight, the next one
//! is sent when one is answered, and the first ones all at once.
//!
//! Steps are those of [`StepTable`]; between two changes of the batch the
//! simulation jumps. Prompts are cut into chunks by the engine's token budget,
//! caches admit as the engine reserves, the rest waits its turn.

use super::engine::{EngineConstants, Policy};
use super::step::{PromptWork, StepTable};
use crate::serving::ServingError;
use crate::serving::workload::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A closed loop of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Requests in flight on one attention rank.
    pub concurrency: u32,
    /// Requests that are sent in all.
    pub requests: u32,
    /// Prompt tokens, drawn evenly from this range.
    pub prompt: (f64, f64),
    /// Answer tokens, drawn evenly from this range.
    pub answer: (f64, f64),
    pub seed: u64,
}

/// What the load generator would report.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Replayed {
    /// Mean time to first token over all requests, the first burst included.
    pub ttft_s: f64,
    /// Mean time between tokens after the first.
    pub tpot_s: f64,
    /// The same without the first and the last wave of requests.
    pub steady_ttft_s: f64,
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
}

/// Plays `load` on one replica.
///
/// # Errors
///
/// When the load is empty, or one request alone does not fit the cache.
pub fn replay(
    table: &StepTable,
    engine: &EngineConstants,
    load: &ClosedLoop,
) -> Result<Replayed, ServingError> {
    let setting = |name, value: f64, rule| Err(ServingError::Setting { name, value, rule });
    if load.concurrency == 0 {
        return setting("concurrency", 0.0, "at least 1");
    }
    if load.requests == 0 {
        return Err(ServingError::NoRequests);
    }
    if !(load.prompt.0 >= 1.0 && load.prompt.1 >= load.prompt.0) {
        return setting("prompt", load.prompt.0, "at least one token, and a range that ascends");
    }
    if !(load.answer.0 >= 1.0 && load.answer.1 >= load.answer.0) {
        return setting("answer", load.answer.0, "at least one token, and a range that ascends");
    }
    let needed = load.prompt.1 + load.answer.1;
    if needed > table.cache_tokens() {
        let capacity = table.cache_tokens() as u64;
        return Err(ServingError::TooLong { index: 0, needed: needed as u64, capacity });
    }
    let mut replica = Replica::new(table, engine, load);
    replica.run();
    Ok(replica.report(load))
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    at_s: f64,
    first_token_s: f64,
    done_s: f64,
    prompt: f64,
    answer: f64,
    /// Prompt tokens that were read.
    read: f64,
}

struct Replica<'a> {
    table: &'a StepTable,
    engine: &'a EngineConstants,
    sent: Vec<Sent>,
    /// Next request to be sent.
    next: usize,
    waiting: VecDeque<usize>,
    reading: VecDeque<usize>,
    /// Decoding requests by the step in which they end.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    now_s: f64,
    step: u64,
    batch: f64,
    running: u32,
    cached: f64,
    reserved: f64,
    done: usize,
    present: f64,
    present_s: f64,
    produced: f64,
    decode_steps: f64,
    decoded: f64,
}

impl<'a> Replica<'a> {
    fn new(table: &'a StepTable, engine: &'a EngineConstants, load: &ClosedLoop) -> Self {
        let mut random = Random::new(load.seed);
        let mut draw =
            |(least, most): (f64, f64)| (least + random.uniform() * (most - least)).round().max(1.0);
        let sent: Vec<Sent> = (0..load.requests)
            .map(|_| {
                let prompt = draw(load.prompt);
                Sent {
                    prompt,
                    answer: (draw(load.answer) / engine.tokens_per_step).round().max(1.0),
                    ..Sent::default()
                }
            })
            .collect();
        let first = (load.concurrency as usize).min(sent.len());
        Self {
            table,
            engine,
            sent,
            next: first,
            waiting: (0..first).collect(),
            reading: VecDeque::new(),
            ends: BinaryHeap::new(),
            now_s: 0.0,
            step: 0,
            batch: 0.0,
            running: 0,
            cached: 0.0,
            reserved: 0.0,
            done: 0,
            present: first as f64,
            present_s: 0.0,
            produced: 0.0,
            decode_steps: 0.0,
            decoded: 0.0,
        }
    }

    fn run(&mut self) {
        while self.done < self.sent.len() {
            self.admit();
            if self.reading.is_empty() {
                self.decode();
            } else {
                self.read_prompts();
            }
        }
    }

    fn need(&self, index: usize) -> f64 {
        self.sent[index].prompt + self.engine.reserved_answer * self.sent[index].answer
    }

    fn admit(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let need = self.need(index);
            let fits = self.running == 0 || self.reserved + need <= self.table.cache_tokens();
            if self.running >= self.engine.max_batch || !fits {
                break;
            }
            self.waiting.pop_front();
            self.reading.push_back(index);
            self.reserved += need;
            self.running += 1;
        }
    }

    /// One step with prompt tokens in it.
    fn read_prompts(&mut self) {
        let batch = if self.engine.policy == Policy::Mixed { self.batch } else { 0.0 };
        let mut left = (f64::from(self.engine.token_budget) - batch).max(LEAST_CHUNK);
        let mut work = PromptWork::default();
        for &index in &self.reading {
            let request = &mut self.sent[index];
            let chunk = (request.prompt - request.read).min(left);
            work.tokens += chunk;
            work.pairs += chunk * (request.read + chunk / 2.0);
            request.read += chunk;
            left -= chunk;
            if request.read < request.prompt {
                break;
            }
            work.finished += 1.0;
            if left <= 0.0 {
                break;
            }
        }
        self.pass(self.table.mixed_s(&work, batch, self.cached));
        if batch > 0.0 {
            self.advance(1);
        }
        for _ in 0..work.finished as usize {
            self.start_decoding();
        }
    }

    fn start_decoding(&mut self) {
        let Some(index) = self.reading.pop_front() else { return };
        self.sent[index].first_token_s = self.now_s;
        self.produced += 1.0;
        if self.sent[index].answer <= 1.0 {
            self.finish(index);
            return;
        }
        self.batch += 1.0;
        self.cached += self.sent[index].prompt + 1.0;
        self.ends.push(Reverse((self.step + self.sent[index].answer as u64 - 1, index)));
    }

    /// Decoding steps up to the next end.
    fn decode(&mut self) {
        let Some(&Reverse((end, _))) = self.ends.peek() else { return };
        let steps = (end - self.step).max(1);
        let count = steps as f64;
        let first_s = self.table.decode_s(self.batch, self.cached);
        let growth_s = self.table.decode_growth_s(self.batch, self.cached);
        self.pass(count * first_s + growth_s * count * (count - 1.0) / 2.0);
        self.advance(steps);
    }

    fn pass(&mut self, seconds: f64) {
        self.now_s += seconds;
        self.present_s += self.present * seconds;
    }

    /// Counts decoding steps whose time has passed and lets go who is done.
    fn advance(&mut self, steps: u64) {
        self.step += steps;
        let tokens = self.batch * steps as f64;
        self.cached += tokens;
        self.produced += tokens;
        self.decoded += tokens;
        self.decode_steps += steps as f64;
        while let Some(&Reverse((end, index))) = self.ends.peek() {
            if end > self.step {
                break;
            }
            self.ends.pop();
            self.batch -= 1.0;
            self.cached -= self.sent[index].prompt + self.sent[index].answer;
            self.finish(index);
        }
    }

    fn finish(&mut self, index: usize) {
        self.sent[index].done_s = self.now_s;
        self.reserved -= self.need(index);
        self.running -= 1;
        self.done += 1;
        self.present -= 1.0;
        if self.next < self.sent.len() {
            self.sent[self.next].at_s = self.now_s;
            self.waiting.push_back(self.next);
            self.next += 1;
            self.present += 1.0;
        }
    }

    fn report(&self, load: &ClosedLoop) -> Replayed {
        let count = self.sent.len() as f64;
        let per_step = self.engine.tokens_per_step;
        let several: Vec<&Sent> = self.sent.iter().filter(|r| r.answer > 1.0).collect();
        let between = several.iter().map(|r| (r.done_s - r.first_token_s) / (r.answer - 1.0)).sum::<f64>();
        let tpot_s = if several.is_empty() { 0.0 } else { between / several.len() as f64 / per_step };
        let step_s = tpot_s * per_step;
        let seen_s = self.engine.first_token_s + self.engine.first_token_steps * step_s;
        let mean = |requests: &[Sent]| {
            requests.iter().map(|r| r.first_token_s - r.at_s).sum::<f64>() / (requests.len() as f64).max(1.0)
        };
        let wave = load.concurrency as usize;
        let steady = self.sent.get(2 * wave..self.sent.len().saturating_sub(wave)).filter(|s| !s.is_empty());
        let asked: f64 = self.sent.iter().map(|r| r.answer).sum();
        Replayed {
            ttft_s: mean(&self.sent) + seen_s,
            tpot_s,
            steady_ttft_s: steady.map_or_else(|| mean(&self.sent), mean) + seen_s,
            duration_s: self.now_s,
            requests_per_s: count / self.now_s,
            answer_tokens_per_s: asked * per_step / self.now_s,
            asked_tokens: asked as u64,
            produced_tokens: self.produced as u64,
            present_s: self.present_s,
            latency_sum_s: self.sent.iter().map(|r| r.done_s - r.at_s).sum(),
            mean_batch: self.decoded / self.decode_steps.max(1.0),
        }
    }
}

/// Prompt tokens that a step takes even where decoding fills the budget.
const LEAST_CHUNK: f64 = 64.0;
