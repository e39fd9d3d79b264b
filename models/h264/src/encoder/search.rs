//! Which macroblock type and modes: candidates ranked by a guess of their
//! bits, the best of them weighed by distortion plus λ times bits.
//!
//! The bits of a candidate are priced in the contexts the macroblock starts
//! with; only the macroblock that wins is written.

use super::guess::{Lanes, guess_4x4, guess_8x8, guess_one};
use super::quant::{BlockCosts, Quantizer, dead_zone, optimize};
use super::residual::{
    chroma_block, difference_along, put_source, residual_mb, residual_nxn, source_block, squared_error,
};
use super::syntax::{rem_mode, write_macroblock};
use crate::entropy::BlockKind;
use crate::entropy::cabac::ctx;
use crate::entropy::writer::SyntaxCounter;
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
use trinity_coding::cabac::ONE_BIT;

/// How hard to look.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// 4×4 and 8×8 modes that are coded and weighed; 1 trusts the guess.
    pub candidates: usize,
    /// Intra16x16 modes that are coded and weighed.
    pub candidates_16x16: usize,
    /// Levels by rate and distortion instead of a dead zone.
    pub optimize: bool,
    /// How far above its share of the best cost a type may run before it is dropped.
    pub patience: f32,
}

/// The samples of one macroblock, 16 to a row.
pub type SourceMb = [[u16; 256]; 3];

/// What a slice's searches share.
#[derive(Debug)]
pub struct Search<'a> {
    pub rebuild: &'a Rebuild,
    pub scale: &'a LevelScale,
    pub effort: Effort,
    /// λ in units of squared step per bit.
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
    /// The type to use whatever it costs, so that its contexts learn. Priced in
    /// contexts that never learned, a type would never be chosen.
    pub lesson: Option<MbKind>,
}

/// Prices that hold over a macroblock, in squared samples.
struct Prices {
    /// One bit.
    bit: f32,
    predicted_mode: f32,
    other_mode: f32,
    blocks: Vec<[BlockCosts; 4]>,
}

/// Order of the costs in [`Prices::blocks`].
const KINDS: [(BlockKind, usize); 4] =
    [(BlockKind::Luma4x4, 16), (BlockKind::Luma8x8, 64), (BlockKind::Ac16x16, 15), (BlockKind::Dc16x16, 16)];

impl Prices {
    fn mode(&self, rem: Option<u8>) -> f32 {
        if rem.is_none() { self.predicted_mode } else { self.other_mode }
    }

    /// The same in bits.
    fn mode_bits(&self, rem: Option<u8>) -> f32 {
        self.mode(rem) / self.bit
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

/// The modes that share one pass of eight lanes; DC has its own shortcut.
const LANE_MODES: [u8; 8] = [0, 1, 3, 4, 5, 6, 7, 8];

impl Search<'_> {
    /// Codes the macroblock in every way worth trying; returns the cheapest.
    pub fn macroblock<C: SyntaxCounter>(&self, job: &Job<C>) -> Trial {
        let mut base = Macroblock { qp: job.qp, ..Macroblock::default() };
        let mut windows = job.windows.clone();
        let prices = self.prices(job);
        if self.rebuild.chroma == Chroma::C420 {
            self.chroma(job, &mut base, &mut windows);
        }
        match job.lesson {
            Some(MbKind::I8x8) => {
                if let Some(trial) = self.intra_8x8(job, &prices, &base, &windows, f32::INFINITY) {
                    return trial;
                }
            }
            Some(MbKind::I4x4) => {
                if let Some(trial) = self.intra_4x4(job, &prices, &base, &windows, f32::INFINITY) {
                    return trial;
                }
            }
            Some(_) => return self.intra_16x16(job, &prices, &base, &windows),
            None => {}
        }
        let mut best = self.intra_16x16(job, &prices, &base, &windows);
        for size in [MbKind::I8x8, MbKind::I4x4] {
            let trial = if size == MbKind::I8x8 {
                self.intra_8x8(job, &prices, &base, &windows, best.cost)
            } else {
                self.intra_4x4(job, &prices, &base, &windows, best.cost)
            };
            if let Some(trial) = trial
                && trial.cost < best.cost
            {
                best = trial;
            }
        }
        best
    }

    /// The whole cost of a trial as if it were bits alone.
    pub fn cost_in_bits<C: SyntaxCounter>(&self, job: &Job<C>, trial: &Trial) -> f32 {
        if self.lossless || !self.effort.optimize {
            return self.count_bits(job, &trial.mb);
        }
        let step = job.quantizers[0].step;
        trial.cost / (self.lambda * step * step)
    }

    fn prices<C: SyntaxCounter>(&self, job: &Job<C>) -> Prices {
        let step = job.quantizers[0].step;
        let bit = self.lambda * step * step;
        let Some(contexts) = job.counter.contexts() else {
            let costs = || std::array::from_fn(|_| BlockCosts::cavlc(self.lambda));
            return Prices {
                bit,
                predicted_mode: bit,
                other_mode: 4.0 * bit,
                blocks: (0..self.components()).map(|_| costs()).collect(),
            };
        };
        let unit = bit / ONE_BIT as f32;
        let flag = contexts[ctx::PREV_INTRA_PRED_MODE_FLAG];
        let rem = contexts[ctx::REM_INTRA_PRED_MODE];
        let blocks = if self.effort.optimize && !self.lossless {
            (0..self.components())
                .map(|c| KINDS.map(|(kind, max)| BlockCosts::cabac(contexts, kind, c, max, self.lambda)))
                .collect()
        } else {
            Vec::new()
        };
        Prices {
            bit,
            predicted_mode: flag.cost(true) as f32 * unit,
            other_mode: (flag.cost(false) as f32 + 1.5 * (rem.cost(false) + rem.cost(true)) as f32) * unit,
            blocks,
        }
    }

    fn components(&self) -> usize {
        self.rebuild.luma_like()
    }

    fn limit(&self) -> i32 {
        (1 << self.rebuild.depths[0]) - 1
    }

    fn count_bits<C: SyntaxCounter>(&self, job: &Job<C>, mb: &Macroblock) -> f32 {
        let mut counter = job.counter.clone();
        let mut n = job.neighbours.clone();
        let before = counter.bits();
        write_macroblock(&mut counter, mb, &mut n, self.rebuild.chroma, self.cabac, job.delta);
        counter.bits() - before
    }

    /// The cost that decides between macroblock types: `estimate` where prices
    /// are those of the code that writes, else counted.
    fn settle<C: SyntaxCounter>(&self, job: &Job<C>, prices: &Prices, trial: &mut Trial, estimate: f32) {
        trial.cost = if self.lossless {
            self.count_bits(job, &trial.mb)
        } else if self.cabac || !self.effort.optimize {
            estimate
        } else {
            let error: f32 =
                (0..self.components()).map(|c| squared_error(&job.source[c], &trial.windows[c])).sum();
            error + prices.bit * self.count_bits(job, &trial.mb)
        };
    }

    /// Whether blocks that cost `total` so far, `share` of the macroblock, will
    /// hardly stay within `bound`.
    fn gives_up(&self, total: f32, bound: f32, share: f32) -> bool {
        let margin = 1.0 + self.effort.patience * (1.0 - share);
        !self.lossless && self.cabac && total >= bound * share * margin
    }

    /// Predicts with every allowed mode and guesses its bits, summed over components.
    #[inline(always)]
    fn rank<const N: usize, const LEN: usize>(
        &self,
        edges: &[Edge<N>; 3],
        source: &[[i32; LEN]; 3],
        guess: impl Fn(&mut [Lanes; LEN]) -> [f32; 8],
        step: f32,
        predictions: &mut [[[[u16; N]; N]; 9]; 3],
        price: impl Fn(u8) -> f32,
    ) -> Ranking {
        let mut bits = [0f32; 9];
        for c in 0..self.components() {
            let mut lanes = [[0f32; 8]; LEN];
            for (lane, &mode) in LANE_MODES.iter().enumerate() {
                // Without a prediction a lane holds the source, which DC below can use.
                let prediction = &mut predictions[c][usize::from(mode)];
                if edges[c].allows(mode) {
                    edges[c].predict(mode, prediction);
                } else {
                    *prediction = [[0; N]; N];
                }
                for k in 0..LEN {
                    lanes[k][lane] = (source[c][k] - i32::from(prediction[k / N][k % N])) as f32;
                }
            }
            for (bits_of_mode, &mode) in guess(&mut lanes).iter().zip(&LANE_MODES) {
                bits[usize::from(mode)] += *bits_of_mode;
            }
            let prediction = &mut predictions[c][usize::from(mode::DC)];
            edges[c].predict(mode::DC, prediction);
            // A flat prediction changes the first coefficient alone, a vertical one
            // the first row, a horizontal one the first column.
            let first = source[c].iter().sum::<i32>() - LEN as i32 * i32::from(prediction[0][0]);
            let dc = |k: usize| match k {
                0 => first as f32,
                _ if k < N => lanes[k][1],
                _ => lanes[k][0],
            };
            bits[usize::from(mode::DC)] += guess_one::<N, LEN>(dc, step);
        }
        let mut ranking = Ranking::new();
        for mode in (0..9).filter(|&mode| edges[0].allows(mode)) {
            ranking.add(bits[usize::from(mode)] + price(mode), mode);
        }
        ranking
    }

    /// All sixteen 4×4 blocks in turn, or `None` once they cost more than `bound`.
    fn intra_4x4<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
        bound: f32,
    ) -> Option<Trial> {
        let mut trial = Trial { mb: base.clone(), windows: windows.clone(), cost: 0.0 };
        trial.mb.kind = MbKind::I4x4;
        let mut n = job.neighbours.clone();
        let mut total = 0.0;
        let mut predictions = [[[[0u16; 4]; 4]; 9]; 3];
        for block in 0..16 {
            let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
            let at = cache_at(x, y);
            let available = available_4x4(x, y, job.neighbours.available);
            let edges: [Edge<4>; 3] = std::array::from_fn(|c| {
                trial.windows[c].edge(4 * x, 4 * y, available, self.rebuild.depths[0])
            });
            let source: [[i32; 16]; 3] = std::array::from_fn(|c| source_block(&job.source[c], x, y));
            let step = job.quantizers[0].step;
            let guess = |lanes: &mut [Lanes; 16]| guess_4x4(lanes, step);
            let ranking = self.rank(&edges, &source, guess, step, &mut predictions, |mode| {
                prices.mode_bits(rem_mode(&n, x, y, mode))
            });
            let mut least = f32::INFINITY;
            let mut winner = (mode::DC, [[0i32; 16]; 3]);
            for &(guess, mode) in ranking.best(self.effort.candidates) {
                let mut levels = [[0i32; 16]; 3];
                let mut cost = prices.mode(rem_mode(&n, x, y, mode));
                for c in 0..self.components() {
                    let residual = residual_nxn(&source[c], &predictions[c][usize::from(mode)]);
                    let cache = &n.total_coeff[c];
                    let increment = usize::from(cache[at - 1] != 0) + 2 * usize::from(cache[at - 8] != 0);
                    cost += self.code_4x4(job, prices, c, increment, residual, mode, &mut levels[c]);
                }
                let cost = if self.effort.optimize && !self.lossless { cost } else { guess };
                if cost < least {
                    least = cost;
                    winner = (mode, levels);
                }
            }
            total += least;
            if self.gives_up(total, bound, (block + 1) as f32 / 16.0) {
                return None;
            }
            let (mode, mut levels) = winner;
            trial.mb.modes[4 * y + x] = mode;
            n.modes[at] = mode;
            for c in 0..self.components() {
                trial.windows[c].put(4 * x, 4 * y, &predictions[c][usize::from(mode)]);
                let count = levels[c].iter().filter(|&&level| level != 0).count();
                n.total_coeff[c][at] = count as u8;
                if count > 0 {
                    trial.mb.levels.blocks[c][16 * block..16 * block + 16].copy_from_slice(&levels[c]);
                    trial.mb.levels.coded[c] |= 1 << block;
                    trial.mb.cbp |= 1 << (block / 4);
                }
                if self.lossless {
                    put_source(&mut trial.windows[c], &job.source[c], 4 * x, 4 * y, 4);
                } else if count > 0 {
                    let (per, rem) = job.quantizers[c].per_rem();
                    scale_4x4(&mut levels[c], &self.scale.scale_4x4[c][rem], per);
                    inverse_4x4(&mut levels[c]);
                    trial.windows[c].add::<4>(4 * x, 4 * y, &levels[c], self.limit());
                }
            }
        }
        let extra = if self.effort.optimize { 2.0 * prices.bit } else { 2.0 };
        self.settle(job, prices, &mut trial, total + extra);
        Some(trial)
    }

    /// The four 8×8 blocks in turn, or `None` once they cost more than `bound`.
    fn intra_8x8<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
        bound: f32,
    ) -> Option<Trial> {
        let mut trial = Trial { mb: base.clone(), windows: windows.clone(), cost: 0.0 };
        trial.mb.kind = MbKind::I8x8;
        let mut n = job.neighbours.clone();
        let mut total = 0.0;
        let mut predictions = [[[[0u16; 8]; 8]; 9]; 3];
        for block in 0..4 {
            let (x, y) = (block % 2, block / 2);
            let available = available_8x8(x, y, job.neighbours.available);
            let edges: [Edge<8>; 3] = std::array::from_fn(|c| {
                trial.windows[c].edge::<8>(8 * x, 8 * y, available, self.rebuild.depths[0]).filtered()
            });
            let source: [[i32; 64]; 3] = std::array::from_fn(|c| source_block(&job.source[c], x, y));
            let step = job.quantizers[0].step;
            let guess = |lanes: &mut [Lanes; 64]| guess_8x8(lanes, step);
            let ranking = self.rank(&edges, &source, guess, step, &mut predictions, |mode| {
                prices.mode_bits(rem_mode(&n, 2 * x, 2 * y, mode))
            });
            let mut least = f32::INFINITY;
            let mut winner = (mode::DC, [[0i32; 64]; 3]);
            for &(guess, mode) in ranking.best(self.effort.candidates) {
                let mut levels = [[0i32; 64]; 3];
                let mut cost = prices.mode(rem_mode(&n, 2 * x, 2 * y, mode));
                for c in 0..self.components() {
                    let residual = residual_nxn(&source[c], &predictions[c][usize::from(mode)]);
                    cost += self.code_8x8(job, prices, c, residual, mode, &mut levels[c]);
                }
                let cost = if self.effort.optimize && !self.lossless { cost } else { guess };
                if cost < least {
                    least = cost;
                    winner = (mode, levels);
                }
            }
            total += least;
            if self.gives_up(total, bound, (block + 1) as f32 / 4.0) {
                return None;
            }
            let (mode, mut levels) = winner;
            for part in 0..4 {
                let (x, y) = (2 * x + part % 2, 2 * y + part / 2);
                trial.mb.modes[4 * y + x] = mode;
                n.modes[cache_at(x, y)] = mode;
            }
            for c in 0..self.components() {
                trial.windows[c].put(8 * x, 8 * y, &predictions[c][usize::from(mode)]);
                let coded = levels[c].iter().any(|&level| level != 0);
                if coded {
                    trial.mb.levels.blocks[c][64 * block..64 * block + 64].copy_from_slice(&levels[c]);
                    trial.mb.levels.coded[c] |= 1 << (4 * block);
                    trial.mb.cbp |= 1 << block;
                }
                if self.lossless {
                    put_source(&mut trial.windows[c], &job.source[c], 8 * x, 8 * y, 8);
                } else if coded {
                    let (per, rem) = job.quantizers[c].per_rem();
                    scale_8x8(&mut levels[c], &self.scale.scale_8x8[c][rem], per);
                    inverse_8x8(&mut levels[c]);
                    trial.windows[c].add::<8>(8 * x, 8 * y, &levels[c], self.limit());
                }
            }
        }
        let extra = if self.effort.optimize { 2.0 * prices.bit } else { 2.0 };
        self.settle(job, prices, &mut trial, total + extra);
        Some(trial)
    }

    fn intra_16x16<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
    ) -> Trial {
        let available = job.neighbours.available;
        let mut ranking = Ranking::new();
        let mut prediction = [[0u16; 16]; 16];
        for mode in (0..4).filter(|&mode| intra::allows_16x16(mode, available)) {
            let mut cost = 0.0;
            for c in 0..self.components() {
                let edge = windows[c].mb_edge(available, self.rebuild.depths[0]);
                intra::predict_16x16(&edge, mode, &mut prediction);
                let residual = residual_mb(&job.source[c], &prediction);
                for half in 0..2 {
                    // Eight 4×4 blocks side by side.
                    let mut lanes: [Lanes; 16] = std::array::from_fn(|k| {
                        std::array::from_fn(|lane| {
                            let (x, y) = (lane % 4, 2 * half + lane / 4);
                            residual[(4 * y + k / 4) * 16 + 4 * x + k % 4] as f32
                        })
                    });
                    cost += guess_4x4(&mut lanes, job.quantizers[0].step).iter().sum::<f32>();
                }
            }
            ranking.add(cost, mode);
        }
        let mut best: Option<Trial> = None;
        for &(guess, mode) in ranking.best(self.effort.candidates_16x16) {
            let trial = self.intra_16x16_mode(job, prices, base, windows, mode, guess);
            if best.as_ref().is_none_or(|best| trial.cost < best.cost) {
                best = Some(trial);
            }
        }
        best.unwrap_or_else(|| self.intra_16x16_mode(job, prices, base, windows, mode::DC, 0.0))
    }

    fn intra_16x16_mode<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
        mode: u8,
        guess: f32,
    ) -> Trial {
        let mut trial = Trial { mb: base.clone(), windows: windows.clone(), cost: 0.0 };
        let mb = &mut trial.mb;
        mb.kind = MbKind::I16x16;
        mb.mode_16x16 = mode;
        mb.modes = [mode::DC; 16];
        let available = job.neighbours.available;
        let mut prediction = [[0u16; 16]; 16];
        let mut cost = 3.0 * prices.bit;
        for c in 0..self.components() {
            let edge = windows[c].mb_edge(available, self.rebuild.depths[0]);
            intra::predict_16x16(&edge, mode, &mut prediction);
            let mut residual = residual_mb(&job.source[c], &prediction);
            if self.lossless {
                difference_along(&mut residual, 16, mode);
            }
            let quantizer = &job.quantizers[c];
            let square = quantizer.step * quantizer.step;
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
                    let mut reals = [0f32; 15];
                    for k in 1..16 {
                        reals[k - 1] =
                            coefficients[usize::from(ZIGZAG_4X4[k])] as f32 * quantizer.per_level_4x4[k];
                    }
                    let costs = prices.blocks.get(c).map(|costs| &costs[2]);
                    // Most blocks around have levels, and so the flag its commonest context.
                    cost += square * self.levels(&reals, costs, 3, quantizer, &ZIGZAG_4X4[1..], out);
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
                let reals = ZIGZAG_4X4.map(|at| dc[usize::from(at)] as f32 * quantizer.per_level_dc_16x16);
                let costs = prices.blocks.get(c).map(|costs| &costs[3]);
                cost += square * self.levels(&reals, costs, 3, quantizer, &ZIGZAG_4X4, &mut mb.levels.dc[c]);
            }
            if mb.levels.dc[c].iter().any(|&level| level != 0) {
                mb.levels.dc_coded |= 1 << c;
            }
        }
        let mut copy = trial.mb.clone();
        for c in 0..self.components() {
            // The mode was ranked only if its neighbours are there.
            let _ = self.rebuild.intra_16x16(&mut copy, c, self.scale, available, &mut trial.windows[c]);
        }
        let estimate = if self.effort.optimize { cost } else { guess };
        self.settle(job, prices, &mut trial, estimate);
        trial
    }

    /// Chooses and codes chroma of 4:2:0, which no luma decision touches.
    fn chroma<C: SyntaxCounter>(&self, job: &Job<C>, mb: &mut Macroblock, windows: &mut [Window; 3]) {
        let available = job.neighbours.available;
        let mut ranking = Ranking::new();
        let mut prediction = [[0u16; 8]; 16];
        for mode in (0..4).filter(|&mode| intra::allows_chroma(mode, available)) {
            let mut lanes = [[0f32; 8]; 16];
            for c in 1..3 {
                let edge = windows[c].mb_edge(available, self.rebuild.depths[1]);
                intra::predict_chroma(&edge, mode, 8, &mut prediction);
                for block in 0..4 {
                    let residual = chroma_block(&job.source[c], &prediction, block);
                    for k in 0..16 {
                        lanes[k][4 * (c - 1) + block] = residual[k] as f32;
                    }
                }
            }
            let price = if mode == mode::CHROMA_DC { 0.0 } else { 2.0 };
            ranking.add(guess_4x4(&mut lanes, job.quantizers[1].step).iter().sum::<f32>() + price, mode);
        }
        mb.chroma_mode = ranking.best(1)[0].1;
        for c in 1..3 {
            let edge = windows[c].mb_edge(available, self.rebuild.depths[1]);
            intra::predict_chroma(&edge, mb.chroma_mode, 8, &mut prediction);
            self.code_chroma(job, mb, c, &prediction);
        }
        let mut copy = mb.clone();
        for c in 1..3 {
            let _ = self.rebuild.intra_chroma(&mut copy, c, self.scale, available, &mut windows[c]);
        }
    }

    fn code_chroma<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        mb: &mut Macroblock,
        c: usize,
        prediction: &[[u16; 8]; 16],
    ) {
        let quantizer = &job.quantizers[c];
        let costs = match job.counter.contexts() {
            _ if !self.effort.optimize || self.lossless => None,
            Some(contexts) => Some(BlockCosts::cabac(contexts, BlockKind::ChromaAc, c, 15, self.lambda)),
            None => Some(BlockCosts::cavlc(self.lambda)),
        };
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
                let reals: [f32; 15] = std::array::from_fn(|k| {
                    coefficients[usize::from(ZIGZAG_4X4[k + 1])] as f32 * quantizer.per_level_4x4[k + 1]
                });
                self.levels(&reals, costs.as_ref(), 0, quantizer, &ZIGZAG_4X4[1..], out);
            }
            out[0] = 0;
            if out.iter().any(|&level| level != 0) {
                mb.levels.coded[c] |= 1 << block;
                mb.cbp = mb.cbp & 0x0f | 0x20;
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
    }

    /// Levels of a block from its real-valued ones in scan order, put at the
    /// raster positions of `scan`; the cost in squared steps.
    #[inline(always)]
    fn levels(
        &self,
        reals: &[f32],
        costs: Option<&BlockCosts>,
        increment: usize,
        quantizer: &Quantizer,
        scan: &[u8],
        out: &mut [i32],
    ) -> f32 {
        let Some(costs) = costs else {
            for (&real, &at) in reals.iter().zip(scan) {
                out[usize::from(at)] = dead_zone(real, self.rounding, quantizer.max_level);
            }
            return 0.0;
        };
        let mut levels = [0i32; 64];
        let cost = optimize(reals, costs, increment, quantizer.max_level, &mut levels);
        for (&level, &at) in levels.iter().zip(scan) {
            out[usize::from(at)] = level;
        }
        cost
    }

    /// Levels of a 4×4 residual and their cost in squared samples.
    #[inline(always)]
    fn code_4x4<C>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        component: usize,
        increment: usize,
        residual: [i32; 16],
        mode: u8,
        out: &mut [i32; 16],
    ) -> f32 {
        if self.lossless {
            *out = residual;
            difference_along(out, 4, mode);
            return 0.0;
        }
        let quantizer = &job.quantizers[component];
        let coefficients = forward_4x4(&residual);
        let reals: [f32; 16] = std::array::from_fn(|k| {
            coefficients[usize::from(ZIGZAG_4X4[k])] as f32 * quantizer.per_level_4x4[k]
        });
        let costs = prices.blocks.get(component).map(|costs| &costs[0]);
        quantizer.step * quantizer.step * self.levels(&reals, costs, increment, quantizer, &ZIGZAG_4X4, out)
    }

    /// The same for 8×8.
    #[inline(always)]
    fn code_8x8<C>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        component: usize,
        residual: [i32; 64],
        mode: u8,
        out: &mut [i32; 64],
    ) -> f32 {
        if self.lossless {
            *out = residual;
            difference_along(out, 8, mode);
            return 0.0;
        }
        let quantizer = &job.quantizers[component];
        let coefficients = forward_8x8(&residual);
        let reals: [f32; 64] = std::array::from_fn(|k| {
            coefficients[usize::from(ZIGZAG_8X8[k])] as f32 * quantizer.per_level_8x8[k]
        });
        let costs = prices.blocks.get(component).map(|costs| &costs[1]);
        quantizer.step * quantizer.step * self.levels(&reals, costs, 0, quantizer, &ZIGZAG_8X8, out)
    }
}
