//! Bits per value of each class by each coder, at one quality.

use super::recorded::Trained;
use super::request::MOST_NMSE;
use crate::compare::Comparison;
use crate::{Error, Quality};
use serde::Serialize;
use trinity_tensor::compare::{GAUSSIAN, InputTensor, ORDER0};
use trinity_tensor::{Class, TensorFile};

/// What rows call the file that comes with the library.
pub const BUILT_IN: &str = "built-in tensors";

/// Seven pieces of tensors of five classes, captured in training.
pub static TENSORS: &[u8] = include_bytes!("../../data/tensors.safetensors");

/// The tensors that come with the library, for who has none at hand. Fails
/// where they cannot be read, which a test excludes.
pub fn built_in() -> Result<Vec<InputTensor>, Error> {
    let failed = |error| Error::Tensor { subject: BUILT_IN.into(), error };
    let file = TensorFile::from_bytes(TENSORS.to_vec(), "built-in").map_err(failed)?;
    let input_tensors = file.entries().iter().map(|entry| InputTensor::new(entry.clone(), BUILT_IN));
    input_tensors.collect::<Result<_, _>>().map_err(failed)
}

/// What a coder needs for one class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bits {
    pub class: Class,
    pub coder: String,
    /// Mean over the tensors of the class; nothing where one is out of reach.
    pub bits_per_value: Option<f64>,
    /// The tensors that take fewest and most.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The error that was left.
    pub nmse: Option<f64>,
    pub tensors: usize,
    /// Why the quality is out of reach, where it is.
    pub missed: Option<String>,
}

/// A codec that could not take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub candidate: String,
    pub why: String,
}

/// What a job takes at most; a class that states so many is sent as it is.
pub(super) const MOST_BITS: f64 = 32.0;

/// Bits times a factor; what is sent as it is stays so.
pub(super) fn scaled(bits: f64, factor: f64) -> f64 {
    if bits < MOST_BITS { (bits * factor).min(MOST_BITS) } else { bits }
}

/// The bits that scenarios state: of tensors at the quality, and of training runs where those decide.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    pub bits: Vec<Bits>,
    /// Empty where no training is asked about, or the asker set the error of tensors.
    pub trained: Vec<Trained>,
}

impl Rates {
    /// What a scenario states of a class; of what is sent as it is more bits than it has, which
    /// nobody sends.
    pub fn stated(&self, class: Class, coder: &str) -> Option<f64> {
        if let Some(own) = self.trained.iter().find(|one| one.class == class && one.coder == coder) {
            return Some(own.bits_per_value.unwrap_or(MOST_BITS));
        }
        let own = self.bits.iter().find(|bits| bits.class == class && bits.coder == coder)?;
        own.bits_per_value.map(|bits| bits.min(MOST_BITS))
    }

    /// Bits of a class differ between tensors: the least and the most, as factors on the mean. Those
    /// of a run are its mean over all it sent.
    pub fn spread(&self, class: Class) -> (f64, f64) {
        if self.trained.iter().any(|one| one.class == class) {
            return (1.0, 1.0);
        }
        let ratios = |pick: fn(&Bits) -> Option<f64>| {
            let own = self.bits.iter().filter(move |bits| bits.class == class);
            own.filter_map(move |bits| Some(pick(bits)? / bits.bits_per_value?))
        };
        (ratios(|bits| bits.low).fold(1.0, f64::min), ratios(|bits| bits.high).fold(1.0, f64::max))
    }
}

/// Sums rows up by class and coder; a coder that misses one tensor of a class
/// has no bits for the class.
pub(super) fn bits(comparison: &Comparison, input_tensors: &[InputTensor]) -> Vec<Bits> {
    let mut coders: Vec<&str> = Vec::new();
    for row in &comparison.all {
        if ![ORDER0, GAUSSIAN].contains(&row.codec.as_str()) && !coders.contains(&row.codec.as_str()) {
            coders.push(&row.codec);
        }
    }
    let classes =
        Class::ALL.into_iter().filter(|&class| input_tensors.iter().any(|s| s.entry.class() == class));
    classes
        .flat_map(|class| coders.iter().map(move |&coder| (class, coder)))
        .map(|(class, coder)| {
            let own = || comparison.all.iter().filter(|row| row.class == class && row.codec == coder);
            let missed = own().find_map(|row| row.missed.clone());
            let line = comparison.classes.iter().find(|line| line.class == class && line.codec == coder);
            let line = line.filter(|_| missed.is_none());
            let extreme = |pick: fn(f64, f64) -> f64| own().map(|row| row.bits_per_value).reduce(pick);
            Bits {
                class,
                coder: coder.to_owned(),
                bits_per_value: line.map(|line| line.bits_per_value),
                low: line.and_then(|_| extreme(f64::min)),
                high: line.and_then(|_| extreme(f64::max)),
                nmse: line.map(|line| line.nmse),
                tensors: own().count(),
                missed,
            }
        })
        .collect()
}

/// Why a coder cannot take part: the first class it cannot code as well as
/// asked.
pub(super) fn missed(bits: &[Bits], coder: &str, needs: &[Class]) -> Option<String> {
    needs.iter().find_map(|&class| {
        let own = bits.iter().find(|bits| bits.class == class && bits.coder == coder)?;
        let hopeless = own.nmse.filter(|nmse| *nmse >= MOST_NMSE);
        let hopeless = hopeless.map(|nmse| format!("an NMSE of {nmse:.2}, from which nothing is learned"));
        own.missed.clone().or(hopeless).map(|why| format!("{class}: {why}"))
    })
}

/// No codec is as good as asked.
pub(super) fn unreachable(quality: &Quality, left_out: &[LeftOut], recorded: bool) -> Error {
    let reasons: Vec<String> =
        left_out.iter().map(|left| format!("{} ({})", left.candidate, left.why)).collect();
    if recorded {
        let message = format!("no codec trained without loss in a recorded run: {}", reasons.join("; "));
        let help = "--nmse takes the bits of the tensors at an error instead, --loss allows a loss";
        return Error::input(message, help);
    }
    let easier = if quality.is_rate() {
        "ask for more bits per value"
    } else {
        "ask for a larger --nmse or --loss: an NMSE of 0.01 is what the paper works at, and bfloat16 itself rounds by about \
         3e-6"
    };
    Error::input(format_args!("no codec reaches {quality} on these tensors: {}", reasons.join("; ")), easier)
}
