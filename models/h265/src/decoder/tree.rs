//! coding_quadtree() to transform_unit() (H.265 clauses 7.3.8.4 to 7.3.8.12)
//! of intra slices.

use trinity_bits::intra_modes::{most_probable, remaining_mode};
use trinity_bits::{BitReader, Chroma, invalid};

use super::residual::Residual;
use super::slice::{Share, SliceDecoder};
use crate::intra;
use crate::syntax::BitstreamError;

/// A coding unit whose header has been parsed.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodingUnit {
    pub x: usize,
    pub y: usize,
    pub log2: u32,
    pub transquant_bypass: bool,
    /// PART_NxN.
    pub split: bool,
    /// IntraPredModeY of each part.
    pub luma_modes: [u8; 4],
    /// IntraPredModeC of each part.
    pub chroma_modes: [u8; 4],
    /// intra_chroma_pred_mode is 4: chroma is predicted like luma.
    pub chroma_follows: [bool; 4],
}

impl CodingUnit {
    /// The part that the luma position (`x`, `y`) lies in.
    fn part(&self, x: usize, y: usize) -> usize {
        if !self.split {
            return 0;
        }
        let half = 1 << (self.log2 - 1);
        usize::from(x - self.x >= half) + 2 * usize::from(y - self.y >= half)
    }
}

/// A node of the transform tree.
#[derive(Debug, Clone, Copy)]
struct Node {
    x: usize,
    y: usize,
    log2: u32,
    depth: u32,
    /// Which child of its parent this is.
    index: usize,
    /// cbf_cb and cbf_cr; two each in 4:2:2, upper block first.
    cbf_chroma: [[bool; 2]; 2],
}

impl SliceDecoder<'_> {
    pub fn coding_quadtree(
        &mut self,
        x: usize,
        y: usize,
        log2: u32,
        depth: u8,
    ) -> Result<(), BitstreamError> {
        let size = 1usize << log2;
        let (width, height) = (self.sps.width as usize, self.sps.height as usize);
        let split = if x + size <= width && y + size <= height && log2 > self.sps.log2_min_cb {
            self.split_cu_flag(x, y, depth)
        } else {
            log2 > self.sps.log2_min_cb
        };
        if let Some(group_depth) = self.pps.cu_qp_delta_depth
            && log2 >= self.sps.log2_ctb - group_depth
        {
            self.qp.delta_coded = false;
            self.qp.cu_qp_delta = 0;
            // qPY_PRED of the group takes the last QpY before it into account.
            self.qp.previous = self.qp.luma;
            self.qp.group = (x, y);
        }
        if let Some(offsets) = &self.pps.range.chroma_qp_offsets
            && self.header.cu_chroma_qp_offset_enabled
            && log2 >= self.sps.log2_ctb - offsets.diff_cu_chroma_qp_offset_depth
        {
            self.qp.chroma_offset_coded = false;
        }
        if !split {
            return self.coding_unit(x, y, log2, depth);
        }
        let half = size / 2;
        for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
            if x + dx < width && y + dy < height {
                self.coding_quadtree(x + dx, y + dy, log2 - 1, depth + 1)?;
            }
        }
        Ok(())
    }

    fn split_cu_flag(&mut self, x: usize, y: usize, depth: u8) -> bool {
        let at = self.unit(x, y);
        let mut ctx = 0;
        if (x > self.ctb.x || self.ctb.left) && self.picture.depths[at - 1] > depth {
            ctx += 1;
        }
        if (y > self.ctb.y || self.ctb.above) && self.picture.depths[at - self.picture.edges.stride] > depth {
            ctx += 1;
        }
        self.engine.decode(&mut self.contexts.split_cu_flag[ctx])
    }

    /// The index of the 4×4 block at luma position (`x`, `y`).
    pub fn unit(&self, x: usize, y: usize) -> usize {
        (y >> 2) * self.picture.edges.stride + (x >> 2)
    }

    fn coding_unit(&mut self, x: usize, y: usize, log2: u32, depth: u8) -> Result<(), BitstreamError> {
        let mut cu = CodingUnit {
            x,
            y,
            log2,
            transquant_bypass: false,
            split: false,
            luma_modes: [intra::DC; 4],
            chroma_modes: [intra::DC; 4],
            chroma_follows: [false; 4],
        };
        self.qp.luma = self.current_qp();
        self.fill_units(cu, |picture, range| picture.depths[range].fill(depth));
        if self.pps.transquant_bypass_enabled {
            cu.transquant_bypass = self.engine.decode(&mut self.contexts.cu_transquant_bypass_flag);
        }
        if log2 == self.sps.log2_min_cb {
            cu.split = !self.engine.decode(&mut self.contexts.part_mode);
        }
        let mut keep = cu.transquant_bypass;
        let pcm =
            self.sps.pcm.filter(|pcm| !cu.split && (pcm.log2_min_size..=pcm.log2_max_size).contains(&log2));
        if let Some(pcm) = pcm
            && self.engine.terminate()
        {
            self.count(Share::Side);
            keep |= pcm.loop_filter_disabled;
            self.pcm_sample(x, y, log2)?;
            self.count(Share::Pcm);
            self.fill_units(cu, |picture, range| picture.modes[range].fill(intra::DC));
            self.mark_edges(x, y, log2);
        } else {
            self.count(Share::Side);
            self.prediction_modes(&mut cu);
            self.count(Share::Prediction);
            let root = Node { x, y, log2, depth: 0, index: 0, cbf_chroma: [[true; 2]; 2] };
            self.transform_tree(&cu, root)?;
        }
        let qp = self.qp.luma as i8;
        self.fill_units(cu, |picture, range| picture.edges.qp[range].fill(qp));
        if keep {
            self.fill_units(cu, |picture, range| picture.edges.keep[range].fill(true));
        }
        if self.engine.overrun() {
            return invalid("the slice data ends inside a coding unit");
        }
        Ok(())
    }

    /// Runs `fill` over each row of 4×4 blocks the unit covers.
    fn fill_units(
        &mut self,
        cu: CodingUnit,
        mut fill: impl FnMut(&mut super::picture::Picture, std::ops::Range<usize>),
    ) {
        let units = 1usize << (cu.log2 - 2);
        for row in 0..units {
            let start = self.unit(cu.x, cu.y + 4 * row);
            fill(self.picture, start..start + units);
        }
    }

    /// pcm_sample(), which also initializes the engine again.
    fn pcm_sample(&mut self, x: usize, y: usize, log2: u32) -> Result<(), BitstreamError> {
        let Some(pcm) = self.sps.pcm else { return Ok(()) };
        let start = self.engine.byte_position();
        let mut r = BitReader::new(self.engine.data().get(start..).unwrap_or(&[]));
        for c in 0..self.sps.chroma_array().planes() {
            let (sx, sy) = if c == 0 { (0, 0) } else { self.sps.chroma.shift() };
            let bits = if c == 0 { pcm.bit_depth } else { pcm.chroma_bit_depth };
            let shift = self.sps.depth(c) - bits;
            let (width, height) = ((1usize << log2) >> sx, (1usize << log2) >> sy);
            let plane = &mut self.picture.planes[c];
            for row in 0..height {
                for sample in &mut plane.row_mut((y >> sy) + row)[x >> sx..][..width] {
                    *sample = (r.bits(bits)? << shift) as u16;
                }
            }
        }
        r.align();
        self.engine.restart(start + (r.position() / 8) as usize);
        Ok(())
    }

    /// prev_intra_luma_pred_flag to intra_chroma_pred_mode, and the modes they
    /// stand for (clauses 8.4.2 and 8.4.3).
    fn prediction_modes(&mut self, cu: &mut CodingUnit) {
        let parts = if cu.split { 4 } else { 1 };
        let size = (1usize << cu.log2) >> usize::from(cu.split);
        let mut most_probable = [false; 4];
        for flag in &mut most_probable[..parts] {
            *flag = self.engine.decode(&mut self.contexts.prev_intra_luma_pred_flag);
        }
        for part in 0..parts {
            let (x, y) = (cu.x + size * (part & 1), cu.y + size * (part >> 1));
            let candidates = self.candidate_modes(x, y);
            let mode = if most_probable[part] {
                let index = usize::from(self.engine.bypass());
                candidates[if index == 0 { 0 } else { 1 + usize::from(self.engine.bypass()) }]
            } else {
                remaining_mode(self.engine.bypass_bits(5) as u8, candidates)
            };
            cu.luma_modes[part] = mode;
            let units = size >> 2;
            for row in 0..units {
                let start = self.unit(x, y + 4 * row);
                self.picture.modes[start..start + units].fill(mode);
            }
        }
        let chroma = self.sps.chroma_array();
        if chroma == Chroma::C400 {
            return;
        }
        for part in 0..if chroma == Chroma::C444 { parts } else { 1 } {
            let signalled = if self.engine.decode(&mut self.contexts.intra_chroma_pred_mode) {
                self.engine.bypass_bits(2)
            } else {
                4
            };
            let mode = intra::chroma_mode(signalled as u8, cu.luma_modes[part]);
            cu.chroma_modes[part] = if chroma == Chroma::C422 { intra::mode_422(mode) } else { mode };
            cu.chroma_follows[part] = signalled == 4;
        }
    }

    /// candModeList.
    fn candidate_modes(&self, x: usize, y: usize) -> [u8; 3] {
        let at = self.unit(x, y);
        let left = if x > self.ctb.x || self.ctb.left { self.picture.modes[at - 1] } else { intra::DC };
        // Above the CTB counts as DC, which spares hardware a line buffer.
        let above =
            if y > self.ctb.y { self.picture.modes[at - self.picture.edges.stride] } else { intra::DC };
        most_probable(left, above)
    }

    fn transform_tree(&mut self, cu: &CodingUnit, mut node: Node) -> Result<(), BitstreamError> {
        let sps = self.sps;
        let max_depth = sps.max_transform_hierarchy_depth_intra + u32::from(cu.split);
        let forced = cu.split && node.depth == 0;
        let split = if node.log2 <= sps.log2_max_tb
            && node.log2 > sps.log2_min_tb
            && node.depth < max_depth
            && !forced
        {
            self.engine.decode(&mut self.contexts.split_transform_flag[5 - node.log2 as usize])
        } else {
            node.log2 > sps.log2_max_tb || forced
        };
        let chroma = sps.chroma_array();
        if (node.log2 > 2 && chroma != Chroma::C400) || chroma == Chroma::C444 {
            let two = chroma == Chroma::C422 && (!split || node.log2 == 3);
            for cbf in &mut node.cbf_chroma {
                if *cbf == [false; 2] {
                    continue;
                }
                let context = &mut self.contexts.cbf_chroma[node.depth as usize];
                *cbf = [self.engine.decode(context), two && self.engine.decode(context)];
            }
        } else if chroma == Chroma::C400 {
            node.cbf_chroma = [[false; 2]; 2];
        }
        if !split {
            return self.transform_unit(cu, node);
        }
        let half = 1usize << (node.log2 - 1);
        for (index, (dx, dy)) in [(0, 0), (half, 0), (0, half), (half, half)].into_iter().enumerate() {
            let child = Node {
                x: node.x + dx,
                y: node.y + dy,
                log2: node.log2 - 1,
                depth: node.depth + 1,
                index,
                ..node
            };
            self.transform_tree(cu, child)?;
        }
        Ok(())
    }

    fn transform_unit(&mut self, cu: &CodingUnit, node: Node) -> Result<(), BitstreamError> {
        let cbf_luma = self.engine.decode(&mut self.contexts.cbf_luma[usize::from(node.depth == 0)]);
        let cbf_chroma = node.cbf_chroma != [[false; 2]; 2];
        if cbf_luma || cbf_chroma {
            self.quantization_syntax(cu, cbf_chroma)?;
        }
        self.count(Share::Side);
        self.mark_edges(node.x, node.y, node.log2);

        let part = cu.part(node.x, node.y);
        self.block(
            cu,
            0,
            (node.x, node.y),
            node.log2,
            cu.luma_modes[part],
            Residual { coded: cbf_luma, res_scale: 0 },
        )?;
        let chroma = self.sps.chroma_array();
        if chroma == Chroma::C400 {
            return Ok(());
        }
        let (sx, sy) = chroma.shift();
        // Four 4×4 luma blocks share the chroma of their 8×8 parent, coded with the last.
        let (x, y, log2) = if chroma == Chroma::C444 {
            (node.x, node.y, node.log2)
        } else if node.log2 > 2 {
            (node.x >> sx, node.y >> sy, node.log2 - 1)
        } else if node.index == 3 {
            ((node.x - 4) >> sx, (node.y - 4) >> sy, 2)
        } else {
            return Ok(());
        };
        let part = if chroma == Chroma::C444 { part } else { 0 };
        let predicts_across =
            self.pps.range.cross_component_prediction_enabled && cbf_luma && cu.chroma_follows[part];
        for c in 1..3 {
            let mut res_scale = 0;
            if predicts_across && chroma == Chroma::C444 {
                res_scale = self.cross_comp_pred(c);
                self.count(Share::Side);
            }
            for half in 0..if chroma == Chroma::C422 { 2 } else { 1 } {
                let at = (x, y + (half << log2));
                let coded = node.cbf_chroma[c - 1][half];
                self.block(cu, c, at, log2, cu.chroma_modes[part], Residual { coded, res_scale })?;
            }
        }
        Ok(())
    }

    /// cross_comp_pred(): ResScaleVal.
    fn cross_comp_pred(&mut self, c: usize) -> i32 {
        let mut log2_plus1 = 0;
        while log2_plus1 < 4 && self.engine.decode(&mut self.contexts.log2_res_scale_abs[c - 1][log2_plus1]) {
            log2_plus1 += 1;
        }
        if log2_plus1 == 0 {
            return 0;
        }
        let scale = 1 << (log2_plus1 - 1);
        if self.engine.decode(&mut self.contexts.res_scale_sign_flag[c - 1]) { -scale } else { scale }
    }

    /// Flags the left and upper side of a block for deblocking.
    fn mark_edges(&mut self, x: usize, y: usize, log2: u32) {
        if self.header.deblocking.disabled {
            return;
        }
        let (at, units, stride) = (self.unit(x, y), 1usize << (log2 - 2), self.picture.edges.stride);
        let edges = &mut self.picture.edges;
        if x.is_multiple_of(8) && (x > self.ctb.x || self.ctb.filter_left) {
            for row in 0..units {
                edges.vertical[at + row * stride] = true;
            }
        }
        if y.is_multiple_of(8) && (y > self.ctb.y || self.ctb.filter_above) {
            edges.horizontal[at..at + units].fill(true);
        }
    }
}
