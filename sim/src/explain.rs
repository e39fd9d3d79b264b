//! One point, line by line, with the formula behind each line.

use crate::energy::switch_idle_w;
use crate::layout::Layout;
use crate::outcome::{Exposed, Line};
use crate::sweep::Point;
use crate::{Estimate, Infeasible, Phase, Schedule};

/// Explains a point. Fails when the point cannot run.
pub fn explain(point: &Point) -> Result<(Estimate, Vec<Line>), Infeasible> {
    let (estimate, mut lines) = (point.estimate()?, Vec::new());
    if let Some(layout) = &estimate.chosen {
        choice_lines(point, layout, &mut lines);
    }
    let point = &point.laid_out(&estimate);
    time_lines(point, &estimate, &mut lines);
    memory_lines(point, &estimate, &mut lines);
    energy_lines(point, &estimate, &mut lines);
    area_lines(point, &estimate, &mut lines);
    lines.extend(crate::die::lines(point, &estimate));
    Ok((estimate, lines))
}

/// The layout that was chosen, and from how many.
fn choice_lines(point: &Point, layout: &Layout, lines: &mut Vec<Line>) {
    let layouts = point.layouts();
    let p = &layout.parallelism;
    let stated = |stated: bool| if stated { "as stated" } else { "chosen" };
    let search = &point.search;
    let mut line = |name, value: u32, formula: String| {
        lines.push(Line { group: "layout", name, value: f64::from(value), unit: "", formula });
    };
    let tried = layouts.tried;
    if search.recompute_alone {
        let name = layout.recompute.name();
        let formula = format!("chosen: recompute = {name}, the least that fits in memory");
        return line("recompute", layout.recompute as u32, formula);
    }
    let formula = format!("of {tried} on {} GPUs; most tokens a second: {layout}", point.cluster.gpus);
    line("layouts that fit", u32::try_from(layouts.fitting()).unwrap_or(u32::MAX), formula);
    line("tensor", p.tensor, stated(search.tensor > 0).into());
    line("pipeline", p.pipeline, stated(search.pipeline > 0).into());
    line("interleave", p.schedule.chunks(), stated(search.interleave > 0).into());
    line("context", p.context, stated(search.context > 0).into());
    line("expert", p.expert, stated(search.expert > 0).into());
    line("expert-tensor", p.expert_tensor, stated(search.expert_tensor > 0).into());
    line("data", p.data, stated(search.data > 0).into());
    line("zero", u32::from(p.zero.stage()), stated(search.zero.is_some()).into());
    line("micro-batch", layout.microbatch, stated(search.microbatch > 0).into());
    let recompute =
        format!("{}: recompute = {}", stated(search.recompute.is_some()), layout.recompute.name());
    line("recompute", layout.recompute as u32, recompute);
}

/// What decides the time of a kernel.
fn kernel_rule(point: &Point) -> &'static str {
    match point.cluster.gpu.die {
        Some(_) => "the slowest of arithmetic in waves of tiles, L2, memory and latency",
        None => "max(FLOPs ÷ (peak × efficiency), bytes ÷ (bandwidth × efficiency), launch floor)",
    }
}

fn time_lines(point: &Point, estimate: &Estimate, lines: &mut Vec<Line>) {
    let job = &point.job;
    let p = &job.parallelism;
    let b = &estimate.breakdown;
    let m = job.microbatches();
    let mut line = |name, value, formula| lines.push(Line { group: "time", name, value, unit: "s", formula });
    let per_stage = format!(
        "{m} micro-batches × ({} layers a stage × layer + vocabulary), each the sum over kernels of {}",
        job.llm.layers.div_ceil(p.pipeline),
        kernel_rule(point)
    );
    line("forward", b.forward_s, per_stage);
    if job.phase == Phase::Training {
        let formula = format!("forward again, as recompute = {} says", job.recompute.name());
        line("recompute", b.recompute_s, formula);
        line("backward", b.backward_s, "two products for each forward one; 2.5 × fused attention".into());
        let formula =
            "parameters of this GPU × (2 × state + gradient + weight bytes) ÷ memory bandwidth".into();
        line("optimizer", b.optimizer_s, formula);
    }
    let exposed = |e: &Exposed, overlap: f64, what: &str| {
        format!("{:.4} s in all − min({overlap} × all, compute it runs beside): {what}", e.total_s)
    };
    let o = &job.overlap;
    let formula = exposed(&b.tensor, o.tensor, &format!("2 sums a layer and pass over {} ranks", p.tensor));
    line("tensor, exposed", b.tensor.exposed_s, formula);
    let formula =
        exposed(&b.context, o.context, &format!("{} KV exchanges a layer", p.context.saturating_sub(1)));
    line("context, exposed", b.context.exposed_s, formula);
    let formula =
        exposed(&b.expert, o.expert, &format!("2 all-to-alls a sparse layer over {} ranks", p.expert));
    line("expert, exposed", b.expert.exposed_s, formula);
    let formula = exposed(
        &b.pipeline,
        o.pipeline,
        "tokens × hidden ÷ tensor values a boundary, encode ∥ wire ∥ decode in chunks",
    );
    line("pipeline, exposed", b.pipeline.exposed_s, formula);
    let reduction = match p.zero {
        crate::Zero::None => "all-reduce of gradients",
        crate::Zero::Parameters => "2 gathers of weights and 1 reduce-scatter of gradients a micro-batch",
        _ => "reduce-scatter of gradients, all-gather of weights",
    };
    let formula = exposed(&b.data, o.data, &format!("{reduction} over {} ranks", p.data * p.context));
    line("data, exposed", b.data.exposed_s, formula);
    if job.phase != Phase::Training {
        let sent_on = job.phase == Phase::Prefill && job.kv_transfer > 0.0;
        let formula = if sent_on {
            "decoding weights at rest, then the prompts' KV to other workers, encode ∥ wire ∥ decode in chunks"
        } else {
            "max(decoding weights and KV at rest, spilled KV over the host wire)"
        };
        line("storage, exposed", b.storage.exposed_s, exposed(&b.storage, o.storage, formula));
    }
    let (p, n) = (p.pipeline, p.schedule.chunks());
    let formula = match job.parallelism.schedule {
        Schedule::DualPipe => {
            format!("({p} ÷ 2 − 1) stages × (forward + half of the backward pass), filled from both ends")
        }
        _ => format!("({p} − 1) stages × one micro-batch ÷ {n} chunks, as the pipeline fills and drains"),
    };
    line("bubble", b.bubble_s, formula);
    let codec = &point.cluster.codec;
    if codec.gpu_share > 0.0 {
        let formula = format!(
            "{:.4} of the GPU for each second of a codec at {:.3e} values/s in and {:.3e} out",
            codec.gpu_share, codec.encode_values_per_s, codec.decode_values_per_s
        );
        line("codec on multiprocessors", b.codec_s, formula);
    }
    line("iteration", estimate.iteration_s, "sum of the lines above".into());
    result_lines(point, estimate, lines);
}

/// What the time comes to: tokens, and how much of the GPU's arithmetic they use.
fn result_lines(point: &Point, estimate: &Estimate, lines: &mut Vec<Line>) {
    let (job, math) = (&point.job, point.job.precision.math);
    let mut line =
        |name, value, unit, formula| lines.push(Line { group: "result", name, value, unit, formula });
    let tokens = format!("{} tokens ÷ iteration", job.tokens());
    line("tokens a second", estimate.tokens_per_s, "1/s", tokens);
    let flops =
        format!("{:.4e} FLOPs of the model ÷ {} GPUs ÷ iteration", job.model_flops(), point.cluster.gpus);
    line("model TFLOP/s a GPU", estimate.model_tflops_per_gpu, "TFLOP/s", flops);
    let peak = point.cluster.gpu.peak_flops.of(math);
    line("MFU", estimate.mfu, "", format!("that ÷ {peak:.4e} FLOP/s in {}", math.name()));
}

fn memory_lines(point: &Point, estimate: &Estimate, lines: &mut Vec<Line>) {
    let job = &point.job;
    let memory = &estimate.memory;
    let mut line = |name, bytes: f64, formula| {
        lines.push(Line { group: "memory", name, value: bytes / 1e9, unit: "GB", formula });
    };
    let precision = &job.precision;
    let zero = job.parallelism.zero.stage();
    let formula = format!(
        "parameters of the fullest stage × {} bits",
        match job.phase {
            Phase::Training => precision.weight_bits,
            _ => job.compression.weight_bits.unwrap_or(precision.weight_bits),
        }
    );
    line("weights", memory.weights_bytes, formula);
    let formula = format!("parameters × {} bits, ZeRO {zero}", precision.gradient_bits);
    line("gradients", memory.gradients_bytes, formula);
    let formula = format!("parameters × {} bytes, ZeRO {zero}", precision.optimizer_bytes_per_parameter);
    line("optimizer", memory.optimizer_bytes, formula);
    let formula = format!(
        "kept a layer × layers a stage × micro-batches in flight, recompute {}",
        job.recompute.name()
    );
    line("activations", memory.activations_bytes, formula);
    let formula = format!(
        "sequences × {} tokens × {} values × layers a stage × bits × (1 − {} spilled)",
        job.sequence,
        job.llm.kv_values_per_token_layer(),
        job.kv_spill
    );
    line("KV", memory.kv_bytes, formula);
    line("buffers", memory.buffers_bytes, "reserved by driver and runtime".into());
    line("codec staging", memory.codec_staging_bytes, "4 chunks a codec".into());
    line("total", memory.total_bytes(), format!("of {:.1} GB", point.cluster.gpu.usable_bytes() / 1e9));
}

/// To a tenth: what follows from parts has digits that mean nothing.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn energy_lines(point: &Point, estimate: &Estimate, lines: &mut Vec<Line>) {
    let cluster = &point.cluster;
    let energy = &estimate.energy;
    let gpus = cluster.gpus;
    let mut line =
        |name, value, formula| lines.push(Line { group: "energy", name, value, unit: "J", formula });
    let gpu = &cluster.gpu;
    let formula =
        format!("{gpus} GPUs × ({} − {}) W × compute time", tenth(gpu.power_w), tenth(gpu.idle_power_w));
    line("compute", energy.compute_j, formula);
    line("GPU idle", energy.gpu_idle_j, format!("{gpus} GPUs × {} W × iteration", tenth(gpu.idle_power_w)));
    let formula = format!(
        "bits sent × {:.1} pJ/bit inside nodes, {:.1} in adapters and {:.1} in switches between them",
        cluster.intra.energy_j_per_bit * 1e12,
        cluster.nic.energy_j_per_bit * 1e12,
        cluster.levels.crossing(u64::from(gpus)).energy_j_per_bit * 1e12
    );
    line("wires", energy.wire_j, formula);
    let formula =
        format!("{gpus} × {} NICs × {} W × iteration", cluster.nics_per_gpu, cluster.nic.idle_power_w);
    line("NIC idle", energy.nic_idle_j, formula);
    let formula = format!("{gpus} GPUs × {} W of ports × iteration", tenth(switch_idle_w(cluster)));
    line("switch idle", energy.switch_idle_j, formula);
    let formula = format!(
        "values encoded × {:.2} nJ + values decoded × {:.2} nJ",
        cluster.codec.encode_j_per_value * 1e9,
        cluster.codec.decode_j_per_value * 1e9
    );
    line("codec", energy.codec_j, formula);
    let formula = format!(
        "{gpus} × {} codecs × {:.3} W × iteration",
        cluster.codecs_per_gpu, cluster.codec.idle_power_w
    );
    line("codec idle", energy.codec_idle_j, formula);
    line("total", energy.total_j(), "sum of the lines above".into());
    let formula = format!("total ÷ {} tokens", point.job.tokens());
    lines.push(Line::of("result", "energy a token", (estimate.energy_j_per_token, "J"), formula));
}

fn area_lines(point: &Point, estimate: &Estimate, lines: &mut Vec<Line>) {
    let cluster = &point.cluster;
    let area = &estimate.area;
    let gpus = cluster.gpus;
    let mut line =
        |name, value, formula| lines.push(Line { group: "area", name, value, unit: "mm²", formula });
    line("GPUs", area.gpu_mm2, format!("{gpus} × {} mm²", tenth(cluster.gpu.area_mm2)));
    line("NICs", area.nic_mm2, format!("{gpus} × {} × {} mm²", cluster.nics_per_gpu, cluster.nic.area_mm2));
    let formula = format!("{gpus} × {} × {:.3} mm²", cluster.codecs_per_gpu, cluster.codec.area_mm2);
    line("codecs", area.codec_mm2, formula);
    line("total", area.total_mm2(), "sum of the lines above".into());
}

/// What a model being served takes, over all devices: weights and cache, as
/// they rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    pub weights_bytes: f64,
    pub kv_bytes: f64,
    /// Devices that share one copy of the weights.
    pub devices: f64,
}

/// The footprint of a point, whether it fits or not.
pub fn footprint(point: &Point) -> Footprint {
    let job = &point.job;
    let p = &job.parallelism;
    let weight_bits = job.compression.weight_bits.unwrap_or(job.precision.weight_bits);
    let kv_bits = job.compression.kv_bits.unwrap_or(job.precision.kv_bits);
    let cached = f64::from(job.global_batch)
        * f64::from(job.sequence)
        * f64::from(job.llm.layers)
        * job.llm.kv_values_per_token_layer();
    Footprint {
        weights_bytes: job.llm.parameters() * weight_bits / 8.0,
        kv_bytes: cached * kv_bits / 8.0,
        devices: f64::from(p.tensor) * f64::from(p.pipeline),
    }
}
