//! The constants of an engine that rows of measured services identify: where
//! each stands in its file, what it is expected to be before a row was seen,
//! and how firmly.

use trinity_study::config::{ConstantsFile, EngineFile};
use trinity_study::serving::measured::Recipe;

/// One constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Knob {
    pub at: Place,
    /// Expected value, and the spread of its logarithm.
    pub expected: Expected,
    pub spread: f64,
}

/// What a constant is expected to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    Value(f64),
    /// What the engine's other recipes have.
    General,
}

/// Where a constant stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// One that all versions of an engine share, by its place in [`CONSTANTS`].
    Constant(usize),
    FamilyDecode(usize),
    FamilyPrefill(usize),
    FirstTokenMs(usize, usize),
    FirstTokenSteps(usize, usize),
}

/// A constant in its file.
type Of = fn(&mut ConstantsFile) -> &mut f64;

/// Constants that all versions of an engine share, with expected values: kernels
/// as they were measured, host times of a Python process that launches graphs,
/// spreads wide enough for a few hundred rows to decide.
const CONSTANTS: [(Of, f64, f64); 18] = [
    (|file| &mut file.decode, 1.0, 0.25),
    (|file| &mut file.prefill, 1.0, 0.3),
    (|file| &mut file.experts_decode, 1.0, 0.3),
    (|file| &mut file.experts_prefill, 1.0, 0.3),
    (|file| &mut file.collective, 1.0, 0.4),
    (|file| &mut file.attention_decode, 1.0, 0.3),
    (|file| &mut file.attention_prefill, 1.0, 0.3),
    (|file| &mut file.small_kernel_us, 1.0, 0.7),
    (|file| &mut file.step_ms, 0.3, 1.0),
    (|file| &mut file.sequence_us, 7.0, 1.0),
    (|file| &mut file.prompt_step_ms, 0.7, 1.0),
    (|file| &mut file.prompt_layer_us, 20.0, 1.0),
    (|file| &mut file.handoff_ms, 30.0, 1.0),
    (|file| &mut file.split_prefill, 1.0, 0.4),
    (|file| &mut file.split_decode, 1.0, 0.25),
    (|file| &mut file.dealt_experts, 1.15, 0.15),
    (|file| &mut file.stream_us, 20.0, 0.7),
    (|file| &mut file.draft_acceptance, 0.6, 0.15),
];

/// Spreads of what versions and launch recipes change.
const FAMILY_DECODE: f64 = 0.15;
const FAMILY_PREFILL: f64 = 0.25;
const FIRST_TOKEN: f64 = 0.8;

/// Rows from which on a launch recipe has a first token of its own.
pub(super) const LEAST_ROWS: usize = 5;

/// All constants of `file`.
pub(super) fn knobs(file: &EngineFile) -> Vec<Knob> {
    let value = |at, expected, spread| Knob { at, expected: Expected::Value(expected), spread };
    let shared = CONSTANTS.iter().enumerate();
    let shared = shared.map(|(at, &(_, expected, spread))| value(Place::Constant(at), expected, spread));
    let mut list: Vec<Knob> = shared.collect();
    for (family, own) in file.families.iter().enumerate() {
        list.push(value(Place::FamilyDecode(family), 1.0, FAMILY_DECODE));
        list.push(value(Place::FamilyPrefill(family), 1.0, FAMILY_PREFILL));
        for recipe in 0..own.first_token.len() {
            for at in [Place::FirstTokenMs(family, recipe), Place::FirstTokenSteps(family, recipe)] {
                list.push(Knob { at, expected: Expected::General, spread: FIRST_TOKEN });
            }
        }
    }
    list
}

impl Place {
    /// Where the constant stands in `file`.
    pub fn of(self, file: &mut EngineFile) -> &mut f64 {
        match self {
            Self::Constant(at) => CONSTANTS[at].0(&mut file.constants),
            Self::FamilyDecode(family) => &mut file.families[family].decode,
            Self::FamilyPrefill(family) => &mut file.families[family].prefill,
            Self::FirstTokenMs(family, recipe) => &mut file.families[family].first_token[recipe].ms,
            Self::FirstTokenSteps(family, recipe) => &mut file.families[family].first_token[recipe].steps,
        }
    }

    /// Whether a row under `recipe` depends on the constant.
    pub fn concerns(self, file: &EngineFile, recipe: Recipe) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::FamilyDecode(family) | Self::FamilyPrefill(family) => family == recipe.family,
            Self::FirstTokenMs(family, at) | Self::FirstTokenSteps(family, at) => {
                let first = &file.families[family].first_token[at];
                family == recipe.family
                    && first.generation == recipe.generation
                    && first.class == recipe.class
            }
        }
    }
}

impl Knob {
    /// Logarithm of the expected value in `file`.
    pub fn expected_log(&self, file: &EngineFile) -> f64 {
        match (self.expected, self.at) {
            (Expected::Value(value), _) => value.ln(),
            (Expected::General, Place::FirstTokenMs(..)) => file.constants.first_token_ms.ln(),
            (Expected::General, _) => file.constants.first_token_steps.ln(),
        }
    }
}

/// Makes the general first token the mean of what recipes have, each by the
/// root of its rows.
pub(super) fn settle_general(file: &mut EngineFile) {
    let entries = file.families.iter().flat_map(|family| &family.first_token).filter(|entry| entry.rows > 0);
    let (mut weight, mut ms, mut steps) = (0.0, 0.0, 0.0);
    for entry in entries {
        let own = f64::from(entry.rows).sqrt();
        weight += own;
        ms += own * entry.ms.ln();
        steps += own * entry.steps.ln();
    }
    if weight > 0.0 {
        file.constants.first_token_ms = (ms / weight).exp();
        file.constants.first_token_steps = (steps / weight).exp();
    }
}
