//! Collectives in closed form: ring, halving-doubling, double tree, direct,
//! on rings, switches and fully connected groups, raw or compressed.
//!
//! Sizes are in tensor values; a [`Channel`] says how many bits each is and
//! what the codec adds. The forms for one uncompressed chunk are those that
//! ASTRA-sim's analytical backends compute, so they can be held against it.

pub use crate::link::{Algorithm, Link, Switching, Topology};

use crate::compression::{Channel, Reduction, Stages};
use crate::nccl;

/// All ranks end with the sum of `values` from each.
pub fn all_reduce(channel: &Channel, ranks: u32, values: f64) -> f64 {
    all_reduce_by(channel, channel.link.all_reduce, ranks, values)
}

/// Bytes of `values` when NCCL carries them itself, without a codec.
fn nccl_bytes(channel: &Channel, algorithm: Algorithm, values: f64) -> Option<f64> {
    (algorithm == Algorithm::Nccl && !channel.is_coded()).then_some(values * channel.wire_bits / 8.0)
}

/// [`all_reduce`] with the algorithm named.
pub fn all_reduce_by(channel: &Channel, algorithm: Algorithm, ranks: u32, values: f64) -> f64 {
    if ranks < 2 {
        return 0.0;
    }
    if let Some(bytes) = nccl_bytes(channel, algorithm, values) {
        return nccl::all_reduce_s(&channel.link, ranks, bytes);
    }
    match algorithm {
        Algorithm::InNetwork if !channel.is_coded() => in_network(channel, ranks, values),
        Algorithm::Ring | Algorithm::Nccl | Algorithm::Hierarchical | Algorithm::InNetwork => {
            ring_reduce_scatter(channel, ranks, values) + ring_all_gather(channel, ranks, values)
        }
        Algorithm::HalvingDoubling => halving_doubling(channel, ranks, values),
        Algorithm::DoubleTree => double_tree(channel, ranks, values),
        Algorithm::Direct => direct_exchange(channel, ranks, values) + direct_gather(channel, ranks, values),
        Algorithm::Best => {
            all_reduce_by(channel, Algorithm::Ring, ranks, values).min(double_tree(channel, ranks, values))
        }
    }
}

/// Up to the switch that sees all ranks and down again, values streaming: each
/// link carries them once in each direction.
fn in_network(channel: &Channel, ranks: u32, values: f64) -> f64 {
    let hops = 2.0 * channel.link.hops(1, ranks);
    channel.link.launch_s + hops * channel.link.latency_s + channel.stages(values).wire_s
}

/// Each rank ends with its share of the sum.
pub fn reduce_scatter(channel: &Channel, ranks: u32, values: f64) -> f64 {
    half_all_reduce(channel, ranks, values, direct_exchange, ring_reduce_scatter)
}

/// Each rank starts with its share of `values` and ends with all.
pub fn all_gather(channel: &Channel, ranks: u32, values: f64) -> f64 {
    half_all_reduce(channel, ranks, values, direct_gather, ring_all_gather)
}

/// One half of an all-reduce, by the link's algorithm.
fn half_all_reduce(
    channel: &Channel,
    ranks: u32,
    values: f64,
    direct: fn(&Channel, u32, f64) -> f64,
    ring: fn(&Channel, u32, f64) -> f64,
) -> f64 {
    let algorithm = channel.link.all_reduce;
    match (ranks, algorithm, nccl_bytes(channel, algorithm, values)) {
        (0 | 1, ..) => 0.0,
        (_, _, Some(bytes)) => nccl::half_all_reduce_s(&channel.link, ranks, bytes),
        (_, Algorithm::Direct, None) => direct(channel, ranks, values),
        _ => ring(channel, ranks, values),
    }
}

/// Each rank has `values`, an equal piece of them for every rank: direct, or
/// handed from neighbour to neighbour around a ring.
pub fn all_to_all_by(channel: &Channel, algorithm: Algorithm, ranks: u32, values: f64) -> f64 {
    match (ranks, algorithm) {
        (0 | 1, _) => 0.0,
        (_, Algorithm::Ring) => {
            // The piece for the k-th neighbour travels k steps.
            let steps = f64::from(ranks) * f64::from(ranks - 1) / 2.0;
            let (latency_s, stages) = ring_step(channel, ranks, values);
            steps * latency_s
                + channel.codec_latency_s
                + stages.pipelined_s()
                + (steps - 1.0) * stages.forwarded_s()
        }
        _ => direct_exchange(channel, ranks, values),
    }
}

/// Each rank sends `values` of its own, in pieces to many others, over its own
/// wire; the latency is that of the last piece.
pub fn exchange(channel: &Channel, values: f64) -> f64 {
    if values <= 0.0 {
        return 0.0;
    }
    let latency_s = channel.link.neighbour_s() + channel.link.launch_s;
    latency_s + channel.codec_latency_s + channel.stages(values).pipelined_s()
}

/// One rank sends `values` to its neighbour.
pub fn send_recv(channel: &Channel, values: f64) -> f64 {
    if values <= 0.0 {
        return 0.0;
    }
    if let Some(bytes) = nccl_bytes(channel, channel.link.all_reduce, values) {
        return nccl::send_recv_s(&channel.link, bytes);
    }
    let hops = channel.link.hops(1, 2);
    let mut stages = channel.stages(values);
    stages.wire_s *= channel.link.serializations(hops);
    hops * channel.link.latency_s + channel.codec_latency_s + stages.pipelined_s()
}

/// n − 1 steps; with a codec, decode–add–encode at each, or one exchange in
/// which every rank collects the pieces of its shard.
fn ring_reduce_scatter(channel: &Channel, ranks: u32, values: f64) -> f64 {
    if channel.is_coded() && channel.reduction == Reduction::Gather {
        return direct_exchange(channel, ranks, values);
    }
    let (latency_s, stages) = ring_step(channel, ranks, values);
    f64::from(ranks - 1) * (latency_s + channel.codec_latency_s + stages.pipelined_s())
}

/// n − 1 steps; with a codec, each piece is encoded once and forwarded as is.
fn ring_all_gather(channel: &Channel, ranks: u32, values: f64) -> f64 {
    let (latency_s, stages) = ring_step(channel, ranks, values);
    f64::from(ranks - 1) * latency_s
        + channel.codec_latency_s
        + stages.pipelined_s()
        + f64::from(ranks - 2) * stages.forwarded_s()
}

/// One step of a ring: latency to the neighbour, and the n-th part of the
/// values through codec and wire.
fn ring_step(channel: &Channel, ranks: u32, values: f64) -> (f64, Stages) {
    let hops = channel.link.hops(1, ranks);
    let mut stages = channel.stages(values / f64::from(ranks));
    stages.wire_s *= channel.link.serializations(hops);
    (hops * channel.link.latency_s, stages)
}

fn halving_doubling(channel: &Channel, ranks: u32, values: f64) -> f64 {
    let steps = ranks.next_power_of_two().trailing_zeros();
    let mut total = 0.0;
    for i in 0..steps {
        let distance = 1 << i;
        let hops = channel.link.hops(distance, ranks);
        let mut stages = channel.stages(values / f64::from(2u32 << i));
        stages.wire_s *= channel.link.serializations(hops);
        total += 2.0 * (hops * channel.link.latency_s + channel.codec_latency_s) + 2.0 * stages.pipelined_s();
    }
    // Ranks beyond the power of two fold in before and out after.
    if ranks.is_power_of_two() { total } else { total + 2.0 * send_recv(channel, values) }
}

/// Up a binary tree and down again, twice with half the values. Real hardware
/// pipelines chunks through the levels; the one-chunk form pays the full size
/// at each, over the distance that the level spans.
fn double_tree(channel: &Channel, ranks: u32, values: f64) -> f64 {
    let link = &channel.link;
    let levels = ranks.next_power_of_two().trailing_zeros();
    let stages = channel.stages(values);
    if link.switching == Switching::CutThrough {
        let hop_s = link.hops(1, ranks) * link.latency_s + channel.codec_latency_s;
        return 2.0 * f64::from(levels) * hop_s + 2.0 * stages.pipelined_s();
    }
    let mut total = 0.0;
    for level in 0..levels {
        let hops = link.hops(1 << level, ranks.next_power_of_two());
        let mut stages = stages;
        stages.wire_s *= match (link.switching, link.topology) {
            // Both children meet at the switch's port, but the root has one.
            (Switching::StoreAndForward, Topology::Switch) if level + 1 < levels => 3.0,
            _ => link.serializations(hops),
        };
        total += 2.0 * (hops * link.latency_s + channel.codec_latency_s + stages.pipelined_s());
    }
    total
}

/// Every rank sends a different piece to every other: the first half of a
/// direct all-reduce, and an all-to-all.
fn direct_exchange(channel: &Channel, ranks: u32, values: f64) -> f64 {
    direct(channel, ranks, values, f64::from(ranks - 1))
}

/// Every rank sends the same piece to every other: encoded once.
fn direct_gather(channel: &Channel, ranks: u32, values: f64) -> f64 {
    direct(channel, ranks, values, 1.0)
}

/// Every rank encodes so many pieces, and decodes one of every other.
fn direct(channel: &Channel, ranks: u32, values: f64, encoded: f64) -> f64 {
    let hops = channel.link.direct_hops(ranks);
    let mut stages = channel.stages(values / f64::from(ranks));
    stages.wire_s *= channel.link.direct_load(ranks);
    stages.encode_s *= encoded;
    stages.decode_s *= f64::from(ranks - 1);
    stages.chunks *= encoded;
    hops * channel.link.latency_s + channel.codec_latency_s + stages.pipelined_s()
}
