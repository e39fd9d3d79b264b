//! ScalingFactor (H.265 clause 7.4.5): scaling lists spread out to one factor
//! a coefficient.

use crate::entropy::scan::Scan;
use crate::syntax::{Pps, ScalingList, Sps};

/// Factors of intra blocks, `[log2 − 2][c_idx]`, row by row.
#[derive(Debug)]
pub(super) struct Factors([[Vec<u8>; 3]; 4]);

impl Factors {
    /// The factors in force, or `None` where the SPS has lists switched off.
    pub fn new(sps: &Sps, pps: &Pps) -> Option<Self> {
        if !sps.scaling_list_enabled {
            return None;
        }
        let default = ScalingList::default();
        let lists = pps.scaling_list.as_deref().or(sps.scaling_list.as_deref()).unwrap_or(&default);
        Some(Self(std::array::from_fn(|size| std::array::from_fn(|c| spread(lists, size, c)))))
    }

    /// Factors of a 2^`log2` block of component `c_idx`.
    pub fn of(&self, log2: u32, c_idx: usize) -> &[u8] {
        &self.0[log2 as usize - 2][c_idx]
    }
}

fn spread(lists: &ScalingList, size: usize, c: usize) -> Vec<u8> {
    let side = 4usize << size;
    let list = &lists.lists[size][c];
    // Lists have 4×4 or 8×8 entries along the up-right diagonal.
    let order = Scan::Diagonal.sub_blocks(if size == 0 { 4 } else { 5 });
    let shrink = if size == 0 { 0 } else { size - 1 };
    let mut small = [[0u8; 8]; 8];
    for (&(x, y), &factor) in order.iter().zip(list) {
        small[usize::from(y)][usize::from(x)] = factor;
    }
    let mut factors: Vec<u8> =
        (0..side * side).map(|at| small[(at / side) >> shrink][(at % side) >> shrink]).collect();
    if size > 1 {
        factors[0] = lists.dc[size - 2][c];
    }
    factors
}
