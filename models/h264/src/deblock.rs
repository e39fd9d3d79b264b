//! The deblocking filter (clause 8.7) of pictures whose macroblocks are all
//! intra, so that every edge has strength 3 or 4.
//!
//! Runs over a whole coded picture after its last macroblock, since intra
//! prediction uses unfiltered samples.

use crate::macroblock::{MbInfo, MbMap};
use crate::picture::{MbRows, PlaneBuffer};
use crate::reconstruct::Rebuild;
use crate::syntax::slice_header::{Deblocking, Structure};
use crate::tables::{ALPHA, BETA, TC0_BS3};
use trinity_bits::Chroma;

/// What the filter needs to know of a slice.
#[derive(Debug, Clone)]
pub struct SliceFilter {
    pub deblocking: Deblocking,
    /// FilterOffsetA and FilterOffsetB.
    pub offset: [i32; 2],
    pub rebuild: Rebuild,
}

/// A coded picture to be filtered, one colour plane or all of them.
pub struct PictureFilter<'a> {
    pub map: &'a MbMap,
    /// Filters of slices, by slice number less one.
    pub slices: &'a [SliceFilter],
    pub structure: Structure,
    pub chroma: Chroma,
}

/// A line of samples between two blocks.
#[derive(Clone, Copy)]
struct Line {
    /// Index of the first q0.
    at: usize,
    /// Samples from p0 to q0.
    across: usize,
    /// Samples from one place of the edge to the next.
    along: usize,
    count: usize,
}

/// Thresholds of one edge (clause 8.7.2.2).
#[derive(Clone, Copy)]
struct Thresholds {
    alpha: i32,
    beta: i32,
    tc0: i32,
    limit: i32,
    /// bS is 4, not 3.
    strong: bool,
    /// chromaStyleFilteringFlag.
    chroma_style: bool,
}

/// Where macroblock `addr` lies in `plane`.
pub fn mb_rows(map: &MbMap, addr: usize, field: bool, structure: Structure, plane: &PlaneBuffer) -> MbRows {
    let (column, row) = map.position(addr);
    let x = column * plane.mb_width;
    let height = plane.mb_height;
    match structure {
        _ if map.mbaff && field => MbRows { x, y: row * 2 * height + addr % 2, step: 2 },
        _ if map.mbaff => MbRows { x, y: (row * 2 + addr % 2) * height, step: 1 },
        Structure::Frame => MbRows { x, y: row * height, step: 1 },
        Structure::TopField => MbRows { x, y: row * height * 2, step: 2 },
        Structure::BottomField => MbRows { x, y: row * height * 2 + 1, step: 2 },
    }
}

impl PictureFilter<'_> {
    /// Filters `planes`: all of a picture's, or the one that is coded on its own.
    pub fn run(&self, planes: &mut [PlaneBuffer]) {
        if self.slices.iter().all(|slice| slice.deblocking == Deblocking::Off) {
            return;
        }
        for addr in 0..self.map.infos.len() {
            let info = &self.map.infos[addr];
            let slice = &self.slices[info.slice as usize - 1];
            if slice.deblocking != Deblocking::Off {
                for (c, plane) in planes.iter_mut().enumerate() {
                    self.macroblock(addr, info, slice, c, plane);
                }
            }
        }
    }

    fn may_cross(&self, slice: &SliceFilter, current: &MbInfo, other: usize) -> bool {
        slice.deblocking == Deblocking::On || self.map.infos[other].slice == current.slice
    }

    fn macroblock(&self, addr: usize, info: &MbInfo, slice: &SliceFilter, c: usize, plane: &mut PlaneBuffer) {
        let rows = mb_rows(self.map, addr, info.field, self.structure, plane);
        let luma_like = c == 0 || self.chroma == Chroma::C444;
        let edges = Edges { slice, plane_index: c, depth: plane.depth, chroma_style: !luma_like };
        // Chroma of 4:2:0 and 4:2:2 has 4×4 blocks whatever luma does.
        let block = if luma_like && info.transform_8x8() { 8 } else { 4 };
        let (width, height) = (plane.mb_width, plane.mb_height);
        let pitch = plane.stride * rows.step;
        let start = rows.y * plane.stride + rows.x;

        self.left_edge(addr, info, &edges, rows, plane);
        for x in (block..width).step_by(block) {
            let line = Line { at: start + x, across: 1, along: pitch, count: height };
            filter(&mut plane.samples, line, edges.thresholds(info, info, false));
        }
        self.top_edge(addr, info, &edges, rows, plane);
        for y in (block..height).step_by(block) {
            let line = Line { at: start + y * pitch, across: pitch, along: 1, count: width };
            filter(&mut plane.samples, line, edges.thresholds(info, info, false));
        }
    }

    fn left_edge(&self, addr: usize, info: &MbInfo, edges: &Edges, rows: MbRows, plane: &mut PlaneBuffer) {
        if rows.x == 0 {
            return;
        }
        let pitch = plane.stride * rows.step;
        let at = rows.y * plane.stride + rows.x;
        if !self.map.mbaff {
            if self.may_cross(edges.slice, info, addr - 1) {
                let line = Line { at, across: 1, along: pitch, count: plane.mb_height };
                filter(&mut plane.samples, line, edges.thresholds(&self.map.infos[addr - 1], info, true));
            }
            return;
        }
        let left = addr / 2 - 1;
        if self.may_cross(edges.slice, info, 2 * left) {
            let top = rows.y / (2 * plane.mb_height) * 2 * plane.mb_height;
            for y in 0..plane.mb_height {
                let beside = self.map.in_pair(left, rows.y + y * rows.step - top, plane.mb_height);
                let line = Line { at: at + y * pitch, across: 1, along: pitch, count: 1 };
                filter(&mut plane.samples, line, edges.thresholds(&self.map.infos[beside], info, true));
            }
        }
    }

    fn top_edge(&self, addr: usize, info: &MbInfo, edges: &Edges, rows: MbRows, plane: &mut PlaneBuffer) {
        let (stride, width) = (plane.stride, self.map.width);
        let at = rows.y * stride + rows.x;
        let count = plane.mb_width;
        let mut run = |at: usize, step: usize, above: usize, strong: bool| {
            let line = Line { at, across: step * stride, along: 1, count };
            filter(&mut plane.samples, line, edges.thresholds(&self.map.infos[above], info, strong));
        };
        if !self.map.mbaff {
            if addr >= width && self.may_cross(edges.slice, info, addr - width) {
                run(at, rows.step, addr - width, self.structure == Structure::Frame);
            }
            return;
        }
        if !info.field && addr % 2 == 1 {
            return run(at, 1, addr - 1, true);
        }
        let pair = addr / 2;
        if pair < width || !self.may_cross(edges.slice, info, 2 * (pair - width)) {
            return;
        }
        let above = 2 * (pair - width);
        let above_is_field = self.map.infos[above].field;
        if info.field {
            run(at, 2, above + if above_is_field { addr % 2 } else { 1 }, false);
        } else if above_is_field {
            // A frame macroblock below a field pair is filtered field by field.
            for parity in 0..2 {
                run(at + parity * stride, 2, above + parity, false);
            }
        } else {
            run(at, 1, above + 1, true);
        }
    }
}

/// What the edges of one macroblock in one plane have in common.
struct Edges<'a> {
    slice: &'a SliceFilter,
    plane_index: usize,
    depth: u32,
    chroma_style: bool,
}

impl Edges<'_> {
    fn qp(&self, info: &MbInfo) -> i32 {
        let qp = i32::from(info.qp);
        if self.plane_index == 0 { qp } else { self.slice.rebuild.chroma_qp(qp, self.plane_index - 1) }
    }

    fn thresholds(&self, p: &MbInfo, q: &MbInfo, strong: bool) -> Thresholds {
        let qp = (self.qp(p) + self.qp(q) + 1) >> 1;
        let index = |offset: i32| (qp + offset).clamp(0, 51) as usize;
        let (a, b) = (index(self.slice.offset[0]), index(self.slice.offset[1]));
        let scale = self.depth - 8;
        Thresholds {
            alpha: i32::from(ALPHA[a]) << scale,
            beta: i32::from(BETA[b]) << scale,
            tc0: i32::from(TC0_BS3[a]) << scale,
            limit: (1 << self.depth) - 1,
            strong,
            chroma_style: self.chroma_style,
        }
    }
}

fn filter(samples: &mut [u16], line: Line, t: Thresholds) {
    if t.alpha == 0 || t.beta == 0 {
        return;
    }
    for k in 0..line.count {
        let at = line.at + k * line.along;
        let p = |i: usize| i32::from(samples[at - (i + 1) * line.across]);
        let q = |i: usize| i32::from(samples[at + i * line.across]);
        let (p0, p1, q0, q1) = (p(0), p(1), q(0), q(1));
        if (p0 - q0).abs() >= t.alpha || (p1 - p0).abs() >= t.beta || (q1 - q0).abs() >= t.beta {
            continue;
        }
        if t.chroma_style {
            let (new_p, new_q) = if t.strong {
                ((2 * p1 + p0 + q1 + 2) >> 2, (2 * q1 + q0 + p1 + 2) >> 2)
            } else {
                shift_towards(p0, p1, q0, q1, t.tc0 + 1, t.limit)
            };
            samples[at - line.across] = new_p as u16;
            samples[at] = new_q as u16;
            continue;
        }
        let (p2, q2) = (p(2), q(2));
        let (smooth_p, smooth_q) = ((p2 - p0).abs() < t.beta, (q2 - q0).abs() < t.beta);
        if t.strong {
            let small_step = (p0 - q0).abs() < (t.alpha >> 2) + 2;
            let (p3, q3) = if small_step { (p(3), q(3)) } else { (0, 0) };
            if smooth_p && small_step {
                samples[at - line.across] = ((p2 + 2 * p1 + 2 * p0 + 2 * q0 + q1 + 4) >> 3) as u16;
                samples[at - 2 * line.across] = ((p2 + p1 + p0 + q0 + 2) >> 2) as u16;
                samples[at - 3 * line.across] = ((2 * p3 + 3 * p2 + p1 + p0 + q0 + 4) >> 3) as u16;
            } else {
                samples[at - line.across] = ((2 * p1 + p0 + q1 + 2) >> 2) as u16;
            }
            if smooth_q && small_step {
                samples[at] = ((p1 + 2 * p0 + 2 * q0 + 2 * q1 + q2 + 4) >> 3) as u16;
                samples[at + line.across] = ((p0 + q0 + q1 + q2 + 2) >> 2) as u16;
                samples[at + 2 * line.across] = ((2 * q3 + 3 * q2 + q1 + q0 + p0 + 4) >> 3) as u16;
            } else {
                samples[at] = ((2 * q1 + q0 + p1 + 2) >> 2) as u16;
            }
        } else {
            let tc = t.tc0 + i32::from(smooth_p) + i32::from(smooth_q);
            let (new_p, new_q) = shift_towards(p0, p1, q0, q1, tc, t.limit);
            samples[at - line.across] = new_p as u16;
            samples[at] = new_q as u16;
            let middle = (p0 + q0 + 1) >> 1;
            if smooth_p {
                let delta = ((p2 + middle - 2 * p1) >> 1).clamp(-t.tc0, t.tc0);
                samples[at - 2 * line.across] = (p1 + delta) as u16;
            }
            if smooth_q {
                let delta = ((q2 + middle - 2 * q1) >> 1).clamp(-t.tc0, t.tc0);
                samples[at + line.across] = (q1 + delta) as u16;
            }
        }
    }
}

/// p0 and q0 moved towards each other by at most `tc` (equations 8-475 to 8-477).
fn shift_towards(p0: i32, p1: i32, q0: i32, q1: i32, tc: i32, limit: i32) -> (i32, i32) {
    let delta = ((((q0 - p0) << 2) + (p1 - q1) + 4) >> 3).clamp(-tc, tc);
    ((p0 + delta).clamp(0, limit), (q0 - delta).clamp(0, limit))
}
