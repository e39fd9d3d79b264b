//! Time and energy of one iteration: kernels run one after the other, none
//! before the host has launched it, and none faster than the power limit lets.

use super::curves::{HostDevice, Operation};
use super::kernels::{Kernel, Launches, Pass, Work};
use super::network::{Launching, Network, Run};

/// What an iteration takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub iteration_s: f64,
    pub energy_j: f64,
    /// Kernels launched.
    pub kernels: usize,
    /// The device's work, and the host's.
    pub device_s: f64,
    pub host_s: f64,
    /// Share of the top clock that the power limit leaves.
    pub clock: f64,
}

/// Predicts `run` of `network` on `device`.
pub fn predict(device: &HostDevice, network: &Network, run: &Run) -> Prediction {
    let kernels = launches(network, run);
    let graph = matches!(run, Run::Decode { launching: Launching::Graph, .. });
    let costs: Vec<Cost> = kernels.iter().map(|kernel| Cost::of(device, network, kernel)).collect();
    let timeline = |clock: f64| timeline_s(device, &costs, clock, graph);
    let power = &device.power;
    let joules = |clock: f64, seconds: f64| {
        let busy_s = costs.iter().map(|cost| cost.device_s(clock)).sum::<f64>().min(seconds);
        let flop: f64 = costs.iter().map(|cost| cost.flop).sum();
        let bytes: f64 = costs.iter().map(|cost| cost.bytes).sum();
        power.idle_w * seconds
            + (power.active_w - power.idle_w).max(0.0) * busy_s
            + clock.powf(power.clock_exponent) * power.joules_per_flop * flop
            + power.joules_per_byte * bytes
    };
    // Power falls with the clock: the highest one within the limit.
    let mut clock = 1.0;
    if joules(1.0, timeline(1.0)) > power.limit_w * timeline(1.0) {
        let (mut low, mut high) = (LEAST_CLOCK, 1.0);
        for _ in 0..40 {
            clock = 0.5 * (low + high);
            let seconds = timeline(clock);
            if joules(clock, seconds) > power.limit_w * seconds { high = clock } else { low = clock }
        }
    }
    let iteration_s = timeline(clock);
    Prediction {
        iteration_s,
        energy_j: joules(clock, iteration_s),
        kernels: kernels.iter().filter(|kernel| kernel.work != Work::View).count(),
        device_s: costs.iter().map(|cost| cost.device_s(clock)).sum(),
        host_s: if graph { 0.0 } else { costs.iter().map(|cost| cost.host_s).sum() },
        clock,
    }
}

/// Fused attention takes head sizes that are multiples of this.
const ALIGNED: f64 = 8.0;

/// No limit brings a chip below this share of its clock.
const LEAST_CLOCK: f64 = 0.3;

/// What one launch costs.
struct Cost {
    host_s: f64,
    /// Time on the device: what the clock scales, and what it does not.
    arithmetic_s: f64,
    other_s: f64,
    flop: f64,
    bytes: f64,
}

impl Cost {
    fn device_s(&self, clock: f64) -> f64 {
        self.arithmetic_s / clock + self.other_s
    }

    fn of(device: &HostDevice, network: &Network, kernel: &Kernel) -> Self {
        let mut cost =
            Self { host_s: host_s(device, kernel), arithmetic_s: 0.0, other_s: 0.0, flop: 0.0, bytes: 0.0 };
        let (dim, heads) = (network.head_dim(), network.heads);
        match kernel.work {
            Work::Product { m, n, k, layout } => {
                let seconds = device.products.seconds(m, n, k, layout);
                match device.products.is_bound_by_arithmetic(m, n, k) {
                    true => cost.arithmetic_s = seconds,
                    false => cost.other_s = seconds,
                }
                cost.flop = 2.0 * m * n * k;
                cost.bytes = 2.0 * (m * k + n * k + m * n);
            }
            Work::Stream { operation, bytes } => {
                cost.other_s = device.stream_s(operation, bytes);
                cost.bytes = bytes;
            }
            Work::Attention { sequences, tokens, backward } => {
                let flop = 2.0 * sequences * tokens * tokens * network.hidden;
                cost.arithmetic_s = device.attention_s(flop, sequences * heads, tokens, dim, backward);
                // Five products backward, two forward.
                cost.flop = if backward { 2.5 * flop } else { flop };
                let operands = if backward { 8.0 } else { 4.0 };
                cost.bytes = operands * 2.0 * sequences * tokens * network.hidden;
            }
            Work::Cache { sequences, context } => {
                cost.bytes = 4.0 * sequences * context * network.kv_width();
                cost.other_s = device.cache_s(cost.bytes, dim, heads / network.kv_heads);
                if dim % ALIGNED != 0.0 {
                    // The cache is padded at every call: copies that memory bounds.
                    cost.bytes = cost.other_s * device.products.bytes_per_s;
                }
                cost.flop = 4.0 * sequences * context * network.hidden;
            }
            Work::View => {}
        }
        cost
    }
}

fn host_s(device: &HostDevice, kernel: &Kernel) -> f64 {
    let d = &device.dispatch;
    if kernel.pass == Pass::Backward {
        return match kernel.work {
            // Two products come of one operation; its cost is split between them.
            Work::Product { .. } => 0.5 * d.backward_linear_s,
            Work::View => 0.0,
            Work::Attention { .. } => d.backward_attention_s,
            _ => d.backward_elementwise_s,
        };
    }
    let seconds = match kernel.work {
        Work::Product { .. } => d.linear_s,
        Work::Stream { operation: Operation::Norm, .. } => d.norm_s,
        // A negation and a concatenation.
        Work::Stream { operation: Operation::RotateFloat, .. } => 2.0 * d.elementwise_s,
        Work::Stream { .. } => d.elementwise_s,
        Work::Attention { .. } | Work::Cache { .. } => d.attention_s,
        Work::View => d.view_s,
    };
    if kernel.pass == Pass::Recorded { d.recorded * seconds } else { seconds }
}

/// When the last kernel ends: each starts when the one before has ended and
/// the host has launched it.
fn timeline_s(device: &HostDevice, costs: &[Cost], clock: f64, graph: bool) -> f64 {
    if graph {
        return costs.iter().map(|cost| cost.device_s(clock)).sum();
    }
    let (mut host_s, mut device_s) = (0.0f64, 0.0f64);
    for cost in costs {
        host_s += cost.host_s;
        let work_s = cost.device_s(clock);
        if work_s > 0.0 {
            device_s = device_s.max(host_s + device.latency_s) + work_s;
        }
    }
    device_s.max(host_s)
}

/// Everything an iteration launches.
fn launches(network: &Network, run: &Run) -> Vec<Kernel> {
    let layers = network.layers as usize;
    match *run {
        Run::Decode { sequences, context, .. } => {
            let mut list = Launches::new(network, sequences);
            list.embed();
            for _ in 0..layers {
                list.layer(|list| list.attend_cache(sequences, context));
            }
            list.head(sequences);
            list.kernels
        }
        Run::Prefill { sequences, tokens } => {
            let mut list = Launches::new(network, sequences * tokens);
            list.embed();
            for _ in 0..layers {
                list.layer(|list| list.attend(sequences, tokens, false));
            }
            list.head(sequences);
            list.kernels
        }
        Run::Training { sequences, tokens, recompute } => {
            let mut list = Launches::new(network, sequences * tokens);
            list.pass(if recompute { Pass::Inference } else { Pass::Recorded });
            list.embed();
            for _ in 0..layers {
                list.layer(|list| list.attend(sequences, tokens, false));
            }
            list.pass(Pass::Recorded);
            list.head(sequences * tokens);
            list.pass(Pass::Backward);
            list.loss();
            for _ in 0..layers {
                if recompute {
                    list.pass(Pass::Recorded);
                    list.layer(|list| list.attend(sequences, tokens, false));
                    list.pass(Pass::Backward);
                }
                list.layer_backward(sequences, tokens);
            }
            list.embed_backward();
            list.optimizer();
            list.kernels
        }
    }
}
