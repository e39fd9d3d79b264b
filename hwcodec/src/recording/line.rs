//! What `measure --line` found: speeds, what runs beside, energy, deltas.

use super::delta::DeltaPoint;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    pub gpu: String,
    pub multiprocessors: u32,
    pub speeds: Vec<Speed>,
    pub beside: Vec<Beside>,
    pub energy: Vec<Energy>,
    /// Deltas applied, by this codec and by others; recordings of before have none.
    #[serde(default)]
    pub deltas: Vec<DeltaPoint>,
    /// What could not be measured here, and why.
    pub left_out: Vec<String>,
}

/// Speed of one arrangement, values counted as bf16.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    pub what: String,
    pub multiprocessors: u32,
    pub input_bytes: usize,
    pub coded_bytes: usize,
    pub encode_s: f64,
    pub decode_s: f64,
    /// Noise over signal of what came back; 0 where bytes are kept as they are.
    pub nmse: f64,
}

impl Speed {
    pub fn encode_gb_per_s(&self) -> f64 {
        self.input_bytes as f64 / self.encode_s / 1e9
    }

    pub fn decode_gb_per_s(&self) -> f64 {
        self.input_bytes as f64 / self.decode_s / 1e9
    }

    pub fn bits_per_value(&self) -> f64 {
        16.0 * self.coded_bytes as f64 / self.input_bytes as f64
    }
}

/// A matrix product and the codec on some multiprocessors, at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    pub what: String,
    pub multiprocessors: u32,
    /// Products are on a stream of higher priority: their blocks go first. Recordings of before have none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
    /// Codec and products each have multiprocessors of their own (green contexts). Recordings of before have none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Seconds of a product alone, and while the codec works.
    pub product_alone_s: f64,
    pub product_beside_s: f64,
    /// Seconds of a coding alone, and while products run.
    pub codec_alone_s: f64,
    pub codec_beside_s: f64,
}

/// Energy of coding, from the difference of power.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    pub what: String,
    pub idle_w: f64,
    pub busy_w: f64,
    /// Values as bf16, coded in a second.
    pub gb_per_s: f64,
}

impl Energy {
    /// Joules above idle for 10⁹ bytes of bf16.
    pub fn j_per_gb(&self) -> f64 {
        (self.busy_w - self.idle_w) / self.gb_per_s
    }
}
