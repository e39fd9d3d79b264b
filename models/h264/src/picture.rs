//! The samples of a frame under reconstruction, and the window one macroblock
//! is predicted and rebuilt in.

use crate::intra::{Available, Edge, MbEdge};
use trinity_bits::{Chroma, Frame, Plane};

/// One component, whole macroblocks, rows without gaps.
#[derive(Debug, Clone)]
pub struct PlaneBuffer {
    pub samples: Vec<u16>,
    pub stride: usize,
    /// Size of a macroblock in this plane.
    pub mb_width: usize,
    pub mb_height: usize,
    pub depth: u32,
}

/// The planes of a frame in whole macroblocks.
#[derive(Debug, Clone)]
pub struct Picture {
    pub chroma: Chroma,
    pub planes: Vec<PlaneBuffer>,
}

impl Picture {
    pub fn new(chroma: Chroma, width_mbs: usize, height_mbs: usize, depths: [u32; 2]) -> Self {
        let planes = (0..chroma.planes())
            .map(|c| {
                let (mb_width, mb_height) = chroma.plane_size(c, 16, 16);
                let (stride, height) = (width_mbs * mb_width, height_mbs * mb_height);
                PlaneBuffer {
                    samples: vec![0; stride * height],
                    stride,
                    mb_width,
                    mb_height,
                    depth: depths[usize::from(c > 0)],
                }
            })
            .collect();
        Self { chroma, planes }
    }

    /// The frame inside the cropping rectangle, given as left, top, width and height of luma.
    pub fn crop(&self, left: usize, top: usize, width: usize, height: usize) -> Frame {
        let (sx, sy) = self.chroma.shift();
        let planes = self
            .planes
            .iter()
            .enumerate()
            .map(|(c, plane)| {
                let (sx, sy) = if c == 0 { (0, 0) } else { (sx, sy) };
                let (w, h) = self.chroma.plane_size(c, width, height);
                let mut samples = Vec::with_capacity(w * h);
                for y in 0..h {
                    let start = ((top >> sy) + y) * plane.stride + (left >> sx);
                    samples.extend_from_slice(&plane.samples[start..start + w]);
                }
                Plane { width: w, height: h, samples }
            })
            .collect();
        let depth = self.planes[0].depth;
        let chroma_depth = self.planes.get(1).map_or(depth, |plane| plane.depth);
        Frame { chroma: self.chroma, depth, chroma_depth, planes }
    }
}

/// Where the samples of a macroblock lie in a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MbRows {
    /// Column of the left sample and row of the top one.
    pub x: usize,
    pub y: usize,
    /// Distance of its rows: 2 in fields.
    pub step: usize,
}

const STRIDE: usize = 32;
const LEFT: usize = 8;

/// A macroblock of one plane and the samples around it: row and column -1,
/// and up to eight samples beyond its right end in the row above.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    samples: [u16; 17 * STRIDE],
}

impl Default for Window {
    fn default() -> Self {
        Self { samples: [0; 17 * STRIDE] }
    }
}

impl Window {
    #[inline(always)]
    const fn at(x: usize, y: usize) -> usize {
        (y + 1) * STRIDE + LEFT + x
    }

    pub fn load(&mut self, plane: &PlaneBuffer, rows: MbRows, available: Available) {
        let (width, height) = (plane.mb_width, plane.mb_height);
        if available.top {
            let start = (rows.y - rows.step) * plane.stride + rows.x;
            self.samples[LEFT..LEFT + width].copy_from_slice(&plane.samples[start..start + width]);
            if available.top_right {
                let next = start + width;
                self.samples[LEFT + width..LEFT + width + 8].copy_from_slice(&plane.samples[next..next + 8]);
            }
        }
        if available.top_left {
            self.samples[LEFT - 1] = plane.samples[(rows.y - rows.step) * plane.stride + rows.x - 1];
        }
        if available.left {
            let start = rows.y * plane.stride + rows.x - 1;
            let pitch = rows.step * plane.stride;
            for y in 0..height {
                self.samples[Self::at(0, y) - 1] = plane.samples[start + y * pitch];
            }
        }
    }

    pub fn store(&self, plane: &mut PlaneBuffer, rows: MbRows) {
        let start = rows.y * plane.stride + rows.x;
        let pitch = rows.step * plane.stride;
        let width = plane.mb_width;
        for y in 0..plane.mb_height {
            let from = Self::at(0, y);
            plane.samples[start + y * pitch..][..width].copy_from_slice(&self.samples[from..from + width]);
        }
    }

    /// The neighbours of the N×N block at (x, y).
    #[inline(always)]
    pub fn edge<const N: usize>(&self, x: usize, y: usize, available: Available, depth: u32) -> Edge<N> {
        let at = Self::at(x, y);
        let left = std::array::from_fn(|row| self.samples[at + row * STRIDE - 1]);
        let above = at - STRIDE;
        Edge::new(&left, self.samples[above - 1], &self.samples[above..above + 2 * N], available, depth)
    }

    pub fn mb_edge(&self, available: Available, depth: u32) -> MbEdge {
        MbEdge {
            left: std::array::from_fn(|y| self.samples[Self::at(0, y) - 1]),
            corner: self.samples[LEFT - 1],
            top: std::array::from_fn(|x| self.samples[LEFT + x]),
            available,
            depth,
        }
    }

    #[inline(always)]
    pub fn row_mut(&mut self, y: usize) -> &mut [u16; 16] {
        let at = Self::at(0, y);
        (&mut self.samples[at..at + 16]).try_into().unwrap_or_else(|_| unreachable!("sixteen samples"))
    }

    #[inline(always)]
    pub fn row(&self, y: usize) -> &[u16; 16] {
        let at = Self::at(0, y);
        (&self.samples[at..at + 16]).try_into().unwrap_or_else(|_| unreachable!("sixteen samples"))
    }

    #[inline(always)]
    pub fn put<const N: usize>(&mut self, x: usize, y: usize, block: &[[u16; N]; N]) {
        for (row, samples) in block.iter().enumerate() {
            // As an array: a copy of a length the compiler knows is no call.
            if let Some(own) = self.samples[Self::at(x, y + row)..].first_chunk_mut() {
                *own = *samples;
            }
        }
    }

    /// Adds a residual to the N×N block at (x, y), clipping to `limit`.
    #[inline(always)]
    pub fn add<const N: usize>(&mut self, x: usize, y: usize, residual: &[i32], limit: i32) {
        for row in 0..N {
            let at = Self::at(x, y + row);
            for (s, r) in self.samples[at..at + N].iter_mut().zip(&residual[row * N..row * N + N]) {
                *s = i32::from(*s).wrapping_add(*r).clamp(0, limit) as u16;
            }
        }
    }
}

/// Availability for the block at (x, y) of a macroblock whose own neighbours are
/// `mb` and whose blocks, 4×4 or 8×8, go up to `last` each way (clause 6.4.11.4):
/// blocks later in decoding order are not there yet.
#[inline(always)]
pub fn available(x: usize, y: usize, last: usize, mb: Available) -> Available {
    Available {
        left: x > 0 || mb.left,
        top: y > 0 || mb.top,
        top_left: match (x, y) {
            (0, 0) => mb.top_left,
            (0, _) => mb.left,
            (_, 0) => mb.top,
            _ => true,
        },
        top_right: match (x, y) {
            (_, 0) if x == last => mb.top_right,
            (_, 0) => mb.top,
            (1, 1 | 3) => false,
            _ => x < last,
        },
    }
}
