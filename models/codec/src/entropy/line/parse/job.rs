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

/// What `lookup` has for every column, once for each class of rows that the tile has: rows of one
/// class share it.
#[derive(Debug)]
pub(crate) struct Entries {
    /// Columns, whole steps of them.
    width: usize,
    /// The row classes, each once.
    classes: Vec<i32>,
    /// Of each row, where the entries of its class begin.
    starts: Vec<usize>,
    pub values: Vec<u32>,
}

impl Entries {
    pub fn new(row_classes: &[i32], per_row: usize) -> Self {
        let width = 32 * per_row;
        let (mut classes, mut starts) = (Vec::new(), Vec::with_capacity(row_classes.len()));
        for &class in row_classes {
            let place = classes.iter().position(|&seen| seen == class).unwrap_or_else(|| {
                classes.push(class);
                classes.len() - 1
            });
            starts.push(place * width);
        }
        let values = vec![0; classes.len() * width];
        Self { width, classes, starts, values }
    }

    /// The classes of rows, and room for the entries of each.
    #[inline(always)]
    pub fn rows(&mut self) -> impl Iterator<Item = (i32, &mut [u32])> {
        self.classes.iter().copied().zip(self.values.chunks_exact_mut(self.width.max(1)))
    }

    #[inline(always)]
    pub fn row(&self, row: usize) -> &[u32] {
        &self.values[self.starts[row]..][..self.width]
    }
}

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
    pub classes: &'a [i32],
    pub has_raw_bits: bool,
    pub entries: Entries,
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
