//! Scaling lists and the level scales they make (clauses 7.3.2.1.1.1, 8.5.9).

use crate::tables::{DEFAULT_4X4, DEFAULT_8X8, NORM_ADJUST_4X4, NORM_ADJUST_8X8, ZIGZAG_4X4, ZIGZAG_8X8};
use trinity_bits::{BitReader, BitstreamError, invalid};

/// The twelve lists in transmission (zig-zag) order: 4×4 intra Y, Cb, Cr and
/// inter Y, Cb, Cr; 8×8 intra Y, inter Y, intra Cb, inter Cb, intra Cr, inter Cr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingLists {
    pub lists_4x4: [[u8; 16]; 6],
    pub lists_8x8: [[u8; 64]; 6],
}

impl Default for ScalingLists {
    /// Flat_4x4_16 and Flat_8x8_16.
    fn default() -> Self {
        Self { lists_4x4: [[16; 16]; 6], lists_8x8: [[16; 64]; 6] }
    }
}

/// Reads the first `count` of the twelve lists. Absent ones follow fall-back
/// rule A, or rule B where the sequence's lists are given (Table 7-2).
pub(crate) fn read_lists(
    r: &mut BitReader,
    count: usize,
    sequence: Option<&ScalingLists>,
) -> Result<ScalingLists, BitstreamError> {
    let mut lists = ScalingLists::default();
    for i in 0..12 {
        let present = i < count && r.flag()?;
        if i < 6 {
            let default = DEFAULT_4X4[i / 3];
            let fall_back = match sequence {
                _ if i % 3 != 0 => lists.lists_4x4[i - 1],
                Some(sequence) => sequence.lists_4x4[i],
                None => default,
            };
            lists.lists_4x4[i] = if present { read_list(r, &default)? } else { fall_back };
        } else {
            let j = i - 6;
            let default = DEFAULT_8X8[j % 2];
            let fall_back = match sequence {
                _ if j >= 2 => lists.lists_8x8[j - 2],
                Some(sequence) => sequence.lists_8x8[j],
                None => default,
            };
            lists.lists_8x8[j] = if present { read_list(r, &default)? } else { fall_back };
        }
    }
    Ok(lists)
}

/// scaling_list(): deltas, or the default list where the first says so.
fn read_list<const N: usize>(r: &mut BitReader, default: &[u8; N]) -> Result<[u8; N], BitstreamError> {
    let mut list = [0; N];
    let (mut last, mut next) = (8i32, 8i32);
    for j in 0..N {
        if next != 0 {
            let delta = r.se()?;
            if !(-128..=127).contains(&delta) {
                return invalid(format!("delta_scale {delta} is outside -128 to 127"));
            }
            next = (last + delta + 256) % 256;
            if j == 0 && next == 0 {
                return Ok(*default);
            }
        }
        if next != 0 {
            last = next;
        }
        list[j] = last as u8;
    }
    Ok(list)
}

/// LevelScale4x4 and LevelScale8x8 of the intra lists, in raster order:
/// `[component][QP % 6][position]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelScale {
    pub scale_4x4: [[[i32; 16]; 6]; 3],
    pub scale_8x8: [[[i32; 64]; 6]; 3],
}

impl LevelScale {
    /// Scales from the lists in force; `None` is Flat.
    pub fn new(lists: Option<&ScalingLists>) -> Self {
        let flat = ScalingLists::default();
        let lists = lists.unwrap_or(&flat);
        let mut scale = Self { scale_4x4: [[[0; 16]; 6]; 3], scale_8x8: [[[0; 64]; 6]; 3] };
        for component in 0..3 {
            for qp_rem in 0..6 {
                for (k, &at) in ZIGZAG_4X4.iter().enumerate() {
                    scale.scale_4x4[component][qp_rem][usize::from(at)] =
                        i32::from(lists.lists_4x4[component][k]) * norm_adjust_4x4(qp_rem, at);
                }
                for (k, &at) in ZIGZAG_8X8.iter().enumerate() {
                    scale.scale_8x8[component][qp_rem][usize::from(at)] =
                        i32::from(lists.lists_8x8[2 * component][k]) * norm_adjust_8x8(qp_rem, at);
                }
            }
        }
        scale
    }
}

/// normAdjust4x4 at a raster position (equation 8-314).
pub(crate) fn norm_adjust_4x4(qp_rem: usize, at: u8) -> i32 {
    let class = match (at / 4 % 2, at % 2) {
        (0, 0) => 0,
        (1, 1) => 1,
        _ => 2,
    };
    i32::from(NORM_ADJUST_4X4[qp_rem][class])
}

/// normAdjust8x8 at a raster position (equation 8-317).
pub(crate) fn norm_adjust_8x8(qp_rem: usize, at: u8) -> i32 {
    let (y, x) = (at / 8, at % 8);
    let class = match (y % 4, x % 4) {
        (0, 0) => 0,
        (1 | 3, 1 | 3) => 1,
        (2, 2) => 2,
        (0, 1 | 3) | (1 | 3, 0) => 3,
        (0, 2) | (2, 0) => 4,
        _ => 5,
    };
    i32::from(NORM_ADJUST_8X8[qp_rem][class])
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_bits::BitWriter;

    /// The lists that `write` states, one after the other; none of those behind.
    fn read(
        count: usize,
        sequence: Option<&ScalingLists>,
        write: impl Fn(&mut BitWriter),
    ) -> Result<ScalingLists, BitstreamError> {
        let mut w = BitWriter::new();
        write(&mut w);
        (0..12).for_each(|_| w.flag(false));
        w.trailing_bits();
        read_lists(&mut BitReader::new(&w.into_bytes()), count, sequence)
    }

    /// Table 7-2: rule A begins with the default lists, rule B with the sequence's; what follows is as the one before.
    #[test]
    fn lists_that_are_left_out_fall_back_by_their_rule() {
        let none = read(8, None, |_| ()).unwrap();
        for i in 0..6 {
            assert_eq!(none.lists_4x4[i], DEFAULT_4X4[i / 3], "{i}");
            assert_eq!(none.lists_8x8[i], DEFAULT_8X8[i % 2], "{i}");
        }
        let sequence = ScalingLists { lists_4x4: [[7; 16]; 6], lists_8x8: [[9; 64]; 6] };
        assert_eq!(read(12, Some(&sequence), |_| ()).unwrap(), sequence);
        // Flat 5 for 4×4 intra Cb: one delta from 8, then zeros.
        let stated = read(12, Some(&sequence), |w| {
            w.flag(false);
            w.flag(true);
            w.se(-3);
            (1..16).for_each(|_| w.se(0));
        });
        let lists = stated.unwrap().lists_4x4;
        assert_eq!([lists[0], lists[1], lists[2], lists[3]], [[7; 16], [5; 16], [5; 16], [7; 16]]);
    }

    #[test]
    fn a_list_may_end_early_or_be_the_default_and_its_deltas_have_bounds() {
        let stated = |deltas: &[i32]| {
            read(12, None, |w| {
                w.flag(true);
                deltas.iter().for_each(|&delta| w.se(delta));
            })
            .map(|lists| lists.lists_4x4[0])
        };
        // 10, 13, then nothing more: the last goes on.
        let mut expected = [13; 16];
        expected[0] = 10;
        assert_eq!(stated(&[2, 3, -13]).unwrap(), expected);
        assert_eq!(stated(&[-8]).unwrap(), DEFAULT_4X4[0]);
        // Modulo 256.
        assert_eq!(stated(&[-9, 2, -1]).unwrap()[..3], [255, 1, 1]);
        for delta in [-129, 128] {
            let said = stated(&[delta]).unwrap_err();
            assert!(format!("{said:?}").contains(&delta.to_string()), "{said:?}");
        }
    }

    /// Weights of a list stand where the zig-zag leads, each times what its place asks for.
    #[test]
    fn scales_are_weights_times_norms() {
        let flat = LevelScale::new(None);
        assert_eq!(flat.scale_4x4[0][0][..6], [160, 208, 160, 208, 208, 256]);
        assert_eq!(flat.scale_4x4[2][5][5], 16 * 29);
        assert_eq!(flat.scale_8x8[1][0][..3], [16 * 20, 16 * 19, 16 * 25]);
        assert_eq!(flat.scale_8x8[1][0][8..11], [16 * 19, 16 * 18, 16 * 24]);
        let mut lists = ScalingLists::default();
        lists.lists_4x4[1][2] = 32;
        // Of 8×8, intra Cb is the third list; inter lists are nobody's here.
        lists.lists_8x8[2][1] = 8;
        lists.lists_8x8[1] = [1; 64];
        let scale = LevelScale::new(Some(&lists));
        assert_eq!((scale.scale_4x4[1][0][4], scale.scale_4x4[0][0][4]), (32 * 13, 16 * 13));
        assert_eq!((scale.scale_8x8[1][0][1], scale.scale_8x8[0][0][1]), (8 * 19, 16 * 19));
        assert_eq!(scale.scale_8x8[0], flat.scale_8x8[0]);
    }
}
