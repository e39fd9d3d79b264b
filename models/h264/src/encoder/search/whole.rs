//! Predictions of the whole macroblock: Intra 16×16, and chroma of 4:2:0.

use super::{Job, Prices, Pricing, Ranking, Search, Trial};
use crate::blocks::{BlockSize, Four};
use crate::encoder::quantize::{BlockCosts, Quantizer, dead_zone};
use crate::encoder::residual::{chroma_block, cut_4x4, difference_along, residual_mb};
use crate::encoder::search::estimate::{TransformedMb, estimate};
use crate::entropy::BlockKind;
use crate::entropy::cavlc::coeff_token_table;
use crate::entropy::writer::SyntaxCounter;
use crate::intra::{self, mode};
use crate::macroblock::{Macroblock, MbKind, cache_at};
use crate::picture::Window;
use crate::tables::{BLOCK_X, BLOCK_Y, ZIGZAG_4X4};
use crate::transform::{forward_4x4, hadamard_2x2, hadamard_4x4};

impl Search<'_> {
    /// The mode ranked first, coded.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn intra_16x16<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
    ) -> Trial {
        let available = job.neighbours.available;
        let mut bits = [0f32; 4];
        let mut prediction = [[0u16; 16]; 16];
        for c in 0..self.components() {
            let source = TransformedMb::new(&job.source[c]);
            let edge = windows[c].mb_edge(available, self.rebuild.depths[0]);
            for mode in (0..4).filter(|&mode| intra::allows_16x16(mode, available)) {
                let transformed = match mode {
                    mode::VERTICAL => TransformedMb::vertical(&edge.top),
                    mode::HORIZONTAL => TransformedMb::horizontal(&edge.left),
                    _ => {
                        intra::predict_16x16(&edge, mode, &mut prediction);
                        match mode {
                            mode::DC => TransformedMb::flat(prediction[0][0]),
                            _ => TransformedMb::new(flattened(&prediction)),
                        }
                    }
                };
                bits[usize::from(mode)] += source.estimate(&transformed, job.quantizers[0].step);
            }
        }
        let mut ranking = Ranking::new();
        for mode in (0..4).filter(|&mode| intra::allows_16x16(mode, available)) {
            ranking.add(bits[usize::from(mode)], mode);
        }
        self.intra_16x16_mode(job, prices, base, windows, ranking.best(1, 0.0)[0].1)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn intra_16x16_mode<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
        mode: u8,
    ) -> Trial {
        let mut trial = Trial::new(base, windows);
        let mb = &mut trial.mb;
        let mut quarters = [0f32; 4];
        mb.kind = MbKind::I16x16;
        mb.mode_16x16 = mode;
        mb.modes = [mode::DC; 16];
        let available = job.neighbours.available;
        let mut prediction = [[0u16; 16]; 16];
        for c in 0..self.components() {
            let edge = windows[c].mb_edge(available, self.rebuild.depths[0]);
            intra::predict_16x16(&edge, mode, &mut prediction);
            let mut residual = residual_mb(&job.source[c], &prediction);
            if self.lossless {
                difference_along(&mut residual, 16, mode);
            }
            let quantizer = &job.quantizers[c];
            let square = quantizer.step * quantizer.step;
            let mut cache = job.neighbours.total_coeff[c];
            let mut dc = [0i32; 16];
            for block in 0..16 {
                let (x, y) = (BLOCK_X[block], BLOCK_Y[block]);
                let own = cut_4x4(&residual, x, y);
                let at = cache_at(x, y);
                // Most blocks around have levels, and so CABAC's flag its commonest context.
                let (left, above) = if self.cabac { (1, 1) } else { (cache[at - 1], cache[at - 8]) };
                let pricing = prices.block(c, 2, left, above);
                let out = Four::room(&mut mb.levels.blocks[c], block);
                let cost;
                (dc[4 * y + x], cost, cache[at]) = self.code_ac(&own, pricing, quantizer, out);
                quarters[block / 4] += square * cost;
                if cache[at] > 0 {
                    mb.levels.coded[c] |= 1 << block;
                    mb.cbp |= 15;
                }
            }
            if self.lossless {
                mb.levels.dc[c] = dc;
            } else {
                hadamard_4x4(&mut dc);
                let reals = ZIGZAG_4X4.map(|at| dc[usize::from(at)] as f32 * quantizer.per_level_dc_16x16);
                let at = cache_at(0, 0);
                let (left, above) = if self.cabac { (1, 1) } else { (cache[at - 1], cache[at - 8]) };
                let pricing = prices.block(c, 3, left, above);
                let cost = self.levels(&reals, pricing, quantizer, &ZIGZAG_4X4, &mut mb.levels.dc[c]);
                quarters.iter_mut().for_each(|quarter| *quarter += 0.25 * square * cost);
            }
            if mb.levels.dc[c].iter().any(|&level| level != 0) {
                mb.levels.dc_coded |= 1 << c;
            }
        }
        trial.rebuilt = false;
        trial.quarters = quarters;
        self.settle(job, prices, &mut trial);
        trial
    }

    /// Levels of a 4×4 block whose DC goes another way: that DC, what they cost in
    /// squared steps, and how many they are.
    #[inline(always)]
    fn code_ac(
        &self,
        own: &[i32; 16],
        pricing: Pricing,
        quantizer: &Quantizer,
        out: &mut [i32; 16],
    ) -> (i32, f32, u8) {
        let (mut dc, mut cost) = (own[0], 0.0);
        if self.lossless {
            *out = *own;
        } else {
            let coefficients = forward_4x4(own);
            dc = coefficients[0];
            let reals: [f32; 15] = std::array::from_fn(|k| {
                coefficients[usize::from(ZIGZAG_4X4[k + 1])] as f32 * quantizer.per_level_4x4[k + 1]
            });
            cost = self.levels(&reals, pricing, quantizer, &ZIGZAG_4X4[1..], out);
        }
        out[0] = 0;
        (dc, cost, out.iter().filter(|&&level| level != 0).count() as u8)
    }

    /// The samples of a 16×16 trial, which nothing needs before it wins or is counted.
    pub(super) fn rebuild_16x16<C: SyntaxCounter>(&self, job: &Job<C>, trial: &mut Trial) {
        let mut copy = trial.mb;
        for c in 0..self.components() {
            // The mode was ranked only if its neighbours are there.
            let _ = self.rebuild.intra_16x16(
                &mut copy,
                c,
                self.scale,
                job.neighbours.available,
                &mut trial.windows[c],
            );
        }
        trial.rebuilt = true;
    }

    /// Chooses and codes chroma of 4:2:0, which no luma decision touches.
    pub(super) fn chroma<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        mb: &mut Macroblock,
        windows: &mut [Window; 3],
    ) {
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
            let bits: f32 = estimate::<4, 16>(&mut lanes, job.quantizers[1].step).iter().sum();
            ranking.add(bits + price, mode);
        }
        mb.chroma_mode = ranking.best(1, 0.0)[0].1;
        for c in 1..3 {
            let edge = windows[c].mb_edge(available, self.rebuild.depths[1]);
            intra::predict_chroma(&edge, mb.chroma_mode, 8, &mut prediction);
            self.code_chroma(job, mb, c, &prediction);
        }
        let mut copy = *mb;
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
        let costs = job
            .counter
            .contexts()
            .filter(|_| !self.lossless)
            .map(|contexts| BlockCosts::cabac(contexts, BlockKind::ChromaAc, c, 15, self.lambda));
        let mut cache = job.neighbours.total_coeff[c];
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
            let at = cache_at(x, y);
            let pricing = match &costs {
                Some(costs) => Pricing::Cabac { costs, increment: 0 },
                None => Pricing::Cavlc { table: coeff_token_table(cache[at - 1], cache[at - 8]) },
            };
            let out = Four::room(&mut mb.levels.blocks[c], block);
            (dc[block], _, cache[at]) = self.code_ac(&own, pricing, quantizer, out);
            if cache[at] > 0 {
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
}

/// A macroblock of samples in one line.
fn flattened(rows: &[[u16; 16]; 16]) -> &[u16; 256] {
    rows.as_flattened().try_into().unwrap_or_else(|_| unreachable!("16 rows of 16"))
}
