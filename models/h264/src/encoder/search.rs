//! Which macroblock type and modes: prediction candidates ranked by SATD, the
//! best of them coded and weighed by distortion plus λ times bits.

use super::quant::{BlockCosts, Quantizer, dead_zone, trellis};
use super::satd::{satd_4x4, satd_8x8};
use super::syntax::{clear_totals, rem_mode, write_macroblock};
use crate::entropy::writer::SyntaxCounter;
use crate::entropy::{BlockKind, BlockPlace};
use crate::intra::{self, Edge, mode};
use crate::macroblock::{Macroblock, MbKind, Neighbours, cache_at};
use crate::picture::{Window, available_4x4, available_8x8};
use crate::reconstruct::Rebuild;
use crate::scaling::LevelScale;
use crate::tables::{BLOCK_X, BLOCK_Y, ZIGZAG_4X4, ZIGZAG_8X8};
use crate::transform::{
    forward_4x4, forward_8x8, hadamard_2x2, hadamard_4x4, inverse_4x4, inverse_8x8, scale_4x4, scale_8x8,
};
use trinity_coding::Chroma;
use trinity_coding::cabac::Context;

/// How hard to look.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Candidates of each block that are coded and weighed; 1 trusts SATD.
    pub candidates: usize,
    /// Intra16x16 and chroma modes that are coded and weighed.
    pub candidates_16x16: usize,
    /// Levels by trellis instead of a dead zone.
    pub trellis: bool,
    /// The trellis weighs candidates too, not only the one chosen.
    pub trellis_candidates: bool,
}

/// The samples of one macroblock, 16 to a row.
pub type SourceMb = [[u16; 256]; 3];

/// What a slice's searches share.
#[derive(Debug)]
pub struct Search<'a> {
    pub rebuild: &'a Rebuild,
    pub scale: &'a LevelScale,
    pub effort: Effort,
    /// λ in units of squared luma step per bit.
    pub lambda: f32,
    /// Share of a step that plain rounding adds before truncation.
    pub rounding: f32,
    pub lossless: bool,
    pub cabac: bool,
}

/// A macroblock coded one way, and what that costs.
#[derive(Debug, Clone)]
pub struct Trial {
    pub mb: Macroblock,
    pub windows: [Window; 3],
    pub cost: f32,
}

/// The macroblock at hand.
#[derive(Debug)]
pub struct Job<'a, C> {
    pub source: &'a SourceMb,
    pub neighbours: &'a Neighbours,
    /// Windows with the neighbouring samples loaded.
    pub windows: &'a [Window; 3],
    pub counter: &'a C,
    pub quantizers: &'a [Quantizer; 3],
    pub qp: i32,
    pub delta: i32,
}

impl<C> Job<'_, C> {
    /// λ in squared sample units per bit.
    fn lambda(&self, search: &Search) -> f32 {
        let step = self.quantizers[0].step;
        search.lambda * step * step
    }
}

/// The best few of the candidate modes, by cost.
struct Ranking {
    modes: [(f32, u8); 9],
    count: usize,
}

impl Ranking {
    fn new() -> Self {
        Self { modes: [(f32::INFINITY, mode::DC); 9], count: 0 }
    }

    fn add(&mut self, cost: f32, mode: u8) {
        let mut at = self.count;
        self.count += 1;
        while at > 0 && self.modes[at - 1].0 > cost {
            self.modes[at] = self.modes[at - 1];
            at -= 1;
        }
        self.modes[at] = (cost, mode);
    }

    fn best(&self, count: usize) -> &[(f32, u8)] {
        &self.modes[..count.min(self.count)]
    }
}

impl Search<'_> {
    /// Codes the macroblock in every way worth trying; returns the cheapest.
    pub fn macroblock<C: SyntaxCounter>(&self, job: &Job<C>) -> Trial {
        let mut base = Macroblock { qp: job.qp, ..Macroblock::default() };
        let mut windows = job.windows.clone();
        if self.rebuild.chroma == Chroma::C420 {
            self.chroma(job, &mut base, &mut windows);
        }
        let mut best = self.intra_16x16(job, &base, &windows);
        for trial in [self.intra_8x8(job, &base, &windows), self.intra_4x4(job, &base, &windows)] {
            if trial.cost < best.cost {
                best = trial;
            }
        }
        best
    }

    /// The whole cost of a trial as if it were bits alone.
    pub fn cost_in_bits<C>(&self, job: &Job<C>, trial: &Trial) -> f32 {
        if self.lossless { trial.cost } else { trial.cost / job.lambda(self) }
    }

    fn components(&self) -> usize {
        self.rebuild.luma_like()
    }

    /// Bits by the code that writes them, squared error by the samples.
    fn weigh<C: SyntaxCounter>(&self, job: &Job<C>, mb: &Macroblock, windows: &[Window; 3]) -> f32 {
        let mut counter = job.counter.clone();
        let mut n = job.neighbours.clone();
        let before = counter.bits();
        write_macroblock(&mut counter, mb, &mut n, self.rebuild.chroma, self.cabac, job.delta);
        let bits = counter.bits() - before;
        if self.lossless {
            return bits;
        }
        let error: f32 = (0..self.components()).map(|c| squared_error(&job.source[c], &windows[c], 16)).sum();
        error + job.lambda(self) * bits
    }

    fn intra_4x4<C: SyntaxCounter>(&self, job: &Job<C>, base: &Macroblock, windows: &[Window; 3]) -> Trial {
        let mut trial = Trial { mb: base.clone(), windows: windows.clone(), cost: 0.0 };
        trial.mb.kind = MbKind::I4x4;
        let mut n = job.neighbours.clone();
        clear_totals(&mut n);
        let mut counter = job.counter.clone();
        for block in 0..16 {
            let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
            let available = available_4x4(x, y, job.neighbours.available);
            let edges: [Edge<4>; 3] = std::array::from_fn(|c| {
                trial.windows[c].edge(4 * x, 4 * y, available, self.rebuild.depths[0])
            });
            let source: [[i32; 16]; 3] = std::array::from_fn(|c| source_block(&job.source[c], x, y));
            let mut ranking = Ranking::new();
            let mut prediction = [[0u16; 4]; 4];
            for mode in (0..9).filter(|&mode| edges[0].allows(mode)) {
                let mut cost = self.mode_price(job, rem_mode(&n, x, y, mode));
                for c in 0..self.components() {
                    edges[c].predict(mode, &mut prediction);
                    cost += satd_4x4(&residual_4x4(&source[c], &prediction)) as f32;
                }
                ranking.add(cost, mode);
            }
            let mut least = f32::INFINITY;
            let mut winner = (mode::DC, [[0i32; 16]; 3], counter.clone());
            let candidates = ranking.best(self.effort.candidates);
            for &(_, mode) in candidates {
                let mut count = counter.clone();
                count.rem_intra_pred_mode(rem_mode(&n, x, y, mode));
                let mut error = 0.0;
                let mut levels = [[0i32; 16]; 3];
                for c in 0..self.components() {
                    edges[c].predict(mode, &mut prediction);
                    let residual = residual_4x4(&source[c], &prediction);
                    let place = BlockPlace { kind: BlockKind::Luma4x4, component: c, x, y };
                    let use_trellis = self.effort.trellis_candidates || candidates.len() == 1;
                    error += self.quantize_4x4(
                        job,
                        &count,
                        &n,
                        place,
                        &residual,
                        mode,
                        use_trellis,
                        &mut levels[c],
                    );
                    count.residual_block(place, &mut n, &ZIGZAG_4X4, &levels[c]);
                }
                let cost = error + job.lambda(self) * (count.bits() - counter.bits());
                if cost < least {
                    least = cost;
                    winner = (mode, levels, count);
                }
            }
            let (mode, mut levels, count) = winner;
            trial.mb.modes[4 * y + x] = mode;
            n.modes[cache_at(x, y)] = mode;
            for c in 0..self.components() {
                edges[c].predict(mode, &mut prediction);
                let place = BlockPlace { kind: BlockKind::Luma4x4, component: c, x, y };
                if self.effort.trellis && !self.effort.trellis_candidates && candidates.len() > 1 {
                    let residual = residual_4x4(&source[c], &prediction);
                    self.quantize_4x4(job, &counter, &n, place, &residual, mode, true, &mut levels[c]);
                }
                let total = levels[c].iter().filter(|&&level| level != 0).count();
                n.total_coeff[c][cache_at(x, y)] = total as u8;
                trial.mb.levels.blocks[c][16 * block..16 * block + 16].copy_from_slice(&levels[c]);
                if total > 0 {
                    trial.mb.levels.coded[c] |= 1 << block;
                    trial.mb.cbp |= 1 << (block / 4);
                }
                trial.windows[c].put(4 * x, 4 * y, &prediction);
                if self.lossless {
                    put_source(&mut trial.windows[c], &job.source[c], 4 * x, 4 * y, 4);
                } else if total > 0 {
                    let quantizer = &job.quantizers[c];
                    let scale = &self.scale.scale_4x4[c][(quantizer.qp_prime % 6) as usize];
                    scale_4x4(&mut levels[c], scale, (quantizer.qp_prime / 6) as u32);
                    inverse_4x4(&mut levels[c]);
                    trial.windows[c].add::<4>(4 * x, 4 * y, &levels[c], self.limit());
                }
            }
            counter = count;
        }
        trial.cost = self.weigh(job, &trial.mb, &trial.windows);
        trial
    }

    fn intra_8x8<C: SyntaxCounter>(&self, job: &Job<C>, base: &Macroblock, windows: &[Window; 3]) -> Trial {
        let mut trial = Trial { mb: base.clone(), windows: windows.clone(), cost: 0.0 };
        trial.mb.kind = MbKind::I8x8;
        let mut n = job.neighbours.clone();
        clear_totals(&mut n);
        let mut counter = job.counter.clone();
        for block in 0..4 {
            let (x, y) = (block % 2, block / 2);
            let available = available_8x8(x, y, job.neighbours.available);
            let edges: [Edge<8>; 3] = std::array::from_fn(|c| {
                trial.windows[c].edge::<8>(8 * x, 8 * y, available, self.rebuild.depths[0]).filtered()
            });
            let source: [[i32; 64]; 3] = std::array::from_fn(|c| source_block(&job.source[c], x, y));
            let mut ranking = Ranking::new();
            let mut prediction = [[0u16; 8]; 8];
            for mode in (0..9).filter(|&mode| edges[0].allows(mode)) {
                let mut cost = self.mode_price(job, rem_mode(&n, 2 * x, 2 * y, mode));
                for c in 0..self.components() {
                    edges[c].predict(mode, &mut prediction);
                    cost += satd_8x8(&residual_8x8(&source[c], &prediction)) as f32;
                }
                ranking.add(cost, mode);
            }
            let mut least = f32::INFINITY;
            let mut winner = (mode::DC, [[0i32; 64]; 3], counter.clone());
            let candidates = ranking.best(self.effort.candidates);
            for &(_, mode) in candidates {
                let mut count = counter.clone();
                count.rem_intra_pred_mode(rem_mode(&n, 2 * x, 2 * y, mode));
                let mut error = 0.0;
                let mut levels = [[0i32; 64]; 3];
                for c in 0..self.components() {
                    edges[c].predict(mode, &mut prediction);
                    let residual = residual_8x8(&source[c], &prediction);
                    let use_trellis = self.effort.trellis_candidates || candidates.len() == 1;
                    error += self.quantize_8x8(job, &count, c, &residual, mode, use_trellis, &mut levels[c]);
                    if levels[c].iter().any(|&level| level != 0) {
                        let place = BlockPlace { kind: BlockKind::Luma8x8, component: c, x: 2 * x, y: 2 * y };
                        count.residual_8x8(place, &mut n, &ZIGZAG_8X8, false, &levels[c]);
                    }
                }
                let cost = error + job.lambda(self) * (count.bits() - counter.bits());
                if cost < least {
                    least = cost;
                    winner = (mode, levels, count);
                }
            }
            let (mode, mut levels, count) = winner;
            for part in 0..4 {
                let (x, y) = (2 * x + part % 2, 2 * y + part / 2);
                trial.mb.modes[4 * y + x] = mode;
                n.modes[cache_at(x, y)] = mode;
            }
            for c in 0..self.components() {
                edges[c].predict(mode, &mut prediction);
                if self.effort.trellis && !self.effort.trellis_candidates && candidates.len() > 1 {
                    let residual = residual_8x8(&source[c], &prediction);
                    self.quantize_8x8(job, &counter, c, &residual, mode, true, &mut levels[c]);
                }
                self.note_8x8(&mut n, c, 2 * x, 2 * y, &levels[c]);
                trial.mb.levels.blocks[c][64 * block..64 * block + 64].copy_from_slice(&levels[c]);
                trial.windows[c].put(8 * x, 8 * y, &prediction);
                let coded = levels[c].iter().any(|&level| level != 0);
                if coded {
                    trial.mb.levels.coded[c] |= 1 << (4 * block);
                    trial.mb.cbp |= 1 << block;
                }
                if self.lossless {
                    put_source(&mut trial.windows[c], &job.source[c], 8 * x, 8 * y, 8);
                } else if coded {
                    let quantizer = &job.quantizers[c];
                    let scale = &self.scale.scale_8x8[c][(quantizer.qp_prime % 6) as usize];
                    scale_8x8(&mut levels[c], scale, (quantizer.qp_prime / 6) as u32);
                    inverse_8x8(&mut levels[c]);
                    trial.windows[c].add::<8>(8 * x, 8 * y, &levels[c], self.limit());
                }
            }
            counter = count;
        }
        trial.cost = self.weigh(job, &trial.mb, &trial.windows);
        trial
    }

    /// The level counts that neighbours see of an 8×8 block: its own in CABAC,
    /// those of its four interleaved parts in CAVLC.
    fn note_8x8(&self, n: &mut Neighbours, c: usize, x: usize, y: usize, levels: &[i32; 64]) {
        let total = levels.iter().filter(|&&level| level != 0).count() as u8;
        for part in 0..4 {
            let own = (0..16).filter(|k| levels[usize::from(ZIGZAG_8X8[4 * k + part])] != 0).count() as u8;
            n.total_coeff[c][cache_at(x + part % 2, y + part / 2)] = if self.cabac { total } else { own };
        }
    }

    fn intra_16x16<C: SyntaxCounter>(&self, job: &Job<C>, base: &Macroblock, windows: &[Window; 3]) -> Trial {
        let available = job.neighbours.available;
        let mut ranking = Ranking::new();
        let mut prediction = [[0u16; 16]; 16];
        for mode in (0..4).filter(|&mode| intra::allows_16x16(mode, available)) {
            let mut cost = 0.0;
            for c in 0..self.components() {
                let edge = windows[c].mb_edge(available, self.rebuild.depths[0]);
                intra::predict_16x16(&edge, mode, &mut prediction);
                for block in 0..16 {
                    let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
                    let source: [i32; 16] = source_block(&job.source[c], x, y);
                    cost += satd_4x4(&std::array::from_fn(|k| {
                        source[k] - i32::from(prediction[4 * y + k / 4][4 * x + k % 4])
                    })) as f32;
                }
            }
            ranking.add(cost, mode);
        }
        let mut best: Option<Trial> = None;
        for &(_, mode) in ranking.best(self.effort.candidates_16x16) {
            let trial = self.intra_16x16_mode(job, base, windows, mode);
            if best.as_ref().is_none_or(|best| trial.cost < best.cost) {
                best = Some(trial);
            }
        }
        best.unwrap_or_else(|| self.intra_16x16_mode(job, base, windows, mode::DC))
    }

    fn intra_16x16_mode<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        base: &Macroblock,
        windows: &[Window; 3],
        mode: u8,
    ) -> Trial {
        let mut trial = Trial { mb: base.clone(), windows: windows.clone(), cost: 0.0 };
        let mb = &mut trial.mb;
        mb.kind = MbKind::I16x16;
        mb.mode_16x16 = mode;
        mb.modes = [mode::DC; 16];
        let available = job.neighbours.available;
        let mut prediction = [[0u16; 16]; 16];
        for c in 0..self.components() {
            let edge = windows[c].mb_edge(available, self.rebuild.depths[0]);
            intra::predict_16x16(&edge, mode, &mut prediction);
            let mut residual: [i32; 256] =
                std::array::from_fn(|k| i32::from(job.source[c][k]) - i32::from(prediction[k / 16][k % 16]));
            if self.lossless {
                difference_along(&mut residual, 16, mode);
            }
            let quantizer = &job.quantizers[c];
            let ac_costs = self.costs(job.counter.contexts(), BlockKind::Ac16x16, c, 15);
            let mut dc = [0i32; 16];
            for block in 0..16 {
                let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
                let own: [i32; 16] = std::array::from_fn(|k| residual[(4 * y + k / 4) * 16 + 4 * x + k % 4]);
                let out = &mut mb.levels.blocks[c][16 * block..16 * block + 16];
                if self.lossless {
                    out.copy_from_slice(&own);
                    dc[4 * y + x] = own[0];
                } else {
                    let coefficients = forward_4x4(&own);
                    dc[4 * y + x] = coefficients[0];
                    self.quantize_scan(
                        &ZIGZAG_4X4[1..],
                        quantizer.max_level,
                        &ac_costs,
                        self.effort.trellis,
                        out,
                        |at| coefficients[at] as f32 * quantizer.per_level_4x4[at],
                    );
                }
                out[0] = 0;
                if out.iter().any(|&level| level != 0) {
                    mb.levels.coded[c] |= 1 << block;
                    mb.cbp |= 15;
                }
            }
            if self.lossless {
                mb.levels.dc[c] = dc;
            } else {
                hadamard_4x4(&mut dc);
                let costs = self.costs(job.counter.contexts(), BlockKind::Dc16x16, c, 16);
                let levels = &mut mb.levels.dc[c];
                self.quantize_scan(
                    &ZIGZAG_4X4,
                    quantizer.max_level,
                    &costs,
                    self.effort.trellis,
                    levels,
                    |at| dc[at] as f32 * quantizer.per_level_dc_16x16,
                );
            }
            if mb.levels.dc[c].iter().any(|&level| level != 0) {
                mb.levels.dc_coded |= 1 << c;
            }
        }
        let mut copy = trial.mb.clone();
        for c in 0..self.components() {
            let window = &mut trial.windows[c];
            // The mode was ranked only if its neighbours are there.
            let _ = self.rebuild.intra_16x16(&mut copy, c, self.scale, available, window);
        }
        trial.cost = self.weigh(job, &trial.mb, &trial.windows);
        trial
    }

    /// Chooses and codes chroma of 4:2:0, which no luma decision touches.
    fn chroma<C: SyntaxCounter>(&self, job: &Job<C>, mb: &mut Macroblock, windows: &mut [Window; 3]) {
        let available = job.neighbours.available;
        let mut ranking = Ranking::new();
        let mut prediction = [[0u16; 8]; 16];
        for mode in (0..4).filter(|&mode| intra::allows_chroma(mode, available)) {
            let mut cost = if mode == mode::CHROMA_DC { 0.0 } else { self.mode_price(job, Some(0)) };
            for c in 1..3 {
                let edge = windows[c].mb_edge(available, self.rebuild.depths[1]);
                intra::predict_chroma(&edge, mode, 8, &mut prediction);
                for block in 0..4 {
                    cost += satd_4x4(&chroma_residual(&job.source[c], &prediction, block)) as f32;
                }
            }
            ranking.add(cost, mode);
        }
        mb.chroma_mode = ranking.best(1)[0].1;
        for c in 1..3 {
            let edge = windows[c].mb_edge(available, self.rebuild.depths[1]);
            intra::predict_chroma(&edge, mb.chroma_mode, 8, &mut prediction);
            self.quantize_chroma(job, mb, c, &prediction);
        }
        let mut copy = mb.clone();
        for c in 1..3 {
            let _ = self.rebuild.intra_chroma(&mut copy, c, self.scale, available, &mut windows[c]);
        }
    }

    fn quantize_chroma<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        mb: &mut Macroblock,
        c: usize,
        prediction: &[[u16; 8]; 16],
    ) {
        let quantizer = &job.quantizers[c];
        let costs = self.costs(job.counter.contexts(), BlockKind::ChromaAc, c, 15);
        let mut dc = [0i32; 4];
        let mut whole: [i32; 64] = std::array::from_fn(|k| {
            i32::from(job.source[c][k / 8 * 16 + k % 8]) - i32::from(prediction[k / 8][k % 8])
        });
        if self.lossless {
            let along = match mb.chroma_mode {
                mode::CHROMA_HORIZONTAL => mode::HORIZONTAL,
                mode::CHROMA_VERTICAL => mode::VERTICAL,
                _ => mode::DC,
            };
            difference_along(&mut whole, 8, along);
        }
        for block in 0..4 {
            let (x, y) = (block % 2, block / 2);
            let own: [i32; 16] = std::array::from_fn(|k| whole[(4 * y + k / 4) * 8 + 4 * x + k % 4]);
            let out = &mut mb.levels.blocks[c][16 * block..16 * block + 16];
            if self.lossless {
                out.copy_from_slice(&own);
                dc[block] = own[0];
            } else {
                let coefficients = forward_4x4(&own);
                dc[block] = coefficients[0];
                self.quantize_scan(
                    &ZIGZAG_4X4[1..],
                    quantizer.max_level,
                    &costs,
                    self.effort.trellis,
                    out,
                    |at| coefficients[at] as f32 * quantizer.per_level_4x4[at],
                );
            }
            out[0] = 0;
            if out.iter().any(|&level| level != 0) {
                mb.levels.coded[c] |= 1 << block;
                mb.cbp |= 0x20;
            }
        }
        if !self.lossless {
            dc = hadamard_2x2(dc).map(|value| {
                dead_zone(value as f32 * quantizer.per_level_dc_chroma, self.rounding, quantizer.max_level)
            });
        }
        mb.levels.dc[c] = [0; 16];
        mb.levels.dc[c][..4].copy_from_slice(&dc);
        if dc != [0; 4] {
            mb.levels.dc_coded |= 1 << c;
            if mb.cbp >> 4 == 0 {
                mb.cbp |= 0x10;
            }
        }
        if mb.cbp >> 4 == 3 {
            mb.cbp &= 0x2f;
        }
    }

    fn limit(&self) -> i32 {
        (1 << self.rebuild.depths[0]) - 1
    }

    /// What signalling a 4×4 or 8×8 mode is worth in SATD units.
    fn mode_price<C>(&self, job: &Job<C>, rem: Option<u8>) -> f32 {
        let bits = if rem.is_none() { 0.8 } else { 3.6 };
        bits * job.lambda(self).sqrt()
    }

    fn costs(
        &self,
        contexts: Option<&[Context; 1024]>,
        kind: BlockKind,
        component: usize,
        max: usize,
    ) -> Option<BlockCosts> {
        let contexts = contexts.filter(|_| self.effort.trellis && !self.lossless)?;
        Some(BlockCosts::new(contexts, kind, component, max, None))
    }

    /// Quantizes what `real` gives by raster position into `out`; squared error in squared steps.
    fn quantize_scan(
        &self,
        scan: &[u8],
        max_level: f32,
        costs: &Option<BlockCosts>,
        use_trellis: bool,
        out: &mut [i32],
        real: impl Fn(usize) -> f32,
    ) -> f32 {
        let mut error = 0.0;
        if let (Some(costs), true) = (costs, use_trellis) {
            let mut reals = [0f32; 64];
            let mut levels = [0i32; 64];
            for (k, &at) in scan.iter().enumerate() {
                reals[k] = real(usize::from(at));
            }
            trellis(&reals[..scan.len()], costs, self.lambda, max_level, &mut levels[..scan.len()]);
            for (k, &at) in scan.iter().enumerate() {
                out[usize::from(at)] = levels[k];
                let off = reals[k] - levels[k] as f32;
                error += off * off;
            }
        } else {
            for &at in scan {
                let value = real(usize::from(at));
                let level = dead_zone(value, self.rounding, max_level);
                out[usize::from(at)] = level;
                let off = value - level as f32;
                error += off * off;
            }
        }
        error
    }

    /// Levels of a 4×4 residual; returns squared error in samples.
    fn quantize_4x4<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        count: &C,
        n: &Neighbours,
        place: BlockPlace,
        residual: &[i32; 16],
        mode: u8,
        use_trellis: bool,
        out: &mut [i32; 16],
    ) -> f32 {
        if self.lossless {
            *out = *residual;
            difference_along(out, 4, mode);
            return 0.0;
        }
        let quantizer = &job.quantizers[place.component];
        let coefficients = forward_4x4(residual);
        let costs = match count.contexts() {
            Some(contexts) if use_trellis && self.effort.trellis => {
                let cache = &n.total_coeff[place.component];
                let at = cache_at(place.x, place.y);
                let increment = usize::from(cache[at - 1] != 0) + 2 * usize::from(cache[at - 8] != 0);
                Some(BlockCosts::new(contexts, place.kind, place.component, 16, Some(increment)))
            }
            _ => None,
        };
        let error = self.quantize_scan(&ZIGZAG_4X4, quantizer.max_level, &costs, use_trellis, out, |at| {
            coefficients[at] as f32 * quantizer.per_level_4x4[at]
        });
        error * quantizer.step * quantizer.step
    }

    /// The same for 8×8.
    fn quantize_8x8<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        count: &C,
        component: usize,
        residual: &[i32; 64],
        mode: u8,
        use_trellis: bool,
        out: &mut [i32; 64],
    ) -> f32 {
        if self.lossless {
            *out = *residual;
            difference_along(out, 8, mode);
            return 0.0;
        }
        let quantizer = &job.quantizers[component];
        let coefficients = forward_8x8(residual);
        let costs = match count.contexts() {
            Some(contexts) if use_trellis && self.effort.trellis => {
                Some(BlockCosts::new(contexts, BlockKind::Luma8x8, component, 64, None))
            }
            _ => None,
        };
        let error = self.quantize_scan(&ZIGZAG_8X8, quantizer.max_level, &costs, use_trellis, out, |at| {
            coefficients[at] as f32 * quantizer.per_level_8x8[at]
        });
        error * quantizer.step * quantizer.step
    }
}

/// An N×N block (N from the array's length) of the source, in units of its own size.
fn source_block<const LEN: usize>(source: &[u16; 256], x: usize, y: usize) -> [i32; LEN] {
    let n = LEN.isqrt();
    std::array::from_fn(|k| i32::from(source[(n * y + k / n) * 16 + n * x + k % n]))
}

fn residual_4x4(source: &[i32; 16], prediction: &[[u16; 4]; 4]) -> [i32; 16] {
    std::array::from_fn(|k| source[k] - i32::from(prediction[k / 4][k % 4]))
}

fn residual_8x8(source: &[i32; 64], prediction: &[[u16; 8]; 8]) -> [i32; 64] {
    std::array::from_fn(|k| source[k] - i32::from(prediction[k / 8][k % 8]))
}

fn chroma_residual(source: &[u16; 256], prediction: &[[u16; 8]; 16], block: usize) -> [i32; 16] {
    let (x, y) = (4 * (block % 2), 4 * (block / 2));
    std::array::from_fn(|k| {
        i32::from(source[(y + k / 4) * 16 + x + k % 4]) - i32::from(prediction[y + k / 4][x + k % 4])
    })
}

/// The inverse of the lossless accumulation along rows or columns (clause 8.5.15).
fn difference_along(residual: &mut [i32], width: usize, mode: u8) {
    match mode {
        mode::HORIZONTAL => {
            for row in residual.chunks_exact_mut(width) {
                for x in (1..width).rev() {
                    row[x] -= row[x - 1];
                }
            }
        }
        mode::VERTICAL => {
            for at in (width..residual.len()).rev() {
                residual[at] -= residual[at - width];
            }
        }
        _ => {}
    }
}

fn put_source(window: &mut Window, source: &[u16; 256], x: usize, y: usize, size: usize) {
    for row in y..y + size {
        window.row_mut(row)[x..x + size].copy_from_slice(&source[row * 16 + x..row * 16 + x + size]);
    }
}

fn squared_error(source: &[u16; 256], window: &Window, rows: usize) -> f32 {
    let mut sum = 0u64;
    for (y, own) in source.chunks_exact(16).enumerate().take(rows) {
        let row: u32 = own
            .iter()
            .zip(window.row(y))
            .map(|(&a, &b)| {
                let off = u32::from(a.abs_diff(b));
                off * off
            })
            .sum();
        sum += u64::from(row);
    }
    sum as f32
}
