//! Principal axes of second moments: what a transform that is stated turns values to.
//!
//! A symmetric matrix is reflected into a tridiagonal one (Householder) whose neighbours are
//! rotated away (implicit QL): less work than Jacobi's rotations, and exact for matrices
//! of low rank. Nothing but sums, products and roots in a fixed order, so that every
//! machine finds the same axes. Knows nothing of what is stated of them.

use crate::simd::{self, Kernel};
use crate::square::{identity, transposed};

/// Rotations of one value's neighbours after which what is left stays: three are enough.
const MOST_SWEEPS: usize = 50;

/// The diagonal, over the largest of a matrix, below which rounding has left nothing to tell.
const LEAST: f64 = 0.01;

/// The axes of a square matrix of second moments.
#[derive(Debug, Clone, PartialEq)]
pub struct Axes {
    /// Second moments along the axes, the largest first.
    pub variances: Vec<f64>,
    /// Axis after axis, each of length one.
    pub directions: Vec<f64>,
}

impl Axes {
    /// Of moments on and below the diagonal, row after row; what lies above is not read.
    pub fn of(moments: &[f64], size: usize) -> Self {
        let largest = moments.iter().step_by(size + 1).fold(0.0, |most: f64, m| most.max(m.abs()));
        let scale = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let Tridiagonal { own, rows, .. } = simd::widest(Diagonalized { moments, size, scale });
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|&a, &b| own[b].total_cmp(&own[a]));
        Self {
            variances: order.iter().map(|&at| own[at].max(0.0) * scale).collect(),
            directions: order.iter().flat_map(|&at| &rows[at * size..][..size]).copied().collect(),
        }
    }
}

/// A symmetric matrix over `scale`, to be diagonalized.
struct Diagonalized<'a> {
    moments: &'a [f64],
    size: usize,
    scale: f64,
}

impl Kernel for Diagonalized<'_> {
    type Output = Tridiagonal;

    #[inline(always)]
    fn run(self) -> Tridiagonal {
        let mut tridiagonal = Tridiagonal::of(self.moments, self.size, self.scale);
        tridiagonal.diagonalize();
        tridiagonal
    }
}

/// A matrix that is tridiagonal in some orthonormal basis.
struct Tridiagonal {
    size: usize,
    /// The diagonal.
    own: Vec<f64>,
    /// What stands beside it: of each row and the next, a zero at the end.
    beside: Vec<f64>,
    /// The basis, vector after vector.
    rows: Vec<f64>,
}

impl Tridiagonal {
    /// The tridiagonal form of a symmetric matrix over `scale`.
    #[inline(always)]
    fn of(moments: &[f64], size: usize, scale: f64) -> Self {
        let lower = |i: usize, j: usize| moments[i.max(j) * size + i.min(j)] / scale;
        let mut matrix: Vec<f64> = (0..size * size).map(|at| lower(at / size, at % size)).collect();
        let mut own = Vec::with_capacity(size);
        let mut beside = vec![0.0; size];
        // A reflection for each column takes what is below its neighbour away.
        let mut reflections: Vec<(f64, Vec<f64>)> = Vec::new();
        for k in 0..size {
            own.push(matrix[k * size + k]);
            let mut vector = matrix[k * size + k + 1..(k + 1) * size].to_vec();
            let Some(&first) = vector.first() else { break };
            let rest = dot(&vector[1..], &vector[1..]);
            if rest == 0.0 {
                beside[k] = first;
                reflections.push((0.0, vector));
                continue;
            }
            let norm = (first * first + rest).sqrt();
            // Away from the first, so that nothing cancels.
            beside[k] = if first > 0.0 { -norm } else { norm };
            vector[0] = first - beside[k];
            let twice = 2.0 / (vector[0] * vector[0] + rest);
            reflect_both(&mut matrix, size, k + 1, &vector, twice);
            reflections.push((twice, vector));
        }
        // Rows of the basis stand in columns, so that all of them are reflected side by side.
        let mut columns = identity(size);
        for (k, (twice, vector)) in reflections.iter().enumerate().rev().filter(|(_, own)| own.0 != 0.0) {
            let from = k + 1;
            let mut along = dots(&columns, size, from, vector);
            along.iter_mut().for_each(|dot| *dot *= twice);
            for (column, v) in columns.chunks_exact_mut(size).skip(from).zip(vector) {
                column[from..].iter_mut().zip(&along).for_each(|(own, along)| *own -= along * v);
            }
        }
        let rows = transposed(&columns, size);
        Self { size, own, beside, rows }
    }

    /// Rotates what stands beside the diagonal away, the first first.
    #[inline(always)]
    fn diagonalize(&mut self) {
        for first in 0..self.size {
            for _ in 0..MOST_SWEEPS {
                let negligible = |at: usize| {
                    let around = self.own[at].abs() + self.own[at + 1].abs();
                    self.beside[at].abs() <= f64::EPSILON * around.max(LEAST)
                };
                let last = (first..self.size - 1).find(|&at| negligible(at)).unwrap_or(self.size - 1);
                if last == first {
                    break;
                }
                self.sweep(first, last);
            }
        }
    }

    /// One sweep of rotations from `last` up to `first`, which comes near an eigenvalue.
    #[inline(always)]
    fn sweep(&mut self, first: usize, last: usize) {
        let Self { size, own, beside, rows } = self;
        let size = *size;
        // Wilkinson's shift: the eigenvalue of the first two rows that is near the first.
        let half = (own[first + 1] - own[first]) / (2.0 * beside[first]);
        let root = (half * half + 1.0).sqrt();
        let shift = own[first] - beside[first] / (half + if half < 0.0 { -root } else { root });
        let (mut sine, mut cosine, mut carried) = (1.0, 1.0, 0.0);
        let mut bulge = own[last] - shift;
        for at in (first..last).rev() {
            let (outside, inside) = (sine * beside[at], cosine * beside[at]);
            let norm = (outside * outside + bulge * bulge).sqrt();
            beside[at + 1] = norm;
            if norm == 0.0 {
                // The matrix falls apart here.
                own[at + 1] -= carried;
                beside[last] = 0.0;
                return;
            }
            (sine, cosine) = (outside / norm, bulge / norm);
            let before = own[at + 1] - carried;
            let turned = (own[at] - before) * sine + 2.0 * cosine * inside;
            carried = sine * turned;
            own[at + 1] = before + carried;
            bulge = cosine * turned - inside;
            let (upper, lower) = rows[at * size..][..2 * size].split_at_mut(size);
            for (a, b) in upper.iter_mut().zip(lower) {
                (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
            }
        }
        own[first] -= carried;
        beside[first] = bulge;
        beside[last] = 0.0;
    }
}

/// A symmetric matrix between two reflections of its rows and columns from `first` on.
#[inline(always)]
fn reflect_both(matrix: &mut [f64], size: usize, first: usize, vector: &[f64], twice: f64) {
    // Where the vector goes: sums of rows, which are columns too.
    let mut image = vec![0.0; vector.len()];
    for (row, &v) in matrix.chunks_exact(size).skip(first).zip(vector) {
        image.iter_mut().zip(&row[first..]).for_each(|(sum, m)| *sum += v * m);
    }
    image.iter_mut().for_each(|sum| *sum *= twice);
    let along = 0.5 * twice * dot(&image, vector);
    image.iter_mut().zip(vector).for_each(|(sum, v)| *sum -= along * v);
    for ((row, &v), &w) in matrix.chunks_exact_mut(size).skip(first).zip(vector).zip(&image) {
        for ((own, &p), &q) in row[first..].iter_mut().zip(vector).zip(&image) {
            *own -= v * q + w * p;
        }
    }
}

/// What [`dot`] says of a vector and of every row from `first` on, whose coordinates from
/// `first` on stand in columns.
#[inline(always)]
fn dots(columns: &[f64], size: usize, first: usize, vector: &[f64]) -> Vec<f64> {
    let count = size - first;
    // Four sums, and what is left when those are full.
    let mut sums = vec![0.0; 5 * count];
    let full = vector.len() / 4 * 4;
    for (i, (column, v)) in columns.chunks_exact(size).skip(first).zip(vector).enumerate() {
        let own = if i < full { i % 4 } else { 4 };
        let own = &mut sums[own * count..][..count];
        own.iter_mut().zip(&column[first..]).for_each(|(sum, value)| *sum += value * v);
    }
    (0..count)
        .map(|row| {
            let [a, b, c, d, rest] = std::array::from_fn(|own| sums[own * count + row]);
            (a + c) + (b + d) + rest
        })
        .collect()
}

/// The dot product in four sums, so that they can stand side by side.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Lcg;

    /// Second moments of rows of few sources, and a little of each column's own.
    fn moments(size: usize, sources: usize, own: f64) -> Vec<f64> {
        let mut lcg = Lcg(5);
        let mut uniform = move || (lcg.state() >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        let mut moments = vec![0.0; size * size];
        for source in 0..sources {
            let weights: Vec<f64> = (0..size).map(|_| uniform()).collect();
            let strength = 0.25f64.powi(source as i32 % 12);
            for (at, moment) in moments.iter_mut().enumerate() {
                *moment += strength * weights[at / size] * weights[at % size];
            }
        }
        moments.iter_mut().step_by(size + 1).for_each(|m| *m += own);
        moments
    }

    /// The largest of what the axes leave of the moments, and of each other.
    fn checked(moments: &[f64], size: usize) -> Axes {
        let axes = Axes::of(moments, size);
        let total: f64 = moments.iter().step_by(size + 1).sum::<f64>().max(f64::MIN_POSITIVE);
        for (i, a) in axes.directions.chunks_exact(size).enumerate() {
            for (j, b) in axes.directions.chunks_exact(size).enumerate() {
                let unit = if i == j { 1.0 } else { 0.0 };
                assert!((dot(a, b) - unit).abs() < 1e-13, "axes {i} and {j}: {}", dot(a, b));
                let image: Vec<f64> = moments.chunks_exact(size).map(|row| dot(row, b)).collect();
                let between = dot(a, &image) - unit * axes.variances[i];
                assert!(between.abs() < 1e-14 * total, "moment of {i} and {j}: {between} of {total}");
            }
        }
        assert!(axes.variances.is_sorted_by(|a, b| a >= b));
        axes
    }

    #[test]
    fn axes_are_orthonormal_and_leave_nothing_between_them() {
        for size in [1, 2, 3, 8, 31, 64, 128] {
            checked(&moments(size, 2 * size, 0.0), size);
            checked(&moments(size, 3, 1e-9), size);
        }
    }

    #[test]
    fn low_rank_is_found_to_the_last_bit_of_its_noise() {
        let axes = checked(&moments(64, 3, 0.0), 64);
        assert!(axes.variances[2] > 1e-3 && axes.variances[3] < 1e-14, "{:?}", &axes.variances[..5]);
    }

    #[test]
    fn matrices_that_are_degenerate_have_axes_too() {
        assert_eq!(checked(&[0.0; 64], 8).variances, [0.0; 8]);
        let diagonal: Vec<f64> =
            (0..64).map(|at| if at / 8 == at % 8 { (at % 8) as f64 } else { 0.0 }).collect();
        assert_eq!(checked(&diagonal, 8).variances, [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
        checked(&[1.0; 64], 8);
        checked(&[1e-300; 64], 8);
        // What is no number comes back as some axes, in time.
        assert_eq!(Axes::of(&[f64::NAN; 64], 8).variances.len(), 8);
        assert_eq!(Axes::of(&[f64::INFINITY; 64], 8).variances.len(), 8);
        assert!(Axes::of(&[], 0).variances.is_empty());
    }

    #[test]
    fn rows_side_by_side_give_the_sums_of_one_alone() {
        let size = 23;
        let columns: Vec<f64> = (0..size * size).map(|i| (i * 37 % 101) as f64 / 7.0 - 6.0).collect();
        for first in [0, 1, 4, 19, 22] {
            let vector: Vec<f64> = (first..size).map(|i| (i * 13 % 17) as f64 / 3.0 - 2.5).collect();
            let alone: Vec<f64> = (first..size)
                .map(|row| {
                    let own: Vec<f64> = (first..size).map(|at| columns[at * size + row]).collect();
                    dot(&own, &vector)
                })
                .collect();
            assert_eq!(dots(&columns, size, first, &vector), alone, "{first}");
        }
    }
}
