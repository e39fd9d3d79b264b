//! macroblock_layer() as the encoder writes it (clause 7.3.5), to a stream or
//! to a counter.

use crate::entropy::writer::SyntaxWriter;
use crate::entropy::{BlockKind, BlockPlace};
use crate::intra::mode;
use crate::macroblock::{Macroblock, MbKind, Neighbours, UNAVAILABLE, cache_at};
use crate::tables::{BLOCK_X, BLOCK_Y, ZIGZAG_4X4, ZIGZAG_8X8};
use trinity_bits::Chroma;

/// Writes a macroblock and brings the caches of `n` up to date. `delta` is mb_qp_delta.
pub fn write_macroblock<W: SyntaxWriter>(
    w: &mut W,
    mb: &Macroblock,
    n: &mut Neighbours,
    chroma: Chroma,
    cabac: bool,
    delta: i32,
) {
    write_kind(w, mb, n);
    if mb.kind != MbKind::I16x16 {
        write_modes(w, mb, n);
    }
    n.clear_totals();
    if !write_patterns(w, mb, n, chroma, delta) {
        return;
    }
    let luma_like = if chroma == Chroma::C444 { 3 } else { 1 };
    for c in 0..luma_like {
        write_luma(w, mb, n, c, chroma == Chroma::C444, cabac);
    }
    if has_chroma(chroma) {
        write_chroma(w, mb, n);
    }
}

fn has_chroma(chroma: Chroma) -> bool {
    matches!(chroma, Chroma::C420 | Chroma::C422)
}

/// mb_type and transform_size_8x8_flag.
pub fn write_kind<W: SyntaxWriter>(w: &mut W, mb: &Macroblock, n: &Neighbours) {
    if mb.kind == MbKind::I16x16 {
        let luma = if mb.cbp & 15 != 0 { 12 } else { 0 };
        w.mb_type(n, 1 + u32::from(mb.mode_16x16) + 4 * u32::from(mb.cbp >> 4) + luma);
    } else {
        w.mb_type(n, 0);
        w.transform_size_8x8_flag(n, mb.kind == MbKind::I8x8);
    }
}

/// intra_chroma_pred_mode, coded_block_pattern and mb_qp_delta; whether a
/// residual follows.
pub fn write_patterns<W: SyntaxWriter>(
    w: &mut W,
    mb: &Macroblock,
    n: &Neighbours,
    chroma: Chroma,
    delta: i32,
) -> bool {
    if has_chroma(chroma) {
        w.intra_chroma_pred_mode(n, mb.chroma_mode);
    }
    if mb.kind != MbKind::I16x16 {
        w.coded_block_pattern(n, mb.cbp, has_chroma(chroma));
    }
    let coded = mb.cbp != 0 || mb.kind == MbKind::I16x16;
    if coded {
        w.mb_qp_delta(delta);
    } else {
        w.no_qp_delta();
    }
    coded
}

/// rem_intra_pred_mode of `chosen` at block (x, y), `None` where it is the predicted mode.
pub fn rem_mode(n: &Neighbours, x: usize, y: usize, chosen: u8) -> Option<u8> {
    let at = cache_at(x, y);
    let (left, above) = (n.modes[at - 1], n.modes[at - 8]);
    let predicted = if left == UNAVAILABLE || above == UNAVAILABLE { mode::DC } else { left.min(above) };
    (chosen != predicted).then(|| if chosen < predicted { chosen } else { chosen - 1 })
}

fn write_modes<W: SyntaxWriter>(w: &mut W, mb: &Macroblock, n: &mut Neighbours) {
    if mb.kind == MbKind::I8x8 {
        for block in 0..4 {
            let (x, y) = (block % 2 * 2, block / 2 * 2);
            let chosen = mb.modes[4 * y + x];
            w.rem_intra_pred_mode(rem_mode(n, x, y, chosen));
            for part in 0..4 {
                n.modes[cache_at(x + part % 2, y + part / 2)] = chosen;
            }
        }
    } else {
        for block in 0..16 {
            let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
            let chosen = mb.modes[4 * y + x];
            w.rem_intra_pred_mode(rem_mode(n, x, y, chosen));
            n.modes[cache_at(x, y)] = chosen;
        }
    }
}

fn write_luma<W: SyntaxWriter>(
    w: &mut W,
    mb: &Macroblock,
    n: &mut Neighbours,
    c: usize,
    flag_coded: bool,
    cabac: bool,
) {
    let levels = &mb.levels;
    if mb.kind == MbKind::I16x16 {
        let place = BlockPlace { kind: BlockKind::Dc16x16, component: c, x: 0, y: 0 };
        w.residual_block(place, n, &ZIGZAG_4X4, &levels.dc[c]);
    }
    if mb.kind == MbKind::I8x8 && flag_coded && cabac {
        crate::macroblock::hide_4x4_neighbours(n, c);
    }
    for block_8 in (0..4).filter(|b| mb.cbp >> b & 1 != 0) {
        let (x, y) = (block_8 % 2 * 2, block_8 / 2 * 2);
        if mb.kind == MbKind::I8x8 {
            let place = BlockPlace { kind: BlockKind::Luma8x8, component: c, x, y };
            let block = &levels.blocks[c][64 * block_8..64 * block_8 + 64];
            w.residual_8x8(place, n, &ZIGZAG_8X8, flag_coded, block);
            continue;
        }
        for part in 0..4 {
            let block = 4 * block_8 + part;
            let levels = &levels.blocks[c][16 * block..16 * block + 16];
            let (x, y) = (x + part % 2, y + part / 2);
            if mb.kind == MbKind::I16x16 {
                let place = BlockPlace { kind: BlockKind::Ac16x16, component: c, x, y };
                w.residual_block(place, n, &ZIGZAG_4X4[1..], levels);
            } else {
                let place = BlockPlace { kind: BlockKind::Luma4x4, component: c, x, y };
                w.residual_block(place, n, &ZIGZAG_4X4, levels);
            }
        }
    }
}

/// The chroma residual of 4:2:0.
fn write_chroma<W: SyntaxWriter>(w: &mut W, mb: &Macroblock, n: &mut Neighbours) {
    const DC_SCAN: [u8; 4] = [0, 1, 2, 3];
    if mb.cbp >> 4 != 0 {
        for c in 1..3 {
            let place = BlockPlace { kind: BlockKind::ChromaDc, component: c, x: 0, y: 0 };
            w.residual_block(place, n, &DC_SCAN, &mb.levels.dc[c]);
        }
    }
    if mb.cbp >> 4 == 2 {
        for c in 1..3 {
            for block in 0..4 {
                let place =
                    BlockPlace { kind: BlockKind::ChromaAc, component: c, x: block % 2, y: block / 2 };
                let levels = &mb.levels.blocks[c][16 * block..16 * block + 16];
                w.residual_block(place, n, &ZIGZAG_4X4[1..], levels);
            }
        }
    }
}
