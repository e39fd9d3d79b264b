//! Design spaces in files: the alternatives of each stage of the chain.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_codec::Profile;
use trinity_config::{At, Checked, Diagnostic};

/// What a search chooses from. Names are those of profiles.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DesignsFile {
    pub title: String,
    pub orientation: Vec<String>,
    pub preconditioning: Vec<String>,
    pub transform: Vec<String>,
    pub prediction: Vec<String>,
    pub quantization: Vec<String>,
    pub entropy: Vec<String>,
    pub tile_values: Vec<u32>,
    /// Values after which statistics are renewed and a trellis begins anew: what
    /// one lane works through.
    pub segment: Vec<u32>,
}

/// One choice for every stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    pub name: String,
    /// The profile as TOML, as `encode` takes it.
    pub text: String,
    pub profile: Profile,
}

impl DesignsFile {
    /// The stages, each with its alternatives.
    fn stages(&self) -> [(&'static str, Vec<String>); 8] {
        [
            ("orientation", self.orientation.clone()),
            ("preconditioning", self.preconditioning.clone()),
            ("transform", self.transform.clone()),
            ("prediction", self.prediction.clone()),
            ("quantization", self.quantization.clone()),
            ("entropy", self.entropy.clone()),
            ("tile-values", self.tile_values.iter().map(u32::to_string).collect()),
            ("segment", self.segment.iter().map(u32::to_string).collect()),
        ]
    }

    /// Every combination that makes sense to the codec, in the order of the
    /// file; the last stage turns fastest.
    pub fn designs(&self) -> Vec<Design> {
        let stages = self.stages();
        let count: usize = stages.iter().map(|(_, choices)| choices.len()).product();
        (0..count).filter_map(|at| design(&stages, at)).collect()
    }
}

/// The combination of that number; nothing where the codec has no such chain.
fn design(stages: &[(&'static str, Vec<String>); 8], number: usize) -> Option<Design> {
    let mut rest = number;
    let mut chosen = [""; 8];
    for (at, (_, choices)) in stages.iter().enumerate().rev() {
        chosen[at] = choices.get(rest % choices.len())?;
        rest /= choices.len();
    }
    let [orientation, preconditioning, transform, prediction, quantization, entropy, tile, segment] = chosen;
    // What a uniform quantizer with a dead zone was tuned at, and what search by rate was.
    let lambda = if quantization == "dead-zone" { 1.2 } else { 0.31 };
    let name =
        chosen.iter().filter(|part| !["none", "rows"].contains(part)).copied().collect::<Vec<_>>().join("_");
    let text = format!(
        "name = \"{name}\"\ndescription = \"found by trinity explore --search\"\npipeline = \"trinity\"\n\n[stages]\n\
         orientation = [\"{orientation}\"]\npreconditioning = [\"{preconditioning}\"]\ntransform = [\"{transform}\"]\n\
         prediction = [\"{prediction}\"]\nquantization = \"{quantization}\"\nlambda = {lambda}\nentropy = [\"{entropy}\"]\n\n\
         [parallel]\ntile-values = {tile}\nsegment = {segment}\n"
    );
    let profile = Profile::parse(&text).ok()?;
    Some(Design { name, text, profile })
}

impl Checked for DesignsFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let stages = self.stages();
        let empty = stages.iter().filter(|(_, choices)| choices.is_empty());
        Diagnostic::gather(empty.map(|(key, _)| at.refuse(key, "no alternatives", "at least one")))?;
        if self.designs().is_empty() {
            let what = "no combination of these stages makes a codec";
            return at.refuse("title", what, "names that profiles have, as in configs/profiles");
        }
        Ok(())
    }
}
