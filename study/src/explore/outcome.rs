//! What an exploration found, as plain data.

use super::baseline_study::Fixed;
use super::certainty::Certainty;
use super::chance::Odds;
use super::ranking::{PerWatt, Ranking, Steps, WinningInterval};
use super::recorded::Trained;
use super::regime::Regime;
use super::setting::Setting;
use super::silicon::Silicon;
use super::tensors::{Bits, LeftOut};
use super::vary::{AssumptionSensitivity, Limit};
use crate::sweep::FrontOf;
use serde::Serialize;

/// Everything that was found on the way, and the answer.
#[derive(Debug, Clone, Serialize)]
pub struct Exploration {
    pub title: String,
    pub study: String,
    /// The quality that every codec meets.
    pub quality: String,
    pub budget_mm2: Option<f64>,
    /// Axes of the study that are the question and no choice, where the study has them.
    #[serde(rename = "held")]
    pub fixed: Vec<Fixed>,
    /// What is best: `max tokens-per-s`.
    pub rank_by: String,
    /// The answer, sentence by sentence.
    pub answer: Vec<String>,
    /// Cluster and job, in one line and apart.
    pub setting: Option<Setting>,
    /// What to build: the best scenario, or the one without a codec where the odds are against it.
    pub best: String,
    /// What is compared with: the scenario without a codec.
    pub baseline: String,
    /// Sentences of the answer that open it: cluster, answer, odds and map; the others say what it rests on.
    #[serde(skip)]
    pub opening: usize,
    /// Bits per value of each class by each coder.
    pub bits: Vec<Bits>,
    /// Bits of what training sends, as recorded runs have them; empty where tensors decide.
    pub trained: Vec<Trained>,
    pub silicon: Vec<Silicon>,
    /// Each scenario at the budget, the best first.
    #[serde(rename = "standings")]
    pub rankings: Vec<Ranking>,
    /// By how much the best of a scenario may still move when its axes are refined further.
    pub tolerance: f64,
    /// What whole GPUs do to the gain.
    pub steps: Option<Steps>,
    /// Without a budget: what is best for each watt.
    pub per_watt: Option<PerWatt>,
    /// How sure the answer is.
    pub odds: Option<Odds>,
    /// Where a codec pays.
    pub regime: Option<Regime>,
    /// Which scenario is best at which budget.
    #[serde(rename = "reigns")]
    pub winning_intervals: Vec<WinningInterval>,
    /// How far a thing may move until another codec is the best.
    pub limits: Vec<Limit>,
    /// The answer with each assumption at either end.
    #[serde(rename = "swings")]
    pub sensitivities: Vec<AssumptionSensitivity>,
    pub certainty: Vec<Certainty>,
    /// Codecs that could not take part, and why.
    pub left_out: Vec<LeftOut>,
    pub fronts: Vec<FrontOf>,
    /// The study as it was swept, to be run again by `trinity sweep`.
    pub sweep_toml: String,
}
