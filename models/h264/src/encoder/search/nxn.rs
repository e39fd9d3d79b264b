//! Intra 4×4 and 8×8: the blocks of a macroblock in turn, each with its best
//! mode given the ones before it.

use super::{Job, Prices, Ranking, Search, Trial};
use crate::blocks::{BlockSize, Eight, Four};
use crate::encoder::quantize::Quantizer;
use crate::encoder::residual::{difference_along, put_source, residual_nxn, source_block};
use crate::encoder::search::estimate::{estimate, estimate_one};
use crate::encoder::syntax::rem_mode;
use crate::entropy::writer::SyntaxCounter;
use crate::intra::{Edge, mode};
use crate::macroblock::{Macroblock, Neighbours, TotalCoeff, cache_at};
use crate::picture::Window;

/// What the search adds to a block size.
pub trait SearchSize<const N: usize, const LEN: usize>: BlockSize<N, LEN> {
    /// Its place among the kinds of [`Prices::block`].
    const COSTS: usize;
    fn per_level(quantizer: &Quantizer) -> &[f32; LEN];
}

impl SearchSize<4, 16> for Four {
    const COSTS: usize = 0;

    fn per_level(quantizer: &Quantizer) -> &[f32; 16] {
        &quantizer.per_level_4x4
    }
}

impl SearchSize<8, 64> for Eight {
    const COSTS: usize = 1;

    fn per_level(quantizer: &Quantizer) -> &[f32; 64] {
        &quantizer.per_level_8x8
    }
}

/// How many bits a row of a block a candidate may be estimated above the
/// best one and still be weighed.
const SLACK: f32 = 1.0;

/// The modes that share one pass of eight lanes; DC has its own shortcut.
const LANE_MODES: [u8; 8] = [0, 1, 3, 4, 5, 6, 7, 8];

/// One block: its source, and its prediction by every mode, for each component.
struct Candidates<const N: usize, const LEN: usize, const P: usize> {
    source: [[i32; LEN]; P],
    predictions: [[[[u16; N]; N]; 9]; P],
}

struct CodedBlock<const LEN: usize, const P: usize> {
    mode: u8,
    levels: [[i32; LEN]; P],
    cost: f32,
}

impl Search<'_> {
    /// All blocks of `P` components in turn, or `None` once they hardly beat `rival`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn intra_nxn<
        const N: usize,
        const LEN: usize,
        const P: usize,
        B: SearchSize<N, LEN>,
        C: SyntaxCounter,
    >(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
        rival: Option<&Trial>,
    ) -> Option<Trial> {
        let mut trial = Trial::new(base, windows);
        trial.mb.kind = B::KIND;
        let mut n = *job.neighbours;
        let mut candidates = Candidates { source: [[0; LEN]; P], predictions: [[[[0; N]; N]; 9]; P] };
        for block in 0..B::COUNT {
            let (x, y) = B::place(block);
            let ranking = self.rank::<N, LEN, P, B, C>(job, prices, &trial, &n, (x, y), &mut candidates);
            let coded = self.best_of::<N, LEN, P, B, C>(job, prices, &n, (x, y), &ranking, &candidates);
            let quarter = block * 4 / B::COUNT;
            trial.quarters[quarter] += coded.cost;
            let quarter_ends = (block + 1) * 4 % B::COUNT == 0;
            if let Some(rival) = rival.filter(|_| quarter_ends && quarter < 3)
                && self.gives_up(&trial, rival, quarter + 1)
            {
                return None;
            }
            self.put_block::<N, LEN, P, B, C>(job, &mut trial, &mut n, block, &candidates, coded);
        }
        self.settle(job, prices, &mut trial);
        Some(trial)
    }

    /// Predicts with every allowed mode and estimates its bits, summed over components.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn rank<const N: usize, const LEN: usize, const P: usize, B: SearchSize<N, LEN>, C>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        trial: &Trial,
        n: &Neighbours,
        (x, y): (usize, usize),
        candidates: &mut Candidates<N, LEN, P>,
    ) -> Ranking {
        let step = job.quantizers[0].step;
        let mut bits = [0f32; 9];
        let mut allowed = [false; 9];
        for c in 0..P {
            let depth = self.rebuild.depths[0];
            let edge: Edge<N> = B::edge(&trial.windows[c], x, y, job.neighbours.available, depth);
            candidates.source[c] = source_block(&job.source[c], x, y);
            let source = &candidates.source[c];
            let predictions = &mut candidates.predictions[c];
            let mut lanes = [[0f32; 8]; LEN];
            for (lane, &mode) in LANE_MODES.iter().enumerate() {
                // Without a prediction a lane holds the source, which DC below can use.
                let prediction = &mut predictions[usize::from(mode)];
                allowed[usize::from(mode)] = edge.allows(mode);
                if edge.allows(mode) {
                    edge.predict(mode, prediction);
                } else {
                    *prediction = [[0; N]; N];
                }
                for k in 0..LEN {
                    lanes[k][lane] = (source[k] - i32::from(prediction[k / N][k % N])) as f32;
                }
            }
            for (bits_of_mode, &mode) in estimate::<N, LEN>(&mut lanes, step).iter().zip(&LANE_MODES) {
                bits[usize::from(mode)] += *bits_of_mode;
            }
            let prediction = &mut predictions[usize::from(mode::DC)];
            edge.predict(mode::DC, prediction);
            // A flat prediction changes the first coefficient alone, a vertical one
            // the first row, a horizontal one the first column.
            let first = source.iter().sum::<i32>() - LEN as i32 * i32::from(prediction[0][0]);
            let dc = |k: usize| match k {
                0 => first as f32,
                _ if k < N => lanes[k][1],
                _ => lanes[k][0],
            };
            bits[usize::from(mode::DC)] += estimate_one::<N, LEN>(dc, step);
        }
        allowed[usize::from(mode::DC)] = true;
        let mut ranking = Ranking::new();
        for mode in (0..9).filter(|&mode| allowed[usize::from(mode)]) {
            let price = prices.mode_bits(rem_mode(n, B::CELLS * x, B::CELLS * y, mode));
            ranking.add(bits[usize::from(mode)] + price, mode);
        }
        ranking
    }

    /// Codes the block by the modes ranked best; the cheapest.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn best_of<const N: usize, const LEN: usize, const P: usize, B: SearchSize<N, LEN>, C>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        n: &Neighbours,
        (x, y): (usize, usize),
        ranking: &Ranking,
        candidates: &Candidates<N, LEN, P>,
    ) -> CodedBlock<LEN, P> {
        let mut best = None::<CodedBlock<LEN, P>>;
        for &(estimate, mode) in ranking.best(self.effort.candidates, SLACK * N as f32) {
            let mut coded = CodedBlock { mode, levels: [[0; LEN]; P], cost: estimate };
            let mut cost = prices.mode(rem_mode(n, B::CELLS * x, B::CELLS * y, mode));
            for c in 0..P {
                let prediction = &candidates.predictions[c][usize::from(mode)];
                let residual = residual_nxn(&candidates.source[c], prediction);
                let out = &mut coded.levels[c];
                let cache = &n.total_coeff[c];
                cost +=
                    self.code_block::<N, LEN, B, C>(job, prices, (c, cache), (x, y), (residual, mode), out);
            }
            if !self.lossless {
                coded.cost = cost;
            }
            if best.as_ref().is_none_or(|best| coded.cost < best.cost) {
                best = Some(coded);
            }
        }
        best.unwrap_or_else(|| unreachable!("DC needs no neighbours"))
    }

    /// Levels of a residual and their cost in squared samples.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn code_block<const N: usize, const LEN: usize, B: SearchSize<N, LEN>, C>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        (c, cache): (usize, &TotalCoeff),
        (x, y): (usize, usize),
        (residual, mode): ([i32; LEN], u8),
        out: &mut [i32; LEN],
    ) -> f32 {
        if self.lossless {
            *out = residual;
            difference_along(out, N, mode);
            return 0.0;
        }
        let quantizer = &job.quantizers[c];
        let coefficients = B::forward(&residual);
        let per_level = B::per_level(quantizer);
        let reals: [f32; LEN] =
            std::array::from_fn(|k| coefficients[usize::from(B::SCAN[k])] as f32 * per_level[k]);
        let square = quantizer.step * quantizer.step;
        if self.cabac {
            let at = cache_at(B::CELLS * x, B::CELLS * y);
            let pricing = prices.block(c, B::COSTS, cache[at - 1], cache[at - 8]);
            return square * self.levels(&reals, pricing, quantizer, B::SCAN, out);
        }
        // CAVLC codes an 8×8 block as four that take turns along its scan.
        let parts = const { LEN / 16 };
        let mut cache = *cache;
        let mut cost = 0.0;
        for (part, (x, y)) in B::cells(x, y).enumerate() {
            let at = cache_at(x, y);
            let pricing = prices.block(c, B::COSTS, cache[at - 1], cache[at - 8]);
            let mut own = [0f32; 16];
            let mut scan = [0u8; 16];
            for k in 0..16 {
                (own[k], scan[k]) = (reals[parts * k + part], B::SCAN[parts * k + part]);
            }
            cost += self.levels(&own, pricing, quantizer, &scan, out);
            cache[at] = count_levels(out, &scan);
        }
        square * cost
    }

    /// Takes a coded block into the trial: modes, levels, samples.
    #[inline(always)]
    fn put_block<const N: usize, const LEN: usize, const P: usize, B: SearchSize<N, LEN>, C>(
        &self,
        job: &Job<C>,
        trial: &mut Trial,
        n: &mut Neighbours,
        block: usize,
        candidates: &Candidates<N, LEN, P>,
        coded: CodedBlock<LEN, P>,
    ) {
        let (x, y) = B::place(block);
        let CodedBlock { mode, mut levels, .. } = coded;
        for (x, y) in B::cells(x, y) {
            trial.mb.modes[4 * y + x] = mode;
            n.modes[cache_at(x, y)] = mode;
        }
        for c in 0..P {
            let window = &mut trial.windows[c];
            let has_levels = levels[c].iter().any(|&level| level != 0);
            for (part, (x, y)) in B::cells(x, y).enumerate() {
                // CABAC asks only whether there are any, and of an 8×8 block as one.
                n.total_coeff[c][cache_at(x, y)] = if self.cabac {
                    u8::from(has_levels)
                } else {
                    let parts = const { LEN / 16 };
                    let scan: [u8; 16] = std::array::from_fn(|k| B::SCAN[parts * k + part]);
                    count_levels(&levels[c], &scan)
                };
            }
            if has_levels {
                *B::room(&mut trial.mb.levels.blocks[c], block) = levels[c];
                trial.mb.levels.coded[c] |= B::coded_bit(block);
                trial.mb.cbp |= 1 << (block * 4 / B::COUNT);
            }
            if self.lossless {
                put_source(window, &job.source[c], N * x, N * y, N);
                continue;
            }
            window.put(N * x, N * y, &candidates.predictions[c][usize::from(mode)]);
            if has_levels {
                let qp = job.quantizers[c].qp_prime;
                B::rebuild(&mut levels[c], B::scale(self.scale, c, (qp % 6) as usize), (qp / 6) as u32);
                window.add::<N>(N * x, N * y, &levels[c], self.limit());
            }
        }
    }
}

/// Levels at the positions of `scan`.
fn count_levels(levels: &[i32], scan: &[u8; 16]) -> u8 {
    scan.iter().filter(|&&at| levels[usize::from(at)] != 0).count() as u8
}
