//! `calibration.toml`: measured values that replace the simulator's defaults,
//! each with the device, driver, date and spread.

use crate::Error;
use crate::compute::curves::ComputeModel;
use crate::fit::{self, EngineModel};
use crate::recording::{Device, Recording};
use crate::software::SoftwareCodec;
pub use crate::stats::Measured;
use crate::stats::Spread;
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
    pub fn from_recording(recording: &Recording) -> Result<Self, Error> {
        let copy = |direction: &str| -> Option<Measured> {
            recording
                .copies
                .iter()
                .filter(|c| c.direction == direction && c.pinned)
                .max_by_key(|c| c.bytes)
                .map(|c| c.bytes_per_s.map(|b| b / 1e9).into())
        };
        let worst_overlap = |engine: &str| -> Option<Measured> {
            recording
                .overlap
                .iter()
                .filter(|o| o.what.ends_with(&format!("{engine} ∥ gemm")))
                .min_by(|a, b| a.fraction_of_ideal().total_cmp(&b.fraction_of_ideal()))
                .map(|o| o.parallel_s.map(|p| o.ideal_s() / p).into())
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
                .map(|g| g.flop_per_s.map(|f| f / 1e12).into()),
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
            nvdec_pj_per_bit: Spread::of(&energies).map(Measured::from),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::recording::{CopyPoint, EnergyPoint, GemmPoint, OverlapPoint};

    fn about(median: f64) -> Spread {
        Spread { median, low: 0.9 * median, high: 1.1 * median, n: 20 }
    }

    fn recording() -> Recording {
        let copy = |direction: &str, pinned, bytes, rate| CopyPoint {
            direction: direction.into(),
            pinned,
            bytes,
            bytes_per_s: about(rate),
        };
        let overlap = |what: &str, parallel_s| OverlapPoint {
            what: what.into(),
            first_s: about(2.0),
            second_s: about(1.0),
            parallel_s: about(parallel_s),
            first_slowdown: 1.0,
            second_slowdown: 1.0,
        };
        let energy = |busy_w| EnergyPoint {
            what: "decode".into(),
            idle_w: 100.0,
            busy_w,
            sample_bits_per_s: 1e12,
            coded_bits_per_s: 1e11,
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/h200/recording.json");
        let whole = Recording::read(&path).unwrap();
        let device =
            Device { gpu: "GPU".into(), driver: "570".into(), date: "2026-01-01".into(), ..whole.device };
        Recording {
            device,
            copies: vec![
                copy("host-to-device", true, 1 << 20, 10e9),
                copy("host-to-device", true, 1 << 28, 50e9),
                copy("host-to-device", false, 1 << 29, 5e9),
                copy("device-to-device", true, 1 << 28, 2e12),
            ],
            gemm: [(4096, 400e12), (8192, 700e12)]
                .map(|(size, rate)| GemmPoint { size, flop_per_s: about(rate), power: None })
                .to_vec(),
            overlap: vec![
                overlap("h264 decode ∥ gemm", 2.0),
                overlap("hevc decode ∥ gemm", 2.5),
                overlap("hevc decode ∥ copy", 3.0),
            ],
            energy: vec![energy(110.0), energy(112.0), energy(150.0)],
            decode: Vec::new(),
            encode: Vec::new(),
            compute: None,
            line: None,
            ..whole
        }
    }

    #[test]
    fn constants_are_of_the_largest_job_and_the_worst_overlap() {
        let found = Calibration::from_recording(&recording()).unwrap();
        let close = |a: Option<Measured>, b: f64| (a.unwrap().value - b).abs() < 1e-9 * b;
        // Pinned, of the largest size; a copy on the device reads and writes.
        assert!(close(found.host_to_device_gb_per_s, 50.0) && close(found.device_memory_gb_per_s, 4000.0));
        assert!(close(found.gemm_tflops, 700.0) && close(found.nvdec_pj_per_bit, 12.0));
        let overlap = found.decode_overlap.unwrap();
        assert!(
            (overlap.value - 0.8).abs() < 1e-12 && overlap.low < 0.8 && overlap.high > 0.8,
            "{overlap:?}"
        );
        let nothing = (found.device_to_host_gb_per_s, found.encode_overlap, found.compute.is_none());
        assert_eq!(nothing, (None, None, true));
        assert!(found.nvdec.is_empty() && found.nvenc.is_empty() && found.software.is_none());
    }

    #[test]
    fn a_calibration_is_read_as_it_was_written_and_a_wrong_line_is_named() {
        let found = Calibration::from_recording(&recording()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.toml");
        let text = found.to_toml().unwrap();
        assert!(
            text.starts_with("# Measured by `trinity measure` on GPU (driver 570), 2026-01-01."),
            "{text}"
        );
        std::fs::write(&path, &text).unwrap();
        assert_eq!(Calibration::read(&path).unwrap(), found);
        // A misspelled member is refused, not ignored; so is one of another kind.
        let wrong_kind = text.replacen("nvdec_engines = ", "nvdec_engines = \"many\" # ", 1);
        for wrong in [format!("gemm_tflop = 3\n{text}"), wrong_kind] {
            assert_ne!(wrong, text);
            std::fs::write(&path, wrong).unwrap();
            let error = Calibration::read(&path).unwrap_err().to_string();
            assert!(error.contains("calibration.toml") && error.contains("line "), "{error}");
        }
        let error = Calibration::read(&folder.path().join("none.toml")).unwrap_err();
        assert!(matches!(error, Error::BadFile { .. }), "{error}");
    }
}
