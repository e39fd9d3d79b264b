//! Tiling: a matrix of any shape as frames within a codec's limits.
//!
//! Where a frame reaches past the matrix, its last row and column repeat:
//! intra prediction then codes the padding for almost nothing. Everything
//! follows from the matrix's size, the limits and one orientation bit, so the
//! stream carries no geometry of its own.

use trinity_coding::{Chroma, Frame, Plane};

/// What a frame may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest width and height.
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
        let width = across_values.div_ceil(across).next_multiple_of(even).max(even);
        let mut down = down_values.div_ceil(limits.side).max(1);
        // Three planes want three tiles; bands thinner than a block would cost more than they save.
        if limits.chroma == Chroma::C444 && down_values >= 3 * THIN {
            down = down.next_multiple_of(3);
        }
        let height = down_values.div_ceil(down).next_multiple_of(even).max(even);
        Self { rows, cols, transposed, width, height, across, down, limits }
    }

    /// Width and height of a frame.
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Planes that carry values.
    fn planes(&self) -> usize {
        if self.limits.chroma == Chroma::C444 { 3 } else { 1 }
    }

    /// Frames a matrix takes.
    pub fn frames(&self) -> usize {
        (self.across * self.down).div_ceil(self.planes())
    }

    /// Whether values are laid out as the matrix is, or folded in scan order.
    fn folded(&self) -> bool {
        self.rows.min(self.cols) < THIN && self.rows * self.cols > THIN * THIN
    }

    /// The value shown at a place of a tile; `None` for padding that repeats nothing.
    fn index(&self, tile: usize, x: usize, y: usize) -> usize {
        let x = tile % self.across * self.width + x;
        let y = tile / self.across * self.height + y;
        let last = self.rows * self.cols - 1;
        if self.folded() {
            let place = y * self.across * self.width + x;
            return self.scan(place.min(last));
        }
        let (down, across) = if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) };
        let (x, y) = (x.min(across - 1), y.min(down - 1));
        if self.transposed { x * self.cols + y } else { y * self.cols + x }
    }

    /// The value at a place of the scan.
    fn scan(&self, place: usize) -> usize {
        if self.transposed { place % self.rows * self.cols + place / self.rows } else { place }
    }

    /// Frames of samples.
    pub fn cut(&self, samples: &[u16]) -> Vec<Frame> {
        let neutral = 1 << (self.limits.depth - 1);
        (0..self.frames())
            .map(|frame| {
                let mut out =
                    Frame::filled(self.width, self.height, self.limits.chroma, self.limits.depth, neutral);
                for (plane, out) in out.planes.iter_mut().take(self.planes()).enumerate() {
                    self.fill(frame * self.planes() + plane, samples, out);
                }
                out
            })
            .collect()
    }

    fn fill(&self, tile: usize, samples: &[u16], plane: &mut Plane) {
        if tile >= self.across * self.down {
            return;
        }
        let held = self.held(tile);
        for y in 0..self.height {
            let row = plane.row_mut(y);
            // Whole rows are copied; what is folded, turned or padding is looked up.
            let copied = if y < held.1 { held.0 } else { 0 };
            if copied > 0 {
                row[..copied].copy_from_slice(&samples[self.index(tile, 0, y)..][..copied]);
            }
            for (x, sample) in row.iter_mut().enumerate().skip(copied) {
                *sample = samples[self.index(tile, x, y)];
            }
        }
    }

    fn lies_plain(&self) -> bool {
        !self.folded() && !self.transposed
    }

    /// Width and height of what a tile holds of the matrix as it lies; nothing
    /// where values are folded or turned.
    fn held(&self, tile: usize) -> (usize, usize) {
        if !self.lies_plain() {
            return (0, 0);
        }
        let (left, top) = (tile % self.across * self.width, tile / self.across * self.height);
        (self.width.min(self.cols.saturating_sub(left)), self.height.min(self.rows.saturating_sub(top)))
    }

    /// The matrix back from frames; `None` when frames are missing or of another size.
    pub fn join(&self, frames: &[Frame]) -> Option<Vec<u16>> {
        let mut samples = vec![0; self.rows * self.cols];
        for tile in 0..self.across * self.down {
            let plane = frames.get(tile / self.planes())?.planes.get(tile % self.planes())?;
            if plane.width < self.width || plane.height < self.height {
                return None;
            }
            if self.lies_plain() {
                let held = self.held(tile);
                for y in (0..held.1).take_while(|_| held.0 > 0) {
                    samples[self.index(tile, 0, y)..][..held.0].copy_from_slice(&plane.row(y)[..held.0]);
                }
                continue;
            }
            // Backwards, so that where padding repeats a value the true place wins.
            for y in (0..self.height).rev() {
                let row = plane.row(y);
                for x in (0..self.width).rev() {
                    samples[self.index(tile, x, y)] = row[x];
                }
            }
        }
        Some(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_shape_comes_back(
            rows in 1usize..90, cols in 1usize..90, transposed: bool, side in 16usize..70, which in 0usize..3,
        ) {
            let chroma = [Chroma::C400, Chroma::C420, Chroma::C444][which];
            let tiling = Tiling::new(rows, cols, transposed, Limits { side, chroma, depth: 12 });
            let samples: Vec<u16> = (0..rows * cols).map(|i| (i % 4096) as u16).collect();
            let frames = tiling.cut(&samples);
            prop_assert!(frames.iter().all(|frame| frame.width() <= side + 1 && frame.height() <= side + 1));
            prop_assert_eq!(tiling.join(&frames).unwrap(), samples);
        }
    }

    #[test]
    fn a_long_row_is_folded() {
        let limits = Limits { side: 4096, chroma: Chroma::C400, depth: 8 };
        let tiling = Tiling::new(1, 1_000_000, false, limits);
        assert_eq!((tiling.size(), tiling.frames()), ((1024, 977), 1));
    }
}
