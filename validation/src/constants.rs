//! Every constant that measurements decide: what it means, its value, how far
//! it can move before the rows complain, and which rows those are.
//!
//! The interval is a profile: the constant alone moves, the others stay, and
//! it ends where the mean error of the rows that depend on it has grown by a
//! tenth. An end that is never reached is open: nothing identifies it.

use crate::Error;
use crate::collectives::{self, LinkConstants, Links, Measurement};
use crate::host_runs;
use crate::runs::Run;
use crate::training;
use crate::validate::Truth;
use serde::Serialize;
use std::collections::BTreeSet;
use trinity_hwcodec::calibration::Measured;
use trinity_hwcodec::compute::curves::ComputeModel;
use trinity_study::config::software::Calibrations;

/// One constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    pub path: String,
    pub meaning: &'static str,
    pub value: f64,
    /// None: open on that side.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Rows whose prediction depends on it, and the sets they are of.
    pub rows: usize,
    pub from: String,
}

impl Constant {
    /// Whether rows bound it to within a factor of two.
    pub fn is_identified(&self) -> bool {
        matches!((self.low, self.high), (Some(low), Some(high)) if high <= 2.0 * low.max(f64::MIN_POSITIVE))
    }
}

/// How much worse than at its value the rows may become.
const WORSE: f64 = 1.10;
/// Step of the search, and how many: up to a factor of about seven.
const STEP: f64 = 1.04;
const STEPS: i32 = 50;

/// All of them, with the rows at hand.
pub fn constants(truth: &Truth) -> Result<Vec<Constant>, Error> {
    let mut list = Vec::new();
    for family in &training::FITTED {
        let runs = family.runs(&truth.runs);
        list.extend(family.constants.iter().filter_map(|path| of_training(&truth.calibrations, &runs, path)));
    }
    for (name, link) in &truth.links.links {
        list.extend(of_link(&truth.links, name, link, &truth.measurements));
    }
    if let Some(compute) = &truth.recording.compute {
        list.extend(of_recording(&ComputeModel::of(compute), &host_runs::short_name(&truth.recording)));
    }
    Ok(list)
}

fn of_training(calibrations: &Calibrations, runs: &[&Run], path: &str) -> Option<Constant> {
    let value = calibrations.get(path)?;
    let with = |changed: f64| {
        let mut trial = calibrations.clone();
        if let Some(constant) = trial.get_mut(path) {
            *constant = changed;
        }
        trial
    };
    let predict = |calibrations: &Calibrations, run: &Run| training::predict(calibrations, run).ok();
    let nudged = with(1.1 * value + f64::MIN_POSITIVE);
    let moved = |run: &&&Run| match (predict(calibrations, run), predict(&nudged, run)) {
        (Some(before), Some(after)) => (after / before - 1.0).abs() > 1e-4,
        _ => false,
    };
    let own: Vec<&Run> = runs.iter().filter(moved).copied().collect();
    let error = |changed: f64| {
        let trial = with(changed);
        mean(own.iter().filter_map(|run| Some((predict(&trial, run)? / run.seconds? - 1.0).abs())))
    };
    let (least, most) = Calibrations::range(path)?;
    let (low, high) = profile(value, (least, most), &error);
    let sets: BTreeSet<&str> = own.iter().map(|run| run.set.name()).collect();
    Some(Constant {
        path: path.replace('_', "-"),
        meaning: meaning(path.rsplit('.').next()?),
        value,
        low: low.filter(|_| !own.is_empty()),
        high: high.filter(|_| !own.is_empty()),
        rows: own.len(),
        from: sets.into_iter().collect::<Vec<_>>().join(", "),
    })
}

fn of_link(links: &Links, name: &str, link: &LinkConstants, measurements: &[Measurement]) -> Vec<Constant> {
    let own: Vec<Measurement> = measurements.iter().filter(|m| m.path() == name).cloned().collect();
    let sources: BTreeSet<&str> = own.iter().map(|m| m.source.as_str()).collect();
    let from = sources.into_iter().collect::<Vec<_>>().join(", ");
    link.fields()
        .into_iter()
        .map(|(field, value)| {
            let with = |changed: f64| {
                let mut trial = links.clone();
                if let Some(place) = trial.links.get_mut(name).and_then(|link| link.field_mut(field)) {
                    *place = changed;
                }
                trial
            };
            let nudged = collectives::score(&with(1.1 * value), &own).0;
            let before = collectives::score(links, &own).0;
            let moved: Vec<Measurement> = own
                .iter()
                .zip(nudged.iter().zip(&before))
                .filter(|(_, (after, before))| (after.predicted / before.predicted - 1.0).abs() > 1e-4)
                .map(|(measurement, _)| measurement.clone())
                .collect();
            let error = |changed: f64| {
                mean(collectives::score(&with(changed), &moved).0.iter().map(|pair| pair.error().abs()))
            };
            let (low, high) =
                if moved.is_empty() { (None, None) } else { profile(value, (0.0, 1e9), &error) };
            Constant {
                path: format!("links.{name}.{}", field.replace('_', "-")),
                meaning: meaning(field),
                value,
                low,
                high,
                rows: moved.len(),
                from: from.clone(),
            }
        })
        .collect()
}

/// What the recording decides by itself: no run was looked at.
fn of_recording(model: &ComputeModel, device: &str) -> Vec<Constant> {
    let mut list = Vec::new();
    let mut add = |name: &str, meaning: &'static str, measured: Option<Measured>, rows: usize| {
        if let Some(measured) = measured {
            list.push(Constant {
                path: format!("{}.{name}", device.to_lowercase()),
                meaning,
                value: measured.value,
                low: Some(measured.low),
                high: Some(measured.high),
                rows,
                from: "recording".into(),
            });
        }
    };
    add("graph-launch-us", "a kernel of a graph that does nothing", model.graph_launch_us, 1);
    add("eager-launch-us", "a launch by the host, driver alone", model.eager_launch_us, 1);
    add(
        "input-gradient",
        "time of a product in the layout of input gradients, over forward",
        model.input_gradient,
        36,
    );
    add("weight-gradient", "the same for weight gradients", model.weight_gradient, 36);
    if let Some(power) = &model.power {
        add("pj-per-flop", "energy of an operation at the top clock", Some(power.pj_per_flop), 6);
        add("pj-per-byte", "energy of a byte of device memory", Some(power.pj_per_byte), 2);
        add(
            "clock-exponent",
            "energy of an operation falls with the clock to this power",
            Some(power.clock_exponent),
            4,
        );
    }
    list
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    sum / f64::max(n, 1.0)
}

/// Where the error has grown by [`WORSE`] on either side of `value`.
fn profile(value: f64, range: (f64, f64), error: &dyn Fn(f64) -> f64) -> (Option<f64>, Option<f64>) {
    let allowed = WORSE * error(value) + 1e-9;
    let end = |direction: f64| {
        (1..=STEPS).map(|step| value * STEP.powf(direction * f64::from(step))).find_map(|trial| {
            let outside = trial < range.0 || trial > range.1;
            if outside { Some(None) } else { (error(trial) > allowed).then_some(Some(trial)) }
        })
    };
    (end(-1.0).flatten(), end(1.0).flatten())
}

/// What a constant means, by its name.
fn meaning(name: &str) -> &'static str {
    match name {
        "gemm_efficiency" => "share of peak that a large matrix product reaches",
        "gemm_overhead_us" => "what each product takes beyond that",
        "attention_efficiency" => "share of peak of attention's products, heads of 128",
        "misaligned_attention" => "how much slower attention is where the head is no multiple of 64",
        "hidden_passes" => "passes of elementwise kernels over the hidden stream, a layer",
        "mlp_passes" => "the same over the feed-forward width",
        "score_passes" => "the same over attention scores that are written out",
        "gather_efficiency" => "share of the link that ZeRO-3 gathers reach",
        "peer_launch" => "share of a layer's launches that each tensor-parallel peer adds",
        "pipelined_launch" => "how much longer launches take in a pipeline between nodes",
        "pipelined_peer_launch" => "the same for each peer's share",
        "hop_us" => "latency of one hop between nodes",
        "stall_exponent" => "how fast the share of stalled exchanges grows with nodes",
        "fabric_gb_per_s" => "bandwidth each GPU gets from the network",
        "latency_us" => "latency of one step or exchange",
        "launch_us" => "what starting takes: a layer's kernels, or a collective",
        "bandwidth_gb_per_s" => "bus bandwidth of a large message inside the node",
        "send_launch_us" => "starting a send inside the node",
        "send_gb_per_s" => "bandwidth of a send inside the node",
        "pcie_gb_per_s" => "bus bandwidth of rings that cross PCIe",
        "network_gb_per_s" => "bandwidth of one NIC",
        "network_launch_us" => "starting a send between nodes",
        "network_hop" => "latency of a network hop over that of NCCL's table",
        "network_channel_kb" => "share of a message for which half of the NICs are used",
        "network_long_gb_per_s" => "bandwidth of a send beyond NCCL's buffer",
        "group_wait_us" => "what more than two ranks of a trace wait for the last",
        "pair_wait_us" => "the same of two ranks, beyond LL's messages",
        "fp16_efficiency" => "share of the fastest measured kernel that products in FP16 reach",
        "fp8_efficiency" => "the same in FP8",
        "fp4_efficiency" => "the same in FP4",
        "power_exponent" => "speed over board power a unit of peak rate: the exponent",
        "tile" => "rows, columns and depth that products lose at the edges of tiles",
        "fp8_cast_bytes" => "bytes moved for each value brought into FP8",
        "fp4_cast_bytes" => "the same into FP4",
        "attention_backward" => "backward over forward time of fused attention",
        "head_exponent" => "how attention slows down with heads below 128: the exponent",
        "loss_bytes" => "bytes a logit moves in each direction of the loss",
        "loss_share" => "share of the loss that the slowest stage has",
        "expert_efficiency" => "share of a product's rate that grouped products reach",
        "expert_fp16_efficiency" => "the same in FP16",
        "routed_fp16_passes" => "copies of a routed token that each product moves, in FP16",
        "routed_passes" => "the same in FP8 and FP4",
        "scan_passes" => "copies of the inner stream that a state-space layer moves",
        "x86_launch" => "how much longer than Grace another host launches experts",
        "expert_launch_us" => "floor that an expert layer adds",
        "step_ms" => "between two steps",
        "tensor_overlap" => "share of tensor-parallel sums that compute hides",
        "context_overlap" => "the same of context parallelism",
        "expert_overlap" => "the same of dispatching to experts",
        "pipeline_overlap" => "the same of messages between stages",
        "data_overlap" => "the same of gradients and gathered weights",
        "nvlink_efficiency" => "share of NVLink that a large all-reduce reaches",
        _ => "see configs/calibrations",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_study::config::software::{ClusterConstants, GpuConstants};

    #[test]
    fn every_fitted_constant_has_a_meaning() {
        let paths = training::FITTED.iter().flat_map(|family| family.constants);
        let names = paths.filter_map(|path| path.rsplit('.').next());
        for name in names {
            assert_ne!(meaning(name), "see configs/calibrations", "{name}");
        }
        assert!(GpuConstants::RANGES.len() + ClusterConstants::RANGES.len() > 20);
    }

    #[test]
    fn a_profile_ends_where_the_error_grew_and_stays_open_where_it_does_not() {
        let (low, high) = profile(10.0, (0.0, 1e9), &|x| 0.05 + (x - 10.0).max(0.0) * 0.01);
        assert_eq!(low, None);
        assert!(high.is_some_and(|high| (10.5..11.3).contains(&high)), "{high:?}");
    }
}
