//! `calibration.toml`: measured values that replace the simulator's defaults,
//! each with the device, driver, date and spread.

use crate::Error;
use crate::compute::curves::ComputeModel;
use crate::fit::{self, EngineModel};
use crate::recording::{Device, Recording};
use crate::software::SoftwareCodec;
pub use crate::stats::Measured;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the simulator may take instead of its defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub device: Source,
    /// Decode engines, one entry a standard.
    #[serde(default)]
    pub nvdec: Vec<EngineModel>,
    /// Encode engines likewise; none on GPUs without NVENC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvenc: Vec<EngineModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemm_tflops: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_to_device_gb_per_s: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_to_host_gb_per_s: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_gb_per_s: Option<Measured>,
    /// Of the ideal, beside a matrix product; 1 = decoding is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_overlap: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_overlap: Option<Measured>,
    /// Above idle, for each bit of decoded samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvdec_pj_per_bit: Option<Measured>,
    /// Products, streams, attention, launches and power, where they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<ComputeModel>,
    /// The line-rate codec on multiprocessors, eight states, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<SoftwareCodec>,
}

/// Where the numbers come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub gpu: String,
    pub driver: String,
    pub cuda: String,
    pub date: String,
    pub nvdec_engines: u32,
    pub nvenc_engines: u32,
}

impl Calibration {
    /// Fits a recording.
    pub fn from_recording(recording: &Recording) -> Result<Self, Error> {
        let spread = |s: crate::stats::Spread| Measured { value: s.median, low: s.low, high: s.high };
        let copy = |direction: &str| {
            recording
                .copies
                .iter()
                .filter(|c| c.direction == direction && c.pinned)
                .max_by_key(|c| c.bytes)
                .map(|c| spread(c.bytes_per_s.map(|b| b / 1e9)))
        };
        let worst_overlap = |engine: &str| {
            recording
                .overlap
                .iter()
                .filter(|o| o.what.ends_with(&format!("{engine} ∥ gemm")))
                .min_by(|a, b| a.fraction_of_ideal().total_cmp(&b.fraction_of_ideal()))
                .map(|o| spread(o.parallel_s.map(|p| o.ideal_s() / p)))
        };
        let energies: Vec<f64> = recording.energy.iter().map(|e| e.pj_per_sample_bit()).collect();
        Ok(Self {
            device: Source::of(&recording.device),
            nvdec: fit::decode_models(recording)?,
            nvenc: fit::encode_models(recording)?,
            gemm_tflops: recording
                .gemm
                .iter()
                .max_by_key(|g| g.size)
                .map(|g| spread(g.flop_per_s.map(|f| f / 1e12))),
            host_to_device_gb_per_s: copy("host-to-device"),
            device_to_host_gb_per_s: copy("device-to-host"),
            // A copy on the device reads and writes every byte.
            device_memory_gb_per_s: copy("device-to-device").map(|m| Measured {
                value: 2.0 * m.value,
                low: 2.0 * m.low,
                high: 2.0 * m.high,
            }),
            decode_overlap: worst_overlap("decode"),
            encode_overlap: worst_overlap("encode"),
            nvdec_pj_per_bit: crate::stats::Spread::of(&energies).map(spread),
            compute: recording.compute.as_ref().map(ComputeModel::of),
            software: recording.line.as_ref().and_then(|line| SoftwareCodec::of(line, 8)),
        })
    }

    /// The device, its driver and the day, for people.
    pub fn device_line(&self) -> String {
        let device = &self.device;
        format!("on {}, driver {}, {}", device.gpu, device.driver, device.date)
    }

    /// As TOML, with a heading for people.
    pub fn to_toml(&self) -> Result<String, Error> {
        let body = toml::to_string(self)
            .map_err(|e| Error::BadFile { file: "calibration.toml".into(), reason: e.to_string() })?;
        Ok(format!(
            "# Measured by `trinity measure` on {} (driver {}), {}.\n# Bounds are 95 % confidence intervals of medians; `error` is a standard error.\n\n{body}",
            self.device.gpu, self.device.driver, self.device.date
        ))
    }

    /// Reads a calibration; the reason names line and column.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadFile { file: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        toml::from_str(&text).map_err(|e| bad(e.to_string()))
    }
}

impl Source {
    fn of(device: &Device) -> Self {
        Self {
            gpu: device.gpu.clone(),
            driver: device.driver.clone(),
            cuda: device.cuda.clone(),
            date: device.date.clone(),
            nvdec_engines: device.nvdec_engines,
            nvenc_engines: device.nvenc_engines,
        }
    }
}
