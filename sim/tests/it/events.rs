//! The event simulation against the closed forms, on random configurations.
use crate::fixtures::{cluster, gpt, training};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use trinity_sim::compression::Policy;
use trinity_sim::{
    Cluster, Codec, Compression, Job, Overlap, Phase, Reduction, Schedule, Zero, estimate, event,
};

/// Any mixture of parallelism, overlap, wires and codecs.
fn configurations() -> impl Strategy<Value = (Cluster, Job)> {
    let shape = (0u32..=2, 0u32..=4, 0u32..=5, 0u32..=4, 1u32..=2, 0u32..=2);
    let wires = (0.05f64..4.0, 1e8f64..1e11, 0.5f64..16.0, any::<bool>(), any::<bool>());
    let rest = (0usize..4, 0.0f64..1.0, 0.0f64..1.0, 0usize..4);
    (shape, wires, rest).prop_map(|(shape, wires, rest)| {
        let (tensor, pipeline, data, more, chunks, phase) = shape;
        let (nics, rate, bits, coded, always) = wires;
        let (zero, overlap_pipeline, overlap_data, microbatch) = rest;
        let (t, p, d) = (1 << tensor, 1 << pipeline, 1 << data);
        let microbatch = 1 << microbatch;
        let mut job = training(gpt(48, 2048, 16), t, p, d, d * microbatch * (p << more));
        job.microbatch = microbatch;
        job.phase = [Phase::Training, Phase::Prefill, Phase::Decode][phase as usize];
        if job.phase == Phase::Training && p > 1 && chunks > 1 {
            job.parallelism.schedule = Schedule::Interleaved(chunks);
        }
        job.parallelism.zero = [Zero::None, Zero::Optimizer, Zero::Gradients, Zero::Parameters][zero];
        job.overlap = Overlap { pipeline: overlap_pipeline, data: overlap_data, ..Overlap::NONE };
        let mut cluster = cluster(t * p * d);
        cluster.nics_per_gpu = nics;
        if coded {
            cluster.codecs_per_gpu = 1.0;
            cluster.codec = Codec {
                encode_values_per_s: rate,
                decode_values_per_s: 1.3 * rate,
                latency_s: 1e-5,
                chunk_values: 131_072.0,
                ..Codec::FREE
            };
            job.compression = Compression {
                weight_gradient_bits: Some(bits),
                activation_bits: Some(bits),
                activation_gradient_bits: Some(bits),
                reduction: Reduction::PerHop,
                policy: if always { Policy::Always } else { Policy::WhenFaster },
                ..Compression::NONE
            };
        }
        (cluster, job)
    })
}

#[test]
fn events_and_closed_forms_agree_on_a_thousand_configurations() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut compared, mut drawn, mut worst) = (0, 0, 0.0f64);
    let mut off = Vec::new();
    while compared < 1000 {
        drawn += 1;
        assert!(drawn < 100_000, "only {compared} feasible configurations");
        let (cluster, job) = configurations().new_tree(&mut runner).unwrap().current();
        let Ok(closed) = estimate(&cluster, &job) else { continue };
        let played = event::simulate(&cluster, &job).unwrap();
        let error = (closed.iteration_s / played.iteration_s - 1.0).abs();
        worst = worst.max(error);
        compared += 1;
        if error > 0.02 {
            off.push(format!(
                "{:+.1} % {:?} {:?} m={} bits={:?} overlap={:?} nics={:.2} pipeline={:?}",
                100.0 * (closed.iteration_s / played.iteration_s - 1.0),
                job.phase,
                job.parallelism,
                job.microbatches(),
                job.compression.activation_bits,
                job.overlap.pipeline,
                cluster.nics_per_gpu,
                closed.breakdown.pipeline
            ));
        }
    }
    println!("worst of {compared}: {:.2} %, {} beyond 2 %", 100.0 * worst, off.len());
    assert!(off.is_empty(), "{} beyond 2 %:\n{}", off.len(), off[..off.len().min(12)].join("\n"));
}

#[test]
fn a_timeline_never_uses_a_compute_unit_twice_at_once() {
    let job = training(gpt(48, 2048, 16), 1, 4, 2, 16);
    let timeline = event::simulate(&cluster(8), &job).unwrap();
    for stage in 0..4 {
        let own = timeline.spans.iter().filter(|span| span.track == stage * 4);
        let mut spans: Vec<(f64, f64)> = own.map(|span| (span.start_s, span.end_s)).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(spans.len(), 8 * 2 + 1);
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 1e-12, "{pair:?}");
        }
    }
}
