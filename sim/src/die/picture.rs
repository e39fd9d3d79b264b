//! A die at work: area by part, power by part, and what holds up each kernel.

use super::{Kernel, Level, Roofline};
use crate::compute::Shape;
use crate::job::{AttentionKernel, Job, Phase};
use crate::llm::{Attention, Moe};
use crate::sweep::Point;
use crate::{Estimate, Line};
use trinity_silicon::die::{Activity, AreaByPart, DieCost, PowerByPart};

/// One kernel of a layer's forward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelLevel {
    pub name: &'static str,
    pub time_s: f64,
    pub level: Level,
}

/// What `sweep explain` shows of a GPU given by parts.
#[derive(Clone, Debug, PartialEq)]
pub struct DiePicture {
    pub area: AreaByPart,
    /// Power on average over an iteration.
    pub power: PowerByPart,
    pub sustained_clock_hz: f64,
    /// Kernels of one layer's forward pass.
    pub kernels: Vec<KernelLevel>,
    /// Where the study states its wafers' price and defects; assumed otherwise,
    /// and shown only where asked for.
    pub cost: Option<DieCost>,
}

/// The picture of a point; `None` for a GPU given by totals.
pub fn picture(point: &Point, estimate: &Estimate) -> Option<DiePicture> {
    let cluster = &point.cluster;
    let die = cluster.gpu.die.as_ref()?;
    let codec_mm2 = cluster.codecs_per_gpu * cluster.codec.area_mm2;
    let kernels = kernels(point);
    let per_s = |amount: f64| amount / estimate.iteration_s;
    let gpus = f64::from(cluster.gpus);
    let wires = if cluster.intra.energy_j_per_bit > 0.0 {
        estimate.energy.wire_j / gpus / (8.0 * cluster.intra.energy_j_per_bit)
    } else {
        0.0
    };
    // L2 traffic follows the matrix work as in the listed kernels.
    let l2_over_memory = l2_over_memory(&kernels);
    let activity = Activity {
        matrix_flop_per_s: per_s(estimate.breakdown.flops),
        memory_bytes_per_s: per_s(estimate.breakdown.memory_bytes),
        l2_bytes_per_s: per_s(estimate.breakdown.memory_bytes) * l2_over_memory,
        link_bytes_per_s: per_s(wires).min(die.links_bytes_per_s()),
        codec_w: per_s((estimate.energy.codec_j + estimate.energy.codec_idle_j) / gpus),
        ..Activity::default()
    };
    let clock_hz = die.roofline.sustained_clock_hz;
    Some(DiePicture {
        area: die.area(codec_mm2),
        power: die.power(codec_mm2, &activity, clock_hz),
        sustained_clock_hz: clock_hz,
        kernels: kernels
            .iter()
            .map(|&(name, kernel)| KernelLevel { name, time_s: kernel.time_s, level: kernel.level })
            .collect(),
        cost: die.cost(codec_mm2),
    })
}

fn l2_over_memory(kernels: &[(&'static str, Kernel)]) -> f64 {
    let sum = |read: fn(&Kernel) -> f64| kernels.iter().map(|(_, kernel)| read(kernel)).sum::<f64>();
    let memory = sum(|kernel| kernel.memory_bytes);
    if memory > 0.0 { sum(|kernel| kernel.l2_bytes) / memory } else { 1.0 }
}

/// The kernels of one layer's forward pass, of a sparse layer where there are
/// experts: those that the estimate adds up.
fn kernels(point: &Point) -> Vec<(&'static str, Kernel)> {
    let Some(die) = point.cluster.gpu.die.as_ref() else { return Vec::new() };
    let (job, roofline) = (&point.job, &die.roofline);
    let shape = Shape::of(job);
    let software = &point.cluster.gpu.software;
    let share = if job.parallelism.sequence_parallel { shape.tensor } else { 1.0 };
    let ffn = job.llm.moe.map_or(f64::from(job.llm.ffn), |moe| {
        f64::from(moe.expert_ffn) * f64::from(moe.top_k + moe.shared_experts)
    });
    let hidden = f64::from(job.llm.hidden);
    let values = software.hidden_passes * hidden / share + software.mlp_passes * ffn / shape.tensor;
    let mut list = projections(roofline, job, &shape);
    list.insert(list.len() - 1, ("attention", attention(point, roofline, &shape)));
    list.extend(match job.llm.moe {
        None => dense(roofline, job, &shape),
        Some(moe) => sparse(roofline, job, &shape, moe),
    });
    list.push(("norms, sums, activation", roofline.stream(shape.tokens * values * shape.activation_bytes)));
    list
}

fn gemm(roofline: &Roofline, job: &Job, shape: &Shape, sizes: (f64, f64, f64, f64)) -> Kernel {
    roofline.gemm(sizes, shape.activation_bytes, shape.weight_bytes, job.precision.math)
}

/// Products before attention, and the one behind it last.
fn projections(roofline: &Roofline, job: &Job, shape: &Shape) -> Vec<(&'static str, Kernel)> {
    let llm = &job.llm;
    let (h, t) = (f64::from(llm.hidden), shape.tensor);
    let (heads, head_dim) = (f64::from(llm.heads) / t, f64::from(llm.head_dim));
    let of = |n: f64, k: f64| gemm(roofline, job, shape, (1.0, shape.tokens, n, k));
    match llm.attention {
        Attention::Grouped => {
            let kv_heads = (f64::from(llm.kv_heads) / t).max(1.0);
            vec![
                ("query, key, value", of((heads + 2.0 * kv_heads) * head_dim, h)),
                ("attention output", of(h, heads * head_dim)),
            ]
        }
        Attention::Latent { query_rank, kv_rank, rope_dim, value_dim } => {
            let (q_rank, kv_rank) = (f64::from(query_rank), f64::from(kv_rank));
            let (rope, value) = (f64::from(rope_dim), f64::from(value_dim));
            vec![
                ("query and cache, down", of(q_rank + kv_rank + rope, h)),
                ("query, up", of(heads * (head_dim + rope), q_rank)),
                ("key and value, up", of(heads * (head_dim + value), kv_rank)),
                ("attention output", of(h, heads * value)),
            ]
        }
    }
}

fn attention(point: &Point, roofline: &Roofline, shape: &Shape) -> Kernel {
    let job = &point.job;
    let llm = &job.llm;
    let heads = f64::from(llm.heads) / shape.tensor;
    let (score_dim, value_dim) = llm.attention_dims();
    let pairs = shape.sequences * shape.queries * shape.context * heads;
    let cached = shape.sequences * shape.context * llm.kv_values_per_token_layer() * shape.kv_bytes
        / shape.tensor.min(f64::from(llm.kv_heads));
    let vectors = shape.tokens * heads * (score_dim + value_dim) * shape.activation_bytes;
    let (scores, written) = match (job.phase, job.attention) {
        (Phase::Decode, _) => (pairs, 0.0),
        // The causal mask leaves half of the square.
        (_, AttentionKernel::Flash) => (pairs / 2.0, 0.0),
        (_, AttentionKernel::Materialized) => {
            (pairs, point.cluster.gpu.software.score_passes * pairs * shape.activation_bytes)
        }
    };
    let flops = scores * 2.0 * (score_dim + value_dim);
    roofline.attention(flops, scores, cached + vectors + written, job.precision.math)
}

fn dense(roofline: &Roofline, job: &Job, shape: &Shape) -> Vec<(&'static str, Kernel)> {
    let (h, f) = (f64::from(job.llm.hidden), f64::from(job.llm.ffn) / shape.tensor);
    let up = (job.llm.mlp_matrices() - 1.0) * f;
    vec![
        ("feed-forward, up", gemm(roofline, job, shape, (1.0, shape.tokens, up, h))),
        ("feed-forward, down", gemm(roofline, job, shape, (1.0, shape.tokens, h, f))),
    ]
}

fn sparse(roofline: &Roofline, job: &Job, shape: &Shape, moe: Moe) -> Vec<(&'static str, Kernel)> {
    let (h, f) = (f64::from(job.llm.hidden), f64::from(moe.expert_ffn) / shape.tensor);
    let up = (job.llm.mlp_matrices() - 1.0) * f;
    let routed = shape.tokens * f64::from(moe.top_k);
    let local = f64::from(moe.experts) / f64::from(job.parallelism.expert);
    let awake = local.min(routed).max(1.0);
    let of = |sizes| gemm(roofline, job, shape, sizes);
    let mut list = vec![
        ("router", of((1.0, shape.tokens, f64::from(moe.experts), h))),
        ("tokens to experts", roofline.stream(4.0 * routed * h * shape.activation_bytes)),
        ("experts, up", of((awake, routed / awake, up, h))),
        ("experts, down", of((awake, routed / awake, h, f))),
    ];
    let shared = f64::from(moe.shared_experts);
    if shared > 0.0 {
        list.push(("shared experts, up", of((1.0, shape.tokens, up * shared, h))));
        list.push(("shared experts, down", of((1.0, shape.tokens, h, f * shared))));
    }
    list
}

/// What a package costs, where the study states its wafers.
fn cost_lines(point: &Point, picture: &DiePicture) -> Vec<Line> {
    let Some(die) = point.cluster.gpu.die.filter(|die| die.wafer.is_stated()) else { return Vec::new() };
    let Some(cost) = picture.cost else { return Vec::new() };
    let each_mm2 = picture.area.total_mm2() / cost.dies;
    let line = |name, value, unit, formula| Line { group: "cost", name, value, unit, formula };
    let defects = die.wafer.defects_per_cm2;
    let good = format!("negative binomial, {defects} defects a cm², spare units fused off");
    let paid = format!("{} × {} USD a wafer ÷ dies a wafer ÷ yield", cost.dies, die.wafer.usd);
    vec![
        line("dies a wafer", cost.dies_per_wafer, "", format!("whole dies of {each_mm2:.0} mm² on 300 mm")),
        line("yield", cost.yield_fraction, "", good),
        line("good dies", cost.die_usd, "USD", paid),
        line("memory", cost.memory_usd, "USD", "assumed, by stack or channel".into()),
        line("package", cost.packaging_usd, "USD", "assumed, by area".into()),
        line("GPU", cost.total_usd(), "USD", "sum of the three".into()),
    ]
}

/// The picture as lines of an explanation; none for a GPU given by totals.
pub(crate) fn lines(point: &Point, estimate: &Estimate) -> Vec<Line> {
    let Some(picture) = picture(point, estimate) else { return Vec::new() };
    let mut lines = Vec::new();
    let total_mm2 = picture.area.total_mm2();
    for (name, mm2) in picture.area.named() {
        if mm2 > 0.0 {
            let formula = format!("{:.1} % of the GPU's silicon", 100.0 * mm2 / total_mm2);
            lines.push(Line::of("die", name, (mm2, "mm²"), formula));
        }
    }
    lines.push(Line::of("die", "die", (total_mm2, "mm²"), "sum of the lines above, spares included"));
    lines.extend(cost_lines(point, &picture));
    for (name, watts) in picture.power.named() {
        if watts > 0.0 {
            lines.push(Line::of("power", name, (watts, "W"), "one GPU, on average over an iteration"));
        }
    }
    let clock = (picture.sustained_clock_hz / 1e9, "GHz");
    lines.push(Line::of("power", "matrix clock", clock, "at which a large product draws the power limit"));
    for kernel in &picture.kernels {
        let formula = format!("one layer, one micro-batch, forward; held up by {}", kernel.level.name());
        lines.push(Line::of("kernel", kernel.name, (kernel.time_s, "s"), formula));
    }
    for more in super::marginals(point).unwrap_or_default() {
        let formula = format!(
            "{} {} more: {:.3} mm², {:+.4} tokens/s ({:+.3} %){}{}",
            more.step,
            more.unit,
            more.mm2,
            more.tokens_per_s,
            100.0 * more.gain,
            if more.loss.is_some() { ": " } else { "" },
            more.loss.unwrap_or_default()
        );
        lines.push(Line::of("one more", more.part, (more.tokens_per_s_per_mm2(), "1/s/mm²"), formula));
    }
    lines
}
