//! Orthonormal matrices stated as reflections: what a stream says of a transform
//! that was fitted to its values.
//!
//! Directions that matter come first, each no more exact than its rows pay for. Knows
//! nothing of how directions are found, nor of what is multiplied by them.

use crate::axes::Axes;
use crate::simd::{self, Kernel};
use crate::square::{identity, transposed};
use trinity_bits::golomb::{get_golomb, golomb_bits, put_golomb, unzigzag, zigzag};
use trinity_bits::{BitReader, BitWriter, Error};

/// Rounding over the root of (variance of the rest / variance / rows) at which bits saved by
/// coarser entries equal bits lost: entries rounded by r leak r² / 12 of their
/// variance into each other direction, which costs half of log2 e times as much over that one's.
pub const COARSE: f64 = 3.46;

/// The finest rounding.
const FINEST: f64 = 1.0 / 8192.0;
/// Entries stay within this.
const MAX_ENTRY: i32 = 1 << 15;

/// A product of reflections, vector `j` of which starts at coordinate `j`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reflections {
    pub vectors: Vec<Vec<i32>>,
}

/// What pays for reflections.
#[derive(Debug, Clone, Copy)]
pub struct Paying {
    /// Rows that are turned by them.
    pub rows: usize,
    /// The variance below which nothing is coded.
    pub floor: f64,
    /// The least variance that leaks are counted beside: `floor`, or less where rows of
    /// different noise were weighed, as the loudest leak the most.
    pub leaked_beside: f64,
    /// [`COARSE`] where all that rounding costs is what leaks.
    pub coarse: f64,
}

impl Reflections {
    /// The product as a matrix, row after row: column `j` is direction `j`. Double
    /// precision, sums from the first coordinate up.
    pub fn product(&self, size: usize) -> Vec<f64> {
        let mut columns = identity(size);
        for (j, vector) in self.vectors.iter().enumerate() {
            simd::widest(Reflect { columns: &mut columns, size, first: j, from: 0, vector });
        }
        transposed(&columns, size)
    }

    /// Appends how many there are, and each with the order of its codes.
    pub fn write(&self, out: &mut BitWriter) {
        out.bits(self.vectors.len() as u32, 7);
        for vector in &self.vectors {
            let order = golomb_order(vector);
            out.bits(order, 4);
            for &entry in vector {
                put_golomb(out, zigzag(entry), order);
            }
        }
    }

    /// What [`Reflections::write`] wrote of `size` coordinates.
    pub fn read(bits: &mut BitReader<'_>, size: usize) -> Result<Self, Error> {
        let count = bits.bits(7)? as usize;
        if count > size {
            return Err(Error::BadReflection { bit: bits.position() });
        }
        let mut vectors = Vec::with_capacity(count);
        for j in 0..count {
            let order = bits.bits(4)?;
            let entry = |_| Ok(unzigzag(get_golomb(bits, order)?));
            let vector: Vec<i32> = (j..size).map(entry).collect::<Result<_, Error>>()?;
            if vector.iter().any(|e| e.unsigned_abs() > MAX_ENTRY as u32) {
                return Err(Error::BadReflection { bit: bits.position() });
            }
            vectors.push(vector);
        }
        Ok(Self { vectors })
    }

    /// Bits per value that stating such axes may save over the rows that pay, everything counted:
    /// `before` are variances of coordinates.
    pub fn promise(before: &[f64], axes: Axes, paying: &Paying) -> f64 {
        /// What an entry leaks, in bits, where it is as coarse as it should be.
        const LEAKED: f64 = 0.5 * std::f64::consts::LOG2_E;
        let bits = |variances: &[f64]| variances.iter().map(|v| 0.5 * (v + paying.floor).log2()).sum::<f64>();
        let saved = bits(before) - bits(&axes.variances);
        let reflections = Self::of_axes(axes, paying);
        let mut out = BitWriter::new();
        reflections.write(&mut out);
        let entries: usize = reflections.vectors.iter().map(Vec::len).sum();
        let stated = out.position() as f64 + LEAKED * entries as f64;
        (saved - stated / paying.rows as f64) / before.len() as f64
    }

    /// Bits that some directions of `size` coordinates take, about: four for each entry.
    pub fn expected_bits(directions: f64, size: usize) -> f64 {
        4.0 * directions * (2.0 * size as f64 - directions) / 2.0
    }

    /// Reflections that turn coordinates into axes, the strongest first, with as many and
    /// as exact ones as what they are for pays.
    pub fn of_axes(axes: Axes, paying: &Paying) -> Self {
        let &Paying { rows, floor, leaked_beside, coarse } = paying;
        let Axes { variances, directions } = axes;
        let size = variances.len();
        let mut turned = transposed(&directions, size);
        let mut vectors: Vec<Vec<i32>> = Vec::new();
        for j in 0..size.saturating_sub(1) {
            // Rounding a direction leaks its variance into the others; what that
            // costs over all rows grows with the square of the rounding, what is
            // saved with its logarithm.
            let rest = &variances[j + 1..];
            let harmonic = rest.len() as f64 / rest.iter().map(|&v| 1.0 / v.max(leaked_beside)).sum::<f64>();
            if variances[j] <= 1.02 * harmonic || variances[j] <= floor {
                break;
            }
            let rounding = (harmonic / (rows as f64 * variances[j])).sqrt().min(1.0) * coarse;
            // Entries of up to 2 stay within what a header may say.
            let rounding = rounding.max(FINEST);
            // Column j of `turned` is where the reflections so far left direction j.
            let mut target: Vec<f64> = (j..size).map(|i| turned[i * size + j]).collect();
            let norm = target.iter().map(|t| t * t).sum::<f64>().sqrt();
            if norm < 0.1 {
                break;
            }
            let sign = if target[0] < 0.0 { -1.0 } else { 1.0 };
            target.iter_mut().for_each(|t| *t *= sign / norm);
            target[0] += 1.0;
            let vector: Vec<i32> = target.iter().map(|t| (t / rounding).round() as i32).collect();
            // All that are left go through the same reflection.
            simd::widest(Reflect { columns: &mut turned, size, first: j, from: j + 1, vector: &vector });
            vectors.push(vector);
        }
        Self { vectors }
    }
}

/// The order of an Exp-Golomb code that takes the fewest bits.
fn golomb_order(vector: &[i32]) -> u32 {
    let bits = |order: &u32| vector.iter().map(|&e| golomb_bits(zigzag(e), *order)).sum::<u64>();
    (0..16).min_by_key(bits).unwrap_or(0)
}

/// Rows of a matrix, which stand in columns so that they go side by side, times a reflection.
struct Reflect<'a> {
    columns: &'a mut [f64],
    size: usize,
    /// The coordinate that the vector starts at, and the first row that is reflected.
    first: usize,
    from: usize,
    vector: &'a [i32],
}

impl Kernel for Reflect<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { columns, size, first, from, vector } = self;
        let square: f64 = vector.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        if square == 0.0 {
            return;
        }
        let mut factors = vec![0.0; size - from];
        for (column, &v) in columns.chunks_exact(size).skip(first).zip(vector) {
            let v = f64::from(v);
            factors.iter_mut().zip(&column[from..]).for_each(|(sum, value)| *sum += value * v);
        }
        factors.iter_mut().for_each(|factor| *factor = 2.0 * *factor / square);
        for (column, &v) in columns.chunks_exact_mut(size).skip(first).zip(vector) {
            let v = f64::from(v);
            column[from..].iter_mut().zip(&factors).for_each(|(value, factor)| *value -= factor * v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflections_find_the_strong_direction_and_survive_the_header() {
        let n = 32;
        let strong: Vec<f64> = (0..n).map(|i| ((i % 5) as f64 - 2.0) / 8.0).collect();
        let norm = strong.iter().map(|d| d * d).sum::<f64>().sqrt();
        // The strong one first; the others fill up and are worth nothing.
        let mut directions = identity(n);
        (0..n).for_each(|i| directions[i] = strong[i] / norm);
        let mut variances = vec![1.0; n];
        variances[0] = 100.0;
        let paying = Paying { rows: 1000, floor: 0.0, leaked_beside: 0.0, coarse: COARSE };
        let reflections = Reflections::of_axes(Axes { variances, directions }, &paying);
        assert_eq!(reflections.vectors.len(), 1);
        let product = reflections.product(n);
        let dot: f64 = (0..n).map(|i| product[i * n] * strong[i]).sum();
        assert!(dot.abs() / norm > 0.995, "{dot} of {norm}");
        let mut out = BitWriter::new();
        reflections.write(&mut out);
        let bytes = out.into_bytes();
        assert_eq!(Reflections::read(&mut BitReader::new(&bytes), n).unwrap(), reflections);
        for length in 0..bytes.len() {
            assert!(Reflections::read(&mut BitReader::new(&bytes[..length]), n).is_err(), "{length}");
        }
    }

    #[test]
    fn products_are_orthonormal_whatever_the_vectors_say() {
        let (n, vectors) = (8, vec![vec![3; 8], vec![-1; 7], vec![0; 6], vec![32767, 1, -9, 4, 0]]);
        let product = Reflections { vectors }.product(n);
        for i in 0..n {
            for j in 0..n {
                let dot: f64 = (0..n).map(|k| product[i * n + k] * product[j * n + k]).sum();
                assert!((dot - if i == j { 1.0 } else { 0.0 }).abs() < 1e-12, "{i} {j}: {dot}");
            }
        }
    }

    #[test]
    fn what_no_encoder_writes_is_refused() {
        let mut out = BitWriter::new();
        out.bits(9, 7);
        assert!(Reflections::read(&mut BitReader::new(&out.into_bytes()), 8).is_err());
        let mut out = BitWriter::new();
        out.bits(1, 7);
        out.bits(15, 4);
        put_golomb(&mut out, 1 << 17, 15);
        let zeros = (0..7).map(|_| 0);
        zeros.for_each(|zero| put_golomb(&mut out, zero, 15));
        let refused = Reflections::read(&mut BitReader::new(&out.into_bytes()), 8);
        assert!(matches!(refused, Err(Error::BadReflection { .. })), "{refused:?}");
    }
}
