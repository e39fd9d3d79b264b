//! What any encoder is asked for, in words that both standards understand.
//!
//! What a preset switches, and how a rate is met, each encoder says itself.

use std::str::FromStr;

/// What the stream should weigh, or how good it should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// A fixed QpY, from −6 · (depth − 8) to 51.
    Qp(i32),
    /// Bits per sample of the whole stream, samples of all planes counted.
    Bits(f64),
    /// Mean squared error over the samples of all planes.
    Mse(f64),
    /// Every sample as it was.
    Lossless,
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
    /// Every preset, from quick to thorough.
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
    fn every_preset_is_read_by_its_name_and_no_other() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
        }
        let refused = "placebo".parse::<Preset>().unwrap_err();
        assert_eq!(refused, "expected fast, medium, slow or best, found `placebo`");
    }
}
