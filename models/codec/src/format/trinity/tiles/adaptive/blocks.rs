//! Blocks of a coded row that are predicted from one another: what both sides
//! know of those above and to the left, and room to work in.

use crate::format::trinity::plan::Plan;
use crate::stage::intra::{self, CLOSELY, MODES, NONE, Neighbours};
use crate::stage::transform::{Transform, Transformer};

/// What both sides know of the blocks above, and room to work in.
pub struct Blocks {
    pub side: usize,
    pub cols: usize,
    pub transformer: Transformer,
    /// The last decoded line, once there is one.
    pub line: Vec<f32>,
    pub first: bool,
    /// Modes of the row of blocks above; those to the left are written over it.
    pub modes: Vec<u8>,
    pub prediction: Vec<f32>,
    pub block: Vec<f32>,
    pub coefficients: Vec<f32>,
    pub best: Vec<f32>,
}

impl Blocks {
    /// For a plan with intra prediction, in coded rows made of rows of `cols` columns.
    pub fn new(plan: &Plan, cols: usize) -> Option<Box<Self>> {
        let Transform::Block { log2_size, .. } = plan.transform else { return None };
        if !plan.prediction.intra {
            return None;
        }
        let side = 1 << log2_size;
        let room = vec![0.0; side * side];
        Some(Box::new(Self {
            side,
            cols,
            transformer: Transformer::new(plan.transform, 1, side),
            line: vec![0.0; cols],
            first: true,
            modes: vec![NONE; cols / side],
            prediction: room.clone(),
            block: room.clone(),
            coefficients: room.clone(),
            best: room,
        }))
    }

    pub fn count(&self) -> usize {
        self.modes.len()
    }

    pub fn likely(&self, block: usize) -> [u8; 3] {
        let left = block.checked_sub(1).map(|left| self.modes[left]);
        let above = (!self.first).then(|| self.modes[block]);
        intra::likely(left, above)
    }

    pub fn around(&self, values: &[f32], block: usize) -> Neighbours {
        let above = (!self.first).then_some(&self.line[..]);
        Neighbours::around(values, above, self.cols, block, self.side)
    }

    /// Places of a block's rows in a coded row.
    pub fn rows(&self, block: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (side, cols) = (self.side, self.cols);
        (0..side).map(move |y| y * cols + block * side..y * cols + (block + 1) * side)
    }

    /// Puts the block of some coefficients where it belongs, prediction added.
    #[inline(always)]
    pub fn rebuild(&mut self, coefficients: &[f32], around: &Neighbours, block: usize, values: &mut [f32]) {
        self.transformer.inverse(coefficients, &mut self.block);
        around.predict(self.modes[block], &mut self.prediction);
        for (y, place) in self.rows(block).enumerate() {
            let parts = self.block[y * self.side..].iter().zip(&self.prediction[y * self.side..]);
            values[place].iter_mut().zip(parts).for_each(|(value, (b, p))| *value = b + p);
        }
    }

    /// The blocks of a coded row become those above.
    pub fn finish_row(&mut self, values: &[f32]) {
        self.line.copy_from_slice(&values[(self.side - 1) * self.cols..]);
        self.first = false;
    }

    /// Coefficients, in steps, of a block less what `mode` predicts.
    #[inline(always)]
    pub fn residual(&mut self, around: &Neighbours, mode: u8, inverse_step: f32) {
        around.predict(mode, &mut self.prediction);
        self.prediction.iter_mut().zip(&self.block).for_each(|(p, b)| *p = b - *p);
        self.transformer.forward(&self.prediction, &mut self.coefficients);
        self.coefficients.iter_mut().for_each(|c| *c *= inverse_step);
    }

    /// The modes that leave least of a block of `original`, best first.
    #[inline(always)]
    pub fn shortlist(&mut self, around: &Neighbours, original: &[f32], block: usize) -> [u8; CLOSELY] {
        self.load(original, block);
        let mut best = [(f32::INFINITY, NONE); CLOSELY];
        for mode in 0..MODES {
            around.predict(mode, &mut self.prediction);
            let left = self.block.iter().zip(&self.prediction).map(|(b, p)| (b - p).abs()).sum();
            if left < best[CLOSELY - 1].0 {
                let place = best.iter().take_while(|(other, _)| *other <= left).count();
                best[place..].rotate_right(1);
                best[place] = (left, mode);
            }
        }
        best.map(|(_, mode)| mode)
    }

    pub fn load(&mut self, original: &[f32], block: usize) {
        for (y, place) in self.rows(block).enumerate() {
            self.block[y * self.side..][..self.side].copy_from_slice(&original[place]);
        }
    }
}

/// From the same frequency of all blocks beside each other to whole blocks
/// after each other.
pub fn by_block<T: Copy>(dealt: &[T], blocks: usize) -> Vec<T> {
    let size = dealt.len() / blocks.max(1);
    (0..dealt.len()).map(|i| dealt[i % size * blocks + i / size]).collect()
}

/// The other way.
pub fn by_frequency<T: Copy>(blocks_in_order: &[T], blocks: usize) -> Vec<T> {
    by_block(blocks_in_order, blocks_in_order.len() / blocks.max(1))
}
