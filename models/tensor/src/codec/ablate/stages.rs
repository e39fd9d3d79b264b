//! H.265's stages, switched on one by one.
//!
//! A small encoder out of the standard's own parts: the same transform,
//! quantizer and residual syntax in every setting, so that a difference in
//! bits belongs to the stage that was switched. It counts bits instead of
//! writing them, hides no signs and searches no levels: what the whole encoder
//! gains by those is the difference to `h265`.

use trinity_bits::Plane;
use trinity_bits::cabac::{BinWriter, BitCounter, Context, ONE_BIT};
use trinity_bits::intra_modes::most_probable;
use trinity_h265::entropy::residual::{self, ResidualTools, Shape, State};
use trinity_h265::entropy::scan::Scan;
use trinity_h265::intra::{self, Available, MAX_LINE, Smoothing};
use trinity_h265::quant::{INTRA_ROUNDING, Quantizer};
use trinity_h265::transform::{self, Kernel, Precision};

use super::motion::{self, Reference, Vector};

/// What runs beside transform, quantization and entropy coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// Intra prediction by the best of 35 modes; without it, mid-grey.
    pub prediction: bool,
    /// Quad-tree partitioning from 32×32 to 4×4; without it, 8×8 throughout.
    pub partitioning: bool,
}

/// One block as it was coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub x: usize,
    pub y: usize,
    pub size: usize,
    pub mode: u8,
    /// Where it was predicted from in another frame, in quarters of a sample; nothing for an intra block.
    pub motion: Option<Vector>,
}

/// A picture on its way through the stages; all planes are of the coded size.
#[derive(Debug, Clone)]
pub struct Coding {
    pub bits: f64,
    pub prediction: Vec<u16>,
    pub reconstruction: Vec<u16>,
    /// Quantized coefficients, each block where its samples are.
    pub levels: Vec<i32>,
    /// Blocks in coding order.
    pub blocks: Vec<Block>,
}

/// Side of a coding tree unit.
const CTU: usize = 32;
/// The grid of blocks where nothing is partitioned, as log2.
const FIXED_LOG2: u32 = 3;
/// Price of a bit in squared quantization steps.
const LAMBDA: f64 = 0.10;
/// No option of the standard that would blur what a stage is worth.
const TOOLS: ResidualTools = ResidualTools {
    sign_data_hiding: false,
    persistent_rice: true,
    transform_skip_context: false,
    log2_max_transform_skip: 0,
    extended_range: None,
};

/// Codes a plane at QpY `qp`. Its sides are multiples of eight.
pub fn code(source: &Plane, depth: u32, qp: i32, stages: Stages) -> Coding {
    code_after(source, depth, qp, stages, None)
}

/// Codes a plane; with another frame's reconstruction, each block is predicted from there or from its own frame,
/// whichever is cheaper.
pub fn code_after(source: &Plane, depth: u32, qp: i32, stages: Stages, reference: Option<&Plane>) -> Coding {
    let reference = reference.map(Reference::new);
    let mut coder = Coder { reference, ..Coder::new(source, depth, qp, stages) };
    for y in (0..source.height).step_by(CTU) {
        for x in (0..source.width).step_by(CTU) {
            coder.square(x, y, CTU.ilog2());
        }
    }
    Coding { bits: coder.counter.bits(), ..coder.done }
}

struct Coder<'a> {
    source: &'a Plane,
    precision: Precision,
    quantizers: [Quantizer; 4],
    stages: Stages,
    lambda: f64,
    /// Price of a mode's bits in sums of absolute coefficients.
    mode_price: f64,
    state: State,
    counter: BitCounter,
    done: Coding,
    /// Mode and log2 size of every 4×4 unit coded so far.
    units: Vec<Option<(u8, u8)>>,
    /// Another frame, as decoded.
    reference: Option<Reference>,
    /// Whether a block comes from there.
    inter_flag: Context,
    /// Vector of every 4×4 unit.
    vectors: Vec<Option<Vector>>,
}

/// cu_skip and pred_mode start here in the standard: about even.
const INTER_FLAG_INIT: u8 = 149;

/// A square coded as one block: prediction, reconstruction and level of each
/// sample, and the block.
type Whole = (Vec<(u16, u16, i32)>, Block);

/// What a try overwrites, kept in case it loses.
struct Saved {
    state: State,
    inter_flag: Context,
    counter: BitCounter,
    blocks: usize,
}

impl<'a> Coder<'a> {
    fn new(source: &'a Plane, depth: u32, qp: i32, stages: Stages) -> Self {
        let precision = Precision { depth, extended: false };
        let with_offset = qp + 6 * (depth as i32 - 8);
        let step = ((f64::from(with_offset) - 4.0) / 6.0).exp2();
        let samples = source.samples.len();
        Self {
            source,
            precision,
            quantizers: [2, 3, 4, 5].map(|log2| Quantizer::new(with_offset, log2, precision)),
            stages,
            lambda: LAMBDA * step * step / f64::from(ONE_BIT),
            mode_price: LAMBDA.sqrt() * step,
            state: State::new(qp),
            counter: BitCounter::default(),
            done: Coding {
                bits: 0.0,
                prediction: vec![0; samples],
                reconstruction: vec![0; samples],
                levels: vec![0; samples],
                blocks: Vec::new(),
            },
            units: vec![None; samples / 16],
            reference: None,
            inter_flag: Context::from_init_value(INTER_FLAG_INIT, qp),
            vectors: vec![None; samples / 16],
        }
    }

    /// What a vector is coded against: the one of the block to the left, else above, else none.
    fn vector_guess(&self, x: usize, y: usize) -> Vector {
        let at = |x: usize, y: usize| self.vectors[self.place(x, y)];
        let left = if x > 0 { at(x - 1, y) } else { None };
        left.or_else(|| if y > 0 { at(x, y - 1) } else { None }).unwrap_or_default()
    }

    /// The prediction from another frame where that is cheaper than `intra`, whose cost is given.
    fn predicted_by_reference(
        &self,
        x: usize,
        y: usize,
        log2: u32,
        intra: f64,
        best: &mut [u16],
    ) -> Option<Vector> {
        let reference = self.reference.as_ref()?;
        let size = 1usize << log2;
        let depth = self.precision.depth;
        let guess = self.vector_guess(x, y);
        let vector = motion::search(self.source, reference, (x, y), size, guess, (depth, self.mode_price));
        let mut candidate = [0u16; CTU * CTU];
        motion::compensate(reference, (x, y), size, vector, depth, &mut candidate);
        let bits = f64::from(motion::vector_bits(vector, guess));
        let cost = self.coefficients(x, y, log2, Kernel::Dct, &candidate) + self.mode_price * bits;
        (cost < intra).then(|| {
            best[..size * size].copy_from_slice(&candidate[..size * size]);
            vector
        })
    }

    /// The sum of absolute coefficients that a prediction leaves, as an orthonormal transform has them.
    fn coefficients(&self, x: usize, y: usize, log2: u32, kernel: Kernel, prediction: &[u16]) -> f64 {
        let size = 1usize << log2;
        let mut block = [0i32; CTU * CTU];
        self.residual(x, y, size, prediction, &mut block);
        transform::forward(&mut block, log2, kernel, self.precision);
        let sum: u64 = block[..size * size].iter().map(|c| u64::from(c.unsigned_abs())).sum();
        sum as f64 / f64::from(15 - self.precision.depth as i32 - log2 as i32).exp2()
    }

    /// Where the 4×4 unit of a sample is in a list of all.
    fn place(&self, x: usize, y: usize) -> usize {
        y / 4 * (self.source.width / 4) + x / 4
    }

    fn unit(&self, x: usize, y: usize) -> Option<(u8, u8)> {
        self.units[self.place(x, y)]
    }

    /// Notes for all units of a square what it was coded as.
    fn mark(&mut self, x: usize, y: usize, size: usize, unit: Option<(u8, u8)>, vector: Option<Vector>) {
        for row in (y..y + size).step_by(4) {
            let first = self.place(x, row);
            self.units[first..first + size / 4].fill(unit);
            self.vectors[first..first + size / 4].fill(vector);
        }
    }

    /// Codes a square, split or whole; answers its cost.
    fn square(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let size = 1usize << log2;
        if x >= self.source.width || y >= self.source.height {
            return 0.0;
        }
        let inside = x + size <= self.source.width && y + size <= self.source.height;
        if !inside || (!self.stages.partitioning && log2 > FIXED_LOG2) {
            return self.quarters(x, y, log2);
        }
        if !self.stages.partitioning {
            return self.block(x, y, log2);
        }
        let before = self.save();
        let price = self.split_flag(x, y, log2, false);
        let whole = price + self.block(x, y, log2);
        let whole_result = (self.save(), self.copy(x, y, size));
        self.restore(&before);
        self.mark(x, y, size, None, None);
        let price = self.split_flag(x, y, log2, true);
        let split = price + self.quarters(x, y, log2);
        if whole <= split {
            self.bring_back(whole_result, x, y, size);
            return whole;
        }
        split
    }

    fn quarters(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let half = 1 << (log2 - 1);
        let places = [(x, y), (x + half, y), (x, y + half), (x + half, y + half)];
        // The four parts of an 8×8 unit are transform blocks, never split again.
        let last = log2 == 3;
        places
            .into_iter()
            .map(|(x, y)| if last { self.block(x, y, 2) } else { self.square(x, y, log2 - 1) })
            .sum()
    }

    /// split_cu_flag, or part_mode for the smallest unit.
    fn split_flag(&mut self, x: usize, y: usize, log2: u32, split: bool) -> f64 {
        let smaller =
            |unit: Option<(u8, u8)>| usize::from(unit.is_some_and(|(_, own)| u32::from(own) < log2));
        let left = if x > 0 { self.unit(x - 1, y) } else { None };
        let above = if y > 0 { self.unit(x, y - 1) } else { None };
        let index = smaller(left) + smaller(above);
        let before = self.counter.cost;
        let contexts = &mut self.state.contexts;
        if log2 == 3 {
            self.counter.encode(&mut contexts.part_mode, !split);
        } else {
            self.counter.encode(&mut contexts.split_cu_flag[index], split);
        }
        self.lambda * (self.counter.cost - before) as f64
    }

    /// Predicts, transforms, quantizes, counts and reconstructs one block;
    /// answers squared error plus price of bits.
    fn block(&mut self, x: usize, y: usize, log2: u32) -> f64 {
        let size = 1usize << log2;
        let count = size * size;
        let before = self.counter.cost;
        let mut prediction = [0u16; CTU * CTU];
        let (mut mode, mut vector) = (intra::DC, None);
        if self.stages.prediction {
            let (cost, best) = self.predict(x, y, log2, &mut prediction);
            vector = self.predicted_by_reference(x, y, log2, cost, &mut prediction);
            if self.reference.is_some() {
                self.counter.encode(&mut self.inter_flag, vector.is_some());
            }
            if let Some(vector) = vector {
                self.counter.bypass_bits(0, motion::vector_bits(vector, self.vector_guess(x, y)));
            } else {
                mode = best;
                self.count_mode(x, y, mode);
            }
        } else {
            prediction[..count].fill(1 << (self.precision.depth - 1));
        }
        let kernel = if vector.is_some() { Kernel::Dct } else { kernel(log2) };
        let quantizer = self.quantizers[log2 as usize - 2];
        let mut block = [0i32; CTU * CTU];
        self.residual(x, y, size, &prediction, &mut block);
        transform::forward(&mut block, log2, kernel, self.precision);
        for coefficient in &mut block[..count] {
            *coefficient = quantizer.quantize(*coefficient, INTRA_ROUNDING);
        }
        let coded = block[..count].iter().any(|&level| level != 0);
        self.counter.encode(&mut self.state.contexts.cbf_luma[usize::from(log2 > 2)], coded);
        for (row, levels) in block[..count].chunks_exact(size).enumerate() {
            self.done.levels[(y + row) * self.source.width + x..][..size].copy_from_slice(levels);
        }
        if coded {
            let intra = self.stages.prediction && vector.is_none();
            let scan = if intra { Scan::of(mode, log2, 0, false) } else { Scan::Diagonal };
            let shape = Shape { log2, c_idx: 0, scan, transform_skip: false, bypass: false };
            residual::write(&mut self.counter, &mut self.state, &TOOLS, &shape, &block[..count]);
            quantizer.scale_flat(&mut block[..count]);
            transform::inverse(&mut block, log2, kernel, self.precision);
        }
        let error = self.reconstruct(x, y, size, &prediction, &block);
        self.done.blocks.push(Block { x, y, size, mode, motion: vector });
        self.mark(x, y, size, Some((mode, log2 as u8)), vector);
        error as f64 + self.lambda * (self.counter.cost - before) as f64
    }

    /// Leaves the best of 35 predictions in `best`; answers its cost and mode.
    fn predict(&self, x: usize, y: usize, log2: u32, best: &mut [u16]) -> (f64, u8) {
        let size = 1usize << log2;
        let depth = self.precision.depth;
        let (mut line, mut smooth) = ([0u16; MAX_LINE], [0u16; MAX_LINE]);
        let available = self.available(x, y, size);
        let done = &self.done.reconstruction;
        intra::gather(&mut line, done, self.source.width, (x, y), size, available, depth);
        intra::smooth(&line, &mut smooth, size, Smoothing::Weak, depth);
        let probable = self.probable(x, y);
        let mut least = (f64::MAX, intra::DC);
        let mut candidate = [0u16; CTU * CTU];
        for mode in 0..35 {
            let smoothed = intra::smoothing(mode, size, false) != Smoothing::None;
            let edge = intra::edge_filter(mode, 0, size, false);
            let line = if smoothed { &smooth } else { &line };
            intra::predict(mode, line, size, depth, edge, &mut candidate, size);
            let bits = if probable.contains(&mode) { 2.5 } else { 6.0 };
            let cost = self.coefficients(x, y, log2, kernel(log2), &candidate) + self.mode_price * bits;
            if cost < least.0 {
                least = (cost, mode);
                best[..size * size].copy_from_slice(&candidate[..size * size]);
            }
        }
        least
    }

    fn probable(&self, x: usize, y: usize) -> [u8; 3] {
        let mode = |unit: Option<(u8, u8)>| unit.map_or(intra::DC, |(mode, _)| mode);
        let left = if x > 0 { self.unit(x - 1, y) } else { None };
        // Modes above the tree unit are not kept, as the standard has it.
        let above = if !y.is_multiple_of(CTU) { self.unit(x, y - 1) } else { None };
        most_probable(mode(left), mode(above))
    }

    fn count_mode(&mut self, x: usize, y: usize, mode: u8) {
        let place = self.probable(x, y).iter().position(|&own| own == mode);
        let contexts = &mut self.state.contexts;
        self.counter.encode(&mut contexts.prev_intra_luma_pred_flag, place.is_some());
        let bits = match place {
            Some(0) => 1,
            Some(_) => 2,
            None => 5,
        };
        self.counter.bypass_bits(0, bits);
    }

    fn available(&self, x: usize, y: usize, size: usize) -> Available {
        let (width, height) = (self.source.width, self.source.height);
        let run = |places: &mut dyn Iterator<Item = (usize, usize)>| {
            4 * places.take_while(|&(x, y)| x < width && y < height && self.unit(x, y).is_some()).count()
        };
        let beyond = |start: usize| (start + size..start + 2 * size).step_by(4);
        Available {
            left: x > 0,
            above: y > 0,
            corner: x > 0 && y > 0,
            below_left: if x > 0 { run(&mut beyond(y).map(|y| (x - 1, y))) } else { 0 },
            above_right: if y > 0 { run(&mut beyond(x).map(|x| (x, y - 1))) } else { 0 },
        }
    }

    fn residual(&self, x: usize, y: usize, size: usize, prediction: &[u16], out: &mut [i32]) {
        for row in 0..size {
            let source = &self.source.row(y + row)[x..x + size];
            let prediction = &prediction[row * size..][..size];
            for ((out, &sample), &guess) in out[row * size..].iter_mut().zip(source).zip(prediction) {
                *out = i32::from(sample) - i32::from(guess);
            }
        }
    }

    /// Adds the residual to the prediction; answers the squared error.
    fn reconstruct(&mut self, x: usize, y: usize, size: usize, prediction: &[u16], residual: &[i32]) -> u64 {
        let largest = (1i32 << self.precision.depth) - 1;
        let mut error = 0;
        for row in 0..size {
            let at = (y + row) * self.source.width + x;
            let prediction = &prediction[row * size..][..size];
            self.done.prediction[at..at + size].copy_from_slice(prediction);
            for column in 0..size {
                let sample =
                    (i32::from(prediction[column]) + residual[row * size + column]).clamp(0, largest);
                self.done.reconstruction[at + column] = sample as u16;
                error += u64::from(sample.abs_diff(self.source.samples[at + column].into()).pow(2));
            }
        }
        error
    }

    fn save(&self) -> Saved {
        Saved {
            state: self.state,
            inter_flag: self.inter_flag,
            counter: self.counter,
            blocks: self.done.blocks.len(),
        }
    }

    fn restore(&mut self, saved: &Saved) {
        self.state = saved.state;
        self.inter_flag = saved.inter_flag;
        self.counter = saved.counter;
        self.done.blocks.truncate(saved.blocks);
    }

    /// The planes of a square coded as one block, and that block.
    fn copy(&self, x: usize, y: usize, size: usize) -> Whole {
        let planes = (y..y + size)
            .flat_map(|y| (x..x + size).map(move |x| y * self.source.width + x))
            .map(|at| (self.done.prediction[at], self.done.reconstruction[at], self.done.levels[at]))
            .collect();
        let mode = self.unit(x, y).map_or(intra::DC, |(mode, _)| mode);
        let motion = self.vectors[self.place(x, y)];
        (planes, Block { x, y, size, mode, motion })
    }

    fn bring_back(&mut self, (saved, (planes, block)): (Saved, Whole), x: usize, y: usize, size: usize) {
        self.restore(&Saved { blocks: saved.blocks - 1, ..saved });
        self.done.blocks.push(block);
        for (row, planes) in planes.chunks_exact(size).enumerate() {
            let at = (y + row) * self.source.width + x;
            for (column, &(prediction, reconstruction, level)) in planes.iter().enumerate() {
                self.done.prediction[at + column] = prediction;
                self.done.reconstruction[at + column] = reconstruction;
                self.done.levels[at + column] = level;
            }
        }
        self.mark(x, y, size, Some((block.mode, size.ilog2() as u8)), block.motion);
    }
}

fn kernel(log2: u32) -> Kernel {
    if log2 == 2 { Kernel::Dst } else { Kernel::Dct }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow waves with an edge: something to predict.
    fn picture(width: usize, height: usize) -> Plane {
        let mut plane = Plane::filled(width, height, 0);
        for y in 0..height {
            for (x, sample) in plane.row_mut(y).iter_mut().enumerate() {
                let wave = (x as f32 * 0.11).sin() + (y as f32 * 0.07).cos();
                *sample = (2048.0 + 500.0 * wave + if x + y > width { 300.0 } else { 0.0 }) as u16;
            }
        }
        plane
    }

    #[test]
    fn every_stage_saves_bits_on_a_picture() {
        let picture = picture(96, 72);
        let bits = [(false, false), (true, false), (true, true)].map(|(prediction, partitioning)| {
            code(&picture, 12, 20, Stages { prediction, partitioning }).bits
        });
        assert!(bits[0] > 1.1 * bits[1] && bits[1] > 1.1 * bits[2], "{bits:?}");
    }

    #[test]
    fn blocks_cover_the_picture_once_and_the_error_is_the_quantizers() {
        let picture = picture(72, 40);
        for stages in [
            Stages { prediction: false, partitioning: false },
            Stages { prediction: true, partitioning: true },
        ] {
            let coding = code(&picture, 12, 12, stages);
            let mut seen = vec![0; picture.samples.len()];
            for block in &coding.blocks {
                for y in block.y..block.y + block.size {
                    seen[y * 72 + block.x..][..block.size].iter_mut().for_each(|count| *count += 1);
                }
            }
            assert!(seen.iter().all(|&count| count == 1));
            // A step of 2^((12 + 24 − 4) / 6) samples: errors stay around it.
            let step = (32.0f64 / 6.0).exp2();
            let worst = picture
                .samples
                .iter()
                .zip(&coding.reconstruction)
                .map(|(&a, &b)| f64::from(a.abs_diff(b)))
                .fold(0.0, f64::max);
            assert!(worst < 3.0 * step, "{worst} for a step of {step}");
        }
    }
}
