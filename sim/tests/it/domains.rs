//! Promises about experts, NVLink domains, formats and scale: nothing is faster
//! for having less, and nothing depends on what it should not.
use crate::fixtures::{cluster, llama3_70b, training};
use proptest::prelude::*;
use trinity_sim::{
    Attention, AttentionKernel, Cluster, Job, Llm, Math, Moe, Parallelism, Precision, Recompute, Tuning,
    Zero, estimate, time,
};

/// DeepSeek-V3's shape.
fn deepseek() -> Llm {
    Llm {
        layers: 61,
        hidden: 7168,
        heads: 128,
        kv_heads: 128,
        head_dim: 128,
        ffn: 18432,
        vocab: 129_280,
        attention: Attention::Latent { query_rank: 1536, kv_rank: 512, rope_dim: 64, value_dim: 128 },
        moe: Some(Moe {
            experts: 256,
            top_k: 8,
            shared_experts: 1,
            expert_ffn: 2048,
            dense_layers: 3,
            ..Moe::default()
        }),
        ..llama3_70b()
    }
}

/// Sixty-four expert-parallel ranks, each GPU with one 400 Gbit/s adapter.
fn experts(per_node: u32) -> (Cluster, Job) {
    let mut machine = cluster(64);
    machine.gpus_per_node = per_node;
    machine.nic.bytes_per_s = 50e9;
    machine.gpu.memory_bytes = 1e15;
    let mut job = training(deepseek(), 1, 1, 64, 64);
    job.sequence = 4096;
    job.attention = AttentionKernel::Flash;
    job.recompute = Recompute::None;
    job.parallelism = Parallelism { expert: 64, zero: Zero::Optimizer, ..job.parallelism };
    (machine, job)
}

#[test]
fn tokens_for_experts_cross_the_senders_own_adapter() {
    let (machine, job) = experts(8);
    let time = time(&machine, &job).unwrap();
    // 58 layers, there and back, forward and backward: 4,096 tokens of 7,168 BF16
    // values to 8 experts each, 56 of 64 of them on other nodes.
    let bytes = 58.0 * 4.0 * 4096.0 * 7168.0 * 2.0 * 8.0 * 56.0 / 64.0;
    let wire_s = bytes / (50e9 * machine.inter_efficiency);
    assert!(
        (time.expert.total_s / wire_s - 1.0).abs() < 0.01,
        "{} s, {wire_s} on the wire",
        time.expert.total_s
    );
}

#[test]
fn a_larger_domain_is_never_worse_and_helps_experts() {
    let mut before = f64::INFINITY;
    for per_node in [4, 8, 16, 32, 64, 72, 256] {
        let (machine, job) = experts(per_node);
        let time = time(&machine, &job).unwrap();
        assert!(time.expert.total_s <= before, "{per_node} GPUs a node");
        before = time.expert.total_s;
    }
    let of = |per_node| {
        let (machine, job) = experts(per_node);
        time(&machine, &job).unwrap().expert.total_s
    };
    assert!(of(8) > 2.0 * of(64), "eight and sixty-four GPUs a node must not be the same");
    assert!(of(64) == of(256), "beyond the group a domain changes nothing");
}

#[test]
fn a_token_that_is_sent_once_to_each_node_is_never_slower() {
    let (mut machine, job) = experts(8);
    let each = time(&machine, &job).unwrap().expert.total_s;
    machine.gpu.software.sends_once_per_node = true;
    let once = time(&machine, &job).unwrap().expert.total_s;
    assert!(once < each && once > each / 4.0, "{once} s, {each} s");
}

#[test]
fn narrow_products_leave_attention_and_the_loss_as_they_are() {
    let mut machine = cluster(1);
    machine.gpu.memory_bytes = 1e15;
    machine.gpu.peak_flops.fp8 = 2.0 * machine.gpu.peak_flops.fp16;
    let mut job = training(llama3_70b(), 1, 1, 1, 1);
    job.sequence = 32_768;
    let wide = time(&machine, &job).unwrap().total_s();
    job.precision.math = Math::Fp8;
    let narrow = time(&machine, &job).unwrap().total_s();
    job.precision = Precision { attention: Math::Fp8, vocabulary: Math::Fp8, ..job.precision };
    let all = time(&machine, &job).unwrap().total_s();
    assert!(all < narrow && narrow < wide && narrow > wide / 2.0, "{wide} {narrow} {all}");
}

#[test]
fn a_format_that_the_gpu_lacks_is_refused_by_name() {
    let mut job = training(llama3_70b(), 8, 1, 1, 1);
    job.precision.math = Math::Fp4;
    let why = estimate(&cluster(8), &job).unwrap_err().to_string();
    assert!(why.contains("no fp4"), "{why}");
}

#[test]
fn adapters_need_no_gradients_and_less_time() {
    let mut machine = cluster(8);
    machine.gpu.memory_bytes = 1e15;
    let mut job = training(llama3_70b(), 8, 1, 1, 8);
    let all = estimate(&machine, &job).unwrap();
    job.tuning = Tuning::Adapters;
    let adapters = estimate(&machine, &job).unwrap();
    assert!(adapters.iteration_s < all.iteration_s);
    assert!(adapters.memory.gradients_bytes == 0.0 && adapters.memory.optimizer_bytes == 0.0);
    assert!(all.mfu > 0.0 && all.mfu < 1.0, "{}", all.mfu);
}

proptest! {
    #[test]
    fn n_times_the_gpus_are_never_more_than_n_times_as_fast(log2 in 0u32..7, tensor in 0u32..4) {
        let tensor = 1 << tensor;
        let speed = |data: u32| {
            let mut machine = cluster(tensor * data);
            machine.gpu.memory_bytes = 1e15;
            let job = training(llama3_70b(), tensor, 1, data, 8 * data);
            estimate(&machine, &job).unwrap().tokens_per_s
        };
        let (one, many) = (speed(1), speed(1 << log2));
        prop_assert!(many <= one * f64::from(1u32 << log2) * (1.0 + 1e-9), "{many} of {one}");
    }

    #[test]
    fn energy_is_at_least_idle_power_times_time(per_node in 1u32..72, bandwidth in 1e9f64..1e11) {
        let (mut machine, job) = experts(per_node);
        machine.nic.bytes_per_s = bandwidth;
        let estimate = estimate(&machine, &job).unwrap();
        let idle = f64::from(machine.gpus) * machine.gpu.idle_power_w * estimate.iteration_s;
        prop_assert!(estimate.energy_j >= idle);
    }

    #[test]
    fn more_bandwidth_of_an_adapter_never_slows_experts_down(slow in 1e9f64..1e11, factor in 1.0f64..20.0) {
        let (mut machine, job) = experts(8);
        machine.nic.bytes_per_s = slow;
        let before = time(&machine, &job).unwrap().total_s();
        machine.nic.bytes_per_s = slow * factor;
        prop_assert!(time(&machine, &job).unwrap().total_s() <= before * (1.0 + 1e-12));
    }
}
