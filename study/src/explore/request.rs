//! What an exploration is asked.

use trinity_tensor::Class;
use trinity_tensor::codec::Target;
use trinity_tensor::compare::{Row, Subject};

/// The study where none is named.
pub const STUDY: &str = "sweeps/llama-7b";
/// The quality where none is named: the error at which the paper takes its
/// stages apart.
pub const QUALITY: Target = Target::Nmse(0.01);

/// What to explore.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub subjects: &'a [Subject],
    /// The quality that every codec meets: an NMSE, or a bit rate.
    pub quality: Target,
    /// A sweep by name, or a path that ends in `.toml`.
    pub study: String,
    /// `path=value`, laid over the study in turn.
    pub sets: Vec<String>,
    /// The study's own where it is not said.
    pub budget_mm2: Option<f64>,
    /// Candidates by name, or `CODER=CODEC`: a tensor codec and a file of
    /// `configs/codecs`. All where none is named.
    pub candidates: Vec<String>,
    /// The node to build codecs at; that of their figures where it is not said.
    pub node: Option<String>,
    /// Rows of an earlier run, which stand for the same cells of this one.
    pub earlier: &'a [Row],
}

/// The key under which a job states the bits of a class.
pub(super) fn key_of(class: Class) -> Option<&'static str> {
    match class {
        Class::Weight => Some("weights"),
        Class::KvCache => Some("kv"),
        Class::Activation => Some("activations"),
        Class::WeightGradient => Some("weight-gradients"),
        Class::ActivationGradient => Some("activation-gradients"),
        Class::Other => None,
    }
}
