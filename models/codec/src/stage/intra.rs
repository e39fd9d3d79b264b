//! Prediction of blocks from decoded neighbours (H.265 clause 8.4.4.2):
//! planar, DC and 33 angles, on values instead of samples, without smoothing;
//! and none, which noise asks for.
//!
//! Knows values and modes; knows nothing of levels or bits, so that an encoder
//! can try all modes without touching the entropy coder.

use trinity_bits::intra_modes::{DC, PLANAR, most_probable, remaining_index, remaining_mode};

// Modes by number: planar, DC, angles from lower left to upper right, none.
/// Everything there is to predict from is worth less than nothing.
pub const NONE: u8 = 35;
pub const MODES: u8 = 36;

/// Modes that are looked at closely, besides the likely ones.
pub const CLOSELY: usize = 4;

/// Side of the largest block.
const MAX_SIDE: usize = 32;

/// Thirty-seconds of a value that a prediction moves along its neighbours from
/// one line to the next (Table 8-5).
fn angle(mode: u8) -> i32 {
    const ANGLES: [i32; 9] = [0, 2, 5, 9, 13, 17, 21, 26, 32];
    // Horizontal is 10, vertical 26; both go from −8 to 8.
    let from_straight = if mode < 18 { 10 - i32::from(mode) } else { i32::from(mode) - 26 };
    ANGLES[from_straight.unsigned_abs() as usize] * from_straight.signum()
}

#[derive(Debug, Clone)]
pub struct Neighbours {
    side: usize,
    /// From two sides below the corner up to it, then two sides to the right.
    line: [f32; 4 * MAX_SIDE + 1],
}

impl Neighbours {
    /// Around block `block` of a coded row of `cols` columns, whose blocks to
    /// the left are decoded, as is the line `above` if there is one. What is
    /// missing repeats its neighbour, from below left to above right; where
    /// all is missing it is zero.
    #[inline(always)]
    pub fn around(values: &[f32], above: Option<&[f32]>, cols: usize, block: usize, side: usize) -> Self {
        let mut line = [0.0; 4 * MAX_SIDE + 1];
        let (left, corner) = (block * side, 2 * side);
        let column = left.checked_sub(1);
        if let Some(column) = column {
            for y in 0..side {
                line[corner - 1 - y] = values[y * cols + column];
            }
            let lowest = line[side];
            line[..side].fill(lowest);
        }
        match (above, column) {
            (Some(above), _) => {
                let count = (cols - left).min(2 * side);
                line[corner + 1..][..count].copy_from_slice(&above[left..][..count]);
                let last = line[corner + count];
                line[corner + 1 + count..=4 * side].fill(last);
                match column {
                    Some(column) => line[corner] = above[column],
                    None => line[..=corner].fill(above[left]),
                }
            }
            (None, Some(_)) => {
                let highest = line[corner - 1];
                line[corner..=4 * side].fill(highest);
            }
            (None, None) => {}
        }
        Self { side, line }
    }

    /// What `mode` makes of them for the block.
    #[inline(always)]
    pub fn predict(&self, mode: u8, out: &mut [f32]) {
        match mode {
            PLANAR => self.planar(out),
            DC => self.dc(out),
            2..NONE => self.angular(mode, out),
            _ => out.fill(0.0),
        }
    }

    /// The value `y` lines below the corner.
    fn left(&self, y: usize) -> f32 {
        self.line[2 * self.side - 1 - y]
    }

    fn above(&self) -> &[f32] {
        &self.line[2 * self.side + 1..=4 * self.side]
    }

    #[inline(always)]
    fn planar(&self, out: &mut [f32]) {
        let side = self.side;
        let scale = 0.5 / side as f32;
        let (right, below) = (self.above()[side], self.left(side));
        for (y, row) in out.chunks_exact_mut(side).enumerate() {
            let left = self.left(y);
            for (x, (value, above)) in row.iter_mut().zip(self.above()).enumerate() {
                let across = (side - 1 - x) as f32 * left + (x + 1) as f32 * right;
                let down = (side - 1 - y) as f32 * above + (y + 1) as f32 * below;
                *value = (across + down) * scale;
            }
        }
    }

    #[inline(always)]
    fn dc(&self, out: &mut [f32]) {
        let side = self.side;
        let beside: f32 = self.line[side..2 * side].iter().sum();
        let above: f32 = self.above()[..side].iter().sum();
        out.fill((beside + above) * (0.5 / side as f32));
    }

    #[inline(always)]
    fn angular(&self, mode: u8, out: &mut [f32]) {
        let side = self.side;
        let reference = self.reference(mode);
        let angle = angle(mode);
        for (y, row) in out.chunks_exact_mut(side).enumerate() {
            let moved = (y as i32 + 1) * angle;
            let (whole, part) = (moved >> 5, (moved & 31) as f32);
            let from = &reference[(side as i32 + 1 + whole) as usize..][..side + 1];
            for (value, pair) in row.iter_mut().zip(from.windows(2)) {
                *value = ((32.0 - part) * pair[0] + part * pair[1]) * (1.0 / 32.0);
            }
        }
        if mode < 18 {
            transpose(out, side);
        }
    }

    /// What an angle predicts from, on one line: the corner at `side`, before
    /// it what a negative angle finds on the other side.
    #[inline(always)]
    fn reference(&self, mode: u8) -> [f32; 3 * MAX_SIDE + 2] {
        let side = self.side;
        let mut reference = [0.0; 3 * MAX_SIDE + 2];
        let corner = 2 * side;
        // Modes below 18 see columns as rows.
        let (main, other): (i32, i32) = if mode < 18 { (-1, 1) } else { (1, -1) };
        for (i, value) in reference[side..=3 * side].iter_mut().enumerate() {
            *value = self.line[(corner as i32 + main * i as i32) as usize];
        }
        let angle = angle(mode);
        if angle < 0 {
            // Table 8-6: 256 · 32 over the angle, rounded.
            let inverse = -((8192 + angle.abs() / 2) / angle.abs());
            let last = (side as i32 * angle) >> 5;
            for x in last + 1..0 {
                let at = corner as i32 + other * ((x * inverse + 128) >> 8);
                reference[(side as i32 + x) as usize] = self.line[at as usize];
            }
        }
        reference
    }
}

fn transpose(block: &mut [f32], side: usize) {
    for y in 0..side {
        for x in y + 1..side {
            block.swap(y * side + x, x * side + y);
        }
    }
}

/// The most probable modes of a block by those to its left and above it
/// (H.265 clause 8.4.2); what is missing or predicts nothing counts as DC.
pub fn likely(left: Option<u8>, above: Option<u8>) -> [u8; 3] {
    let known = |mode: Option<u8>| mode.filter(|&mode| mode < NONE).unwrap_or(DC);
    most_probable(known(left), known(above))
}

/// How a stream says which mode it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A mode by a symbol: 0 none, 1 to 3 one of the likely.
    Symbol(usize),
    /// A mode by its place among the 32 others.
    Other(u32),
}

/// The symbol before [`Said::Other`].
pub const OTHER: usize = 4;
/// Bits of [`Said::Other`].
pub const OTHER_BITS: u32 = 5;

/// What to say of `mode`.
pub fn say(mode: u8, likely: [u8; 3]) -> Said {
    if mode >= NONE {
        return Said::Symbol(0);
    }
    match likely.iter().position(|&l| l == mode) {
        Some(place) => Said::Symbol(place + 1),
        None => Said::Other(u32::from(remaining_index(mode, likely))),
    }
}

/// The mode of which that was said; symbols beyond the likely are none.
pub fn heard(said: Said, likely: [u8; 3]) -> u8 {
    match said {
        Said::Symbol(symbol) => *symbol.checked_sub(1).and_then(|place| likely.get(place)).unwrap_or(&NONE),
        Said::Other(place) => remaining_mode((place & 31) as u8, likely),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Around the second block of four in a row, below a line.
    fn neighbours(side: usize, of: impl Fn(i32, i32) -> f32) -> Neighbours {
        let cols = 4 * side;
        let at = |x: usize, y: i32| of(x as i32 - side as i32, y);
        let values: Vec<f32> = (0..side * cols).map(|i| at(i % cols, (i / cols) as i32)).collect();
        let above: Vec<f32> = (0..cols).map(|x| at(x, -1)).collect();
        Neighbours::around(&values, Some(&above), cols, 1, side)
    }

    #[test]
    fn every_mode_continues_a_constant() {
        for side in [4, 8, 16, 32] {
            let around = neighbours(side, |_, _| 3.0);
            let mut block = vec![0.0; side * side];
            for mode in 0..NONE {
                around.predict(mode, &mut block);
                assert!(block.iter().all(|&v| v == 3.0), "{mode} of side {side}");
            }
        }
    }

    #[test]
    fn angles_of_45_degrees_continue_lines_along_them() {
        // Modes 34, 18 and 2 point along these; lower left of a block nothing is known.
        for (mode, of) in [(34u8, (1, 1)), (18, (1, -1))] {
            let along = |x: i32, y: i32| (of.0 * x + of.1 * y) as f32;
            let mut block = vec![0.0; 64];
            neighbours(8, along).predict(mode, &mut block);
            for (i, &value) in block.iter().enumerate() {
                assert_eq!(value, along(i as i32 % 8, i as i32 / 8), "{mode} at {i}");
            }
        }
    }

    #[test]
    fn horizontal_and_vertical_repeat_an_edge() {
        let around = neighbours(4, |x, y| (10 * y + x) as f32);
        let mut block = [0.0; 16];
        around.predict(10, &mut block);
        assert_eq!(block[..8], [-1.0, -1.0, -1.0, -1.0, 9.0, 9.0, 9.0, 9.0]);
        around.predict(26, &mut block);
        assert_eq!(block[4..8], [-10.0, -9.0, -8.0, -7.0]);
    }

    #[test]
    fn modes_below_18_are_those_above_with_sides_exchanged() {
        let smooth = |x: i32, y: i32| (x * x - 3 * y + x * y) as f32;
        for mode in 11..18 {
            let (mut one, mut other) = ([0.0; 64], [0.0; 64]);
            neighbours(8, smooth).predict(mode, &mut one);
            neighbours(8, |x, y| smooth(y, x)).predict(36 - mode, &mut other);
            transpose(&mut other, 8);
            assert_eq!(one, other, "{mode}");
        }
    }

    #[test]
    fn what_is_missing_repeats_its_neighbour() {
        let values = [1.0, 2.0, 3.0, 4.0].repeat(4);
        let nothing = Neighbours::around(&values, None, 4, 0, 4);
        assert!(nothing.line.iter().all(|&v| v == 0.0));
        let above = [5.0, 6.0, 7.0, 8.0];
        let only_above = Neighbours::around(&values, Some(&above), 4, 0, 4);
        assert_eq!(only_above.line[..9], [5.0; 9]);
        assert_eq!(only_above.line[9..17], [5.0, 6.0, 7.0, 8.0, 8.0, 8.0, 8.0, 8.0]);
        let values = [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0].repeat(4);
        assert_eq!(Neighbours::around(&values, None, 8, 1, 4).line[..17], [4.0; 17]);
    }

    #[test]
    fn every_mode_that_is_said_is_heard() {
        let neighbours = || (0..MODES).map(Some).chain([None]);
        for (left, above) in neighbours().flat_map(|l| neighbours().map(move |a| (l, a))) {
            let likely = likely(left, above);
            assert!(likely[0] != likely[1] && likely[0] != likely[2] && likely[1] != likely[2]);
            for mode in 0..MODES {
                assert_eq!(heard(say(mode, likely), likely), mode, "{likely:?}");
            }
        }
    }
}
