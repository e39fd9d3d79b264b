//! KIVI (Liu et al. 2024): integers from least to largest of 64 values, along tokens for each channel of K and along
//! channels for each token of V.
//!
//! The paper keeps the last 128 tokens as they are; here every token of the matrix is coded.

use half::f16;

use super::super::grouped::{pack, unpack};
use super::super::lossy::Matrix;
use super::quantizer::{Quantizer, Refusal, Side};
use crate::Error;

/// Values that share a scale and a least value, each an f16.
const GROUP: usize = 64;
const WIDTHS: std::ops::RangeInclusive<u32> = 1..=8;

#[derive(Debug)]
pub(super) struct Kivi;

fn size(width: u32, groups: usize, values: usize) -> usize {
    2 + 4 * groups + (values * width as usize).div_ceil(8)
}

impl Quantizer for Kivi {
    fn name(&self) -> &'static str {
        "kivi-64g"
    }

    fn encode(&self, matrix: &Matrix, side: Side, most: usize) -> Result<Vec<u8>, Refusal> {
        let (lines, length) = side.lines(matrix.rows, matrix.cols);
        let groups = lines * length.div_ceil(GROUP);
        let fits = |width: &u32| size(*width, groups, matrix.values.len()) <= most;
        let width = WIDTHS.rev().find(fits).ok_or(Refusal::Bytes(size(1, groups, matrix.values.len())))?;
        let top = ((1u32 << width) - 1) as f32;
        let values = side.in_lines(matrix);
        let (mut scales, mut codes) = (Vec::with_capacity(4 * groups), Vec::with_capacity(values.len()));
        for group in values.chunks(length.max(1)).flat_map(|line| line.chunks(GROUP)) {
            let (low, high) = group.iter().fold((f32::MAX, f32::MIN), |(l, h), &v| (l.min(v), h.max(v)));
            let low = f16::from_f32(low);
            let step = f16::from_f32((high - low.to_f32()) / top);
            scales.extend(low.to_le_bytes().into_iter().chain(step.to_le_bytes()));
            let (low, step) = (low.to_f32(), step.to_f32().max(f32::MIN_POSITIVE));
            codes.extend(group.iter().map(|v| ((v - low) / step).round().clamp(0.0, top) as u8));
        }
        let mut bytes = vec![width as u8, side.byte()];
        bytes.extend(scales);
        pack(codes.into_iter(), width, &mut bytes);
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let cut = || Error::corrupt(bytes.len(), "scales or integers are cut");
        let (&[width, side], rest) = bytes.split_first_chunk::<2>().ok_or_else(cut)?;
        let (width, side) = (u32::from(width), Side::from_byte(side)?);
        if !WIDTHS.contains(&width) {
            return Err(Error::corrupt(0, "integers of no known width"));
        }
        let (lines, length) = side.lines(rows, cols);
        let groups = lines * length.div_ceil(GROUP);
        if bytes.len() != size(width, groups, rows * cols) {
            return Err(cut());
        }
        let (scales, packed) = rest.split_at(4 * groups);
        let codes = unpack(packed, width, rows * cols);
        let mut values = Vec::with_capacity(codes.len());
        let grouped = codes.chunks(length.max(1)).flat_map(|line| line.chunks(GROUP));
        for (group, &[a, b, c, d]) in grouped.zip(scales.as_chunks::<4>().0) {
            let (low, step) = (f16::from_le_bytes([a, b]).to_f32(), f16::from_le_bytes([c, d]).to_f32());
            values.extend(group.iter().map(|&code| low + f32::from(code) * step));
        }
        Ok(side.in_rows(values, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keys, nmse, tensor};

    #[test]
    fn keys_are_quantized_by_channel_and_cost_half_a_bit_of_scales() {
        let values = keys(256, 64);
        let [channels, tokens] = ["k", "v"].map(|name| nmse("kivi-64g", &tensor(name, &values, 64), 2.5));
        assert!(channels < 0.5 * tokens, "{channels} against {tokens}");
    }
}
