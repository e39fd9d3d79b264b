//! One rank's view of the wires of its group: topology, rates and latencies.
//!
//! Plain data that collectives, codecs on the wire and NCCL's protocols all
//! start from. Knows nothing of what is sent.

/// How ranks are wired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each rank has one link to each of two neighbours.
    Ring,
    /// Each rank has one link to a switch.
    Switch,
    /// Each pair has a link of its own.
    FullyConnected,
}

/// How an all-reduce is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Ring,
    HalvingDoubling,
    DoubleTree,
    /// Everyone to everyone, in one step each for scatter and gather.
    Direct,
    /// The faster of ring and double tree at this size.
    Best,
    /// Reduced inside nodes first: each member's share crosses its own adapter.
    /// Inside a node, a ring.
    Hierarchical,
    /// Switches add what passes through them (SHARP): each rank sends its
    /// values once and receives the sum. With a codec, a ring: switches cannot
    /// add what they cannot read.
    InNetwork,
    /// What NCCL's protocols measure ([`crate::nccl`]); with a codec, a ring.
    Nccl,
}

/// What happens when messages meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switching {
    /// Switches forward while receiving; messages on one link share it.
    CutThrough,
    /// Each hop receives the whole message first; messages on one link queue
    /// (ASTRA-sim's congestion-aware backend).
    StoreAndForward,
    /// Every message has the network to itself (ASTRA-sim's congestion-unaware
    /// backend): optimistic for direct exchanges.
    Uncontended,
}

/// One rank's view of the wires of its group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// One direction of one link.
    pub bytes_per_s: f64,
    /// Latency of one hop.
    pub latency_s: f64,
    /// What starting a collective costs before the first byte moves; only
    /// [`Algorithm::Nccl`] asks.
    pub launch_s: f64,
    pub topology: Topology,
    pub switching: Switching,
    pub all_reduce: Algorithm,
    pub energy_j_per_bit: f64,
}

impl Link {
    /// Latency between neighbours.
    pub fn neighbour_s(&self) -> f64 {
        self.hops(1, 2) * self.latency_s
    }

    /// Hops between ranks `distance` apart in a group of `ranks`.
    pub(crate) fn hops(&self, distance: u32, ranks: u32) -> f64 {
        match self.topology {
            Topology::Ring => f64::from(distance.min(ranks - distance).max(1)),
            Topology::Switch => 2.0,
            Topology::FullyConnected => 1.0,
        }
    }

    /// Times a message occupies a link on its way over `hops`.
    pub(crate) fn serializations(&self, hops: f64) -> f64 {
        match self.switching {
            Switching::StoreAndForward => hops,
            Switching::CutThrough | Switching::Uncontended => 1.0,
        }
    }

    /// Hops whose latency shows in a direct exchange: the farthest pair's, but
    /// where messages queue, the queue hides all but the last two.
    pub(crate) fn direct_hops(&self, ranks: u32) -> f64 {
        let farthest = self.hops(ranks / 2, ranks);
        match self.switching {
            Switching::StoreAndForward => farthest.min(2.0),
            Switching::CutThrough | Switching::Uncontended => farthest,
        }
    }

    /// How many times longer than one message a rank's link is busy when each
    /// of `ranks` sends one message to every other.
    pub(crate) fn direct_load(&self, ranks: u32) -> f64 {
        let peers = f64::from(ranks - 1);
        match (self.switching, self.topology) {
            (Switching::Uncontended, _) | (_, Topology::FullyConnected) => 1.0,
            (Switching::CutThrough, Topology::Switch) => peers,
            // The last message still has to leave the switch.
            (Switching::StoreAndForward, Topology::Switch) => peers + 1.0,
            // Shortest paths, opposite ranks all taking the same way round: the
            // busier direction carries each distance from one to the farthest.
            (_, Topology::Ring) => f64::from(ranks / 2 * (ranks / 2 + 1)) / 2.0,
        }
    }
}
