//! One deployment under one load: what the closed loop, the open loop or the
//! trace that somebody names would see.
//!
//! Must not know how an answer is shown.

use super::library::Library;
use super::plan::Refused;
use super::platform::{Ask, named};
use super::trace;
use crate::Error;
use serde::Serialize;
use std::path::PathBuf;
use trinity_sim::serving::replica::{
    ClosedLoop, Draft, EngineConstants, Load, Placement, Policy, Preemption, Replayed, Reuse, Scene, Sizes,
    Watched, watch,
};
use trinity_sim::serving::{BOUND, Convergence, Length, Lengths, Requests, ServingError, Stream};

/// Who asks, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// So many requests are always in flight.
    Concurrency(u32),
    /// Requests per second, at random.
    Rate(f64),
    /// A CSV of arrival_s, prompt_tokens and output_tokens.
    Trace(PathBuf),
}

/// The deployment and the load that are to be played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlayRequest {
    #[serde(flatten)]
    pub ask: Ask,
    pub tensor: u32,
    pub attention_data: u32,
    pub expert: u32,
    pub arrivals: Arrivals,
    /// Requests in all; as many as it takes to know the rate where nobody says.
    pub requests: Option<u32>,
    pub prefix_hits: f64,
    pub turns: u32,
    pub think_s: f64,
    /// Drafted tokens, chance of acceptance, and cost of drafting one over a step.
    pub draft: Option<(f64, f64, f64)>,
    /// The engine's own behaviour, or another.
    pub token_budget: Option<u32>,
    pub max_batch: Option<u32>,
    pub reserved_answer: Option<f64>,
    pub prompts_first: Option<bool>,
    pub swap: bool,
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct PlayOutcome {
    #[serde(flatten)]
    pub request: PlayRequest,
    pub placement: String,
    pub gpus: u32,
    /// Tokens that the cache of one attention rank holds.
    pub cache_tokens: f64,
    /// Of one attention rank; times are those of all. What a benchmark would
    /// print, its first burst included: of ten requests for each in flight, or
    /// of 2,000 that come at random, where nobody says how many.
    pub played: Replayed,
    /// The steady part of a run that went on until its rate was known.
    pub watched: Watched,
    /// Requests of that run.
    pub watched_requests: usize,
    /// Steady rates of all ranks, with half of their 95 % intervals.
    pub tokens_per_s: f64,
    pub tokens_per_s_half_width: f64,
    pub requests_per_s: f64,
    pub requests_per_s_half_width: f64,
    pub unseen_ttft_error: f64,
    pub unseen_tpot_error: f64,
    /// Kernels of this load that lie outside what was measured: their rooflines go on.
    pub extrapolated: Vec<String>,
}

/// Plays the load. Fails when a name is not known, the model does not fit, the
/// placement does not divide, or a trace is none.
pub fn run(library: &Library, request: &PlayRequest) -> Result<PlayOutcome, Refused> {
    let platform = library.platform(&request.ask).map_err(Refused::Unknown)?;
    let gpus = request.tensor.saturating_mul(request.attention_data);
    let expert = request.expert.max(1);
    if !gpus.is_multiple_of(expert) {
        let problem = format!("{gpus} GPUs do not make {expert} groups of experts");
        return Err(ServingError::Placement { problem }.into());
    }
    let placement = Placement {
        tensor: request.tensor,
        attention_data: request.attention_data,
        expert_tensor: gpus / expert,
        expert,
    };
    let constants = constants(platform.constants, platform.gpu.host_bytes_per_s, request)?;
    let table = platform.table(&placement, &constants).map_err(|error| match error {
        ServingError::NoRoom { .. } => request.ask.does_not_fit(gpus, error.to_string()),
        other => other.into(),
    })?;
    let scene = Scene::alone(&table, &constants);
    let first = match &request.arrivals {
        Arrivals::Concurrency(concurrency) => {
            Asked::Closed(closed(request, concurrency.div_ceil(request.attention_data.max(1))))
        }
        Arrivals::Rate(rate) => {
            Asked::Open(drawn(request, *rate, request.requests.unwrap_or(USUAL_REQUESTS) as usize)?)
        }
        Arrivals::Trace(path) => {
            let list = trace::of_file(path).map_err(Error::from)?;
            Asked::Open(list.into_iter().step_by(request.attention_data.max(1) as usize).collect())
        }
    };
    let (played, mut watched) = watch(&scene, &first.load(request), BOUND)?;
    let mut count = first.count();
    let goes_on = request.requests.is_none() && !matches!(request.arrivals, Arrivals::Trace(_));
    let mut unstable = 0;
    while goes_on
        && unstable < 2
        && watched.steady.convergence != Convergence::Settled
        && count < Length::MOST
    {
        count = (LONGER * count).clamp(LEAST_WATCHED, Length::MOST);
        let longer = match (&first, &request.arrivals) {
            (Asked::Closed(load), _) => Asked::Closed(ClosedLoop { requests: count as u32, ..*load }),
            (_, Arrivals::Rate(rate)) => Asked::Open(drawn(request, *rate, count)?),
            _ => break,
        };
        watched = watch(&scene, &longer.load(request), BOUND)?.1;
        unstable += u32::from(watched.steady.convergence == Convergence::Unstable);
    }
    let sizes = Sizes {
        batch: played.mean_batch,
        prompt: f64::from(request.ask.prompt_tokens),
        length: f64::from(request.ask.prompt_tokens) + f64::from(request.ask.answer_tokens),
    };
    let extrapolated =
        platform.gpu.extrapolated(&platform.model, &placement, &sizes, platform.kv_value_bytes);
    let ranks = f64::from(request.attention_data);
    let (tokens, requests) = (watched.steady.output_tokens_per_s, watched.steady.requests_per_s);
    Ok(PlayOutcome {
        request: request.clone(),
        placement: named(&placement),
        gpus,
        cache_tokens: table.cache_tokens(),
        played,
        watched,
        watched_requests: count,
        tokens_per_s: tokens.mean * ranks,
        tokens_per_s_half_width: tokens.half_width * ranks,
        requests_per_s: requests.mean * ranks,
        requests_per_s_half_width: requests.half_width * ranks,
        unseen_ttft_error: platform.engine.unseen.ttft,
        unseen_tpot_error: platform.engine.unseen.tpot,
        extrapolated,
    })
}

/// What is asked, as one attention rank sees it.
enum Asked {
    Closed(ClosedLoop),
    Open(Vec<trinity_sim::serving::ServingRequest>),
}

impl Asked {
    fn load(&self, request: &PlayRequest) -> Load<'_> {
        match self {
            Self::Closed(load) => Load::Closed(*load),
            Self::Open(list) => Load::Open { requests: list, prefix_hits: request.prefix_hits },
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Closed(load) => load.requests as usize,
            Self::Open(list) => list.len(),
        }
    }
}

fn constants(
    own: EngineConstants,
    host_bytes_per_s: f64,
    request: &PlayRequest,
) -> Result<EngineConstants, ServingError> {
    let setting = ServingError::setting;
    let draft = request.draft.map(|(tokens, acceptance, cost)| Draft { tokens, acceptance, cost });
    if let Some(draft) = draft {
        setting("drafted tokens", draft.tokens, draft.tokens >= 1.0 && draft.tokens <= 64.0, "1 to 64")?;
        let chance = (0.0..=1.0).contains(&draft.acceptance);
        setting("acceptance", draft.acceptance, chance, "between 0 and 1")?;
        setting("cost of drafting", draft.cost, (0.0..10.0).contains(&draft.cost), "between 0 and 10 steps")?;
    }
    let reserved = request.reserved_answer.unwrap_or(own.reserved_answer);
    setting("reserved", reserved, (0.0..=1.0).contains(&reserved), "between 0 and 1")?;
    let policy = match request.prompts_first {
        Some(true) => Policy::PromptsFirst,
        Some(false) => Policy::Mixed,
        None => own.policy,
    };
    Ok(EngineConstants {
        policy,
        token_budget: request.token_budget.unwrap_or(own.token_budget).max(1),
        max_batch: request.max_batch.unwrap_or(own.max_batch).max(1),
        reserved_answer: reserved,
        preemption: match request.swap {
            true => Preemption::Swap { bytes_per_s: host_bytes_per_s },
            false => own.preemption,
        },
        draft: draft.or(own.draft),
        ..own
    })
}

fn closed(request: &PlayRequest, concurrency: u32) -> ClosedLoop {
    let load = request.ask.load(concurrency, super::platform::USUAL_WAVES);
    ClosedLoop {
        requests: request.requests.unwrap_or(load.requests),
        reuse: Reuse { turns: request.turns, think_s: request.think_s, prefix_hits: request.prefix_hits },
        seed: request.seed,
        ..load
    }
}

/// Requests at random, those of one attention rank.
fn drawn(
    request: &PlayRequest,
    rate: f64,
    count: usize,
) -> Result<Vec<trinity_sim::serving::ServingRequest>, ServingError> {
    ServingError::setting("rate", rate, rate > 0.0 && rate.is_finite(), "above zero")?;
    let range = |most: u32| Lengths::Uniform { least: (most - most / 5).max(1), most };
    let (prompt, output) = (range(request.ask.prompt_tokens), range(request.ask.answer_tokens));
    let mut list = Stream::Drawn { seed: request.seed, prompt, output }.first(count)?;
    list.truncate(count);
    Ok(Requests::faster(&list, rate / f64::from(request.attention_data.max(1))))
}

/// Requests of an open loop where nobody says.
const USUAL_REQUESTS: u32 = 2_000;
/// How much longer the next run is, and the least that is worth one.
const LONGER: usize = 4;
const LEAST_WATCHED: usize = 400;
