//! KVQuant (Hooper et al. 2024): levels that need not be even, for each channel of K and each token of V scaled to
//! [−1, 1]; optionally 1 % of every channel or token apart, as they are.
//!
//! The paper learns scales of keys and levels ahead and weighs levels by Fisher information; here both are of the
//! matrix itself, stored and counted, and levels weigh all values alike. That keys are taken before rotary
//! positions is the caller's affair.

use half::f16;

use super::super::grouped::{pack, unpack};
use super::super::lossy::Matrix;
use super::levels::{lloyd_max, nearest};
use super::quantizer::{Quantizer, Refusal, Side};
use crate::Error;

#[derive(Debug)]
pub(super) struct KvQuant {
    /// Whether the 1 % of a line furthest out are stored apart.
    pub outliers: bool,
}

const WIDTHS: std::ops::RangeInclusive<u32> = 1..=8;
/// One value in so many is stored apart.
const OUTLIER_SHARE: usize = 100;
/// Cells of the histogram that levels are found from.
const CELLS: usize = 4096;

/// How much is stored for a matrix.
struct Counts {
    lines: usize,
    length: usize,
    /// Values apart in each line.
    apart: usize,
}

impl Counts {
    fn new(side: Side, rows: usize, cols: usize, outliers: bool) -> Self {
        let (lines, length) = side.lines(rows, cols);
        Self { lines, length, apart: if outliers { length.div_ceil(OUTLIER_SHARE) } else { 0 } }
    }

    /// Bytes of a place in a line.
    fn place_bytes(&self) -> usize {
        if self.length <= 1 << 16 { 2 } else { 4 }
    }

    fn size(&self, width: u32) -> usize {
        let apart = self.lines * self.apart * (self.place_bytes() + 2);
        2 + (2 << width) + 4 * self.lines + apart + (self.lines * self.length * width as usize).div_ceil(8)
    }
}

/// A line's middle and half of its range, both as stored.
struct Range {
    middle: f16,
    half: f16,
}

impl Range {
    /// Of a line but for the values at `apart`.
    fn of(line: &[f32], apart: &[usize]) -> Self {
        let mut inside = line.iter().enumerate().filter(|(at, _)| !apart.contains(at)).map(|(_, &v)| v);
        let first = inside.next().unwrap_or(0.0);
        let (low, high) = inside.fold((first, first), |(low, high), v| (low.min(v), high.max(v)));
        let middle = f16::from_f32(0.5 * (low + high));
        let half = f16::from_f32((high - middle.to_f32()).max(middle.to_f32() - low));
        Self { middle, half }
    }

    fn scaled(&self, value: f32) -> f32 {
        ((value - self.middle.to_f32()) / self.half.to_f32().max(f32::MIN_POSITIVE)).clamp(-1.0, 1.0)
    }
}

/// The places of a line furthest from its median.
fn furthest(line: &[f32], count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let mut sorted = line.to_vec();
    sorted.sort_by(f32::total_cmp);
    let median = sorted[sorted.len() / 2];
    let mut places: Vec<usize> = (0..line.len()).collect();
    let far = |at: usize| (line[at] - median).abs();
    places.sort_by(|&a, &b| far(b).total_cmp(&far(a)).then(a.cmp(&b)));
    places.truncate(count);
    places
}

fn histogram_levels(scaled: &[f32], width: u32) -> Vec<f16> {
    let mut masses = vec![0f64; CELLS];
    scaled.iter().for_each(|v| masses[((v + 1.0) * 0.5 * (CELLS - 1) as f32).round() as usize] += 1.0);
    let places: Vec<f32> = (0..CELLS).map(|at| 2.0 * at as f32 / (CELLS - 1) as f32 - 1.0).collect();
    lloyd_max(&places, &masses, 1 << width).into_iter().map(f16::from_f32).collect()
}

impl Quantizer for KvQuant {
    fn name(&self) -> &'static str {
        if self.outliers { "kvquant-1p" } else { "kvquant" }
    }

    fn encode(&self, matrix: &Matrix, side: Side, most: usize) -> Result<Vec<u8>, Refusal> {
        let counts = Counts::new(side, matrix.rows, matrix.cols, self.outliers);
        let width =
            WIDTHS.rev().find(|&width| counts.size(width) <= most).ok_or(Refusal::Bytes(counts.size(1)))?;
        let values = side.in_lines(matrix);
        let (mut ranges, mut apart, mut scaled) = (Vec::new(), Vec::new(), Vec::with_capacity(values.len()));
        for line in values.chunks(counts.length.max(1)) {
            let places = furthest(line, counts.apart);
            let range = Range::of(line, &places);
            scaled.extend(line.iter().map(|&v| range.scaled(v)));
            ranges.extend(range.middle.to_le_bytes().into_iter().chain(range.half.to_le_bytes()));
            for place in places {
                apart.extend(&(place as u32).to_le_bytes()[..counts.place_bytes()]);
                apart.extend(f16::from_f32(line[place]).to_le_bytes());
            }
        }
        let levels = histogram_levels(&scaled, width);
        let rounded: Vec<f32> = levels.iter().map(|level| level.to_f32()).collect();
        let mut bytes = vec![width as u8, side.byte()];
        bytes.extend(levels.iter().flat_map(|level| level.to_le_bytes()));
        bytes.extend(ranges.into_iter().chain(apart));
        pack(scaled.iter().map(|&v| nearest(&rounded, v) as u8), width, &mut bytes);
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let cut = || Error::corrupt(bytes.len(), "levels, scales or codes are cut");
        let (&[width, side], rest) = bytes.split_first_chunk::<2>().ok_or_else(cut)?;
        let (width, side) = (u32::from(width), Side::from_byte(side)?);
        if !WIDTHS.contains(&width) {
            return Err(Error::corrupt(0, "codes of no known width"));
        }
        let counts = Counts::new(side, rows, cols, self.outliers);
        if bytes.len() != counts.size(width) {
            return Err(cut());
        }
        let half = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
        let (levels, rest) = rest.split_at(2 << width);
        let (ranges, rest) = rest.split_at(4 * counts.lines);
        let record = counts.place_bytes() + 2;
        let (apart, packed) = rest.split_at(counts.lines * counts.apart * record);
        let levels: Vec<f32> = levels.chunks_exact(2).map(half).collect();
        let codes = unpack(packed, width, rows * cols);
        let mut values = Vec::with_capacity(codes.len());
        for (line, range) in codes.chunks(counts.length.max(1)).zip(ranges.chunks_exact(4)) {
            let (middle, scale) = (half(range), half(&range[2..]));
            values.extend(line.iter().map(|&code| middle + scale * levels[usize::from(code)]));
        }
        for (at, record) in apart.chunks_exact(record).enumerate() {
            let (place, value) = record.split_at(counts.place_bytes());
            let place = place.iter().rev().fold(0usize, |so_far, &byte| so_far << 8 | usize::from(byte));
            let line = at / counts.apart.max(1);
            let to = values.get_mut(line * counts.length + place).filter(|_| place < counts.length);
            *to.ok_or_else(|| Error::corrupt(0, "a value apart from no line"))? = half(value);
        }
        Ok(side.in_rows(values, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keys, nmse, tensor};

    #[test]
    fn levels_that_need_not_be_even_beat_even_ones_and_outliers_apart_help() {
        let mut values = keys(256, 64);
        let subject = tensor("k", &values, 64);
        assert!(nmse("kvquant", &subject, 3.2) < nmse("kivi-64g", &subject, 3.5));
        // One token in a hundred is far out.
        values.iter_mut().step_by(101).for_each(|v| *v *= 12.0);
        let subject = tensor("k", &values, 64);
        let [dense, apart] =
            [("kvquant", 3.2), ("kvquant-1p", 3.6)].map(|(name, bits)| nmse(name, &subject, bits));
        assert!(apart < 0.5 * dense, "{apart} against {dense}");
    }
}
