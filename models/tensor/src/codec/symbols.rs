//! Symbols between a quantizer and a coder, and how they can be packed.

/// What a quantizer makes of a matrix.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// Settings and scales, stored as they are.
    pub side: Vec<u8>,
    /// One symbol a value.
    pub codes: Vec<u8>,
}

/// How symbols can be packed: groups of consecutive values share a width.
#[derive(Debug)]
pub(crate) struct Layout {
    pub group: usize,
    pub widths: Vec<u8>,
    /// The symbol that stands for zero where symbols are signed; else zero.
    pub centre: u8,
}

impl Layout {
    /// What to subtract from a symbol so that it fits its width.
    pub(crate) fn offset(&self, width: u8) -> u8 {
        match (self.centre, width) {
            (0, _) => 0,
            // No bits at all: every symbol is the centre.
            (centre, 0) => centre,
            (centre, width) => centre - (1 << (width.min(8) - 1)),
        }
    }

    pub(crate) fn packed_bytes(&self, count: usize) -> usize {
        let mut left = count;
        let mut bits = 0;
        for &width in &self.widths {
            let values = self.group.min(left);
            bits += values * usize::from(width);
            left -= values;
        }
        bits.div_ceil(8)
    }
}
