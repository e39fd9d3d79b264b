//! One engine: a queue, a batch, and steps.
//!
//! Between two changes of the batch all decoding steps look alike but for the
//! caches, which grow by a token a sequence: their sum is a quadratic, so the
//! engine jumps to the next change instead of taking each step.

use super::Batching;
use super::steps::{Affine, Cost, StepCosts};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What an engine has to do for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Item {
    pub ready_s: f64,
    /// Prompt tokens that are not in a cache yet; 0: the whole cache is here.
    pub new_tokens: u32,
    pub prompt_tokens: u32,
    /// Tokens after the first.
    pub decode_steps: u32,
}

impl Item {
    /// Cache the request may come to need. Reserved at the start, so that
    /// nothing that runs is ever thrown out.
    pub fn reserved_tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.decode_steps)
    }
}

/// When a request saw its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub first_token_s: f64,
    pub done_s: f64,
}

/// What engines spent, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub busy_s: f64,
    pub energy_j: f64,
    pub decode_steps: f64,
    pub decoded_tokens: f64,
    /// Requests present, integrated over time.
    pub present_s: f64,
    pub peak_reserved: u64,
}

impl std::ops::Add for Spent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            busy_s: self.busy_s + other.busy_s,
            energy_j: self.energy_j + other.energy_j,
            decode_steps: self.decode_steps + other.decode_steps,
            decoded_tokens: self.decoded_tokens + other.decoded_tokens,
            present_s: self.present_s + other.present_s,
            peak_reserved: self.peak_reserved.max(other.peak_reserved),
        }
    }
}

/// Prompt tokens of one step where prompts go first: what saturates the
/// matrix units of today's GPUs; a longer prompt still runs whole.
const PREFILL_STEP_TOKENS: u64 = 8192;

pub(super) struct Engine<'a> {
    costs: &'a StepCosts,
    batching: Batching,
    max_batch: usize,
    now_s: f64,
    /// Decoding steps taken so far: the clock by which sequences end.
    steps: u64,
    /// (last step, request), earliest first.
    running: BinaryHeap<Reverse<(u64, usize)>>,
    /// Tokens in the caches of what runs.
    cached_tokens: u64,
    reserved_tokens: u64,
    waiting: VecDeque<usize>,
    /// Admitted, with prompt tokens still to read (chunked batching).
    reading: VecDeque<(usize, u32)>,
    next: usize,
    present: usize,
    times: Vec<Times>,
    spent: Spent,
}

impl<'a> Engine<'a> {
    pub fn new(costs: &'a StepCosts, batching: Batching, max_batch: u32) -> Self {
        Self {
            costs,
            batching,
            max_batch: max_batch as usize,
            now_s: 0.0,
            steps: 0,
            running: BinaryHeap::new(),
            cached_tokens: 0,
            reserved_tokens: 0,
            waiting: VecDeque::new(),
            reading: VecDeque::new(),
            next: 0,
            present: 0,
            times: Vec::new(),
            spent: Spent::default(),
        }
    }

    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Plays `items`, which are in the order of their arrival and fit the
    /// cache one by one, to their end.
    pub fn run(&mut self, items: &[Item]) -> Vec<Times> {
        self.times = vec![Times::default(); items.len()];
        self.now_s = items.first().map_or(0.0, |item| item.ready_s);
        loop {
            self.take_arrivals(items);
            let admitted = self.admit(items);
            match self.batching {
                Batching::PrefillFirst if !admitted.is_empty() => self.prefill(items, &admitted),
                Batching::Chunked { tokens } if !admitted.is_empty() || !self.reading.is_empty() => {
                    self.reading.extend(admitted.iter().map(|&index| (index, items[index].new_tokens)));
                    self.mixed(items, tokens);
                }
                _ if !self.running.is_empty() => self.decode(items),
                _ if self.next < items.len() => self.now_s = items[self.next].ready_s,
                _ => return std::mem::take(&mut self.times),
            }
        }
    }

    fn take_arrivals(&mut self, items: &[Item]) {
        while let Some(item) = items.get(self.next).filter(|item| item.ready_s <= self.now_s) {
            self.spent.present_s += self.now_s - item.ready_s;
            self.waiting.push_back(self.next);
            self.present += 1;
            self.next += 1;
        }
    }

    /// Moves what fits from the queue into the batch, in order of arrival.
    fn admit(&mut self, items: &[Item]) -> Vec<usize> {
        let mut admitted = Vec::new();
        let mut tokens = 0u64;
        while let Some(&index) = self.waiting.front() {
            let item = &items[index];
            let batch = self.running.len() + self.reading.len() + admitted.len();
            let reserved = self.reserved_tokens + item.reserved_tokens();
            let full = batch >= self.max_batch || reserved > self.costs.cache_tokens();
            let enough = tokens > 0 && tokens + u64::from(item.new_tokens) > PREFILL_STEP_TOKENS;
            if full || enough {
                break;
            }
            tokens += u64::from(item.new_tokens);
            self.reserved_tokens = reserved;
            self.waiting.pop_front();
            admitted.push(index);
        }
        self.spent.peak_reserved = self.spent.peak_reserved.max(self.reserved_tokens);
        admitted
    }

    /// Reads whole prompts in a step of their own.
    fn prefill(&mut self, items: &[Item], admitted: &[usize]) {
        let new: f64 = admitted.iter().map(|&index| f64::from(items[index].new_tokens)).sum();
        if new > 0.0 {
            let mut cost = self.costs.products(new);
            for item in admitted.iter().map(|&index| &items[index]).filter(|item| item.new_tokens > 0) {
                cost = cost + self.costs.attention(f64::from(item.new_tokens), f64::from(item.prompt_tokens));
            }
            self.advance(cost);
        }
        for &index in admitted {
            self.start(items, index);
        }
    }

    /// One step of decoding and a piece of the prompts that wait.
    fn mixed(&mut self, items: &[Item], chunk_tokens: u32) {
        let (batch, cached) = (self.running.len(), self.cached_tokens as f64);
        let mut left = chunk_tokens;
        let mut attention = Cost::default();
        let mut read = Vec::new();
        while let Some(&(index, unread)) = self.reading.front() {
            let item = &items[index];
            let piece = unread.min(left);
            if piece == 0 && unread > 0 {
                break;
            }
            if piece > 0 {
                let share = f64::from(piece) / f64::from(item.new_tokens);
                let whole = self.costs.attention(f64::from(item.new_tokens), f64::from(item.prompt_tokens));
                attention = attention + whole.times(share);
            }
            left -= piece;
            if piece < unread {
                self.reading[0].1 = unread - piece;
                break;
            }
            self.reading.pop_front();
            read.push(index);
        }
        let chunk = chunk_tokens - left;
        if chunk > 0 || batch > 0 {
            let cost = match chunk {
                0 => self.costs.decode_step(batch, cached),
                _ => self.costs.mixed_step(f64::from(chunk), batch, cached) + attention,
            };
            self.advance(cost);
            self.count_decoding(1.0, batch);
            self.end_finished(items);
        }
        for index in read {
            self.start(items, index);
        }
    }

    /// The prompt is read: the first token is there.
    fn start(&mut self, items: &[Item], index: usize) {
        let item = &items[index];
        self.times[index].first_token_s = self.now_s;
        if item.decode_steps == 0 {
            self.finish(items, index);
        } else {
            self.cached_tokens += u64::from(item.prompt_tokens);
            self.running.push(Reverse((self.steps + u64::from(item.decode_steps), index)));
        }
    }

    /// Decodes until a sequence ends, or until the step after an arrival that
    /// could join the batch.
    fn decode(&mut self, items: &[Item]) {
        let Some(&Reverse((last_step, _))) = self.running.peek() else { return };
        let batch = self.running.len();
        let affine = self.costs.decode(batch);
        let mut count = last_step - self.steps;
        // While someone waits there is no room, and more arrivals change nothing.
        let may_join = self.waiting.is_empty() && batch < self.max_batch;
        if let Some(item) = items.get(self.next).filter(|_| may_join) {
            count = count.min(steps_within(&affine, batch, self.cached_tokens, item.ready_s - self.now_s));
        }
        self.advance(several(&affine, batch, self.cached_tokens, count));
        self.count_decoding(count as f64, batch);
        self.end_finished(items);
    }

    fn count_decoding(&mut self, count: f64, batch: usize) {
        if batch == 0 {
            return;
        }
        self.steps += count as u64;
        self.cached_tokens += count as u64 * batch as u64;
        self.spent.decode_steps += count;
        self.spent.decoded_tokens += count * batch as f64;
    }

    fn end_finished(&mut self, items: &[Item]) {
        while let Some(&Reverse((last_step, index))) = self.running.peek() {
            if last_step > self.steps {
                break;
            }
            self.running.pop();
            self.cached_tokens -= items[index].reserved_tokens();
            self.finish(items, index);
        }
    }

    fn finish(&mut self, items: &[Item], index: usize) {
        self.reserved_tokens -= items[index].reserved_tokens();
        self.times[index].done_s = self.now_s;
        self.present -= 1;
    }

    fn advance(&mut self, cost: Cost) {
        self.now_s += cost.time_s;
        self.spent.busy_s += cost.time_s;
        self.spent.energy_j += cost.energy_j;
        self.spent.present_s += self.present as f64 * cost.time_s;
    }
}

/// `count` steps of `batch` sequences that start with `cached` tokens.
fn several(affine: &Affine, batch: usize, cached: u64, count: u64) -> Cost {
    let n = count as f64;
    let tokens = n * cached as f64 + batch as f64 * n * (n - 1.0) / 2.0;
    affine.fixed.times(n) + affine.per_token.times(tokens)
}

/// The fewest steps, at least one, that take `wait_s`.
fn steps_within(affine: &Affine, batch: usize, cached: u64, wait_s: f64) -> u64 {
    let first_s = affine.fixed.time_s + affine.per_token.time_s * cached as f64;
    let growth_s = affine.per_token.time_s * batch as f64;
    // first·n + growth·n(n−1)/2 = wait
    let b = first_s - growth_s / 2.0;
    let n = if growth_s * wait_s < 1e-12 * b * b {
        wait_s / b
    } else {
        ((b * b + 2.0 * growth_s * wait_s).sqrt() - b) / growth_s
    };
    n.ceil().max(1.0) as u64
}
