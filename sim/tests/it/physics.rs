//! What physics says about any cluster: totals are sums, more is not slower,
//! nonsense is refused by name.
use crate::fixtures::{cluster, gpt, llama3_70b, training};
use proptest::prelude::*;
use trinity_sim::compression::{Policy, Scope};
use trinity_sim::{Cluster, Codec, Compression, Infeasible, Job, Phase, Reduction, Zero, estimate};

/// GPT-1.3B on 4 nodes, tensor 2 × pipeline 2 × data 8.
fn base() -> (Cluster, Job) {
    let mut job = training(gpt(24, 2048, 16), 2, 2, 8, 64);
    job.parallelism.zero = Zero::Optimizer;
    (cluster(32), job)
}

fn with_codec(mut cluster: Cluster, codec: Codec) -> Cluster {
    cluster.codec = codec;
    cluster.codecs_per_gpu = 1.0;
    cluster
}

fn bits(gradient: f64, activation: f64) -> Compression {
    Compression {
        weight_gradient_bits: Some(gradient),
        activation_bits: Some(activation),
        activation_gradient_bits: Some(activation),
        ..Compression::NONE
    }
}

#[test]
fn totals_are_the_sums_of_their_parts() {
    let (cluster, job) = base();
    let e = estimate(&cluster, &job).unwrap();
    assert_eq!(e.iteration_s, e.breakdown.total_s());
    assert_eq!(e.energy_j, e.energy.total_j());
    assert_eq!(e.area_mm2, e.area.total_mm2());
    assert!((e.tokens_per_s * e.iteration_s - 64.0 * 2048.0).abs() < 1e-6);
}

#[test]
fn a_free_codec_at_ratio_one_equals_no_codec() {
    for policy in [Policy::Always, Policy::WhenFaster] {
        for scope in [Scope::BetweenNodes, Scope::Everywhere] {
            let (cluster, mut job) = base();
            let none = estimate(&cluster, &job).unwrap();
            job.compression = Compression { policy, scope, ..bits(32.0, 16.0) };
            let mut free = Codec::FREE;
            free.chunk_values = 1e5;
            let mut with = estimate(&with_codec(cluster, free), &job).unwrap();
            assert!(with.memory.codec_staging_bytes > 0.0);
            with.memory.codec_staging_bytes = 0.0;
            assert_eq!(with, none, "{policy:?} {scope:?}");
        }
    }
}

#[test]
fn llama_3_70b_with_128k_context_fits_four_devices_of_8_gb() {
    let mut cluster = with_codec(cluster(4), Codec::FREE);
    cluster.gpu.memory_bytes = 8.6e9;
    cluster.gpu.reserved_bytes = 0.0;
    let mut job = training(llama3_70b(), 1, 4, 1, 1);
    job.phase = Phase::Decode;
    job.sequence = 131_072;
    let raw = trinity_sim::memory::kv_bytes(&job) * 4.0;
    assert_eq!(raw / f64::from(1 << 30), 40.0);
    job.compression = Compression { weight_bits: Some(2.88), kv_bits: Some(2.9), ..Compression::NONE };
    let e = estimate(&cluster, &job).unwrap();
    assert!((e.memory.kv_bytes / f64::from(1 << 30) - 1.8).abs() < 0.05, "{:?}", e.memory);
    assert!((e.memory.weights_bytes / 1e9 - 6.3).abs() < 0.45, "{:?}", e.memory);
}

#[test]
fn a_prompts_cache_goes_over_the_adapters_in_as_many_bits_as_it_is_coded_in() {
    let mut cluster = cluster(8);
    (cluster.nics_per_gpu, cluster.inter_efficiency) = (1.0, 1.0);
    cluster.nic.bytes_per_s = 1e9;
    let mut job = training(llama3_70b(), 8, 1, 1, 1);
    (job.phase, job.sequence) = (Phase::Prefill, 8192);
    let alone = estimate(&cluster, &job).unwrap();
    assert_eq!(alone.breakdown.storage.total_s, 0.0);
    job.kv_transfer = 1.0;
    let sent = estimate(&cluster, &job).unwrap();
    // 8,192 tokens × 80 layers × keys and values of 8 heads of 128, a head a GPU, 2 bytes each.
    let bytes = 8192.0 * 80.0 * 2.0 * 128.0 * 2.0;
    let wire_s = sent.breakdown.storage.total_s;
    assert!((wire_s / (bytes / 1e9) - 1.0).abs() < 1e-3, "{wire_s} s for {bytes} bytes");
    assert!(
        (sent.iteration_s - alone.iteration_s - wire_s).abs() < 1e-9,
        "nothing hides where no overlap is stated"
    );
    let mut coded = job;
    coded.compression.kv_bits = Some(4.0);
    let quarter = estimate(&with_codec(cluster, Codec::FREE), &coded).unwrap();
    let ratio = quarter.breakdown.storage.total_s / wire_s;
    assert!((ratio - 0.25).abs() < 0.01, "{ratio} of the time at a quarter of the bits");
    // Attention reads the cache as it is: only the wire carries it coded.
    assert_eq!(quarter.memory.kv_bytes, sent.memory.kv_bytes);
    // What compute can hide is hidden.
    job.overlap.storage = 1.0;
    let hidden = estimate(&cluster, &job).unwrap();
    assert!(hidden.iteration_s < sent.iteration_s);
    // Without adapters there is no way out.
    cluster.nics_per_gpu = 0.0;
    let refused = estimate(&cluster, &job).unwrap_err();
    assert!(refused.to_string().contains("cache on its way to other workers"), "{refused}");
    // Decoding has no prompt to send.
    (job.phase, job.sequence) = (Phase::Decode, 8192);
    assert_eq!(estimate(&cluster, &job).unwrap().breakdown.storage.total_s, 0.0);
}

#[test]
fn nonsense_is_refused_by_name() {
    type Change = fn(&mut Cluster, &mut Job);
    let cases: [(Change, &str); 8] = [
        (|_, j| j.parallelism.tensor = 3, "GPU count"),
        (|c, j| (c.gpus, j.parallelism.tensor) = (48, 3), "heads"),
        (|c, j| (c.gpus, j.parallelism.pipeline) = (16 * 48, 48), "stages"),
        (|c, _| c.nics_per_gpu = 0.0, "no NIC"),
        (|_, j| j.global_batch = 63, "batch"),
        (|_, j| j.microbatch = 0, "not positive"),
        (|c, _| c.gpu.memory_bytes = 4e9, "memory"),
        (|c, _| c.intra.bytes_per_s = f64::NAN, "not positive"),
    ];
    for (change, reason) in cases {
        let (mut cluster, mut job) = base();
        change(&mut cluster, &mut job);
        let error = estimate(&cluster, &job).unwrap_err();
        assert_eq!(error.reason().name(), reason, "{error}");
    }
}

#[test]
fn an_infeasible_point_says_what_is_too_large() {
    let (mut cluster, job) = base();
    cluster.gpu.memory_bytes = 4e9;
    match estimate(&cluster, &job) {
        Err(Infeasible::Memory { needed_gb, capacity_gb, .. }) => assert!(needed_gb > capacity_gb),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_codec_of_multiprocessors_costs_the_gpus_own_work_and_no_area() {
    let (mut cluster, mut job) = base();
    cluster.codecs_per_gpu = 16.0;
    cluster.codec = Codec { encode_values_per_s: 1e9, decode_values_per_s: 4e9, ..Codec::FREE };
    job.compression =
        Compression { weight_gradient_bits: Some(2.6), policy: Policy::Always, ..Compression::NONE };
    let silicon = estimate(&cluster, &job).unwrap();
    cluster.codec.gpu_share = 0.01;
    let software = estimate(&cluster, &job).unwrap();
    let lost_s = software.breakdown.codec_s;
    assert!(lost_s > 0.0 && silicon.breakdown.codec_s == 0.0);
    assert!((software.iteration_s - silicon.iteration_s - lost_s).abs() < 1e-12 * software.iteration_s);
    assert_eq!(software.area.codec_mm2, 0.0);
    // Twice the multiprocessors do the same work: it costs what it cost.
    cluster.codecs_per_gpu = 32.0;
    assert_eq!(estimate(&cluster, &job).unwrap().breakdown.codec_s, lost_s);
}

proptest! {
    #[test]
    fn more_bandwidth_never_slows_a_point_down(
        factor in 1.0f64..100.0, nics in 0.1f64..8.0, gather: bool, gradient in 0.5f64..16.0,
        rate in 1e8f64..1e12,
    ) {
        let (mut cluster, mut job) = base();
        cluster.nics_per_gpu = nics;
        job.compression = bits(gradient, 3.5);
        job.compression.reduction = if gather { Reduction::Gather } else { Reduction::PerHop };
        let codec = Codec { encode_values_per_s: rate, decode_values_per_s: rate, latency_s: 1e-6, ..Codec::FREE };
        let cluster = with_codec(cluster, codec);
        let slow = estimate(&cluster, &job).unwrap().iteration_s;
        let faster: [fn(&mut Cluster, f64); 5] = [
            |c, f| c.nic.bytes_per_s *= f,
            |c, f| c.nics_per_gpu *= f,
            |c, f| c.intra.bytes_per_s *= f,
            |c, f| c.codecs_per_gpu *= f,
            |c, f| c.gpu.memory_bytes_per_s *= f,
        ];
        for change in faster {
            let mut better = cluster;
            change(&mut better, factor);
            let fast = estimate(&better, &job).unwrap().iteration_s;
            prop_assert!(fast <= slow * (1.0 + 1e-12), "{fast} > {slow}");
        }
        let mut smaller = job;
        smaller.compression = bits(gradient / factor, 3.5 / factor);
        smaller.compression.reduction = job.compression.reduction;
        prop_assert!(estimate(&cluster, &smaller).unwrap().iteration_s <= slow * (1.0 + 1e-12));
    }

    #[test]
    fn time_scales_when_every_rate_does(factor in 0.01f64..100.0) {
        let (cluster, job) = base();
        let before = estimate(&cluster, &job).unwrap();
        let mut scaled = cluster;
        scaled.gpu.peak_flops.fp16 *= factor;
        scaled.gpu.memory_bytes_per_s *= factor;
        scaled.intra.bytes_per_s *= factor;
        scaled.nic.bytes_per_s *= factor;
        scaled.intra.latency_s /= factor;
        scaled.nic.latency_s /= factor;
        scaled.inter_latency_s /= factor;
        scaled.launch_s /= factor;
        let after = estimate(&scaled, &job).unwrap();
        prop_assert!((after.iteration_s * factor / before.iteration_s - 1.0).abs() < 1e-9);
    }
}
