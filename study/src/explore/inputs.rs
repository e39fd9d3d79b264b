//! What an answer rests on without anybody knowing it exactly: each input with
//! its range, and what a draw of it puts where.
//!
//! Knows the contest's study, bits, silicon and errors; what a draw does to the
//! answer is [`super::chance`]'s.

use super::contest::Contest;
use super::effect;
use super::lattice::normal;
use super::recorded::{Lost, Trained};
use super::tensors::{MOST_BITS, scaled};
use crate::config::{AssumptionFile, OriginName, Scalar};
use crate::measured::Quoted;
use serde::Serialize;
use trinity_sim::sweep::Point;
use trinity_sim::{Phase, Schedule};
use trinity_tensor::Class;

/// Something that is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Input {
    pub name: String,
    /// The ends between which it is drawn; of what is normal, two standard deviations either way.
    pub low: String,
    pub high: String,
    /// How draws lie between them.
    pub shape: String,
    #[serde(skip)]
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// `path=value` over the study.
    Number {
        path: String,
        unit: String,
        low: f64,
        middle: Option<f64>,
        high: f64,
        whole: bool,
    },
    Either {
        path: String,
        low: String,
        high: String,
    },
    /// Bits of a class, of all codecs together.
    Bits {
        class: Class,
        low: f64,
        high: f64,
    },
    /// Area of all codecs whose figures come from one place.
    Area {
        origin: OriginName,
        factor: f64,
    },
    /// Speed of every wire against compute.
    Wires {
        deviation: f64,
    },
    /// What coded gradients, or coded pipelines, cost in quality.
    Gradients(Vec<Charge>),
    Pipeline(Vec<Charge>),
}

/// What coding costs the codecs of one coder, or all of them where none is named.
#[derive(Debug, Clone, PartialEq)]
struct Charge {
    coder: Option<String>,
    lost: Lost,
}

/// One draw of all inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct Draw {
    pub assignments: Vec<String>,
    bits: Vec<(Class, f64)>,
    areas: Vec<(OriginName, f64)>,
    wires: f64,
    gradients: Vec<(Option<String>, f64)>,
    pipeline: Vec<(Option<String>, f64)>,
}

const EVENLY: &str = "evenly, in the logarithm where both ends are positive";
const AROUND: &str =
    "half below the study's value and half above, evenly in the logarithm where both ends are positive";

/// Everything that is drawn for a contest.
pub(super) fn inputs(contest: &Contest<'_>, measured: &Quoted) -> Vec<Input> {
    let mut inputs: Vec<Input> =
        contest.baseline_study.assumptions().map(|one| assumption(contest, one)).collect();
    let spread = |class: &Class| (*class, contest.rates.spread(*class));
    let differing = contest.baseline_study.needs.iter().map(spread).filter(|(_, (low, high))| low < high);
    inputs.extend(differing.map(|(class, (low, high))| Input {
        name: format!("bits of a {class}, as tensors differ"),
        low: format!("{low:.2}×"),
        high: format!("{high:.2}×"),
        shape: AROUND.into(),
        kind: Kind::Bits { class, low, high },
    }));
    inputs.extend(areas(contest));
    if let Some(error) = measured.error.filter(|error| *error > 0.0) {
        // A mean absolute error e is a deviation of e·√(π/2). An error of all times alike moves no
        // ratio; wires against compute differ by that of both.
        let deviation = error * std::f64::consts::PI.sqrt();
        inputs.push(Input {
            name: "the cluster model: wires against compute".into(),
            low: format!("{:.2}×", (-2.0 * deviation).exp()),
            high: format!("{:.2}×", (2.0 * deviation).exp()),
            shape: "normal in the logarithm".into(),
            kind: Kind::Wires { deviation },
        });
    }
    inputs.extend(effects(contest));
    inputs
}

fn assumption(contest: &Contest<'_>, one: &AssumptionFile) -> Input {
    let (low, high) = (one.low.to_string(), one.high.to_string());
    let input = |shape: &str, kind: Kind| Input {
        name: one.name.clone(),
        low: low.clone(),
        high: high.clone(),
        shape: shape.into(),
        kind,
    };
    let ends = one.low.number().zip(one.high.number());
    let Some(((from, unit), (to, _))) = ends.filter(|((_, unit), (_, same))| unit == same) else {
        let (low, high) = (low.clone(), high.clone());
        return input("one or the other", Kind::Either { path: one.path.clone(), low, high });
    };
    let stated = contest.study.document.setting(&format!("study.{}", one.path));
    let stated = stated.and_then(|setting| Scalar::Text(setting.value.trim_matches('"').into()).number());
    let middle = stated.filter(|(_, own)| *own == unit).map(|(value, _)| value);
    let middle = middle.filter(|value| from < *value && *value < to);
    let whole = matches!((&one.low, &one.high), (Scalar::Integer(_), Scalar::Integer(_)));
    let shape = if middle.is_some() { AROUND } else { EVENLY };
    let kind = Kind::Number { path: one.path.clone(), unit, low: from, middle, high: to, whole };
    input(shape, kind)
}

/// The area of codecs, one input for each kind of figure; where nobody knows by
/// how much a figure is off, as much as the worst that is known.
fn areas(contest: &Contest<'_>) -> Vec<Input> {
    let known = contest.silicon.iter().filter_map(|silicon| silicon.area_factor);
    let Some(worst) = known.reduce(f64::max) else { return Vec::new() };
    let mut origins: Vec<(OriginName, f64)> = Vec::new();
    for silicon in contest.silicon.iter().filter(|silicon| silicon.area_mm2() > 0.0) {
        let factor = silicon.area_factor.unwrap_or(worst);
        match origins.iter_mut().find(|(origin, _)| *origin == silicon.origin) {
            Some((_, most)) => *most = most.max(factor),
            None => origins.push((silicon.origin, factor)),
        }
    }
    let input = |(origin, factor): (OriginName, f64)| Input {
        name: format!("area of codecs ({})", origin.words()),
        low: format!("{:.2}×", 1.0 / factor),
        high: format!("{factor:.2}×"),
        shape: EVENLY.into(),
        kind: Kind::Area { origin, factor },
    };
    origins.into_iter().map(input).collect()
}

/// What coding costs a model that is trained with it.
fn effects(contest: &Contest<'_>) -> Vec<Input> {
    let training = contest.optima.iter().flatten().any(|best| best.point.job.phase == Phase::Training);
    if !training {
        return Vec::new();
    }
    let (gradients, pipeline) = match contest.baseline_study.recorded {
        true => (charges(contest, Class::WeightGradient), charges(contest, Class::Activation)),
        false => (of_tensors(contest, Class::WeightGradient), of_tensors(contest, Class::Activation)),
    };
    let input = |name: &str, charges: Vec<Charge>, kind: fn(Vec<Charge>) -> Kind| {
        let at = |quantile: f64| charges.iter().map(move |one| one.lost.factor(quantile));
        let runs = charges.iter().map(|one| one.lost.seeds).max()?;
        Some(Input {
            name: name.into(),
            low: format!("{:.3}×", at(2.0).fold(1.0, f64::min)),
            high: format!("{:.3}×", at(-2.0).fold(0.0, f64::max)),
            shape: match runs {
                1 => "normal, as recorded runs of other recipes differ; never a gain".into(),
                runs => format!("normal, as {runs} recorded runs differ; never a gain"),
            },
            kind: kind(charges),
        })
    };
    let gradients = input("what coded gradients cost in quality", gradients, Kind::Gradients);
    let pipeline = input("what coded activations cost in quality", pipeline, Kind::Pipeline);
    gradients.into_iter().chain(pipeline).collect()
}

/// What the runs lost whose bits are taken.
fn charges(contest: &Contest<'_>, class: Class) -> Vec<Charge> {
    let own = contest.rates.trained.iter().filter(|one| one.class == class);
    let charge = |one: &Trained| Some(Charge { coder: Some(one.coder.clone()), lost: one.charge? });
    own.filter_map(charge).collect()
}

/// What recorded runs lost at the bits that the tensors take.
fn of_tensors(contest: &Contest<'_>, class: Class) -> Vec<Charge> {
    if !contest.baseline_study.needs.contains(&class) {
        return Vec::new();
    }
    let own = contest.rates.bits.iter().filter(|bits| bits.class == class);
    let fewest = own.filter_map(|bits| bits.bits_per_value).reduce(f64::min);
    let lost = match class {
        Class::WeightGradient => fewest.and_then(effect::gradients),
        _ => effect::pipeline(),
    };
    lost.map(|lost| Charge { coder: None, lost }).into_iter().collect()
}

/// The draw of a point of the unit cube, one coordinate for each input.
pub(super) fn draw(inputs: &[Input], point: &[f64]) -> Draw {
    let mut draw = Draw { wires: 1.0, ..Draw::default() };
    for (input, &u) in inputs.iter().zip(point) {
        match &input.kind {
            Kind::Number { path, unit, low, middle, high, whole } => {
                let value = quantile(*low, *middle, *high, u);
                let value = if *whole { value.round() } else { value };
                draw.assignments.push(format!("{path}={value} {unit}").trim_end().to_owned());
            }
            Kind::Either { path, low, high } => {
                draw.assignments.push(format!("{path}={}", if u < 0.5 { low } else { high }));
            }
            Kind::Bits { class, low, high } => {
                draw.bits.push((*class, quantile(*low, Some(1.0), *high, u)));
            }
            Kind::Area { origin, factor } => {
                draw.areas.push((*origin, quantile(1.0 / factor, None, *factor, u)));
            }
            Kind::Wires { deviation } => draw.wires = (deviation * normal(u)).exp(),
            Kind::Gradients(charges) => draw.gradients = drawn(charges, normal(u)),
            Kind::Pipeline(charges) => draw.pipeline = drawn(charges, normal(u)),
        }
    }
    draw
}

/// What each charge takes of the speed at a quantile.
fn drawn(charges: &[Charge], quantile: f64) -> Vec<(Option<String>, f64)> {
    charges.iter().map(|one| (one.coder.clone(), one.lost.factor(quantile))).collect()
}

/// The value below which a share `u` of draws lies.
fn quantile(low: f64, middle: Option<f64>, high: f64, u: f64) -> f64 {
    let (from, to, share) = match middle.filter(|middle| low < *middle && *middle < high) {
        Some(middle) if u < 0.5 => (low, middle, 2.0 * u),
        Some(middle) => (middle, high, 2.0 * u - 1.0),
        None => (low, high, u),
    };
    if from > 0.0 { from * (to / from).powf(share) } else { from + (to - from) * share }
}

impl Draw {
    /// Lays what is not of the study's own over a scenario's point.
    pub fn apply(&self, point: &mut Point, origin: Option<OriginName>) {
        let coded = &mut point.job.compression;
        for (class, factor) in &self.bits {
            let bits = match class {
                Class::Weight => &mut coded.weight_bits,
                Class::KvCache => &mut coded.kv_bits,
                Class::Activation => &mut coded.activation_bits,
                Class::WeightGradient => &mut coded.weight_gradient_bits,
                Class::ActivationGradient => &mut coded.activation_gradient_bits,
                Class::Other => continue,
            };
            *bits = bits.map(|bits| scaled(bits, *factor));
        }
        let area = self.areas.iter().find(|(own, _)| Some(*own) == origin);
        point.cluster.codec.area_mm2 *= area.map_or(1.0, |(_, factor)| *factor);
        let cluster = &mut point.cluster;
        cluster.inter_efficiency *= self.wires;
        cluster.intra.efficiency *= self.wires;
        cluster.host.efficiency *= self.wires;
    }

    /// What a model that `coder` was trained with has of its speed, by what is coded.
    pub fn kept(&self, point: &Point, coder: Option<&str>) -> f64 {
        let parallelism = &point.job.parallelism;
        if point.job.phase != Phase::Training {
            return 1.0;
        }
        let compression = &point.job.compression;
        let coded = |bits: Option<f64>| bits.is_some_and(|bits| bits < MOST_BITS);
        let gradients = coded(compression.weight_gradient_bits) && parallelism.data > 1;
        let between = parallelism.pipeline > 1 || parallelism.schedule != Schedule::OneFOneB;
        let pipeline = coded(compression.activation_bits) && between;
        let of = |charges: &[(Option<String>, f64)]| {
            let own = charges.iter().find(|(of, _)| of.is_none() || of.as_deref() == coder);
            own.map_or(1.0, |(_, kept)| *kept)
        };
        (if gradients { of(&self.gradients) } else { 1.0 })
            * (if pipeline { of(&self.pipeline) } else { 1.0 })
    }
}

/// What is taken to move together, in words.
pub(super) fn correlations() -> Vec<String> {
    [
        "All inputs are drawn independently of each other.",
        "The bits of a class move for all codecs together: a tensor that is hard to code is so for each.",
        "Codecs whose area comes from one place share its error.",
        "Every scenario has the same error of the cluster model and, where it codes, its cost in quality at the same quantile.",
    ]
    .map(String::from)
    .to_vec()
}

/// An input of a name, for tests of what is made of draws.
#[cfg(test)]
pub(super) fn tests_input(name: &str) -> Input {
    Input {
        name: name.into(),
        low: String::new(),
        high: String::new(),
        shape: String::new(),
        kind: Kind::Wires { deviation: 0.1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_draws_lie_below_the_studys_own_value() {
        assert_eq!(quantile(2.0, Some(4.0), 16.0, 0.5), 4.0);
        assert_eq!(quantile(2.0, Some(4.0), 16.0, 0.0), 2.0);
        assert!((quantile(2.0, Some(4.0), 16.0, 0.75) - 8.0).abs() < 1e-12);
        assert_eq!(quantile(0.0, None, 0.8, 0.25), 0.2, "a range from zero is drawn evenly");
        assert!((quantile(0.5, None, 2.0, 0.5) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn numbers_are_told_from_words() {
        let number = |text: &str| Scalar::Text(text.into()).number();
        assert_eq!(number("35.5 TFLOP/s"), Some((35.5, "TFLOP/s".into())));
        assert_eq!(number("16"), Some((16.0, String::new())));
        assert_eq!(number("per-hop"), None);
    }
}
