//! Orthonormal matrices stated as reflections: what a stream says of a transform
//! that was fitted to its values.
//!
//! Directions that matter come first, each no more exact than its rows pay for. Knows
//! nothing of how directions are found, nor of what is multiplied by them.

use crate::golomb::{get_golomb, golomb_bits, put_golomb, unzigzag, zigzag};
use crate::{BitReader, BitWriter, Error};

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

impl Reflections {
    /// The product as a matrix, row after row: column `j` is direction `j`. Double
    /// precision, sums from the first coordinate up.
    pub fn product(&self, size: usize) -> Vec<f64> {
        let mut product = identity(size);
        for (j, vector) in self.vectors.iter().enumerate() {
            reflect_rows(&mut product, size, j, vector);
        }
        product
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

    /// Bits per value that a matrix may save over `rows` rows, its own counted:
    /// `before` are variances of coordinates, `after` those of its directions.
    pub fn promise(before: &[f64], after: &[f64], rows: usize, floor: f64) -> f64 {
        let size = before.len();
        let bits = |variances: &[f64]| variances.iter().map(|v| 0.5 * (v + floor).log2()).sum::<f64>();
        let strong = after.iter().filter(|&&v| v > floor).count();
        (bits(before) - bits(after) - Self::expected_bits(strong as f64, size) / rows as f64) / size as f64
    }

    /// Bits that some directions of `size` coordinates take, about: four for each entry.
    pub fn expected_bits(directions: f64, size: usize) -> f64 {
        4.0 * directions * (2.0 * size as f64 - directions) / 2.0
    }

    /// Reflections that turn coordinates into `directions` (one a column), the
    /// strongest first, with as many and as exact ones as `rows` rows pay for.
    /// `floor` is the variance below which nothing is coded; rounding is as `coarse` as
    /// [`COARSE`] where all that it costs is what leaks into other directions.
    pub fn of_directions(
        variances: &[f64],
        directions: Vec<f64>,
        rows: usize,
        floor: f64,
        coarse: f64,
    ) -> Self {
        let size = variances.len();
        let mut turned = directions;
        let mut vectors: Vec<Vec<i32>> = Vec::new();
        for j in 0..size.saturating_sub(1) {
            // Rounding a direction leaks its variance into the others; what that
            // costs over all rows grows with the square of the rounding, what is
            // saved with its logarithm.
            let rest = &variances[j + 1..];
            let harmonic = rest.len() as f64 / rest.iter().map(|&v| 1.0 / v.max(floor)).sum::<f64>();
            if variances[j] <= 1.02 * harmonic || variances[j] <= floor {
                break;
            }
            let rounding = (harmonic / (rows as f64 * variances[j])).sqrt().clamp(1.0 / 4096.0, 1.0) * coarse;
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
            // All directions go through the same reflection.
            reflect_columns(&mut turned, size, j, &vector);
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

/// The matrix that changes nothing.
pub fn identity(size: usize) -> Vec<f64> {
    (0..size * size).map(|at| if at / size == at % size { 1.0 } else { 0.0 }).collect()
}

/// Every row of a matrix times the reflection.
fn reflect_rows(matrix: &mut [f64], size: usize, first: usize, vector: &[i32]) {
    let square: f64 = vector.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    if square == 0.0 {
        return;
    }
    for row in matrix.chunks_exact_mut(size) {
        let mut dot = 0.0;
        for (value, &v) in row[first..].iter().zip(vector) {
            dot += *value * f64::from(v);
        }
        let factor = 2.0 * dot / square;
        for (value, &v) in row[first..].iter_mut().zip(vector) {
            *value -= factor * f64::from(v);
        }
    }
}

/// The reflection times a matrix.
fn reflect_columns(matrix: &mut [f64], size: usize, first: usize, vector: &[i32]) {
    let square: f64 = vector.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    if square == 0.0 {
        return;
    }
    for column in 0..size {
        let dot: f64 =
            vector.iter().enumerate().map(|(i, &v)| matrix[(first + i) * size + column] * f64::from(v)).sum();
        for (i, &v) in vector.iter().enumerate() {
            matrix[(first + i) * size + column] -= 2.0 * dot / square * f64::from(v);
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
        (0..n).for_each(|i| directions[i * n] = strong[i] / norm);
        let mut variances = vec![1.0; n];
        variances[0] = 100.0;
        let reflections = Reflections::of_directions(&variances, directions, 1000, 0.0, COARSE);
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
