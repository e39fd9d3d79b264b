//! What a sweep reads from an estimate, and what it wants of it.

use crate::Estimate;
use serde::{Deserialize, Serialize};

/// No sweep has more objectives.
pub const MAX_OBJECTIVES: usize = 8;

macro_rules! metrics {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $read:expr;)+) => {
        /// A number of an estimate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Metric { $($(#[$doc])* $variant),+ }

        impl Metric {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name used in files and columns.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Its reading.
            pub fn of(self, estimate: &Estimate) -> f64 {
                match self { $(Self::$variant => {
                    let read: fn(&Estimate) -> f64 = $read;
                    read(estimate)
                }),+ }
            }
        }
    };
}

metrics! {
    AreaMm2 = "area_mm2", |e| e.area_mm2;
    TokensPerS = "tokens_per_s", |e| e.tokens_per_s;
    EnergyJPerToken = "energy_j_per_token", |e| e.energy_j_per_token;
    ModelTflopsPerGpu = "model_tflops_per_gpu", |e| e.model_tflops_per_gpu;
    Mfu = "mfu", |e| e.mfu;
    IterationS = "iteration_s", |e| e.iteration_s;
    EnergyJ = "energy_j", |e| e.energy_j;
    MemoryGb = "memory_gb", |e| e.memory.total_bytes() / 1e9;
    GpuMm2 = "gpu_mm2", |e| e.area.gpu_mm2;
    NicMm2 = "nic_mm2", |e| e.area.nic_mm2;
    CodecMm2 = "codec_mm2", |e| e.area.codec_mm2;
    PowerW = "power_w", |e| e.energy_j / e.iteration_s;
}

impl Metric {
    /// The metric of that name; `-` and `_` are the same.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace('-', "_");
        Self::ALL.iter().copied().find(|metric| metric.name() == name)
    }
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    Minimize,
    Maximize,
}

/// What is wanted: `min area-mm2`, `max tokens-per-s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    pub metric: Metric,
    pub direction: Direction,
}

impl Objective {
    /// Reads `min METRIC` or `max METRIC`.
    pub fn parse(text: &str) -> Option<Self> {
        let (direction, name) = text.trim().split_once(' ')?;
        let direction = match direction {
            "min" => Direction::Minimize,
            "max" => Direction::Maximize,
            _ => return None,
        };
        Some(Self { metric: Metric::named(name.trim())?, direction })
    }
}

/// What a point must keep to: `area-mm2 <= 50000`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    pub metric: Metric,
    /// Whether the metric must stay at or below the bound, or at or above.
    pub at_most: bool,
    pub bound: f64,
}

impl Constraint {
    /// Reads `METRIC <= NUMBER` or `METRIC >= NUMBER`.
    pub fn parse(text: &str) -> Option<Self> {
        let (at_most, (name, bound)) = match text.split_once("<=") {
            Some(parts) => (true, parts),
            None => (false, text.split_once(">=")?),
        };
        Some(Self {
            metric: Metric::named(name.trim())?,
            at_most,
            bound: bound.trim().replace('_', "").parse().ok()?,
        })
    }

    /// Whether an estimate keeps to it.
    pub fn holds(&self, estimate: &Estimate) -> bool {
        let value = self.metric.of(estimate);
        if self.at_most { value <= self.bound } else { value >= self.bound }
    }
}
