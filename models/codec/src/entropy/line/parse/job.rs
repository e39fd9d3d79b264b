//! What a wide kernel that parses a tile is handed, and what it leaves.

use crate::entropy::line::table::Slot;
use crate::entropy::line::tile::TAIL;

/// Words that one step may look at: an escape and a renewal for each lane.
pub(crate) const PADDING: usize = 64;

/// Symbols of the last steps, times their raw bits' power: positive where the
/// sign is still to come, else 0.
#[derive(Debug)]
pub(crate) struct Tail {
    pub symbols: [[i32; 32]; TAIL],
}

/// A tile being parsed.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub cols: usize,
    pub per_row: usize,
    pub total: usize,
    /// Words of the tile, and [`PADDING`] zeros.
    pub words: &'a [u16],
    pub at: usize,
    pub states: [u32; 32],
    pub trellis: [u32; 32],
    pub h0: i32,
    pub h1: i32,
    pub slots: &'a [Slot],
    /// For each class: first slot of its first table, and raw bits above bit 24.
    pub lookup: [u32; 64],
    /// Classes of columns with everything but the row's added, for whole steps.
    pub classes: &'a [i32],
    pub row_classes: &'a [i32],
    pub has_raw_bits: bool,
    pub levels: &'a mut [i16],
    pub tail: Tail,
}

impl Job<'_> {
    /// Lanes with a column in the step that starts there.
    #[inline(always)]
    pub fn active(&self, first: usize) -> u32 {
        let left = self.cols - first;
        if left >= 32 { u32::MAX } else { (1 << left) - 1 }
    }
}
