//! Promises about switches between nodes: what crosses them pays for them, and
//! nothing is slower for having more.
use crate::fixtures::{cluster, llama3_70b, training};
use proptest::prelude::*;
use trinity_sim::collective::Algorithm;
use trinity_sim::{Cluster, Job, Level, Levels, Parallelism, Zero, estimate, time};

fn leaf(reach: u32, oversubscription: f64) -> Level {
    Level {
        reach,
        oversubscription,
        latency_s: 0.3e-6,
        port_bytes_per_s: 25e9,
        port_idle_w: 9.0,
        energy_j_per_bit: 6e-12,
    }
}

/// Data parallelism over 64 nodes, one adapter a GPU, leaves of 16 nodes.
fn machine(oversubscription: f64) -> (Cluster, Job) {
    let mut machine = cluster(512);
    machine.gpu.memory_bytes = 1e15;
    machine.levels = Levels { leaf: leaf(128, oversubscription), spine: leaf(4096, 1.0), core: Level::NONE };
    let mut job = training(llama3_70b(), 8, 1, 64, 64);
    job.parallelism = Parallelism { zero: Zero::Optimizer, ..job.parallelism };
    (machine, job)
}

#[test]
fn rings_share_uplinks_and_neighbours_do_not() {
    let of = |oversubscription: f64, pipeline: bool| {
        let (machine, mut job) = machine(oversubscription);
        if pipeline {
            // Stages are 128 GPUs apart: every message leaves its leaf.
            job.parallelism = Parallelism { tensor: 8, pipeline: 4, data: 16, ..job.parallelism };
        }
        let time = time(&machine, &job).unwrap();
        if pipeline { time.pipeline.total_s } else { time.data.total_s }
    };
    // Sixteen members beneath a leaf: uplinks of a sixteenth still carry their ring.
    assert_eq!(of(1.0, false), of(16.0, false));
    assert!(of(32.0, false) > 1.5 * of(16.0, false));
    assert!(of(4.0, true) > 2.0 * of(1.0, true), "{} {}", of(4.0, true), of(1.0, true));
}

#[test]
fn switches_that_add_halve_what_an_all_reduce_sends() {
    let (mut machine, mut job) = machine(1.0);
    job.parallelism.zero = Zero::None;
    let ring = time(&machine, &job).unwrap().data.total_s;
    machine.inter_all_reduce = Algorithm::InNetwork;
    let added = time(&machine, &job).unwrap().data.total_s;
    assert!(added > 0.45 * ring && added < 0.6 * ring, "{added} s added on the way, {ring} s around");
}

#[test]
fn a_hierarchy_crosses_each_adapter_with_a_share_of_the_values() {
    let mut machine = cluster(64);
    machine.gpu.memory_bytes = 1e15;
    let mut job = training(llama3_70b(), 1, 1, 64, 64);
    job.parallelism.zero = Zero::None;
    machine.inter_all_reduce = Algorithm::Hierarchical;
    let found = time(&machine, &job).unwrap().data.total_s;
    let bytes = 4.0 * job.llm.parameters();
    let inside_s = 2.0 * bytes * 7.0 / 8.0 / (machine.intra.bytes_per_s * machine.intra.efficiency);
    let between_s = 2.0 * bytes / 8.0 * 7.0 / 8.0 / (machine.nic.bytes_per_s * machine.inter_efficiency);
    let by_hand = inside_s + between_s;
    assert!((found / by_hand - 1.0).abs() < 0.05, "{found} s, {by_hand} by hand");
}

#[test]
fn ports_and_bits_of_switches_are_in_the_bill() {
    let (machine, job) = machine(1.0);
    let with = estimate(&machine, &job).unwrap();
    let mut free = machine;
    free.levels = Levels::NONE;
    let without = estimate(&free, &job).unwrap();
    // Two ports of a leaf and one of a spine for each of 512 adapters.
    let ports_j = 512.0 * 3.0 * 9.0 * with.iteration_s;
    assert!((with.energy.switch_idle_j / ports_j - 1.0).abs() < 1e-9, "{}", with.energy.switch_idle_j);
    assert_eq!(without.energy.switch_idle_j, 0.0);
    assert!(with.energy.wire_j > without.energy.wire_j);
}

#[test]
fn a_node_sends_out_what_one_of_its_members_would_alone() {
    // Eight replicas to a node, in a ring over eight nodes: an eighth of the hops leave.
    let mut machine = cluster(64);
    machine.gpu.memory_bytes = 1e15;
    machine.intra.energy_j_per_bit = 0.0;
    let job = training(llama3_70b(), 1, 1, 64, 64);
    let wire_j = estimate(&machine, &job).unwrap().energy.wire_j;
    let bits = 64.0 * 2.0 * 63.0 / 64.0 * 32.0 * job.llm.parameters();
    let by_hand = bits / 8.0 * machine.nic.energy_j_per_bit;
    assert!((wire_j / by_hand - 1.0).abs() < 0.01, "{wire_j} J, {by_hand} by hand");
}

proptest! {
    #[test]
    fn a_wider_tier_is_never_slower(
        narrow in 1.0f64..64.0, factor in 1.0f64..8.0, tensor in 0u32..4, pipeline in 0u32..3,
    ) {
        let (wide, mut job) = machine(narrow);
        let (narrower, _) = machine(narrow * factor);
        let (tensor, pipeline) = (1 << tensor, 1 << pipeline);
        job.parallelism = Parallelism { tensor, pipeline, data: 512 / tensor / pipeline, ..job.parallelism };
        job.global_batch = 512;
        let (fast, slow) = (time(&wide, &job).unwrap(), time(&narrower, &job).unwrap());
        prop_assert!(fast.total_s() <= slow.total_s() * (1.0 + 1e-12));
    }
}
