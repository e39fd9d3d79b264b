//! Transforms of groups of columns: known matrices, and matrices signalled as
//! reflections.
//!
//! A decoder multiplies by integers of eight bits, so that every order of
//! summation gives the same value; an encoder multiplies by the inverse of
//! exactly those integers. Knows nothing of rows, tiles or bits of a stream.

use trinity_numeric::axes::Axes;
use trinity_numeric::reflections::{Paying, Reflections};
use trinity_numeric::square::identity;

/// What 1.0 is in a synthesis matrix.
pub const ONE: i32 = 127;

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

/// The matrix that reflections state.
pub fn signalled_synthesis(reflections: &Reflections, size: usize) -> Synthesis {
    Synthesis::from_unit(size, &reflections.product(size))
}

/// Bits per value that a matrix may save of such moments.
pub fn promise(moments: &[f64], size: usize, paying: &Paying) -> f64 {
    let before: Vec<f64> = moments.iter().step_by(size + 1).copied().collect();
    Reflections::promise(&before, Axes::of(moments, size), paying)
}

/// Reflections that turn coordinates into the strongest directions of some second
/// moments.
pub fn reflections_of(moments: &[f64], size: usize, paying: &Paying) -> Reflections {
    Reflections::of_axes(Axes::of(moments, size), paying)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_numeric::reflections::COARSE;

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
        assert!(error_of(&signalled_synthesis(&reflections, 64)) < 1e-3);
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
    fn moments_yield_their_strong_direction_in_integers() {
        let n = 32;
        // One direction a hundred times as strong as the rest.
        let direction: Vec<f64> = (0..n).map(|i| ((i % 5) as f64 - 2.0) / 8.0).collect();
        let mut moments: Vec<f64> = identity(n);
        for i in 0..n {
            for j in 0..n {
                moments[i * n + j] += 100.0 * direction[i] * direction[j];
            }
        }
        let paying = Paying { rows: 1000, floor: 0.0, leaked_beside: 0.0, coarse: COARSE };
        let synthesis = signalled_synthesis(&reflections_of(&moments, n, &paying), n);
        let dot: f64 = (0..n).map(|i| f64::from(synthesis.entries[i * n]) / 127.0 * direction[i]).sum();
        let norm: f64 = direction.iter().map(|d| d * d).sum();
        assert!(dot.abs() / norm.sqrt() > 0.995, "{dot} of {}", norm.sqrt());
    }
}
