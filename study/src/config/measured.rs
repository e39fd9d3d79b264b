//! Measured values in place of configured ones: what each replaces, as what, and how sure it is.
//!
//! A value is put into a study that was read, by a function of its field. Knows no file.

use super::StudyFile;

/// What takes the place of something configured.
#[derive(Clone, Debug)]
pub enum Replacement {
    Number {
        number: f64,
        /// Puts the number into the study, in the unit that it is in.
        set: fn(&mut StudyFile, f64),
    },
    Curve {
        points: Vec<(f64, f64)>,
        set: fn(&mut StudyFile, &[(f64, f64)]),
    },
}

impl Replacement {
    /// Puts it into a study.
    pub(crate) fn apply(&self, study: &mut StudyFile) {
        match self {
            Self::Number { number, set } => set(study, *number),
            Self::Curve { points, set } => set(study, points),
        }
    }
}

/// A measured value on its way into a study.
#[derive(Clone, Debug)]
pub(crate) struct Value {
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

/// Five digits: more than any measurement has.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
