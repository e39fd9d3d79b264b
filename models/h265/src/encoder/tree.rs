//! A coded CTU: the quad-tree, its modes and its levels.
//!
//! Everything lies in z-order, so that any coding unit is one contiguous run
//! and the search can keep or drop a candidate with plain copies.

pub use crate::entropy::scan::z_order;
use trinity_bits::Chroma;

/// log2 of the CTB; always 64×64.
pub const LOG2_CTB: u32 = 6;
/// 4×4 luma units in a CTU.
pub const UNITS: usize = 256;

/// The inverse of [`z_order`]: top left luma sample of unit `z`.
#[inline]
pub fn position(z: usize) -> (usize, usize) {
    let gather = |bits: usize| (bits & 1) | (bits >> 1 & 2) | (bits >> 2 & 4) | (bits >> 3 & 8);
    (4 * gather(z), 4 * gather(z >> 1))
}

/// What is coded for one 4×4 luma unit. All units of a block agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unit {
    /// log2 of the coding block around.
    pub cu_log2: u8,
    /// log2 of the transform block around.
    pub tu_log2: u8,
    /// PART_NxN.
    pub nxn: bool,
    /// IntraPredModeY.
    pub luma_mode: u8,
    /// intra_chroma_pred_mode, 0 to 4.
    pub chroma_code: u8,
    /// Bit c: the transform block of component c has levels. Chroma of four
    /// 4×4 luma blocks that share it is noted in the first.
    pub cbf: u8,
    /// Bit c: transform_skip_flag of component c.
    pub skip: u8,
}

/// One CTU.
#[derive(Debug, Clone)]
pub struct Tree {
    pub units: [Unit; UNITS],
    /// Levels by component; a block's run starts where its first unit's does.
    pub levels: [Vec<i32>; 3],
    /// log2 of levels per unit in each component.
    pub level_shift: [u32; 3],
}

impl Tree {
    pub fn new(chroma: Chroma) -> Self {
        let (sx, sy) = chroma.shift();
        let level_shift = [4, 4 - sx - sy, 4 - sx - sy];
        let levels = [0, 1, 2]
            .map(|c| if c < chroma.planes() { vec![0; UNITS << level_shift[c]] } else { Vec::new() });
        Self { units: [Unit::default(); UNITS], levels, level_shift }
    }

    /// The levels of a block of 2^`log2` samples of component `c` whose first
    /// luma unit is `z`.
    #[inline]
    pub fn block(&self, c: usize, z: usize, log2: u32) -> &[i32] {
        &self.levels[c][z << self.level_shift[c]..][..1 << (2 * log2)]
    }

    #[inline]
    pub fn block_mut(&mut self, c: usize, z: usize, log2: u32) -> &mut [i32] {
        &mut self.levels[c][z << self.level_shift[c]..][..1 << (2 * log2)]
    }

    /// Copies the run of `count` units from `z` on into `to`.
    pub fn copy_run(&self, to: &mut Tree, z: usize, count: usize) {
        to.units[z..z + count].copy_from_slice(&self.units[z..z + count]);
        for c in 0..3 {
            if !self.levels[c].is_empty() {
                let run = z << self.level_shift[c]..(z + count) << self.level_shift[c];
                to.levels[c][run.clone()].copy_from_slice(&self.levels[c][run]);
            }
        }
    }
}

/// Units in a block of 2^`log2` luma samples.
#[inline]
pub fn units_in(log2: u32) -> usize {
    1 << (2 * (log2 - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_order_nests_quadrants() {
        assert_eq!(z_order(0, 0), 0);
        assert_eq!(z_order(4, 0), 1);
        assert_eq!(z_order(0, 4), 2);
        assert_eq!(z_order(32, 0), 64);
        assert_eq!(z_order(60, 60), 255);
        assert!((0..UNITS).all(|z| z_order(position(z).0, position(z).1) == z));
    }
}
