//! Serving by continuous batching: latency, throughput, energy and money of a
//! machine that answers a stream of requests.
//!
//! An event simulation over step times that come from [`crate::estimate`]:
//! what one step costs is the closed form's business, how steps and requests
//! fall into each other is this module's. It jumps from one change of the
//! batch to the next, so that its cost follows the requests, not the tokens.
//!
//! Knows requests by their lengths; knows nothing of text, files or prices
//! beyond one number per GPU hour.

mod engine;
mod goodput;
mod percentiles;
pub mod replica;
mod service;
mod settle;
mod steady;
mod steps;
mod workload;

use crate::Infeasible;
use crate::compression::Channel;
use engine::{Engine, Item, Rules, Spent};
pub use goodput::{Goodput, Objective, Objectives, goodput};
pub use percentiles::{Percentiles, Within};
pub use service::{Batching, Pools, Service, ServingError};
pub use settle::{Length, Settled, settle};
use steady::Seen;
pub use steady::{BATCHES, BOUND, CUT_RESIDENCES, Convergence, Interval, LEAST_REQUESTS, Steady};
pub use steps::{Cost, StepCosts};
pub use workload::{Lengths, Requests, ServingRequest, Stream};

/// What a service did with its requests.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Served {
    pub requests: usize,
    /// Time from the first arrival to the last token.
    pub duration_s: f64,
    /// Departures per second in the steady part of the run, as all rates and
    /// percentiles here; energy and money are of the whole run.
    pub requests_per_s: f64,
    pub output_tokens_per_s: f64,
    /// Times from arrival to first token.
    pub ttft: Percentiles,
    /// Between tokens after the first, per request; requests of one token have none.
    pub tpot: Percentiles,
    /// Times from arrival to last token.
    pub latency: Percentiles,
    /// Mean sequences in a decoding step.
    pub mean_batch: f64,
    /// Largest share of an engine's cache that was taken or kept free.
    pub peak_cache: f64,
    /// Times that a sequence was thrown out of the cache, to be read anew.
    pub preempted: u64,
    /// Requests that no engine could hold, and that were turned away.
    pub turned_away: usize,
    /// Tokens of cache one decoding engine holds.
    pub cache_tokens: u64,
    pub energy_j: f64,
    pub output_tokens_per_j: f64,
    pub usd: f64,
    pub output_tokens_per_usd: f64,
    pub little: Little,
    /// What rates and percentiles were taken from.
    pub steady: Steady,
}

/// Both sides of Little's law, from separate books: requests present summed
/// over time, and time spent summed over requests.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Little {
    pub mean_present: f64,
    pub rate_times_latency: f64,
}

/// Plays `requests` through `service`. Requests go to engines in turn. Fails
/// when the engine cannot run the model, a request does not fit its cache, or
/// requests make no sense.
pub fn serve(service: &Service, requests: &[ServingRequest]) -> Result<Served, ServingError> {
    check(service)?;
    Requests::check(requests)?;
    let typical = Requests::mean_context(requests);
    let costs = StepCosts::of(&service.engine, &service.job, service.max_batch, typical)?;
    if let Some((index, item)) = too_long(service, &costs, requests).next() {
        let (needed, capacity) = (item.cache_tokens(), costs.cache_tokens());
        return Err(ServingError::TooLong { index, needed, capacity });
    }
    Ok(serve_with(service, requests, &costs, BOUND).0)
}

/// The requests that an engine cannot hold, with their places.
fn too_long<'a>(
    service: &'a Service,
    costs: &'a StepCosts,
    requests: &'a [ServingRequest],
) -> impl Iterator<Item = (usize, Item)> + 'a {
    let items = requests.iter().map(|request| item(service, request)).enumerate();
    items.filter(|(_, item)| item.cache_tokens() > costs.cache_tokens())
}

/// [`serve`] with step costs that are known already, of requests that fit:
/// what was served, and how each request saw it.
fn serve_with(
    service: &Service,
    requests: &[ServingRequest],
    costs: &StepCosts,
    bound: f64,
) -> (Served, Vec<Seen>) {
    let items: Vec<Item> = requests.iter().map(|request| item(service, request)).collect();
    let played = match service.pools {
        Pools::Shared { engines } => play(service, costs, &items, engines),
        Pools::Disaggregated { prefill, decode, transfer_bits } => {
            disaggregated(service, costs, &items, (prefill, decode), transfer_bits)
        }
    };
    let seen: Vec<Seen> = requests
        .iter()
        .zip(played.first_token_s.iter().zip(&played.done_s))
        .map(|(request, (&first_token_s, &done_s))| Seen {
            arrival_s: request.arrival_s,
            first_token_s,
            done_s,
            output_tokens: f64::from(request.output_tokens),
        })
        .collect();
    (summary(service, costs, &seen, &played, bound), seen)
}

/// When each request saw its first and its last token, and what that took.
struct Played {
    first_token_s: Vec<f64>,
    done_s: Vec<f64>,
    spent: Spent,
    /// Busy and idle time are counted up to here for every engine.
    end_s: f64,
}

fn item(service: &Service, request: &ServingRequest) -> Item {
    let prompt = request.prompt_tokens;
    let new = (f64::from(prompt) * (1.0 - service.prefix_hits)).ceil().max(1.0) as u32;
    Item {
        ready_s: request.arrival_s,
        new_tokens: new,
        prompt_tokens: prompt,
        decode_steps: request.output_tokens - 1,
    }
}

/// Deals `items` out to `engines` in turn and plays each engine alone.
fn play(service: &Service, costs: &StepCosts, items: &[Item], engines: u32) -> Played {
    let mut played = Played {
        first_token_s: vec![0.0; items.len()],
        done_s: vec![0.0; items.len()],
        spent: Spent::default(),
        end_s: 0.0,
    };
    let stride = engines as usize;
    for first in 0..stride {
        let mine: Vec<usize> = (first..items.len()).step_by(stride).collect();
        let own: Vec<Item> = mine.iter().map(|&index| items[index]).collect();
        let rules = Rules {
            batching: service.batching,
            max_batch: service.max_batch,
            reserved_answer: service.reserved_answer,
        };
        let mut engine = Engine::new(costs, rules);
        let times = engine.run(&own);
        for (&index, time) in mine.iter().zip(&times) {
            played.first_token_s[index] = time.first_token_s;
            played.done_s[index] = time.done_s;
        }
        played.end_s = played.end_s.max(engine.now_s);
        played.spent = played.spent + engine.spent;
    }
    played
}

/// Prompts on one pool, tokens on the other, the cache over the wire between.
fn disaggregated(
    service: &Service,
    costs: &StepCosts,
    items: &[Item],
    (prefill, decode): (u32, u32),
    transfer_bits: Option<f64>,
) -> Played {
    let prompts: Vec<Item> = items.iter().map(|&item| Item { decode_steps: 0, ..item }).collect();
    let read = play(service, costs, &prompts, prefill);
    let mut arrivals = carry(service, items, &read.done_s, prefill.min(decode), transfer_bits);
    // The decoding pool sees requests in the order in which caches arrive.
    arrivals.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let tokens: Vec<Item> =
        arrivals.iter().map(|&(ready_s, index)| Item { ready_s, new_tokens: 0, ..items[index] }).collect();
    let written = play(service, costs, &tokens, decode);
    let mut played = Played {
        first_token_s: read.first_token_s,
        // What asks for one token ends with its prompt.
        done_s: read.done_s,
        spent: read.spent + written.spent,
        end_s: read.end_s.max(written.end_s),
    };
    for (&(arrival_s, index), &done_s) in arrivals.iter().zip(&written.done_s) {
        // On the wire and before it a request is present though no engine holds it.
        played.spent.present_s += arrival_s - played.done_s[index];
        played.done_s[index] = done_s;
    }
    played
}

/// When the caches of what goes on decoding are across: in the order in which
/// prompts were read, over as many wires as the smaller pool has engines.
fn carry(
    service: &Service,
    items: &[Item],
    read_s: &[f64],
    wires: u32,
    transfer_bits: Option<f64>,
) -> Vec<(f64, usize)> {
    let mut order: Vec<usize> = (0..items.len()).filter(|&index| items[index].decode_steps > 0).collect();
    order.sort_unstable_by(|&a, &b| read_s[a].total_cmp(&read_s[b]).then(a.cmp(&b)));
    let mut free_s = vec![f64::NEG_INFINITY; wires as usize];
    let sent = order.into_iter().enumerate().map(|(turn, index)| {
        let wire = &mut free_s[turn % wires as usize];
        let tokens = f64::from(items[index].prompt_tokens);
        *wire = wire.max(read_s[index]) + transfer_s(service, tokens, transfer_bits);
        (*wire, index)
    });
    sent.collect()
}

/// Seconds a prompt's cache takes from one engine to another: every GPU sends
/// its own share.
fn transfer_s(service: &Service, tokens: f64, transfer_bits: Option<f64>) -> f64 {
    let (cluster, job) = (&service.engine, &service.job);
    let gpus = f64::from(job.parallelism.tensor.min(job.llm.kv_heads));
    let values = tokens * f64::from(job.llm.layers) * job.llm.kv_values_per_token_layer() / gpus;
    // A group that leaves the node: two engines side by side do not share one.
    let link = cluster.link(2, cluster.gpus_per_node);
    let stored_bits = job.compression.kv_bits.unwrap_or(job.precision.kv_bits);
    let (codec, codecs) = (&cluster.codec, cluster.codecs_per_gpu);
    let channel = match transfer_bits {
        Some(bits) if codecs > 0.0 => {
            Channel::coded(link, stored_bits, bits, codec, codecs, job.compression.reduction)
        }
        _ => Channel::raw(link, stored_bits),
    };
    channel.stages(values).pipelined_s() + channel.codec_latency_s + link.latency_s
}

fn summary(service: &Service, costs: &StepCosts, seen: &[Seen], played: &Played, bound: f64) -> Served {
    let steady = Steady::of(seen, bound);
    let kept = &seen[steady::kept(seen)];
    let of = |times: Vec<f64>| Percentiles::of(&times);
    let start_s = seen.first().map_or(0.0, |own| own.arrival_s);
    let duration_s = seen.iter().fold(start_s, |end, own| end.max(own.done_s)) - start_s;
    let tokens: f64 = seen.iter().map(|own| own.output_tokens).sum();
    let engines = f64::from(service.pools.engines());
    let idle_s = (engines * duration_s - played.spent.busy_s).max(0.0);
    let energy_j = played.spent.energy_j + idle_s * costs.idle_power_w();
    let usd_per_s = engines * f64::from(service.engine.gpus) / 3600.0 * service.usd_per_gpu_hour;
    Served {
        requests: seen.len(),
        duration_s,
        requests_per_s: steady.requests_per_s.mean,
        output_tokens_per_s: steady.output_tokens_per_s.mean,
        ttft: of(kept.iter().map(Seen::ttft_s).collect()),
        tpot: of(kept.iter().filter_map(Seen::tpot_s).collect()),
        latency: of(kept.iter().map(Seen::latency_s).collect()),
        mean_batch: played.spent.decoded_tokens / played.spent.decode_steps.max(1.0),
        peak_cache: (played.spent.peak_tokens as f64 / costs.cache_tokens() as f64).min(1.0),
        preempted: played.spent.preempted,
        turned_away: 0,
        cache_tokens: costs.cache_tokens(),
        energy_j,
        output_tokens_per_j: tokens / energy_j,
        usd: usd_per_s * duration_s,
        output_tokens_per_usd: steady.output_tokens_per_s.mean / usd_per_s,
        little: Little {
            mean_present: played.spent.present_s / duration_s,
            rate_times_latency: seen.iter().map(Seen::latency_s).sum::<f64>() / duration_s,
        },
        steady,
    }
}

fn check(service: &Service) -> Result<(), ServingError> {
    let p = &service.job.parallelism;
    for (parallelism, ways) in
        [("pipeline", p.pipeline), ("data", p.data), ("context", p.context), ("expert", p.expert)]
    {
        if ways != 1 {
            return Err(ServingError::Parallelism { parallelism, ways });
        }
    }
    let setting = ServingError::setting;
    let hits = service.prefix_hits;
    setting("prefix-hits", hits, (0.0..1.0).contains(&hits), "at least 0 and below 1")?;
    let reserved = service.reserved_answer;
    setting("reserved", reserved, (0.0..=1.0).contains(&reserved), "between 0 and 1")?;
    setting("max-batch", f64::from(service.max_batch), service.max_batch > 0, "at least 1")?;
    let price = service.usd_per_gpu_hour;
    setting("usd-per-gpu-hour", price, price.is_finite() && price >= 0.0, "a price")?;
    match service.pools {
        Pools::Shared { engines } => setting("engines", f64::from(engines), engines > 0, "at least 1")?,
        Pools::Disaggregated { prefill, decode, transfer_bits } => {
            setting("prefill engines", f64::from(prefill), prefill > 0, "at least 1")?;
            setting("decode engines", f64::from(decode), decode > 0, "at least 1")?;
            let bits = transfer_bits.unwrap_or(1.0);
            setting("transfer-bits", bits, bits.is_finite() && bits > 0.0, "positive")?;
            if transfer_bits.is_some() && service.engine.codecs_per_gpu <= 0.0 {
                return Err(Infeasible::NoCodec.into());
            }
        }
    }
    if let Batching::Chunked { tokens } = service.batching {
        setting("chunk tokens", f64::from(tokens), tokens > 0, "at least 1")?;
    }
    Ok(())
}
