//! What one step of an engine costs, in tables that an event can look up.
//!
//! A decoding step is affine in the tokens its caches hold (attention reads
//! each once), with constants for every size of the batch; a prompt is a sum
//! of products over all its tokens and of attention within it. Both are read
//! off [`crate::estimate`] at a few points.

use super::ServingError;
use crate::{Cluster, Gpu, Job, Phase, estimate};

/// Time and energy of a step of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub time_s: f64,
    pub energy_j: f64,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { time_s: self.time_s + other.time_s, energy_j: self.energy_j + other.energy_j }
    }
}

impl Cost {
    fn of(engine: &Cluster, step: &Job) -> Result<Self, ServingError> {
        let estimate = estimate(engine, step)?;
        Ok(Self { time_s: estimate.iteration_s, energy_j: estimate.energy_j })
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { time_s: self.time_s * factor, energy_j: self.energy_j * factor }
    }

    fn larger(self, other: Self) -> Self {
        if self.time_s >= other.time_s { self } else { other }
    }

    fn between(self, other: Self, share: f64) -> Self {
        self.times(1.0 - share) + other.times(share)
    }
}

/// A decoding step of a given batch: `fixed` + `per_token` for each token in
/// the caches it reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    pub fixed: Cost,
    pub per_token: Cost,
}

/// Tables of one engine.
#[derive(Clone, Debug)]
pub struct StepCosts {
    /// Decoding steps by batch, from 1.
    decode: Vec<Affine>,
    prompts: Vec<PromptCost>,
    cache_tokens: u64,
    idle_power_w: f64,
}

/// A prompt of `tokens`: what grows with its tokens, and its attention.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PromptCost {
    tokens: f64,
    products: Cost,
    attention: Cost,
}

/// Attention within so few tokens is nothing beside the products.
const SHORT_PROMPT: u32 = 128;

/// Longest prompt the tables hold; longer ones are extrapolated.
const LONGEST_PROMPT: u32 = 1 << 20;

impl StepCosts {
    /// Tables of `job` on `engine` for batches up to `max_batch`, most exact
    /// where a sequence holds about `context_tokens`. Fails when the model does
    /// not fit the engine.
    pub fn of(
        engine: &Cluster,
        job: &Job,
        max_batch: u32,
        context_tokens: f64,
    ) -> Result<Self, ServingError> {
        let cache_tokens = cache_tokens(engine, job)?;
        // Times and energies are wanted beyond what fits: capacity is kept apart.
        let roomy = Cluster { gpu: Gpu { memory_bytes: f64::MAX, ..engine.gpu }, ..*engine };
        let (near, far) = ((context_tokens / 2.0).ceil().max(16.0), (2.0 * context_tokens).ceil().max(64.0));
        let mut decode = Vec::with_capacity(max_batch as usize);
        for batch in 1..=max_batch {
            let at = |context: f64| Cost::of(&roomy, &pass(job, Phase::Decode, batch, context as u32));
            let (low, high) = (at(near)?, at(far)?);
            let tokens = f64::from(batch) * (far - near);
            let per_token = Cost {
                time_s: (high.time_s - low.time_s).max(0.0) / tokens,
                energy_j: (high.energy_j - low.energy_j).max(0.0) / tokens,
            };
            let fixed = low + per_token.times(-f64::from(batch) * near);
            decode.push(Affine { fixed, per_token });
        }
        let mut prompts = Vec::new();
        let mut tokens = 1;
        while tokens <= LONGEST_PROMPT {
            prompts.push(prompt(&roomy, job, tokens)?);
            tokens *= 2;
        }
        let gpus = f64::from(engine.gpus);
        let idle_power_w = gpus
            * (engine.gpu.idle_power_w
                + engine.nic.idle_power_w * engine.nics_per_gpu
                + engine.codec.idle_power_w * engine.codecs_per_gpu);
        Ok(Self { decode, prompts, cache_tokens, idle_power_w })
    }

    /// Tokens of cache one engine holds, spilled ones included.
    pub fn cache_tokens(&self) -> u64 {
        self.cache_tokens
    }

    /// The engine doing nothing.
    pub fn idle_power_w(&self) -> f64 {
        self.idle_power_w
    }

    pub(super) fn decode(&self, batch: usize) -> Affine {
        self.decode[batch.clamp(1, self.decode.len()) - 1]
    }

    /// One decoding step of `batch` sequences whose caches hold `tokens`.
    pub fn decode_step(&self, batch: usize, tokens: f64) -> Cost {
        let affine = self.decode(batch);
        affine.fixed + affine.per_token.times(tokens)
    }

    /// Products over `tokens` new tokens, whichever prompts they belong to.
    pub fn products(&self, tokens: f64) -> Cost {
        self.interpolate(tokens, |entry| entry.products)
    }

    /// Attention of `new` tokens at the end of a prompt of `prompt` tokens.
    pub fn attention(&self, new: f64, prompt: f64) -> Cost {
        // A causal square of `new` queries grows to a trapezium over the prompt.
        let square = self.interpolate(new, |entry| entry.attention);
        square.times(((2.0 * prompt - new) / new).max(1.0))
    }

    /// A step that reads `chunk` prompt tokens and decodes `batch` sequences:
    /// weights are read once for both.
    pub fn mixed_step(&self, chunk: f64, batch: usize, tokens: f64) -> Cost {
        if batch == 0 {
            return self.products(chunk);
        }
        let affine = self.decode(batch);
        self.products(chunk + batch as f64).larger(affine.fixed) + affine.per_token.times(tokens)
    }

    fn interpolate(&self, tokens: f64, of: impl Fn(&PromptCost) -> Cost) -> Cost {
        let after = self.prompts.partition_point(|entry| entry.tokens < tokens);
        match (after.checked_sub(1).map(|i| &self.prompts[i]), self.prompts.get(after)) {
            (Some(low), Some(high)) => {
                of(low).between(of(high), (tokens - low.tokens) / (high.tokens - low.tokens))
            }
            (None, Some(first)) => of(first),
            (Some(last), None) => of(last).times(tokens / last.tokens),
            (None, None) => Cost::default(),
        }
    }
}

/// The job with a pass over `sequences` of so many tokens each.
fn pass(job: &Job, phase: Phase, sequences: u32, tokens: u32) -> Job {
    Job { phase, sequence: tokens, global_batch: sequences, microbatch: sequences, ..*job }
}

fn prompt(engine: &Cluster, job: &Job, tokens: u32) -> Result<PromptCost, ServingError> {
    let short = SHORT_PROMPT.min(tokens);
    let products = Cost::of(engine, &pass(job, Phase::Prefill, tokens / short, short))?;
    let whole = Cost::of(engine, &pass(job, Phase::Prefill, 1, tokens))?;
    let attention = Cost {
        time_s: (whole.time_s - products.time_s).max(0.0),
        energy_j: (whole.energy_j - products.energy_j).max(0.0),
    };
    Ok(PromptCost { tokens: f64::from(tokens), products, attention })
}

/// Tokens whose cache fits beside the weights.
fn cache_tokens(engine: &Cluster, job: &Job) -> Result<u64, ServingError> {
    let at = |tokens: u32| crate::memory::memory(engine, &pass(job, Phase::Decode, 1, tokens));
    let (few, many) = (at(1024), at(2048));
    let per_token = (many.total_bytes() - few.total_bytes()) / 1024.0;
    let without_cache = few.total_bytes() - 1024.0 * per_token;
    let left = engine.gpu.memory_bytes - without_cache;
    if per_token <= 0.0 || left < per_token {
        return Err(ServingError::NoRoom {
            left_gb: left.max(0.0) / 1e9,
            capacity_gb: engine.gpu.memory_bytes / 1e9,
        });
    }
    Ok((left / per_token) as u64)
}
