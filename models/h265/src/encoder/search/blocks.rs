//! One block: predicted, transformed, quantized and reconstructed, as a
//! candidate or for good.

use crate::encoder::headers::Sequence;
use crate::encoder::quantize::dead_zone::Proxy;
use crate::encoder::quantize::rdoq::{self, Care, Quantization};
use crate::encoder::search::Search;
use crate::encoder::search::estimate::{self, Estimate};
use crate::encoder::tree::{LOG2_CTB, z_order};
use crate::entropy::residual::{self, Shape};
use crate::entropy::scan::Scan;
use crate::intra::{self, Available, Smoothing};
use crate::quant::{FLAT, Quantizer};
use crate::transform::{self, Kernel, Precision};
use trinity_bits::Chroma;
use trinity_bits::cabac::{BitCounter, ONE_BIT};

/// How unsure an estimate of the bits must be, relative to them, for a block to
/// be tried both with and without its transform.
const SKIP_MARGIN: f32 = 0.02;

/// A coded block, as one candidate.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockOutcome {
    pub error: u64,
    /// The rate in 1/32768 bit.
    pub bits: u64,
    pub coded: bool,
    pub skip: bool,
}

impl Search<'_> {
    /// Which neighbours a block of component `c` has; (x, y) in luma samples
    /// inside the CTU, `log2` of the component's block.
    pub(super) fn available(&self, c: usize, (x, y): (usize, usize), log2: u32) -> Available {
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
        let size = 1usize << log2;
        let (luma_width, luma_height) = (size << sx, size << sy);
        let (left, top) = (self.origin.0 + x, self.origin.1 + y);
        let (width, height) = self.sequence.coded_size();
        let ctb = 1usize << LOG2_CTB;
        let here = z_order(x, y);
        let right_open =
            if y == 0 { top > 0 } else { x + luma_width < ctb && z_order(x + luma_width, y - 1) < here };
        let below_open =
            y + luma_height < ctb && if x == 0 { left > 0 } else { z_order(x - 1, y + luma_height) < here };
        Available {
            left: left > 0,
            above: top > 0,
            corner: left > 0 && top > 0,
            above_right: usize::from(right_open) * (width.saturating_sub(left + luma_width) >> sx).min(size),
            below_left: usize::from(below_open) * (height.saturating_sub(top + luma_height) >> sy).min(size),
        }
    }

    /// Neighbours of a block, from the reconstruction.
    pub(super) fn gather(&mut self, c: usize, (x, y): (usize, usize), log2: u32) {
        let available = self.available(c, (x, y), log2);
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
        let band = &self.bands[c];
        let at = ((self.origin.0 + x) >> sx, (y >> sy) + 1);
        let line = &mut self.buffers.line;
        intra::gather(line, &band.samples, band.width, at, 1 << log2, available, self.sequence.depth);
    }

    /// Predicts a block and takes the difference to the source; returns the
    /// energy of the latter.
    pub(super) fn predict_block(&mut self, c: usize, (x, y): (usize, usize), log2: u32, mode: u8) -> u64 {
        self.gather(c, (x, y), log2);
        let (size, kind) = (1 << log2, self.smoothing(c, log2, mode));
        if kind != Smoothing::None {
            let buffers = &mut *self.buffers;
            intra::smooth(&buffers.line, &mut buffers.smooth, size, kind, self.sequence.depth);
        }
        self.predict_gathered(c, (x, y), log2, mode)
    }

    /// How the neighbours of a block are smoothed for a mode.
    fn smoothing(&self, c: usize, log2: u32, mode: u8) -> Smoothing {
        if c == 0 || self.sequence.chroma == Chroma::C444 {
            intra::smoothing(mode, 1 << log2, c == 0)
        } else {
            Smoothing::None
        }
    }

    /// [`Self::predict_block`] with neighbours gathered and smoothed already.
    fn predict_gathered(&mut self, c: usize, (x, y): (usize, usize), log2: u32, mode: u8) -> u64 {
        let size = 1usize << log2;
        let depth = self.sequence.depth;
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
        let smoothed = self.smoothing(c, log2, mode) != Smoothing::None;
        let buffers = &mut *self.buffers;
        let line = if smoothed { &buffers.smooth } else { &buffers.line };
        let edge = intra::edge_filter(mode, c, size, false);
        intra::predict(mode, line, size, depth, edge, &mut buffers.prediction, size);

        let plane = &self.source[c];
        let source_at = ((self.origin.1 + y) >> sy) * plane.width + ((self.origin.0 + x) >> sx);
        let source = &plane.samples[source_at..];
        let (prediction, residual) = (&buffers.prediction, &mut buffers.residual);
        match size {
            4 => difference::<4>(source, plane.width, prediction, residual, depth),
            8 => difference::<8>(source, plane.width, prediction, residual, depth),
            16 => difference::<16>(source, plane.width, prediction, residual, depth),
            _ => difference::<32>(source, plane.width, prediction, residual, depth),
        }
    }

    /// Writes the prediction buffer into the reconstruction.
    pub(super) fn store_prediction(&mut self, c: usize, (x, y): (usize, usize), log2: u32) {
        let size = 1usize << log2;
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
        let band = &mut self.bands[c];
        let at = ((y >> sy) + 1) * band.width + ((self.origin.0 + x) >> sx);
        for (row, samples) in self.buffers.prediction.chunks_exact(size).take(size).enumerate() {
            band.samples[at + row * band.width..][..size].copy_from_slice(samples);
        }
    }

    /// Predicts, transforms, quantizes and reconstructs one block in place;
    /// leaves the entropy state behind it.
    pub(super) fn block(&mut self, c: usize, at: (usize, usize), log2: u32, mode: u8) -> BlockOutcome {
        self.block_with(c, at, log2, mode, None, Care::Hidden)
    }

    /// What a luma block would cost under a mode, in squared samples and bits,
    /// with its transform and without. Chooses no levels; neighbours are
    /// gathered and smoothed already.
    pub(super) fn estimate(&mut self, at: (usize, usize), log2: u32, mode: u8) -> [(bool, Estimate); 2] {
        let count = 1usize << (2 * log2);
        let precision = Precision { depth: self.sequence.depth, extended: false };
        let kernel = if log2 == 2 { Kernel::Dst } else { Kernel::Dct };
        self.predict_gathered(0, at, log2, mode);
        let (may_skip, beyond) = (self.may_skip(log2), self.is_beyond_precision(log2));
        let buffers = &mut *self.buffers;
        buffers.transformed[..count].copy_from_slice(&buffers.residual[..count]);
        transform::forward(&mut buffers.transformed, log2, kernel, precision);
        let inverse_step = self.steps[0].of(log2).inverse_step;
        let step = (self.lambda * f64::from(ONE_BIT) / f64::from(self.lambda_steps)).sqrt() as f32;
        let block = |coefficients, inverse_step, sample_step| {
            let estimated = estimate::of(estimate::Block { coefficients, log2, inverse_step, sample_step });
            Estimate { error: estimated.error * step * step, ..estimated }
        };
        let mut transformed = block(&buffers.transformed[..], inverse_step, None);
        transformed.error += count as f32 * estimate::rounding(transformed.error / count as f32);
        let mut plain = if may_skip {
            block(&buffers.residual[..], 1.0 / step, Some(step))
        } else {
            Estimate { error: f32::INFINITY, bits: 0.0 }
        };
        if beyond {
            // Coefficients are whole numbers of this many samples: steps no longer
            // hide what that costs.
            let unit = inverse_step * step;
            transformed.error += count as f32 * unit * unit / 12.0;
            plain.error += count as f32 * (unit * unit - 1.0).max(0.0) / 12.0;
        }
        [(false, transformed), (true, plain)]
    }

    /// Whether blocks of this size may go without their transform.
    pub(super) fn may_skip(&self, log2: u32) -> bool {
        log2 <= self.sequence.tools.log2_max_transform_skip
    }

    /// Whether steps of blocks of this size are finer than their coefficients,
    /// which are whole numbers of sixteen bits: levels may then exceed what a
    /// stream can say, and rounding exceeds what steps leave, so that smaller
    /// blocks, whose coefficients are finer, have to be looked at.
    pub(super) fn is_beyond_precision(&self, log2: u32) -> bool {
        !self.sequence.lossless && self.steps[0].of(log2).inverse_step > 1.0
    }

    /// By what share fewer bits the residual is estimated to take as it is than
    /// transformed.
    fn gain_of_skipping(&self, c: usize, log2: u32) -> f32 {
        if !self.may_skip(log2) {
            return f32::NEG_INFINITY;
        }
        let precision = Precision { depth: self.sequence.depth, extended: false };
        let count = 1 << (2 * log2);
        let inverse_step = self.steps[c].of(log2).inverse_step;
        let scale = (precision.residual_shift() as i32 - precision.skip_shift(log2) as i32) as f32;
        let plain = Proxy::of(&self.buffers.residual[..count], inverse_step * scale.exp2());
        let transformed = Proxy::of(&self.buffers.transformed[..count], inverse_step);
        (transformed.bits - plain.bits) / transformed.bits.max(1.0)
    }

    /// Codes a predicted block whose residual is its levels.
    fn lossless_block(
        &mut self,
        c: usize,
        (x, y): (usize, usize),
        log2: u32,
        mode: u8,
        energy: u64,
    ) -> BlockOutcome {
        let size = 1usize << log2;
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
        let levels = &self.buffers.residual[..size * size];
        let coded = energy > 0;
        let mut counter = BitCounter::default();
        if coded {
            let shape = shape_of(self.sequence, c, log2, mode, false);
            residual::write(&mut counter, &mut self.state, &self.sequence.tools, &shape, levels);
        }
        self.tree.block_mut(c, z_order(x, y), log2).copy_from_slice(levels);
        let (plane, band) = (&self.source[c], &mut self.bands[c]);
        let source_at = ((self.origin.1 + y) >> sy) * plane.width + ((self.origin.0 + x) >> sx);
        let band_at = ((y >> sy) + 1) * band.width + ((self.origin.0 + x) >> sx);
        for row in 0..size {
            band.samples[band_at + row * band.width..][..size]
                .copy_from_slice(&plane.samples[source_at + row * plane.width..][..size]);
        }
        BlockOutcome { error: 0, bits: counter.cost, coded, skip: false }
    }

    /// Predicts and codes a block: transformed or not as `chosen` says, or as
    /// costs less; its levels chosen with `care`.
    pub(super) fn block_with(
        &mut self,
        c: usize,
        (x, y): (usize, usize),
        log2: u32,
        mode: u8,
        chosen: Option<bool>,
        care: Care,
    ) -> BlockOutcome {
        let size = 1usize << log2;
        let count = size * size;
        let depth = self.sequence.depth;
        let energy = self.predict_block(c, (x, y), log2, mode);
        if self.sequence.lossless {
            return self.lossless_block(c, (x, y), log2, mode, energy);
        }
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
        let plane = &self.source[c];
        let source =
            &plane.samples[((self.origin.1 + y) >> sy) * plane.width + ((self.origin.0 + x) >> sx)..];
        let tools = &{ self.sequence.tools };
        let entry = self.state;
        let z = z_order(x, y);
        let band_at = ((y >> sy) + 1) * self.bands[c].width + ((self.origin.0 + x) >> sx);

        let steps = self.steps[c].of(log2);
        let inverse_step = steps.inverse_step;
        let quantization = Quantization { inverse_step, lambda: self.lambda_steps, care };
        let precision = Precision { depth, extended: false };
        let kernel = if c == 0 && log2 == 2 { Kernel::Dst } else { Kernel::Dct };

        // No levels at all is the candidate to beat.
        let mut best = BlockOutcome { error: energy, bits: 0, coded: false, skip: false };
        let (mut best_cost, mut best_state) = (energy as f64, entry);
        let buffers = &mut *self.buffers;
        buffers.transformed[..count].copy_from_slice(&buffers.residual[..count]);
        transform::forward(&mut buffers.transformed, log2, kernel, precision);
        // Both ways are tried in full only where an estimate cannot tell them apart.
        let gain = match chosen {
            Some(true) => f32::INFINITY,
            Some(false) => f32::NEG_INFINITY,
            None if self.may_skip(log2) && clips(&self.buffers.transformed[..count], inverse_step) => {
                f32::INFINITY
            }
            None => self.gain_of_skipping(c, log2),
        };
        let buffers = &mut *self.buffers;
        for skip in [false, true] {
            if (skip && gain < -SKIP_MARGIN) || (!skip && gain > SKIP_MARGIN) {
                continue;
            }
            let coefficients = &mut buffers.coefficients[..count];
            if skip {
                coefficients.copy_from_slice(&buffers.residual[..count]);
                transform::forward_skip(coefficients, log2, precision);
            } else {
                coefficients.copy_from_slice(&buffers.transformed[..count]);
            }
            let shape = shape_of(self.sequence, c, log2, mode, skip);
            let found = rdoq::quantize(
                &mut buffers.rdoq,
                &buffers.coefficients,
                &mut buffers.levels,
                &shape,
                tools,
                &entry,
                quantization,
            );
            if !found {
                continue;
            }
            let mut state = entry;
            let mut counter = BitCounter::default();
            residual::write(&mut counter, &mut state, tools, &shape, &buffers.levels[..count]);
            let kernel = (!skip).then_some(kernel);
            let coefficients = &mut buffers.coefficients[..count];
            rebuild(coefficients, &buffers.levels, log2, kernel, &steps.quantizer, precision);
            let candidate = &mut buffers.candidate[..count];
            candidate.copy_from_slice(&buffers.prediction[..count]);
            transform::add_residual(candidate, size, coefficients, log2, depth);
            let error = squared_error(source, plane.width, candidate, size);
            let cost = error as f64 + self.lambda * counter.cost as f64;
            if cost < best_cost {
                best_cost = cost;
                best = BlockOutcome { error, bits: counter.cost, coded: true, skip };
                best_state = state;
                self.tree.block_mut(c, z, log2).copy_from_slice(&buffers.levels[..count]);
                let band = &mut self.bands[c];
                for (row, samples) in candidate.chunks_exact(size).enumerate() {
                    band.samples[band_at + row * band.width..][..size].copy_from_slice(samples);
                }
            }
        }
        if !best.coded {
            self.tree.block_mut(c, z, log2).fill(0);
            self.store_prediction(c, (x, y), log2);
        }
        self.state = best_state;
        best
    }
}

/// Whether a coefficient is larger than any level can say (CoeffMaxY).
pub(super) fn clips(coefficients: &[i32], inverse_step: f32) -> bool {
    // Coefficients have sixteen bits themselves.
    inverse_step > 1.0
        && coefficients.iter().any(|c| c.unsigned_abs() as f32 * inverse_step > f32::from(i16::MAX))
}

/// The block of component `c` as residual_coding() sees it.
pub(super) fn shape_of(sequence: &Sequence, c: usize, log2: u32, mode: u8, transform_skip: bool) -> Shape {
    Shape {
        log2,
        c_idx: c,
        scan: Scan::of(mode, log2, c, sequence.chroma == Chroma::C444),
        transform_skip,
        bypass: sequence.lossless,
    }
}

/// Turns levels back into a residual, in `coefficients`; without a kernel the
/// transform is skipped.
#[inline(always)]
pub(super) fn rebuild(
    coefficients: &mut [i32],
    levels: &[i32],
    log2: u32,
    kernel: Option<Kernel>,
    quantizer: &Quantizer,
    precision: Precision,
) {
    for (coefficient, &level) in coefficients.iter_mut().zip(levels) {
        *coefficient = if level == 0 { 0 } else { quantizer.scale(level, FLAT) };
    }
    match kernel {
        None => transform::inverse_skip(coefficients, log2, precision),
        Some(kernel) => transform::inverse(coefficients, log2, kernel, precision),
    }
}

/// What prediction leaves of an `N`×`N` block; returns its energy.
fn difference<const N: usize>(
    source: &[u16],
    stride: usize,
    prediction: &[u16],
    residual: &mut [i32],
    depth: u32,
) -> u64 {
    let mut energy = 0u64;
    let (residual, prediction) = (residual.as_chunks_mut::<N>().0, prediction.as_chunks::<N>().0);
    for (row, (residual, prediction)) in residual.iter_mut().zip(prediction).take(N).enumerate() {
        for ((r, &s), &p) in residual.iter_mut().zip(&source[row * stride..][..N]).zip(prediction) {
            *r = i32::from(s) - i32::from(p);
        }
        let squares = residual.iter().map(|r| r.unsigned_abs() * r.unsigned_abs());
        // Squares of sixteen-bit differences fit 32 bits; a row of thirteen-bit ones does, too.
        energy += if depth <= 13 { u64::from(squares.sum::<u32>()) } else { squares.map(u64::from).sum() };
    }
    energy
}

fn squared_error(source: &[u16], stride: usize, candidate: &[u16], size: usize) -> u64 {
    let rows = candidate.chunks_exact(size).zip(source.chunks(stride));
    let squares = |(row, source): (&[u16], &[u16])| -> u64 {
        source[..size].iter().zip(row).map(|(&a, &b)| u64::from(a.abs_diff(b)).pow(2)).sum()
    };
    rows.map(squares).sum()
}
