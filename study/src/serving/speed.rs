//! Pieces of work by which the speed of predictions is told.

use super::library::Library;
use super::platform::{Ask, USUAL_WAVES};
use std::hint::black_box;
use trinity_sim::serving::replica::{ClosedLoop, Deployment, Placement, Stage, predict, replay};

/// What one step of a measurement of speed repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Configurations, each from its kernels on.
    Tables,
    /// Configurations whose steps are tabulated.
    ClosedForm,
    /// Requests, one after the other.
    Requests,
}

/// Requests in flight that are tried.
const CONCURRENCIES: [u32; 8] = [1, 4, 16, 32, 64, 128, 256, 512];

impl Ask {
    /// A usual service: Llama-3.1-70B in FP8 on H200.
    pub fn usual() -> Self {
        Self {
            model: "Llama-3.1-70B".into(),
            precision: "fp8".into(),
            gpu: "h200-sxm".into(),
            engine: "vllm".into(),
            version: String::new(),
            prompt_tokens: 1024,
            answer_tokens: 1024,
        }
    }
}

/// Does one piece of work; how much it was. Refuses a service that cannot run
/// with a sentence.
pub fn speed(library: &Library, ask: &Ask, which: Speed) -> Result<u64, String> {
    let platform = library.platform(ask)?;
    let placement = Placement { tensor: 4, attention_data: 1, expert_tensor: 4, expert: 1 };
    let build = || -> Result<Stage, String> {
        let table = platform.table(&placement, &platform.constants).map_err(|error| error.to_string())?;
        Ok(Stage { table, engine: platform.constants, replicas: 2, ranks: 1, gpus: 4 })
    };
    let stage = build()?;
    let deployment = Deployment::Shared(Box::new(stage.clone()));
    let load = |concurrency| ask.load(concurrency, USUAL_WAVES);
    match which {
        Speed::Tables => {
            for concurrency in CONCURRENCIES {
                let own = Deployment::Shared(Box::new(build()?));
                black_box(predict(&own, &load(concurrency)));
            }
            Ok(CONCURRENCIES.len() as u64)
        }
        Speed::ClosedForm => {
            for concurrency in CONCURRENCIES {
                black_box(predict(&deployment, &load(concurrency)));
            }
            Ok(CONCURRENCIES.len() as u64)
        }
        Speed::Requests => {
            let load = ClosedLoop { requests: 20_000, ..load(64) };
            let played = replay(&stage.table, &stage.engine, &load).map_err(|error| error.to_string())?;
            black_box(played);
            Ok(u64::from(load.requests))
        }
    }
}
