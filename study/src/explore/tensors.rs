//! Bits per value of each class by each coder, at one quality.

use super::request::MOST_NMSE;
use crate::compare::Comparison;
use crate::{Error, Quality};
use serde::Serialize;
use trinity_tensor::compare::{GAUSSIAN, ORDER0, Subject};
use trinity_tensor::{Class, TensorFile};

/// What rows call the file that comes with the library.
pub const BUILT_IN: &str = "built-in tensors";

/// Seven pieces of tensors of five classes, captured in training.
pub static TENSORS: &[u8] = include_bytes!("../../data/tensors.safetensors");

/// The tensors that come with the library, for who has none at hand.
///
/// # Errors
///
/// Where they cannot be read, which a test excludes.
pub fn built_in() -> Result<Vec<Subject>, Error> {
    let failed = |error| Error::Tensor { subject: BUILT_IN.into(), error };
    let file = TensorFile::from_bytes(TENSORS.to_vec(), "built-in").map_err(failed)?;
    let subjects = file.entries().iter().map(|entry| Subject::new(entry.clone(), BUILT_IN));
    subjects.collect::<Result<_, _>>().map_err(failed)
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

/// Sums rows up by class and coder; a coder that misses one tensor of a class
/// has no bits for the class.
pub(super) fn bits(comparison: &Comparison, subjects: &[Subject]) -> Vec<Bits> {
    let mut coders: Vec<&str> = Vec::new();
    for row in &comparison.all {
        if ![ORDER0, GAUSSIAN].contains(&row.codec.as_str()) && !coders.contains(&row.codec.as_str()) {
            coders.push(&row.codec);
        }
    }
    let classes = Class::ALL.into_iter().filter(|&class| subjects.iter().any(|s| s.entry.class() == class));
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
pub(super) fn unreachable(quality: &Quality, left_out: &[LeftOut]) -> Error {
    let reasons: Vec<String> =
        left_out.iter().map(|left| format!("{} ({})", left.candidate, left.why)).collect();
    let easier = if quality.is_rate() {
        "ask for more bits per value"
    } else {
        "ask for a larger --nmse or --loss: an NMSE of 0.01 is what the paper works at, and bfloat16 itself rounds by about \
         3e-6"
    };
    Error::input(format_args!("no codec reaches {quality} on these tensors: {}", reasons.join("; ")), easier)
}
