//! The table of one alphabet: where the range of each symbol starts.

/// Where each symbol's range starts; the last entry ends the last range. One
/// line of cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct Starts(pub [u16; 17]);

impl Starts {
    /// Start and size of a symbol's range.
    #[inline(always)]
    pub fn range(&self, symbol: usize) -> (u16, u16) {
        let (start, end) = (self.0[symbol & 15], self.0[(symbol & 15) + 1]);
        (start, end - start)
    }
}
