//! What a plan costs, as it was coded or predicted at. Knows neither samples nor how
//! costs are found.

use crate::format::trinity::plan::Plan;
use crate::stage::trellis::Centroids;

/// Bits per value that an octave of step takes away, and octaves of error, as a root,
/// that it adds: one each where nothing is quantized to zero.
#[derive(Debug, Clone, Copy)]
pub struct Slopes {
    pub bits: f64,
    pub error: f64,
}

impl Slopes {
    pub const STEEPEST: Self = Self { bits: 1.0, error: 1.0 };
}

/// What a plan costs on a sample.
#[derive(Debug, Clone)]
pub struct Trial {
    pub plan: Plan,
    pub cost: f64,
    /// What it cost when it was coded, nothing predicted.
    pub tried_cost: f64,
    pub bits_per_value: f64,
    pub error_per_value: f64,
    pub slopes: Slopes,
    pub centroids: Centroids,
}

impl Trial {
    /// The trial of a plan that was predicted and not coded.
    pub fn predicted(plan: Plan, cost: f64, bits_per_value: f64) -> Self {
        let (slopes, centroids) = (Slopes::STEEPEST, Centroids::default());
        Self { plan, cost, tried_cost: cost, bits_per_value, error_per_value: 0.0, slopes, centroids }
    }

    /// The mean of this and that on another sample.
    pub fn and(&self, other: &Self) -> Self {
        let bits_per_value = 0.5 * (self.bits_per_value + other.bits_per_value);
        Self { cost: 0.5 * (self.cost + other.cost), bits_per_value, ..self.clone() }
    }

    pub fn gap(&self) -> f64 {
        gap(self.bits_per_value, self.error_per_value)
    }
}

/// Bits per value above what a mean squared error takes at a rate of six decibels per bit: what both searches compare
/// plans by whose errors differ.
pub fn gap(bits_per_value: f64, error_per_value: f64) -> f64 {
    bits_per_value + 0.5 * error_per_value.max(f64::MIN_POSITIVE).log2()
}
