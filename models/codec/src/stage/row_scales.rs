//! Scales of coded rows that a stream states: where errors of some rows cost more than those of others, each gets a step
//! of its own.
//!
//! What an error in row k costs, D[k], differs by orders of magnitude between the inputs of a layer. A fixed sum of bits goes
//! furthest where D[k] times the squared step is the same everywhere (waterfilling; WaterSIC's column scales), so that
//! rows are divided by a power of D before one step quantizes all. Scales are stated in quarters of an octave, as row
//! classes are: a row's class is then foretold by its scale. Knows nothing of how rows are coded.

use crate::Error;
use trinity_bits::golomb::{unzigzag, zigzag};
use trinity_bits::{BitReader, BitWriter};

/// 2^(n/4) in single precision.
const QUARTERS: [f32; 4] = [1.0, 1.189_207_1, std::f32::consts::SQRT_2, 1.681_792_8];
/// Octaves by which a scale may differ from the middle, either way.
const MOST_OCTAVES: i32 = 12;
const MOST: i32 = 4 * MOST_OCTAVES;
/// What a row may be divided or multiplied by at most.
pub const MOST_SCALE: f32 = (1 << MOST_OCTAVES) as f32;
/// Bits that state how many low bits of a scale are sent as they are.
const LOW_BITS: u32 = 3;
/// How many times its bits scales have to save: at low rates a choice of levels that knows what errors cost saves some of it, too.
const WORTH: f64 = 2.0;

/// What each coded row is multiplied by when it is decoded, as four times its binary logarithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowScales {
    quarters: Vec<i8>,
}

impl RowScales {
    /// Under which errors count alike in all rows of `width` values, where those of row k cost `costs[k]`; nothing where
    /// that saves less than stating it takes.
    pub fn paying(costs: &[f64], width: usize) -> Option<Self> {
        let logs: Vec<f64> = costs.iter().map(|cost| cost.max(f64::MIN_POSITIVE).log2()).collect();
        let count = logs.len().max(1) as f64;
        let middle = logs.iter().sum::<f64>() / count;
        // Half of an octave of cost is a quarter of one of step; costly rows get small steps.
        let quarter =
            |log: &f64| (2.0 * (middle - log)).round().clamp(f64::from(-MOST), f64::from(MOST)) as i8;
        let own = Self { quarters: logs.iter().map(quarter).collect() };
        // What one step for all costs more than steps of one cost, of each value: means against what is left of them.
        let mean = |of: &dyn Fn(usize) -> f64| (0..costs.len()).map(of).sum::<f64>() / count;
        let octaves = |at: usize| f64::from(own.quarters[at]) / 2.0;
        let plain = mean(&|at| (logs[at] - middle).exp2());
        let scaled = mean(&|at| (logs[at] - middle + octaves(at)).exp2()) * (-mean(&octaves)).exp2();
        let saved = 0.5 * (plain / scaled).log2();
        let taken = 8.0 * own.to_bytes().len() as f64 / (count * width.max(1) as f64);
        (saved > WORTH * taken).then_some(own)
    }

    /// What row `row` is multiplied by.
    pub fn of(&self, row: usize) -> f32 {
        let quarters = i32::from(self.quarters[row]);
        let octave = f32::from_bits(((127 + (quarters >> 2)) as u32) << 23);
        QUARTERS[(quarters & 3) as usize] * octave
    }

    /// By how many classes row `row` is above the row before it, if both are alike when decoded.
    pub fn louder(&self, row: usize) -> i32 {
        i32::from(self.quarters[row - 1]) - i32::from(self.quarters[row])
    }

    /// Multiplies rows of `width` values as a decoder does.
    pub fn apply(&self, width: usize, values: &mut [f32]) {
        for (row, values) in values.chunks_exact_mut(width.max(1)).enumerate() {
            let scale = self.of(row);
            values.iter_mut().for_each(|value| *value *= scale);
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let write = |low: u32| {
            let mut out = BitWriter::new();
            out.bits(low, LOW_BITS);
            for &quarters in &self.quarters {
                let entry = zigzag(i32::from(quarters));
                out.ue(entry >> low);
                out.bits(entry & ((1 << low) - 1), low);
            }
            out.into_bytes()
        };
        (0..1 << LOW_BITS).map(write).min_by_key(Vec::len).unwrap_or_default()
    }

    pub fn from_bytes(bytes: &[u8], rows: usize) -> Result<Self, Error> {
        let damaged = |_| Error::Damaged { what: "scales of rows are not complete" };
        // A row takes a bit at least: nothing is set aside for more than there can be.
        if rows > 8 * bytes.len() {
            return Err(Error::Damaged { what: "scales of rows are not complete" });
        }
        let mut bits = BitReader::new(bytes);
        let low = bits.bits(LOW_BITS).map_err(damaged)?;
        let mut quarters = Vec::with_capacity(rows);
        for _ in 0..rows {
            let high = bits.ue().map_err(damaged)?;
            let entry = u64::from(high) << low | u64::from(bits.bits(low).map_err(damaged)?);
            let own = if entry <= 2 * MOST as u64 { unzigzag(entry as u32) } else { i32::MAX };
            if own.abs() > MOST {
                return Err(Error::Damaged { what: "a scale of rows out of range" });
            }
            quarters.push(own as i8);
        }
        let left = bits.remaining();
        if left >= 8 || bits.bits(left as u32).map_err(damaged)? != 0 {
            return Err(Error::Damaged { what: "something behind scales of rows" });
        }
        Ok(Self { quarters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Vec<f64> {
        (0..70).map(|k| (f64::from(k * 37 % 23) - 11.0).exp2()).collect()
    }

    #[test]
    fn errors_count_alike_in_rows_that_are_scaled() {
        let scales = RowScales::paying(&costs(), 500).unwrap();
        let counts = costs().into_iter().enumerate().map(|(k, cost)| cost * f64::from(scales.of(k)).powi(2));
        let (least, most) = counts.fold((f64::MAX, 0.0), |(l, m): (f64, f64), c| (l.min(c), m.max(c)));
        assert!(most / least < 1.5, "{least} to {most}");
        let mut values = vec![1.0; 140];
        scales.apply(2, &mut values);
        assert!(values.chunks(2).enumerate().all(|(k, own)| own == [scales.of(k); 2]));
        // A class is a quarter of an octave.
        let louder: i32 = (1..=9).map(|row| scales.louder(row)).sum();
        let quieter = f64::from(scales.of(9) / scales.of(0));
        assert!(((-f64::from(louder) / 4.0).exp2() / quieter - 1.0).abs() < 1e-6);
    }

    #[test]
    fn scales_that_save_less_than_they_take_are_left_out() {
        assert_eq!(RowScales::paying(&[3.0; 70], 500), None);
        assert_eq!(RowScales::paying(&[], 500), None);
        let narrow: Vec<f64> = (0..70).map(|k| 1.0 + f64::from(k % 2) / 2.0).collect();
        assert_eq!(RowScales::paying(&narrow, 4), None);
        assert!(RowScales::paying(&narrow, 100_000).is_some());
    }

    #[test]
    fn every_truncated_statement_is_an_error_and_the_whole_comes_back() {
        let scales = RowScales::paying(&costs(), 500).unwrap();
        let bytes = scales.to_bytes();
        assert_eq!(RowScales::from_bytes(&bytes, 70).unwrap(), scales);
        for length in 0..bytes.len() {
            assert!(RowScales::from_bytes(&bytes[..length], 70).is_err(), "{length}");
        }
        assert!(RowScales::from_bytes(&[&bytes[..], &[0]].concat(), 70).is_err());
        assert!(RowScales::from_bytes(&bytes, usize::MAX).is_err());
        let of = |entry: u32| {
            let mut out = BitWriter::new();
            out.bits(0, LOW_BITS);
            out.ue(entry);
            out.align_zero();
            RowScales::from_bytes(&out.into_bytes(), 1)
        };
        assert!(of(2 * MOST as u32).is_ok() && of(2 * MOST as u32 + 1).is_err());
    }
}
