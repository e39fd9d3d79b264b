//! Services that people measured: a row says engine, version, model, GPU,
//! placement and load, and is answered with what the model expects.
//!
//! Knows the built-in engines, GPUs and models by name; must not know where
//! rows come from or what they are held against.

use crate::Error;
use crate::config::{AcceleratorFile, EngineFile, TransformerFile};
use std::collections::BTreeMap;
use trinity_config::Document;
use trinity_sim::serving::ServingError;
use trinity_sim::serving::replica::{
    Accelerator, ClosedLoop, Deployment, EngineConstants, Placement, Pool, Stage, StepTable, Transformer,
    predict, replay,
};

/// Requests that a benchmark sends for each one in flight (InferenceX: ten).
const WAVES: u32 = 10;

/// Loads whose lengths are drawn from 80 to 100 % of what is stated, as
/// InferenceX does; others are taken to be exact.
const DRAWN: [(u32, u32); 3] = [(1024, 1024), (1024, 8192), (8192, 1024)];

/// Least share of a drawn length.
const LEAST_DRAWN: f64 = 0.8;

/// A cache holds at least so many requests of the load: what ran, fitted.
const LEAST_REQUESTS_CACHED: f64 = 4.0;

/// Engines, GPUs and models that are built in.
#[derive(Debug)]
pub struct Library {
    engines: BTreeMap<String, EngineFile>,
    accelerators: BTreeMap<String, Accelerator>,
    models: Vec<TransformerFile>,
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
    pub prompt_tokens: u32,
    pub answer_tokens: u32,
    pub concurrency: u32,
    pub arrangement: Arrangement,
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
    /// Reads what is built in.
    ///
    /// # Errors
    ///
    /// When a built-in file is damaged.
    pub fn load() -> Result<Self, Error> {
        let mut library =
            Self { engines: BTreeMap::new(), accelerators: BTreeMap::new(), models: Vec::new() };
        for name in trinity_config::builtin::names() {
            let Some((folder, short)) = name.split_once('/') else { continue };
            match folder {
                "engines" => {
                    library.engines.insert(short.to_owned(), Document::load(name)?.read()?);
                }
                "accelerators" => {
                    let file: AcceleratorFile = Document::load(name)?.read()?;
                    library.accelerators.insert(short.to_owned(), file.resolve(short));
                }
                "transformers" => library.models.push(Document::load(name)?.read()?),
                _ => {}
            }
        }
        Ok(library)
    }

    /// What `service` is expected to do.
    ///
    /// # Errors
    ///
    /// A sentence that says what the model lacks for it.
    pub fn expect(&self, service: &Service) -> Result<Expected, String> {
        let known = |kind: &str, name: &str, names: Vec<&str>| {
            format!("{kind} `{name}` is not known; known: {}", names.join(", "))
        };
        let engine = self.engines.get(&service.engine).ok_or_else(|| {
            known("engine", &service.engine, self.engines.keys().map(String::as_str).collect())
        })?;
        let gpu = self.accelerators.get(&service.gpu.replace('_', "-")).ok_or_else(|| {
            known("GPU", &service.gpu, self.accelerators.keys().map(String::as_str).collect())
        })?;
        let file = self.models.iter().find(|m| m.names.contains(&service.model)).ok_or_else(|| {
            let names = self.models.iter().filter_map(|m| m.names.first()).map(String::as_str);
            known("model", &service.model, names.collect())
        })?;
        let model = file.resolve(&service.precision).ok_or_else(|| {
            let names = file.formats.keys().map(String::as_str).collect();
            known("precision", &service.precision, names)
        })?;
        let constants = engine
            .resolve(&service.version, gpu.generation, file.class())
            .ok_or_else(|| format!("engine `{}` has no versions", service.engine))?;
        let sixteen_bit = matches!(service.precision.as_str(), "bf16" | "int4");
        let kv_bytes = if sixteen_bit { 2.0 } else { engine.kv_bytes(gpu.generation) };
        Asked { service, gpu, model, constants, kv_bytes }.answer().map_err(|error| error.to_string())
    }
}

struct Asked<'a> {
    service: &'a Service,
    gpu: &'a Accelerator,
    model: Transformer,
    constants: EngineConstants,
    kv_bytes: f64,
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
        let least = if DRAWN.contains(&(prompt, answer)) { LEAST_DRAWN } else { 1.0 };
        let range = |tokens: u32| ((f64::from(tokens) * least).max(1.0), f64::from(tokens).max(1.0));
        ClosedLoop {
            concurrency,
            requests: concurrency.saturating_mul(WAVES),
            prompt: range(prompt),
            answer: range(answer),
            seed: 12_345,
        }
    }

    fn table(&self, placement: &Placement) -> Result<(StepTable, bool), ServingError> {
        let (gpu, model, engine) = (self.gpu, &self.model, &self.constants);
        match StepTable::new(gpu, model, placement, engine, self.kv_bytes) {
            Ok(table) => {
                let load = self.load(1);
                let least = LEAST_REQUESTS_CACHED * (load.prompt.1 + load.answer.1);
                let tokens = table.cache_tokens().max(least);
                Ok((table.with_cache_tokens(tokens), false))
            }
            Err(ServingError::NoRoom { .. }) => {
                let table = StepTable::without_memory_limit(gpu, model, placement, engine, self.kv_bytes)?;
                Ok((table, true))
            }
            Err(error) => Err(error),
        }
    }

    fn aggregated(&self, placement: &Placement) -> Result<Expected, ServingError> {
        let (table, beyond_memory) = self.table(placement)?;
        let ranks = f64::from(placement.attention_data);
        let concurrency = (f64::from(self.service.concurrency) / ranks).round().max(1.0) as u32;
        let played = replay(&table, &self.constants, &self.load(concurrency))?;
        Ok(Expected { ttft_s: played.ttft_s, tpot_s: played.tpot_s, beyond_memory })
    }

    fn disaggregated(&self, prefill: &Workers, decode: &Workers) -> Result<Expected, ServingError> {
        let stage = |workers: &Workers| -> Result<(Box<Stage>, bool), ServingError> {
            let (table, beyond) = self.table(&workers.placement)?;
            let stage = Stage {
                table,
                engine: self.constants,
                replicas: workers.count,
                ranks: workers.placement.attention_data,
                gpus: workers.placement.gpus(),
            };
            Ok((Box::new(stage), beyond))
        };
        let ((prefill, one), (decode, other)) = (stage(prefill)?, stage(decode)?);
        // Caches cross NVLink or InfiniBand in a few milliseconds, well below a step.
        let deployment = Deployment { pool: Pool::Split { prefill, decode, transfer_s: 0.0 } };
        let predicted = predict(&deployment, &self.load(self.service.concurrency));
        Ok(Expected { ttft_s: predicted.ttft_s, tpot_s: predicted.tpot_s, beyond_memory: one || other })
    }
}
