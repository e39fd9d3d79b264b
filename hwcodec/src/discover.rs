//! What the host has: driver, GPUs, engines, clocks, power.
//!
//! Answers with what can be found out; a library that is missing becomes a
//! sentence in the answer, not an error, so that `--list` works everywhere.

use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::nvdec::{self, Standard};
use crate::nvenc;
use crate::sys::nvenc::{LIBRARY, Nvenc};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use std::sync::Arc;
use trinity_bits::Chroma;

/// Everything found on this machine.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Inventory {
    /// Driver version, where NVML answers.
    pub driver: Option<String>,
    /// The newest CUDA version the driver speaks, as `13.0`.
    pub cuda: Option<String>,
    pub gpus: Vec<GpuInventory>,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct GpuInventory {
    pub ordinal: usize,
    pub name: String,
    pub compute_capability: (i32, i32),
    pub memory_total_mib: u64,
    pub memory_free_mib: u64,
    pub power: Option<Power>,
    /// One row a standard × chroma × depth, or why NVDEC could not be asked.
    pub decode: Result<Vec<DecodeCapability>, String>,
    /// One row a standard, or why there is none.
    pub encode: Result<Vec<EncodeCapability>, String>,
}

/// Power and clocks as NVML reads them now.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Power {
    pub draw_w: f64,
    pub limit_w: f64,
    pub sm_clock_mhz: u32,
    pub video_clock_mhz: u32,
    pub memory_clock_mhz: u32,
    pub max_video_clock_mhz: u32,
}

#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct DecodeCapability {
    pub standard: Standard,
    /// `chroma_format_idc`.
    pub chroma_idc: u32,
    pub depth: u32,
    pub capabilities: nvdec::Capabilities,
}

#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct EncodeCapability {
    pub standard: Standard,
    pub capabilities: nvenc::Capabilities,
}

/// Looks around. [`Error::NoDriver`] where there is no NVIDIA driver.
pub fn inventory() -> Result<Inventory, Error> {
    let count = Gpu::count()?;
    if !crate::driver_present() {
        return Err(Error::NoDriver { library: "libcuda.so.1" });
    }
    let nvml = Nvml::init().ok();
    let gpus = (0..count).map(|ordinal| describe(ordinal, nvml.as_ref())).collect::<Result<_, _>>()?;
    Ok(Inventory {
        driver: nvml.as_ref().and_then(|n| n.sys_driver_version().ok()),
        cuda: nvml
            .as_ref()
            .and_then(|n| n.sys_cuda_driver_version().ok())
            .map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        gpus,
    })
}

fn describe(ordinal: usize, nvml: Option<&Nvml>) -> Result<GpuInventory, Error> {
    let gpu = Gpu::open(ordinal)?;
    let (free, total) = gpu.memory()?;
    Ok(GpuInventory {
        ordinal,
        name: gpu.name().into(),
        compute_capability: gpu.context.compute_capability().during("cuDeviceGetAttribute")?,
        memory_total_mib: (total >> 20) as u64,
        memory_free_mib: (free >> 20) as u64,
        power: nvml.and_then(|n| power(n, ordinal)),
        decode: decode_capabilities(&gpu).map_err(|e| e.to_string()),
        encode: encode_capabilities(&gpu).map_err(|e| e.to_string()),
    })
}

/// Reads power and clocks; None where NVML has no such device.
pub fn power(nvml: &Nvml, ordinal: usize) -> Option<Power> {
    let device = nvml.device_by_index(ordinal as u32).ok()?;
    let clock = |kind| device.clock_info(kind).unwrap_or(0);
    Some(Power {
        draw_w: f64::from(device.power_usage().ok()?) / 1000.0,
        limit_w: f64::from(device.enforced_power_limit().unwrap_or(0)) / 1000.0,
        sm_clock_mhz: clock(Clock::SM),
        video_clock_mhz: clock(Clock::Video),
        memory_clock_mhz: clock(Clock::Memory),
        max_video_clock_mhz: device.max_clock_info(Clock::Video).unwrap_or(0),
    })
}

fn decode_capabilities(gpu: &Gpu) -> Result<Vec<DecodeCapability>, Error> {
    let cuvid = gpu.cuvid()?;
    gpu.context.bind_to_thread().during("cuCtxSetCurrent")?;
    let mut rows = Vec::new();
    for standard in [Standard::H264, Standard::Hevc] {
        for chroma in [Chroma::C400, Chroma::C420, Chroma::C422, Chroma::C444] {
            for depth in [8, 10, 12] {
                let capabilities = nvdec::capabilities(&cuvid, standard, chroma, depth)?;
                rows.push(DecodeCapability { standard, chroma_idc: chroma.idc(), depth, capabilities });
            }
        }
    }
    Ok(rows)
}

fn encode_capabilities(gpu: &Gpu) -> Result<Vec<EncodeCapability>, Error> {
    let session = open_encoder(gpu)?;
    [Standard::H264, Standard::Hevc]
        .into_iter()
        .map(|standard| Ok(EncodeCapability { standard, capabilities: session.capabilities(standard)? }))
        .collect()
}

/// Opens an encode session, or says in a sentence why there is none.
pub fn open_encoder(gpu: &Gpu) -> Result<nvenc::Session, Error> {
    let nvenc = Arc::new(Nvenc::load(LIBRARY)?);
    // SAFETY: the context belongs to `gpu`, whose primary context cudarc
    // retains for the life of the process.
    unsafe { nvenc::Session::open(&nvenc, gpu.context.cu_ctx().cast(), gpu.name()) }
}
