//! What an encoder may choose from.

use crate::format::line::plan::{Plan, Transform};
use crate::format::line::stream::LAMBDA;
use crate::search::rules::Rules;
use crate::stage::line::quantizer::Analysis;

/// How long the choice may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// Rows as they are, prediction where it pays; no signalled matrices.
    Fast,
    /// Both orientations and signalled matrices.
    #[default]
    Best,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    None,
    Hadamard,
    Dct,
    Signalled32,
    Signalled64,
}

/// Stages that are held to one alternative instead of being chosen, whatever
/// the effort: `cargo xtask regret` holds each to every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    pub transposed: Option<bool>,
    pub transform: Option<Family>,
    /// Prediction from the row above: never, or where it pays.
    pub predicts: Option<bool>,
    /// Means of columns: never, or where they pay. They are stated in steps: who codes under another step than the
    /// plan's without searching anew states others with it.
    pub means: Option<bool>,
    /// 32 lanes, tiles that the encoder of models/silicon/rtl takes, and its
    /// analysis in integers.
    pub gates: bool,
}

impl Fixed {
    /// These stages held to the orientation and the transform of a plan, too.
    pub fn like(self, plan: &Plan) -> Self {
        let family = match &plan.transform {
            Transform::None => Family::None,
            Transform::Hadamard => Family::Hadamard,
            Transform::Dct => Family::Dct,
            Transform::Signalled { size: 32, .. } => Family::Signalled32,
            Transform::Signalled { .. } => Family::Signalled64,
        };
        Self { transform: Some(family), transposed: Some(plan.transposed), ..self }
    }

    pub fn analysis(&self) -> Analysis {
        if self.gates { Analysis::Whole } else { Analysis::Single }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    pub effort: Effort,
    /// Trellis: 0, 2 or 3.
    pub log2_states: u32,
    pub lambda: f32,
    pub rounding: i32,
    /// Keep a pair of tables for tiles that must shrink to a byte budget.
    pub budgeted: bool,
    /// Values of a tile, about: fewer code a small tensor sooner on a GPU, and
    /// cost bits (`TILE_VALUES / 4`: some 0.05 bit per value).
    pub tile_values: usize,
    pub fixed: Fixed,
    /// What leaves plans out before they are quantized.
    pub rules: Rules,
}

/// Values of a tile, about: enough for the lanes' states to cost little, few
/// enough for a tensor of some megabytes to fill a GPU.
pub const TILE_VALUES: usize = 1 << 14;

impl Default for Options {
    fn default() -> Self {
        Self {
            effort: Effort::Best,
            log2_states: 3,
            lambda: LAMBDA,
            rounding: 13,
            budgeted: false,
            tile_values: TILE_VALUES,
            fixed: Fixed::default(),
            rules: Rules::default(),
        }
    }
}
