//! The deblocking filter (H.265 clause 8.7.2) of intra pictures.
//!
//! Every transform edge of an intra picture has boundary strength 2, so an
//! edge either is filtered or is not: [`Edges`] says where, in 4×4 luma units.
//! Who may cross slice and tile borders is decided by whoever sets the flags.

use trinity_bits::{Chroma, Plane};

/// Table 8-12: β′ by Q.
const BETA: [u8; 52] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22,
    24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 64,
];

/// Table 8-12: tC′ by Q.
const TC: [u8; 54] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
    4, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10, 11, 13, 14, 16, 18, 20, 22, 24,
];

/// Table 8-10: QpC of 4:2:0 as a function of qPi, for 30 ≤ qPi ≤ 43.
const QP_C: [i32; 14] = [29, 30, 31, 32, 33, 33, 34, 34, 35, 35, 36, 36, 37, 37];

/// QpC as a function of the index qPi (Table 8-10 for 4:2:0, a limit otherwise).
/// Used by quantization and deblocking alike.
pub fn chroma_qp(index: i32, chroma: Chroma) -> i32 {
    if chroma != Chroma::C420 {
        index.min(51)
    } else if index < 30 {
        index
    } else if index >= 43 {
        index - 6
    } else {
        QP_C[(index - 30) as usize]
    }
}

/// What the filter knows of a picture, one entry for every 4×4 luma block,
/// row by row.
#[derive(Debug, Clone, Default)]
pub struct Edges {
    /// Blocks in a row.
    pub stride: usize,
    /// Rows of blocks.
    pub rows: usize,
    /// The block's left side is an edge to filter.
    pub vertical: Vec<bool>,
    /// The block's upper side is an edge to filter.
    pub horizontal: Vec<bool>,
    /// QpY of the coding unit around the block.
    pub qp: Vec<i8>,
    /// Samples that loop filters leave alone: `cu_transquant_bypass`, and PCM
    /// under `pcm_loop_filter_disabled_flag`.
    pub keep: Vec<bool>,
}

impl Edges {
    /// No edges, for a picture of `width` × `height` luma samples.
    pub fn new(width: usize, height: usize) -> Self {
        let (stride, rows) = (width.div_ceil(4), height.div_ceil(4));
        let count = stride * rows;
        Self {
            stride,
            rows,
            vertical: vec![false; count],
            horizontal: vec![false; count],
            qp: vec![0; count],
            keep: vec![false; count],
        }
    }
}

/// slice_beta_offset_div2 and slice_tc_offset_div2 of the slice a CTB is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offsets {
    pub beta_div2: i32,
    pub tc_div2: i32,
}

/// Picture-wide facts.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    pub chroma: Chroma,
    pub depth: u32,
    pub chroma_depth: u32,
    /// pps_cb_qp_offset and pps_cr_qp_offset; slice and CU offsets play no part.
    pub qp_offset: [i32; 2],
    pub log2_ctb: u32,
    /// CTBs in a row.
    pub ctbs: usize,
    /// One entry a CTB, in raster order.
    pub offsets: &'a [Offsets],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Vertical,
    Horizontal,
}

/// Filters a whole picture: all vertical edges, then all horizontal ones.
pub fn deblock(planes: &mut [Plane], edges: &Edges, picture: &Picture<'_>) {
    for direction in [Direction::Vertical, Direction::Horizontal] {
        for (c, plane) in planes.iter_mut().enumerate() {
            for row in 0..edges.rows {
                for column in 0..edges.stride {
                    filter_unit(plane, c, edges, picture, direction, column, row);
                }
            }
        }
    }
}

/// Filters the edge segment on the left or upper side of one 4×4 luma block,
/// in plane `c`.
fn filter_unit(
    plane: &mut Plane,
    c: usize,
    edges: &Edges,
    picture: &Picture<'_>,
    direction: Direction,
    column: usize,
    row: usize,
) {
    let at = row * edges.stride + column;
    let (flagged, position, before) = match direction {
        Direction::Vertical => (edges.vertical[at], column, 1),
        Direction::Horizontal => (edges.horizontal[at], row, edges.stride),
    };
    if !flagged || position == 0 {
        return;
    }
    let (sx, sy) = if c == 0 { (0, 0) } else { picture.chroma.shift() };
    let across_shift = if direction == Direction::Vertical { sx } else { sy };
    // Edges lie on a grid of 8 samples of the plane.
    if !((position * 4) >> across_shift).is_multiple_of(8) {
        return;
    }
    let (x, y) = ((column * 4) >> sx, (row * 4) >> sy);
    let along_shift = if direction == Direction::Vertical { sy } else { sx };
    let length = (4 >> along_shift) as usize;
    let (step, along) = match direction {
        Direction::Vertical => (1, plane.width),
        Direction::Horizontal => (plane.width, 1),
    };
    let ctb = ((row * 4) >> picture.log2_ctb) * picture.ctbs + ((column * 4) >> picture.log2_ctb);
    let segment = Segment {
        origin: y * plane.width + x,
        step,
        along,
        length,
        keep: [edges.keep[at - before], edges.keep[at]],
        qp: (i32::from(edges.qp[at - before]) + i32::from(edges.qp[at]) + 1) >> 1,
        offsets: picture.offsets[ctb],
    };
    if c == 0 {
        segment.filter_luma(&mut plane.samples, picture.depth);
    } else {
        let qp = chroma_qp(segment.qp + picture.qp_offset[c - 1], picture.chroma);
        segment.filter_chroma(&mut plane.samples, qp, picture.chroma_depth);
    }
}

/// A few lines of samples across one edge.
struct Segment {
    /// q0 of the first line.
    origin: usize,
    /// Distance from q0 to q1.
    step: usize,
    /// Distance from one line to the next.
    along: usize,
    length: usize,
    /// Whether the P and Q side stay as they are.
    keep: [bool; 2],
    /// Mean QpY of both sides.
    qp: i32,
    offsets: Offsets,
}

impl Segment {
    /// Sample `i` of line `k`: 0 is q0, -1 is p0.
    fn at(&self, k: usize, i: isize) -> usize {
        (self.origin + k * self.along).wrapping_add_signed(i * self.step as isize)
    }

    /// tC for boundary strength 2.
    fn tc(&self, qp: i32, depth: u32) -> i32 {
        let q = (qp + 2 + 2 * self.offsets.tc_div2).clamp(0, 53);
        i32::from(TC[q as usize]) << (depth - 8)
    }

    /// Clauses 8.7.2.5.3, 8.7.2.5.6 and 8.7.2.5.7.
    fn filter_luma(&self, samples: &mut [u16], depth: u32) {
        let q = (self.qp + 2 * self.offsets.beta_div2).clamp(0, 51);
        let beta = i32::from(BETA[q as usize]) << (depth - 8);
        let tc = self.tc(self.qp, depth);
        let s = |k: usize, i: isize| i32::from(samples[self.at(k, i)]);
        let bend_p = |k| (s(k, -3) - 2 * s(k, -2) + s(k, -1)).abs();
        let bend_q = |k| (s(k, 2) - 2 * s(k, 1) + s(k, 0)).abs();
        let (p0, p3, q0, q3) = (bend_p(0), bend_p(3), bend_q(0), bend_q(3));
        if p0 + q0 + p3 + q3 >= beta {
            return;
        }
        let flat = |k: usize, bend: i32| {
            2 * bend < beta >> 2
                && (s(k, -4) - s(k, -1)).abs() + (s(k, 0) - s(k, 3)).abs() < beta >> 3
                && (s(k, -1) - s(k, 0)).abs() < (5 * tc + 1) >> 1
        };
        if flat(0, p0 + q0) && flat(3, p3 + q3) {
            for k in 0..4 {
                self.strong(samples, k, tc);
            }
        } else {
            let side = (beta + (beta >> 1)) >> 3;
            let second = [p0 + p3 < side, q0 + q3 < side];
            for k in 0..4 {
                self.normal(samples, k, tc, second, depth);
            }
        }
    }

    fn strong(&self, samples: &mut [u16], k: usize, tc: i32) {
        let s = |i: isize| i32::from(samples[self.at(k, i)]);
        let (p3, p2, p1, p0) = (s(-4), s(-3), s(-2), s(-1));
        let (q0, q1, q2, q3) = (s(0), s(1), s(2), s(3));
        let limit = |new: i32, old: i32| new.clamp(old - 2 * tc, old + 2 * tc) as u16;
        let p = [
            limit((p2 + 2 * p1 + 2 * p0 + 2 * q0 + q1 + 4) >> 3, p0),
            limit((p2 + p1 + p0 + q0 + 2) >> 2, p1),
            limit((2 * p3 + 3 * p2 + p1 + p0 + q0 + 4) >> 3, p2),
        ];
        let q = [
            limit((p1 + 2 * p0 + 2 * q0 + 2 * q1 + q2 + 4) >> 3, q0),
            limit((p0 + q0 + q1 + q2 + 2) >> 2, q1),
            limit((p0 + q0 + q1 + 3 * q2 + 2 * q3 + 4) >> 3, q2),
        ];
        for i in 0..3 {
            if !self.keep[0] {
                samples[self.at(k, -1 - i as isize)] = p[i];
            }
            if !self.keep[1] {
                samples[self.at(k, i as isize)] = q[i];
            }
        }
    }

    fn normal(&self, samples: &mut [u16], k: usize, tc: i32, second: [bool; 2], depth: u32) {
        let high = (1 << depth) - 1;
        let s = |i: isize| i32::from(samples[self.at(k, i)]);
        let (p2, p1, p0) = (s(-3), s(-2), s(-1));
        let (q0, q1, q2) = (s(0), s(1), s(2));
        let delta = (9 * (q0 - p0) - 3 * (q1 - p1) + 8) >> 4;
        if delta.abs() >= 10 * tc {
            return;
        }
        let delta = delta.clamp(-tc, tc);
        let half = tc >> 1;
        if !self.keep[0] {
            samples[self.at(k, -1)] = (p0 + delta).clamp(0, high) as u16;
            if second[0] {
                let change = ((((p2 + p0 + 1) >> 1) - p1 + delta) >> 1).clamp(-half, half);
                samples[self.at(k, -2)] = (p1 + change).clamp(0, high) as u16;
            }
        }
        if !self.keep[1] {
            samples[self.at(k, 0)] = (q0 - delta).clamp(0, high) as u16;
            if second[1] {
                let change = ((((q2 + q0 + 1) >> 1) - q1 - delta) >> 1).clamp(-half, half);
                samples[self.at(k, 1)] = (q1 + change).clamp(0, high) as u16;
            }
        }
    }

    /// Clauses 8.7.2.5.5 and 8.7.2.5.8; `qp` is QpC.
    fn filter_chroma(&self, samples: &mut [u16], qp: i32, depth: u32) {
        let tc = self.tc(qp, depth);
        let high = (1 << depth) - 1;
        for k in 0..self.length {
            let s = |i: isize| i32::from(samples[self.at(k, i)]);
            let (p1, p0, q0, q1) = (s(-2), s(-1), s(0), s(1));
            let delta = ((((q0 - p0) << 2) + p1 - q1 + 4) >> 3).clamp(-tc, tc);
            if !self.keep[0] {
                samples[self.at(k, -1)] = (p0 + delta).clamp(0, high) as u16;
            }
            if !self.keep[1] {
                samples[self.at(k, 0)] = (q0 - delta).clamp(0, high) as u16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step_edge(chroma: Chroma, keep_left: bool) -> Vec<Plane> {
        let mut edges = Edges::new(16, 16);
        for row in 0..4 {
            edges.vertical[row * 4 + 2] = true;
            if keep_left {
                edges.keep[row * 4] = true;
                edges.keep[row * 4 + 1] = true;
            }
        }
        edges.qp.fill(37);
        let frame = trinity_bits::Frame::filled(16, 16, chroma, 8, 100);
        let mut planes = frame.planes;
        for plane in &mut planes {
            let half = plane.width / 2;
            for y in 0..plane.height {
                plane.row_mut(y)[half..].fill(108);
            }
        }
        let picture = Picture {
            chroma,
            depth: 8,
            chroma_depth: 8,
            qp_offset: [0; 2],
            log2_ctb: 4,
            ctbs: 1,
            offsets: &[Offsets::default()],
        };
        deblock(&mut planes, &edges, &picture);
        planes
    }

    #[test]
    fn a_small_step_becomes_a_ramp() {
        let planes = step_edge(Chroma::C444, false);
        assert_eq!(planes[0].row(0)[4..12], [100, 101, 102, 103, 105, 106, 107, 108]);
        assert_eq!(planes[1].row(3)[6..10], [100, 103, 105, 108]);
    }

    #[test]
    fn lossless_samples_stay() {
        let planes = step_edge(Chroma::C444, true);
        assert_eq!(planes[0].row(0)[..8], [100; 8]);
        assert_ne!(planes[0].row(0)[8..12], [108; 4]);
    }

    #[test]
    fn chroma_edges_lie_on_a_grid_of_eight_chroma_samples() {
        // The luma edge at 8 falls on chroma sample 4 in 4:2:0 and 4:2:2.
        assert_eq!(step_edge(Chroma::C420, false)[1].row(0)[2..6], [100, 100, 108, 108]);
        assert_eq!(step_edge(Chroma::C422, false)[2].row(0)[2..6], [100, 100, 108, 108]);
    }

    #[test]
    fn tables_have_not_been_misprinted() {
        assert_eq!(BETA.iter().map(|&v| u32::from(v)).sum::<u32>(), 1122);
        assert_eq!(TC.iter().map(|&v| u32::from(v)).sum::<u32>(), 235);
        assert_eq!(chroma_qp(29, Chroma::C420), 29);
        assert_eq!(chroma_qp(43, Chroma::C420), 37);
        assert_eq!(chroma_qp(57, Chroma::C420), 51);
        assert_eq!(chroma_qp(57, Chroma::C444), 51);
    }
}
