//! Measured values in place of configured ones: what each replaces, as what, and how sure it is.
//!
//! A value is put into a study that was read, by a function of its field. Knows no file.

use super::{CodecFile, StudyFile};
use serde::Serialize;
use trinity_config::{DataRate, Document, Fraction, Power};

/// One value that a measurement replaced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replaced {
    pub scenario: String,
    pub path: String,
    /// As the configuration had it.
    pub before: String,
    pub value: String,
    /// Device, driver, date and spread.
    pub source: String,
}

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

    /// A number of the study's codec.
    pub fn of_codec((path, unit, set): OfCodec, number: f64, note: impl Into<String>) -> Self {
        Self::new(path, number, unit, note.into(), set)
    }

    /// What it takes the place of in a scenario, whose document has studies under `root`; the note
    /// as `source` words it.
    pub fn replaced(&self, scenario: &str, document: &Document, root: &str, source: String) -> Replaced {
        let before = document.setting(&format!("{root}{}", self.path));
        Replaced {
            scenario: scenario.to_owned(),
            path: self.path.into(),
            before: before.map_or_else(|| "not said".into(), |setting| setting.value),
            value: self.text.clone(),
            source,
        }
    }
}

/// A number of a study's codec: its path, its unit, and how it is put there.
pub(crate) type OfCodec = (&'static str, &'static str, fn(&mut StudyFile, f64));

pub(crate) const BITS_PER_VALUE: OfCodec = ("cluster.codec.bits-per-value", "", |study, bits| {
    codec(study, |codec| codec.bits_per_value = bits);
});
pub(crate) const GPU_SHARE: OfCodec = ("cluster.codec.gpu-share", "", |study, share| {
    codec(study, |codec| codec.gpu_share = Some(Fraction::new(share)));
});
pub(crate) const ENCODER_RATE: OfCodec = ("cluster.codec.encoder.throughput", "Gbit/s", |study, gbps| {
    codec(study, |codec| codec.encoder.throughput = Some(DataRate::from_gbit_per_s(gbps)));
});
pub(crate) const DECODER_RATE: OfCodec = ("cluster.codec.decoder.throughput", "Gbit/s", |study, gbps| {
    codec(study, |codec| codec.decoder.throughput = Some(DataRate::from_gbit_per_s(gbps)));
});
pub(crate) const ENCODER_POWER: OfCodec = ("cluster.codec.encoder.power", "W", |study, w| {
    codec(study, |codec| codec.encoder.power = Some(Power::from_w(w)));
});
pub(crate) const DECODER_POWER: OfCodec = ("cluster.codec.decoder.power", "W", |study, w| {
    codec(study, |codec| codec.decoder.power = Some(Power::from_w(w)));
});

/// Does something to the codec of a study that has one.
fn codec(study: &mut StudyFile, change: impl FnOnce(&mut CodecFile)) {
    if let Some(codec) = &mut study.cluster.codec {
        change(codec);
    }
}

/// Five digits: more than any measurement has.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
