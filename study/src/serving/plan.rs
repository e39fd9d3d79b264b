//! The best deployment of so many GPUs within objectives: every placement,
//! batch and split into workers for prompts and for answers by the closed form,
//! the best of them played.
//!
//! Must not know how an answer is shown.

use super::library::Library;
use super::platform::{Ask, Platform, USUAL_WAVES, named};
use crate::parallel;
use serde::Serialize;
use trinity_sim::serving::replica::{
    Candidate, ClosedLoop, Deployment, Found, Goal, Load, Nearest, Placement, PrefillWorkers, Replayed,
    Scene, Stage, Watched, search, watch,
};
use trinity_sim::serving::{BOUND, Convergence, ServingError};

/// A deployment that is to be found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeploymentRequest {
    #[serde(flatten)]
    pub ask: Ask,
    pub gpus: u32,
    pub ttft_s: f64,
    pub tpot_s: f64,
    /// Requests in flight at most.
    pub most_concurrency: u32,
    /// How many are played and ranked.
    pub top: usize,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct DeploymentOutcome {
    #[serde(flatten)]
    pub request: DeploymentRequest,
    /// Best first, by tokens per second as played.
    pub ranked: Vec<Ranked>,
    /// Deployments that were judged, and points of the closed form that took.
    pub deployments: usize,
    pub predictions: usize,
    /// Mean absolute errors of both times on models that the fit did not see.
    pub unseen_ttft_error: f64,
    pub unseen_tpot_error: f64,
}

/// A deployment within the objectives.
#[derive(Clone, Debug, Serialize)]
pub struct Ranked {
    pub name: String,
    pub gpus: u32,
    pub concurrency: u32,
    /// Tokens in the steady state, with half of the 95 % interval.
    pub tokens_per_s: f64,
    pub tokens_per_s_half_width: f64,
    pub tokens_per_s_per_gpu: f64,
    /// As a benchmark of ten requests for each in flight prints them.
    pub ttft_s: f64,
    pub tpot_s: f64,
    /// The percentile in the steady state, with its 95 % interval.
    pub ttft_p99_s: f64,
    pub ttft_p99_within_s: [f64; 2],
    pub requests_per_s: f64,
    /// Sequences that one attention rank decodes together.
    pub batch: f64,
    /// What the closed form said of it.
    pub closed_form_ttft_s: f64,
    pub closed_form_tpot_s: f64,
    pub closed_form_tokens_per_s: f64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error("{0}")]
    Unknown(String),
    #[error("{model} in {precision} does not fit {gpus} × {gpu}: {why}")]
    DoesNotFit { model: String, precision: String, gpus: u32, gpu: String, why: String },
    #[error(
        "nothing keeps a TTFT of {ttft_ms:.0} ms and a TPOT of {tpot_ms:.1} ms; the nearest is {name} with {concurrency} in flight: TTFT {near_ttft_ms:.0} ms, TPOT {near_tpot_ms:.1} ms"
    )]
    NoneKeeps {
        ttft_ms: f64,
        tpot_ms: f64,
        name: String,
        concurrency: u32,
        near_ttft_ms: f64,
        near_tpot_ms: f64,
    },
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// A codec, a recording or a trace that cannot be read.
    #[error(transparent)]
    File(#[from] crate::Error),
}

impl Ask {
    /// The model does not fit so many GPUs, and why.
    pub(super) fn does_not_fit(&self, gpus: u32, why: String) -> Refused {
        let Self { model, precision, gpu, .. } = self.clone();
        Refused::DoesNotFit { model, precision, gpus, gpu, why }
    }
}

/// Candidates that are played for each one that is shown.
const PLAYED_PER_SHOWN: usize = 2;

/// Finds the best deployments. Fails when a name is not known, the model does
/// not fit, or nothing keeps the objectives: then the nearest is named.
pub fn find(library: &Library, request: &DeploymentRequest) -> Result<DeploymentOutcome, Refused> {
    let platform = library.platform(&request.ask).map_err(Refused::Unknown)?;
    check(request)?;
    let candidates = candidates(&platform, request)?;
    let goal = Goal { ttft_s: request.ttft_s, tpot_s: request.tpot_s };
    let load = request.ask.load(1, USUAL_WAVES);
    // One thread per candidate and a half; the order of results is the list's.
    let parts: Vec<&[Candidate]> = candidates.chunks(16).collect();
    let found = parallel::map(&parts, |part| search(part, &load, &goal, request.most_concurrency));
    let mut ranked: Vec<Found> = Vec::new();
    let mut nearest: Option<Nearest> = None;
    for part in found {
        match part {
            Ok(list) => ranked.extend(list),
            Err(Some(near)) if nearest.as_ref().is_none_or(|n| near.overrun < n.overrun) => {
                nearest = Some(near)
            }
            Err(_) => {}
        }
    }
    let rate = |found: &Found| found.predicted.answer_tokens_per_s;
    ranked.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.name.cmp(&b.name)));
    ranked.truncate(PLAYED_PER_SHOWN * request.top.max(1));
    let played = parallel::map(&ranked, |found| {
        candidates.iter().find(|own| own.name == found.name).map(|own| settle(own, found, request))
    });
    let mut list: Vec<Ranked> = played.into_iter().flatten().flatten().collect();
    if list.is_empty() {
        return Err(none_keeps(request, ranked.first(), nearest.as_ref()));
    }
    list.sort_by(|a, b| b.tokens_per_s.total_cmp(&a.tokens_per_s).then(a.name.cmp(&b.name)));
    list.truncate(request.top.max(1));
    Ok(DeploymentOutcome {
        request: request.clone(),
        ranked: list,
        deployments: candidates.len(),
        predictions: candidates.len()
            * trinity_sim::serving::replica::concurrencies(request.most_concurrency).count(),
        unseen_ttft_error: platform.engine.unseen.ttft,
        unseen_tpot_error: platform.engine.unseen.tpot,
    })
}

fn check(request: &DeploymentRequest) -> Result<(), ServingError> {
    let setting = ServingError::setting;
    setting("gpus", f64::from(request.gpus), request.gpus > 0, "at least 1")?;
    setting("concurrency", f64::from(request.most_concurrency), request.most_concurrency > 0, "at least 1")?;
    let tokens = request.ask.prompt_tokens.min(request.ask.answer_tokens);
    setting("prompt and answer", f64::from(tokens), tokens > 0, "at least one token each")?;
    for (name, value) in [("ttft", request.ttft_s), ("tpot", request.tpot_s)] {
        setting(name, value, value > 0.0 && value.is_finite(), "a time above zero")?;
    }
    Ok(())
}

fn none_keeps(request: &DeploymentRequest, closed: Option<&Found>, nearest: Option<&Nearest>) -> Refused {
    let Some(near) = closed.or(nearest.map(|near| &near.found)) else {
        return Refused::Unknown("there is no deployment to try".into());
    };
    Refused::NoneKeeps {
        ttft_ms: request.ttft_s * 1e3,
        tpot_ms: request.tpot_s * 1e3,
        name: near.name.clone(),
        concurrency: near.concurrency,
        near_ttft_ms: near.predicted.ttft_s * 1e3,
        near_tpot_ms: near.predicted.tpot_s * 1e3,
    }
}

fn stage(platform: &Platform, placement: &Placement, reads: Reads) -> Result<Stage, ServingError> {
    let split = platform.engine.constants;
    let engine = match reads {
        Reads::Both => platform.constants,
        Reads::Prompts => split.reading(platform.constants),
        Reads::Answers => split.writing(platform.constants, u32::MAX, None),
    };
    let table = platform.table(placement, &engine)?;
    Ok(Stage { table, engine, replicas: 1, ranks: placement.attention_data, gpus: placement.gpus() })
}

#[derive(Clone, Copy)]
enum Reads {
    Both,
    Prompts,
    Answers,
}

/// Every deployment that fits.
fn candidates(platform: &Platform, request: &DeploymentRequest) -> Result<Vec<Candidate>, Refused> {
    let placements = platform.placements(request.gpus);
    let mut why = None;
    let needed = f64::from(request.ask.prompt_tokens) + f64::from(request.ask.answer_tokens);
    let mut fitting = |reads: Reads| -> Vec<(Placement, Stage)> {
        let built = parallel::map(&placements, |placement| stage(platform, placement, reads));
        let mut list = Vec::new();
        for (placement, stage) in placements.iter().zip(built) {
            match stage {
                Ok(stage) if stage.table.cache_tokens() >= needed => list.push((*placement, stage)),
                Ok(stage) => {
                    let capacity = stage.table.cache_tokens() as u64;
                    why = Some(ServingError::TooLong { index: 0, needed: needed as u64, capacity });
                }
                Err(error) => why = Some(error),
            }
        }
        list
    };
    let (both, prompts, answers) = (fitting(Reads::Both), fitting(Reads::Prompts), fitting(Reads::Answers));
    if both.is_empty() {
        return Err(match why {
            Some(ServingError::Unmeasured { gpu, why }) => ServingError::Unmeasured { gpu, why }.into(),
            why => {
                let why = why.map_or_else(|| "no placement divides it".into(), |error| error.to_string());
                request.ask.does_not_fit(request.gpus, why)
            }
        });
    }
    let mut list = Vec::new();
    for (placement, stage) in &both {
        let replicas = request.gpus / stage.gpus;
        let deployment = Deployment::Shared(Box::new(Stage { replicas, ..stage.clone() }));
        list.push(Candidate { name: format!("{replicas} × {}", named(placement)), deployment });
    }
    for (reading, prefill) in &prompts {
        for (writing, decode) in &answers {
            splits(platform, request.gpus, (reading, prefill), (writing, decode), &mut list);
        }
    }
    Ok(list)
}

/// All shares of `gpus` between workers of two kinds.
fn splits(
    platform: &Platform,
    gpus: u32,
    (reading, prefill): (&Placement, &Stage),
    (writing, decode): (&Placement, &Stage),
    list: &mut Vec<Candidate>,
) {
    let left = |workers: u32| gpus.saturating_sub(workers * prefill.gpus) / decode.gpus;
    for workers in 1..=gpus / prefill.gpus {
        let others = left(workers);
        // With as many workers left to decode, one more that reads is better.
        if others == 0 || left(workers + 1) == others {
            continue;
        }
        let deployment = Deployment::Split {
            prefill: Box::new(Stage { replicas: workers, ..prefill.clone() }),
            decode: Box::new(Stage { replicas: others, ..decode.clone() }),
            handoff: platform.handoff(prefill.table.kv_token_bytes()),
        };
        let name = format!("{workers} × {} : {others} × {}", named(reading), named(writing));
        list.push(Candidate { name, deployment });
    }
}

/// Plays a candidate, with fewer in flight until it keeps the objectives.
fn settle(candidate: &Candidate, found: &Found, request: &DeploymentRequest) -> Option<Ranked> {
    let goal = Goal { ttft_s: request.ttft_s, tpot_s: request.tpot_s };
    let mut concurrency = found.concurrency;
    loop {
        let load = request.ask.load(concurrency, USUAL_WAVES);
        let (out, _, slots) = played(&candidate.deployment, &load, USUAL_WAVES).ok()?;
        if out.ttft_s <= goal.ttft_s && out.tpot_s <= goal.tpot_s {
            let watched = steady(&candidate.deployment, request, concurrency)?;
            let tokens = watched.steady.output_tokens_per_s;
            let tokens_per_s = tokens.mean * slots;
            return Some(Ranked {
                name: candidate.name.clone(),
                gpus: candidate.deployment.gpus(),
                concurrency,
                tokens_per_s,
                tokens_per_s_half_width: tokens.half_width * slots,
                tokens_per_s_per_gpu: tokens_per_s / f64::from(candidate.deployment.gpus().max(1)),
                ttft_s: out.ttft_s,
                tpot_s: out.tpot_s,
                ttft_p99_s: watched.ttft.p99_s,
                ttft_p99_within_s: watched.ttft.within.p99_s,
                requests_per_s: watched.steady.requests_per_s.mean * slots,
                batch: out.mean_batch / if slots > 1.0 { 1.0 } else { ranks(&candidate.deployment) },
                closed_form_ttft_s: found.predicted.ttft_s,
                closed_form_tpot_s: found.predicted.tpot_s,
                closed_form_tokens_per_s: found.predicted.answer_tokens_per_s,
            });
        }
        if concurrency <= 1 {
            return None;
        }
        concurrency = (f64::from(concurrency) * 0.85) as u32;
    }
}

/// Waves of the first run for a steady rate, and requests at least and at most.
const STEADY_WAVES: u32 = 40;
const LEAST_REQUESTS: u32 = 400;
const MOST_REQUESTS: u32 = 50_000;

/// Plays longer and longer until the rate is known.
fn steady(deployment: &Deployment, request: &DeploymentRequest, concurrency: u32) -> Option<Watched> {
    let mut waves = STEADY_WAVES.max(LEAST_REQUESTS / concurrency.max(1));
    loop {
        let load = request.ask.load(concurrency, waves);
        let (_, watched, slots) = played(deployment, &load, waves).ok()?;
        let long = f64::from(load.requests) / slots >= f64::from(MOST_REQUESTS);
        if watched.steady.convergence == Convergence::Settled || long {
            return Some(watched);
        }
        waves = waves.saturating_mul(4);
    }
}

/// Attention ranks that decode.
fn ranks(deployment: &Deployment) -> f64 {
    match deployment {
        Deployment::Shared(_) => 1.0,
        Deployment::Split { decode, .. } => f64::from(decode.replicas * decode.ranks),
    }
}

/// A deployment played for so many waves, and how many of what was played it
/// has: replicas that share requests evenly are played once.
fn played(
    deployment: &Deployment,
    load: &ClosedLoop,
    waves: u32,
) -> Result<(Replayed, Watched, f64), ServingError> {
    let asked = |load: ClosedLoop| {
        Load::Closed(ClosedLoop { requests: load.concurrency.saturating_mul(waves), ..load })
    };
    match deployment {
        Deployment::Shared(stage) => {
            let slots = f64::from(stage.replicas * stage.ranks).max(1.0);
            let own = (f64::from(load.concurrency) / slots).ceil().max(1.0) as u32;
            let busy = slots.min(f64::from(load.concurrency));
            let scene = Scene::alone(&stage.table, &stage.engine);
            let (out, watched) = watch(&scene, &asked(ClosedLoop { concurrency: own, ..*load }), BOUND)?;
            Ok((out, watched, busy))
        }
        Deployment::Split { prefill, decode, handoff } => {
            let workers = PrefillWorkers {
                table: &prefill.table,
                engine: &prefill.engine,
                workers: prefill.replicas,
                ranks: prefill.ranks,
                handoff: *handoff,
            };
            let ranks = decode.replicas * decode.ranks;
            let scene = Scene { table: &decode.table, engine: &decode.engine, ranks, prefill: Some(workers) };
            let (out, watched) = watch(&scene, &asked(*load), BOUND)?;
            Ok((out, watched, 1.0))
        }
    }
}
