//! Profiles: what an encoder may choose from, as a designer writes it.
//!
//! A profile is a TOML of plain data. Lists are alternatives among which the
//! encoder picks by rate–distortion cost; what it picked travels in the
//! stream, so a decoder needs no profile.

use serde::{Deserialize, Deserializer, Serialize};
use trinity_config::{Complaint, Document};

use crate::Error;
use crate::entropy::scales::WEIGHTS;
use crate::format::trinity::plan::{Entropy, Plan, Prediction};
use crate::search::rules::Rules;
use crate::stage::precondition::Preconditioning;
use crate::stage::transform::Transform;
use crate::stage::trellis::Decision;

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
}

impl From<EntropyChoice> for Entropy {
    fn from(choice: EntropyChoice) -> Self {
        match choice {
            EntropyChoice::Adaptive => Self::Adaptive,
            EntropyChoice::Static => Self::Static,
            EntropyChoice::Binary => Self::Binary,
        }
    }
}

/// How values become levels.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[schemars(extend("pattern" = "^(dead-zone|rdoq|trellis-(4|8|16|32|64|128|256))$"))]
pub enum Quantization {
    /// Uniform, rounding toward zero more often than not.
    DeadZone,
    /// Uniform; every level is chosen by its error and its rate.
    Rdoq,
    /// Dependent, on a trellis of 2^n states, by error and rate.
    Trellis { log2_states: u32 },
}

impl Quantization {
    pub fn log2_states(self) -> u32 {
        match self {
            Self::DeadZone | Self::Rdoq => 0,
            Self::Trellis { log2_states } => log2_states,
        }
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
    /// Rules of the search; no file states them.
    #[serde(skip)]
    pub rules: Rules,
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
    #[serde(deserialize_with = "some")]
    pub orientation: Vec<Orientation>,
    /// `none`, `hadamard-128` over groups of columns with random signs,
    /// `stated-64` and `stated-columns-64` for matrices that the stream states. A
    /// PCA basis is given to the encoder with the matrix.
    #[serde(deserialize_with = "some")]
    pub preconditioning: Vec<Preconditioning>,
    /// `none`, `klt-64`, `dct-32` along rows, `dct-8x8` in blocks, and the
    /// same with `dst` and `hadamard`.
    #[serde(deserialize_with = "some")]
    pub transform: Vec<Transform>,
    /// Transforms for pictures, whose neighbours are alike in both directions.
    #[serde(deserialize_with = "some")]
    pub picture_transform: Vec<Transform>,
    /// `none`, `above-12` (sixteenths of the coded row above), `row-mean`,
    /// `column-mean`, `row-and-column-mean`, `intra` (blocks from their
    /// neighbours, with transforms of square blocks).
    #[serde(deserialize_with = "some")]
    pub prediction: Vec<Prediction>,
    /// Predictions for pictures.
    #[serde(deserialize_with = "some")]
    pub picture_prediction: Vec<Prediction>,
    /// `dead-zone`, `rdoq`, `trellis-4` … `trellis-256`.
    pub quantization: Quantization,
    /// Bits against squared steps, 0 to 4.
    #[serde(deserialize_with = "lambda")]
    pub lambda: f32,
    /// `adaptive`, `static`; `binary` with a uniform quantizer.
    #[serde(deserialize_with = "some")]
    pub entropy: Vec<EntropyChoice>,
    /// Indices of the weights with which contexts see rows above and columns
    /// beside.
    #[serde(deserialize_with = "weights")]
    pub context_weights: Vec<u8>,
}

/// How work is cut.
#[derive(schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Parallel {
    /// Values of a tile, about; at least 1024.
    #[serde(deserialize_with = "tile_values")]
    pub tile_values: usize,
    /// Values of a segment, by powers of two: trellis and statistics restart
    /// or adapt.
    #[serde(deserialize_with = "segment")]
    pub segment: u32,
}

/// A list with something to choose from.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() {
        Err(serde::de::Error::custom("at least one alternative is needed"))
    } else {
        Ok(list)
    }
}

/// A number that passes `test`, or what was expected.
fn number<'de, D: Deserializer<'de>, T: Deserialize<'de> + std::fmt::Display>(
    deserializer: D,
    expected: &str,
    test: impl Fn(&T) -> bool,
) -> Result<T, D::Error> {
    let number = T::deserialize(deserializer)?;
    if test(&number) {
        Ok(number)
    } else {
        Err(serde::de::Error::custom(format!("{number} is out of range: expected {expected}")))
    }
}

fn lambda<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    number(deserializer, "0 to 4", |lambda| (0.0..=4.0).contains(lambda))
}

fn tile_values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    number(deserializer, "at least 1024", |&values| values >= 1024)
}

fn segment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let known = |segment: &u32| segment.is_power_of_two() && (4..=16).contains(&segment.ilog2());
    number(deserializer, "16 to 65536 by powers of two", known)
}

fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let weights: Vec<u8> = some(deserializer)?;
    match weights.iter().find(|&&index| usize::from(index) >= WEIGHTS.len()) {
        Some(index) => {
            let expected = format!("unknown weights {index}: expected 0 to {}", WEIGHTS.len() - 1);
            Err(serde::de::Error::custom(expected))
        }
        None => Ok(weights),
    }
}

impl Default for Stages {
    fn default() -> Self {
        use crate::stage::transform::Family::Dct;
        Self {
            orientation: vec![Orientation::Rows],
            preconditioning: vec![Preconditioning::None],
            transform: vec![Transform::None],
            picture_transform: [3, 4].map(|log2_size| Transform::Block { family: Dct, log2_size }).to_vec(),
            prediction: vec![Prediction::NONE],
            picture_prediction: vec![Prediction::NONE],
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

const BUILT_IN: [(&str, &str); 6] = [
    ("trinity", include_str!("../../../../configs/profiles/trinity.toml")),
    ("trinity-static", include_str!("../../../../configs/profiles/trinity-static.toml")),
    ("trinity-max", include_str!("../../../../configs/profiles/trinity-max.toml")),
    ("paper", include_str!("../../../../configs/profiles/paper.toml")),
    ("paper-cabac", include_str!("../../../../configs/profiles/paper-cabac.toml")),
    ("lossless", include_str!("../../../../configs/profiles/lossless.toml")),
];

impl Profile {
    /// Reads a profile and checks that every choice exists; errors say at
    /// which line and column it does not.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::read(&Document::parse("profile", text)?)
    }

    /// The profile in a file, whose path ends in `.toml`; it may extend a
    /// built-in one (`extends = "profiles/trinity"`).
    pub fn load(path: &str) -> Result<Self, Error> {
        Self::read(&Document::load(path)?)
    }

    fn read(document: &Document) -> Result<Self, Error> {
        let profile: Self = document.read()?;
        profile.check().map_err(|error| match error {
            // What no single key is to blame for is blamed on all stages.
            Error::BadProfile { what, .. } => document.complain("stages", &Complaint::new(what)).into(),
            other => other,
        })?;
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

    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    pub fn for_pictures(&self) -> Self {
        // Neighbours are alike in pictures, and columns a picture's width apart are not.
        let mut preconditioning = self.stages.preconditioning.clone();
        preconditioning.retain(|change| !matches!(change, Preconditioning::Signalled { .. }));
        if preconditioning.is_empty() {
            preconditioning.push(Preconditioning::None);
        }
        let stages = Stages {
            orientation: vec![Orientation::Rows],
            preconditioning,
            transform: self.stages.picture_transform.clone(),
            prediction: self.stages.picture_prediction.clone(),
            ..self.stages.clone()
        };
        Self { stages, ..self.clone() }
    }

    fn check(&self) -> Result<(), Error> {
        self.candidates()?;
        self.for_pictures().candidates().map_err(|error| match error {
            Error::BadProfile { profile, what } => {
                Error::BadProfile { profile, what: format!("of pictures: {what}") }
            }
            other => other,
        })?;
        Ok(())
    }

    /// How levels are decided, and what their bits weigh.
    pub(crate) fn decision(&self) -> (Decision, f32) {
        let Stages { quantization, lambda, .. } = self.stages;
        (if quantization == Quantization::DeadZone { Decision::DeadZone } else { Decision::Rate }, lambda)
    }

    /// Every combination of preconditioning, orientation, transform and
    /// prediction that the profile allows and that makes sense, with its first
    /// weights.
    pub fn candidates(&self) -> Result<Vec<Plan>, Error> {
        let Stages { orientation, preconditioning, transform, prediction, entropy, .. } = &self.stages;
        let weights = self.stages.context_weights.first().copied().unwrap_or(0);
        let mut plans = Vec::new();
        let mut refused = "every stage needs at least one alternative";
        for (&preconditioning, &choice) in
            preconditioning.iter().flat_map(|p| entropy.iter().map(move |e| (p, e)))
        {
            // Bits in contexts of both neighbours see no orientation.
            let binary = choice == EntropyChoice::Binary;
            let orientations =
                if binary { &orientation[..1.min(orientation.len())] } else { &orientation[..] };
            for orientation in orientations {
                for (&transform, &prediction) in
                    transform.iter().flat_map(|t| prediction.iter().map(move |p| (t, p)))
                {
                    let plan = Plan {
                        transposed: *orientation == Orientation::Columns,
                        preconditioning,
                        transform,
                        prediction,
                        log2_states: if binary { 0 } else { self.stages.quantization.log2_states() },
                        entropy: choice.into(),
                        weights,
                        log2_segment: self.parallel.segment.checked_ilog2().unwrap_or(0),
                    };
                    match plan.check() {
                        Ok(()) => plans.push(plan),
                        Err(why) => refused = why,
                    }
                }
            }
        }
        if !plans.is_empty() {
            return Ok(plans);
        }
        let what = format!("no combination of stages works: {refused}");
        Err(Error::BadProfile { profile: self.name.clone(), what })
    }
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
            assert_eq!(Transform::try_from(name.to_owned()).unwrap().to_string(), name);
        }
        for name in ["none", "above-16", "row-mean", "column-mean", "row-and-column-mean", "intra"] {
            assert_eq!(Prediction::try_from(name.to_owned()).unwrap().to_string(), name);
        }
    }

    const HEAD: &str = "name = \"x\"\ndescription = \"\"\npipeline = \"trinity\"\n";

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_column_and_what_is_allowed() {
        let error = |rest: &str| Profile::parse(&format!("{HEAD}{rest}")).unwrap_err().to_string();
        for (stages, place, words) in [
            ("orientation = [\"rows\", \"up\"]", "5:24", ["up", "columns"]),
            ("preconditioning = [\"hadamard-3\"]", "5:20", ["hadamard-3", "hadamard-4096"]),
            ("transform = [\"none\", \"dct-12\"]", "5:22", ["dct-12", "dct-8x8"]),
            ("transform = [\"klt-8x8\"]", "5:14", ["klt-8x8", "klt-128"]),
            ("picture-transform = [\"wavelet\"]", "5:22", ["wavelet", "dct-8x8"]),
            ("prediction = [\"above-17\"]", "5:15", ["above-17", "above-16"]),
            ("picture-prediction = [\"inter\"]", "5:23", ["inter", "intra"]),
            ("quantization = \"trellis-2\"", "5:16", ["trellis-2", "trellis-256"]),
            ("lambda = -1", "5:10", ["-1", "0 to 4"]),
            ("lambda = nan", "5:10", ["NaN", "0 to 4"]),
            ("entropy = [\"huffman\"]", "5:12", ["huffman", "static"]),
            // Written by 0.1.0, read for good.
            ("entropy = [\"raw\"]", "5:12", ["raw", "binary"]),
            ("context-weights = [99]", "5:19", ["99", "0 to 5"]),
            ("orientation = []", "5:15", ["at least one", "alternative"]),
            ("lamda = 1", "5:1", ["lamda", "lambda"]),
            ("lambda = \"much\"", "5:10", ["much", "expected"]),
            ("prediction = [\"intra\"]", "4:1", ["intra", "square blocks"]),
            (
                "picture-transform = [\"none\"]\npicture-prediction = [\"intra\"]",
                "4:1",
                ["pictures", "square"],
            ),
        ] {
            let said = error(&format!("[stages]\n{stages}"));
            assert!(said.contains(&format!("{place}:")), "{stages}: {said}");
            assert!(words.iter().all(|word| said.contains(word)), "{stages}: {said}");
        }
        for (rest, place, word) in [
            ("[parallel]\ntile-values = 10", "5:15", "1024"),
            ("[parallel]\nsegment = 1000", "5:11", "65536"),
            ("[paper]\nentropy = \"vlc\"", "5:11", "cavlc"),
            ("[stagse]\n", "4:2", "stages"),
        ] {
            let said = error(rest);
            assert!(said.contains(&format!("{place}:")) && said.contains(word), "{rest}: {said}");
        }
        assert!(Profile::parse("name = \"x\"").unwrap_err().to_string().contains("description"));
        assert!(error("pipeline = \"h264\"").contains("4:1:"));
    }
}
