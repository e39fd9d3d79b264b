//! Switches between nodes, level by level: what is reached beneath each, what
//! its uplinks carry, what a hop costs.
//!
//! Plain data and the sums over it; who sends what is [`crate::hardware`]'s and
//! [`crate::schedule`]'s business.

/// One level of switches; absent where it reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// GPUs beneath one switch of this level, or beneath one group of switches
    /// that are wired alike (rails).
    pub reach: u32,
    /// Bandwidth into the level from below over that out of it above.
    pub oversubscription: f64,
    /// Added by each switch that is crossed.
    pub latency_s: f64,
    /// One port.
    pub port_bytes_per_s: f64,
    pub port_idle_w: f64,
    /// Energy of a bit that passes through, beside what the ports idle at.
    pub energy_j_per_bit: f64,
}

impl Level {
    /// No switches.
    pub const NONE: Self = Self {
        reach: 0,
        oversubscription: 1.0,
        latency_s: 0.0,
        port_bytes_per_s: 1.0,
        port_idle_w: 0.0,
        energy_j_per_bit: 0.0,
    };
}

/// The levels of a fabric, from the nodes up. Those that are not there come
/// last; a fabric of none carries everything at the adapters' rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    pub leaf: Level,
    pub spine: Level,
    pub core: Level,
}

/// What a group that spans so many GPUs finds between its nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Latency of all switches on the longest way.
    pub latency_s: f64,
    pub energy_j_per_bit: f64,
}

impl Levels {
    /// A fabric without a bottleneck, and without a price.
    pub const NONE: Self = Self { leaf: Level::NONE, spine: Level::NONE, core: Level::NONE };

    /// The levels that are there.
    fn present(&self) -> impl Iterator<Item = &Level> {
        [&self.leaf, &self.spine, &self.core].into_iter().filter(|level| level.reach > 0)
    }

    /// The way of a bit between the ends of a group that spans `span` GPUs: up
    /// to the level that reaches all of them, and down again.
    pub fn crossing(&self, span: u64) -> Crossing {
        let mut way = Crossing { latency_s: 0.0, energy_j_per_bit: 0.0 };
        for level in self.present() {
            let top = u64::from(level.reach) >= span;
            let switches = if top { 1.0 } else { 2.0 };
            way.latency_s += switches * level.latency_s;
            way.energy_j_per_bit += switches * level.energy_j_per_bit;
            if top {
                break;
            }
        }
        way
    }

    /// Share of an adapter's rate that the narrowest uplinks leave to each
    /// member of a group: `size` ranks, `stride` GPUs apart, of whose traffic
    /// `crosses(beneath)` leaves a level that has so many members beneath one switch.
    pub fn narrowest(&self, size: u32, stride: u32, crosses: impl Fn(f64) -> f64) -> f64 {
        let span = u64::from(size) * u64::from(stride);
        let mut share = 1.0;
        let mut least = f64::INFINITY;
        for level in self.present() {
            if u64::from(level.reach) >= span {
                break;
            }
            share /= level.oversubscription.max(1.0);
            let beneath = f64::from((level.reach / stride.max(1)).clamp(1, size));
            least = least.min(share / crosses(beneath));
        }
        least
    }

    /// Watts of the ports that each adapter of `bytes_per_s` keeps up in a
    /// cluster of `gpus`, `per_node` in a node: a port down and one up at each
    /// level, fewer where uplinks are fewer, none above the level that reaches all.
    pub fn idle_w_per_nic(&self, gpus: u32, per_node: u32, bytes_per_s: f64) -> f64 {
        let (mut below, mut share, mut watts) = (per_node, 1.0, 0.0);
        for level in self.present() {
            if gpus <= below {
                break;
            }
            let up = if gpus > level.reach { share / level.oversubscription.max(1.0) } else { 0.0 };
            watts += (share + up) * bytes_per_s / level.port_bytes_per_s * level.port_idle_w;
            share /= level.oversubscription.max(1.0);
            below = level.reach;
        }
        watts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Levels {
        let leaf = Level {
            reach: 256,
            oversubscription: 4.0,
            latency_s: 0.3e-6,
            port_bytes_per_s: 50e9,
            port_idle_w: 10.0,
            energy_j_per_bit: 5e-12,
        };
        Levels { leaf, spine: Level { reach: 4096, oversubscription: 1.0, ..leaf }, core: Level::NONE }
    }

    #[test]
    fn a_bit_climbs_as_far_as_its_group_spans() {
        let levels = two();
        assert_eq!(levels.crossing(256).latency_s, 0.3e-6);
        assert!((levels.crossing(257).latency_s - 0.9e-6).abs() < 1e-15);
        assert!((levels.crossing(4096).energy_j_per_bit - 15e-12).abs() < 1e-20);
        assert_eq!(Levels::NONE.crossing(9).latency_s, 0.0);
    }

    #[test]
    fn uplinks_bind_what_crosses_them_and_nothing_else() {
        let levels = two();
        // Inside a leaf nothing is narrow.
        assert_eq!(levels.narrowest(32, 8, |_| 1.0), f64::INFINITY);
        // Everyone sends across: a fourth each.
        assert_eq!(levels.narrowest(64, 8, |_| 1.0), 0.25);
        // A ring crosses once for all 32 members beneath: they share its load.
        assert_eq!(levels.narrowest(64, 8, |beneath| 1.0 / beneath), 8.0);
    }

    #[test]
    fn ports_are_paid_for_as_far_as_a_cluster_needs_them() {
        let levels = two();
        assert_eq!(levels.idle_w_per_nic(8, 8, 50e9), 0.0);
        assert_eq!(levels.idle_w_per_nic(256, 8, 50e9), 10.0);
        assert_eq!(levels.idle_w_per_nic(4096, 8, 50e9), 15.0);
    }
}
