//! One engine: a queue, a batch, and steps.
//!
//! Between two changes of the batch all decoding steps look alike but for the
//! caches, which grow by a token a sequence: their sum is a quadratic, so the
//! engine jumps to the next change instead of taking each step. Caches grow as
//! tokens come; where they no longer fit, who came last is thrown out, waits,
//! and is read anew.

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
    /// Cache the request comes to need.
    pub fn cache_tokens(&self) -> u64 {
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
    pub peak_tokens: u64,
    pub preempted: u64,
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
            peak_tokens: self.peak_tokens.max(other.peak_tokens),
            preempted: self.preempted + other.preempted,
        }
    }
}

/// Prompt tokens of one step where prompts go first: what saturates the
/// matrix units of today's GPUs; a longer prompt still runs whole.
const PREFILL_STEP_TOKENS: u64 = 8192;

/// Share of the cache that admission fills where answers are not kept free
/// whole (vLLM keeps one page in a hundred).
const WATERMARK: f64 = 0.99;

/// How an engine takes requests in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    pub batching: Batching,
    pub max_batch: u32,
    /// Share of the tokens to come that is kept free at admission.
    pub reserved_answer: f64,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    times: Times,
    started: bool,
    /// Tokens after the first that were made before it was last thrown out.
    made: u32,
    /// The step in which it ends, while it decodes.
    ends: Option<u64>,
}

pub(super) struct Engine<'a> {
    costs: &'a StepCosts,
    rules: Rules,
    pub now_s: f64,
    /// Decoding steps taken so far: the clock by which sequences end.
    steps: u64,
    /// (last step, request), earliest first; who was thrown out stays behind.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Who was admitted, the latest last; who has left stays behind.
    admitted: Vec<usize>,
    /// Sequences that decode.
    batch: usize,
    /// Tokens in the caches of what runs, and of what is being read.
    cached_tokens: u64,
    reading_tokens: u64,
    /// Tokens that what was admitted will still write.
    outstanding: u64,
    waiting: VecDeque<usize>,
    /// Admitted, with prompt tokens still to read (chunked batching).
    reading: VecDeque<(usize, u32)>,
    next: usize,
    present: usize,
    progress: Vec<Progress>,
    pub spent: Spent,
}

impl<'a> Engine<'a> {
    pub fn new(costs: &'a StepCosts, rules: Rules) -> Self {
        Self {
            costs,
            rules,
            now_s: 0.0,
            steps: 0,
            ends: BinaryHeap::new(),
            admitted: Vec::new(),
            batch: 0,
            cached_tokens: 0,
            reading_tokens: 0,
            outstanding: 0,
            waiting: VecDeque::new(),
            reading: VecDeque::new(),
            next: 0,
            present: 0,
            progress: Vec::new(),
            spent: Spent::default(),
        }
    }

    /// Plays `items`, which are in the order of their arrival and fit the
    /// cache one by one, to their end.
    pub fn run(&mut self, items: &[Item]) -> Vec<Times> {
        self.progress = vec![Progress::default(); items.len()];
        self.now_s = items.first().map_or(0.0, |item| item.ready_s);
        loop {
            self.take_arrivals(items);
            let admitted = self.admit(items);
            match self.rules.batching {
                Batching::PrefillFirst if !admitted.is_empty() => self.prefill(items, &admitted),
                Batching::Chunked { tokens } if !admitted.is_empty() || !self.reading.is_empty() => {
                    let unread = admitted.iter().map(|&index| (index, self.to_read(items, index)));
                    self.reading.extend(unread.collect::<Vec<_>>());
                    self.mixed(items, tokens);
                }
                _ if self.batch > 0 => self.decode(items),
                _ if self.next < items.len() => self.now_s = items[self.next].ready_s,
                _ => return self.progress.iter().map(|own| own.times).collect(),
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

    /// Tokens that are read before a request decodes: its prompt, and after it
    /// was thrown out all that it had.
    fn to_read(&self, items: &[Item], index: usize) -> u32 {
        let (item, own) = (&items[index], &self.progress[index]);
        match own.started {
            false => item.new_tokens,
            true => item.new_tokens.max(item.prompt_tokens) + 1 + own.made,
        }
    }

    /// Tokens in its cache when a request begins to decode.
    fn context(&self, items: &[Item], index: usize) -> u32 {
        items[index].prompt_tokens + self.progress[index].made
    }

    /// Cache that is taken or kept free when so many tokens are cached and so
    /// many are to come.
    fn promised(&self, tokens: u64, to_come: u64) -> u64 {
        tokens + (self.rules.reserved_answer * to_come as f64).ceil() as u64
    }

    /// Moves what fits from the queue into the batch, in order of arrival.
    fn admit(&mut self, items: &[Item]) -> Vec<usize> {
        self.forget();
        let mut admitted = Vec::new();
        let mut tokens = 0u64;
        let whole = self.rules.reserved_answer >= 1.0;
        let room = self.costs.cache_tokens();
        let room = if whole { room } else { (WATERMARK * room as f64) as u64 };
        while let Some(&index) = self.waiting.front() {
            let batch = self.batch + self.reading.len() + admitted.len();
            let context = u64::from(self.context(items, index));
            let left = u64::from(items[index].decode_steps - self.progress[index].made);
            let new = u64::from(self.to_read(items, index));
            let taken = self.cached_tokens + self.reading_tokens + context;
            let promised = self.promised(taken, self.outstanding + left);
            let full = batch >= self.rules.max_batch as usize || (promised > room && batch > 0);
            let enough = tokens > 0 && tokens + new > PREFILL_STEP_TOKENS;
            if full || enough {
                break;
            }
            tokens += new;
            self.reading_tokens += context;
            self.outstanding += left;
            self.spent.peak_tokens = self.spent.peak_tokens.max(promised);
            self.waiting.pop_front();
            self.admitted.push(index);
            admitted.push(index);
        }
        admitted
    }

    /// Reads whole prompts in a step of their own.
    fn prefill(&mut self, items: &[Item], admitted: &[usize]) {
        let pieces = admitted.iter().map(|&index| (index, f64::from(self.to_read(items, index))));
        let pieces: Vec<(usize, f64)> = pieces.filter(|&(_, new)| new > 0.0).collect();
        let new: f64 = pieces.iter().map(|&(_, new)| new).sum();
        if new > 0.0 {
            let mut cost = self.costs.products(new);
            for (index, new) in pieces {
                cost = cost + self.costs.attention(new, f64::from(self.context(items, index)).max(new));
            }
            self.advance(cost);
        }
        for &index in admitted {
            self.start(items, index);
        }
    }

    /// One step of decoding and a piece of the prompts that wait.
    fn mixed(&mut self, items: &[Item], chunk_tokens: u32) {
        self.make_room(items);
        let (batch, cached) = (self.batch, self.cached_tokens as f64);
        let mut left = chunk_tokens;
        let mut attention = Cost::default();
        let mut read = Vec::new();
        while let Some(&(index, unread)) = self.reading.front() {
            let piece = unread.min(left);
            if piece == 0 && unread > 0 {
                break;
            }
            if piece > 0 {
                let new = f64::from(self.to_read(items, index));
                let whole = self.costs.attention(new, f64::from(self.context(items, index)).max(new));
                attention = attention + whole.times(f64::from(piece) / new);
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
            self.count_decoding(1, batch);
            self.end_finished(items);
        }
        for index in read {
            self.start(items, index);
        }
    }

    /// The prompt is read: the first token is there, or the next one of an
    /// answer that was thrown out.
    fn start(&mut self, items: &[Item], index: usize) {
        self.reading_tokens -= u64::from(self.context(items, index));
        let own = &mut self.progress[index];
        if own.started {
            own.made += 1;
            self.outstanding -= 1;
        } else {
            own.started = true;
            own.times.first_token_s = self.now_s;
        }
        let left = items[index].decode_steps - own.made;
        if left == 0 {
            self.finish(index);
        } else {
            let last_step = self.steps + u64::from(left);
            own.ends = Some(last_step);
            self.cached_tokens += u64::from(self.context(items, index));
            self.batch += 1;
            self.ends.push(Reverse((last_step, index)));
        }
    }

    /// Throws out who came last until the next step fits.
    fn make_room(&mut self, items: &[Item]) {
        let mut at = self.admitted.len();
        while self.batch > 1
            && self.cached_tokens + self.reading_tokens + self.batch as u64 > self.costs.cache_tokens()
        {
            let Some(&index) = at.checked_sub(1).and_then(|at| self.admitted.get(at)) else { return };
            at -= 1;
            // Who is being read stays: its pages are filled already.
            let Some(last_step) = self.progress[index].ends else { continue };
            self.admitted.remove(at);
            let left = last_step - self.steps;
            let own = &mut self.progress[index];
            own.ends = None;
            own.made = items[index].decode_steps - left as u32;
            self.batch -= 1;
            self.outstanding -= left;
            self.cached_tokens -= u64::from(self.context(items, index));
            self.spent.preempted += 1;
            self.waiting.push_front(index);
        }
    }

    /// Decodes until a sequence ends, until caches are full, or until the step
    /// after an arrival that could join the batch.
    fn decode(&mut self, items: &[Item]) {
        self.make_room(items);
        let Some(last_step) = self.next_end() else { return };
        let batch = self.batch;
        let affine = self.costs.decode(batch);
        let free = self.costs.cache_tokens().saturating_sub(self.cached_tokens + self.reading_tokens);
        let mut count = (last_step - self.steps).min((free / batch as u64).max(1));
        // While someone waits there is no room, and more arrivals change nothing.
        let may_join = self.waiting.is_empty() && batch < self.rules.max_batch as usize;
        if let Some(item) = items.get(self.next).filter(|_| may_join) {
            count = count.min(steps_within(&affine, batch, self.cached_tokens, item.ready_s - self.now_s));
        }
        self.advance(several(&affine, batch, self.cached_tokens, count));
        self.count_decoding(count, batch);
        self.end_finished(items);
    }

    /// The step in which the first of the batch ends.
    fn next_end(&mut self) -> Option<u64> {
        while let Some(&Reverse((last_step, index))) = self.ends.peek() {
            if self.progress[index].ends == Some(last_step) {
                return Some(last_step);
            }
            self.ends.pop();
        }
        None
    }

    fn count_decoding(&mut self, count: u64, batch: usize) {
        if batch == 0 {
            return;
        }
        let tokens = count * batch as u64;
        self.steps += count;
        self.cached_tokens += tokens;
        self.outstanding -= tokens;
        self.spent.peak_tokens = self.spent.peak_tokens.max(self.cached_tokens + self.reading_tokens);
        self.spent.decode_steps += count as f64;
        self.spent.decoded_tokens += tokens as f64;
    }

    fn end_finished(&mut self, items: &[Item]) {
        while let Some(last_step) = self.next_end().filter(|&last_step| last_step <= self.steps) {
            let Some(Reverse((_, index))) = self.ends.pop() else { return };
            debug_assert_eq!(last_step, self.steps);
            self.progress[index].ends = None;
            self.batch -= 1;
            self.cached_tokens -= items[index].cache_tokens();
            self.finish(index);
        }
    }

    /// Drops from the list of who was admitted, which is walked from its end
    /// alone, who has left.
    fn forget(&mut self) {
        if self.admitted.len() > 64 + 4 * (self.batch + self.reading.len()) {
            let (progress, reading) = (&self.progress, &self.reading);
            self.admitted.retain(|&index| {
                progress[index].ends.is_some() || reading.iter().any(|&(own, _)| own == index)
            });
        }
    }

    fn finish(&mut self, index: usize) {
        self.progress[index].times.done_s = self.now_s;
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
