//! Writing a CTU (H.265 clauses 7.3.8.2 to 7.3.8.14), generic over where the
//! bins go: the search counts with the very functions that write the stream.

use crate::encoder::headers::Sequence;
use crate::encoder::tree::{LOG2_CTB, Tree, Unit, units_in, z_order};
use crate::entropy::residual::{self, Shape, State};
use crate::entropy::scan::Scan;
use crate::intra::DC;
use crate::intra::chroma_mode;
use trinity_bits::Chroma;
use trinity_bits::cabac::BinWriter;
use trinity_bits::intra_modes::{most_probable, remaining_index};

/// What a CTU sees of the CTUs around it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings {
    /// Luma modes and coding-block sizes down the right edge of the left CTU.
    pub left: Option<([u8; 16], [u8; 16])>,
    /// Coding-block sizes along the lower edge of the CTU above.
    pub above: Option<[u8; 16]>,
}

/// A node of transform_tree().
#[derive(Debug, Clone, Copy)]
struct TransformNode {
    x: usize,
    y: usize,
    log2: u32,
    depth: u32,
    /// The chroma bits that may still be set.
    parent: u8,
    /// Which quarter of its parent.
    part: usize,
}

/// Writes parts of one CTU.
pub struct CtuWriter<'a> {
    pub sequence: &'a Sequence,
    pub tree: &'a Tree,
    /// Top left luma sample of the CTU.
    pub origin: (usize, usize),
    pub around: &'a Surroundings,
    /// CuQpDeltaVal still to be written with the first coded block.
    pub qp_delta: Option<i32>,
    /// The first unit of the coding unit that CuQpDeltaVal was written in.
    pub qp_delta_unit: Option<usize>,
}

impl CtuWriter<'_> {
    fn unit(&self, x: usize, y: usize) -> &Unit {
        &self.tree.units[z_order(x, y)]
    }

    /// coding_quadtree() at (x, y) inside the CTU.
    pub fn quadtree<W: BinWriter>(&mut self, w: &mut W, state: &mut State, x: usize, y: usize, log2: u32) {
        let size = 1 << log2;
        let (width, height) = self.sequence.coded_size();
        let (left, top) = (self.origin.0 + x, self.origin.1 + y);
        if left >= width || top >= height {
            return;
        }
        let whole = left + size <= width && top + size <= height;
        let split = log2 > u32::from(self.unit(x, y).cu_log2);
        if whole && log2 > 3 {
            self.split_cu_flag(w, state, x, y, log2, split);
        }
        if split {
            let half = size / 2;
            for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
                self.quadtree(w, state, x + dx, y + dy, log2 - 1);
            }
        } else {
            self.coding_unit(w, state, x, y, log2);
        }
    }

    /// split_cu_flag: its context counts the smaller neighbours.
    pub fn split_cu_flag<W: BinWriter>(
        &self,
        w: &mut W,
        state: &mut State,
        x: usize,
        y: usize,
        log2: u32,
        split: bool,
    ) {
        let left = match x {
            0 => self.around.left.map(|(_, sizes)| sizes[y >> 2]),
            _ => Some(self.unit(x - 1, y).cu_log2),
        };
        let above = match y {
            0 => self.around.above.map(|sizes| sizes[x >> 2]),
            _ => Some(self.unit(x, y - 1).cu_log2),
        };
        let smaller = |size: Option<u8>| usize::from(size.is_some_and(|s| u32::from(s) < log2));
        w.encode(&mut state.contexts.split_cu_flag[smaller(left) + smaller(above)], split);
    }

    pub fn coding_unit<W: BinWriter>(&mut self, w: &mut W, state: &mut State, x: usize, y: usize, log2: u32) {
        self.coding_unit_head(w, state, x, y, log2);
        let root = TransformNode { x, y, log2, depth: 0, parent: 0b110, part: 0 };
        let pending = self.qp_delta.is_some();
        self.transform_tree(w, state, root);
        if pending && self.qp_delta.is_none() {
            self.qp_delta_unit = Some(z_order(x, y));
        }
    }

    /// coding_unit() before its transform_tree().
    pub fn coding_unit_head<W: BinWriter>(
        &self,
        w: &mut W,
        state: &mut State,
        x: usize,
        y: usize,
        log2: u32,
    ) {
        let unit = *self.unit(x, y);
        if self.sequence.lossless {
            w.encode(&mut state.contexts.cu_transquant_bypass_flag, true);
        }
        if log2 == 3 {
            w.encode(&mut state.contexts.part_mode, !unit.nxn);
        }
        self.luma_modes(w, state, x, y, log2, unit.nxn);
        if self.sequence.chroma != Chroma::C400 {
            let parts = if unit.nxn && self.sequence.chroma == Chroma::C444 { 4 } else { 1 };
            for part in 0..parts {
                let code = self.tree.units[z_order(x, y) + part].chroma_code;
                chroma_pred_mode(w, state, code);
            }
        }
    }

    /// The modes that a prediction block most likely has, by its left and upper neighbour's.
    pub fn most_probable(&self, x: usize, y: usize) -> [u8; 3] {
        let left = match x {
            0 => self.around.left.map_or(DC, |(modes, _)| modes[y >> 2]),
            _ => self.unit(x - 1, y).luma_mode,
        };
        // Modes of the CTU row above are not kept.
        let above = if y == 0 { DC } else { self.unit(x, y - 1).luma_mode };
        most_probable(left, above)
    }

    fn luma_modes<W: BinWriter>(
        &self,
        w: &mut W,
        state: &mut State,
        x: usize,
        y: usize,
        log2: u32,
        nxn: bool,
    ) {
        let half = (1 << log2) >> 1;
        let parts = [(0, 0), (half, 0), (0, half), (half, half)];
        let parts = &parts[..if nxn { 4 } else { 1 }];
        let coded = |&(dx, dy): &(usize, usize)| {
            (self.unit(x + dx, y + dy).luma_mode, self.most_probable(x + dx, y + dy))
        };
        for part in parts {
            let (mode, probable) = coded(part);
            w.encode(&mut state.contexts.prev_intra_luma_pred_flag, probable.contains(&mode));
        }
        for part in parts {
            let (mode, probable) = coded(part);
            write_mode(w, mode, probable);
        }
    }

    fn transform_tree<W: BinWriter>(&mut self, w: &mut W, state: &mut State, node: TransformNode) {
        let TransformNode { x, y, log2, depth, parent, part } = node;
        let z = z_order(x, y);
        let split = log2 > u32::from(self.tree.units[z].tu_log2);
        // No split_transform_flag: all splits are inferred, since our trees have no depth of their own.
        let chroma = self.sequence.chroma;
        let mut cbf = 0;
        if (log2 > 2 && chroma != Chroma::C400) || chroma == Chroma::C444 {
            let any = self.tree.units[z..z + units_in(log2)].iter().fold(0, |bits, u| bits | u.cbf);
            for bit in [0b010, 0b100] {
                if parent & bit != 0 {
                    w.encode(&mut state.contexts.cbf_chroma[depth as usize], any & bit != 0);
                    cbf |= any & bit;
                }
            }
        } else if log2 == 2 {
            cbf = parent & 0b110;
        }
        if split {
            let half = (1 << log2) / 2;
            for (part, (dx, dy)) in [(0, 0), (half, 0), (0, half), (half, half)].into_iter().enumerate() {
                let (x, y, log2, depth) = (x + dx, y + dy, log2 - 1, depth + 1);
                self.transform_tree(w, state, TransformNode { x, y, log2, depth, parent: cbf, part });
            }
        } else {
            let luma = self.tree.units[z].cbf & 1;
            w.encode(&mut state.contexts.cbf_luma[usize::from(depth == 0)], luma == 1);
            self.transform_unit(w, state, z, log2, luma | cbf, part);
        }
    }

    /// transform_unit(): `cbf` holds the bits of luma and of the chroma blocks
    /// the unit answers for.
    fn transform_unit<W: BinWriter>(
        &mut self,
        w: &mut W,
        state: &mut State,
        z: usize,
        log2: u32,
        cbf: u8,
        part: usize,
    ) {
        let chroma = self.sequence.chroma;
        let cbf = if chroma == Chroma::C400 { cbf & 1 } else { cbf };
        if cbf == 0 {
            return;
        }
        if let Some(delta) = self.qp_delta.take() {
            write_qp_delta(w, state, delta);
        }
        if cbf & 1 != 0 {
            self.block(w, state, 0, z, log2);
        }
        if chroma == Chroma::C400 {
            return;
        }
        let (first, log2) = if chroma == Chroma::C444 {
            (z, log2)
        } else if log2 > 2 {
            (z, log2 - 1)
        } else if part == 3 {
            // One chroma block for four luma blocks, after the last of them.
            (z - 3, 2)
        } else {
            return;
        };
        for c in 1..3 {
            if cbf & (1 << c) != 0 {
                self.block(w, state, c, first, log2);
            }
        }
    }

    /// residual_coding() of one block.
    fn block<W: BinWriter>(&self, w: &mut W, state: &mut State, c: usize, z: usize, log2: u32) {
        let shape = self.shape(c, z, log2);
        residual::write(w, state, &self.sequence.tools, &shape, self.tree.block(c, z, log2));
    }

    fn shape(&self, c: usize, z: usize, log2: u32) -> Shape {
        let unit = &self.tree.units[z];
        let mode = if c == 0 { unit.luma_mode } else { chroma_mode(unit.chroma_code, unit.luma_mode) };
        Shape {
            log2,
            c_idx: c,
            scan: Scan::of(mode, log2, c, self.sequence.chroma == Chroma::C444),
            transform_skip: unit.skip >> c & 1 == 1,
            bypass: self.sequence.lossless,
        }
    }

    /// The whole CTU without end_of_slice_segment_flag.
    pub fn ctu<W: BinWriter>(&mut self, w: &mut W, state: &mut State) {
        self.quadtree(w, state, 0, 0, LOG2_CTB);
    }
}

/// mpm_idx or rem_intra_luma_pred_mode, all bypass.
fn write_mode<W: BinWriter>(w: &mut W, mode: u8, probable: [u8; 3]) {
    match probable.iter().position(|&p| p == mode) {
        Some(0) => w.bypass(false),
        Some(index) => w.bypass_bits(0b10 | u32::from(index == 2), 2),
        None => w.bypass_bits(u32::from(remaining_index(mode, probable)), 5),
    }
}

/// What [`write_mode`] and its flag cost, in bits, for ranking modes.
pub fn mode_bits(mode: u8, probable: [u8; 3]) -> u32 {
    match probable.iter().position(|&p| p == mode) {
        Some(0) => 2,
        Some(_) => 3,
        None => 6,
    }
}

/// intra_chroma_pred_mode.
pub fn chroma_pred_mode<W: BinWriter>(w: &mut W, state: &mut State, code: u8) {
    w.encode(&mut state.contexts.intra_chroma_pred_mode, code != 4);
    if code != 4 {
        w.bypass_bits(u32::from(code), 2);
    }
}

/// cu_qp_delta_abs and cu_qp_delta_sign_flag (clause 9.3.3.10).
fn write_qp_delta<W: BinWriter>(w: &mut W, state: &mut State, delta: i32) {
    let magnitude = delta.unsigned_abs();
    for i in 0..magnitude.min(5) {
        w.encode(&mut state.contexts.cu_qp_delta_abs[usize::from(i > 0)], true);
    }
    if magnitude < 5 {
        w.encode(&mut state.contexts.cu_qp_delta_abs[usize::from(magnitude > 0)], false);
    } else {
        // EG0 of the rest.
        let rest = magnitude - 5 + 1;
        let length = rest.ilog2();
        w.bypass_bits((1 << (length + 1)) - 2, length + 1);
        w.bypass_bits(rest & ((1 << length) - 1), length);
    }
    if magnitude > 0 {
        w.bypass(delta < 0);
    }
}
