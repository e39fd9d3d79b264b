//! Requests played through a service: prompts read in chunks, caches that grow
//! page by page, a batch that decodes, and what is thrown out when they no
//! longer fit.
//!
//! Steps are those of [`StepTable`]; between two changes of the batch the
//! simulation jumps, so that its cost follows the requests, not the tokens.
//! Must not know what a service is for, or who asks.

use super::engine::{EngineConstants, Policy, Preemption};
use super::load::{ClosedLoop, Load};
use super::prefill::{Prefill, PrefillWorkers};
use super::report::{Books, Replayed, Watched};
use super::sent::{Sent, State};
use super::step::{PromptWork, StepTable};
use crate::serving::ServingError;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Who answers: the workers that decode, and those that read prompts where
/// these are others.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene<'a> {
    pub table: &'a StepTable,
    pub engine: &'a EngineConstants,
    /// Attention ranks that decode side by side, requests spread evenly.
    pub ranks: u32,
    pub prefill: Option<PrefillWorkers<'a>>,
}

impl<'a> Scene<'a> {
    /// One rank that reads its prompts itself.
    pub fn alone(table: &'a StepTable, engine: &'a EngineConstants) -> Self {
        Self { table, engine, ranks: 1, prefill: None }
    }
}

/// Plays `load` on one rank of one replica. Fails when the load is empty, or
/// one request alone does not fit the cache.
pub fn replay(
    table: &StepTable,
    engine: &EngineConstants,
    load: &ClosedLoop,
) -> Result<Replayed, ServingError> {
    play(&Scene::alone(table, engine), &Load::Closed(*load))
}

/// Plays `load` on a service. Fails when the load is empty or makes no sense,
/// or one request alone does not fit the cache.
pub fn play(scene: &Scene, load: &Load) -> Result<Replayed, ServingError> {
    Ok(played(scene, load)?.report(load))
}

/// [`play`], with the steady part of the run, which is settled when its rate
/// of tokens is known within `bound`. Fails as [`play`].
pub fn watch(scene: &Scene, load: &Load, bound: f64) -> Result<(Replayed, Watched), ServingError> {
    let player = played(scene, load)?;
    let watched = Books::watched(&player.sent, player.engine, player.seen_steps(), bound);
    Ok((player.report(load), watched))
}

fn played<'a>(scene: &Scene<'a>, load: &Load) -> Result<Player<'a>, ServingError> {
    load.check()?;
    let needed = load.longest();
    if needed > scene.table.cache_tokens() {
        let capacity = scene.table.cache_tokens() as u64;
        return Err(ServingError::TooLong { index: 0, needed: needed as u64, capacity });
    }
    let mut player = Player::new(scene, load);
    player.run();
    Ok(player)
}

/// What happens at a time that steps do not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes(usize),
    /// The last token of an answer reaches its client.
    Seen(usize),
    WorkerDone(usize),
    CacheArrives(usize),
}

struct Player<'a> {
    table: &'a StepTable,
    engine: &'a EngineConstants,
    ranks: f64,
    prefill: Option<Prefill<'a>>,
    think_s: f64,
    sent: Vec<Sent>,
    /// Next request that an answer makes come.
    next: usize,
    /// Events by time; times are not negative, so their bits sort as they do.
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Who came since the engine last looked.
    inbox: VecDeque<usize>,
    /// The step in which it looked, and whether it has read prompts since.
    polled: u64,
    has_read: bool,
    waiting: VecDeque<usize>,
    /// Since which step prompts wait for company.
    lonely_since: Option<u64>,
    reading: VecDeque<usize>,
    /// Decoding requests by the step in which they end; stale entries stay.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Who was admitted, the latest last; stale entries stay.
    admitted: Vec<usize>,
    now_s: f64,
    /// When the process that writes to clients will have written all there is.
    streamed_s: f64,
    step: u64,
    batch: f64,
    running: f64,
    /// Tokens in the caches of who decodes, and of who is being read.
    cached: f64,
    held: f64,
    /// Answer tokens that running requests may still ask for.
    outstanding: f64,
    done: usize,
    present: f64,
    books: Books,
}

impl<'a> Player<'a> {
    fn new(scene: &Scene<'a>, load: &Load) -> Self {
        let per_step = scene.engine.tokens_per_step();
        let asks = load.asks();
        let sent: Vec<Sent> = asks
            .iter()
            .map(|ask| Sent {
                at_s: ask.at_s.unwrap_or(0.0),
                first_token_s: None,
                done_s: 0.0,
                prompt: ask.prompt,
                hit: ask.hit,
                answer: (ask.answer / per_step).round().max(1.0),
                made: 0.0,
                to_read: (ask.prompt - ask.hit).max(1.0),
                read: 0.0,
                ends: 0,
                state: State::Waiting,
                goes_on: ask.goes_on,
            })
            .collect();
        let mut player = Self {
            table: scene.table,
            engine: scene.engine,
            ranks: f64::from(scene.ranks.max(1)),
            prefill: scene.prefill.clone().map(Prefill::new),
            think_s: 0.0,
            next: sent.len(),
            sent,
            events: BinaryHeap::new(),
            inbox: VecDeque::new(),
            polled: 0,
            has_read: false,
            waiting: VecDeque::new(),
            lonely_since: None,
            reading: VecDeque::new(),
            ends: BinaryHeap::new(),
            admitted: Vec::new(),
            now_s: 0.0,
            streamed_s: 0.0,
            step: 0,
            batch: 0.0,
            running: 0.0,
            cached: 0.0,
            held: 0.0,
            outstanding: 0.0,
            done: 0,
            present: 0.0,
            books: Books::default(),
        };
        player.open(load);
        player
    }

    /// Puts the first requests on their way.
    fn open(&mut self, load: &Load) {
        match load {
            Load::Closed(load) => {
                self.think_s = load.reuse.think_s;
                self.next = 0;
                for _ in 0..load.concurrency {
                    self.send_next(0.0);
                }
            }
            Load::Open { requests, .. } => {
                self.now_s = requests.first().map_or(0.0, |request| request.arrival_s).max(0.0);
                for index in 0..self.sent.len() {
                    self.schedule(self.sent[index].at_s.max(0.0), Event::Comes(index));
                }
            }
        }
    }

    /// The first turn of the next conversation comes.
    fn send_next(&mut self, at_s: f64) {
        let Some(request) = self.sent.get(self.next) else { return };
        let (first, mut last) = (self.next, self.next);
        let mut goes_on = request.goes_on;
        while goes_on {
            last += 1;
            goes_on = self.sent[last].goes_on;
        }
        self.next = last + 1;
        self.comes(first, at_s);
    }

    fn schedule(&mut self, at_s: f64, event: Event) {
        self.events.push(Reverse((at_s.to_bits(), event)));
    }

    fn next_event_s(&self) -> Option<f64> {
        self.events.peek().map(|Reverse((bits, _))| f64::from_bits(*bits))
    }

    fn run(&mut self) {
        while self.done < self.sent.len() {
            self.settle();
            self.poll();
            self.admit();
            if !self.reading.is_empty() {
                self.read_prompts();
            } else if self.batch > 0.0 {
                self.decode();
            } else if let Some(at_s) = self.next_event_s() {
                self.pass((at_s - self.now_s).max(0.0));
            }
        }
    }

    /// Takes note of everything that happened up to now.
    fn settle(&mut self) {
        while let Some(at_s) = self.next_event_s().filter(|at_s| *at_s <= self.now_s) {
            let Some(Reverse((_, event))) = self.events.pop() else { return };
            match event {
                Event::Comes(index) => self.comes(index, at_s),
                Event::Seen(index) => self.leaves(index, at_s),
                Event::CacheArrives(index) => self.waiting.push_back(index),
                Event::WorkerDone(number) => {
                    let Some(prefill) = &mut self.prefill else { continue };
                    let (read, handoff) = (prefill.finish(number), prefill.handoff());
                    for index in read {
                        let across_s = at_s + handoff.s(self.sent[index].prompt);
                        self.schedule(across_s, Event::CacheArrives(index));
                    }
                    self.start_workers();
                }
            }
        }
    }

    fn comes(&mut self, index: usize, at_s: f64) {
        self.sent[index].at_s = at_s;
        self.present += 1.0;
        // A step that was under way ends later than the request came.
        self.books.present_s += self.now_s - at_s;
        match &mut self.prefill {
            None => self.inbox.push_back(index),
            Some(prefill) => {
                prefill.push(index, self.sent[index].to_read, at_s);
                self.start_workers();
            }
        }
    }

    fn start_workers(&mut self) {
        let Some(prefill) = &mut self.prefill else { return };
        let events = &mut self.events;
        prefill.start(|number, done_s| {
            events.push(Reverse((done_s.to_bits(), Event::WorkerDone(number))));
        });
    }

    /// The engine looks at who came: after prompts, when it is idle, and every
    /// so many decoding steps.
    fn poll(&mut self) {
        let every = u64::from(self.engine.intake.poll_steps.max(1));
        let passed = self.step - self.polled;
        if self.has_read || self.batch == 0.0 {
            self.polled = self.step;
        } else if passed >= every {
            self.polled += passed / every * every;
        } else {
            return;
        }
        self.has_read = false;
        self.waiting.append(&mut self.inbox);
    }

    /// Whether prompts that wait should wait on for others to be read with.
    fn waits_for_company(&mut self) -> bool {
        let intake = self.engine.intake;
        if intake.wait_steps == 0 || self.waiting.is_empty() {
            return false;
        }
        let since = *self.lonely_since.get_or_insert(self.step);
        let tokens: f64 = self.waiting.iter().map(|&index| self.sent[index].to_read).sum();
        let waits = self.batch > 0.0
            && self.reading.is_empty()
            && self.step - since < u64::from(intake.wait_steps)
            && tokens < intake.wait_tokens;
        if !waits {
            self.lonely_since = None;
        }
        waits
    }

    fn capacity(&self) -> f64 {
        self.table.cache_tokens() * self.ranks
    }

    fn admit(&mut self) {
        if self.waits_for_company() {
            return;
        }
        while let Some(&index) = self.waiting.front() {
            let request = &self.sent[index];
            let (tokens, left) = (request.prompt + request.made, request.answer - request.made);
            let promised = self.engine.reserved_answer * (self.outstanding + left);
            let used = self.cached + self.held + tokens + promised;
            let fits = self.running == 0.0 || used <= self.capacity() * WATERMARK;
            if self.running >= f64::from(self.engine.max_batch) * self.ranks || !fits {
                break;
            }
            self.waiting.pop_front();
            self.running += 1.0;
            self.outstanding += left;
            self.admitted.push(index);
            let swapped = self.sent[index].state == State::Swapped;
            if self.prefill.is_some() || swapped {
                if swapped {
                    self.swap(tokens);
                }
                self.start_decoding(index);
            } else {
                self.sent[index].state = State::Reading;
                self.held += tokens;
                self.reading.push_back(index);
            }
        }
    }

    /// One step with prompt tokens in it.
    fn read_prompts(&mut self) {
        let mixed = self.engine.policy == Policy::Mixed;
        if mixed {
            self.make_room();
        }
        let batch = if mixed { self.batch } else { 0.0 };
        let mut left = (f64::from(self.engine.token_budget) - batch / self.ranks).max(LEAST_CHUNK);
        let mut work = PromptWork::default();
        for &index in &self.reading {
            let request = &mut self.sent[index];
            let chunk = (request.to_read - request.read).min(left);
            let before = request.prompt + request.made - request.to_read + request.read;
            if request.read == 0.0 && request.made == 0.0 {
                work.loaded += request.hit;
            }
            work.tokens += chunk;
            work.pairs += chunk * (before + chunk / 2.0);
            request.read += chunk;
            left -= chunk;
            if request.read < request.to_read {
                break;
            }
            work.finished += 1.0;
            if left <= 0.0 {
                break;
            }
        }
        let (share, cached) = self.of_a_rank(batch);
        self.pass(self.table.mixed_s(&work, share, cached));
        self.has_read = true;
        self.stream(batch + work.finished, 1.0);
        if batch > 0.0 {
            self.advance(1);
        }
        for _ in 0..work.finished as usize {
            let Some(index) = self.reading.pop_front() else { return };
            self.held -= self.sent[index].prompt + self.sent[index].made;
            self.start_decoding(index);
        }
    }

    /// The step that read its prompt made a token, too.
    fn start_decoding(&mut self, index: usize) {
        let seen_s = self.streamed_s.max(self.now_s);
        let request = &mut self.sent[index];
        request.first_token_s.get_or_insert(seen_s);
        request.made += 1.0;
        self.books.produced += 1.0;
        self.outstanding -= 1.0;
        if request.made >= request.answer {
            self.finish(index);
            return;
        }
        request.state = State::Decoding;
        request.ends = self.step + (request.answer - request.made) as u64;
        self.batch += 1.0;
        self.cached += request.prompt + request.made;
        self.ends.push(Reverse((request.ends, index)));
    }

    /// Throws out who came last until every sequence can grow by a token.
    fn make_room(&mut self) {
        while self.batch > 1.0 && self.cached + self.held + self.batch > self.capacity() {
            let Some(index) = self.admitted.pop() else { return };
            if self.sent[index].state == State::Decoding {
                self.preempt(index);
            } else if self.sent[index].state == State::Reading {
                // Who is being read stays: its pages are filled already.
                self.admitted.insert(0, index);
                if self.admitted.iter().all(|&one| self.sent[one].state != State::Decoding) {
                    return;
                }
            }
        }
    }

    fn preempt(&mut self, index: usize) {
        let step = self.step;
        let request = &mut self.sent[index];
        let left = (request.ends - step) as f64;
        request.made = request.answer - left;
        let tokens = request.prompt + request.made;
        self.batch -= 1.0;
        self.running -= 1.0;
        self.cached -= tokens;
        self.outstanding -= left;
        self.books.preempted += 1;
        match self.engine.preemption {
            Preemption::Recompute => {
                request.state = State::Waiting;
                request.to_read = tokens;
                request.read = 0.0;
            }
            Preemption::Swap { .. } => {
                request.state = State::Swapped;
                self.swap(tokens);
            }
        }
        self.waiting.push_front(index);
    }

    /// The cache of `tokens` crosses to the host or back; the engine waits.
    fn swap(&mut self, tokens: f64) {
        if let Preemption::Swap { bytes_per_s } = self.engine.preemption {
            self.pass(tokens * self.table.kv_token_bytes() / bytes_per_s);
        }
    }

    /// Decoding steps up to the next change.
    fn decode(&mut self) {
        self.make_room();
        let Some(end) = self.next_end() else { return };
        let (batch, cached) = self.of_a_rank(self.batch);
        let first_s = self.table.decode_s(batch, cached);
        let growth_s = self.table.decode_growth_s(batch, cached);
        let mut count = (end - self.step).max(1) as f64;
        count = count.min(((self.capacity() - self.cached - self.held) / self.batch).floor().max(1.0));
        if let Some(at_s) = self.next_event_s() {
            count = count.min(steps_until(at_s - self.now_s, first_s, growth_s));
        }
        count = count.min(self.steps_to_next_look());
        self.pass(count * first_s + growth_s * count * (count - 1.0) / 2.0);
        self.stream(self.batch, count);
        self.advance(count as u64);
    }

    /// Decoding steps until the engine looks at who came, or lets in who waits
    /// for company.
    fn steps_to_next_look(&self) -> f64 {
        let intake = self.engine.intake;
        let left =
            |since: u64, steps: u32| (since + u64::from(steps)).saturating_sub(self.step).max(1) as f64;
        let mut count = f64::INFINITY;
        if !self.inbox.is_empty() {
            count = left(self.polled, intake.poll_steps);
        }
        if let Some(since) = self.lonely_since {
            count = count.min(left(since, intake.wait_steps));
        }
        count
    }

    /// Hands the tokens of `count` steps of `sequences` to the process that
    /// writes them to clients.
    fn stream(&mut self, sequences: f64, count: f64) {
        let one_s = self.engine.stream_s * self.engine.tokens_per_step() * sequences;
        self.streamed_s = (self.streamed_s + one_s * count).max(self.now_s + one_s);
    }

    /// Sequences of the busiest rank and what their caches hold, when `batch`
    /// decode.
    fn of_a_rank(&self, batch: f64) -> (f64, f64) {
        if batch <= 0.0 {
            return (0.0, 0.0);
        }
        let share = (batch / self.ranks).max(1.0);
        (share, self.cached / self.batch * share)
    }

    /// The step in which the next sequence ends, stale entries dropped.
    fn next_end(&mut self) -> Option<u64> {
        while let Some(&Reverse((end, index))) = self.ends.peek() {
            let request = &self.sent[index];
            if request.state == State::Decoding && request.ends == end {
                return Some(end);
            }
            self.ends.pop();
        }
        None
    }

    fn pass(&mut self, seconds: f64) {
        self.now_s += seconds;
        self.books.present_s += self.present * seconds;
    }

    /// Counts decoding steps whose time has passed and lets go who is done.
    fn advance(&mut self, steps: u64) {
        self.step += steps;
        let tokens = self.batch * steps as f64;
        self.cached += tokens;
        self.outstanding -= tokens;
        self.books.produced += tokens;
        self.books.decoded += tokens;
        self.books.decode_steps += steps as f64;
        while let Some(end) = self.next_end() {
            if end > self.step {
                break;
            }
            let Some(Reverse((_, index))) = self.ends.pop() else { break };
            self.batch -= 1.0;
            self.cached -= self.sent[index].prompt + self.sent[index].answer;
            self.finish(index);
        }
    }

    fn finish(&mut self, index: usize) {
        self.sent[index].state = State::Done;
        self.running -= 1.0;
        // Stale entries at the top would hide who can be thrown out.
        while self.admitted.last().is_some_and(|&one| self.sent[one].state == State::Done) {
            self.admitted.pop();
        }
        if self.streamed_s > self.now_s {
            self.schedule(self.streamed_s, Event::Seen(index));
        } else {
            self.leaves(index, self.now_s);
        }
    }

    /// The client has its answer, and asks again.
    fn leaves(&mut self, index: usize, at_s: f64) {
        self.sent[index].done_s = at_s;
        self.done += 1;
        self.present -= 1.0;
        // A step that was under way ends later than the client had its answer.
        self.books.present_s -= self.now_s - at_s;
        let goes_on = self.sent[index].goes_on;
        match (goes_on, self.think_s > 0.0) {
            (true, true) => self.schedule(at_s + self.think_s, Event::Comes(index + 1)),
            (true, false) => self.comes(index + 1, at_s),
            (false, _) => self.send_next(at_s),
        }
    }

    fn report(&self, load: &Load) -> Replayed {
        let wave = match load {
            Load::Closed(load) => load.concurrency as usize,
            Load::Open { requests, .. } => requests.len() / 10,
        };
        self.books.report(&self.sent, self.now_s, wave, self.engine, self.seen_steps())
    }

    /// Decoding steps by which clients see a first token late: caches that
    /// came from elsewhere yield theirs a step later.
    fn seen_steps(&self) -> f64 {
        self.engine.first_token_steps + if self.prefill.is_some() { 1.0 } else { 0.0 }
    }
}

/// Steps after which `seconds` have passed, at least one.
fn steps_until(seconds: f64, first_s: f64, growth_s: f64) -> f64 {
    if growth_s * seconds < 1e-12 * first_s * first_s {
        return (seconds / first_s).ceil().max(1.0);
    }
    let half = first_s / growth_s - 0.5;
    ((half * half + 2.0 * seconds.max(0.0) / growth_s).sqrt() - half).ceil().max(1.0)
}

/// Prompt tokens that a step takes even where decoding fills the budget.
const LEAST_CHUNK: f64 = 64.0;

/// Share of the pages that admission may fill (vLLM keeps one in a hundred).
const WATERMARK: f64 = 0.99;
