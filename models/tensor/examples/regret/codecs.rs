//! The two codecs that choose plans, and how each is held to one.

use trinity_codec::line::{Family, Fixed, Options, Settings};
use trinity_codec::{
    Entropy, Orientation, Plan, Preconditioning, Prediction, Profile, Rule, Rules, Stages, Transform,
};
use trinity_tensor::codec::{Metrics, Rate, codec};
use trinity_tensor::{Class, Dtype, Error, Tensor};

use super::points::{InputTensor, Point};

/// Codecs of `compare` that others are held against, `trinity` first.
pub const OTHERS: [&str; 6] = ["trinity", "trinity-lite", "uniform+ac", "h265", "h265-best", "h264-slow"];

/// One way to code.
#[derive(Debug, Clone)]
pub enum Alternative {
    Trinity(Box<Plan>),
    Line(Fixed),
}

/// A codec with a plan to choose.
#[derive(Debug)]
pub struct Contestant {
    pub name: &'static str,
    profile: Profile,
    /// Alternatives by name.
    pub alternatives: Vec<(String, Alternative)>,
}

impl Contestant {
    /// `trinity` and `trinity-lite`.
    pub fn all() -> Result<[Self; 2], String> {
        let profile = Profile::named("trinity").map_err(|error| error.to_string())?;
        let plans = profile.candidates().map_err(|error| error.to_string())?;
        // Means are chosen with the rest, and held to where there is nothing else.
        let fixed = |plan: &Plan| {
            let means = plan.prediction != Prediction::NONE;
            let bare = plan.transform == Transform::None && plan.entropy == Entropy::Adaptive;
            match plan.preconditioning {
                // A transform along what was turned finds nothing.
                Preconditioning::Signalled { columns, .. } => {
                    let learned = matches!(plan.transform, Transform::Klt { .. });
                    !means && (plan.transform == Transform::None || learned && plan.transposed != columns)
                }
                _ => !means || bare,
            }
        };
        let trinity = plans.into_iter().filter(fixed);
        let trinity = trinity.map(|plan| (plan_name(&plan), Alternative::Trinity(Box::new(plan))));
        let families =
            [Family::None, Family::Hadamard, Family::Dct, Family::Signalled32, Family::Signalled64];
        let line = [false, true].into_iter().flat_map(|transposed| {
            families.map(|family| {
                let fixed =
                    Fixed { transposed: Some(transposed), transform: Some(family), ..Fixed::default() };
                (format!("{} {}", orientation(transposed), family_name(family)), Alternative::Line(fixed))
            })
        });
        Ok([
            Self { name: "trinity", profile: profile.clone(), alternatives: trinity.collect() },
            Self { name: "trinity-lite", profile, alternatives: line.collect() },
        ])
    }

    /// As the encoder chooses by those rules.
    pub fn choose(&self, input: &InputTensor, bits: f64, rules: Rules) -> Result<Option<Point>, String> {
        if self.name == "trinity" {
            with_profile(&Profile { rules, ..self.profile.clone() }, input, bits)
        } else {
            with_options(Options { rules, ..Options::default() }, input, bits)
        }
    }

    /// Whether a rule is one of this codec's search.
    pub fn asks(&self, rule: Rule) -> bool {
        rule.is_of_line() == (self.name != "trinity")
    }

    /// Held to one alternative; what else there is to choose is still chosen.
    pub fn hold(
        &self,
        alternative: &Alternative,
        input: &InputTensor,
        bits: f64,
    ) -> Result<Option<Point>, String> {
        match alternative {
            Alternative::Line(fixed) => {
                with_options(Options { fixed: *fixed, ..Options::default() }, input, bits)
            }
            Alternative::Trinity(plan) => {
                let own = &self.profile.stages;
                let coders = own.entropy.iter().copied();
                let stages = Stages {
                    orientation: vec![if plan.transposed { Orientation::Columns } else { Orientation::Rows }],
                    preconditioning: vec![plan.preconditioning],
                    transform: vec![plan.transform],
                    prediction: match plan.prediction {
                        Prediction::NONE => own.prediction.clone(),
                        means => vec![means],
                    },
                    entropy: coders.filter(|&coder| Entropy::from(coder) == plan.entropy).collect(),
                    ..own.clone()
                };
                with_profile(&Profile { stages, ..self.profile.clone() }, input, bits)
            }
        }
    }
}

fn orientation(transposed: bool) -> &'static str {
    if transposed { "columns" } else { "rows" }
}

fn plan_name(plan: &Plan) -> String {
    let entropy = if plan.entropy == Entropy::Binary { " binary" } else { "" };
    let means = match plan.prediction {
        Prediction::NONE => String::new(),
        prediction => format!(" {prediction}"),
    };
    let turned = match plan.preconditioning {
        Preconditioning::None => String::new(),
        turned => format!(" of {turned}"),
    };
    format!("{} {}{means}{entropy}{turned}", orientation(plan.transposed), plan.transform)
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::None => "none",
        Family::Hadamard => "hadamard-32",
        Family::Dct => "dct-32",
        Family::Signalled32 => "stated-32",
        Family::Signalled64 => "stated-64",
    }
}

fn with_profile(profile: &Profile, input: &InputTensor, bits: f64) -> Result<Option<Point>, String> {
    let target = trinity_codec::Rate::Bits(bits);
    match trinity_codec::encode(&input.values, input.rows, input.cols, profile, target) {
        Ok(encoded) => Ok(Some(Point {
            bits: 8.0 * encoded.bytes.len() as f64 / input.values.len() as f64,
            nmse: input.nmse(&encoded.recon),
            plan: encoded.report.plan.as_ref().map_or_else(|| "none".into(), plan_name),
        })),
        Err(trinity_codec::Error::RateUnreachable { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn with_options(options: Options, input: &InputTensor, bits: f64) -> Result<Option<Point>, String> {
    let settings = Settings::default();
    let target = trinity_codec::line::Rate::Bits(bits);
    let InputTensor { rows, cols, values, .. } = input;
    let bytes = match trinity_codec::line::encode_under(values, *rows, *cols, target, &options, &settings) {
        Ok(bytes) => bytes,
        Err(trinity_codec::line::Error::Unreachable { .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (plan, _) = trinity_codec::line::Plan::read(&bytes).map_err(|error| error.to_string())?;
    let family = Fixed::default().like(&plan).transform.unwrap_or(Family::None);
    let (.., recon) = trinity_codec::line::decode(&bytes).map_err(|error| error.to_string())?;
    Ok(Some(Point {
        bits: 8.0 * bytes.len() as f64 / values.len() as f64,
        nmse: input.nmse(&recon),
        plan: format!("{} {}", orientation(plan.transposed), family_name(family)),
    }))
}

/// As `compare` codes, with whatever the codec's name chooses.
pub fn by_registry(name: &str, input: &InputTensor, bits: f64) -> Result<Option<Point>, String> {
    let shape = vec![input.rows, input.cols];
    let point = || -> Result<Point, Error> {
        let tensor = Tensor::of_f32(&input.name, Class::Weight, Dtype::F32, shape, &input.values)?;
        let codec = codec(name)?;
        let encoded = codec.encode(&tensor, Rate::Bits(bits))?;
        let nmse = Metrics::between(&tensor, &codec.decode(&encoded)?).nmse;
        Ok(Point { bits: encoded.bits_per_value(), nmse, plan: name.into() })
    };
    match point() {
        Ok(point) => Ok(Some(point)),
        Err(Error::Unreachable { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
