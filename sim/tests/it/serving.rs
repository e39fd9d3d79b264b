//! Promises of the serving simulation.
use crate::fixtures::{cluster, llama3_70b, training};
use trinity_sim::serving::{
    Batching, Convergence, Goodput, Length, Lengths, Objectives, Pools, Requests, Served, Service,
    ServingError, ServingRequest, StepCosts, Stream, goodput, serve, settle,
};
use trinity_sim::{AttentionKernel, Codec, Job, Phase, Recompute, estimate};

/// LLaMA-3-70B on eight GPUs.
fn service() -> Service {
    let job = Job {
        phase: Phase::Decode,
        sequence: 1024,
        recompute: Recompute::None,
        attention: AttentionKernel::Flash,
        ..training(llama3_70b(), 8, 1, 1, 1)
    };
    Service {
        engine: cluster(8),
        job,
        pools: Pools::Shared { engines: 1 },
        batching: Batching::PrefillFirst,
        max_batch: 256,
        reserved_answer: 1.0,
        prefix_hits: 0.0,
        usd_per_gpu_hour: 2.0,
    }
}

/// The same with a codec that takes and gives so many values a second.
fn coded(mut service: Service, values_per_s: f64) -> Service {
    let (encode_values_per_s, decode_values_per_s) = (values_per_s, values_per_s);
    service.engine.codec = Codec { encode_values_per_s, decode_values_per_s, ..Codec::FREE };
    service.engine.codecs_per_gpu = 1.0;
    service
}

/// Chat-like lengths.
fn stream(seed: u64) -> Stream {
    let prompt = Lengths::LogNormal { median: 600.0, sigma: 0.9, most: 8192 };
    let output = Lengths::LogNormal { median: 200.0, sigma: 0.8, most: 2048 };
    Stream::Drawn { seed, prompt, output }
}

/// The same, one request per second in the mean.
fn chat(count: usize) -> Vec<ServingRequest> {
    stream(7).first(count).unwrap()
}

fn assert_little(served: &Served, what: &str) {
    let (a, b) = (served.little.mean_present, served.little.rate_times_latency);
    assert!((a - b).abs() <= 1e-9 * b, "{what}: {a} present, {b} by rate and latency");
}

#[test]
fn littles_law_holds_in_every_arrangement() {
    let requests = Requests::faster(&chat(3000), 2.5);
    for pools in [
        Pools::Shared { engines: 1 },
        Pools::Shared { engines: 3 },
        Pools::Disaggregated { prefill: 1, decode: 2, transfer_bits: None },
        Pools::Disaggregated { prefill: 2, decode: 1, transfer_bits: Some(3.0) },
    ] {
        for batching in [Batching::PrefillFirst, Batching::Chunked { tokens: 512 }] {
            for prefix_hits in [0.0, 0.7] {
                let service = coded(Service { pools, batching, prefix_hits, ..service() }, 6e9);
                let served = serve(&service, &requests).unwrap();
                assert_little(&served, &format!("{pools:?} {batching:?} hits {prefix_hits}"));
                assert_eq!(served.requests, requests.len());
                assert!(served.ttft.p50_s > 0.0 && served.ttft.p50_s <= served.ttft.p99_s);
            }
        }
    }
}

/// One request at a time and one token each: a queue with a single server and
/// constant service, whose wait Pollaczek and Khinchine give in closed form.
#[test]
fn prompts_alone_wait_as_pollaczek_and_khinchine_say() {
    let service = Service { max_batch: 1, ..service() };
    let unit = Requests::draw(3, 100_000, &Lengths::Fixed(1000), &Lengths::Fixed(1));
    let alone = serve(&service, &unit[..1]).unwrap().ttft.mean_s;
    for load in [0.3, 0.6, 0.8] {
        let served = serve(&service, &Requests::faster(&unit, load / alone)).unwrap();
        let expected = alone + load * alone / (2.0 * (1.0 - load));
        let error = (served.ttft.mean_s / expected - 1.0).abs();
        assert!(error < 0.03, "load {load}: {} against {expected}", served.ttft.mean_s);
    }
}

/// Exponential service instead: the wait of M/M/1. Decoding one sequence at a
/// time takes a time that grows with its length alone when caches are free.
#[test]
fn exponential_answers_wait_as_a_single_server_says() {
    let service = Service { max_batch: 1, ..service() };
    let unit = Requests::draw(5, 100_000, &Lengths::Fixed(16), &Lengths::Exponential { mean: 300.0 });
    // Far apart: nobody waits, so latency is service.
    let alone = serve(&service, &Requests::faster(&unit, 1e-6)).unwrap().latency.mean_s;
    let load = 0.5;
    let served = serve(&service, &Requests::faster(&unit, load / alone)).unwrap();
    let expected = alone / (1.0 - load);
    assert!((served.latency.mean_s / expected - 1.0).abs() < 0.05, "{} {expected}", served.latency.mean_s);
}

#[test]
fn a_step_costs_what_the_closed_form_says() {
    let service = service();
    let costs = StepCosts::of(&service.engine, &service.job, 64, 1024.0).unwrap();
    for batch in [1u32, 7, 64] {
        for context in [512u32, 1024, 2048] {
            let job = Job { sequence: context, global_batch: batch, microbatch: batch, ..service.job };
            let exact = estimate(&service.engine, &job).unwrap();
            let table = costs.decode_step(batch as usize, f64::from(batch * context));
            assert!((table.time_s / exact.iteration_s - 1.0).abs() < 0.02, "batch {batch} context {context}");
            assert!((table.energy_j / exact.energy_j - 1.0).abs() < 0.02, "batch {batch} context {context}");
        }
    }
    let prompt = Job { phase: Phase::Prefill, sequence: 3000, ..service.job };
    let exact = estimate(&service.engine, &prompt).unwrap().iteration_s;
    let table = costs.products(3000.0) + costs.attention(3000.0, 3000.0);
    assert!((table.time_s / exact - 1.0).abs() < 0.05, "{} against {exact}", table.time_s);
}

/// The jump over many steps must equal taking them one by one, which chunked
/// batching does whenever nothing waits but one long prompt at the start.
#[test]
fn jumping_over_steps_equals_taking_them() {
    let service = service();
    let costs = StepCosts::of(&service.engine, &service.job, service.max_batch, 1100.0).unwrap();
    let request = ServingRequest { arrival_s: 0.0, prompt_tokens: 1000, output_tokens: 201 };
    let served = serve(&service, &[request]).unwrap();
    let mut expected = costs.products(1000.0).time_s + costs.attention(1000.0, 1000.0).time_s;
    for step in 0..200 {
        expected += costs.decode_step(1, 1000.0 + f64::from(step)).time_s;
    }
    assert!((served.latency.mean_s / expected - 1.0).abs() < 1e-9, "{} {expected}", served.latency.mean_s);
}

/// Where the cache is what runs out, a smaller one serves more; where prompts
/// are what delays tokens, it does not.
#[test]
fn a_smaller_cache_serves_more_where_memory_is_what_runs_out() {
    let objectives = Objectives { ttft_p99_s: 10.0, tpot_p99_s: 0.25 };
    let stream = Stream::Drawn {
        seed: 11,
        prompt: Lengths::Exponential { mean: 1500.0 },
        output: Lengths::Exponential { mean: 800.0 },
    };
    let length = Length { most: 20_000, bound: 0.1, ..Length::from(2000) };
    let mut raw = Service { batching: Batching::Chunked { tokens: 512 }, ..service() };
    raw.engine.gpu.memory_bytes = 24e9;
    let mut coded = coded(raw, 1e12);
    coded.job.compression.kv_bits = Some(3.0);
    let rate = |service: &Service| goodput(service, &stream, &objectives, &length).unwrap().unwrap();
    let (plain, packed): (Goodput, Goodput) = (rate(&raw), rate(&coded));
    assert!(plain.served.peak_cache > 0.9 && packed.served.cache_tokens > 4 * plain.served.cache_tokens);
    assert!(packed.requests_per_s > 1.5 * plain.requests_per_s, "{packed:?} {plain:?}");
    assert!(objectives.kept(&packed.served) && objectives.kept(&plain.served));
    assert_little(&packed.served, "coded cache");
}

#[test]
fn an_impossible_word_is_found_out() {
    let objectives = Objectives { ttft_p99_s: 1e-6, tpot_p99_s: 1.0 };
    assert_eq!(goodput(&service(), &stream(7), &objectives, &Length::from(50)), Ok(None));
}

#[test]
fn what_cannot_be_served_is_refused_with_its_place() {
    let request = |prompt_tokens| ServingRequest { arrival_s: 0.0, prompt_tokens, output_tokens: 10 };
    let error = serve(&service(), &[request(100), request(100_000_000)]).unwrap_err();
    assert!(matches!(error, ServingError::TooLong { index: 1, .. }), "{error}");
    let error = serve(&service(), &[request(100), request(0)]).unwrap_err();
    assert_eq!(error.to_string(), "request 1 has an empty prompt");
    assert_eq!(serve(&service(), &[]), Err(ServingError::NoRequests));
    let mut small = service();
    small.engine.gpu.memory_bytes = 10e9;
    let error = serve(&small, &[request(100)]).unwrap_err();
    assert!(matches!(error, ServingError::NoRoom { .. }), "{error}");
    let mut piped = service();
    piped.job.parallelism.pipeline = 2;
    let error = serve(&piped, &[request(100)]).unwrap_err().to_string();
    assert!(error.contains("pipeline parallelism is 2"), "{error}");
    let pools = Pools::Disaggregated { prefill: 1, decode: 1, transfer_bits: Some(3.0) };
    let error = serve(&Service { pools, ..service() }, &[request(100)]).unwrap_err();
    assert!(error.to_string().contains("no codec"), "{error}");
}

#[test]
fn a_coded_cache_crosses_the_wire_sooner() {
    let service = coded(service(), 1e12);
    let request = [ServingRequest { arrival_s: 0.0, prompt_tokens: 20_000, output_tokens: 2 }];
    let at = |transfer_bits| {
        let pools = Pools::Disaggregated { prefill: 1, decode: 1, transfer_bits };
        serve(&Service { pools, ..service }, &request).unwrap().tpot.mean_s
    };
    assert!(at(Some(3.0)) < at(None), "{} {}", at(Some(3.0)), at(None));
}

/// A burst is not a rate: what a service bears does not hang on how many
/// requests a run begins with, nor on which were drawn.
#[test]
fn the_rate_that_is_kept_does_not_depend_on_how_many_requests_were_drawn() {
    let service = Service { batching: Batching::Chunked { tokens: 512 }, ..service() };
    let objectives = Objectives { ttft_p99_s: 10.0, tpot_p99_s: 0.5 };
    let found = |seed: u64, first: usize| {
        let length = Length { bound: 0.05, ..Length::from(first) };
        goodput(&service, &stream(seed), &objectives, &length).unwrap().unwrap()
    };
    let all = [(7, 300), (7, 1000), (7, 8000), (8, 1000), (9, 1000)].map(|(seed, first)| found(seed, first));
    for own in &all {
        assert!(own.within[0] <= own.requests_per_s && own.requests_per_s <= own.within[1], "{own:?}");
        assert!(own.settled && own.within[1] / own.within[0] < 1.12, "{own:?}");
        for other in &all {
            assert!(
                own.within[0] <= other.within[1],
                "{:?} and {:?} do not overlap",
                own.within,
                other.within
            );
        }
    }
}

/// A trace is repeated whole until its rate is known.
#[test]
fn a_trace_is_searched_by_its_repetitions() {
    let trace = Stream::Trace(chat(300).into());
    let objectives = Objectives { ttft_p99_s: 10.0, tpot_p99_s: 0.5 };
    let length = Length { bound: 0.1, most: 20_000, ..Length::from(300) };
    let found = goodput(&service(), &trace, &objectives, &length).unwrap().unwrap();
    assert!(found.served.requests.is_multiple_of(300) && found.served.requests > 300, "{found:?}");
    assert!(objectives.kept(&found.served), "{found:?}");
}

#[test]
fn rates_times_tokens_are_tokens_per_second() {
    let settled = settle(&service(), &stream(7), 3.0, &Length::from(1000)).unwrap();
    let steady = settled.served.steady;
    assert_eq!(steady.convergence, Convergence::Settled, "{steady:?}");
    let list = stream(7).first(settled.served.requests).unwrap();
    let mean = list.iter().map(|r| f64::from(r.output_tokens)).sum::<f64>() / list.len() as f64;
    let [low, high] = steady.output_tokens_per_s.ends();
    assert!((low..high).contains(&(3.0 * mean)), "{} {steady:?}", 3.0 * mean);
    let [low, high] = steady.requests_per_s.ends();
    assert!((low..high).contains(&3.0), "{steady:?}");
}

/// Runs of any length agree within their intervals, or say that they are short.
#[test]
fn runs_of_any_length_agree_or_are_called_short() {
    let rates = [1_000, 5_000, 200_000].map(|first| {
        let length = Length { most: first, ..Length::from(first) };
        let steady = settle(&service(), &stream(7), 2.0, &length).unwrap().served.steady;
        (steady.convergence, steady.output_tokens_per_s)
    });
    let [low, high] = rates[2].1.ends();
    assert_eq!(rates[2].0, Convergence::Settled, "{rates:?}");
    for (convergence, rate) in rates {
        let apart = convergence == Convergence::Settled;
        assert!(!apart || (rate.ends()[0] <= high && low <= rate.ends()[1]), "{rates:?}");
        assert!(rate.ends()[0] <= high && low <= rate.ends()[1], "{rates:?}");
    }
    assert_ne!(rates[0].0, Convergence::Settled, "{rates:?}");
}

/// Of many runs with other requests, about one in twenty may miss the truth.
#[test]
fn intervals_hold_what_they_promise() {
    let at = |seed: u64, count: usize| {
        let length = Length { most: count, ..Length::from(count) };
        settle(&service(), &stream(seed), 3.0, &length).unwrap().served
    };
    let truth = at(1, 400_000);
    let (mut tokens, mut waits) = (0, 0);
    for seed in 100..160 {
        let own = at(seed, 6_000);
        let [low, high] = own.steady.output_tokens_per_s.ends();
        tokens += u32::from((low..high).contains(&truth.output_tokens_per_s));
        let [low, high] = own.ttft.within.p99_s;
        waits += u32::from((low..=high).contains(&truth.ttft.p99_s));
    }
    assert!(tokens >= 53 && waits >= 53, "{tokens} and {waits} of 60 hold the truth");
}

#[test]
fn a_queue_that_does_not_keep_up_is_called_unstable() {
    let requests = chat(3000);
    let calm = serve(&service(), &requests).unwrap();
    let flooded = serve(&service(), &Requests::faster(&requests, 1000.0)).unwrap();
    assert!(calm.steady.stable && !flooded.steady.stable, "{:?} {:?}", calm.steady, flooded.steady);
    assert_eq!(flooded.steady.convergence, Convergence::Unstable);
    let objectives = Objectives { ttft_p99_s: 10.0, tpot_p99_s: 0.5 };
    let length = Length { bound: 0.1, ..Length::from(1000) };
    let bears = goodput(&service(), &stream(7), &objectives, &length).unwrap().unwrap().requests_per_s;
    for (over, convergence) in [(0.7, Convergence::Settled), (1.3, Convergence::Unstable)] {
        let served = settle(&service(), &stream(7), over * bears, &Length::from(1000)).unwrap().served;
        assert_eq!(served.steady.convergence, convergence, "{over} of {bears}: {:?}", served.steady);
    }
}

#[test]
fn longer_runs_are_surer() {
    let width = |count| {
        let served = serve(&service(), &Requests::faster(&chat(count), 2.0)).unwrap();
        let own = served.steady.output_tokens_per_s;
        own.half_width / own.mean
    };
    assert!(width(20_000) < width(1000), "{} {}", width(20_000), width(1000));
}

/// Caches grow by what is written, and who no longer fits is read anew: more
/// are in flight, some are thrown out, no token is lost.
#[test]
fn caches_grow_and_the_last_are_thrown_out() {
    let mut tight = Service { batching: Batching::Chunked { tokens: 512 }, ..service() };
    tight.engine.gpu.memory_bytes = 21e9;
    let requests = Requests::faster(&chat(2000), 50.0);
    let at = |batching, pools, reserved_answer| {
        let service = Service { reserved_answer, batching, pools, ..tight };
        let served = serve(&service, &requests).unwrap();
        assert_little(&served, &format!("{batching:?} {pools:?} {reserved_answer}"));
        assert!(served.peak_cache <= 1.0 && served.ttft.p50_s > 0.0);
        served
    };
    let split = Pools::Disaggregated { prefill: 1, decode: 1, transfer_bits: None };
    for pools in [Pools::Shared { engines: 1 }, split] {
        for batching in [Batching::PrefillFirst, Batching::Chunked { tokens: 512 }] {
            let (whole, half, none) =
                (at(batching, pools, 1.0), at(batching, pools, 0.5), at(batching, pools, 0.0));
            assert_eq!(whole.preempted, 0);
            assert!(none.preempted > half.preempted, "{} {}", none.preempted, half.preempted);
            assert!(half.mean_batch > whole.mean_batch, "{} {}", half.mean_batch, whole.mean_batch);
        }
    }
}

/// Who is longer than the cache is turned away; where that is more than one in
/// a hundred, nothing can be promised.
#[test]
fn what_no_engine_holds_is_turned_away() {
    let mut tight = service();
    tight.engine.gpu.memory_bytes = 21e9;
    let costs = StepCosts::of(&tight.engine, &tight.job, 1, 1000.0).unwrap();
    let capacity = costs.cache_tokens() as u32;
    let trace = |long: usize| {
        let prompt = |at: usize| if at < long { capacity } else { 100 };
        let request =
            |at: usize| ServingRequest { arrival_s: at as f64, prompt_tokens: prompt(at), output_tokens: 10 };
        Stream::Trace((0..1000).map(request).collect())
    };
    let objectives = Objectives { ttft_p99_s: 10.0, tpot_p99_s: 0.5 };
    let length = Length { bound: 0.1, most: 20_000, ..Length::from(1000) };
    let found = goodput(&tight, &trace(5), &objectives, &length).unwrap().unwrap();
    assert!(
        found.served.turned_away > 0 && found.served.turned_away * 190 < found.served.requests,
        "{found:?}"
    );
    let refused = goodput(&tight, &trace(20), &objectives, &length);
    assert!(matches!(refused, Err(ServingError::TooLong { index: 0, .. })), "{refused:?}");
}
