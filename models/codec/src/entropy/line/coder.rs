//! A plan made ready: tables by slot, matrices, weights, costs.
//!
//! Everything here follows from the plan (and, for the encoder, from a few
//! settings that are not in the stream). It is what a GPU or an RTL test bench
//! is handed beside the words of the tiles.

use crate::entropy::line::table::Slot;
use crate::format::line::error::Error;
use crate::format::line::plan::{BASE_CLASSES, CLASSES, Plan, Tile, Transform, UNIT_CLASS};
use crate::stage::line::matrix::{ONE, Synthesis};
use trinity_numeric::square::transposed;

/// What one step is in the integers of prediction and reconstruction.
pub const UNITS: i32 = 16;
/// Integers of targets, residuals and coefficients stay within this.
pub const LIMIT: i32 = (1 << 20) - 64;
/// The same under a transform, where sums of 64 products must fit 32 bits.
pub const TRANSFORM_LIMIT: i32 = (1 << 17) - 64;

/// A plan with all that follows from it for decoding.
#[derive(Debug, Clone)]
pub struct Coder {
    pub plan: Plan,
    /// Slots of every table, 1024 each, then those of the row table.
    pub slots: Vec<Slot>,
    /// For each class: its first table, and its raw bits.
    pub tables: [u8; CLASSES],
    pub raw_bits: [u8; CLASSES],
    /// One matrix for every group, or one for all; none without transform.
    pub syntheses: Vec<Synthesis>,
    /// The same matrices column after column, in 32 bits.
    columns: Vec<Vec<i32>>,
    /// What one unit of the integers is worth.
    pub scale: f32,
    pub limit: i32,
    /// Whether the plan has a transform, also where no whole group of columns has it.
    pub transformed: bool,
    pub predicts: bool,
}

impl Coder {
    pub fn new(plan: Plan) -> Result<Self, Error> {
        plan.check()?;
        let slots = plan.tables.iter().chain(&plan.row_table).flat_map(|table| table.slots()).collect();
        let (mut tables, mut raw_bits) = ([0; CLASSES], [0; CLASSES]);
        for class in 0..CLASSES {
            let (pair, raw) = plan.pair_of(class);
            tables[class] = (pair * plan.quantizers()) as u8;
            raw_bits[class] = raw as u8;
        }
        let transformed = plan.transform != Transform::None;
        let unit = if transformed { (UNITS * ONE) as f32 } else { UNITS as f32 };
        let syntheses = plan.syntheses();
        let by_column =
            |s: &Synthesis| transposed(&s.entries, s.size).into_iter().map(i32::from).collect::<Vec<_>>();
        Ok(Self {
            slots,
            tables,
            raw_bits,
            columns: syntheses.iter().map(by_column).collect(),
            syntheses,
            scale: plan.step / unit,
            transformed,
            limit: if transformed { TRANSFORM_LIMIT } else { LIMIT },
            predicts: plan.above.iter().any(|&above| above != 0),
            plan,
        })
    }

    /// The class of a value from those of its column and row and the gain of its tile.
    #[inline(always)]
    pub fn class(column: i32, row: i32, gain: u32) -> usize {
        (UNIT_CLASS + column + row - gain as i32).clamp(0, CLASSES as i32 - 1) as usize
    }

    /// Classes of a tile's columns with everything but the row's added, for whole
    /// steps of 32 lanes.
    pub(crate) fn step_classes(&self, tile: &Tile, gain: u32) -> Vec<i32> {
        let mut classes = vec![0; tile.cols.next_multiple_of(32)];
        for (class, &column) in classes.iter_mut().zip(&self.plan.classes[tile.col..][..tile.cols]) {
            *class = UNIT_CLASS + column - gain as i32;
        }
        classes
    }

    /// For each class its first table, times a power of two, and raw bits above bit 24.
    pub(crate) fn class_lookup(&self, shift: u32) -> [u32; 64] {
        let mut lookup = [0; 64];
        for class in 0..CLASSES {
            lookup[class] = u32::from(self.tables[class]) << shift | u32::from(self.raw_bits[class]) << 24;
        }
        lookup
    }

    /// Whether any value of columns and rows of such classes may have raw bits.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kernels of wide registers ask
    pub(crate) fn has_raw_bits(step_classes: &[i32], row_classes: &[i32]) -> bool {
        let most = |classes: &[i32]| classes.iter().max().copied().unwrap_or(0);
        most(step_classes) + most(row_classes) >= BASE_CLASSES as i32
    }

    /// The matrix of a group, column after column.
    #[inline(always)]
    pub(crate) fn columns(&self, group: usize) -> &[i32] {
        &self.columns[if self.columns.len() == 1 { 0 } else { group }]
    }

    pub fn synthesis(&self, group: usize) -> &Synthesis {
        &self.syntheses[if self.syntheses.len() == 1 { 0 } else { group }]
    }
}

/// What a point of a quantizer is in units, under a tile's gain: quarter steps
/// of an octave, (4 + gain mod 4) / 4 · 2^(gain / 4).
#[inline(always)]
pub fn units(level: i32, quantizer: i32, gain: u32) -> i32 {
    let point = 2 * level - quantizer * level.signum();
    point.wrapping_mul(4 * (4 + (gain as i32 & 3))).wrapping_shl(gain >> 2)
}

/// (h0, h1) of a trellis; zeros without one.
#[inline(always)]
pub(crate) fn polynomials(log2_states: u32) -> (i32, i32) {
    match log2_states {
        2 => (2, 1),
        3 => (5, 2),
        _ => (0, 0),
    }
}

/// A level's point, and the state after it: as [`units`] and [`next_state`]
/// without a branch.
#[inline(always)]
pub(crate) fn point(state: i32, level: i32, (h0, h1): (i32, i32)) -> (i32, i32) {
    let quantizer = state & 1;
    let sign = (level >> 31) | i32::from(level > 0);
    let next = (state >> 1) ^ (-quantizer & h0) ^ (-(level & 1) & h1);
    (2 * level - quantizer * sign, next)
}

/// The next state of a trellis after a level of that parity.
#[inline(always)]
pub fn next_state(log2_states: u32, state: u8, odd: bool) -> u8 {
    point(state.into(), odd.into(), polynomials(log2_states)).1 as u8
}
