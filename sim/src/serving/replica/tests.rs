//! Promises of replicas: books that balance, and order that physics keeps.

use super::*;
use crate::serving::ServingError;

const REACHED: Efficiency = Efficiency { compute: 0.6, memory: 0.8, floor_s: 5e-6 };

fn gpu() -> Accelerator {
    let all = [Some(REACHED); 5];
    Accelerator {
        name: "test".into(),
        generation: Generation::Hopper,
        peak_flops: 989e12,
        bandwidth_bytes_per_s: 3.35e12,
        memory_bytes: 85e9,
        products: all,
        experts: all,
        attention: AttentionShares {
            prompt_wide: 0.42,
            prompt_narrow: 0.33,
            decode_16bit: 0.85,
            decode_8bit: 0.6,
            floor_s: 11e-6,
        },
        all_reduce: [2, 4, 8].map(|gpus| AllReduce { gpus, bus_bytes_per_s: 3e11, floor_s: 5e-6 }).to_vec(),
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
        collective: 1.0,
        collective_floor: 1.0,
        kernel_floor: 1.0,
        attention_decode: 1.0,
        attention_prefill: 1.0,
        small_kernel_s: 1e-6,
        step_s: 3e-4,
        sequence_s: 5e-6,
        prompt_step_s: 1e-3,
        prompt_layer_s: 2e-5,
        first_token_s: 0.02,
        first_token_steps: 2.0,
        tokens_per_step: 1.0,
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
        seed: 7,
    }
}

fn stage(tensor: u32, replicas: u32) -> Stage {
    Stage { table: table(tensor), engine: engine(), replicas, ranks: 1, gpus: tensor }
}

fn shared(tensor: u32, replicas: u32) -> Deployment {
    Deployment { pool: Pool::Shared(Box::new(stage(tensor, replicas))) }
}

#[test]
fn books_balance_at_every_concurrency_and_policy() {
    for policy in [Policy::Mixed, Policy::PromptsFirst] {
        for (concurrency, cache) in [(1, 1e9), (16, 1e9), (64, 3e4), (200, 1e5)] {
            let engine = EngineConstants { policy, ..engine() };
            let out = replay(&table(4).with_cache_tokens(cache), &engine, &load(concurrency)).unwrap();
            assert_eq!(out.asked_tokens, out.produced_tokens, "{policy:?} {concurrency}");
            let apart = (out.present_s / out.latency_sum_s - 1.0).abs();
            assert!(apart < 1e-9, "Little's law, {policy:?} {concurrency}: {apart}");
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
    let drafted = EngineConstants { tokens_per_step: 2.0, ..engine() };
    let twice = replay(&table(8), &drafted, &load(16)).unwrap();
    assert!((plain.tpot_s / twice.tpot_s - 2.0).abs() < 0.1, "{plain:?} {twice:?}");
}

#[test]
fn what_cannot_run_is_refused_with_its_reason() {
    let refusal = |placement, gpu: &Accelerator| {
        StepTable::new(gpu, &dense(), &placement, &engine(), 2.0).unwrap_err().to_string()
    };
    assert!(refusal(wide(3), &gpu()).contains("64 heads do not divide among 3 GPUs"));
    assert!(refusal(wide(1), &Accelerator { memory_bytes: 60e9, ..gpu() }).contains("GB"));
    let mut hopper = gpu();
    hopper.products[Format::Bf16 as usize] = None;
    assert!(refusal(wide(2), &hopper).contains("in bf16 were not measured on test"));
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
