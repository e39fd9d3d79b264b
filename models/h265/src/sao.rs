//! Sample adaptive offset (H.265 clause 8.7.3).
//!
//! One CTB at a time, from deblocked samples into the picture. Which
//! neighbouring CTBs may be looked at (slices, tiles, picture borders) comes
//! in as a mask; the bits that chose the offsets are someone else's.

use trinity_bits::Plane;

/// How one CTB of one component is corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sao {
    #[default]
    Off,
    /// SaoTypeIdx 1: four consecutive bands of 32 move.
    Band {
        /// sao_band_position.
        position: u8,
        /// SaoOffsetVal[1..=4], scaled by log2OffsetScale.
        offsets: [i16; 4],
    },
    /// SaoTypeIdx 2: samples move by how they compare with two neighbours.
    Edge {
        class: EdgeClass,
        /// SaoOffsetVal[1..=4], scaled, in the order of edgeIdx.
        offsets: [i16; 4],
    },
}

/// SaoEoClass: where the two neighbours are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeClass {
    Horizontal,
    Vertical,
    /// 135°: up-left and down-right.
    Falling,
    /// 45°: up-right and down-left.
    Rising,
}

impl EdgeClass {
    /// By sao_eo_class.
    pub const ALL: [Self; 4] = [Self::Horizontal, Self::Vertical, Self::Falling, Self::Rising];

    /// (dx, dy) of the first neighbour; the second lies opposite.
    fn direction(self) -> (isize, isize) {
        match self {
            Self::Horizontal => (-1, 0),
            Self::Vertical => (0, -1),
            Self::Falling => (-1, -1),
            Self::Rising => (1, -1),
        }
    }

    /// The category of the sample at (x, y) inside `area`: valley, concave
    /// corner, convex corner, peak; none where it is flat or a neighbour is
    /// out of reach.
    #[inline]
    pub fn category(
        self,
        deblocked: &Plane,
        area: Area,
        reachable: &Reachable,
        x: usize,
        y: usize,
    ) -> Option<usize> {
        let (dx, dy) = self.direction();
        let zone = |v: isize, length: usize| {
            if v < 0 {
                0
            } else if v < length as isize {
                1
            } else {
                2
            }
        };
        let usable = |dx: isize, dy: isize| {
            reachable[zone(y as isize + dy, area.height)][zone(x as isize + dx, area.width)]
        };
        if !usable(dx, dy) || !usable(-dx, -dy) {
            return None;
        }
        let at = (area.y + y) * deblocked.width + area.x + x;
        let sample = deblocked.samples[at];
        let sign = |dx: isize, dy: isize| {
            let other = deblocked.samples[at.wrapping_add_signed(dy * deblocked.width as isize + dx)];
            usize::from(sample > other) + 1 - usize::from(sample < other)
        };
        match sign(dx, dy) + sign(-dx, -dy) {
            2 => None,
            sum if sum < 2 => Some(sum),
            sum => Some(sum - 1),
        }
    }
}

/// Which of the eight CTBs around may be compared with: `[dy + 1][dx + 1]`.
pub type Reachable = [[bool; 3]; 3];

/// A CTB's place in its plane.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

/// Corrects one CTB of `out`, reading the deblocked copy `deblocked`. `keep`
/// says which samples (x, y of this plane) stay untouched.
pub fn apply(
    sao: Sao,
    deblocked: &Plane,
    out: &mut Plane,
    area: Area,
    reachable: &Reachable,
    depth: u32,
    keep: impl Fn(usize, usize) -> bool,
) {
    match sao {
        Sao::Off => {}
        Sao::Band { position, offsets } => band(position, offsets, deblocked, out, area, depth, keep),
        Sao::Edge { class, offsets } => {
            let high = (1 << depth) - 1;
            for (x, y) in (0..area.height).flat_map(|y| (0..area.width).map(move |x| (x, y))) {
                let Some(category) = class.category(deblocked, area, reachable, x, y) else { continue };
                let offset = i32::from(offsets[category]);
                if offset != 0 && !keep(area.x + x, area.y + y) {
                    let at = (area.y + y) * deblocked.width + area.x + x;
                    out.samples[at] = (i32::from(deblocked.samples[at]) + offset).clamp(0, high) as u16;
                }
            }
        }
    }
}

fn band(
    position: u8,
    offsets: [i16; 4],
    deblocked: &Plane,
    out: &mut Plane,
    area: Area,
    depth: u32,
    keep: impl Fn(usize, usize) -> bool,
) {
    let mut table = [0i32; 32];
    for (k, &offset) in offsets.iter().enumerate() {
        table[(usize::from(position) + k) & 31] = i32::from(offset);
    }
    let high = (1 << depth) - 1;
    for y in area.y..area.y + area.height {
        for x in area.x..area.x + area.width {
            let sample = deblocked.samples[y * deblocked.width + x];
            let offset = table[usize::from(sample >> (depth - 5)) & 31];
            if offset != 0 && !keep(x, y) {
                out.samples[y * out.width + x] = (i32::from(sample) + offset).clamp(0, high) as u16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Reachable = [[false; 3], [false, true, false], [false; 3]];

    fn filtered(sao: Sao, samples: Vec<u16>, width: usize) -> Vec<u16> {
        let plane = Plane { width, height: samples.len() / width, samples };
        let mut out = plane.clone();
        let area = Area { x: 0, y: 0, width, height: plane.height };
        apply(sao, &plane, &mut out, area, &ALONE, 8, |x, _| x == 3);
        out.samples
    }

    #[test]
    fn bands_wrap_and_kept_samples_stay() {
        let sao = Sao::Band { position: 31, offsets: [1, 2, 3, 4] };
        assert_eq!(filtered(sao, vec![255, 0, 8, 16, 16, 24], 6), [255, 2, 11, 16, 20, 24]);
    }

    #[test]
    fn valleys_rise_and_peaks_fall_but_never_at_a_closed_border() {
        let sao = Sao::Edge { class: EdgeClass::Horizontal, offsets: [2, 1, -1, -2] };
        assert_eq!(filtered(sao, vec![9, 5, 9, 9, 5, 5, 7, 1], 8), [9, 7, 8, 9, 6, 6, 5, 1]);
        let sao = Sao::Edge { class: EdgeClass::Vertical, offsets: [2, 1, -1, -2] };
        assert_eq!(filtered(sao, vec![9, 5, 9], 1), [9, 7, 9]);
    }
}
