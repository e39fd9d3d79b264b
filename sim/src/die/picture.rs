//! A die at work: area by part, power by part, and what holds up each kernel.

use super::{Kernel, Level};
use crate::compute::Shape;
use crate::job::{AttentionKernel, Job, Phase};
use crate::llm::Attention;
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
    /// On average over an iteration.
    pub power: PowerByPart,
    pub sustained_clock_hz: f64,
    /// Empty for attention and experts that this list does not know.
    pub kernels: Vec<KernelLevel>,
    /// Assumed, all of it; shown only where asked for.
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

/// The kernels of one dense layer's forward pass.
fn kernels(point: &Point) -> Vec<(&'static str, Kernel)> {
    let Some(die) = point.cluster.gpu.die.as_ref() else { return Vec::new() };
    let roofline = &die.roofline;
    let job: &Job = &point.job;
    let llm = &job.llm;
    if llm.attention != Attention::Grouped || llm.moe.is_some() {
        return Vec::new();
    }
    let shape = Shape::of(job);
    let math = job.precision.math;
    let (h, t) = (f64::from(llm.hidden), shape.tensor);
    let (heads, head_dim) = (f64::from(llm.heads) / t, f64::from(llm.head_dim));
    let kv_heads = (f64::from(llm.kv_heads) / t).max(1.0);
    let ffn = f64::from(llm.ffn) / t;
    let gemm = |n: f64, k: f64| {
        roofline.gemm((1.0, shape.tokens, n, k), shape.activation_bytes, shape.weight_bytes, math)
    };
    let pairs = shape.sequences * shape.queries * shape.context * heads;
    let causal = job.phase != Phase::Decode && job.attention == AttentionKernel::Flash;
    let scores = if causal { pairs / 2.0 } else { pairs };
    let cached = shape.sequences * shape.context * llm.kv_values_per_token_layer() * shape.kv_bytes
        / t.min(f64::from(llm.kv_heads));
    let vectors = shape.tokens * heads * 2.0 * head_dim * shape.activation_bytes;
    let software = &point.cluster.gpu.software;
    let share = if job.parallelism.sequence_parallel { t } else { 1.0 };
    let values = software.hidden_passes * h / share + software.mlp_passes * ffn;
    vec![
        ("query, key, value", gemm((heads + 2.0 * kv_heads) * head_dim, h)),
        ("attention", roofline.attention(scores * 4.0 * head_dim, scores, cached + vectors, math)),
        ("attention output", gemm(h, heads * head_dim)),
        ("feed-forward, up", gemm((llm.mlp_matrices() - 1.0) * ffn, h)),
        ("feed-forward, down", gemm(h, ffn)),
        ("norms, sums, activation", roofline.stream(shape.tokens * values * shape.activation_bytes)),
    ]
}

/// The picture as lines of an explanation; none for a GPU given by totals.
pub(crate) fn lines(point: &Point, estimate: &Estimate) -> Vec<Line> {
    let Some(picture) = picture(point, estimate) else { return Vec::new() };
    let mut lines = Vec::new();
    let total_mm2 = picture.area.total_mm2();
    for (name, mm2) in picture.area.named() {
        if mm2 > 0.0 {
            let formula = format!("{:.1} % of one die", 100.0 * mm2 / total_mm2);
            lines.push(Line { group: "die", name, value: mm2, unit: "mm²", formula });
        }
    }
    let formula = "sum of the lines above, spares included".into();
    lines.push(Line { group: "die", name: "die", value: total_mm2, unit: "mm²", formula });
    for (name, watts) in picture.power.named() {
        if watts > 0.0 {
            let formula = "one GPU, on average over an iteration".into();
            lines.push(Line { group: "power", name, value: watts, unit: "W", formula });
        }
    }
    lines.push(Line {
        group: "power",
        name: "matrix clock",
        value: picture.sustained_clock_hz / 1e9,
        unit: "GHz",
        formula: "at which a large product draws the power limit".into(),
    });
    for kernel in &picture.kernels {
        lines.push(Line {
            group: "kernel",
            name: kernel.name,
            value: kernel.time_s,
            unit: "s",
            formula: format!("one layer, one micro-batch, forward; held up by {}", kernel.level.name()),
        });
    }
    for more in super::marginals(point).unwrap_or_default() {
        lines.push(Line {
            group: "one more",
            name: more.part,
            value: more.tokens_per_s_per_mm2(),
            unit: "1/s/mm²",
            formula: format!(
                "{} {} more: {:.3} mm², {:+.4} tokens/s ({:+.3} %)",
                more.step,
                more.unit,
                more.mm2,
                more.tokens_per_s,
                100.0 * more.gain
            ),
        });
    }
    lines
}
