//! Runs on the GPU that was measured: training steps, prompts and decoded
//! tokens, predicted from `trinity measure --compute` alone.
//!
//! No constant here was fitted to a run. The table (`--host-runs`) has a row a
//! run: `phase` (training, prefill, decode), the network's shape (`layers`,
//! `hidden`, `heads`, `kv_heads`, `ffn`, `vocab`, `parameters`), `batch`,
//! `seq`, `context` (decode), `recompute` (training: 1 checkpoints every
//! block), `mode` (eager or graph), `iter_s`, and where known `peak_bytes` and
//! `energy_j`.

use crate::Error;
use crate::csv::{CsvRow, Problem, Table};
use crate::score::Pair;
use std::collections::BTreeMap;
use std::path::Path;
use trinity_hwcodec::calibration::Measured;
use trinity_hwcodec::compute::curves::{ComputeModel, FrameworkModel, Named, Points};
use trinity_hwcodec::recording::Recording;
use trinity_sim::host::{
    self, AttentionCurve, CacheCurve, Dispatch, HostDevice, Interpolated, Launching, Network, Operation,
    Power, Products, Run,
};

const COLUMNS: &str = "phase,layers,hidden,heads,kv_heads,ffn,vocab,parameters,batch,seq,mode,iter_s";

/// One measured run.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRun {
    pub what: String,
    /// `training`, `prefill`, `decode graph` or `decode eager`.
    pub kind: &'static str,
    pub network: Network,
    pub run: Run,
    pub iteration_s: f64,
    pub energy_j: Option<f64>,
    pub peak_bytes: Option<f64>,
}

/// The runs of a table, and the rows that are none.
#[derive(Clone, Debug, Default)]
pub struct HostRuns {
    pub runs: Vec<HostRun>,
    pub malformed: Vec<Problem>,
}

impl HostRuns {
    /// Reads a table.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self::of(Table::read(path, COLUMNS)?))
    }

    /// The committed runs of an H200.
    pub fn committed() -> Result<Self, Error> {
        let bytes = include_bytes!("../data/h200/runs.csv");
        Ok(Self::of(Table::parse("validation/data/h200/runs.csv", bytes, COLUMNS)?))
    }

    fn of(table: Table) -> Self {
        let (runs, malformed) = table.each(host_run);
        Self { runs, malformed }
    }
}

fn host_run(row: &CsvRow<'_>) -> Result<HostRun, Problem> {
    let count = |name: &str| row.required_count(name).map(f64::from);
    let network = Network {
        layers: count("layers")?,
        hidden: count("hidden")?,
        heads: count("heads")?,
        kv_heads: count("kv_heads")?,
        ffn: count("ffn")?,
        vocab: count("vocab")?,
        parameters: row.required("parameters")?,
    };
    let (sequences, tokens) = (count("batch")?, count("seq")?);
    let launching = match row.text("mode") {
        "eager" => Launching::Eager,
        "graph" => Launching::Graph,
        other => return Err(row.problem("mode", format!("expected eager or graph, found `{other}`"))),
    };
    let (kind, run) = match (row.text("phase"), launching) {
        ("training", Launching::Eager) => {
            ("training", Run::Training { sequences, tokens, recompute: row.text("recompute") == "1" })
        }
        ("prefill", Launching::Eager) => ("prefill", Run::Prefill { sequences, tokens }),
        ("training" | "prefill", Launching::Graph) => {
            return Err(row.problem("mode", "a captured step is not modelled; expected eager"));
        }
        ("decode", launching) => {
            let kind = if launching == Launching::Graph { "decode graph" } else { "decode eager" };
            (kind, Run::Decode { sequences, context: count("context")?, launching })
        }
        (other, _) => {
            let message = format!("expected training, prefill or decode, found `{other}`");
            return Err(row.problem("phase", message));
        }
    };
    let context = row.text("context");
    let shape = if context.is_empty() {
        format!("{sequences}×{tokens}")
    } else {
        format!("{sequences} on {context}")
    };
    let recomputed = if row.text("recompute") == "1" { ", recomputed" } else { "" };
    Ok(HostRun {
        what: format!("{} {kind} {shape}{recomputed}", row.text("model")),
        kind,
        network,
        run,
        iteration_s: row.required("iter_s")?,
        energy_j: row.positive("energy_j")?,
        peak_bytes: row.positive("peak_bytes")?,
    })
}

/// Predictions beside measurements, by set: `H200 training time` and so on.
pub fn score(device: &HostDevice, name: &str, runs: &[HostRun]) -> BTreeMap<String, Vec<Pair>> {
    let mut sets: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
    for run in runs {
        let prediction = host::predict(device, &run.network, &run.run);
        let memory = host::peak_bytes(&run.network, &run.run);
        let quantities = [
            ("time", prediction.iteration_s, Some(run.iteration_s)),
            ("energy", prediction.energy_j, run.energy_j),
            ("memory", memory, run.peak_bytes),
        ];
        for (quantity, predicted, measured) in quantities {
            let Some(measured) = measured else { continue };
            let pair = Pair { what: run.what.clone(), predicted, measured };
            sets.entry(format!("{name} {} {quantity}", run.kind)).or_default().push(pair);
        }
    }
    sets
}

/// What sets of this device are called: `H200` for an NVIDIA H200.
pub fn short_name(recording: &Recording) -> String {
    let name = recording.device.gpu.trim_start_matches("NVIDIA ");
    name.split_whitespace().next().unwrap_or("GPU").to_owned()
}

/// The device behind a recording.
///
/// # Errors
///
/// When the recording holds no compute, or too little of it.
pub fn device(recording: &Recording) -> Result<HostDevice, Error> {
    let missing = |what: &'static str| Error::Recording { what };
    let compute = recording.compute.as_ref().ok_or(missing("no compute measurements"))?;
    let model = ComputeModel::of(compute);
    let framework = model.framework.as_ref().ok_or(missing("no framework's operations"))?;
    let power = model.power.as_ref().ok_or(missing("no power of steady loads"))?;
    let round_trip = model.round_trip_us.ok_or(missing("no kernel launches"))?;
    let streams = curve(&model.streams);
    let bytes_per_s = model
        .streams
        .bytes
        .iter()
        .zip(&model.streams.microseconds)
        .map(|(bytes, us)| bytes / us * 1e6)
        .next_back()
        .ok_or(missing("no streaming kernels"))?;
    Ok(HostDevice {
        multiprocessors: f64::from(model.multiprocessors),
        products: products(&model, bytes_per_s).ok_or(missing("no matrix products"))?,
        streams,
        operations: operations(framework),
        attention: attention(&model),
        caches: model
            .caches
            .iter()
            .map(|c| CacheCurve {
                head_dim: f64::from(c.head_dim),
                group: f64::from(c.group),
                seconds: curve(&c.times),
            })
            .collect(),
        dispatch: dispatch(framework),
        latency_s: 0.5e-6 * round_trip.value,
        power: Power {
            idle_w: power.idle_w,
            active_w: power.active_w,
            joules_per_flop: power.pj_per_flop.value * 1e-12,
            joules_per_byte: power.pj_per_byte.value * 1e-12,
            limit_w: model.power_limit_w,
            clock_exponent: power.clock_exponent.value,
        },
    })
}

fn curve(points: &Points) -> Interpolated {
    let seconds = points.microseconds.iter().map(|us| us * 1e-6);
    Interpolated { points: points.bytes.iter().copied().zip(seconds).collect() }
}

fn products(model: &ComputeModel, bytes_per_s: f64) -> Option<Products> {
    let grid = &model.products;
    let axis = |values: &[u32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let (rows, columns, depths) = (axis(&grid.rows), axis(&grid.columns), axis(&grid.depths));
    let seconds: Vec<f64> = grid.microseconds.iter().map(|us| us * 1e-6).collect();
    let mut best = 0.0f64;
    let mut at = seconds.iter();
    for m in &rows {
        for n in &columns {
            for k in &depths {
                best = best.max(2.0 * m * n * k / at.next()?);
            }
        }
    }
    let ratio = |measured: Option<Measured>| measured.map_or(1.0, |m| m.value);
    Some(Products {
        floor_s: seconds.iter().copied().min_by(f64::total_cmp)?,
        rows,
        columns,
        depths,
        seconds,
        flop_per_s: best,
        bytes_per_s,
        input_gradient: ratio(model.input_gradient),
        weight_gradient: ratio(model.weight_gradient),
    })
}

fn attention(model: &ComputeModel) -> Vec<AttentionCurve> {
    let curve = |tokens: &[u32], tflops: &[f64]| Interpolated {
        points: tokens.iter().map(|&t| f64::from(t)).zip(tflops.iter().map(|t| t * 1e12)).collect(),
    };
    model
        .attention
        .iter()
        .map(|a| AttentionCurve {
            head_dim: f64::from(a.head_dim),
            forward_flop_per_s: curve(&a.tokens, &a.forward_tflops),
            backward_flop_per_s: curve(&a.tokens, &a.backward_tflops),
        })
        .collect()
}

/// The framework's kernels by the names of its probe: large, and small.
fn operations(framework: &FrameworkModel) -> Vec<(Operation, f64, f64)> {
    let names: [(Operation, &str, &[&str]); 15] = [
        (Operation::Add, "add", &["add"]),
        (Operation::Mul, "add", &["add"]),
        (Operation::MulBroadcast, "mul broadcast", &["mul broadcast float"]),
        (Operation::MulBroadcastFloat, "mul broadcast float", &["mul broadcast float"]),
        (Operation::Rotate, "rotate", &["neg", "cat"]),
        (Operation::RotateFloat, "rotate float", &["neg", "cat"]),
        (Operation::ToFloat, "to float", &["to float"]),
        (Operation::ToHalf, "to bf16", &["to bf16"]),
        (Operation::Silu, "silu", &["silu"]),
        (Operation::SiluBackward, "silu backward", &["silu"]),
        (Operation::Norm, "rms norm", &["rms norm"]),
        (Operation::NormBackward, "rms norm backward", &["rms norm"]),
        (Operation::CrossEntropy, "cross entropy fp32", &["add"]),
        (Operation::Optimizer, "adamw fused bf16", &["add"]),
        (Operation::Copy, "add", &["cache write"]),
    ];
    let named = |list: &[Named], name: &str| list.iter().find(|n| n.operation == name).map(|n| n.value);
    names
        .into_iter()
        .filter_map(|(operation, large, small)| {
            let floors: Option<Vec<f64>> = small.iter().map(|name| named(&framework.floors, name)).collect();
            let floor_s = floors?.iter().sum::<f64>() * 1e-6;
            Some((operation, floor_s, named(&framework.operations, large)?))
        })
        .collect()
}

/// Operations one at a time, times what a mixture of them takes beyond their sum.
fn dispatch(framework: &FrameworkModel) -> Dispatch {
    let value = |operation: &str, pass: &str| {
        let found = |n: &&Named| n.operation == operation && n.pass == pass;
        framework.dispatch.iter().find(found).map(|n| n.value * 1e-6)
    };
    let mean = |operations: &[&str], pass: &str| {
        let values: Vec<f64> = operations.iter().filter_map(|operation| value(operation, pass)).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let mixed = |pass: &str| match (value("mixture", pass), value("mixture parts", pass)) {
        (Some(mixture), Some(parts)) => mixture / parts,
        _ => 1.0,
    };
    let both = ["add", "mul", "silu", "linear", "rms norm", "attention"];
    let (forward, backward) = (mixed("forward"), mixed("backward"));
    let elementwise = ["add", "mul", "mul broadcast", "neg", "cat", "silu", "to float"];
    Dispatch {
        elementwise_s: forward * mean(&elementwise, "forward"),
        linear_s: forward * mean(&["linear module"], "forward"),
        norm_s: forward * mean(&["rms norm"], "forward"),
        attention_s: forward * mean(&["attention"], "forward"),
        view_s: forward * mean(&["view", "slice"], "forward"),
        recorded: mixed("recorded") / forward * mean(&both, "recorded") / mean(&both, "forward"),
        backward_elementwise_s: backward * mean(&["add", "mul", "silu"], "backward"),
        backward_linear_s: backward * mean(&["linear"], "backward"),
        backward_attention_s: backward * mean(&["attention"], "backward"),
    }
}
