//! scaling_list_data() (H.265 clauses 7.3.4 and 7.4.5).

use trinity_bits::{BitReader, BitWriter, invalid};

use super::BitstreamError;
use super::range::in_range;

/// Table 7-6, intra: the default list of 8×8 and above, in coding order.
const DEFAULT_INTRA: [u8; 64] = [
    16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 17, 16, 17, 16, 17, 18, 17, 18, 18, 17, 18, 21, 19, 20, 21, 20,
    19, 21, 24, 22, 22, 24, 24, 22, 22, 24, 25, 25, 27, 30, 27, 25, 25, 29, 31, 35, 35, 31, 29, 36, 41, 44,
    41, 36, 47, 54, 54, 47, 65, 70, 65, 88, 88, 115,
];

/// Table 7-6, inter.
const DEFAULT_INTER: [u8; 64] = [
    16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 18, 18, 18, 18, 18, 18, 20, 20, 20, 20, 20,
    20, 20, 24, 24, 24, 24, 24, 24, 24, 24, 25, 25, 25, 25, 25, 25, 25, 28, 28, 28, 28, 28, 28, 33, 33, 33,
    33, 33, 41, 41, 41, 41, 54, 54, 54, 71, 71, 91,
];

/// ScalingList and scaling_list_dc_coef, in coding order (up-right diagonal).
///
/// `lists[sizeId][matrixId]`: sizes 4×4 to 32×32; matrices 0 to 2 are intra Y,
/// Cb, Cr, 3 to 5 inter. For 4×4 the first 16 entries count. For 32×32 the
/// chroma matrices are those of clause 7.3.4 for chroma_format_idc 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingList {
    pub lists: [[[u8; 64]; 6]; 4],
    /// The DC entries of 16×16 and 32×32.
    pub dc: [[u8; 6]; 2],
}

impl Default for ScalingList {
    /// The default lists of Tables 7-5 and 7-6.
    fn default() -> Self {
        let by_matrix = |matrix: usize| if matrix < 3 { DEFAULT_INTRA } else { DEFAULT_INTER };
        let large = std::array::from_fn(by_matrix);
        Self { lists: [[[16; 64]; 6], large, large, large], dc: [[16; 6]; 2] }
    }
}

impl ScalingList {
    /// Reads scaling_list_data().
    pub fn parse(r: &mut BitReader<'_>, chroma_format_idc: u32) -> Result<Self, BitstreamError> {
        let mut list = Self::default();
        for size in 0..4usize {
            let step = if size == 3 { 3 } else { 1 };
            for matrix in (0..6).step_by(step) {
                list.parse_matrix(r, size, matrix, step)?;
            }
        }
        if chroma_format_idc == 3 {
            // 32×32 chroma takes the 16×16 lists (clause 7.3.4).
            for matrix in [1, 2, 4, 5] {
                list.lists[3][matrix] = list.lists[2][matrix];
                list.dc[1][matrix] = list.dc[0][matrix];
            }
        }
        Ok(list)
    }

    fn parse_matrix(
        &mut self,
        r: &mut BitReader<'_>,
        size: usize,
        matrix: usize,
        step: usize,
    ) -> Result<(), BitstreamError> {
        let explicit = r.flag()?;
        if !explicit {
            let delta = r.ue()? as usize;
            let delta = in_range("scaling_list_pred_matrix_id_delta", delta, 0..=matrix / step)? * step;
            if delta == 0 {
                let default = Self::default();
                self.lists[size][matrix] = default.lists[size][matrix];
                if size > 1 {
                    self.dc[size - 2][matrix] = 16;
                }
            } else {
                self.lists[size][matrix] = self.lists[size][matrix - delta];
                if size > 1 {
                    self.dc[size - 2][matrix] = self.dc[size - 2][matrix - delta];
                }
            }
            return Ok(());
        }
        let mut next = 8;
        if size > 1 {
            next = in_range("scaling_list_dc_coef_minus8", r.se()?, -7..=247)? + 8;
            self.dc[size - 2][matrix] = next as u8;
        }
        let count = if size == 0 { 16 } else { 64 };
        for value in &mut self.lists[size][matrix][..count] {
            let delta = in_range("scaling_list_delta_coef", r.se()?, -128..=127)?;
            next = (next + delta + 256) % 256;
            if next == 0 {
                return invalid("a scaling list entry is 0");
            }
            *value = next as u8;
        }
        Ok(())
    }

    /// Writes scaling_list_data(), every list in full.
    pub fn write(&self, w: &mut BitWriter) {
        for size in 0..4usize {
            for matrix in (0..6).step_by(if size == 3 { 3 } else { 1 }) {
                w.flag(true);
                let mut last = 8;
                if size > 1 {
                    last = i32::from(self.dc[size - 2][matrix]);
                    w.se(last - 8);
                }
                let count = if size == 0 { 16 } else { 64 };
                for &value in &self.lists[size][matrix][..count] {
                    let delta = (i32::from(value) - last + 128).rem_euclid(256) - 128;
                    w.se(delta);
                    last = i32::from(value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        let mut list = ScalingList::default();
        for (i, value) in list.lists.iter_mut().flatten().flatten().enumerate() {
            *value = (i * 37 % 255 + 1) as u8;
        }
        for matrix in 0..6 {
            list.lists[0][matrix][16..].fill(16);
            list.dc = [[3; 6], [200; 6]];
        }
        for matrix in [1, 2, 4, 5] {
            list.lists[3][matrix] = list.lists[2][matrix];
            list.dc[1][matrix] = list.dc[0][matrix];
        }
        let mut w = BitWriter::new();
        list.write(&mut w);
        w.trailing_bits();
        let bytes = w.into_bytes();
        assert_eq!(ScalingList::parse(&mut BitReader::new(&bytes), 3).unwrap(), list);
    }

    #[test]
    fn default_lists_are_the_standards() {
        let sum = |list: &[u8; 64]| list.iter().zip(1u32..).map(|(&v, i)| u32::from(v) * i).sum::<u32>();
        assert_eq!((sum(&DEFAULT_INTRA), sum(&DEFAULT_INTER)), (81_689, 70_800));
    }
}
