//! Promises of replicas: books that balance, and order that physics keeps.

use super::*;
use crate::kernels::{Kernels, tests::DEVICE};
use crate::serving::{ServingError, ServingRequest};
use std::sync::LazyLock;

/// A GPU whose kernels reach their rooflines.
fn gpu() -> Accelerator {
    static KERNELS: LazyLock<Kernels> = LazyLock::new(|| Kernels::at_rooflines("test", DEVICE).unwrap());
    Accelerator {
        name: "test",
        generation: Generation::Hopper,
        memory_bytes: 85e9,
        network_bytes_per_s: 50e9,
        host_bytes_per_s: 55e9,
        domain_gpus: 8,
        kernels: &KERNELS,
    }
}

fn engine() -> EngineConstants {
    EngineConstants {
        policy: Policy::Mixed,
        token_budget: 8192,
        max_batch: 1024,
        reserved_answer: 0.5,
        memory_share: 0.9,
        workspace_bytes: 4e9,
        decode: 1.0,
        prefill: 1.0,
        experts_decode: 1.0,
        experts_prefill: 1.0,
        dealt_experts: 1.0,
        collective: 1.0,
        attention_decode: 1.0,
        attention_prefill: 1.0,
        small_kernel_s: 1e-6,
        step_s: 3e-4,
        sequence_s: 5e-6,
        prompt_step_s: 1e-3,
        prompt_layer_s: 2e-5,
        first_token_s: 0.02,
        first_token_steps: 2.0,
        stream_s: 0.0,
        intake: Intake::default(),
        preemption: Preemption::Recompute,
        draft: None,
    }
}

/// Qwen3-32B.
fn dense() -> Transformer {
    Transformer {
        layers: 64.0,
        hidden: 5120.0,
        vocab: 151_936.0,
        heads: 64.0,
        kv_heads: 8.0,
        head_dim: 128.0,
        dense_layers: 64.0,
        dense_ffn: 25_600.0,
        gated: false,
        latent: None,
        sliding: None,
        linear: None,
        experts: None,
        formats: Formats { attention: Format::Bf16, dense: Format::Bf16, experts: Format::Bf16 },
    }
}

fn wide(tensor: u32) -> Placement {
    Placement { tensor, attention_data: 1, expert_tensor: tensor, expert: 1 }
}

fn table(tensor: u32) -> StepTable {
    StepTable::new(&gpu(), &dense(), &wide(tensor), &engine(), 2.0).unwrap()
}

fn load(concurrency: u32) -> ClosedLoop {
    ClosedLoop {
        concurrency,
        requests: 10 * concurrency,
        prompt: (819.0, 1024.0),
        answer: (819.0, 1024.0),
        reuse: Reuse::default(),
        seed: 7,
    }
}

fn shared(tensor: u32, replicas: u32) -> Deployment {
    let (table, engine) = (table(tensor), engine());
    Deployment::Shared(Box::new(Stage { table, engine, replicas, ranks: 1, gpus: tensor }))
}

/// Every token that was asked for is made, and Little's law holds.
fn balances(out: &Replayed, tolerance: f64, what: impl std::fmt::Display) {
    assert_eq!(out.asked_tokens, out.produced_tokens, "{what}: {out:?}");
    let apart = (out.present_s / out.latency_sum_s - 1.0).abs();
    assert!(apart < tolerance, "Little's law, {what}: {apart} {out:?}");
}

/// So many requests, one each `gap_s`, of lengths by their number.
fn arrivals(count: u32, gap_s: f64, lengths: fn(u32) -> (u32, u32)) -> Vec<ServingRequest> {
    let request = |at| {
        let (prompt_tokens, output_tokens) = lengths(at);
        ServingRequest { arrival_s: f64::from(at) * gap_s, prompt_tokens, output_tokens }
    };
    (0..count).map(request).collect()
}

#[test]
fn books_balance_at_every_concurrency_and_policy() {
    for policy in [Policy::Mixed, Policy::PromptsFirst] {
        for (concurrency, cache) in [(1, 1e9), (16, 1e9), (64, 3e4), (200, 1e5)] {
            let engine = EngineConstants { policy, ..engine() };
            let out = replay(&table(4).with_cache_tokens(cache), &engine, &load(concurrency)).unwrap();
            balances(&out, 1e-9, format_args!("{policy:?} {concurrency}"));
            let tokens = out.asked_tokens as f64 / out.duration_s;
            assert!((out.answer_tokens_per_s / tokens - 1.0).abs() < 1e-12);
            assert!((out.requests_per_s * out.duration_s - f64::from(10 * concurrency)).abs() < 1e-6);
        }
    }
}

#[test]
fn more_requests_in_flight_mean_more_tokens_and_longer_waits() {
    let outs: Vec<Replayed> =
        [1, 4, 16, 64, 256].iter().map(|&c| replay(&table(4), &engine(), &load(c)).unwrap()).collect();
    for pair in outs.windows(2) {
        assert!(pair[1].tpot_s >= pair[0].tpot_s && pair[1].ttft_s >= pair[0].ttft_s, "{pair:?}");
        assert!(pair[1].answer_tokens_per_s > pair[0].answer_tokens_per_s, "{pair:?}");
    }
}

#[test]
fn a_full_cache_makes_requests_wait_to_be_admitted() {
    let roomy = replay(&table(2), &engine(), &load(64)).unwrap();
    let tight = replay(&table(2).with_cache_tokens(2e4), &engine(), &load(64)).unwrap();
    assert!(tight.ttft_s > 10.0 * roomy.ttft_s && tight.tpot_s < roomy.tpot_s, "{tight:?} {roomy:?}");
    assert!(tight.mean_batch < 16.0, "{tight:?}");
}

#[test]
fn the_closed_form_stays_near_the_replay() {
    for tensor in [2, 4, 8] {
        for concurrency in [1, 4, 16, 64, 128] {
            let played = replay(&table(tensor), &engine(), &load(concurrency)).unwrap();
            let formed = predict(&shared(tensor, 1), &load(concurrency));
            let tpot = formed.tpot_s / played.tpot_s - 1.0;
            let ttft = formed.ttft_s / played.ttft_s - 1.0;
            assert!(tpot.abs() < 0.08, "TP{tensor} at {concurrency}: {tpot} {formed:?} {played:?}");
            assert!(ttft.abs() < 0.35, "TP{tensor} at {concurrency}: {ttft} {formed:?} {played:?}");
            let rate = formed.requests_per_s / played.requests_per_s - 1.0;
            assert!(rate.abs() < 0.12, "TP{tensor} at {concurrency}: {rate}");
        }
    }
}

#[test]
fn more_gpus_never_serve_less_after_the_search() {
    let goal = Goal { ttft_s: 1.0, tpot_s: 0.03 };
    let best = |gpus: u32| {
        let sizes = [2, 4, 8].into_iter().filter(|tensor| tensor <= &gpus);
        // Fewer replicas than fit are candidates too: GPUs may stay idle.
        let all: Vec<Candidate> = sizes
            .flat_map(|tensor| (1..=gpus / tensor).map(move |replicas| (tensor, replicas)))
            .map(|(tensor, replicas)| Candidate {
                name: format!("{replicas} × TP{tensor}"),
                deployment: shared(tensor, replicas),
            })
            .collect();
        search(&all, &load(8), &goal, 1024).unwrap()[0].predicted.answer_tokens_per_s
    };
    let rates: Vec<f64> = (1..=4).map(|k| best(4 * k)).collect();
    assert!(rates.windows(2).all(|pair| pair[1] >= pair[0]), "{rates:?}");
}

#[test]
fn a_goal_that_nothing_meets_names_the_nearest() {
    let goal = Goal { ttft_s: 1e-4, tpot_s: 1e-4 };
    let candidates =
        [4, 8].map(|tensor| Candidate { name: format!("TP{tensor}"), deployment: shared(tensor, 1) });
    let nearest = search(&candidates, &load(8), &goal, 64).unwrap_err().unwrap();
    assert_eq!(nearest.found.name, "TP8");
    assert!(nearest.overrun > 1.0);
    assert_eq!(search(&[], &load(8), &goal, 64), Err(None));
}

#[test]
fn accepted_drafts_shorten_the_time_between_tokens() {
    let plain = replay(&table(8), &engine(), &load(16)).unwrap();
    let at = |acceptance| {
        let draft = Some(Draft { tokens: 3.0, acceptance, cost: 0.02 });
        let own = EngineConstants { draft, ..engine() };
        let table = StepTable::new(&gpu(), &dense(), &wide(8), &own, 2.0).unwrap();
        replay(&table, &own, &load(16)).unwrap().tpot_s
    };
    // 1 + 0.7 + 0.49 + 0.343 tokens a step; verifying and drafting cost a little.
    let gain = plain.tpot_s / at(0.7);
    assert!(gain > 2.0 && gain < 2.533, "{gain}");
    assert!(at(0.0) > plain.tpot_s && at(1.0) < at(0.7), "{} {}", at(0.0), plain.tpot_s);
}

#[test]
fn what_cannot_run_is_refused_with_its_reason() {
    let refusal = |placement, gpu: &Accelerator| {
        StepTable::new(gpu, &dense(), &placement, &engine(), 2.0).unwrap_err().to_string()
    };
    assert!(refusal(wide(3), &gpu()).contains("64 heads do not divide among 3 GPUs"));
    assert!(refusal(wide(1), &Accelerator { memory_bytes: 60e9, ..gpu() }).contains("GB"));
    let bare = Kernels::new("bare", *gpu().kernels.device(), &[]).unwrap();
    let bare = Accelerator { kernels: Box::leak(Box::new(bare)), ..gpu() };
    assert!(refusal(wide(2), &bare).contains("matmul bf16 was never measured on bare"));
    let long = ClosedLoop { prompt: (1e9, 1e9), ..load(1) };
    assert!(matches!(replay(&table(8), &engine(), &long), Err(ServingError::TooLong { .. })));
    let none = ClosedLoop { concurrency: 0, ..load(1) };
    assert!(replay(&table(8), &engine(), &none).is_err());
}

#[test]
fn a_smaller_cache_value_holds_more_tokens_and_is_read_sooner() {
    let at = |bytes| StepTable::new(&gpu(), &dense(), &wide(4), &engine(), bytes).unwrap();
    let (sixteen, three) = (at(2.0), at(0.375));
    assert!(three.cache_tokens() > 5.0 * sixteen.cache_tokens());
    assert!(three.decode_s(64.0, 64.0 * 8192.0) < sixteen.decode_s(64.0, 64.0 * 8192.0));
}

fn split(
    tensor: u32,
    prompts: &StepTable,
    answers: &StepTable,
    engine: &EngineConstants,
    load: &Load,
) -> Replayed {
    let prefill = PrefillWorkers {
        table: prompts,
        engine,
        workers: tensor,
        ranks: 1,
        handoff: Handoff { fixed_s: 0.02, token_s: 1e-6 },
    };
    play(&Scene { table: answers, engine, ranks: 2, prefill: Some(prefill) }, load).unwrap()
}

#[test]
fn books_balance_with_separate_workers_traces_turns_and_preemption() {
    let (own, tight) = (table(4), table(4).with_cache_tokens(3e4));
    let requests = arrivals(300, 0.05, |at| (700 + at, 300 + at));
    let turns = Reuse { turns: 3, think_s: 0.4, prefix_hits: 0.5 };
    let loads = [
        Load::Closed(load(64)),
        Load::Closed(ClosedLoop { reuse: turns, ..load(12) }),
        Load::Open { requests: &requests, prefix_hits: 0.2 },
    ];
    for preemption in [Preemption::Recompute, Preemption::Swap { bytes_per_s: 55e9 }] {
        let engine = EngineConstants { reserved_answer: 0.0, preemption, ..engine() };
        for load in &loads {
            let alone = |table| play(&Scene::alone(table, &engine), load).unwrap();
            let outs = [alone(&own), alone(&tight), split(2, &own, &tight, &engine, load)];
            for out in &outs {
                balances(out, 1e-6, format_args!("{load:?}"));
                let tokens = out.requests_per_s * out.asked_tokens as f64 / requests_of(load);
                assert!((out.answer_tokens_per_s / tokens - 1.0).abs() < 1e-9);
            }
            assert_eq!(outs[0].preempted, 0, "{load:?}");
        }
        let crowded = play(&Scene::alone(&tight, &engine), &loads[0]);
        assert!(crowded.unwrap().preempted > 0, "{preemption:?}");
    }
}

fn requests_of(load: &Load) -> f64 {
    match load {
        Load::Closed(load) => f64::from(load.requests),
        Load::Open { requests, .. } => requests.len() as f64,
    }
}

#[test]
fn who_reserves_the_whole_answer_never_throws_out() {
    let careful = EngineConstants { reserved_answer: 1.0, ..engine() };
    let out = replay(&table(4).with_cache_tokens(3e4), &careful, &load(64)).unwrap();
    assert_eq!(out.preempted, 0);
    let bold = EngineConstants { reserved_answer: 0.0, ..engine() };
    let other = replay(&table(4).with_cache_tokens(3e4), &bold, &load(64)).unwrap();
    assert!(other.preempted > 0 && other.mean_batch > out.mean_batch, "{out:?} {other:?}");
}

#[test]
fn what_is_cached_already_is_not_read_again() {
    let at = |prefix_hits| {
        let reuse = Reuse { prefix_hits, ..Reuse::default() };
        replay(&table(4), &engine(), &ClosedLoop { reuse, prompt: (8000.0, 8000.0), ..load(8) }).unwrap()
    };
    let (none, most) = (at(0.0), at(0.9));
    assert!(most.ttft_s < 0.5 * none.ttft_s && most.tpot_s < none.tpot_s, "{none:?} {most:?}");
}

#[test]
fn an_open_loop_below_capacity_waits_less_than_one_near_it() {
    let at = |gap_s: f64| {
        let requests = arrivals(400, gap_s, |_| (1000, 200));
        let load = Load::Open { requests: &requests, prefix_hits: 0.0 };
        play(&Scene::alone(&table(4), &engine()), &load).unwrap()
    };
    let (calm, busy) = (at(1.0), at(0.02));
    assert!(calm.ttft_s < busy.ttft_s && calm.mean_batch < busy.mean_batch, "{calm:?} {busy:?}");
}

#[test]
fn traces_that_no_clock_could_write_are_refused() {
    let refused = |times: [f64; 2]| {
        let requests =
            times.map(|arrival_s| ServingRequest { arrival_s, prompt_tokens: 9, output_tokens: 9 });
        let load = Load::Open { requests: &requests, prefix_hits: 0.0 };
        play(&Scene::alone(&table(4), &engine()), &load).unwrap_err().to_string()
    };
    assert_eq!(refused([-1.0, 2.0]), "request 0 arrives before time 0");
    assert_eq!(refused([3.0, 2.0]), "request 1 arrives before the one above it");
    assert_eq!(refused([0.0, f64::NAN]), "request 1 has no finite arrival time");
}

#[test]
fn an_engine_that_looks_seldom_answers_later_and_loses_nobody() {
    let seldom = |poll_steps| {
        let engine = EngineConstants { intake: Intake { poll_steps, ..Intake::default() }, ..engine() };
        replay(&table(4), &engine, &load(32)).unwrap()
    };
    let (each, tenth, thirtieth) = (seldom(1), seldom(10), seldom(30));
    assert!(each.ttft_s < tenth.ttft_s && tenth.ttft_s < thirtieth.ttft_s);
    // Who comes between two looks waits for half of the steps between them.
    let steps = (thirtieth.steady_ttft_s - each.steady_ttft_s) / each.tpot_s;
    assert!((8.0..25.0).contains(&steps), "{steps} steps");
    for out in [each, tenth, thirtieth] {
        balances(&out, 1e-9, "looks");
    }
}

#[test]
fn prompts_that_wait_for_company_are_let_in_by_tokens_or_by_time() {
    let with = |wait_steps, wait_tokens| {
        let intake = Intake { wait_steps, wait_tokens, ..Intake::default() };
        replay(&table(4), &EngineConstants { intake, ..engine() }, &load(32)).unwrap()
    };
    let (none, some, long) = (with(0, 0.0), with(20, f64::INFINITY), with(60, f64::INFINITY));
    assert!(none.steady_ttft_s < some.steady_ttft_s && some.steady_ttft_s < long.steady_ttft_s);
    // Company of one token is there at once.
    assert!((with(60, 1.0).ttft_s / none.ttft_s - 1.0).abs() < 1e-9);
    for out in [some, long] {
        balances(&out, 1e-9, "waits");
    }
}

#[test]
fn one_process_that_writes_to_clients_caps_the_rate_and_first_tokens_wait_for_it() {
    let with = |stream_s| replay(&table(4), &EngineConstants { stream_s, ..engine() }, &load(200)).unwrap();
    let free = with(0.0);
    let rate = free.answer_tokens_per_s;
    let (idle, busy) = (with(0.05 / rate), with(2.0 / rate));
    assert!((idle.answer_tokens_per_s / rate - 1.0).abs() < 0.05, "{} {rate}", idle.answer_tokens_per_s);
    assert!(busy.answer_tokens_per_s <= rate / 2.0 * 1.001, "{} {rate}", busy.answer_tokens_per_s);
    assert!(busy.ttft_s > 3.0 * free.ttft_s, "{} {}", busy.ttft_s, free.ttft_s);
    for out in [idle, busy] {
        balances(&out, 1e-9, "writes");
    }
}

#[test]
fn sums_beyond_an_nvlink_domain_take_the_network() {
    let gpu = gpu();
    let wider = Accelerator { domain_gpus: 16, ..gpu };
    for bytes in [1e4, 1e6, 1e8] {
        let (across, inside) =
            (gpu.all_reduce_s(bytes, 16.0).unwrap(), wider.all_reduce_s(bytes, 16.0).unwrap());
        assert!(across > inside, "{bytes}: {across} {inside}");
        assert_eq!(gpu.all_reduce_s(bytes, 8.0).unwrap(), wider.all_reduce_s(bytes, 8.0).unwrap());
    }
}
