//! NCCL's choice by its own tables: for a size it takes the algorithm (ring or
//! tree) and protocol (LL, LL128, Simple) whose latency and bandwidth say is
//! fastest. Latencies and bandwidth ratios are the library's and the same on
//! every machine; a fabric brings a bandwidth and what starting costs.
//!
//! Latencies: NCCL 2.19, src/graph/tuning.cc, `baseLatencies` and
//! `hwLatencies`, in microseconds.

/// LL sends a flag with every word, LL128 one with every 120 bytes, Simple
/// none but a fence: index of each in the tables below.
const LL: usize = 0;
const LL128: usize = 1;
const SIMPLE: usize = 2;

/// Ring and tree.
const BASE_US: [[f64; 3]; 2] = [[6.6, 14.0, 8.4], [6.8, 14.0, 8.4]];
const NVLINK_US: [[f64; 3]; 2] = [[0.6, 1.9, 3.4], [0.6, 1.25, 4.0]];
const PCIE_US: [[f64; 3]; 2] = [[1.0, 2.5, 5.7], [1.0, 1.9, 4.0]];
const NETWORK_US: [[f64; 3]; 2] = [[2.7, 4.0, 14.0], [5.0, 8.5, 14.0]];
const RING: usize = 0;
const TREE: usize = 1;

/// Share of the link that LL128 reaches in a ring: 120 of 128 bytes, and half
/// of the channels' buffers in flight.
const LL128_SHARE: f64 = 0.46;
/// Share that a tree of Simple reaches where there are more than two ranks.
const TREE_SHARE: f64 = 0.85;
/// Of a node's channels, those that a ring of n ranks leaves unused: this over n.
const IDLE_CHANNELS: f64 = 0.39;
/// NICs of a node that rings use at most.
const MOST_RAILS: f64 = 4.0;

/// What carries the ring inside a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Switched, or one bridge: fewer ranks open fewer channels.
    NvLink,
    /// A mesh whose rings are counted by the caller.
    NvLinkMesh,
    Pcie,
}

/// The inside of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Bus bandwidth of a large message.
    pub bytes_per_s: f64,
    /// The most LL moves: half of it is flags.
    pub ll_bytes_per_s: f64,
    /// Before the first byte, beside NCCL's own base latency.
    pub launch_s: f64,
    pub wire: Wire,
}

/// Between nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// One NIC.
    pub bytes_per_s: f64,
    /// Latency of a hop over that of NCCL's table.
    pub hop: f64,
    /// Bytes of a rank's share for which NCCL opens one more channel, and with
    /// it another NIC.
    pub channel_bytes: f64,
}

/// Time of an all-reduce of `bytes` over `ranks`, `per_node` of them in a node.
pub fn all_reduce_s(
    fabric: &Fabric,
    network: Option<&Network>,
    ranks: u32,
    per_node: u32,
    bytes: f64,
) -> f64 {
    let n = f64::from(ranks);
    let wire_bytes = 2.0 * (n - 1.0) / n * bytes;
    let mut fastest_s = f64::INFINITY;
    for algorithm in [RING, TREE] {
        for protocol in [LL, LL128, SIMPLE] {
            let rate = rate(fabric, network, (algorithm, protocol), (n, f64::from(per_node)), bytes);
            let latency_s =
                1e-6 * latency_us(fabric, network, (algorithm, protocol), (n, f64::from(per_node)));
            fastest_s = fastest_s.min(fabric.launch_s + latency_s + wire_bytes / rate);
        }
    }
    fastest_s
}

/// Time to send `bytes` to one peer.
pub fn send_s(bytes_per_s: f64, launch_s: f64, bytes: f64) -> f64 {
    launch_s + bytes / bytes_per_s
}

fn rate(
    fabric: &Fabric,
    network: Option<&Network>,
    (algorithm, protocol): (usize, usize),
    (n, per_node): (f64, f64),
    bytes: f64,
) -> f64 {
    let whole = match (network, fabric.wire) {
        (Some(network), _) => {
            let rails = (bytes / n / network.channel_bytes).clamp(1.0, per_node.min(MOST_RAILS));
            network.bytes_per_s * rails
        }
        (None, Wire::NvLink) => fabric.bytes_per_s * (1.0 - IDLE_CHANNELS / n),
        (None, Wire::NvLinkMesh | Wire::Pcie) => fabric.bytes_per_s,
    };
    match protocol {
        LL => 0.5 * whole.min(fabric.ll_bytes_per_s),
        LL128 => LL128_SHARE * whole,
        _ if algorithm == TREE && network.is_none() && n > 2.0 => TREE_SHARE * whole,
        _ => whole,
    }
}

/// Steps inside nodes and between them, one after the other.
fn latency_us(
    fabric: &Fabric,
    network: Option<&Network>,
    (algorithm, protocol): (usize, usize),
    (n, per_node): (f64, f64),
) -> f64 {
    let inside = match fabric.wire {
        Wire::Pcie => PCIE_US,
        Wire::NvLink | Wire::NvLinkMesh => NVLINK_US,
    }[algorithm][protocol];
    let nodes = (n / per_node).max(1.0);
    let between = network.map_or(0.0, |network| network.hop * NETWORK_US[algorithm][protocol]);
    let (steps_inside, steps_between) = match (algorithm, network) {
        (RING, None) => (2.0 * (n - 1.0), 0.0),
        (RING, Some(_)) => (2.0 * (n - nodes), 2.0 * (nodes - 1.0)),
        (_, None) => (2.0 * n.log2(), 0.0),
        (_, Some(_)) => (2.0 * (per_node - 1.0), 2.0 * nodes.log2()),
    };
    BASE_US[algorithm][protocol] + steps_inside * inside + steps_between * between
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Fabric =
        Fabric { bytes_per_s: 240e9, ll_bytes_per_s: 88e9, launch_s: 25e-6, wire: Wire::NvLink };

    #[test]
    fn more_bytes_and_more_ranks_never_take_less() {
        let network = Network { bytes_per_s: 6e9, hop: 2.0, channel_bytes: 2e5 };
        for outside in [None, Some(&network)] {
            let mut before = 0.0;
            for log2 in 8..32 {
                let time = all_reduce_s(&NODE, outside, 16, 8, f64::from(1u32 << log2.min(31)));
                assert!(time >= before, "2^{log2} bytes");
                before = time;
            }
        }
        let of = |ranks| all_reduce_s(&NODE, None, ranks, 8, 1e9);
        assert!((2..8).all(|ranks| of(ranks + 1) > of(ranks)));
    }

    #[test]
    fn a_gibibyte_over_eight_a100_takes_what_nccl_tests_print() {
        // 939,524,096 bytes: 7,223.6 µs.
        let time = all_reduce_s(&NODE, None, 8, 8, 939_524_096.0);
        assert!((time / 7_223.6e-6 - 1.0).abs() < 0.03, "{time}");
    }
}
