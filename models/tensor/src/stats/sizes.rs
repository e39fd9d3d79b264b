//! How much of a tensor statistics look at, and what they draw on.

/// Values in one block of the streaming pass.
pub const BLOCK_VALUES: usize = 1 << 18;
/// Most values that the sampled statistics look at.
pub const SAMPLE_VALUES: usize = 1 << 22;
/// Column scales are left out beyond this many columns: a row is then so long
/// that a scale a column could not pay for itself.
pub const MAX_COLUMNS: usize = 1 << 20;

/// A small matrix to look at.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    pub rows: usize,
    pub cols: usize,
    pub cells: Vec<f64>,
}
