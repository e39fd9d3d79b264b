//! The closed form of a service in a closed loop: what [`super::replay`] plays,
//! as means that balance, and prefill and decode on workers of their own.
//!
//! A request's round is its wait, its prompt and its answer. In one round each
//! of the others has its prompt read once, which lengthens every answer; who
//! does not fit the caches waits a share of a round. The fixed point of these
//! three sentences takes microseconds, so searches use it.

use super::engine::{EngineConstants, Policy};
use super::load::ClosedLoop;
use super::prefill::Handoff;
use super::step::{PromptWork, StepTable};

/// Replicas of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub table: StepTable,
    pub engine: EngineConstants,
    pub replicas: u32,
    /// Attention ranks of a replica, each with requests of its own.
    pub ranks: u32,
    pub gpus: u32,
}

impl Stage {
    fn slots(&self) -> f64 {
        f64::from(self.replicas * self.ranks)
    }
}

/// A service: who reads prompts and who decodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Deployment {
    Shared(Box<Stage>),
    Split { prefill: Box<Stage>, decode: Box<Stage>, handoff: Handoff },
}

impl Deployment {
    /// GPUs of all replicas.
    pub fn gpus(&self) -> u32 {
        match self {
            Self::Shared(stage) => stage.replicas * stage.gpus,
            Self::Split { prefill, decode, .. } => {
                prefill.replicas * prefill.gpus + decode.replicas * decode.gpus
            }
        }
    }
}

/// Means of a closed loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Predicted {
    pub ttft_s: f64,
    pub tpot_s: f64,
    pub requests_per_s: f64,
    pub answer_tokens_per_s: f64,
    /// Sequences that one rank decodes together.
    pub batch: f64,
    /// Share of requests that wait for room.
    pub waiting: f64,
}

/// Rounds of the fixed point: it halves its distance each time.
const ROUNDS: u32 = 60;

/// Predicts `load`, whose concurrency is that of the whole deployment.
pub fn predict(deployment: &Deployment, load: &ClosedLoop) -> Predicted {
    let prompt = (load.prompt.0 + load.prompt.1) / 2.0;
    let answer = (load.answer.0 + load.answer.1) / 2.0;
    let concurrency = f64::from(load.concurrency);
    // The first wave comes at once: this share of requests sees a burst.
    let burst = (concurrency / f64::from(load.requests.max(1))).min(1.0);
    let round = Round { prompt, answer, concurrency, burst };
    match deployment {
        Deployment::Shared(stage) => round.shared(stage),
        Deployment::Split { prefill, decode, handoff } => round.split(prefill, decode, handoff.s(prompt)),
    }
}

struct Round {
    prompt: f64,
    answer: f64,
    concurrency: f64,
    burst: f64,
}

impl Round {
    /// What reading one prompt adds to steps that decode `batch` sequences.
    fn prompt_s(&self, stage: &Stage, batch: f64) -> f64 {
        let mixed = stage.engine.policy == Policy::Mixed;
        let beside = if mixed { batch } else { 0.0 };
        let budget = (f64::from(stage.engine.token_budget) - beside).max(64.0);
        let chunks = (self.prompt / budget).ceil().max(1.0);
        let tokens = self.prompt / chunks;
        let cached = beside * (self.prompt + self.answer / 2.0);
        let own = if mixed && batch >= 1.0 { stage.table.decode_s(beside, cached) } else { 0.0 };
        let work =
            PromptWork { tokens, pairs: tokens * self.prompt / 2.0, finished: 1.0 / chunks, loaded: 0.0 };
        chunks * (stage.table.mixed_s(&work, beside, cached) - own).max(0.0)
    }

    fn answer_steps(&self, stage: &Stage) -> f64 {
        (self.answer / stage.engine.tokens_per_step()).max(1.0)
    }

    /// Sequences that a rank can hold.
    fn room(&self, stage: &Stage) -> f64 {
        let each = self.prompt + stage.engine.reserved_answer * self.answer;
        (stage.table.cache_tokens() / each).floor().clamp(1.0, f64::from(stage.engine.max_batch))
    }

    fn step_s(&self, stage: &Stage, batch: f64) -> f64 {
        stage.table.decode_s(batch.max(1.0), batch.max(1.0) * (self.prompt + self.answer / 2.0))
    }

    fn shared(&self, stage: &Stage) -> Predicted {
        let present = (self.concurrency / stage.slots()).max(1.0);
        let (room, steps) = (self.room(stage), self.answer_steps(stage));
        let inside = present.min(room);
        let (mut batch, mut out) = (inside, Predicted::default());
        for _ in 0..ROUNDS {
            let step_s = self.step_s(stage, batch);
            let prompt_s = self.prompt_s(stage, batch);
            // Tokens leave no faster than one process writes them.
            let written_s = batch * stage.engine.stream_s * stage.engine.tokens_per_step();
            let between_s = (step_s + batch / steps * prompt_s).max(written_s);
            let answer_s = between_s * (steps - 1.0).max(0.0);
            let own_s = prompt_s + if stage.engine.policy == Policy::Mixed { step_s } else { step_s / 2.0 };
            let busy = (inside * prompt_s / (answer_s + own_s)).min(0.9);
            let queue_s = prompt_s * busy / (2.0 * (1.0 - busy));
            let burst_s = self.burst * inside * prompt_s / 2.0;
            let served_s = own_s + queue_s + answer_s;
            let waiting_s = (present - inside) / inside * served_s;
            let ttft_s = own_s + queue_s + burst_s + waiting_s;
            let next = inside * answer_s / (answer_s + own_s + queue_s);
            batch = (batch + next.max(1.0)) / 2.0;
            out = Predicted {
                ttft_s: ttft_s + stage.engine.first_token_s + stage.engine.first_token_steps * between_s,
                tpot_s: between_s / stage.engine.tokens_per_step(),
                requests_per_s: stage.slots() * present / (ttft_s + answer_s),
                answer_tokens_per_s: 0.0,
                batch,
                waiting: (present - inside) / present,
            };
        }
        out.answer_tokens_per_s = out.requests_per_s * self.answer;
        out
    }

    /// What one prompt takes where enough wait to fill the token budget.
    fn crowded_prompt_s(&self, stage: &Stage) -> f64 {
        let together = (f64::from(stage.engine.token_budget) / self.prompt).floor().max(1.0);
        if together <= 1.0 {
            return self.prompt_s(stage, 0.0);
        }
        let tokens = together * self.prompt;
        let work = PromptWork { tokens, pairs: tokens * self.prompt / 2.0, finished: together, loaded: 0.0 };
        stage.table.mixed_s(&work, 0.0, 0.0) / together
    }

    /// Prompts of one rank are read one budget at a time; the pool's rate caps
    /// that of the service, and who is beyond it queues before the prompt.
    fn split(&self, prefill: &Stage, decode: &Stage, transfer_s: f64) -> Predicted {
        let prompt_s = self.prompt_s(prefill, 0.0);
        let capacity = prefill.slots() / self.crowded_prompt_s(prefill);
        let (room, steps) = (self.room(decode), self.answer_steps(decode));
        let (mut batch, mut out) =
            ((self.concurrency / decode.slots()).clamp(1.0, room), Predicted::default());
        for _ in 0..ROUNDS {
            let step_s = self.step_s(decode, batch);
            let answer_s = step_s * steps;
            let alone_s = prompt_s + transfer_s + step_s;
            let rate =
                (self.concurrency / (alone_s + answer_s)).min(capacity).min(decode.slots() * room / answer_s);
            let busy = (rate / capacity).min(0.95);
            let queue_s = prompt_s * busy / (2.0 * (1.0 - busy));
            let waiting_s = (self.concurrency / rate - alone_s - answer_s).max(queue_s);
            let burst_s = self.burst * self.concurrency / capacity / 2.0;
            let next = (rate * answer_s / decode.slots()).clamp(1.0, room);
            batch = (batch + next) / 2.0;
            out = Predicted {
                ttft_s: alone_s
                    + waiting_s
                    + burst_s
                    + prefill.engine.first_token_s
                    + decode.engine.first_token_steps * step_s,
                tpot_s: step_s / decode.engine.tokens_per_step(),
                requests_per_s: rate,
                answer_tokens_per_s: rate * self.answer,
                batch,
                waiting: (waiting_s - queue_s).max(0.0) * rate / self.concurrency,
            };
        }
        out
    }
}
