//! Profiles: what an encoder may choose from, as a designer writes it.
//!
//! A profile is a TOML of plain data. Lists are alternatives among which the
//! encoder picks by rate–distortion cost; what it picked travels in the
//! stream, so a decoder needs no profile.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::plan::{Entropy, Plan, Prediction};
use crate::scales::WEIGHTS;
use crate::tile::Decision;
use crate::transform::{Family, Transform};

/// Which pipeline a profile drives.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pipeline {
    /// The chain of stages of this crate.
    Trinity,
    /// H.264 intra behind the alignment unit.
    Paper,
    /// Exact to the bit.
    Lossless,
}

/// Which way the coded rows run.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Orientation {
    Rows,
    Columns,
}

/// How symbols become bits.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntropyChoice {
    Adaptive,
    Static,
    Binary,
    Raw,
}

/// How values become levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Quantization {
    /// Uniform, rounding toward zero more often than not.
    DeadZone,
    /// Uniform; every level is chosen by its error and its rate.
    Rdoq,
    /// Dependent, on a trellis of 2^n states, by error and rate.
    Trellis { log2_states: u32 },
}

impl Quantization {
    /// As a plan states it.
    pub fn log2_states(self) -> u32 {
        match self {
            Self::DeadZone | Self::Rdoq => 0,
            Self::Trellis { log2_states } => log2_states,
        }
    }

    pub(crate) fn decision(self) -> Decision {
        if self == Self::DeadZone { Decision::DeadZone } else { Decision::Rate }
    }
}

impl From<Quantization> for String {
    fn from(quantization: Quantization) -> Self {
        match quantization {
            Quantization::DeadZone => "dead-zone".into(),
            Quantization::Rdoq => "rdoq".into(),
            Quantization::Trellis { log2_states } => format!("trellis-{}", 1 << log2_states),
        }
    }
}

impl TryFrom<String> for Quantization {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "dead-zone" => return Ok(Self::DeadZone),
            "rdoq" => return Ok(Self::Rdoq),
            _ => {}
        }
        let states = text.strip_prefix("trellis-").and_then(|states| states.parse::<u32>().ok());
        match states {
            Some(states) if states.is_power_of_two() && (4..=256).contains(&states) => {
                Ok(Self::Trellis { log2_states: states.ilog2() })
            }
            _ => Err(format!(
                "unknown quantization `{text}`: there are dead-zone, rdoq, and trellis-4 to trellis-256 by powers of two"
            )),
        }
    }
}

impl schemars::JsonSchema for Quantization {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantization".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "How values become levels.",
            "pattern": "^(dead-zone|rdoq|trellis-(4|8|16|32|64|128|256))$"
        })
    }
}

/// Everything an encoder may choose from.
#[derive(schemars::JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    pub name: String,
    pub description: String,
    pub pipeline: Pipeline,
    #[serde(default)]
    pub stages: Stages,
    #[serde(default)]
    pub parallel: Parallel,
    /// Settings of the paper's pipeline.
    #[serde(default)]
    pub paper: Paper,
}

/// Entropy coder of H.264.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PaperEntropy {
    /// As the RTL under the paper's codec.
    #[default]
    Cavlc,
    Cabac,
}

/// Settings of the paper's pipeline.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Paper {
    pub entropy: PaperEntropy,
}

/// The alternatives of each stage.
#[derive(schemars::JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Stages {
    pub orientation: Vec<Orientation>,
    /// `none`, `klt-64`, `dct-32` along rows, `dct-8x8` in blocks, and the
    /// same with `dst` and `hadamard`.
    pub transform: Vec<String>,
    /// The same for pictures, whose neighbours are alike in both directions.
    pub picture_transform: Vec<String>,
    /// `none`, `above-12` (sixteenths of the coded row above), `row-mean`,
    /// `column-mean`, `row-and-column-mean`.
    pub prediction: Vec<String>,
    /// `dead-zone`, `rdoq`, `trellis-4` … `trellis-256`.
    pub quantization: Quantization,
    /// Bits against squared steps.
    pub lambda: f32,
    /// `adaptive`, `static`; `binary` and `raw` with a uniform quantizer.
    pub entropy: Vec<EntropyChoice>,
    /// Indices of the weights with which contexts see rows above and columns
    /// beside.
    pub context_weights: Vec<u8>,
}

/// How work is cut.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Parallel {
    /// Values of a tile, about.
    pub tile_values: usize,
    /// Values of a segment: trellis and statistics restart or adapt.
    pub segment: u32,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            orientation: vec![Orientation::Rows],
            transform: vec!["none".into()],
            picture_transform: vec!["dct-8x8".into(), "dct-16x16".into()],
            prediction: vec!["none".into()],
            quantization: Quantization::Trellis { log2_states: 3 },
            lambda: 0.35,
            entropy: vec![EntropyChoice::Adaptive],
            context_weights: vec![0],
        }
    }
}

impl Default for Parallel {
    fn default() -> Self {
        Self { tile_values: 1 << 20, segment: 1024 }
    }
}

/// Built-in profiles by name.
const BUILT_IN: [(&str, &str); 6] = [
    ("trinity", include_str!("../../../configs/codecs/trinity.toml")),
    ("trinity-lite", include_str!("../../../configs/codecs/trinity-lite.toml")),
    ("trinity-max", include_str!("../../../configs/codecs/trinity-max.toml")),
    ("paper", include_str!("../../../configs/codecs/paper.toml")),
    ("paper-cabac", include_str!("../../../configs/codecs/paper-cabac.toml")),
    ("lossless", include_str!("../../../configs/codecs/lossless.toml")),
];

impl Profile {
    /// Reads a profile and checks that every choice exists.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let profile: Self = toml::from_str(text)
            .map_err(|e| Error::BadProfile { profile: "(unnamed)".into(), what: e.to_string() })?;
        profile.check()?;
        Ok(profile)
    }

    /// A profile that comes with the codec.
    pub fn named(name: &str) -> Result<Self, Error> {
        let text = BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| text).ok_or_else(|| {
            Error::BadProfile {
                profile: name.into(),
                what: format!("unknown; built in are {}", Self::names().collect::<Vec<_>>().join(", ")),
            }
        })?;
        Self::parse(text)
    }

    /// Names of the profiles that come with the codec.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The profile as pictures use it.
    pub fn for_pictures(&self) -> Self {
        let stages = Stages {
            orientation: vec![Orientation::Rows],
            transform: self.stages.picture_transform.clone(),
            ..self.stages.clone()
        };
        Self { stages, ..self.clone() }
    }

    fn bad(&self, what: impl Into<String>) -> Error {
        Error::BadProfile { profile: self.name.clone(), what: what.into() }
    }

    fn check(&self) -> Result<(), Error> {
        if !self.stages.lambda.is_finite() || !(0.0..=4.0).contains(&self.stages.lambda) {
            return Err(self.bad("lambda is not between 0 and 4"));
        }
        if self.parallel.tile_values < 1024 {
            return Err(self.bad("tiles need at least 1024 values"));
        }
        if self.candidates()?.is_empty() || self.for_pictures().candidates()?.is_empty() {
            return Err(self.bad("every stage needs at least one alternative"));
        }
        Ok(())
    }

    /// Every combination of orientation, transform and prediction that the
    /// profile allows, with its first weights.
    pub fn candidates(&self) -> Result<Vec<Plan>, Error> {
        if !self.parallel.segment.is_power_of_two() {
            return Err(self.bad("segment is a power of two"));
        }
        if let Some(unknown) = self.stages.context_weights.iter().find(|&&w| usize::from(w) >= WEIGHTS.len())
        {
            return Err(self.bad(format!("unknown context weights {unknown}; there are {}", WEIGHTS.len())));
        }
        let weights = self.stages.context_weights.first().copied().unwrap_or(0);
        let mut plans = Vec::new();
        for &choice in &self.stages.entropy {
            // Bits in contexts of both neighbours see no orientation.
            let binary = choice == EntropyChoice::Binary;
            let uniform = binary || choice == EntropyChoice::Raw;
            let orientations = if binary {
                &self.stages.orientation[..1.min(self.stages.orientation.len())]
            } else {
                &self.stages.orientation[..]
            };
            for orientation in orientations {
                for transform in &self.stages.transform {
                    let transform = parse_transform(transform)
                        .ok_or_else(|| self.bad(format!("unknown transform `{transform}`")))?;
                    let learned = matches!(transform, Transform::Klt { .. });
                    for prediction in &self.stages.prediction {
                        let prediction: Prediction = prediction
                            .parse()
                            .map_err(|()| self.bad(format!("unknown prediction `{prediction}`")))?;
                        if prediction.above > 0 && (learned || uniform) || learned && uniform {
                            continue;
                        }
                        let plan = Plan {
                            transposed: *orientation == Orientation::Columns,
                            transform,
                            prediction,
                            log2_states: if uniform { 0 } else { self.stages.quantization.log2_states() },
                            entropy: match choice {
                                EntropyChoice::Adaptive => Entropy::Adaptive,
                                EntropyChoice::Static => Entropy::Static,
                                EntropyChoice::Binary => Entropy::Binary,
                                EntropyChoice::Raw => Entropy::Raw,
                            },
                            weights,
                            log2_segment: self.parallel.segment.ilog2(),
                        };
                        plan.check().map_err(|what| self.bad(what))?;
                        plans.push(plan);
                    }
                }
            }
        }
        Ok(plans)
    }
}

/// `none`, or a family and a size: `klt-64`, `dct-8`, `dct-8x8`.
fn parse_transform(text: &str) -> Option<Transform> {
    if text == "none" {
        return Some(Transform::None);
    }
    let (family, size) = text.split_once('-')?;
    let (size, square) = match size.split_once('x') {
        Some((width, height)) if width == height => (width, true),
        Some(_) => return None,
        None => (size, false),
    };
    let size: u32 = size.parse().ok()?;
    if !size.is_power_of_two() {
        return None;
    }
    let log2_size = size.ilog2();
    if family == "klt" {
        return (!square && (2..=7).contains(&log2_size)).then_some(Transform::Klt { log2_size });
    }
    let family = match family {
        "dct" => Family::Dct,
        "dst" => Family::Dst,
        "hadamard" => Family::Hadamard,
        _ => return None,
    };
    if !(2..=5).contains(&log2_size) {
        return None;
    }
    Some(if square { Transform::Block { family, log2_size } } else { Transform::Row { family, log2_size } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_parse() {
        for name in Profile::names() {
            assert_eq!(Profile::named(name).unwrap().name, name);
        }
    }

    #[test]
    fn transforms_are_named_as_they_are_read() {
        for name in ["none", "klt-64", "dct-32", "dst-4x4", "hadamard-16", "dct-8x8"] {
            assert_eq!(parse_transform(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let with = |stages: &str| {
            Profile::parse(&format!(
                "name = \"x\"\ndescription = \"\"\npipeline = \"trinity\"\n[stages]\n{stages}"
            ))
            .map_err(|e| e.to_string())
        };
        assert!(with("quantization = \"trellis-8\"").is_ok());
        for (stages, word) in [
            ("transform = [\"dct-12\"]", "dct-12"),
            ("transform = [\"klt-8x8\"]", "klt-8x8"),
            ("quantization = \"trellis-2\"", "trellis-2"),
            ("prediction = [\"above-17\"]", "above-17"),
            ("orientation = []", "alternative"),
            ("context-weights = [99]", "99"),
            ("lamda = 1", "lamda"),
        ] {
            assert!(with(stages).unwrap_err().contains(word), "{stages}: {:?}", with(stages));
        }
    }
}
