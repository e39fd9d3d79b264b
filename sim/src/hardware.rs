//! GPUs, NICs and the cluster they form: plain data with units in the names.
//!
//! Every value comes from a configuration file that carries its source; this
//! module has no defaults and knows no product.

use crate::compression::Codec;
use crate::die::Die;
pub use crate::flops::PeakFlops;
use crate::kernels::Kernels;
use crate::levels::Levels;
use crate::link::{Algorithm, Link, Switching, Topology};
use crate::nccl;
use crate::software::Software;

/// A piecewise-linear curve over log2 of its abscissa: efficiency as data.
///
/// Eight points are enough for every published efficiency curve and keep the
/// type `Copy`. Outside its range the curve is flat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    log2_x: [f64; 8],
    y: [f64; 8],
    len: usize,
}

impl Curve {
    /// A curve of one value everywhere.
    pub fn constant(y: f64) -> Self {
        Self { log2_x: [0.0; 8], y: [y; 8], len: 1 }
    }

    /// A curve through `points` (x, y), x positive and rising. `None` when
    /// there are none, more than eight, or they are out of order.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        if points.is_empty() || points.len() > 8 {
            return None;
        }
        let mut curve = Self { log2_x: [0.0; 8], y: [0.0; 8], len: points.len() };
        for (i, &(x, y)) in points.iter().enumerate() {
            if !(x > 0.0 && y.is_finite()) || (i > 0 && points[i - 1].0 >= x) {
                return None;
            }
            curve.log2_x[i] = log2(x);
            curve.y[i] = y;
        }
        Some(curve)
    }

    /// The value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        let last = self.len - 1;
        let log2_x = log2(x);
        if self.len == 1 || log2_x <= self.log2_x[0] {
            return self.y[0];
        }
        if log2_x >= self.log2_x[last] {
            return self.y[last];
        }
        let mut i = 1;
        while log2_x > self.log2_x[i] {
            i += 1;
        }
        let fraction = (log2_x - self.log2_x[i - 1]) / (self.log2_x[i] - self.log2_x[i - 1]);
        self.y[i - 1] + fraction * (self.y[i] - self.y[i - 1])
    }

    /// The same curve with every ordinate multiplied: a sensitivity knob.
    pub fn scaled(mut self, factor: f64) -> Self {
        for y in &mut self.y {
            *y *= factor;
        }
        self
    }
}

/// log2 from the bits of the float: exact at powers of two, linear between
/// (at most 0.086 off), monotone, and the same on every platform, which a
/// libm call is not.
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as f64 - 1023.0;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    exponent + (mantissa - 1.0)
}

/// Curves of measured kernels that a GPU refers to; two are equal where they are
/// the same curves.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredKernels(pub &'static Kernels);

impl PartialEq for MeasuredKernels {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// One GPU as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    pub peak_flops: PeakFlops,
    pub memory_bytes: f64,
    /// What the driver, the runtime and fragmentation keep from the job.
    pub reserved_bytes: f64,
    pub memory_bytes_per_s: f64,
    /// Fraction of peak the matrix units reach, over the FLOPs of one GEMM.
    pub gemm_efficiency: Curve,
    /// Fraction of peak the attention kernel reaches, over its FLOPs.
    pub attention_efficiency: Curve,
    /// Fraction of memory bandwidth streaming kernels reach, over bytes moved.
    pub memory_efficiency: Curve,
    pub software: Software,
    /// What products were measured to take, where they are timed by that.
    pub kernels: Option<MeasuredKernels>,
    pub area_mm2: f64,
    /// Board power under full load.
    pub power_w: f64,
    pub idle_power_w: f64,
    /// The parts it is made of, where it is given by parts: they decide the
    /// totals above, and kernels are timed by them instead of by the curves.
    pub die: Option<Die>,
}

impl Gpu {
    /// Takes the totals of a die that was settled.
    pub fn total(&mut self, die: &Die) {
        self.peak_flops = die.peak_flops();
        self.memory_bytes = die.memory_bytes();
        self.memory_bytes_per_s = die.memory_bytes_per_s();
        self.area_mm2 = die.roofline.area_mm2;
        self.power_w = die.roofline.busy_power_w;
        self.idle_power_w = die.roofline.idle_power_w;
    }

    /// What a job can fill of the memory.
    pub fn usable_bytes(&self) -> f64 {
        self.memory_bytes * self.software.usable_memory
    }
}

/// One network interface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nic {
    pub bytes_per_s: f64,
    pub latency_s: f64,
    pub area_mm2: f64,
    pub idle_power_w: f64,
    /// Energy of each bit sent beyond what the idle adapter draws, both ends
    /// together: an adapter that sends receives as well.
    pub energy_j_per_bit: f64,
}

/// The wires inside a node, or to the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Each GPU's bandwidth into the tier, one direction.
    pub bytes_per_s: f64,
    pub latency_s: f64,
    /// What starting a collective costs before the first byte moves.
    pub launch_s: f64,
    /// Fraction of the wire's rate left after protocol headers and pacing.
    pub efficiency: f64,
    pub topology: Topology,
    pub all_reduce: Algorithm,
    /// What its switches draw for each GPU without traffic.
    pub idle_power_w: f64,
    /// Energy of each bit beyond that.
    pub energy_j_per_bit: f64,
}

/// The machine a job runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    pub gpu: Gpu,
    pub gpus: u32,
    pub gpus_per_node: u32,
    /// NVLink or PCIe inside a node.
    pub intra: Tier,
    pub nic: Nic,
    /// May be a fraction: eight GPUs that share four NICs have 0.5 each.
    pub nics_per_gpu: f64,
    /// Fraction of NIC rate left after protocol headers, routing and switches.
    pub inter_efficiency: f64,
    /// Added to the NIC's own latency: switches and cables.
    pub inter_latency_s: f64,
    pub inter_topology: Topology,
    pub inter_all_reduce: Algorithm,
    /// Switches between the nodes.
    pub levels: Levels,
    /// The way from GPU memory to host memory, where KV may spill.
    pub host: Tier,
    /// Time no kernel can go below, launch included.
    pub launch_s: f64,
    /// Time the host needs to launch one layer's forward and backward pass:
    /// a floor however small the layer. A recomputed forward pass adds half.
    pub layer_launch_s: f64,
    /// What a stage loses to each exchange with its neighbours, beside the wire.
    pub exchange_s: f64,
    /// Codec of each GPU; `codecs_per_gpu` of them work side by side.
    pub codec: Codec,
    pub codecs_per_gpu: f64,
}

impl Cluster {
    /// The link that a group of `size` ranks sees, when neighbours in the
    /// group are `stride` GPUs apart.
    ///
    /// Ranks are laid out with tensor parallelism innermost. When a group
    /// leaves the node, its members inside one node (`stride` apart) bring
    /// their NICs together, as NCCL's parallel rings do, but never beyond
    /// what each can take from the intra-node tier.
    pub fn link(&self, size: u32, stride: u32) -> Link {
        let span = u64::from(size) * u64::from(stride);
        if span <= u64::from(self.gpus_per_node) {
            let lanes = match self.intra.topology {
                // A GPU's lanes are shared out among its peers.
                Topology::FullyConnected => f64::from(self.gpus_per_node.max(2) - 1),
                Topology::Ring | Topology::Switch => 1.0,
            };
            let used = match self.intra.all_reduce {
                Algorithm::Nccl => nccl::channels_used(size),
                _ => 1.0,
            };
            let link = self.node_link();
            return Link { bytes_per_s: link.bytes_per_s * used / lanes, ..link };
        }
        let members_in_node = (self.gpus_per_node / stride).clamp(1, size);
        let nics = self.nic.bytes_per_s * self.nics_per_gpu * self.inter_efficiency;
        let mut bytes_per_s = nics * f64::from(members_in_node);
        if members_in_node > 1 {
            bytes_per_s = bytes_per_s.min(self.intra.bytes_per_s * self.intra.efficiency);
        }
        // A ring, a tree or a neighbour's message leaves a switch once for all
        // members beneath it.
        bytes_per_s = bytes_per_s.min(nics * self.levels.narrowest(size, stride, |beneath| 1.0 / beneath));
        Link { bytes_per_s, ..self.network_link(span) }
    }

    /// An adapter's share of the network, to ranks `span` GPUs away.
    fn network_link(&self, span: u64) -> Link {
        let way = self.levels.crossing(span);
        Link {
            bytes_per_s: self.nic.bytes_per_s * self.nics_per_gpu * self.inter_efficiency,
            latency_s: self.nic.latency_s + self.inter_latency_s + way.latency_s,
            launch_s: self.intra.launch_s,
            topology: self.inter_topology,
            switching: Switching::CutThrough,
            all_reduce: self.inter_all_reduce,
            energy_j_per_bit: self.nic.energy_j_per_bit + way.energy_j_per_bit,
        }
    }

    /// The wires inside a node as one GPU sees them when it sends to all others.
    pub fn node_link(&self) -> Link {
        Link {
            bytes_per_s: self.intra.bytes_per_s * self.intra.efficiency,
            latency_s: self.intra.latency_s,
            launch_s: self.intra.launch_s,
            topology: self.intra.topology,
            switching: Switching::CutThrough,
            all_reduce: self.intra.all_reduce,
            energy_j_per_bit: self.intra.energy_j_per_bit,
        }
    }

    /// A GPU's own share of the NICs, which nobody else's traffic can use, when
    /// each of `size` ranks `stride` apart sends to all others: of what leaves
    /// a node, the part that leaves a switch shares its uplinks.
    pub fn nic_link(&self, size: u32, stride: u32) -> Link {
        let link = self.network_link(u64::from(size) * u64::from(stride));
        let (near, _) = self.members(size, stride);
        let (ranks, near) = (f64::from(size), f64::from(near));
        let outside = (ranks - near).max(1.0);
        let narrowest = self.levels.narrowest(size, stride, |beneath| (ranks - beneath).max(0.0) / outside);
        Link { bytes_per_s: link.bytes_per_s * narrowest.min(1.0), ..link }
    }

    /// Members of a group of `size` ranks `stride` apart that share a node, and
    /// the nodes that the group is spread over.
    pub fn members(&self, size: u32, stride: u32) -> (u32, f64) {
        let near = (self.gpus_per_node / stride.max(1)).clamp(1, size);
        (near, f64::from(size) / f64::from(near))
    }

    /// Derives totals from the GPU's parts, where it is given by parts: its
    /// rates, memory, area and power, and the links between GPUs.
    pub fn settle(&mut self) {
        let Some(mut die) = self.gpu.die else { return };
        die.settle();
        self.gpu.total(&die);
        if die.links > 0.0 {
            self.intra.bytes_per_s = die.links_bytes_per_s();
        } else if die.has_link_kind() {
            // Of its kind of links the die has none: what is left is the way over the host.
            self.intra.bytes_per_s = self.intra.bytes_per_s.min(self.host.bytes_per_s);
        }
        self.gpu.die = Some(die);
    }

    /// Whether a group of `size` ranks `stride` apart leaves the node.
    pub fn leaves_node(&self, size: u32, stride: u32) -> bool {
        u64::from(size) * u64::from(stride) > u64::from(self.gpus_per_node)
    }

    /// Nodes, the last possibly not full.
    pub fn nodes(&self) -> u32 {
        self.gpus.div_ceil(self.gpus_per_node.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_passes_through_its_points_and_is_flat_outside() {
        let curve = Curve::through(&[(1.0, 0.1), (4.0, 0.5), (64.0, 0.9)]).unwrap();
        for (x, y) in [(1.0, 0.1), (4.0, 0.5), (64.0, 0.9), (0.01, 0.1), (1e9, 0.9), (2.0, 0.3)] {
            assert!((curve.at(x) - y).abs() < 1e-12, "{x}: {} instead of {y}", curve.at(x));
        }
    }

    #[test]
    fn a_curve_out_of_order_is_refused() {
        assert_eq!(Curve::through(&[(2.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Curve::through(&[]), None);
    }
}
