//! What any encoder is asked for, in words that all of them understand.
//!
//! What a preset switches, and how a rate is met, each encoder says itself.

use crate::CodecError;
use std::fmt;
use std::str::FromStr;

/// What a stream should weigh, or how good it should be: one type for pictures, matrices and tensors. No encoder works
/// to all of them, and each refuses the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// At most so many bits per value, everything counted; of pictures, per sample of all planes.
    Bits(f64),
    /// Squared error over the energy of the values, at most.
    Nmse(f64),
    /// Mean squared error over the samples of all planes, at most.
    Mse(f64),
    /// A fixed quantization parameter; of pictures QpY, from −6 · (depth − 8) to 51.
    Qp(f64),
    /// A fixed step of the quantizer, as a codec's format defines it.
    Step(f64),
    /// Every bit back.
    Lossless,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits(bits) => f.pad(&format!("{bits} bits/value")),
            Self::Nmse(nmse) => f.pad(&format!("NMSE {nmse}")),
            Self::Mse(mse) => f.pad(&format!("MSE {mse}")),
            Self::Qp(qp) => f.pad(&format!("QP {qp}")),
            Self::Step(step) => f.pad(&format!("steps of {step}")),
            Self::Lossless => f.pad("lossless"),
        }
    }
}

impl Rate {
    /// The quantization parameter that a picture's samples of some bits are to have where one was asked for, and the
    /// refusal of what no encoder of pictures works to.
    pub fn picture_qp(self, depth: u32) -> Result<Option<i32>, CodecError> {
        let bad = |what: String| Err(CodecError::BadInput { what });
        let lowest = -6 * (depth as i32 - 8);
        match self {
            Self::Qp(qp) if !(f64::from(lowest)..=51.0).contains(&qp) => {
                bad(format!("QP {qp} is outside {lowest} to 51 ({depth} bit)"))
            }
            Self::Qp(qp) if qp.fract() != 0.0 => bad(format!("QP {qp} is no whole number")),
            Self::Qp(qp) => Ok(Some(qp as i32)),
            Self::Nmse(_) | Self::Step(_) => bad(format!("{self} is no target of pictures")),
            Self::Bits(_) | Self::Mse(_) | Self::Lossless => Ok(None),
        }
    }
}

/// How hard to search, from quick to thorough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Preset {
    Fast,
    #[default]
    Medium,
    Slow,
    Best,
}

impl Preset {
    pub const ALL: [Self; 4] = [Self::Fast, Self::Medium, Self::Slow, Self::Best];

    /// As the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Medium => "medium",
            Self::Slow => "slow",
            Self::Best => "best",
        }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|preset| preset.name() == text);
        known.ok_or_else(|| format!("expected fast, medium, slow or best, found `{text}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_whole_quantization_parameters_within_their_depth() {
        assert_eq!(Rate::Qp(-12.0).picture_qp(10), Ok(Some(-12)));
        assert_eq!(Rate::Bits(2.0).picture_qp(8), Ok(None));
        for (rate, said) in [
            (Rate::Qp(-1.0), "QP -1 is outside 0 to 51 (8 bit)"),
            (Rate::Qp(52.0), "outside"),
            (Rate::Qp(f64::NAN), "outside"),
            (Rate::Qp(27.5), "QP 27.5 is no whole number"),
            (Rate::Nmse(0.1), "NMSE 0.1 is no target of pictures"),
            (Rate::Step(0.1), "steps of 0.1"),
        ] {
            let refused = rate.picture_qp(8).unwrap_err().to_string();
            assert!(refused.contains(said), "{rate}: {refused}");
        }
    }

    #[test]
    fn every_preset_is_read_by_its_name_and_no_other() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
        }
        let refused = "placebo".parse::<Preset>().unwrap_err();
        assert_eq!(refused, "expected fast, medium, slow or best, found `placebo`");
    }
}
