//! The OCP microscaling (MX) formats: 32 elements share a power of two.
//!
//! Conversion follows the specification (OCP MX v1.0, clause 6.3): the shared
//! exponent is that of the largest magnitude less the largest exponent of the
//! element format; elements round to nearest even and saturate. Zero blocks
//! have the least scale. A block with a NaN or an infinity has the NaN scale
//! and decodes to NaN throughout: nothing non-finite passes for a number.

use super::Matrix;
use super::mix::{Mix, Placement};
use super::scalar::Quantizer;
use super::symbols::{Layout, Symbols};
use crate::Error;
use crate::float8::{minifloat, round};

pub const MX_BLOCK: usize = 32;
/// E8M0: the exponent's bias, and the code that means NaN.
const SCALE_BIAS: i32 = 127;
const SCALE_NAN: u8 = 255;

/// An element format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    E4m3,
    E5m2,
    E3m2,
    E2m3,
    E2m1,
    /// Two's complement with six fractional bits (MXINT8).
    Int8,
}

impl Element {
    /// Every format, with its codec name.
    pub const ALL: [(Self, &str); 6] = [
        (Self::E4m3, "mxfp8"),
        (Self::E5m2, "mxfp8-e5m2"),
        (Self::E2m3, "mxfp6"),
        (Self::E3m2, "mxfp6-e3m2"),
        (Self::E2m1, "mxfp4"),
        (Self::Int8, "mxint8"),
    ];

    /// Mantissa bits, exponent bias, largest finite code, exponent of the largest.
    fn float(self) -> Option<(u32, i32, u8, i32)> {
        match self {
            Self::E4m3 => Some((3, 7, 0x7e, 8)),
            Self::E5m2 => Some((2, 15, 0x7b, 15)),
            Self::E3m2 => Some((2, 3, 0x1f, 4)),
            Self::E2m3 => Some((3, 1, 0x1f, 2)),
            Self::E2m1 => Some((1, 1, 0x07, 2)),
            Self::Int8 => None,
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Self::E4m3 | Self::E5m2 | Self::Int8 => 8,
            Self::E3m2 | Self::E2m3 => 6,
            Self::E2m1 => 4,
        }
    }

    fn encode(self, value: f32) -> u8 {
        match self.float() {
            None => (value * 64.0).round_ties_even().clamp(-127.0, 127.0) as i8 as u8,
            Some((mantissa_bits, bias, largest, _)) => {
                let magnitude = round(value.abs(), mantissa_bits, bias, largest);
                // One zero: the sign of what was rounded away would cost a coder bits.
                let sign = u8::from(value < 0.0 && magnitude != 0) << (self.bits() - 1);
                magnitude | sign
            }
        }
    }

    fn decode(self, code: u8) -> f32 {
        match self.float() {
            None => f32::from(code as i8) / 64.0,
            Some((mantissa_bits, bias, largest, _)) => {
                let sign = 1u8 << (self.bits() - 1);
                // Codes above the largest are NaN or infinity in FP8; no encoder here writes them.
                let magnitude = minifloat(usize::from((code & (sign - 1)).min(largest)), mantissa_bits, bias);
                if code & sign == 0 { magnitude } else { -magnitude }
            }
        }
    }
}

/// One block: its E8M0 scale and its element codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MxBlock {
    pub scale: u8,
    pub codes: Vec<u8>,
}

impl MxBlock {
    /// Converts up to 32 values. `headroom` raises the scale by so many powers
    /// of two above what the largest value needs: coarser, for fewer bits.
    pub fn encode(values: &[f32], element: Element, headroom: i32) -> Self {
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        if values.iter().any(|value| !value.is_finite()) {
            return Self { scale: SCALE_NAN, codes: vec![0; values.len()] };
        }
        let exponent = if largest == 0.0 {
            -SCALE_BIAS
        } else {
            // Of a positive finite value, subnormals included.
            let own = (f64::from(largest).to_bits() >> 52) as i32 - 1023;
            own - element.float().map_or(0, |float| float.3) + headroom
        };
        let exponent = exponent.clamp(-SCALE_BIAS, SCALE_BIAS);
        let inverse = 2f64.powi(-exponent);
        let codes = values.iter().map(|&value| element.encode((f64::from(value) * inverse) as f32)).collect();
        Self { scale: (exponent + SCALE_BIAS) as u8, codes }
    }

    pub fn decode(scale: u8, codes: &[u8], element: Element) -> impl Iterator<Item = f32> {
        let factor = if scale == SCALE_NAN { f64::NAN } else { 2f64.powi(i32::from(scale) - SCALE_BIAS) };
        codes.iter().map(move |&code| (f64::from(element.decode(code)) * factor) as f32)
    }
}

/// MX as a quantizer: one element format, or a mix at any fractional rate.
#[derive(Debug, Clone, Copy)]
pub struct Mx {
    /// `None` mixes MXFP4, MXFP6 and MXFP8, and coarser scales below MXFP4.
    pub element: Option<Element>,
}

/// Coarsest setting of a mix: MXFP4 with five powers of two of headroom, where
/// nothing but zero is left, so that any coder meets any rate.
const COARSEST: i32 = -5;
/// Finest setting: MXFP8.
const FINEST: i32 = 2;

impl Mx {
    /// Element format and headroom of each of so many blocks.
    fn setting(self, mix: Mix, blocks: usize) -> impl Fn(usize) -> (Element, i32) {
        move |block| match (self.element, mix.setting(block, blocks)) {
            (Some(element), _) => (element, 0),
            (None, 2..) => (Element::E4m3, 0),
            (None, 1) => (Element::E2m3, 0),
            (None, coarser) => (Element::E2m1, -coarser.max(COARSEST)),
        }
    }
}

impl Quantizer for Mx {
    fn knobs(&self) -> (f64, f64) {
        if self.element.is_some() { (0.0, 0.0) } else { (f64::from(COARSEST), f64::from(FINEST)) }
    }

    fn guess(&self, bits: f64) -> Option<f64> {
        Some(bits - 3.7)
    }

    fn quantize(&self, matrix: &Matrix, knob: f64, placement: Placement) -> Symbols {
        let mix = Mix::new(knob, placement);
        let setting = self.setting(mix, matrix.values.len().div_ceil(MX_BLOCK));
        let mut side = mix.to_bytes().to_vec();
        let mut codes = Vec::with_capacity(matrix.values.len());
        for (index, values) in matrix.values.chunks(MX_BLOCK).enumerate() {
            let (element, headroom) = setting(index);
            let block = MxBlock::encode(values, element, headroom);
            side.push(block.scale);
            codes.extend(block.codes);
        }
        Symbols { side, codes }
    }

    fn side_len(&self, rows: usize, cols: usize) -> usize {
        Mix::BYTES + (rows * cols).div_ceil(MX_BLOCK)
    }

    fn layout(&self, side: &[u8], rows: usize, cols: usize) -> Result<Layout, Error> {
        let blocks = (rows * cols).div_ceil(MX_BLOCK);
        let setting = self.setting(Mix::read(side)?, blocks);
        let widths = (0..blocks).map(|block| setting(block).0.bits() as u8).collect();
        Ok(Layout { group: MX_BLOCK, widths, centre: 0 })
    }

    fn dequantize(&self, symbols: &Symbols, rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        if symbols.side.len() != self.side_len(rows, cols) {
            return Err(Error::corrupt(Mix::BYTES, "another number of scales than blocks"));
        }
        let setting = self.setting(Mix::read(&symbols.side)?, (rows * cols).div_ceil(MX_BLOCK));
        let blocks = symbols.codes.chunks(MX_BLOCK).zip(&symbols.side[Mix::BYTES..]).enumerate();
        Ok(blocks
            .flat_map(|(index, (codes, &scale))| MxBlock::decode(scale, codes, setting(index).0))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_of_the_specification() {
        for (element, largest) in [
            (Element::E4m3, 448.0),
            (Element::E5m2, 57344.0),
            (Element::E3m2, 28.0),
            (Element::E2m3, 7.5),
            (Element::E2m1, 6.0),
            (Element::Int8, 127.0 / 64.0),
        ] {
            assert_eq!(element.decode(element.encode(1e9)), largest, "{element:?}");
            assert_eq!(element.decode(element.encode(-1e9)), -largest, "{element:?}");
            assert_eq!(element.decode(element.encode(0.0)), 0.0);
        }
    }

    #[test]
    fn zero_subnormal_and_non_finite_blocks_are_defined() {
        for (element, _) in Element::ALL {
            let round_trip = |values: &[f32]| {
                let block = MxBlock::encode(values, element, 0);
                MxBlock::decode(block.scale, &block.codes, element).collect::<Vec<_>>()
            };
            assert_eq!(round_trip(&[0.0; 32]), [0.0; 32]);
            assert!(round_trip(&[1.0, f32::NAN]).iter().all(|value| value.is_nan()));
            assert!(round_trip(&[1.0, f32::INFINITY]).iter().all(|value| value.is_nan()));
            // The least scale is 2^-127: smaller magnitudes round towards zero.
            assert!(round_trip(&[1e-45])[0].abs() <= 2f32.powi(-127));
        }
    }

    proptest! {
        #[test]
        fn errors_stay_within_the_format(values in prop::collection::vec(-1f32..1.0, 32), scale in -60i32..60) {
            let values: Vec<f32> = values.iter().map(|value| value * 2f32.powi(scale)).collect();
            let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
            // Half the coarsest spacing, or what saturation of the top binade's end takes.
            for (element, bound) in [
                (Element::E4m3, 1.0 / 8.0), (Element::E5m2, 1.0 / 8.0), (Element::E3m2, 1.0 / 8.0),
                (Element::E2m3, 1.0 / 16.0), (Element::E2m1, 1.0 / 4.0), (Element::Int8, 1.0 / 64.0),
            ] {
                let block = MxBlock::encode(&values, element, 0);
                for (a, b) in values.iter().zip(MxBlock::decode(block.scale, &block.codes, element)) {
                    prop_assert!((a - b).abs() <= bound * largest, "{element:?}: {a} became {b}");
                }
            }
        }
    }
}
