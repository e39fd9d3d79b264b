//! The measurements of `trinity measure`, one file each.
//!
//! Every one warms up, repeats, and answers medians with their spread. What
//! fails is recorded with its reason; a lost device ends the run with what is
//! already there.

mod bench;
mod chunk;
mod copies;
mod decode;
mod delta;
mod delta_gpu;
mod delta_line;
pub mod encode;
mod energy;
mod gemm;
pub mod line;
mod made_up;
mod overlap;
mod pool;
mod wires;

pub use bench::MeasurePlan;

use crate::Error;
use crate::discover;
use crate::gpu::Gpu;
use crate::recording::{Device, LeftOut, Recording};
use crate::streams::Encoder;
use bench::Bench;
use nvml_wrapper::Nvml;

/// Which parts of a recording to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Compute, then engines, copies, overlap and the line-rate codec.
    All,
    /// The line-rate codec on multiprocessors.
    Line,
    /// Products, streams, attention, launches and power.
    Compute,
}

/// What the caller brings: how streams are made, who is told what comes next,
/// the interpreter whose framework is asked, and where unfinished recordings go.
#[allow(missing_debug_implementations)] // closures have none
pub struct Setting<'s> {
    pub date: String,
    pub encoder: &'s Encoder<'s>,
    pub progress: &'s (dyn Fn(&str) + Sync),
    pub python: Option<&'s str>,
    pub save: &'s mut dyn FnMut(&Recording),
}

/// Measures `parts` on GPU 0. Compute comes first: it is short, and a job
/// that is cut off later keeps it.
pub fn run(plan: MeasurePlan, parts: Parts, setting: Setting<'_>) -> Result<Recording, Error> {
    let Setting { date, encoder, progress, python, save } = setting;
    let mut recording = begin(date)?;
    if parts == Parts::Line {
        progress("line-rate codec");
        recording.line = Some(line_codec(encoder)?);
        return Ok(recording);
    }
    progress("compute");
    let mut so_far = recording.clone();
    let mut keep = |compute: &crate::compute::Compute, left_out: &[LeftOut]| {
        so_far.compute = Some(compute.clone());
        so_far.left_out = left_out.to_vec();
        save(&so_far);
    };
    match crate::compute::run(python, plan.quick, progress, &mut keep) {
        Ok((compute, left_out)) => {
            recording.compute = Some(compute);
            recording.left_out.extend(left_out);
        }
        Err(error) if parts == Parts::Compute => return Err(error),
        Err(error) => recording.left_out.push(LeftOut::new("compute", &error)),
    }
    if parts == Parts::All {
        engines(plan, encoder, progress, &mut recording, save)?;
        progress("line-rate codec");
        match line_codec(encoder) {
            Ok(line) => recording.line = Some(line),
            Err(error) => recording.left_out.push(LeftOut::new("line-rate codec", &error)),
        }
    }
    Ok(recording)
}

/// The line-rate codec on GPU 0, every byte checked against the CPU.
fn line_codec(encoder: &Encoder<'_>) -> Result<line::Recorded, Error> {
    let gpu = Gpu::open(0)?;
    line::measure(&gpu, &crate::line::LineCodec::new(&gpu)?, Some(encoder))
}

/// A recording of this machine with nothing measured yet.
fn begin(date: String) -> Result<Recording, Error> {
    let inventory = discover::inventory()?;
    let Some(first) = inventory.gpus.first() else {
        return Err(Error::NoDriver { library: "a GPU behind libcuda.so.1" });
    };
    let engines = |rows: &[discover::DecodeCapability]| {
        rows.iter().filter(|r| r.capabilities.supported).map(|r| r.capabilities.engines).max().unwrap_or(0)
    };
    let nvml = Nvml::init().ok();
    Ok(Recording {
        format: crate::recording::FORMAT,
        device: Device {
            gpu: first.name.clone(),
            driver: inventory.driver.clone().unwrap_or_else(|| "unknown".into()),
            cuda: inventory.cuda.clone().unwrap_or_else(|| "unknown".into()),
            date,
            nvdec_engines: first.decode.as_ref().map_or(0, |rows| engines(rows)),
            nvenc_engines: first.encode.as_ref().map_or(0, |rows| {
                rows.iter().map(|r| r.capabilities.engines.max(0) as u32).max().unwrap_or(0)
            }),
            memory_mib: first.memory_total_mib,
            host_threads: std::thread::available_parallelism().map_or(1, usize::from),
            idle: nvml.as_ref().and_then(|nvml| discover::power(nvml, 0)),
        },
        ..Recording::default()
    })
}

fn engines(
    plan: MeasurePlan,
    encoder: &Encoder<'_>,
    progress: &(dyn Fn(&str) + Sync),
    recording: &mut Recording,
    save: &mut dyn FnMut(&Recording),
) -> Result<(), Error> {
    let gpu = Gpu::open(0)?;
    let bench = Bench { gpu: &gpu, nvml: Nvml::init().ok(), plan, encoder, progress };
    let steps: [(&str, Step); 8] = [
        ("copies", copies::run),
        ("matrix products", gemm::run),
        ("decode throughput", decode::run),
        ("encode throughput", encode::run),
        ("overlap", overlap::run),
        ("energy", energy::run),
        ("sparse deltas", delta::run),
        ("slow wires", wires::run),
    ];
    for (what, step) in steps {
        progress(what);
        if let Err(error) = step(&bench, recording) {
            recording.left_out.push(LeftOut::new(what, &error));
            if error.is_fatal() {
                break;
            }
        }
        save(recording);
    }
    Ok(())
}

type Step = fn(&Bench<'_>, &mut Recording) -> Result<(), Error>;
