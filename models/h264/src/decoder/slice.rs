//! slice_data() and macroblock_layer() (clauses 7.3.4, 7.3.5): parses the
//! macroblocks of one slice and rebuilds them.

use super::inspection::BitUse;
use crate::blocks::{BlockSize, Eight, Four};
use crate::deblock::mb_rows;
use crate::entropy::{BlockKind, BlockPlace, SyntaxReader};
use crate::intra::mode;
use crate::macroblock::{
    Macroblock, MbInfo, MbKind, MbMap, Neighbours, UNAVAILABLE, cache_at, hide_4x4_neighbours,
};
use crate::picture::{PlaneBuffer, Window};
use crate::quant::LevelScale;
use crate::reconstruct::Rebuild;
use crate::syntax::slice_header::Structure;
use crate::tables::{BLOCK_X, BLOCK_Y, CHROMA_DC_422_SCAN, FIELD_4X4, FIELD_8X8, ZIGZAG_4X4, ZIGZAG_8X8};
use trinity_bits::{BitstreamError, Chroma, invalid};

/// Everything a slice is decoded with and into.
pub struct SliceDecoder<'a> {
    pub rebuild: &'a Rebuild,
    pub scale: &'a LevelScale,
    pub map: &'a mut MbMap,
    /// The planes it codes: all, or one where planes are coded on their own.
    pub planes: &'a mut [PlaneBuffer],
    pub structure: Structure,
    /// 1 + index of the slice in its picture.
    pub slice: u32,
    pub transform_8x8_mode: bool,
    /// SliceQPY, then QPY of the last macroblock.
    pub qp: i32,
    pub cabac: bool,
    pub bit_use: BitUse,
}

/// The scans of frame or field macroblocks.
struct Scans {
    field: bool,
    block_4x4: &'static [u8; 16],
    block_8x8: &'static [u8; 64],
}

const FRAME_SCANS: Scans = Scans { field: false, block_4x4: &ZIGZAG_4X4, block_8x8: &ZIGZAG_8X8 };
const FIELD_SCANS: Scans = Scans { field: true, block_4x4: &FIELD_4X4, block_8x8: &FIELD_8X8 };

/// Buffers that live as long as a slice.
#[derive(Default)]
struct Workspace {
    mb: Macroblock,
    neighbours: Neighbours,
    windows: [Window; 3],
}

impl SliceDecoder<'_> {
    /// Decodes macroblocks from `first` to the end of the slice; returns the
    /// address after the last.
    pub fn run<R: SyntaxReader>(&mut self, reader: &mut R, first: usize) -> Result<usize, BitstreamError> {
        let mut work = Box::new(Workspace::default());
        let count = self.map.infos.len();
        let mut addr = first;
        loop {
            if addr >= count {
                return invalid("slice data goes on after the last macroblock");
            }
            if self.map.infos[addr].slice != 0 {
                return invalid(format!("macroblock {addr} is coded twice"));
            }
            self.macroblock(reader, addr, &mut work)?;
            addr += 1;
            // With MBAFF a slice cannot end between the macroblocks of a pair.
            let inside_pair = self.map.mbaff && addr % 2 == 1;
            if !inside_pair && reader.end_of_slice()? {
                return Ok(addr);
            }
        }
    }

    fn macroblock<R: SyntaxReader>(
        &mut self,
        reader: &mut R,
        addr: usize,
        work: &mut Workspace,
    ) -> Result<(), BitstreamError> {
        let field = self.read_field_flag(reader, addr)?;
        let n = &mut work.neighbours;
        self.map.neighbours(addr, self.slice, field, n);
        let mb = &mut work.mb;
        mb.field = field;
        let mut info = match reader.mb_type(n)? {
            25 => {
                self.read_pcm(reader, &mut work.windows)?;
                mb.kind = MbKind::Pcm;
                reader.no_qp_delta();
                MbInfo::pcm()
            }
            mb_type @ 0..25 => {
                let start = reader.bit_position();
                self.read_prediction(reader, mb_type, mb, n)?;
                let middle = reader.bit_position();
                self.read_residual(reader, mb, n)?;
                self.bit_use.prediction += middle - start;
                self.bit_use.residual += reader.bit_position() - middle;
                self.rebuild_macroblock(addr, work)?;
                MbInfo::of(&work.mb, &work.neighbours)
            }
            other => return invalid(format!("mb_type {other} is above 25")),
        };
        info.slice = self.slice;
        info.field = field;
        self.map.infos[addr] = info;
        for (plane, window) in self.planes.iter_mut().zip(&work.windows) {
            window.store(plane, mb_rows(self.map, addr, field, self.structure, plane));
        }
        Ok(())
    }

    /// mb_field_decoding_flag, which the upper macroblock of a pair carries for both.
    fn read_field_flag<R: SyntaxReader>(
        &mut self,
        reader: &mut R,
        addr: usize,
    ) -> Result<bool, BitstreamError> {
        if !self.map.mbaff {
            return Ok(false);
        }
        if addr.is_multiple_of(2) {
            let field = reader.mb_field_decoding_flag(self.map.field_pairs(addr, self.slice))?;
            self.map.infos[addr].field = field;
            self.map.infos[addr + 1].field = field;
        }
        Ok(self.map.infos[addr].field)
    }

    fn read_pcm<R: SyntaxReader>(
        &self,
        reader: &mut R,
        windows: &mut [Window; 3],
    ) -> Result<(), BitstreamError> {
        let sizes: [usize; 3] =
            std::array::from_fn(|c| self.planes.get(c).map_or(0, |plane| plane.mb_width * plane.mb_height));
        let widths: [usize; 3] = std::array::from_fn(|c| self.planes.get(c).map_or(1, |p| p.mb_width));
        let (mut c, mut at) = (0, 0);
        let [luma, chroma] = self.rebuild.depths;
        let mut put = |sample: u16| {
            windows[c].row_mut(at / widths[c])[at % widths[c]] = sample;
            at += 1;
            if at == sizes[c] {
                (c, at) = (c + 1, 0);
            }
        };
        reader.pcm_samples([(sizes[0], luma), (sizes[1] + sizes[2], chroma)], &mut put)
    }

    /// mb_pred() and what precedes it.
    fn read_prediction<R: SyntaxReader>(
        &self,
        reader: &mut R,
        mb_type: u32,
        mb: &mut Macroblock,
        n: &mut Neighbours,
    ) -> Result<(), BitstreamError> {
        if mb_type == 0 {
            let large = self.transform_8x8_mode && reader.transform_size_8x8_flag(n)?;
            mb.kind = if large { MbKind::I8x8 } else { MbKind::I4x4 };
            if large {
                for block in 0..4 {
                    let (x, y) = (block % 2 * 2, block / 2 * 2);
                    let chosen = read_mode(reader, n, x, y)?;
                    for part in 0..4 {
                        n.modes[cache_at(x + part % 2, y + part / 2)] = chosen;
                    }
                }
            } else {
                for block in 0..16 {
                    let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
                    n.modes[cache_at(x, y)] = read_mode(reader, n, x, y)?;
                }
            }
            for (at, stored) in mb.modes.iter_mut().enumerate() {
                *stored = n.modes[cache_at(at % 4, at / 4)];
            }
        } else {
            mb.kind = MbKind::I16x16;
            mb.modes = [mode::DC; 16];
            mb.mode_16x16 = ((mb_type - 1) % 4) as u8;
            let luma = if mb_type >= 13 { 15 } else { 0 };
            mb.cbp = luma | ((mb_type - 1) / 4 % 3 * 16) as u8;
        }
        let chroma = matches!(self.rebuild.chroma, Chroma::C420 | Chroma::C422);
        mb.chroma_mode = if chroma { reader.intra_chroma_pred_mode(n)? } else { 0 };
        if mb_type == 0 {
            mb.cbp = reader.coded_block_pattern(n, chroma)?;
        } else if !chroma && mb.cbp >> 4 != 0 {
            return invalid("mb_type codes chroma where there is none");
        }
        Ok(())
    }

    /// mb_qp_delta and residual().
    fn read_residual<R: SyntaxReader>(
        &mut self,
        reader: &mut R,
        mb: &mut Macroblock,
        n: &mut Neighbours,
    ) -> Result<(), BitstreamError> {
        n.clear_totals();
        mb.levels.coded = [0; 3];
        mb.levels.dc_coded = 0;
        if mb.cbp == 0 && mb.kind != MbKind::I16x16 {
            reader.no_qp_delta();
            mb.qp = self.qp;
            return Ok(());
        }
        let delta = reader.mb_qp_delta()?;
        let bd_offset = 6 * (self.rebuild.depths[0] as i32 - 8);
        if !(-26 - bd_offset / 2..=25 + bd_offset / 2).contains(&delta) {
            return invalid(format!("mb_qp_delta {delta} is out of range"));
        }
        let range = 52 + bd_offset;
        self.qp = (self.qp + delta + bd_offset + range).rem_euclid(range) - bd_offset;
        mb.qp = self.qp;
        let scans = if mb.field || self.structure != Structure::Frame { &FIELD_SCANS } else { &FRAME_SCANS };
        for c in 0..self.rebuild.luma_like() {
            self.read_luma(reader, mb, n, c, scans)?;
        }
        if matches!(self.rebuild.chroma, Chroma::C420 | Chroma::C422) {
            self.read_chroma(reader, mb, n, scans)?;
        }
        Ok(())
    }

    /// residual_luma() of component `c`.
    fn read_luma<R: SyntaxReader>(
        &self,
        reader: &mut R,
        mb: &mut Macroblock,
        n: &mut Neighbours,
        c: usize,
        scans: &Scans,
    ) -> Result<(), BitstreamError> {
        let levels = &mut mb.levels;
        let kind = if mb.kind == MbKind::I16x16 {
            levels.dc[c] = [0; 16];
            let place = BlockPlace { kind: BlockKind::Dc16x16, component: c, x: 0, y: 0 };
            if reader.residual_block(place, n, scans.block_4x4, scans.field, &mut levels.dc[c])? > 0 {
                levels.dc_coded |= 1 << c;
            }
            BlockKind::Ac16x16
        } else {
            BlockKind::Luma4x4
        };
        let first = usize::from(kind == BlockKind::Ac16x16);
        let flag_coded = self.rebuild.chroma == Chroma::C444;
        if mb.kind == MbKind::I8x8 && flag_coded && self.cabac {
            hide_4x4_neighbours(n, c);
        }
        for block_8 in (0..4).filter(|b| mb.cbp >> b & 1 != 0) {
            let (x, y) = (block_8 % 2 * 2, block_8 / 2 * 2);
            if mb.kind == MbKind::I8x8 {
                let out = Eight::room(&mut levels.blocks[c], block_8);
                out.fill(0);
                let place = BlockPlace { kind: BlockKind::Luma8x8, component: c, x, y };
                // CAVLC reads 4×4 blocks, and their context is that of 4×4 blocks.
                if reader.residual_8x8(place, n, scans.block_8x8, scans.field, flag_coded, out)? > 0 {
                    levels.coded[c] |= 1 << (4 * block_8);
                }
                continue;
            }
            for part in 0..4 {
                let block = 4 * block_8 + part;
                let out = Four::room(&mut levels.blocks[c], block);
                out.fill(0);
                let place = BlockPlace { kind, component: c, x: x + part % 2, y: y + part / 2 };
                if reader.residual_block(place, n, &scans.block_4x4[first..], scans.field, out)? > 0 {
                    levels.coded[c] |= 1 << block;
                }
            }
        }
        Ok(())
    }

    /// The chroma part of residual() for 4:2:0 and 4:2:2.
    fn read_chroma<R: SyntaxReader>(
        &self,
        reader: &mut R,
        mb: &mut Macroblock,
        n: &mut Neighbours,
        scans: &Scans,
    ) -> Result<(), BitstreamError> {
        const DC_420_SCAN: [u8; 4] = [0, 1, 2, 3];
        let (blocks, dc_scan): (usize, &[u8]) = match self.rebuild.chroma {
            Chroma::C420 => (4, &DC_420_SCAN),
            _ => (8, &CHROMA_DC_422_SCAN),
        };
        let levels = &mut mb.levels;
        if mb.cbp >> 4 != 0 {
            for c in 1..3 {
                levels.dc[c] = [0; 16];
                let place = BlockPlace { kind: BlockKind::ChromaDc, component: c, x: 0, y: 0 };
                if reader.residual_block(place, n, dc_scan, scans.field, &mut levels.dc[c])? > 0 {
                    levels.dc_coded |= 1 << c;
                }
            }
        }
        if mb.cbp >> 4 == 2 {
            for c in 1..3 {
                for block in 0..blocks {
                    let out = Four::room(&mut levels.blocks[c], block);
                    out.fill(0);
                    let place =
                        BlockPlace { kind: BlockKind::ChromaAc, component: c, x: block % 2, y: block / 2 };
                    if reader.residual_block(place, n, &scans.block_4x4[1..], scans.field, out)? > 0 {
                        levels.coded[c] |= 1 << block;
                    }
                }
            }
        }
        Ok(())
    }

    fn rebuild_macroblock(&self, addr: usize, work: &mut Workspace) -> Result<(), BitstreamError> {
        let available = work.neighbours.available;
        for (plane, window) in self.planes.iter().zip(&mut work.windows) {
            window.load(plane, mb_rows(self.map, addr, work.mb.field, self.structure, plane), available);
        }
        self.rebuild
            .macroblock(&mut work.mb, self.scale, available, &mut work.windows)
            .or_else(|_| invalid(format!("macroblock {addr} predicts from neighbours it does not have")))
    }
}

/// One Intra4x4PredMode or Intra8x8PredMode (clauses 8.3.1.1, 8.3.2.1).
fn read_mode<R: SyntaxReader>(
    reader: &mut R,
    n: &Neighbours,
    x: usize,
    y: usize,
) -> Result<u8, BitstreamError> {
    let at = cache_at(x, y);
    let (left, above) = (n.modes[at - 1], n.modes[at - 8]);
    let predicted = if left == UNAVAILABLE || above == UNAVAILABLE { mode::DC } else { left.min(above) };
    Ok(match reader.rem_intra_pred_mode()? {
        None => predicted,
        Some(rem) if rem < predicted => rem,
        Some(rem) => rem + 1,
    })
}
