//! From syntax elements to samples: prediction plus residual (clauses 8.3, 8.5).
//!
//! Works on one macroblock in its [`Window`]s; the decoder and the encoder
//! both rebuild their pictures here.

use crate::blocks::{BlockSize, Eight, Four};
use crate::intra::{self, Available, MbEdge, mode};
use crate::macroblock::{Macroblock, MbKind};
use crate::picture::Window;
use crate::quant::LevelScale;
use crate::tables::{BLOCK_X, BLOCK_Y, qp_chroma};
use crate::transform::{
    accumulate_bypass, inverse_4x4, inverse_chroma_dc_420, inverse_chroma_dc_422, inverse_luma_dc,
    scale_block,
};
use trinity_bits::Chroma;

/// What stays the same over a slice.
#[derive(Debug, Clone)]
pub struct Rebuild {
    /// ChromaArrayType.
    pub chroma: Chroma,
    /// Luma and chroma.
    pub depths: [u32; 2],
    pub chroma_qp_index_offset: [i32; 2],
    pub lossless_at_qp_prime_0: bool,
    /// colour_plane_id where planes are coded on their own: whose scaling lists apply.
    pub colour_plane: usize,
}

/// A prediction mode whose neighbours are missing; only damaged streams ask for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingNeighbour;

/// QP′ split as the scaling process uses it.
#[derive(Debug, Clone, Copy)]
struct Qp {
    per: u32,
    rem: usize,
}

impl Qp {
    fn new(qp_prime: i32) -> Self {
        let qp = qp_prime.max(0) as u32;
        Self { per: qp / 6, rem: (qp % 6) as usize }
    }
}

impl Rebuild {
    /// QPc of Cb (0) or Cr (1) for a macroblock's QPY (clause 8.5.8).
    pub fn chroma_qp(&self, qp: i32, which: usize) -> i32 {
        let bd_offset = 6 * (self.depths[1] as i32 - 8);
        qp_chroma((qp + self.chroma_qp_index_offset[which]).clamp(-bd_offset, 51))
    }

    /// QP′ of a component.
    pub fn qp_prime(&self, qp: i32, component: usize) -> i32 {
        let depth = self.depths[usize::from(component > 0)] as i32;
        let base = if component == 0 { qp } else { self.chroma_qp(qp, component - 1) };
        base + 6 * (depth - 8)
    }

    /// TransformBypassModeFlag.
    pub fn bypass(&self, qp: i32) -> bool {
        self.lossless_at_qp_prime_0 && self.qp_prime(qp, 0) == 0
    }

    /// Components coded with luma syntax.
    pub fn luma_like(&self) -> usize {
        if self.chroma == Chroma::C444 { 3 } else { 1 }
    }

    /// Predicts and rebuilds the macroblock in `windows`. Levels are used up.
    pub fn macroblock(
        &self,
        mb: &mut Macroblock,
        scale: &LevelScale,
        available: Available,
        windows: &mut [Window; 3],
    ) -> Result<(), MissingNeighbour> {
        for c in 0..self.luma_like() {
            match mb.kind {
                MbKind::I4x4 => self.intra_nxn::<4, 16, Four>(mb, c, scale, available, &mut windows[c])?,
                MbKind::I8x8 => self.intra_nxn::<8, 64, Eight>(mb, c, scale, available, &mut windows[c])?,
                MbKind::I16x16 => self.intra_16x16(mb, c, scale, available, &mut windows[c])?,
                MbKind::Pcm => {}
            }
        }
        if matches!(self.chroma, Chroma::C420 | Chroma::C422) && mb.kind != MbKind::Pcm {
            for c in 1..3 {
                self.intra_chroma(mb, c, scale, available, &mut windows[c])?;
            }
        }
        Ok(())
    }

    fn depth(&self, component: usize) -> u32 {
        self.depths[usize::from(component > 0)]
    }

    fn limit(&self, component: usize) -> i32 {
        (1 << self.depth(component)) - 1
    }

    fn list(&self, component: usize) -> usize {
        component + self.colour_plane
    }

    /// Intra 4×4 or 8×8: each block is predicted from what the ones before it became.
    fn intra_nxn<const N: usize, const LEN: usize, B: BlockSize<N, LEN>>(
        &self,
        mb: &mut Macroblock,
        c: usize,
        scale: &LevelScale,
        available: Available,
        window: &mut Window,
    ) -> Result<(), MissingNeighbour> {
        let qp = Qp::new(self.qp_prime(mb.qp, c));
        let scale = B::scale(scale, self.list(c), qp.rem);
        let bypass = self.bypass(mb.qp);
        let mut prediction = [[0; N]; N];
        for block in 0..B::COUNT {
            let (x, y) = B::place(block);
            let mode = mb.modes[B::CELLS * (4 * y + x)];
            let edge = B::edge(window, x, y, available, self.depth(c));
            if !edge.allows(mode) {
                return Err(MissingNeighbour);
            }
            edge.predict(mode, &mut prediction);
            window.put(N * x, N * y, &prediction);
            if mb.levels.coded[c] & B::coded_bit(block) != 0 {
                let levels = B::room(&mut mb.levels.blocks[c], block);
                if bypass {
                    accumulate_along(levels, N, mode);
                } else {
                    B::rebuild(levels, scale, qp.per);
                }
                window.add::<N>(N * x, N * y, levels, self.limit(c));
            }
        }
        Ok(())
    }

    pub(crate) fn intra_16x16(
        &self,
        mb: &mut Macroblock,
        c: usize,
        scale: &LevelScale,
        available: Available,
        window: &mut Window,
    ) -> Result<(), MissingNeighbour> {
        if !intra::allows_16x16(mb.mode_16x16, available) {
            return Err(MissingNeighbour);
        }
        let mut prediction = [[0; 16]; 16];
        intra::predict_16x16(&window.mb_edge(available, self.depth(c)), mb.mode_16x16, &mut prediction);
        window.put(0, 0, &prediction);
        let qp = Qp::new(self.qp_prime(mb.qp, c));
        let scale = &scale.scale_4x4[self.list(c)][qp.rem];
        let levels = &mut mb.levels;
        let dc_coded = levels.dc_coded >> c & 1 != 0;
        if self.bypass(mb.qp) {
            let mut residual = [0; 256];
            for block in 0..16 {
                let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
                let ac_coded = levels.coded[c] >> block & 1 != 0;
                let ac = Four::room(&mut levels.blocks[c], block);
                for k in 0..16 {
                    residual[(4 * y + k / 4) * 16 + 4 * x + k % 4] = match k {
                        0 if dc_coded => levels.dc[c][4 * y + x],
                        1.. if ac_coded => ac[k],
                        _ => 0,
                    };
                }
            }
            accumulate_along(&mut residual, 16, mb.mode_16x16);
            window.add::<16>(0, 0, &residual, self.limit(c));
            return Ok(());
        }
        if dc_coded {
            inverse_luma_dc(&mut levels.dc[c], scale[0], qp.per);
        } else {
            levels.dc[c] = [0; 16];
        }
        for block in 0..16 {
            let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
            let dc = levels.dc[c][4 * y + x];
            add_with_dc(&mut levels.blocks[c], levels.coded[c], block, dc, scale, qp, |residual| {
                window.add::<4>(4 * x, 4 * y, residual, self.limit(c));
            });
        }
        Ok(())
    }

    pub(crate) fn intra_chroma(
        &self,
        mb: &mut Macroblock,
        c: usize,
        scale: &LevelScale,
        available: Available,
        window: &mut Window,
    ) -> Result<(), MissingNeighbour> {
        if !intra::allows_chroma(mb.chroma_mode, available) {
            return Err(MissingNeighbour);
        }
        let height = if self.chroma == Chroma::C420 { 8 } else { 16 };
        let edge: MbEdge = window.mb_edge(available, self.depth(c));
        let mut prediction = [[0; 8]; 16];
        intra::predict_chroma(&edge, mb.chroma_mode, height, &mut prediction);
        for (y, row) in prediction.iter().take(height).enumerate() {
            window.row_mut(y)[..8].copy_from_slice(row);
        }
        let qp_prime = self.qp_prime(mb.qp, c);
        let qp = Qp::new(qp_prime);
        let list = &scale.scale_4x4[c];
        let levels = &mut mb.levels;
        let dc_coded = levels.dc_coded >> c & 1 != 0;
        if !dc_coded {
            levels.dc[c] = [0; 16];
        }
        if self.bypass(mb.qp) {
            self.bypass_chroma(mb, c, height, window);
            return Ok(());
        }
        if dc_coded && height == 8 {
            let mut dc = [levels.dc[c][0], levels.dc[c][1], levels.dc[c][2], levels.dc[c][3]];
            inverse_chroma_dc_420(&mut dc, list[qp.rem][0], qp.per);
            levels.dc[c][..4].copy_from_slice(&dc);
        } else if dc_coded {
            let mut dc: [i32; 8] = std::array::from_fn(|k| levels.dc[c][k]);
            let qp_dc = Qp::new(qp_prime + 3);
            inverse_chroma_dc_422(&mut dc, list[qp_dc.rem][0], qp_dc.per);
            levels.dc[c][..8].copy_from_slice(&dc);
        }
        for block in 0..height / 2 {
            let dc = levels.dc[c][block];
            let (x, y) = (block % 2, block / 2);
            add_with_dc(&mut levels.blocks[c], levels.coded[c], block, dc, &list[qp.rem], qp, |residual| {
                window.add::<4>(4 * x, 4 * y, residual, self.limit(c));
            });
        }
        Ok(())
    }

    fn bypass_chroma(&self, mb: &mut Macroblock, c: usize, height: usize, window: &mut Window) {
        let levels = &mut mb.levels;
        let mut residual = [0; 128];
        for block in 0..height / 2 {
            let (x, y) = (block % 2, block / 2);
            let coded = levels.coded[c] >> block & 1 != 0;
            let ac = Four::room(&mut levels.blocks[c], block);
            for k in 0..16 {
                residual[(4 * y + k / 4) * 8 + 4 * x + k % 4] = match k {
                    0 => levels.dc[c][block],
                    _ if coded => ac[k],
                    _ => 0,
                };
            }
        }
        let residual = &mut residual[..8 * height];
        match mb.chroma_mode {
            mode::CHROMA_HORIZONTAL => accumulate_bypass(residual, 8, true),
            mode::CHROMA_VERTICAL => accumulate_bypass(residual, 8, false),
            _ => {}
        }
        for (part, half) in residual.chunks_exact(64).enumerate() {
            window.add::<8>(0, 8 * part, half, self.limit(c));
        }
    }
}

/// Lossless residual of a block that predicts along rows or columns.
fn accumulate_along(residual: &mut [i32], width: usize, mode: u8) {
    match mode {
        mode::VERTICAL => accumulate_bypass(residual, width, false),
        mode::HORIZONTAL => accumulate_bypass(residual, width, true),
        _ => {}
    }
}

/// Rebuilds a 4×4 block whose DC came by another way, and hands it on if it is not zero.
fn add_with_dc(
    blocks: &mut [i32; 256],
    coded: u16,
    block: usize,
    dc: i32,
    scale: &[i32; 16],
    qp: Qp,
    add: impl FnOnce(&[i32; 16]),
) {
    let levels = Four::room(blocks, block);
    if coded >> block & 1 != 0 {
        scale_block(levels, scale, qp.per);
        levels[0] = dc;
        inverse_4x4(levels);
        add(levels);
    } else if dc != 0 {
        add(&[dc.wrapping_add(32) >> 6; 16]);
    }
}
