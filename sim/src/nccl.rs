//! What NCCL makes of a link: three protocols, of which the library picks the
//! one that is fastest at the size.
//!
//! The shapes of the protocols relative to each other are NCCL's and the same
//! on every machine; bandwidth, latency and launch are the link's. Fitted on
//! nccl-tests and kernel traces of A100, V100 and H100 nodes (`trinity
//! validate --collectives`).

use crate::collective::Link;

/// One protocol relative to the link's own constants.
struct Protocol {
    /// Launches this protocol costs, in those of the link.
    launch: f64,
    /// Hop latency relative to the link's.
    latency: f64,
    /// Fraction of the link's bandwidth.
    bandwidth: f64,
    steps: Steps,
}

/// How many hops lie one after the other.
enum Steps {
    /// Around the ring, once for each half of an all-reduce.
    Ring,
    /// Up and down a tree.
    Tree,
}

/// Simple moves most and waits for memory fences; LL128 sends flags with the
/// data; LL sends a flag with every word.
const PROTOCOLS: [Protocol; 3] = [
    Protocol { launch: 0.95, latency: 1.0, bandwidth: 1.0, steps: Steps::Ring },
    Protocol { launch: 0.97, latency: 0.27, bandwidth: 0.17, steps: Steps::Tree },
    Protocol { launch: 0.103, latency: 0.234, bandwidth: 0.0025, steps: Steps::Tree },
];

/// Fraction of a node's bandwidth that a ring of `ranks` inside it uses: fewer
/// ranks open fewer channels.
pub fn channels_used(ranks: u32) -> f64 {
    1.0 - 0.39 / f64::from(ranks.max(1))
}

/// NICs of a node that a ring over several nodes uses when `ranks_per_node` of
/// its ranks sit in each: one a rank, up to the four rails that NCCL opens.
pub fn rails_used(ranks_per_node: u32) -> f64 {
    f64::from(ranks_per_node.clamp(1, 4))
}

/// Time of an all-reduce of `bytes` over `ranks`.
pub fn all_reduce_s(link: &Link, ranks: u32, bytes: f64) -> f64 {
    let n = f64::from(ranks);
    let ring = 2.0 * (n - 1.0);
    let tree = 2.0 * f64::from(ranks.next_power_of_two().trailing_zeros());
    fastest(link, ring, tree, ring / n * bytes)
}

/// Time of one half of an all-reduce, a reduce-scatter or an all-gather. Both
/// run around the ring only.
pub fn half_all_reduce_s(link: &Link, ranks: u32, bytes: f64) -> f64 {
    let n = f64::from(ranks);
    let ring = n - 1.0;
    fastest(link, ring, ring, ring / n * bytes)
}

/// Time to send `bytes` to one peer.
pub fn send_recv_s(link: &Link, bytes: f64) -> f64 {
    fastest(link, 1.0, 1.0, bytes)
}

fn fastest(link: &Link, ring_steps: f64, tree_steps: f64, wire_bytes: f64) -> f64 {
    let mut fastest_s = f64::INFINITY;
    for protocol in &PROTOCOLS {
        let steps = match protocol.steps {
            Steps::Ring => ring_steps,
            Steps::Tree => tree_steps,
        };
        let time_s = protocol.launch * link.launch_s
            + protocol.latency * steps * link.latency_s
            + wire_bytes / (link.bytes_per_s * protocol.bandwidth);
        fastest_s = fastest_s.min(time_s);
    }
    fastest_s
}
