//! Which macroblock type and modes: candidates ranked by an estimate of their
//! bits, the best of them weighed by distortion plus λ times bits.
//!
//! The bits of a candidate are priced in the contexts the macroblock starts
//! with; only the macroblock that wins is written.

mod estimate;
mod nxn;
mod whole;

use crate::blocks::{Eight, Four};
use crate::encoder::preset::Effort;
use crate::encoder::quantize::code_words;
use crate::encoder::quantize::{BlockCosts, Quantizer, optimize};
use crate::encoder::residual::squared_error;
use crate::encoder::syntax::{write_kind, write_macroblock, write_patterns};
use crate::entropy::BlockKind;
use crate::entropy::cabac::ctx;
use crate::entropy::cavlc::coeff_token_table;
use crate::entropy::writer::SyntaxCounter;
use crate::intra::mode;
use crate::macroblock::{Macroblock, MbKind, Neighbours};
use crate::picture::Window;
use crate::quant::LevelScale;
use crate::reconstruct::Rebuild;
use trinity_bits::Chroma;
use trinity_bits::cabac::ONE_BIT;

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
    /// What each quarter of the macroblock adds to the cost.
    quarters: [f32; 4],
    /// The cost is no estimate.
    counted: bool,
    /// The windows hold the samples it decodes to.
    rebuilt: bool,
}

impl Trial {
    fn new(base: &Macroblock, windows: &[Window; 3]) -> Self {
        Self { mb: *base, windows: *windows, cost: 0.0, quarters: [0.0; 4], counted: false, rebuilt: true }
    }
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
    pub forced_kind: Option<MbKind>,
}

/// Prices that hold over a macroblock, in squared samples.
struct Prices {
    /// One bit.
    bit: f32,
    predicted_mode: f32,
    other_mode: f32,
    /// Costs by component, [`KINDS`] each; none for CAVLC and lossless.
    blocks: Vec<BlockCosts>,
}

/// What the levels of a block are priced by.
#[derive(Debug, Clone, Copy)]
enum Pricing<'a> {
    /// Costs in the contexts at hand, and coded_block_flag's ctxIdxInc.
    Cabac { costs: &'a BlockCosts, increment: usize },
    /// The code words with this table of coeff_token.
    Cavlc { table: usize },
}

/// The blocks that are weighed, and their coefficients.
const KINDS: [(BlockKind, usize); 4] =
    [(BlockKind::Luma4x4, 16), (BlockKind::Luma8x8, 64), (BlockKind::Ac16x16, 15), (BlockKind::Dc16x16, 16)];

impl Prices {
    /// How a block of component `c` is priced, by its place in [`KINDS`] and
    /// the numbers of levels to its left and above.
    #[inline(always)]
    fn block(&self, c: usize, kind: usize, left: u8, above: u8) -> Pricing<'_> {
        match self.blocks.get(c * KINDS.len() + kind) {
            Some(costs) => {
                Pricing::Cabac { costs, increment: usize::from(left != 0) + 2 * usize::from(above != 0) }
            }
            None => Pricing::Cavlc { table: coeff_token_table(left, above) },
        }
    }

    fn mode(&self, rem: Option<u8>) -> f32 {
        if rem.is_none() { self.predicted_mode } else { self.other_mode }
    }

    /// Bits that naming a mode takes.
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

    /// The best modes: at most `count`, none more than `slack` above the first.
    fn best(&self, count: usize, slack: f32) -> &[(f32, u8)] {
        let within = self.modes[..self.count].partition_point(|(cost, _)| *cost <= self.modes[0].0 + slack);
        &self.modes[..count.min(within)]
    }
}

impl Search<'_> {
    /// Codes the macroblock in every way worth trying; returns the cheapest.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn macroblock<C: SyntaxCounter>(&self, job: &Job<C>) -> Trial {
        let mut base = Macroblock { qp: job.qp, ..Macroblock::default() };
        let mut windows = *job.windows;
        let prices = self.prices(job);
        if self.rebuild.chroma == Chroma::C420 {
            self.chroma(job, &mut base, &mut windows);
        }
        let mut best = if self.components() == 1 {
            self.choose::<1, C>(job, &prices, &base, &windows)
        } else {
            self.choose::<3, C>(job, &prices, &base, &windows)
        };
        if !best.rebuilt {
            self.rebuild_16x16(job, &mut best);
        }
        best
    }

    /// The cheapest macroblock type, with `P` components coded as luma is.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn choose<const P: usize, C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        base: &Macroblock,
        windows: &[Window; 3],
    ) -> Trial {
        let may_be = |kind: MbKind| job.forced_kind.is_none_or(|forced| forced == kind);
        let mut best = None;
        let mut try_four = may_be(MbKind::I4x4);
        if may_be(MbKind::I16x16) {
            best = Some(self.intra_16x16(job, prices, base, windows));
        }
        if may_be(MbKind::I8x8) {
            match self.intra_nxn::<8, 64, P, Eight, C>(job, prices, base, windows, best.as_ref()) {
                Some(trial) => best = Some(self.cheaper(job, prices, best, trial)),
                None => try_four &= !self.effort.skip_four,
            }
        }
        if try_four
            && let Some(trial) =
                self.intra_nxn::<4, 16, P, Four, C>(job, prices, base, windows, best.as_ref())
        {
            best = Some(self.cheaper(job, prices, best, trial));
        }
        best.unwrap_or_else(|| unreachable!("a type without a rival is never given up"))
    }

    /// The cheaper of two, if there are two. Where estimates hardly tell, bits are counted.
    fn cheaper<C: SyntaxCounter>(
        &self,
        job: &Job<C>,
        prices: &Prices,
        a: Option<Trial>,
        mut b: Trial,
    ) -> Trial {
        let Some(mut a) = a else { return b };
        let close = (a.cost - b.cost).abs() <= self.effort.exact_bits_margin * a.cost.min(b.cost);
        if close && self.cabac && !self.lossless {
            for trial in [&mut a, &mut b] {
                if !trial.counted {
                    self.count(job, prices, trial);
                }
            }
        }
        if b.cost < a.cost { b } else { a }
    }

    /// Replaces an estimate by squared error and the bits really taken.
    fn count<C: SyntaxCounter>(&self, job: &Job<C>, prices: &Prices, trial: &mut Trial) {
        if !trial.rebuilt {
            self.rebuild_16x16(job, trial);
        }
        let error: f32 =
            (0..self.components()).map(|c| squared_error(&job.source[c], &trial.windows[c])).sum();
        trial.cost = error + prices.bit * self.count_bits(job, &trial.mb);
        trial.counted = true;
    }

    /// The whole cost of a trial as if it were bits alone.
    pub fn cost_in_bits<C: SyntaxCounter>(&self, job: &Job<C>, trial: &Trial) -> f32 {
        if self.lossless {
            return self.count_bits(job, &trial.mb);
        }
        let step = job.quantizers[0].step;
        trial.cost / (self.lambda * step * step)
    }

    fn prices<C: SyntaxCounter>(&self, job: &Job<C>) -> Prices {
        let step = job.quantizers[0].step;
        let bit = self.lambda * step * step;
        let Some(contexts) = job.counter.contexts() else {
            return Prices { bit, predicted_mode: bit, other_mode: 4.0 * bit, blocks: Vec::new() };
        };
        let unit = bit / ONE_BIT as f32;
        let flag = contexts[ctx::PREV_INTRA_PRED_MODE_FLAG];
        let rem = contexts[ctx::REM_INTRA_PRED_MODE];
        let mut blocks = Vec::new();
        if !self.lossless {
            blocks.reserve_exact(self.components() * KINDS.len());
            for c in 0..self.components() {
                for (kind, max) in KINDS {
                    blocks.push(BlockCosts::cabac(contexts, kind, c, max, self.lambda));
                }
            }
        }
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
        let mut n = *job.neighbours;
        let before = counter.bits();
        write_macroblock(&mut counter, mb, &mut n, self.rebuild.chroma, self.cabac, job.delta);
        counter.bits() - before
    }

    /// Bits of everything but modes and residual.
    fn header_bits<C: SyntaxCounter>(&self, job: &Job<C>, mb: &Macroblock) -> f32 {
        let mut counter = job.counter.clone();
        let before = counter.bits();
        write_kind(&mut counter, mb, job.neighbours);
        write_patterns(&mut counter, mb, job.neighbours, self.rebuild.chroma, job.delta);
        counter.bits() - before
    }

    /// The cost that decides between macroblock types: modes and residual as
    /// `trial.quarters` has them where they were priced as they will be
    /// written, else counted.
    fn settle<C: SyntaxCounter>(&self, job: &Job<C>, prices: &Prices, trial: &mut Trial) {
        let blocks: f32 = trial.quarters.iter().sum();
        if self.lossless {
            trial.cost = self.count_bits(job, &trial.mb);
        } else if self.cabac {
            trial.cost = blocks + prices.bit * self.header_bits(job, &trial.mb);
        } else {
            self.count(job, prices, trial);
        }
    }

    /// Whether a trial with its first `done` quarters coded will hardly come
    /// out below its rival.
    fn gives_up(&self, trial: &Trial, rival: &Trial, done: usize) -> bool {
        let sum = |trial: &Trial| trial.quarters[..done].iter().sum::<f32>();
        let (low, high) =
            rival.quarters.iter().fold((f32::MAX, 0f32), |(low, high), &q| (low.min(q), high.max(q)));
        let unevenness = (high - low) / (high + low);
        let slack = self.effort.early_exit_slack + self.effort.uneven_exit_slack * unevenness;
        let margin = 1.0 + slack * (1.0 - done as f32 / 4.0);
        !self.lossless && sum(trial) >= sum(rival) * margin
    }

    /// Levels of a block from its real-valued ones in scan order, put at the
    /// raster positions of `scan`; the cost in squared steps.
    #[inline(always)]
    fn levels<const LEN: usize>(
        &self,
        reals: &[f32; LEN],
        pricing: Pricing,
        quantizer: &Quantizer,
        scan: &[u8],
        out: &mut [i32],
    ) -> f32 {
        let mut levels = [0i32; LEN];
        let cost = match pricing {
            Pricing::Cabac { costs, increment } => {
                optimize(reals, costs, increment, quantizer.max_level, &mut levels)
            }
            Pricing::Cavlc { table } => {
                code_words::lower(reals, table, self.lambda, quantizer.max_level, &mut levels)
            }
        };
        for k in 0..LEN {
            out[usize::from(scan[k])] = levels[k];
        }
        cost
    }
}
