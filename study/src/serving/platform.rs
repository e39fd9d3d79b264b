//! What is served, on what and by what: names resolved into the simulator's
//! plain data, and the ways it can lie on GPUs.
//!
//! Must not know what is asked of a service, or how an answer is shown.

use super::library::Library;
use crate::config::EngineFile;
use serde::Serialize;
use trinity_sim::serving::ServingError;
use trinity_sim::serving::replica::{
    Accelerator, ClosedLoop, EngineConstants, Handoff, Placement, Reuse, StepTable, Transformer,
};

/// Requests that are sent for each one in flight where nobody says.
pub const USUAL_WAVES: u32 = 10;

/// A model, a GPU and an engine by name, and the lengths of the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ask {
    pub model: String,
    pub precision: String,
    pub gpu: String,
    pub engine: String,
    /// A version that was measured; the newest family where it names none.
    pub version: String,
    pub prompt_tokens: u32,
    pub answer_tokens: u32,
}

/// What the names stand for.
#[derive(Clone, Debug)]
pub struct Platform<'a> {
    pub gpu: &'a Accelerator,
    pub model: Transformer,
    pub engine: &'a EngineFile,
    pub constants: EngineConstants,
    pub kv_value_bytes: f64,
}

impl Library {
    /// Resolves names. Fails with a sentence that names what is not known, and
    /// what is.
    pub fn platform(&self, ask: &Ask) -> Result<Platform<'_>, String> {
        let engine = self.engine(&ask.engine)?;
        let gpu = self.accelerator(&ask.gpu)?;
        let file = self.model(&ask.model)?;
        let model = file.resolve(&ask.precision).ok_or_else(|| {
            super::library::unknown("precision", &ask.precision, file.formats.keys().map(String::as_str))
        })?;
        let constants = engine
            .resolve(&ask.version, gpu.generation, file.class())
            .ok_or_else(|| format!("engine `{}` has no versions", ask.engine))?;
        let sixteen_bit = matches!(ask.precision.as_str(), "bf16" | "int4");
        let kv_value_bytes = if sixteen_bit { 2.0 } else { engine.kv_bytes(gpu.generation) };
        Ok(Platform { gpu, model, engine, constants, kv_value_bytes })
    }
}

impl Platform<'_> {
    /// The table of a placement. Fails as [`StepTable::new`].
    pub fn table(
        &self,
        placement: &Placement,
        constants: &EngineConstants,
    ) -> Result<StepTable, ServingError> {
        StepTable::new(self.gpu, &self.model, placement, constants, self.kv_value_bytes)
    }

    /// The way of a cache of `token_bytes` a token from one worker to another.
    pub fn handoff(&self, token_bytes: f64) -> Handoff {
        Handoff {
            fixed_s: self.engine.constants.handoff_ms * 1e-3,
            token_s: token_bytes / self.gpu.network_bytes_per_s,
        }
    }

    /// Placements of one replica on at most `gpus`: sizes are powers of two
    /// inside an NVLink domain; experts are cut along all GPUs or dealt out
    /// among them; attention is copied where there are experts to share.
    pub fn placements(&self, gpus: u32) -> Vec<Placement> {
        let most = gpus.min(self.gpu.domain_gpus).min(MOST_GPUS);
        let sizes = (0..).map(|power| 1u32 << power).take_while(|size| *size <= most);
        let mut list = Vec::new();
        for size in sizes {
            for power in 0..=size.ilog2() {
                let tensor = 1 << power;
                let attention_data = size / tensor;
                if attention_data > 1 && self.model.experts.is_none() {
                    continue;
                }
                let mut experts = vec![1];
                if self.model.experts.is_some() && size > 1 {
                    experts.push(size);
                }
                for expert in experts {
                    let own = Placement { tensor, attention_data, expert_tensor: size / expert, expert };
                    if own.problem(&self.model).is_none() {
                        list.push(own);
                    }
                }
            }
        }
        list
    }
}

/// Widest replica that is tried.
const MOST_GPUS: u32 = 32;

impl Ask {
    /// A closed loop of these lengths, drawn from 80 to 100 % of them.
    pub fn load(&self, concurrency: u32, waves: u32) -> ClosedLoop {
        let range = |tokens: u32| ((f64::from(tokens) * 0.8).max(1.0), f64::from(tokens).max(1.0));
        ClosedLoop {
            concurrency,
            requests: concurrency.saturating_mul(waves),
            prompt: range(self.prompt_tokens),
            answer: range(self.answer_tokens),
            reuse: Reuse::default(),
            seed: 12_345,
        }
    }
}

/// A placement as people write it: `TP4`, `DP8 × TP1, EP8`.
pub fn named(placement: &Placement) -> String {
    let copies = match placement.attention_data {
        1 => String::new(),
        copies => format!("DP{copies} × "),
    };
    let experts = if placement.expert > 1 { format!(", EP{}", placement.expert) } else { String::new() };
    format!("{copies}TP{}{experts}", placement.tensor)
}
