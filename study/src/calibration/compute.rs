//! Compute curves of a calibration in place of a GPU's estimated ones: how much
//! of their stated rates matrix products, attention and memory reach, what a
//! launch costs, what the GPU draws.
//!
//! They hold for the device that was measured, so they go into a study whose GPU
//! is read from the file of that name, and nowhere else. A GPU by its parts has
//! no curves to replace: its kernels follow from its caches.

use super::value::spread;
use crate::config::measured::{Value, rounded};
use crate::config::{GpuFile, Replacement, StudyFile};
use std::path::Path;
use trinity_config::{Document, Duration, Power};
use trinity_hwcodec::calibration::Calibration;
use trinity_hwcodec::compute::curves::{AttentionRates, ComputeModel, Points, ProductGrid};
use trinity_sim::Llm;

/// Points that a curve of the simulator holds.
const MOST_POINTS: usize = 8;
/// Sequences times heads times tokens of the attention that `measure --compute` times.
const TIMED_QUERIES: f64 = 16.0 * 16_384.0;

/// What the calibration says of the compute of a study's GPU; nothing where it
/// measured another, and then why.
pub(super) fn values(
    calibration: &Calibration,
    document: &Document,
    study: &StudyFile,
    llm: &Llm,
) -> Result<Vec<Value>, String> {
    let Some(compute) = &calibration.compute else { return Ok(Vec::new()) };
    let gpu = &study.cluster.gpu;
    if gpu.by_parts() {
        return Err("the GPU is given by its parts, whose kernels follow from its caches".into());
    }
    let device = calibration.device.gpu.as_str();
    match gpu_name(document) {
        Some(name) if is_device(&name, device) => {}
        name => {
            let name = name.unwrap_or_else(|| "another".into());
            return Err(format!("compute was measured on {device}, the GPU under study is {name}"));
        }
    }
    let mut list = curves(compute, gpu, llm);
    if let Some(launch) = &compute.eager_launch_us {
        let note = spread(launch, "us");
        list.push(Value::new("cluster.launch", rounded(launch.value), "us", note, |study, us| {
            study.cluster.launch = Duration::from_s(us * 1e-6);
        }));
    }
    if let Some(power) = &compute.power {
        let note = "clocks up, nothing running".into();
        list.push(Value::new("cluster.gpu.idle-power", rounded(power.idle_w), "W", note, |study, w| {
            study.cluster.gpu.idle_power = Some(Power::from_w(w));
        }));
    }
    Ok(list)
}

fn curves(compute: &ComputeModel, gpu: &GpuFile, llm: &Llm) -> Vec<Value> {
    let mut list = Vec::new();
    let (peak, bandwidth) = (gpu.fp16, gpu.memory_bandwidth);
    if let (Some(peak), Some(bandwidth)) = (peak, bandwidth) {
        let (peak, bandwidth) = (peak.flop_per_s(), bandwidth.byte_per_s());
        let points = products(&compute.products, peak, bandwidth);
        let note = format!("bf16 products, timings within {:.1} %", 100.0 * compute.products.spread);
        list.extend(curve("cluster.gpu.gemm-efficiency", points, note, |study, points| {
            study.cluster.gpu.gemm_efficiency = points.to_vec();
        }));
        let points = streams(&compute.streams, bandwidth);
        let note = format!("reads and writes, timings within {:.1} %", 100.0 * compute.streams.spread);
        list.extend(curve("cluster.gpu.memory-efficiency", points, note, |study, points| {
            study.cluster.gpu.memory_efficiency = points.to_vec();
        }));
        if let Some(rates) = nearest(&compute.attention, llm.head_dim) {
            let note = format!("causal attention, forward, heads of {}, {}", rates.head_dim, rates.kernel);
            list.extend(curve(
                "cluster.gpu.attention-efficiency",
                attention(rates, peak),
                note,
                |study, points| {
                    study.cluster.gpu.attention_efficiency = points.to_vec();
                },
            ));
        }
    }
    list
}

/// A curve on its way into a study, where it is one.
fn curve(
    path: &'static str,
    points: Vec<(f64, f64)>,
    note: String,
    set: fn(&mut StudyFile, &[(f64, f64)]),
) -> Option<Value> {
    if points.is_empty() {
        return None;
    }
    let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (rounded(x), rounded(y))).collect();
    let text: Vec<String> = points.iter().map(|(x, y)| format!("[{x:e}, {y}]")).collect();
    let text = format!("[{}]", text.join(", "));
    Some(Value { path, replacement: Replacement::Curve { points, set }, text, note })
}

/// Share of peak over FLOPs: the median of each decade's products that
/// arithmetic bounds.
fn products(grid: &ProductGrid, peak: f64, bandwidth: f64) -> Vec<(f64, f64)> {
    let mut timed: Vec<(f64, f64)> = Vec::new();
    let mut times = grid.microseconds.iter();
    for &m in &grid.rows {
        for &n in &grid.columns {
            for &k in &grid.depths {
                let Some(us) = times.next() else { return Vec::new() };
                let (m, n, k) = (f64::from(m), f64::from(n), f64::from(k));
                let flops = 2.0 * m * n * k;
                let bytes = 2.0 * (m * k + k * n + m * n);
                if *us > 0.0 && flops / peak > bytes / bandwidth {
                    timed.push((flops, flops / (us * 1e-6) / peak));
                }
            }
        }
    }
    medians(timed)
}

/// At most eight points: the median of each stretch of equal ratio.
fn medians(mut timed: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    timed.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(&(first, _)), Some(&(last, _))) = (timed.first(), timed.last()) else { return Vec::new() };
    let step = (last / first).ln() / MOST_POINTS as f64;
    let mut points = Vec::new();
    for at in 0..MOST_POINTS {
        let stretch = |&(x, _): &(f64, f64)| {
            let place = if step > 0.0 { ((x / first).ln() / step) as usize } else { 0 };
            place.min(MOST_POINTS - 1) == at
        };
        let own: Vec<(f64, f64)> = timed.iter().copied().filter(|point| stretch(point)).collect();
        if own.is_empty() {
            continue;
        }
        let mut shares: Vec<f64> = own.iter().map(|(_, share)| *share).collect();
        shares.sort_unstable_by(f64::total_cmp);
        let middle = own.iter().map(|(x, _)| x.ln()).sum::<f64>() / own.len() as f64;
        points.push((middle.exp(), shares[shares.len() / 2]));
    }
    points
}

/// Share of bandwidth over bytes. What the L2 holds is faster than memory: one
/// is the most that memory gives.
fn streams(points: &Points, bandwidth: f64) -> Vec<(f64, f64)> {
    let timed =
        points.bytes.iter().zip(&points.microseconds).filter(|(bytes, us)| **bytes > 0.0 && **us > 0.0);
    medians(timed.map(|(bytes, us)| (*bytes, (bytes / (us * 1e-6) / bandwidth).min(1.0))).collect())
}

/// Share of peak over FLOPs of one kernel.
fn attention(rates: &AttentionRates, peak: f64) -> Vec<(f64, f64)> {
    let points = rates.tokens.iter().zip(&rates.forward_tflops).map(|(tokens, tflops)| {
        let flops = 2.0 * TIMED_QUERIES * f64::from(*tokens) * f64::from(rates.head_dim);
        (flops, tflops * 1e12 / peak)
    });
    points.take(MOST_POINTS).collect()
}

fn nearest(list: &[AttentionRates], head_dim: u32) -> Option<&AttentionRates> {
    let apart = |rates: &&AttentionRates| {
        let fused = rates.kernel == "framework";
        (!fused, rates.head_dim.abs_diff(head_dim))
    };
    list.iter().min_by_key(apart)
}

/// The name of the file that the GPU's rates stand in.
fn gpu_name(document: &Document) -> Option<String> {
    let place = document.place("study.cluster.gpu.fp16").or_else(|| document.place("cluster.gpu.fp16"))?;
    Some(Path::new(&place.source.name).file_stem()?.to_string_lossy().into_owned())
}

/// Whether a file such as `h200` or `my-h200` is about a device such as `NVIDIA H200`.
fn is_device(file: &str, device: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.to_lowercase().split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
    };
    let Some(model) = words(device).into_iter().find(|word| word.chars().any(|c| c.is_ascii_digit())) else {
        return false;
    };
    words(file).contains(&model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_about_the_device_whose_model_it_names() {
        assert!(is_device("h200", "NVIDIA H200") && is_device("my-h200", "NVIDIA H200 141GB"));
        assert!(!is_device("h100", "NVIDIA H200") && !is_device("gpu", "NVIDIA H200"));
    }

    #[test]
    fn medians_keep_their_order_and_their_number() {
        let timed = (0..1000).map(|k| (1e6 * 1.02f64.powi(k), f64::from(k) / 1000.0)).collect();
        let points = medians(timed);
        assert_eq!(points.len(), 8);
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        assert!(medians(Vec::new()).is_empty());
        let one = medians(vec![(5.0, 0.5)]);
        assert!(one.len() == 1 && (one[0].0 - 5.0).abs() < 1e-9 && one[0].1 == 0.5, "{one:?}");
    }
}
