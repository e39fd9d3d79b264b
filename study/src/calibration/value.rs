//! One measured value: what it replaces, as what, and how sure it is.

use crate::config::{Replacement, StudyFile};
use trinity_hwcodec::calibration::Measured;

/// A measured value on its way into a study.
pub(super) struct Value {
    pub path: &'static str,
    pub replacement: Replacement,
    /// As TOML writes it, for reports.
    pub text: String,
    /// How sure it is.
    pub note: String,
}

impl Value {
    /// A number with a unit, or without where `unit` is empty.
    pub fn new(
        path: &'static str,
        number: f64,
        unit: &str,
        note: String,
        set: fn(&mut StudyFile, f64),
    ) -> Self {
        let text = if unit.is_empty() { format!("{number:?}") } else { format!("\"{number} {unit}\"") };
        Self { path, replacement: Replacement::Number { number, set }, text, note }
    }
}

pub(super) fn spread(measured: &Measured, unit: &str) -> String {
    format!("95 % interval {:.4} to {:.4} {unit}", measured.low, measured.high)
}

/// Five digits: more than any measurement has.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
