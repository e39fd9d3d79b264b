//! From tables of millions of kernels to one small file for each GPU.

use super::fit::{Sample, fit};
use super::rows::{self, KernelRow};
use super::{FamilyError, Unseen, join, table};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use trinity_numeric::threads;
use trinity_sim::kernels::{Device, Kernels, Kind, Measured, Steps, quantize};

/// A GPU whose kernels were measured.
struct Gpu {
    /// What files and clusters call it.
    name: &'static str,
    /// Folder of its tables.
    folder: &'static str,
    title: &'static str,
    source: &'static str,
    device: Device,
}

/// Dense rates, memory bandwidth, link bandwidth of one direction, SMs.
const fn device([bf16_t, fp8_t, fp4_t]: [f64; 3], memory_g: f64, link_g: f64, sms: f64) -> Device {
    Device {
        bf16_flops: bf16_t * 1e12,
        fp8_flops: fp8_t * 1e12,
        fp4_flops: fp4_t * 1e12,
        memory_bytes_per_s: memory_g * 1e9,
        link_bytes_per_s: link_g * 1e9,
        sms,
    }
}

const MEASURED: [Gpu; 9] = [
    Gpu {
        name: "a100",
        folder: "a100_sxm",
        title: "NVIDIA A100 SXM 80 GB",
        source: "NVIDIA A100 datasheet; no FP8 or FP4 units",
        device: device([312.0, 312.0, 312.0], 2039.0, 300.0, 108.0),
    },
    Gpu {
        name: "b200",
        folder: "b200_sxm",
        title: "NVIDIA B200 SXM",
        source: "NVIDIA HGX B200 datasheet; 148 SMs as CUDA reports",
        device: device([2250.0, 4500.0, 9000.0], 7700.0, 900.0, 148.0),
    },
    Gpu {
        name: "b300",
        folder: "b300_sxm",
        title: "NVIDIA B300 SXM",
        source: "NVIDIA DGX B300 datasheet; 148 SMs as CUDA reports",
        device: device([2250.0, 4500.0, 14000.0], 7750.0, 900.0, 148.0),
    },
    Gpu {
        name: "gb200",
        folder: "gb200",
        title: "NVIDIA GB200",
        source: "NVIDIA GB200 NVL72 datasheet; 152 SMs as CUDA reports",
        device: device([2500.0, 5000.0, 10000.0], 8000.0, 900.0, 152.0),
    },
    Gpu {
        name: "gb300",
        folder: "gb300",
        title: "NVIDIA GB300",
        source: "NVIDIA Blackwell Ultra datasheet; 152 SMs as CUDA reports",
        device: device([2500.0, 5000.0, 15000.0], 8000.0, 900.0, 152.0),
    },
    Gpu {
        name: "h100",
        folder: "h100_sxm",
        title: "NVIDIA H100 SXM 80 GB",
        source: "NVIDIA H100 SXM datasheet; no FP4 units",
        device: device([989.0, 1979.0, 1979.0], 3350.0, 450.0, 132.0),
    },
    Gpu {
        name: "h200",
        folder: "h200_sxm",
        title: "NVIDIA H200 SXM",
        source: "NVIDIA H200 SXM datasheet; no FP4 units",
        device: device([989.0, 1979.0, 1979.0], 4800.0, 450.0, 132.0),
    },
    Gpu {
        name: "l40s",
        folder: "l40s",
        title: "NVIDIA L40S",
        source: "NVIDIA L40S datasheet; PCIe 4.0 x16 between GPUs; no FP4 units",
        device: device([362.0, 733.0, 733.0], 864.0, 32.0, 142.0),
    },
    Gpu {
        name: "rtx-pro-6000",
        folder: "rtx_pro_6000_server",
        title: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        source: "NVIDIA RTX PRO 6000 datasheet at 2430 MHz; PCIe 5.0 x16 between GPUs",
        device: device([468.0, 936.0, 1871.0], 1792.0, 64.0, 188.0),
    },
];

/// Where the tables come from.
const ORIGIN: &str = "ai-dynamo/aiconfigurator, commit 095f58a51c4ca8e61b66ec108d86f223f8d559ce, Apache-2.0";

/// The file of one GPU, and how well it does.
#[derive(Clone, Debug)]
pub struct Distilled {
    pub gpu: &'static str,
    pub text: String,
    pub errors: Vec<FamilyError>,
}

/// Distils the tables of each GPU that `folder` holds and `wanted` takes.
pub fn distil(
    folder: &Path,
    wanted: impl Fn(&str) -> bool,
    mut each: impl FnMut(Distilled),
) -> Result<(), table::Error> {
    for gpu in MEASURED.iter().filter(|gpu| wanted(gpu.name) && folder.join(gpu.folder).is_dir()) {
        let (rows, versions) = rows::read(&folder.join(gpu.folder), &gpu.device)?;
        each(of_gpu(gpu, &rows, &versions));
    }
    Ok(())
}

/// The error of the built-in curves on the kernels of `folder` they did not see.
pub fn remeasured(
    folder: &Path,
    kernels: impl Fn(&str) -> Option<&'static Kernels>,
) -> Result<Vec<FamilyError>, table::Error> {
    let mut errors = Vec::new();
    for gpu in MEASURED.iter().filter(|gpu| folder.join(gpu.folder).is_dir()) {
        let Some(kernels) = kernels(gpu.name) else { continue };
        let (rows, _) = rows::read(&folder.join(gpu.folder), &gpu.device)?;
        for row in rows.iter().filter(|row| row.held_out) {
            let Ok(timed) = kernels.time_at(row.kind, &row.at) else { continue };
            let mut unseen = Unseen::default();
            unseen.add(timed.s, row.seconds);
            join(&mut errors, gpu.name, row.kind.family(), &unseen);
        }
    }
    Ok(errors)
}

/// A curve as the file has it, and what it errs by.
struct Fitted {
    fitted: usize,
    ranges: Vec<(f64, f64)>,
    steps: Steps,
    digits: String,
    unseen: Unseen,
}

fn of_gpu(gpu: &Gpu, rows: &[KernelRow], versions: &[(&'static str, String)]) -> Distilled {
    let mut by_kind: BTreeMap<Kind, Vec<&KernelRow>> = BTreeMap::new();
    for row in rows {
        by_kind.entry(row.kind).or_default().push(row);
    }
    let kinds: Vec<(Kind, Vec<&KernelRow>)> = by_kind.into_iter().collect();
    let fitted = threads::map(&kinds, |(kind, rows)| of_kind(*kind, rows, &gpu.device));
    let mut text = header(gpu, versions);
    let mut errors = Vec::new();
    for ((kind, _), fitted) in kinds.iter().zip(&fitted) {
        write_curve(&mut text, *kind, fitted, versions);
        join(&mut errors, gpu.name, kind.family(), &fitted.unseen);
    }
    Distilled { gpu: gpu.name, text, errors }
}

fn of_kind(kind: Kind, rows: &[&KernelRow], device: &Device) -> Fitted {
    let seen: Vec<&&KernelRow> = rows.iter().filter(|row| !row.held_out).collect();
    let samples: Vec<Sample> = seen
        .iter()
        .map(|row| Sample { log2: row.at.log2, correction: (row.seconds / row.at.roofline_s).ln() })
        .collect();
    let count = kind.coordinates().len();
    let mut ranges = vec![(f64::INFINITY, 0.0_f64); count];
    for row in rows {
        for (range, log2) in ranges.iter_mut().zip(&row.at.log2) {
            // Whole sizes stay whole through the logarithm and back.
            let value = (log2.exp2() * 1e6).round() / 1e6;
            *range = (range.0.min(value), range.1.max(value));
        }
    }
    let (steps, digits) = quantize(&fit(kind, &samples));
    let measured = Measured { kind, ranges: ranges.clone(), steps, digits: &digits };
    let mut unseen = Unseen::default();
    if let Ok(kernels) = Kernels::new("", *device, &[measured]) {
        for row in rows.iter().filter(|row| row.held_out) {
            if let Ok(timed) = kernels.time_at(kind, &row.at) {
                unseen.add(timed.s, row.seconds);
            }
        }
    }
    Fitted { fitted: samples.len(), ranges, steps, digits, unseen }
}

fn header(gpu: &Gpu, versions: &[(&'static str, String)]) -> String {
    let mut text = format!(
        "# Kernels measured on {}: generated by `cargo xtask kernels`, not to be edited\n",
        gpu.title
    );
    let device = &gpu.device;
    let tables: Vec<String> = versions.iter().map(|(table, version)| format!("{table} {version}")).collect();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "source = \"distilled from {ORIGIN}: {}\"\ngpu = \"{}\"\n\n[device]\nsource = \"{}\"\n\
         bf16 = \"{} TFLOP/s\"\nfp8 = \"{} TFLOP/s\"\nfp4 = \"{} TFLOP/s\"\nmemory-bandwidth = \"{} GB/s\"\n\
         link-bandwidth = \"{} GB/s\"\nsms = {}\n",
        tables.join(", "),
        gpu.name,
        gpu.source,
        device.bf16_flops / 1e12,
        device.fp8_flops / 1e12,
        device.fp4_flops / 1e12,
        device.memory_bytes_per_s / 1e9,
        device.link_bytes_per_s / 1e9,
        device.sms,
    );
    text
}

/// The table that kernels of a kind were taken from.
fn table_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Matmul(_) => "gemm",
        Kind::ContextAttention(_) => "context_attention",
        Kind::GenerationAttention(_) => "generation_attention",
        Kind::Moe(_) => "moe",
        Kind::MlaContext(_) => "context_mla",
        Kind::MlaGeneration(_) => "generation_mla",
        Kind::MlaContextModule(_) => "mla_context_module",
        Kind::MlaGenerationModule(_) => "mla_generation_module",
        Kind::Collective(trinity_sim::kernels::Collective::CustomAllReduce) => "custom_allreduce",
        _ => "nccl",
    }
}

fn write_curve(text: &mut String, kind: Kind, fitted: &Fitted, versions: &[(&'static str, String)]) {
    let table = table_of(kind);
    let from = versions.iter().find(|(known, _)| *known == table).map_or("", |(_, version)| version);
    let ranges: Vec<String> = fitted.ranges.iter().map(|(low, high)| format!("[{low}, {high}]")).collect();
    let unseen = &fitted.unseen;
    let _ = write!(
        text,
        "\n[[curves]]\nfamily = \"{}\"\nvariant = \"{}\"\nfrom = \"{from}\"\nfitted = {}\n\
         unseen = {{ long = {}, long-mape = {:.4}, short = {}, short-mape = {:.4} }}\n\
         ranges = [{}]\nlow = {}\nstep = {}\nvalues = \"{}\"\n",
        kind.family(),
        kind.variant(),
        fitted.fitted,
        unseen.long,
        unseen.long_mape(),
        unseen.short,
        unseen.short_mape(),
        ranges.join(", "),
        fitted.steps.low,
        fitted.steps.step,
        fitted.digits,
    );
}
