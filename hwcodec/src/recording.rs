//! What a measurement leaves behind: plain data, so that fits, validation and
//! plots run on any machine, and a recording replays exactly.

mod delta;
mod json;
mod line;

pub use delta::{DeltaDecoder, DeltaPoint};
pub use line::{Beside, Energy, Recorded, Speed};

use crate::Error;
use crate::discover::Power;
pub use crate::error::LeftOut;
use crate::nvdec::Standard;
use crate::stats::Spread;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of this layout; raised when a field changes its meaning.
pub const FORMAT: u32 = 2;

/// Everything one run of `trinity measure` found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    pub format: u32,
    pub device: Device,
    pub decode: Vec<EnginePoint>,
    pub encode: Vec<EnginePoint>,
    pub copies: Vec<CopyPoint>,
    pub gemm: Vec<GemmPoint>,
    pub overlap: Vec<OverlapPoint>,
    pub energy: Vec<EnergyPoint>,
    pub delta: Vec<DeltaPoint>,
    pub wires: Vec<WirePoint>,
    pub verify: Option<VerifySummary>,
    /// Products, streams, attention, launches and power; absent in recordings of engines alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<crate::compute::Compute>,
    /// The line-rate codec on multiprocessors; absent where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Recorded>,
    /// What could not be measured, in a sentence each. Nothing is dropped in silence.
    pub left_out: Vec<LeftOut>,
}

/// Which machine, when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub gpu: String,
    pub driver: String,
    pub cuda: String,
    /// ISO date.
    pub date: String,
    pub nvdec_engines: u32,
    pub nvenc_engines: u32,
    pub memory_mib: u64,
    pub host_threads: usize,
    /// Power at the start, before anything ran.
    pub idle: Option<Power>,
}

/// Throughput of NVDEC or NVENC on one kind of stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnginePoint {
    pub standard: Standard,
    pub chroma_idc: u32,
    pub depth: u32,
    pub width: u32,
    pub height: u32,
    pub bits_per_value: f64,
    pub sessions: u32,
    /// Pictures in one repetition, all sessions together.
    pub pictures: u64,
    /// Wall time over pictures.
    pub seconds_per_picture: Spread,
    /// CPU time the host spends on a picture: parsing or copying, and submitting.
    pub host_seconds_per_picture: f64,
    pub power: Option<Power>,
}

impl EnginePoint {
    /// Values of a tensor in a picture: luma samples, or those of all three planes in 4:4:4.
    pub fn values(&self) -> f64 {
        let planes = if self.chroma_idc == 3 { 3.0 } else { 1.0 };
        f64::from(self.width) * f64::from(self.height) * planes
    }

    pub fn bits(&self) -> f64 {
        self.values() * self.bits_per_value
    }

    /// Values a second, all sessions together.
    pub fn values_per_s(&self) -> Spread {
        self.seconds_per_picture.map(|s| self.values() / s)
    }
}

/// One copy direction at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyPoint {
    /// `host-to-device`, `device-to-host` or `device-to-device`.
    pub direction: String,
    pub pinned: bool,
    pub bytes: u64,
    pub bytes_per_s: Spread,
}

/// A square bf16 matrix product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GemmPoint {
    pub size: u32,
    pub flop_per_s: Spread,
    pub power: Option<Power>,
}

/// Two jobs alone, then together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverlapPoint {
    /// `decode ∥ gemm`, `decode ∥ copy`, `encode ∥ gemm`.
    pub what: String,
    pub first_s: Spread,
    pub second_s: Spread,
    pub parallel_s: Spread,
    /// How much slower each job ran beside the other than alone.
    pub first_slowdown: f64,
    pub second_slowdown: f64,
}

impl OverlapPoint {
    /// One after the other.
    pub fn serial_s(&self) -> f64 {
        self.first_s.median + self.second_s.median
    }

    /// The longer of the two.
    pub fn ideal_s(&self) -> f64 {
        self.first_s.median.max(self.second_s.median)
    }

    /// 1 when the shorter job is free.
    pub fn fraction_of_ideal(&self) -> f64 {
        self.ideal_s() / self.parallel_s.median
    }

    /// The share of the time that overlap could save which it saved.
    pub fn saved(&self) -> f64 {
        (self.serial_s() - self.parallel_s.median) / (self.serial_s() - self.ideal_s())
    }
}

/// Energy by power difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyPoint {
    pub what: String,
    pub idle_w: f64,
    pub busy_w: f64,
    /// Samples decoded (8 or more bits each) a second while busy, as bits.
    pub sample_bits_per_s: f64,
    pub coded_bits_per_s: f64,
}

impl EnergyPoint {
    /// Joules above idle for each bit of decoded samples, in pJ.
    pub fn pj_per_sample_bit(&self) -> f64 {
        (self.busy_w - self.idle_w) / self.sample_bits_per_s * 1e12
    }
}

/// A tensor over a wire of some speed, raw and coded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WirePoint {
    pub standard: Standard,
    pub wire_bits_per_s: f64,
    pub raw_bits: f64,
    pub coded_bits: f64,
    /// `nvenc` or `cpu`: who encoded.
    pub encoder: String,
    pub encode_s: f64,
    pub decode_s: f64,
    /// 16-bit values as they are.
    pub raw_s: f64,
    /// Encode, then send, then decode.
    pub serial_s: f64,
    /// The three overlapped, frame by frame, timed on a wire that waits.
    pub dual_lane_s: f64,
}

/// How `--verify` came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifySummary {
    pub streams: u32,
    pub equal: u32,
    /// Kinds the hardware refused, which are no failures.
    pub refused: u32,
    /// The first stream that differed, and where.
    pub first_difference: Option<String>,
}

/// Today as an ISO date, by the system's clock (UTC).
pub fn today() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    iso_date((since.as_secs() / 86_400) as i64)
}

/// Days since 1970-01-01 as year-month-day, by the Gregorian calendar's 400-year cycle.
fn iso_date(days: i64) -> String {
    // Years start in March here, so that the leap day comes last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

impl Recording {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadFile { file: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        Self::parse(&text).map_err(bad)
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let recording: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if recording.format != FORMAT {
            return Err(format!("recording format {}, this version reads {FORMAT}", recording.format));
        }
        Ok(recording)
    }

    /// As JSON text; reading it back gives the same recording.
    pub fn to_json(&self) -> Result<String, Error> {
        let bad = |reason: String| Error::BadFile { file: "recording".into(), reason };
        let mut bytes = Vec::new();
        let mut serializer =
            serde_json::Serializer::with_formatter(&mut bytes, json::PointPerLine::default());
        self.serialize(&mut serializer).map_err(|e| bad(e.to_string()))?;
        String::from_utf8(bytes).map_err(|e| bad(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::{EnergyPoint, OverlapPoint, iso_date};
    use crate::stats::Spread;

    #[test]
    fn days_become_dates() {
        let known = [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_454, "2026-01-01")];
        for (days, date) in known {
            assert_eq!(iso_date(days), date);
        }
    }

    #[test]
    fn overlap_is_told_from_the_longer_job_and_from_what_could_be_saved() {
        let spread = |median| Spread { median, low: median, high: median, n: 5 };
        let of = |parallel_s| OverlapPoint {
            what: "decode ∥ gemm".into(),
            first_s: spread(3.0),
            second_s: spread(2.0),
            parallel_s: spread(parallel_s),
            first_slowdown: 1.0,
            second_slowdown: 1.0,
        };
        assert_eq!((of(3.0).serial_s(), of(3.0).ideal_s()), (5.0, 3.0));
        // Free, half of what could be saved, and none of it.
        assert_eq!([3.0, 4.0, 5.0].map(|s| of(s).fraction_of_ideal()), [1.0, 0.75, 0.6]);
        assert_eq!([3.0, 4.0, 5.0].map(|s| of(s).saved()), [1.0, 0.5, 0.0]);
        let energy = EnergyPoint {
            what: "decode".into(),
            idle_w: 90.0,
            busy_w: 100.0,
            sample_bits_per_s: 5e11,
            coded_bits_per_s: 1e11,
        };
        assert!((energy.pj_per_sample_bit() - 20.0).abs() < 1e-9);
    }
}
