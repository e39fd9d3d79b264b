//! How intra modes are named by their neighbours (H.265 clauses 8.4.2 and
//! 7.3.8.5): three candidates by place, the other 32 by number. Both sides of
//! the H.265 codec and the Trinity codec name their modes so.

pub const PLANAR: u8 = 0;
pub const DC: u8 = 1;
/// INTRA_ANGULAR26.
pub const VERTICAL: u8 = 26;

/// candModeList: the three most probable modes beside the modes to the left
/// and above (clause 8.4.2).
pub fn most_probable(left: u8, above: u8) -> [u8; 3] {
    if left == above {
        return match left {
            PLANAR | DC => [PLANAR, DC, VERTICAL],
            angle => [angle, 2 + (angle + 29) % 32, 2 + (angle - 1) % 32],
        };
    }
    let third = if left != PLANAR && above != PLANAR {
        PLANAR
    } else if left != DC && above != DC {
        DC
    } else {
        VERTICAL
    };
    [left, above, third]
}

/// rem_intra_luma_pred_mode: the place of `mode` among those that are no candidates.
pub fn remaining_index(mode: u8, candidates: [u8; 3]) -> u8 {
    mode - candidates.iter().filter(|&&candidate| candidate < mode).count() as u8
}

/// The mode that rem_intra_luma_pred_mode stands for: it skips the candidates.
pub fn remaining_mode(index: u8, mut candidates: [u8; 3]) -> u8 {
    candidates.sort_unstable();
    candidates.iter().fold(index, |mode, &candidate| mode + u8::from(mode >= candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_a_candidate_or_comes_back_from_its_index() {
        for (left, above) in (0..35).flat_map(|left| (0..35).map(move |above| (left, above))) {
            let candidates = most_probable(left, above);
            let [a, b, c] = candidates;
            assert!(a != b && b != c && a != c && a < 35 && b < 35 && c < 35, "{left} {above}");
            for mode in (0..35).filter(|mode| !candidates.contains(mode)) {
                let index = remaining_index(mode, candidates);
                assert!(index < 32 && remaining_mode(index, candidates) == mode, "{mode} {candidates:?}");
            }
        }
    }
}
