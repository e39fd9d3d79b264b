//! How a tensor too large for memory is cut into blocks.

use std::ops::Range;

/// Values in a slab of a file: enough to learn statistics from, small beside memory.
pub const SLAB_VALUES: usize = 1 << 21;

/// How a tensor is cut: whole rows where they fit, pieces of one row where not.
#[derive(Debug, Clone)]
pub(crate) struct BlockPlan {
    /// Values after which a row, or a group of whole rows, starts anew.
    stride: usize,
    /// Values in a block, at most.
    step: usize,
    total: usize,
}

impl BlockPlan {
    /// Blocks of at most `block_values` values of a rows × cols matrix.
    pub(crate) fn new(rows: usize, cols: usize, block_values: usize) -> Self {
        let total = rows * cols;
        if cols > block_values {
            Self { stride: cols, step: block_values, total }
        } else {
            let whole_rows = block_values / cols.max(1) * cols.max(1);
            Self { stride: whole_rows, step: whole_rows, total }
        }
    }

    pub(crate) fn len(&self) -> usize {
        if self.total == 0 { 0 } else { self.total.div_ceil(self.stride) * self.stride.div_ceil(self.step) }
    }

    pub(crate) fn values(&self, index: usize) -> Range<usize> {
        let pieces = self.stride.div_ceil(self.step);
        let base = index / pieces * self.stride;
        let start = base + index % pieces * self.step;
        start..(start + self.step).min(base + self.stride).min(self.total)
    }

    /// The block that begins with a value.
    pub(crate) fn beginning_with(&self, first: usize) -> Option<usize> {
        if first >= self.total {
            return None;
        }
        let pieces = self.stride.div_ceil(self.step);
        let index = first / self.stride * pieces + first % self.stride / self.step;
        (self.values(index).start == first).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_tile_the_tensor_and_never_mix_parts_of_rows(rows in 0usize..40, cols in 1usize..40, size in 1usize..60) {
            let plan = BlockPlan::new(rows, cols, size);
            let mut next = 0;
            for index in 0..plan.len() {
                let range = plan.values(index);
                prop_assert_eq!(range.start, next);
                prop_assert_eq!(plan.beginning_with(next), Some(index));
                prop_assert!(range.len() == 1 || plan.beginning_with(next + 1).is_none());
                prop_assert!(range.len() <= size && !range.is_empty());
                let whole_rows = range.start.is_multiple_of(cols) && range.len().is_multiple_of(cols);
                let one_row = range.start / cols == (range.end - 1) / cols;
                prop_assert!(whole_rows || one_row);
                next = range.end;
            }
            prop_assert_eq!(next, rows * cols);
        }
    }
}
