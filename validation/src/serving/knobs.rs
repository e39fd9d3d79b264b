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
    Constant(Constant),
    FamilyDecode(usize),
    FamilyPrefill(usize),
    FirstTokenMs(usize, usize),
    FirstTokenSteps(usize, usize),
}

/// Constants that all versions of an engine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constant {
    Decode,
    Prefill,
    ExpertsDecode,
    ExpertsPrefill,
    Collective,
    AttentionDecode,
    AttentionPrefill,
    SmallKernel,
    Step,
    Sequence,
    PromptStep,
    PromptLayer,
    Handoff,
    SplitPrefill,
    SplitDecode,
    DealtExperts,
    Stream,
    DraftAcceptance,
}

/// Expected values: kernels as they were measured, host times of a Python
/// process that launches graphs, spreads wide enough for a few hundred rows to
/// decide.
const CONSTANTS: [(Constant, f64, f64); 18] = [
    (Constant::Decode, 1.0, 0.25),
    (Constant::Prefill, 1.0, 0.3),
    (Constant::ExpertsDecode, 1.0, 0.3),
    (Constant::ExpertsPrefill, 1.0, 0.3),
    (Constant::Collective, 1.0, 0.4),
    (Constant::AttentionDecode, 1.0, 0.3),
    (Constant::AttentionPrefill, 1.0, 0.3),
    (Constant::SmallKernel, 1.0, 0.7),
    (Constant::Step, 0.3, 1.0),
    (Constant::Sequence, 7.0, 1.0),
    (Constant::PromptStep, 0.7, 1.0),
    (Constant::PromptLayer, 20.0, 1.0),
    (Constant::Handoff, 30.0, 1.0),
    (Constant::SplitPrefill, 1.0, 0.4),
    (Constant::SplitDecode, 1.0, 0.25),
    (Constant::DealtExperts, 1.15, 0.15),
    (Constant::Stream, 20.0, 0.7),
    (Constant::DraftAcceptance, 0.6, 0.15),
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
    let mut list: Vec<Knob> = CONSTANTS
        .iter()
        .map(|&(constant, expected, spread)| value(Place::Constant(constant), expected, spread))
        .collect();
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

fn constant(file: &mut ConstantsFile, which: Constant) -> &mut f64 {
    match which {
        Constant::Decode => &mut file.decode,
        Constant::Prefill => &mut file.prefill,
        Constant::ExpertsDecode => &mut file.experts_decode,
        Constant::ExpertsPrefill => &mut file.experts_prefill,
        Constant::Collective => &mut file.collective,
        Constant::AttentionDecode => &mut file.attention_decode,
        Constant::AttentionPrefill => &mut file.attention_prefill,
        Constant::SmallKernel => &mut file.small_kernel_us,
        Constant::Step => &mut file.step_ms,
        Constant::Sequence => &mut file.sequence_us,
        Constant::PromptStep => &mut file.prompt_step_ms,
        Constant::PromptLayer => &mut file.prompt_layer_us,
        Constant::Handoff => &mut file.handoff_ms,
        Constant::SplitPrefill => &mut file.split_prefill,
        Constant::SplitDecode => &mut file.split_decode,
        Constant::DealtExperts => &mut file.dealt_experts,
        Constant::Stream => &mut file.stream_us,
        Constant::DraftAcceptance => &mut file.draft_acceptance,
    }
}

impl Place {
    /// Where the constant stands in `file`.
    pub fn of(self, file: &mut EngineFile) -> &mut f64 {
        match self {
            Self::Constant(which) => constant(&mut file.constants, which),
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
