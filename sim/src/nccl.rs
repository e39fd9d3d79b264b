//! What NCCL makes of a fabric: for a size it takes the algorithm (ring or
//! tree) and protocol (LL, LL128, Simple) that its own tables say is fastest.
//!
//! Latencies are the library's and the same on every machine (NCCL 2.19,
//! src/graph/tuning.cc, `baseLatencies` and `hwLatencies`, in microseconds);
//! the share of the wire that each protocol reaches was fitted once for all
//! fabrics (`trinity validate --collectives`). A fabric brings a bandwidth and
//! what starting costs. One model: clusters use it through [`Link`], and
//! validation through [`Fabric`].

use crate::link::Link;

/// LL sends a flag with every word, LL128 one with every 120 bytes, Simple
/// none but a fence: index of each in the tables below.
const LL: usize = 0;
const LL128: usize = 1;
const SIMPLE: usize = 2;

const RING: usize = 0;
const TREE: usize = 1;
const BASE_US: [[f64; 3]; 2] = [[6.6, 14.0, 8.4], [6.8, 14.0, 8.4]];
const NVLINK_US: [[f64; 3]; 2] = [[0.6, 1.9, 3.4], [0.6, 1.25, 4.0]];
const PCIE_US: [[f64; 3]; 2] = [[1.0, 2.5, 5.7], [1.0, 1.9, 4.0]];
const NETWORK_US: [[f64; 3]; 2] = [[2.7, 4.0, 14.0], [5.0, 8.5, 14.0]];

/// What LL128 and Simple take to start beyond the library's table: their
/// buffers are larger.
const BUFFER_US: [f64; 3] = [0.0, 3.9, 5.8];
/// Share of the wire that LL reaches: half of it is flags, and small messages
/// open few channels.
const LL_SHARE: f64 = 0.10;
/// Share of the library's bound of LL (`llMaxBws`) that it reaches.
const LL_BOUND_SHARE: f64 = 0.15;
/// Share that LL128 reaches: 120 of 128 bytes, part of the buffers in flight.
const LL128_SHARE: f64 = 0.72;
/// Share that a tree of Simple reaches where there are more than two ranks.
const TREE_SHARE: f64 = 0.77;
/// Of a node's channels, those that a ring of n ranks leaves unused: this over n.
const IDLE_CHANNELS: f64 = 0.42;
/// Share of a NIC that a ring reaches: it sends and receives at once.
const RING_NIC_SHARE: f64 = 0.69;
/// NICs of a node that rings use at most.
const MOST_RAILS: f64 = 4.0;

/// What carries the ring inside a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Switched, or one bridge: fewer ranks open fewer channels.
    NvLink,
    /// A mesh whose rings are counted by the caller.
    NvLinkMesh,
    /// Too slow for LL128, which NCCL leaves out.
    Pcie,
}

/// The inside of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Bus bandwidth of a large message.
    pub bytes_per_s: f64,
    /// The most that NCCL allows LL (`llMaxBws`).
    pub ll_bytes_per_s: f64,
    /// Time before the first byte, beside NCCL's own base latency.
    pub launch_s: f64,
    /// Latency of a hop over that of NCCL's table.
    pub hop: f64,
    pub wire: Wire,
}

/// Between nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// One NIC.
    pub bytes_per_s: f64,
    /// Latency of a hop over that of NCCL's table.
    pub hop: f64,
    /// Bytes of a rank's share at which half of the rails are in use: NCCL opens
    /// channels, and with them NICs, as messages grow.
    pub channel_bytes: f64,
}

impl Fabric {
    /// A link whose bandwidth is that of the group already, and whose latency
    /// is that of a hop of Simple around a ring.
    fn of(link: &Link) -> Self {
        Self {
            bytes_per_s: link.bytes_per_s,
            ll_bytes_per_s: f64::INFINITY,
            launch_s: link.launch_s,
            hop: link.latency_s * 1e6 / NVLINK_US[RING][SIMPLE],
            wire: Wire::NvLinkMesh,
        }
    }
}

/// Fraction of a node's bandwidth that a ring of `ranks` inside it uses: fewer
/// ranks open fewer channels.
pub fn channels_used(ranks: u32) -> f64 {
    1.0 - IDLE_CHANNELS / f64::from(ranks.max(1))
}

/// Time of an all-reduce of `bytes` over `ranks` of a link.
pub fn all_reduce_s(link: &Link, ranks: u32, bytes: f64) -> f64 {
    group_all_reduce_s(&Fabric::of(link), None, ranks, ranks, bytes)
}

/// Time of one half of an all-reduce, a reduce-scatter or an all-gather. Both
/// run around the ring only.
pub fn half_all_reduce_s(link: &Link, ranks: u32, bytes: f64) -> f64 {
    let fabric = Fabric::of(link);
    let n = f64::from(ranks);
    let time_s = |protocol: usize| {
        let rate = fabric.bytes_per_s * share(&fabric, fabric.bytes_per_s, (RING, protocol), false);
        let hops_us = (n - 1.0) * fabric.hop * NVLINK_US[RING][protocol];
        let latency_us = BASE_US[RING][protocol] + BUFFER_US[protocol] + hops_us;
        fabric.launch_s + 1e-6 * latency_us + (n - 1.0) / n * bytes / rate
    };
    [LL, LL128, SIMPLE].into_iter().map(time_s).fold(f64::INFINITY, f64::min)
}

/// Time to send `bytes` to one peer of a link.
pub fn send_recv_s(link: &Link, bytes: f64) -> f64 {
    send_s(link.bytes_per_s, link.launch_s + link.latency_s, bytes)
}

/// Time to send `bytes` to one peer.
pub fn send_s(bytes_per_s: f64, launch_s: f64, bytes: f64) -> f64 {
    launch_s + bytes / bytes_per_s
}

/// Time of an all-reduce of `bytes` over `ranks`, `per_node` of them in a node.
pub fn group_all_reduce_s(
    fabric: &Fabric,
    network: Option<&Network>,
    ranks: u32,
    per_node: u32,
    bytes: f64,
) -> f64 {
    let n = f64::from(ranks);
    let wire_bytes = 2.0 * (n - 1.0) / n * bytes;
    let whole = whole_rate(fabric, network, (n, f64::from(per_node)), bytes);
    let mut fastest_s = f64::INFINITY;
    for algorithm in [RING, TREE] {
        for protocol in [LL, LL128, SIMPLE] {
            if protocol == LL128 && fabric.wire == Wire::Pcie {
                continue;
            }
            let slow_tree = network.is_none() && ranks > 2;
            let rate = whole * share(fabric, whole, (algorithm, protocol), slow_tree);
            let latency_us = latency_us(fabric, network, (algorithm, protocol), (ranks, per_node));
            fastest_s = fastest_s.min(fabric.launch_s + 1e-6 * latency_us + wire_bytes / rate);
        }
    }
    fastest_s
}

/// Bus bandwidth of Simple around a ring.
fn whole_rate(fabric: &Fabric, network: Option<&Network>, (n, per_node): (f64, f64), bytes: f64) -> f64 {
    match (network, fabric.wire) {
        (Some(network), _) => {
            let share = bytes / n;
            let most = per_node.clamp(1.0, MOST_RAILS);
            let rails = (most * share / (share + network.channel_bytes)).max(1.0);
            network.bytes_per_s * RING_NIC_SHARE * rails
        }
        (None, Wire::NvLink) => fabric.bytes_per_s * (1.0 - IDLE_CHANNELS / n),
        (None, Wire::NvLinkMesh | Wire::Pcie) => fabric.bytes_per_s,
    }
}

/// Share of the wire that an algorithm and protocol reach.
fn share(fabric: &Fabric, whole: f64, (algorithm, protocol): (usize, usize), slow_tree: bool) -> f64 {
    match protocol {
        LL => LL_SHARE.min(LL_BOUND_SHARE * fabric.ll_bytes_per_s / whole),
        LL128 => LL128_SHARE,
        _ if algorithm == TREE && slow_tree => TREE_SHARE,
        _ => 1.0,
    }
}

/// Steps inside nodes and between them, one after the other.
fn latency_us(
    fabric: &Fabric,
    network: Option<&Network>,
    (algorithm, protocol): (usize, usize),
    (ranks, per_node): (u32, u32),
) -> f64 {
    let inside = match fabric.wire {
        Wire::Pcie => PCIE_US,
        Wire::NvLink | Wire::NvLinkMesh => NVLINK_US,
    }[algorithm][protocol];
    let (n, per) = (f64::from(ranks), f64::from(per_node));
    let nodes = (n / per).max(1.0);
    let between = network.map_or(0.0, |network| network.hop * NETWORK_US[algorithm][protocol]);
    let (steps_inside, steps_between) = match (algorithm, network) {
        (RING, None) => (2.0 * (n - 1.0), 0.0),
        (RING, Some(_)) => (2.0 * (n - nodes), 2.0 * (nodes - 1.0)),
        (_, None) => (2.0 * n.log2(), 0.0),
        (_, Some(_)) => (2.0 * (per - 1.0), 2.0 * nodes.log2()),
    };
    let hops_us = steps_inside * fabric.hop * inside + steps_between * between;
    BASE_US[algorithm][protocol] + BUFFER_US[protocol] + hops_us
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Fabric =
        Fabric { bytes_per_s: 240e9, ll_bytes_per_s: 88e9, launch_s: 19e-6, hop: 1.0, wire: Wire::NvLink };

    #[test]
    fn more_bytes_and_more_ranks_never_take_less() {
        let network = Network { bytes_per_s: 6e9, hop: 2.0, channel_bytes: 2e5 };
        for outside in [None, Some(&network)] {
            let mut before = 0.0;
            for log2 in 8..32 {
                let time = group_all_reduce_s(&NODE, outside, 16, 8, f64::from(1u32 << log2.min(31)));
                assert!(time >= before, "2^{log2} bytes");
                before = time;
            }
        }
        let of = |ranks| group_all_reduce_s(&NODE, None, ranks, 8, 1e9);
        assert!((2..8).all(|ranks| of(ranks + 1) > of(ranks)));
    }

    #[test]
    fn a_gibibyte_over_eight_a100_takes_what_nccl_tests_print() {
        // 939,524,096 bytes: 7,223.6 µs.
        let time = group_all_reduce_s(&NODE, None, 8, 8, 939_524_096.0);
        assert!((time / 7_223.6e-6 - 1.0).abs() < 0.03, "{time}");
    }

    #[test]
    fn small_messages_take_ll_and_large_ones_simple() {
        let small = group_all_reduce_s(&NODE, None, 8, 8, 1024.0);
        assert!(small < NODE.launch_s + 1e-6 * (BASE_US[TREE][LL] + 6.0 * 0.6 + 1.0), "{small}");
        let pcie = Fabric { wire: Wire::Pcie, ..NODE };
        let middle = |fabric| group_all_reduce_s(fabric, None, 4, 4, 1e6);
        assert!(middle(&pcie) > middle(&NODE), "no LL128 over PCIe");
    }
}
