//! Services that people measured: a row says engine, version, model, GPU,
//! placement and load, and is answered with what the model expects.
//!
//! Knows the built-in engines, GPUs and models by name; must not know where
//! rows come from or what they are held against.

use super::library::Library;
use super::platform::{Ask, Platform};
use crate::config::{ClassName, GenerationName, Launched, LaunchesFile};
use crate::parallel;
use trinity_sim::serving::ServingError;
use trinity_sim::serving::replica::{
    ClosedLoop, EngineConstants, Load, Placement, PrefillWorkers, Scene, StepTable, play, replay,
};

/// Requests that a benchmark sends for each one in flight (InferenceX: ten).
const WAVES: u32 = 10;

/// Loads whose lengths are drawn from 80 to 100 % of what is stated, as
/// InferenceX does; others are taken to be exact.
const DRAWN: [(u32, u32); 3] = [(1024, 1024), (1024, 8192), (8192, 1024)];

/// A chance of acceptance that no fit exceeds.
const MOST_ACCEPTED: f64 = 0.98;

/// A cache holds at least so many requests of the load: what ran, fitted.
const LEAST_REQUESTS_CACHED: f64 = 4.0;

/// What of an engine's constants a service meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Number of the family of versions.
    pub family: usize,
    pub generation: GenerationName,
    pub class: ClassName,
}

/// Workers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    pub count: u32,
    pub placement: Placement,
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    Aggregated(Placement),
    Disaggregated { prefill: Workers, decode: Workers },
}

/// A service as its measurement describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub engine: String,
    pub version: String,
    pub model: String,
    pub gpu: String,
    pub precision: String,
    /// Day of the measurement, `2026-01-14`; empty where it is not known.
    pub measured: String,
    pub prompt_tokens: u32,
    pub answer_tokens: u32,
    pub concurrency: u32,
    /// The greatest concurrency that the same deployment was measured with:
    /// batches are limited when an engine starts, not when a request comes.
    pub greatest_concurrency: u32,
    pub arrangement: Arrangement,
}

impl Service {
    fn ask(&self) -> Ask {
        Ask {
            model: self.model.clone(),
            precision: self.precision.clone(),
            gpu: self.gpu.clone(),
            engine: self.engine.clone(),
            version: self.version.clone(),
            prompt_tokens: self.prompt_tokens,
            answer_tokens: self.answer_tokens,
        }
    }

    /// What its launch is told apart by: of separate workers, those that decode.
    fn launched(&self) -> Launched<'_> {
        let (placement, separate) = match self.arrangement {
            Arrangement::Aggregated(placement) => (placement, false),
            Arrangement::Disaggregated { decode, .. } => (decode.placement, true),
        };
        Launched {
            version: &self.version,
            model: &self.model,
            gpu: &self.gpu,
            precision: &self.precision,
            measured: &self.measured,
            separate,
            tensor: placement.tensor,
            expert: placement.expert,
            copies: placement.attention_data,
            prompt: self.prompt_tokens,
            answer: self.answer_tokens,
            concurrency: self.concurrency,
        }
    }
}

/// What the model expects of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    pub ttft_s: f64,
    pub tpot_s: f64,
    /// The GPUs cannot hold the weights as the row has it; the cache was taken
    /// to be without limit.
    pub beyond_memory: bool,
}

impl Library {
    /// Which family of versions and which of its recipes for the first token
    /// `service` falls under; none where something of it is not known.
    pub fn recipe(&self, service: &Service) -> Option<Recipe> {
        let engine = self.engine(&service.engine).ok()?;
        let generation = self.accelerator(&service.gpu).ok()?.generation;
        let class = self.model(&service.model).ok()?.class();
        Some(Recipe { family: engine.family(&service.version)?, generation: generation.into(), class })
    }

    /// What each of `services` is expected to do, in their order.
    pub fn expect_all(&self, services: &[Service]) -> Vec<Result<Expected, String>> {
        parallel::map(services, |service| self.expect(service))
    }

    /// What `service` is expected to do. Fails with a sentence that
    /// says what the model lacks for it.
    pub fn expect(&self, service: &Service) -> Result<Expected, String> {
        let mut platform = self.platform(&service.ask())?;
        let none = LaunchesFile::default();
        let launches = self.launches.get(&service.engine).unwrap_or(&none);
        let acceptance = platform.engine.constants.draft_acceptance.min(MOST_ACCEPTED);
        let (constants, kv_bytes) = launches.settle(platform.constants, &service.launched(), acceptance);
        platform.constants = constants;
        platform.kv_value_bytes = kv_bytes.unwrap_or(platform.kv_value_bytes);
        Asked { service, platform, launches }.answer().map_err(|error| error.to_string())
    }
}

struct Asked<'a> {
    service: &'a Service,
    platform: Platform<'a>,
    launches: &'a LaunchesFile,
}

impl Asked<'_> {
    fn answer(&self) -> Result<Expected, ServingError> {
        match self.service.arrangement {
            Arrangement::Aggregated(placement) => self.aggregated(&placement),
            Arrangement::Disaggregated { prefill, decode } => self.disaggregated(&prefill, &decode),
        }
    }

    fn load(&self, concurrency: u32) -> ClosedLoop {
        let (prompt, answer) = (self.service.prompt_tokens, self.service.answer_tokens);
        let load = self.service.ask().load(concurrency, WAVES);
        if DRAWN.contains(&(prompt, answer)) {
            return load;
        }
        let exact = |(_, most): (f64, f64)| (most, most);
        ClosedLoop { prompt: exact(load.prompt), answer: exact(load.answer), ..load }
    }

    fn table(
        &self,
        placement: &Placement,
        constants: &EngineConstants,
    ) -> Result<(StepTable, bool), ServingError> {
        let Platform { gpu, ref model, kv_value_bytes, .. } = self.platform;
        match self.platform.table(placement, constants) {
            Ok(table) => {
                let load = self.load(1);
                let least = LEAST_REQUESTS_CACHED * (load.prompt.1 + load.answer.1);
                let tokens = table.cache_tokens().max(least);
                Ok((table.with_cache_tokens(tokens), false))
            }
            Err(ServingError::NoRoom { .. }) => {
                let table =
                    StepTable::without_memory_limit(gpu, model, placement, constants, kv_value_bytes)?;
                Ok((table, true))
            }
            Err(error) => Err(error),
        }
    }

    fn aggregated(&self, placement: &Placement) -> Result<Expected, ServingError> {
        let (table, beyond_memory) = self.table(placement, &self.platform.constants)?;
        let ranks = f64::from(placement.attention_data);
        let concurrency = (f64::from(self.service.concurrency) / ranks).round().max(1.0) as u32;
        // One rank is played; all of them write through one process.
        let stream_s = self.platform.constants.stream_s * ranks;
        let constants = EngineConstants { stream_s, ..self.platform.constants };
        let played = replay(&table, &constants, &self.load(concurrency))?;
        Ok(Expected { ttft_s: played.ttft_s, tpot_s: played.tpot_s, beyond_memory })
    }

    fn disaggregated(&self, prefill: &Workers, decode: &Workers) -> Result<Expected, ServingError> {
        let (split, shared) = (self.platform.engine.constants, self.platform.constants);
        let reading = split.reading(shared);
        let ranks = decode.count.saturating_mul(decode.placement.attention_data).max(1);
        let batch = self.launches.split_batch(&self.service.launched(), prefill.count, decode.count);
        let writing = split.writing(shared, self.service.greatest_concurrency / ranks, batch);
        let (prompts, one) = self.table(&prefill.placement, &reading)?;
        let (answers, other) = self.table(&decode.placement, &writing)?;
        let scene = Scene {
            table: &answers,
            engine: &writing,
            ranks,
            prefill: Some(PrefillWorkers {
                table: &prompts,
                engine: &reading,
                workers: prefill.count,
                ranks: prefill.placement.attention_data,
                handoff: self.platform.handoff(prompts.kv_token_bytes()),
            }),
        };
        let played = play(&scene, &Load::Closed(self.load(self.service.concurrency)))?;
        Ok(Expected { ttft_s: played.ttft_s, tpot_s: played.tpot_s, beyond_memory: one || other })
    }
}
