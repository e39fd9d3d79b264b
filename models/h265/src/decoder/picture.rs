//! A picture under reconstruction: samples, and what later blocks and the
//! loop filters need to know of earlier ones.

use std::sync::Arc;

use trinity_bits::{Frame, Plane};

use super::layout::Layout;
use crate::deblock::{self, Edges, Offsets};
use crate::entropy::contexts::Contexts;
use crate::sao::{self, Area, Reachable, Sao};
use crate::syntax::{Pps, SliceHeader, Sps, Window};

/// Marks a CTB no slice has reached yet.
pub(super) const NOT_DECODED: u32 = u32::MAX;

/// What the loop filters need of a slice.
#[derive(Debug, Clone, Copy)]
struct SliceFilter {
    offsets: Offsets,
    across: bool,
}

/// What entropy coding hands from one slice segment to the next.
#[derive(Debug, Clone)]
pub(super) struct Entropy {
    pub contexts: Contexts,
    pub stat_coeff: [u8; 4],
}

#[derive(Debug, Clone)]
pub(super) struct Picture {
    pub sps: Arc<Sps>,
    pub pps: Arc<Pps>,
    pub layout: Arc<Layout>,
    pub planes: Vec<Plane>,
    /// Edges, QpY and losslessness, one entry a 4×4 luma block.
    pub edges: Edges,
    /// IntraPredModeY, one entry a 4×4 luma block.
    pub modes: Vec<u8>,
    /// CqtDepth, one entry a 4×4 luma block.
    pub depths: Vec<u8>,
    /// Index into `slices` of each CTB, in raster order, or [`NOT_DECODED`].
    pub slice_of: Vec<u32>,
    slices: Vec<SliceFilter>,
    /// SAO of each CTB and component, in raster order.
    pub sao: Vec<[Sao; 3]>,
    pub decoded_ctbs: usize,
    pub deblocking: bool,
    pub sao_used: bool,
    /// The last segment's header, which a dependent one continues.
    pub last_header: Option<SliceHeader>,
    /// State at the end of the last segment, and QpY of its last coding unit.
    pub segment_end: Option<(Entropy, i32)>,
    /// State after the second CTB of the row above, for wavefronts.
    pub row_above: Option<Entropy>,
    pub poc: i32,
    pub output: bool,
}

impl Picture {
    pub fn new(sps: Arc<Sps>, pps: Arc<Pps>, layout: Arc<Layout>) -> Self {
        let (width, height) = (sps.width as usize, sps.height as usize);
        let edges = Edges::new(width, height);
        let blocks = edges.qp.len();
        let ctbs = layout.tile.len();
        let frame = Frame::filled(width, height, sps.chroma, sps.bit_depth, 0);
        Self {
            planes: frame.planes,
            edges,
            modes: vec![crate::intra::DC; blocks],
            depths: vec![0; blocks],
            slice_of: vec![NOT_DECODED; ctbs],
            slices: Vec::new(),
            sao: vec![[Sao::Off; 3]; ctbs],
            decoded_ctbs: 0,
            deblocking: false,
            sao_used: false,
            last_header: None,
            segment_end: None,
            row_above: None,
            poc: 0,
            output: true,
            sps,
            pps,
            layout,
        }
    }

    /// Registers the slice of an independent segment; dependent ones belong
    /// to the last one registered. Returns its index.
    pub fn slice_index(&mut self, header: &SliceHeader) -> u32 {
        if !header.dependent || self.slices.is_empty() {
            self.slices.push(SliceFilter {
                offsets: Offsets {
                    beta_div2: header.deblocking.beta_offset_div2,
                    tc_div2: header.deblocking.tc_offset_div2,
                },
                across: header.loop_filter_across_slices,
            });
        }
        self.slices.len() as u32 - 1
    }

    /// Whether the CTB at `neighbour` is decoded and in the slice and tile of
    /// the one at `current` (both in raster order).
    pub fn reachable(&self, current: usize, neighbour: usize) -> bool {
        self.slice_of[neighbour] == self.slice_of[current]
            && self.layout.tile[neighbour] == self.layout.tile[current]
    }

    /// Whether loop filters of the CTB at `current` may use the one at
    /// `neighbour` (clauses 8.7.2.3 and 8.7.3.2): the later of two slices decides.
    pub fn filters_across(&self, current: usize, neighbour: usize) -> bool {
        let (a, b) = (self.slice_of[current], self.slice_of[neighbour]);
        // A neighbour that never came (or comes out of order) has no slice, and the picture is refused in the end.
        if a != b && !self.slices.get(a.max(b) as usize).is_some_and(|later| later.across) {
            return false;
        }
        let tiles_across = self.pps.tiles.as_ref().is_none_or(|tiles| tiles.loop_filter_across);
        tiles_across || self.layout.tile[current] == self.layout.tile[neighbour]
    }

    /// Runs the loop filters over the complete picture.
    pub fn filter(&mut self) {
        if self.deblocking {
            let offsets: Vec<_> = self.slice_of.iter().map(|&s| self.slices[s as usize].offsets).collect();
            let facts = deblock::Picture {
                chroma: self.sps.chroma_array(),
                depth: self.sps.bit_depth,
                chroma_depth: self.sps.chroma_bit_depth,
                qp_offset: self.pps.chroma_qp_offset,
                log2_ctb: self.sps.log2_ctb,
                ctbs: self.layout.columns,
                offsets: &offsets,
            };
            deblock::deblock(&mut self.planes, &self.edges, &facts);
        }
        if self.sao_used {
            self.filter_sao();
        }
    }

    fn filter_sao(&mut self) {
        let chroma = self.sps.chroma_array();
        let keeps =
            self.sps.pcm.is_some_and(|pcm| pcm.loop_filter_disabled) || self.pps.transquant_bypass_enabled;
        for c in 0..self.planes.len() {
            if self.sao.iter().all(|sao| sao[c] == Sao::Off) {
                continue;
            }
            let deblocked = self.planes[c].clone();
            let mut out = std::mem::replace(&mut self.planes[c], Plane::filled(0, 0, 0));
            let (sx, sy) = if c == 0 { (0, 0) } else { chroma.shift() };
            let (width, height) = (1usize << (self.sps.log2_ctb - sx), 1usize << (self.sps.log2_ctb - sy));
            for ctb in 0..self.sao.len() {
                let (x, y) = (ctb % self.layout.columns * width, ctb / self.layout.columns * height);
                let area = Area { x, y, width: width.min(out.width - x), height: height.min(out.height - y) };
                let sao = self.sao[ctb][c];
                if sao != Sao::Off {
                    let keep = |x: usize, y: usize| {
                        keeps && self.edges.keep[((y << sy) / 4) * self.edges.stride + (x << sx) / 4]
                    };
                    let depth = self.sps.depth(c);
                    sao::apply(sao, &deblocked, &mut out, area, &self.surroundings(ctb), depth, keep);
                }
            }
            self.planes[c] = out;
        }
    }

    /// Which of the eight CTBs around `ctb` SAO may look at.
    fn surroundings(&self, ctb: usize) -> Reachable {
        let (columns, rows) = (self.layout.columns as isize, self.layout.rows as isize);
        let (x, y) = (ctb as isize % columns, ctb as isize / columns);
        std::array::from_fn(|dy| {
            std::array::from_fn(|dx| {
                let (nx, ny) = (x + dx as isize - 1, y + dy as isize - 1);
                (0..columns).contains(&nx)
                    && (0..rows).contains(&ny)
                    && self.filters_across(ctb, (ny * columns + nx) as usize)
            })
        })
    }

    /// The picture inside its conformance window.
    pub fn into_frame(self) -> Frame {
        let (window, chroma) = (self.sps.conformance_window, self.sps.chroma);
        let planes = self.planes.into_iter().enumerate().map(|(c, plane)| {
            if window == Window::default() {
                return plane;
            }
            // The window counts in chroma samples; luma has SubWidthC times as many.
            let (sx, sy) = if c == 0 { chroma.shift() } else { (0, 0) };
            let [left, right] = [window.left, window.right].map(|side| (side as usize) << sx);
            let [top, bottom] = [window.top, window.bottom].map(|side| (side as usize) << sy);
            plane.crop((left, top), (plane.width - left - right, plane.height - top - bottom))
        });
        Frame {
            chroma,
            depth: self.sps.bit_depth,
            chroma_depth: self.sps.chroma_bit_depth,
            planes: planes.collect(),
        }
    }
}
