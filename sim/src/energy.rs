//! Joules and square millimetres, by component.

use crate::hardware::Cluster;
use crate::outcome::{AreaByKind, Breakdown, EnergyByKind};
use crate::schedule::Traffic;

/// Energy of one iteration of the whole cluster.
///
/// A GPU draws its idle power all the time and the difference to full load
/// while its units work; wires and codecs are charged by the bit; idle NICs,
/// switches and codecs draw their static power.
pub fn energy(cluster: &Cluster, breakdown: &Breakdown, traffic: &Traffic, iteration_s: f64) -> EnergyByKind {
    let gpus = f64::from(cluster.gpus);
    let gpu = &cluster.gpu;
    let busy_s = breakdown.forward_s + breakdown.recompute_s + breakdown.backward_s + breakdown.optimizer_s;
    EnergyByKind {
        compute_j: gpus * (gpu.power_w - gpu.idle_power_w).max(0.0) * busy_s,
        gpu_idle_j: gpus * gpu.idle_power_w * iteration_s,
        wire_j: gpus * traffic.wire_j,
        nic_idle_j: gpus * cluster.nics_per_gpu * cluster.nic.idle_power_w * iteration_s,
        switch_idle_j: gpus * switch_idle_w(cluster) * iteration_s,
        codec_j: gpus
            * (traffic.encoded_values * cluster.codec.encode_j_per_value
                + traffic.decoded_values * cluster.codec.decode_j_per_value),
        codec_idle_j: gpus * cluster.codecs_per_gpu * cluster.codec.idle_power_w * iteration_s,
    }
}

/// What switches draw for each GPU without traffic: those of its node, and the
/// ports of the network that its adapters keep up.
pub fn switch_idle_w(cluster: &Cluster) -> f64 {
    let ports = cluster.levels.idle_w_per_nic(cluster.gpus, cluster.gpus_per_node, cluster.nic.bytes_per_s);
    cluster.intra.idle_power_w + cluster.nics_per_gpu * ports
}

/// Silicon of the whole cluster.
pub fn area(cluster: &Cluster) -> AreaByKind {
    let gpus = f64::from(cluster.gpus);
    AreaByKind {
        gpu_mm2: gpus * cluster.gpu.area_mm2,
        nic_mm2: gpus * cluster.nics_per_gpu * cluster.nic.area_mm2,
        codec_mm2: gpus * cluster.codecs_per_gpu * cluster.codec.area_mm2,
    }
}
