//! Tiling: a matrix of any shape as frames within a codec's limits.
//!
//! Where a frame reaches past the matrix, its last row and column repeat:
//! intra prediction then codes the padding for almost nothing. Everything
//! follows from the matrix's size, the limits and one orientation bit, so the
//! stream carries no geometry of its own.

use std::ops::Range;

use trinity_bits::{Chroma, Frame, Plane};

/// What a frame may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Smallest and largest width and height.
    pub least: usize,
    pub side: usize,
    /// Luma alone, neutral chroma for codecs without 4:0:0, or three packed planes.
    pub chroma: Chroma,
    pub depth: u32,
}

/// How a matrix lies in frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    rows: usize,
    cols: usize,
    transposed: bool,
    width: usize,
    height: usize,
    across: usize,
    down: usize,
    limits: Limits,
}

/// Matrices thinner than this are folded: a codec's blocks need both sides.
const THIN: usize = 32;

impl Tiling {
    /// Lays a rows × cols matrix out; `transposed` runs its columns along the scan.
    pub fn new(rows: usize, cols: usize, transposed: bool, limits: Limits) -> Self {
        let (mut down_values, mut across_values) = if transposed { (cols, rows) } else { (rows, cols) };
        if down_values.min(across_values) < THIN && rows * cols > THIN * THIN {
            // Values in scan order, folded into a square of whole transform blocks.
            across_values = (((rows * cols) as f64).sqrt() as usize).next_multiple_of(THIN);
            down_values = (rows * cols).div_ceil(across_values);
        }
        let even = if limits.chroma == Chroma::C420 { 2 } else { 1 };
        let across = across_values.div_ceil(limits.side).max(1);
        let width = across_values.div_ceil(across).next_multiple_of(even).max(even).max(limits.least);
        let mut down = down_values.div_ceil(limits.side).max(1);
        // Three planes want three tiles; bands thinner than a block would cost more than they save.
        if limits.chroma == Chroma::C444 && down_values >= 3 * THIN {
            down = down.next_multiple_of(3);
        }
        let height = down_values.div_ceil(down).next_multiple_of(even).max(even).max(limits.least);
        Self { rows, cols, transposed, width, height, across, down, limits }
    }

    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Planes that carry values.
    fn planes(&self) -> usize {
        if self.limits.chroma == Chroma::C444 { 3 } else { 1 }
    }

    pub fn frames(&self) -> usize {
        (self.across * self.down).div_ceil(self.planes())
    }

    /// Whether values are laid out as the matrix is, or folded in scan order.
    fn folded(&self) -> bool {
        self.rows.min(self.cols) < THIN && self.rows * self.cols > THIN * THIN
    }

    /// Where a tile's first sample lies in the picture of the whole matrix.
    fn corner(&self, tile: usize) -> (usize, usize) {
        (tile % self.across * self.width, tile / self.across * self.height)
    }

    /// Width and height of the matrix as it is shown, where it is not folded.
    fn shown(&self) -> (usize, usize) {
        if self.transposed { (self.rows, self.cols) } else { (self.cols, self.rows) }
    }

    /// Values from a sample to its right and to its lower neighbour, where the
    /// matrix is not folded.
    fn strides(&self) -> (usize, usize) {
        if self.transposed { (self.cols, 1) } else { (1, self.cols) }
    }

    /// The value at a place of the scan that folded matrices are laid out in.
    fn scan(&self, place: usize) -> usize {
        if self.transposed { place % self.rows * self.cols + place / self.rows } else { place }
    }

    /// First place of the scan in a row of a tile.
    fn place(&self, tile: usize, y: usize) -> usize {
        let (left, top) = self.corner(tile);
        (top + y) * self.across * self.width + left
    }

    /// Frames of the samples that values become.
    pub fn cut<T: Copy>(&self, values: &[T], sample: impl Fn(T) -> u16) -> Vec<Frame> {
        let neutral = 1 << (self.limits.depth - 1);
        (0..self.frames())
            .map(|frame| {
                let mut out =
                    Frame::filled(self.width, self.height, self.limits.chroma, self.limits.depth, neutral);
                for (plane, out) in out.planes.iter_mut().take(self.planes()).enumerate() {
                    let tile = frame * self.planes() + plane;
                    if tile < self.across * self.down {
                        self.fill(tile, values, &sample, out);
                    }
                }
                out
            })
            .collect()
    }

    fn fill<T: Copy>(&self, tile: usize, values: &[T], sample: &impl Fn(T) -> u16, plane: &mut Plane) {
        if self.folded() {
            for y in 0..self.height {
                let place = self.place(tile, y);
                for (x, shown) in plane.row_mut(y).iter_mut().enumerate() {
                    *shown = sample(values[self.scan((place + x).min(values.len() - 1))]);
                }
            }
            return;
        }
        let ((left, top), (across, down)) = (self.corner(tile), self.shown());
        let (right, below) = self.strides();
        let held = |xs: &Range<usize>| across.saturating_sub(left + xs.start).min(xs.len());
        for (xs, ys) in blocks(self.width, self.height) {
            for y in ys {
                let from = &values[(top + y).min(down - 1) * below..];
                let (held, padding) = plane.row_mut(y)[xs.clone()].split_at_mut(held(&xs));
                let first = from.get((left + xs.start) * right..).unwrap_or_default();
                // A loop of its own where neighbours adjoin, so that it vectorizes.
                if right == 1 {
                    held.iter_mut().zip(first).for_each(|(shown, &value)| *shown = sample(value));
                } else {
                    let turned = held.iter_mut().zip(first.iter().step_by(right));
                    turned.for_each(|(shown, &value)| *shown = sample(value));
                }
                padding.fill(sample(from[(across - 1) * right]));
            }
        }
    }

    /// The matrix of values that samples stand for, back from frames; `None` when
    /// frames are missing or of another size.
    pub fn join<T: Copy + Default>(&self, frames: &[Frame], value: impl Fn(u16) -> T) -> Option<Vec<T>> {
        let mut values = vec![T::default(); self.rows * self.cols];
        for tile in 0..self.across * self.down {
            let plane = frames.get(tile / self.planes())?.planes.get(tile % self.planes())?;
            if plane.width < self.width || plane.height < self.height {
                return None;
            }
            self.gather(tile, plane, &value, &mut values);
        }
        Some(values)
    }

    /// Takes out of a tile what is no padding.
    fn gather<T>(&self, tile: usize, plane: &Plane, value: &impl Fn(u16) -> T, values: &mut [T]) {
        if self.folded() {
            for y in 0..self.height {
                let place = self.place(tile, y);
                let held = self.width.min(values.len().saturating_sub(place));
                for (x, &sample) in plane.row(y)[..held].iter().enumerate() {
                    values[self.scan(place + x)] = value(sample);
                }
            }
            return;
        }
        let ((left, top), (across, down)) = (self.corner(tile), self.shown());
        let (right, below) = self.strides();
        let held = (self.width.min(across.saturating_sub(left)), self.height.min(down.saturating_sub(top)));
        for (xs, ys) in blocks(held.0, held.1) {
            for y in ys {
                let row = &plane.row(y)[xs.clone()];
                let to = &mut values[(top + y) * below + (left + xs.start) * right..];
                if right == 1 {
                    row.iter().zip(to).for_each(|(&sample, to)| *to = value(sample));
                } else {
                    row.iter()
                        .zip(to.iter_mut().step_by(right))
                        .for_each(|(&sample, to)| *to = value(sample));
                }
            }
        }
    }
}

/// Side of a square that stays in the cache while it is turned.
const BLOCK: usize = 64;

/// Squares that cover a plane, as ranges of columns and of rows.
fn blocks(width: usize, height: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let ranges = |len: usize| (0..len).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(len));
    ranges(height).flat_map(move |ys| ranges(width).map(move |xs| (xs, ys.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_shape_comes_back(
            rows in 1usize..90, cols in 1usize..90, transposed: bool, side in 16usize..70, which in 0usize..3, tiny: bool,
        ) {
            let chroma = [Chroma::C400, Chroma::C420, Chroma::C444][which];
            let least = if tiny { 1 } else { 16 };
            let tiling = Tiling::new(rows, cols, transposed, Limits { least, side, chroma, depth: 12 });
            let samples: Vec<u16> = (0..rows * cols).map(|i| (i % 4096) as u16).collect();
            let frames = tiling.cut(&samples, |sample| sample);
            let within = |side_len| (least..=side + 1).contains(&side_len);
            prop_assert!(frames.iter().all(|frame| within(frame.width()) && within(frame.height())));
            prop_assert_eq!(tiling.join(&frames, |sample| sample).unwrap(), samples);
        }
    }

    #[test]
    fn a_long_row_is_folded() {
        let limits = Limits { least: 1, side: 4096, chroma: Chroma::C400, depth: 8 };
        let tiling = Tiling::new(1, 1_000_000, false, limits);
        assert_eq!((tiling.size(), tiling.frames()), ((1024, 977), 1));
    }
}
