//! Transforms of groups of columns: known matrices, and matrices stated as
//! reflections.
//!
//! A decoder multiplies by integers of eight bits, so that every order of
//! summation gives the same value; an encoder multiplies by the inverse of
//! exactly those integers. Knows nothing of rows, tiles or bits of a stream
//! beyond the reflections themselves.

use trinity_coding::{BitReader, BitWriter};

use crate::Error;
use crate::codes::{get_golomb, golomb_bits, put_golomb, unzigzag, zigzag};

/// What 1.0 is in a synthesis matrix.
pub const ONE: i32 = 127;
/// Reflection entries stay within this.
const MAX_ENTRY: i32 = 1 << 15;

/// A synthesis matrix: value `i` of a group is the sum over coefficients `j`
/// of entry (`i`, `j`) times the coefficient, over [`ONE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synthesis {
    pub size: usize,
    /// Row `i` after row `i − 1`.
    pub entries: Vec<i8>,
}

impl Synthesis {
    fn from_unit(size: usize, unit: &[f64]) -> Self {
        let entries = unit.iter().map(|&u| (u * f64::from(ONE)).round_ties_even() as i8).collect();
        Self { size, entries }
    }

    /// Walsh–Hadamard, in natural order: 22 or −22.
    pub fn hadamard(size: usize) -> Self {
        let entry = |i: usize, j: usize| if (i & j).count_ones() & 1 == 0 { 22 } else { -22 };
        Self { size, entries: (0..size * size).map(|at| entry(at / size, at % size)).collect() }
    }

    /// DCT-II.
    pub fn dct(size: usize) -> Self {
        let n = size as f64;
        let entry = |i: usize, j: usize| {
            let norm = if j == 0 { (1.0 / n).sqrt() } else { (2.0 / n).sqrt() };
            norm * (std::f64::consts::PI * (i as f64 + 0.5) * j as f64 / n).cos()
        };
        Self::from_unit(size, &(0..size * size).map(|at| entry(at / size, at % size)).collect::<Vec<_>>())
    }

    /// The inverse, row `j` for coefficient `j`; nothing where there is none.
    pub fn analysis(&self) -> Option<Vec<f32>> {
        let n = self.size;
        let mut left: Vec<f64> = self.entries.iter().map(|&e| f64::from(e) / f64::from(ONE)).collect();
        let mut right = identity(n);
        for column in 0..n {
            let magnitude = |row: &usize| left[row * n + column].abs();
            let pivot = (column..n).max_by(|a, b| magnitude(a).total_cmp(&magnitude(b)))?;
            if left[pivot * n + column].abs() < 1e-6 {
                return None;
            }
            for k in 0..n {
                left.swap(pivot * n + k, column * n + k);
                right.swap(pivot * n + k, column * n + k);
            }
            let scale = 1.0 / left[column * n + column];
            for k in 0..n {
                left[column * n + k] *= scale;
                right[column * n + k] *= scale;
            }
            for row in (0..n).filter(|&row| row != column) {
                let factor = left[row * n + column];
                if factor != 0.0 {
                    for k in 0..n {
                        left[row * n + k] -= factor * left[column * n + k];
                        right[row * n + k] -= factor * right[column * n + k];
                    }
                }
            }
        }
        Some(right.into_iter().map(|value| value as f32).collect())
    }
}

/// A known matrix' inverse in integers, as gates multiply by it: entries in
/// 1/[`WHOLE`]; nothing where there is no inverse.
pub fn whole_analysis(synthesis: &Synthesis) -> Option<Vec<i32>> {
    let whole = |entry: f32| (f64::from(entry) * f64::from(WHOLE)).round_ties_even() as i32;
    Some(synthesis.analysis()?.into_iter().map(whole).collect())
}

/// What 1.0 is in an analysis in integers.
pub const WHOLE: i32 = 1024;

/// A group of targets to coefficients, sums to the nearest, as `line_hadamard` and
/// `line_dct` of models/silicon/rtl do it.
pub fn analyse_whole(analysis: &[i32], targets: &mut [i32]) {
    let dot = |weights: &[i32]| weights.iter().zip(&*targets).map(|(w, t)| w * t).sum::<i32>();
    let coefficients: Vec<i32> = analysis
        .chunks_exact(targets.len())
        .map(|weights| (dot(weights) + WHOLE / 2) >> WHOLE.ilog2())
        .collect();
    targets.copy_from_slice(&coefficients);
}

/// A product of reflections, vector `j` of which starts at coordinate `j`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reflections {
    pub vectors: Vec<Vec<i32>>,
}

impl Reflections {
    /// The product as a matrix. Double precision, sums from the first coordinate up.
    pub fn synthesis(&self, size: usize) -> Synthesis {
        let mut product = identity(size);
        for (j, vector) in self.vectors.iter().enumerate() {
            reflect_rows(&mut product, size, j, vector);
        }
        Synthesis::from_unit(size, &product)
    }

    pub(crate) fn write(&self, out: &mut BitWriter) {
        out.bits(self.vectors.len() as u32, 7);
        for vector in &self.vectors {
            let order = golomb_order(vector);
            out.bits(order, 4);
            for &entry in vector {
                put_golomb(out, zigzag(entry), order);
            }
        }
    }

    pub(crate) fn read(bits: &mut BitReader<'_>, size: usize) -> Result<Self, Error> {
        let count = bits.bits(7)? as usize;
        if count > size {
            return Err(Error::Damaged { what: "more reflections than columns" });
        }
        let mut vectors = Vec::with_capacity(count);
        for j in 0..count {
            let order = bits.bits(4)?;
            let entry = |_| Ok(unzigzag(get_golomb(bits, order)?));
            let vector: Vec<i32> = (j..size).map(entry).collect::<Result<_, Error>>()?;
            if vector.iter().any(|e| e.unsigned_abs() > MAX_ENTRY as u32) {
                return Err(Error::Damaged { what: "a reflection out of range" });
            }
            vectors.push(vector);
        }
        Ok(Self { vectors })
    }

    /// Bits per value that a matrix may save over `rows` rows, its own counted.
    pub(crate) fn promise(moments: &[f64], size: usize, rows: usize, floor: f64) -> f64 {
        let (variances, _) = eigen(moments, size);
        let bits = |variance: f64| 0.5 * (variance + floor).log2();
        let before: f64 = (0..size).map(|i| bits(moments[i * size + i])).sum();
        let after: f64 = variances.iter().map(|&variance| bits(variance)).sum();
        // Four bits for each entry of the reflections that matter.
        let strong = variances.iter().filter(|&&v| v > floor).count();
        let entries = (strong * (2 * size - strong)) as f64 / 2.0;
        (before - after - 4.0 * entries / rows as f64) / size as f64
    }

    /// Reflections that turn coordinates into the strongest directions of some
    /// second moments, with as many and as exact ones as `rows` rows pay for.
    /// `floor` is the variance below which nothing is coded.
    pub(crate) fn of_moments(moments: &[f64], size: usize, rows: usize, floor: f64) -> Self {
        let (variances, directions) = eigen(moments, size);
        let mut turned = directions;
        let mut vectors: Vec<Vec<i32>> = Vec::new();
        for j in 0..size - 1 {
            // Rounding a direction leaks its variance into the others; what that
            // costs over all rows grows with the square of the rounding, what is
            // saved with its logarithm.
            let rest = &variances[j + 1..];
            let harmonic = rest.len() as f64 / rest.iter().map(|&v| 1.0 / v.max(floor)).sum::<f64>();
            if variances[j] <= 1.02 * harmonic || variances[j] <= floor {
                break;
            }
            let rounding = (harmonic / (rows as f64 * variances[j])).sqrt().clamp(1.0 / 4096.0, 1.0) * 1.6;
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

fn identity(size: usize) -> Vec<f64> {
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

/// Eigenvalues of a symmetric matrix, largest first, and their vectors as
/// columns (cyclic Jacobi).
fn eigen(moments: &[f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let n = size;
    let mut a = moments.to_vec();
    let mut v = identity(n);
    let total: f64 = (0..n).map(|i| a[i * n + i].abs()).sum::<f64>().max(f64::MIN_POSITIVE);
    for _ in 0..12 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * n + j].abs()).sum();
        if off < 1e-9 * total {
            break;
        }
        for p in 0..n - 1 {
            for q in p + 1..n {
                let apq = a[p * n + q];
                if apq.abs() < 1e-14 * total {
                    continue;
                }
                let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for k in 0..n {
                    let (x, y) = (a[k * n + p], a[k * n + q]);
                    (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[p * n + k], a[q * n + k]);
                    (a[p * n + k], a[q * n + k]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (v[k * n + p], v[k * n + q]);
                    (v[k * n + p], v[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[j * n + j].total_cmp(&a[i * n + i]).then(i.cmp(&j)));
    let values = order.iter().map(|&i| a[i * n + i].max(0.0)).collect();
    let vectors = (0..n * n).map(|at| v[at / n * n + order[at % n]]).collect();
    (values, vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Analysis, then synthesis in integers: what remains of a vector.
    fn error_of(synthesis: &Synthesis) -> f64 {
        let (n, analysis) = (synthesis.size, synthesis.analysis().unwrap());
        let values: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 64) as f64 - 31.5).collect();
        let coefficients: Vec<f64> =
            (0..n).map(|j| (0..n).map(|i| f64::from(analysis[j * n + i]) * values[i]).sum()).collect();
        let back = |i: usize| {
            (0..n).map(|j| f64::from(synthesis.entries[i * n + j]) * coefficients[j]).sum::<f64>()
                / f64::from(ONE)
        };
        (0..n).map(|i| (back(i) - values[i]).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn analysis_undoes_every_synthesis() {
        assert!(error_of(&Synthesis::hadamard(32)) < 1e-3);
        assert!(error_of(&Synthesis::dct(32)) < 1e-3);
        let reflections = Reflections { vectors: vec![vec![3; 64], vec![-1; 63], vec![0; 62]] };
        assert!(error_of(&reflections.synthesis(64)) < 1e-3);
    }

    #[test]
    fn analysis_in_integers_is_off_by_its_entries_rounding_alone() {
        let values: Vec<i32> = (0..32).map(|i| (i * 2741 + 77) % 8192 - 4096).collect();
        for synthesis in [Synthesis::hadamard(32), Synthesis::dct(32)] {
            let (exact, whole) = (synthesis.analysis().unwrap(), whole_analysis(&synthesis).unwrap());
            let mut found = values.clone();
            analyse_whole(&whole, &mut found);
            for (j, &found) in found.iter().enumerate() {
                let sum = (0..32).map(|i| f64::from(exact[j * 32 + i]) * f64::from(values[i])).sum::<f64>();
                // Entries are off by half of 1/1024 at most.
                let bound = 0.5 + values.iter().map(|v| f64::from(v.abs())).sum::<f64>() / 2048.0;
                assert!((f64::from(found) - sum).abs() <= bound, "{j}: {found} {sum}");
            }
        }
    }

    #[test]
    fn reflections_find_the_strong_directions_and_survive_the_header() {
        let n = 32;
        // One direction a hundred times as strong as the rest.
        let direction: Vec<f64> = (0..n).map(|i| ((i % 5) as f64 - 2.0) / 8.0).collect();
        let mut moments: Vec<f64> = identity(n);
        for i in 0..n {
            for j in 0..n {
                moments[i * n + j] += 100.0 * direction[i] * direction[j];
            }
        }
        let reflections = Reflections::of_moments(&moments, n, 1000, 0.0);
        let synthesis = reflections.synthesis(n);
        let dot: f64 = (0..n).map(|i| f64::from(synthesis.entries[i * n]) / 127.0 * direction[i]).sum();
        let norm: f64 = direction.iter().map(|d| d * d).sum();
        assert!(dot.abs() / norm.sqrt() > 0.995, "{dot} of {}", norm.sqrt());
        let mut out = BitWriter::new();
        reflections.write(&mut out);
        let bytes = out.into_bytes();
        assert_eq!(Reflections::read(&mut BitReader::new(&bytes), n).unwrap(), reflections);
    }
}
