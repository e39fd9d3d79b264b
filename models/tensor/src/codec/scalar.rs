//! Scalar codecs: a quantizer followed by a coder of its symbols.

use half::f16;

use super::entropy::SymbolCoder;
use super::mix::Placement;
use super::symbols::{Layout, Symbols};
use super::{Matrix, MatrixCodec};
use crate::Error;

pub(crate) trait Quantizer: std::fmt::Debug + Send + Sync {
    fn knobs(&self) -> (f64, f64);
    fn guess(&self, bits: f64) -> Option<f64>;
    fn quantize(&self, matrix: &Matrix, knob: f64, placement: Placement) -> Symbols;
    /// Length of [`Symbols::side`].
    fn side_len(&self, rows: usize, cols: usize) -> usize;
    fn layout(&self, side: &[u8], rows: usize, cols: usize) -> Result<Layout, Error>;
    fn dequantize(&self, symbols: &Symbols, rows: usize, cols: usize) -> Result<Vec<f32>, Error>;
}

/// The choice to have finer groups in front.
const FRONT: u8 = 1;

#[derive(Debug)]
pub(crate) struct Scalar<Q> {
    pub name: String,
    pub quantizer: Q,
    pub coder: SymbolCoder,
}

impl<Q: Quantizer> MatrixCodec for Scalar<Q> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn knobs(&self, _matrix: &Matrix) -> (f64, f64) {
        self.quantizer.knobs()
    }

    fn has_one_rate(&self) -> bool {
        let (coarse, fine) = self.quantizer.knobs();
        coarse == fine
    }

    fn guess(&self, _matrix: &Matrix, bits: f64) -> Option<f64> {
        self.quantizer.guess(bits)
    }

    /// The rate of a coder of bytes jumps where one symbol more makes it change
    /// its way; with the finer groups in front it grows by a group at a time.
    fn other_choice(&self, choice: u8) -> Option<u8> {
        (choice != FRONT && !self.has_one_rate()).then_some(FRONT)
    }

    fn encode(&self, matrix: &Matrix, knob: f64, choice: u8) -> Result<Vec<u8>, Error> {
        let placement = if choice == FRONT { Placement::Front } else { Placement::Spread };
        let symbols = self.quantizer.quantize(matrix, knob, placement);
        let layout = self.quantizer.layout(&symbols.side, matrix.rows, matrix.cols)?;
        let mut bytes = symbols.side;
        bytes.extend(self.coder.encode(&symbols.codes, &layout)?);
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let side_len = self.quantizer.side_len(rows, cols);
        let (side, coded) =
            bytes.split_at_checked(side_len).ok_or_else(|| Error::corrupt(bytes.len(), "scales are cut"))?;
        let layout = self.quantizer.layout(side, rows, cols)?;
        let codes = self.coder.decode(coded, rows * cols, &layout)?;
        self.quantizer.dequantize(&Symbols { side: side.to_vec(), codes }, rows, cols)
    }
}

/// NF4: sixteen values at the quantiles of a normal law, blocks of 64 with an
/// f16 scale (QLoRA, Dettmers et al. 2023, appendix E).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nf4;

/// Values under one scale.
pub const NF4_BLOCK: usize = 64;
/// What a code stands for, times its block's scale.
pub const NF4_LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

impl Quantizer for Nf4 {
    fn knobs(&self) -> (f64, f64) {
        (0.0, 0.0)
    }

    fn guess(&self, _bits: f64) -> Option<f64> {
        None
    }

    fn quantize(&self, matrix: &Matrix, _knob: f64, _placement: Placement) -> Symbols {
        let mut symbols = Symbols { side: Vec::new(), codes: Vec::with_capacity(matrix.values.len()) };
        for block in matrix.values.chunks(NF4_BLOCK) {
            let scale = f16::from_f32(block.iter().fold(0f32, |largest, value| largest.max(value.abs())));
            symbols.side.extend(scale.to_le_bytes());
            let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
            symbols.codes.extend(block.iter().map(|value| nearest_nf4(value * inverse)));
        }
        symbols
    }

    fn side_len(&self, rows: usize, cols: usize) -> usize {
        2 * (rows * cols).div_ceil(NF4_BLOCK)
    }

    fn layout(&self, _side: &[u8], rows: usize, cols: usize) -> Result<Layout, Error> {
        Ok(Layout { group: NF4_BLOCK, widths: vec![4; (rows * cols).div_ceil(NF4_BLOCK)], centre: 0 })
    }

    fn dequantize(&self, symbols: &Symbols, _rows: usize, _cols: usize) -> Result<Vec<f32>, Error> {
        let (scales, _) = symbols.side.as_chunks::<2>();
        let blocks = symbols.codes.chunks(NF4_BLOCK).zip(scales);
        Ok(blocks
            .flat_map(|(codes, &scale)| {
                let scale = f16::from_le_bytes(scale).to_f32();
                codes.iter().map(move |&code| NF4_LEVELS[usize::from(code & 15)] * scale)
            })
            .collect())
    }
}

fn nearest_nf4(value: f32) -> u8 {
    let above = NF4_LEVELS.partition_point(|&level| level < value).clamp(1, 15);
    let nearer_below = value - NF4_LEVELS[above - 1] < NF4_LEVELS[above] - value;
    (above - usize::from(nearer_below)) as u8
}
