//! Matrices that a stream states: a change of basis fitted to the very values that
//! follow it.
//!
//! A learned transform ([`crate::stage::klt`]) takes rows to learn; a signalled one serves
//! from the first row, beside or across a learned one, for the bits of its
//! reflections. Knows second moments and reflections; knows nothing of what plans cost.

use trinity_bits::{BitReader, BitWriter};
use trinity_numeric::axes::Axes;
use trinity_numeric::reflections::{COARSE, Paying, Reflections};
use trinity_numeric::square::transposed;
use trinity_numeric::threads;

use crate::Error;
use crate::matrix::Matrix;
use crate::stage::basis::Basis;
use crate::stage::combine::combine_rows;
use crate::stage::klt::second_moments;

/// Rows that tell whether matrices are worth stating.
const GLANCE: usize = 1024;
/// Groups that tell it at a glance, and those that are fitted where it may be.
const GLANCED: usize = 4;
const FITTED: usize = 2;
/// Bits per value that directions of noise seem to save, over columns per row.
const FITTED_TO_NOISE: f64 = 0.36;

#[derive(Debug, Clone, PartialEq)]
pub struct Signalled {
    group: usize,
    cols: usize,
    groups: Vec<Reflections>,
}

impl Signalled {
    /// What matrices of `group` columns would save and take, at a glance.
    pub fn glance(matrix: Along<'_>, group: usize, noise: f64) -> Glance {
        let whole = matrix.cols() / group;
        if whole == 0 || matrix.rows() == 0 {
            return Glance { gain: 0.0, learnable: 0.0, signalled: f64::INFINITY };
        }
        let fit = Fit::new(matrix, noise, matrix.rows().div_ceil(GLANCE), 0.0);
        let groups = spread(whole, GLANCED);
        let (mut saved, mut signalled) = (0.0, 0.0);
        for at in &groups {
            let (of_row, of_matrix) = fit.glance(&fit.values(at * group, group), group);
            saved += of_row;
            signalled += of_matrix;
        }
        let values = (groups.len() * group) as f64;
        let (noise, unseen) = fit.fitted_to_noise(group);
        let saved = saved / values;
        Glance { gain: saved - unseen, learnable: (saved - noise).max(0.0), signalled: signalled / values }
    }

    /// Bits per value that matrices of `group` columns promise to save, their own counted,
    /// where rows are coded with an error of `noise` and what is left takes `crossing`
    /// bits less in the end.
    pub fn promise(matrix: Along<'_>, group: usize, noise: f64, crossing: f64) -> f64 {
        let whole = matrix.cols() / group;
        if whole == 0 || matrix.rows() == 0 {
            return f64::NEG_INFINITY;
        }
        let fit = Fit::new(matrix, noise, matrix.rows().div_ceil(GLANCE), crossing);
        let groups = spread(whole, FITTED);
        let saved = groups.iter().map(|at| fit.saved(&fit.values(at * group, group), group)).sum::<f64>();
        saved / (groups.len() * group) as f64 - fit.fitted_to_noise(group).1
    }

    /// Matrices of `group` columns, the last of what is left, as exact as the rows pay for.
    pub fn fitted(matrix: &Matrix, group: usize, noise: f64, crossing: f64) -> Self {
        let fit = Fit::new(Along::rows_of(matrix), noise, 1, crossing);
        let firsts: Vec<usize> = (0..matrix.cols).step_by(group).collect();
        let groups = threads::map(&firsts, |&first| {
            let size = group.min(matrix.cols - first);
            fit.reflections(&fit.values(first, size), size)
        });
        Self { group, cols: matrix.cols, groups }
    }

    pub fn basis(&self) -> Basis {
        let synthesis = threads::map(&self.groups.iter().enumerate().collect::<Vec<_>>(), |(at, own)| {
            directions(own, self.group.min(self.cols - at * self.group))
        });
        Basis::new(self.cols, self.group, synthesis.concat())
    }

    /// The rows of coefficients, in place: as by [`Signalled::basis`], a group at a time, so
    /// that no header asks for more memory than its values take.
    pub fn inverse(&self, values: &mut Vec<f32>) {
        let mut out = vec![0.0; values.len()];
        for (at, own) in self.groups.iter().enumerate().filter(|_| !values.is_empty()) {
            let first = at * self.group;
            let size = self.group.min(self.cols - first);
            combine_rows(&values[first..], &directions(own, size), size, self.cols, &mut out[first..]);
        }
        *values = out;
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = BitWriter::new();
        self.groups.iter().for_each(|own| own.write(&mut out));
        out.into_bytes()
    }

    pub fn from_bytes(bytes: &[u8], cols: usize, group: usize) -> Result<Self, Error> {
        let damaged = |_| Error::Damaged { what: "stated matrices are not complete" };
        let mut bits = BitReader::new(bytes);
        let sizes = (0..cols).step_by(group).map(|first| group.min(cols - first));
        let groups = sizes
            .map(|size| Reflections::read(&mut bits, size))
            .collect::<Result<_, _>>()
            .map_err(damaged)?;
        let left = bits.remaining();
        if left >= 8 || bits.bits(left as u32).map_err(damaged)? != 0 {
            return Err(Error::Damaged { what: "something behind stated matrices" });
        }
        Ok(Self { group, cols, groups })
    }
}

/// Bits per value that matrices would save, that a learned transform might, and that
/// the matrices would take to state.
pub struct Glance {
    pub gain: f64,
    pub learnable: f64,
    pub signalled: f64,
}

/// Some of `all` groups, from the middle of equal shares.
fn spread(all: usize, most: usize) -> Vec<usize> {
    let count = all.min(most);
    (0..count).map(|i| (2 * i + 1) * all / (2 * count)).collect()
}

/// The rows of a matrix, or its columns as rows, which are not turned over for it: a
/// glance sees few of them.
#[derive(Clone, Copy)]
pub struct Along<'a> {
    pub matrix: &'a Matrix,
    pub columns: bool,
}

impl<'a> Along<'a> {
    pub fn rows_of(matrix: &'a Matrix) -> Self {
        Self { matrix, columns: false }
    }

    fn rows(self) -> usize {
        if self.columns { self.matrix.cols } else { self.matrix.rows }
    }

    fn cols(self) -> usize {
        if self.columns { self.matrix.rows } else { self.matrix.cols }
    }

    /// Of every `step`-th row; sums are the same to the last bit for rows and columns.
    fn energies(self, step: usize) -> Vec<f32> {
        let lines = self.matrix.values.chunks_exact(self.matrix.cols.max(1));
        if !self.columns {
            let energy = |row: &[f32]| {
                let mut parts = [0.0f32; 8];
                let (chunks, rest) = row.as_chunks::<8>();
                for chunk in chunks {
                    parts.iter_mut().zip(chunk).for_each(|(part, v)| *part += v * v);
                }
                parts.iter().sum::<f32>() + rest.iter().map(|v| v * v).sum::<f32>()
            };
            return lines.step_by(step).map(energy).collect();
        }
        // The eight parts of each, and what is left behind them.
        let (width, whole) = (self.matrix.cols, self.matrix.rows / 8 * 8);
        let mut sums = vec![0.0f32; 9 * width];
        for (y, line) in lines.enumerate() {
            let part = if y < whole { y % 8 } else { 8 };
            sums[part * width..][..width].iter_mut().zip(line).for_each(|(sum, v)| *sum += v * v);
        }
        let energy = |x: usize| (0..8).map(|part| sums[part * width + x]).sum::<f32>() + sums[8 * width + x];
        (0..width).step_by(step).map(energy).collect()
    }

    /// Every `step`-th row of some columns, times its weight.
    fn weighed(self, step: usize, weights: &[f32], first: usize, size: usize) -> Vec<f32> {
        let width = self.matrix.cols;
        if self.columns {
            let mut values = vec![0.0; weights.len() * size];
            let lines = self.matrix.values[first * width..].chunks_exact(width).take(size);
            for (y, line) in lines.enumerate() {
                let seen = line.iter().step_by(step).zip(weights);
                let own = values.chunks_exact_mut(size).map(|row| &mut row[y]);
                own.zip(seen).for_each(|(out, (v, weight))| *out = v * weight);
            }
            return values;
        }
        let mut values = Vec::with_capacity(weights.len() * size);
        for (row, weight) in self.matrix.values.chunks_exact(width).step_by(step).zip(weights) {
            values.extend(row[first..][..size].iter().map(|v| v * weight));
        }
        values
    }
}

/// Rows as second moments see them.
struct Fit<'a> {
    matrix: Along<'a>,
    /// Rows from one that is seen to the next.
    step: usize,
    /// Of each row that is seen: contexts know how large its values are, so that all
    /// count alike.
    weights: Vec<f32>,
    /// What noise is in the moments.
    floor: f64,
    /// By what factor roots of variances are smaller in the end.
    shrunk: f64,
}

impl<'a> Fit<'a> {
    fn new(matrix: Along<'a>, noise: f64, step: usize, crossing: f64) -> Self {
        let cols = matrix.cols() as f64;
        let weigh = |energy: f32| (f64::from(energy) / cols + noise).sqrt().recip() as f32;
        let weights: Vec<f32> = matrix.energies(step).into_iter().map(weigh).collect();
        let floor = noise * weights.iter().map(|&w| f64::from(w * w)).sum::<f64>();
        Self { matrix, step, weights, floor, shrunk: (-crossing).exp2() }
    }

    /// Weighed rows of a group of columns.
    fn values(&self, first: usize, size: usize) -> Vec<f32> {
        self.matrix.weighed(self.step, &self.weights, first, size)
    }

    /// Bits per value that matrices save by the noise of the rows that are seen, and that
    /// they only seem to save, as the other rows have another.
    fn fitted_to_noise(&self, size: usize) -> (f64, f64) {
        let noise = FITTED_TO_NOISE * (size - 1) as f64 / self.weights.len() as f64;
        (noise, noise * (1.0 - self.weights.len() as f64 / self.matrix.rows().max(1) as f64))
    }

    /// What a matrix saves of the bits of a row, and what it takes of them, about.
    fn glance(&self, values: &[f32], size: usize) -> (f64, f64) {
        let moments = second_moments(values, size);
        let before: f64 = moments.iter().step_by(size + 1).map(|&m| self.bits(m)).sum();
        let Spread { half_log2_determinant, strong } = Spread::new(moments, size, self.floor);
        let signalled = Reflections::expected_bits(strong, size) / self.matrix.rows() as f64;
        (before - half_log2_determinant, signalled)
    }

    /// What a matrix saves, as it would be signalled.
    fn saved(&self, values: &[f32], size: usize) -> f64 {
        let reflections = self.reflections(values, size);
        let mut out = BitWriter::new();
        reflections.write(&mut out);
        let rebased = Basis::new(size, size, directions(&reflections, size)).rebased(values);
        let bits = |values: &[f32]| {
            let mut energies = vec![0.0f32; size];
            for row in values.chunks_exact(size) {
                energies.iter_mut().zip(row).for_each(|(energy, v)| *energy += v * v);
            }
            energies.iter().map(|&energy| self.bits(f64::from(energy))).sum::<f64>()
        };
        bits(values) - bits(&rebased) - out.position() as f64 / self.matrix.rows() as f64
    }

    fn bits(&self, variance: f64) -> f64 {
        0.5 * (variance + self.floor).log2()
    }

    /// The matrix that suits some weighed rows.
    fn reflections(&self, values: &[f32], size: usize) -> Reflections {
        let floor = self.shrunk * self.floor;
        let axes = Axes::of(&second_moments(values, size), size);
        let paying =
            Paying { rows: self.matrix.rows(), floor, leaked_beside: floor, coarse: self.shrunk * COARSE };
        Reflections::of_axes(axes, &paying)
    }
}

/// One group's reflections as a basis, direction after direction.
fn directions(reflections: &Reflections, size: usize) -> Vec<f32> {
    // Direction `k` is a column of the product.
    transposed(&reflections.product(size), size).into_iter().map(|entry| entry as f32).collect()
}

/// What principal axes would show, without them.
struct Spread {
    /// Half of the sum of log2 of all variances above noise.
    half_log2_determinant: f64,
    /// Directions that are stronger than noise, about.
    strong: f64,
}

impl Spread {
    /// Of second moments, on and below the diagonal, in noise of `floor` (Cholesky).
    fn new(mut moments: Vec<f64>, size: usize, floor: f64) -> Self {
        let floor = floor.max(f64::MIN_POSITIVE);
        let mut half_log2_determinant = 0.0;
        // The inverse of the factor, row after row: the trace of the moments' inverse is
        // the sum of its squares.
        let mut inverse = vec![0.0; size * size];
        let mut trace = 0.0;
        for i in 0..size {
            for j in 0..=i {
                let (upper, lower) = moments.split_at_mut(i * size);
                let row = if j == i { &lower[..j] } else { &upper[j * size..][..j] };
                let dot: f64 = row.iter().zip(&lower[..j]).map(|(a, b)| a * b).sum();
                let own = lower[j] - dot;
                lower[j] = if j == i { (own + floor).max(floor).sqrt() } else { own / upper[j * size + j] };
            }
            let own = moments[i * size + i];
            half_log2_determinant += own.log2();
            let mut row = vec![0.0; size];
            for k in 0..i {
                let factor = moments[i * size + k];
                row[..=k].iter_mut().zip(&inverse[k * size..][..=k]).for_each(|(r, v)| *r -= factor * v);
            }
            row[i] = 1.0;
            row[..=i].iter_mut().for_each(|r| *r /= own);
            trace += row.iter().map(|r| r * r).sum::<f64>();
            inverse[i * size..][..size].copy_from_slice(&row);
        }
        Self { half_log2_determinant, strong: (size as f64 - floor * trace).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_numeric::random::Lcg;

    /// Columns that are mixtures of few sources, and a little noise.
    fn low_rank(rows: usize, cols: usize) -> Matrix {
        let mut lcg = Lcg(9);
        let mut uniform = move || lcg.uniform() - 0.5;
        let mixing: Vec<[f32; 3]> = (0..cols).map(|_| std::array::from_fn(|_| uniform())).collect();
        let mut values = Vec::new();
        for _ in 0..rows {
            let sources: [f32; 3] = std::array::from_fn(|_| uniform());
            for weights in &mixing {
                let mixed = weights.iter().zip(sources).map(|(w, s)| w * s).sum::<f32>();
                values.push(mixed + 0.01 * uniform());
            }
        }
        Matrix { rows, cols, values }
    }

    #[test]
    fn few_directions_hold_what_few_sources_gave_and_values_come_back() {
        let matrix = low_rank(512, 100);
        let signalled = Signalled::fitted(&matrix, 64, 1e-4, 0.0);
        let basis = signalled.basis();
        let mut rebased = basis.rebased(&matrix.values);
        let energy = |values: &[f32]| values.iter().map(|v| f64::from(v * v)).sum::<f64>();
        let firsts: Vec<f32> =
            rebased.chunks_exact(100).flat_map(|row| [&row[..3], &row[64..67]].concat()).collect();
        assert!(energy(&firsts) > 0.98 * energy(&rebased));
        let mut alone = rebased.clone();
        signalled.inverse(&mut alone);
        basis.inverse(&mut rebased);
        assert_eq!(alone, rebased);
        let worst = rebased.iter().zip(&matrix.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{worst}");
    }

    #[test]
    fn noise_is_not_worth_a_matrix() {
        let Matrix { rows, cols, .. } = low_rank(2048, 64);
        let mut random = trinity_numeric::random::Lcg(5);
        let values = (0..rows * cols).map(|_| random.uniform() - 0.5);
        let noise = Matrix { rows, cols, values: values.collect() };
        let (promise, glance) = (
            Signalled::promise(Along::rows_of(&noise), 64, 1e-3, 0.0),
            Signalled::glance(Along::rows_of(&noise), 64, 1e-3),
        );
        assert!((-0.1..0.0).contains(&promise), "{promise}");
        assert!(glance.gain.abs() < 0.02 && glance.signalled > 0.04, "{} {}", glance.gain, glance.signalled);
        let (matrix, narrow) = (low_rank(2048, 64), low_rank(100, 63));
        assert!(Signalled::promise(Along::rows_of(&matrix), 64, 1e-3, 0.0) > 0.5);
        assert!(Signalled::glance(Along::rows_of(&matrix), 64, 1e-3).gain > 0.5);
        assert_eq!(Signalled::promise(Along::rows_of(&narrow), 64, 1e-3, 0.0), f64::NEG_INFINITY);
        assert_eq!(Signalled::glance(Along::rows_of(&narrow), 64, 1e-3).signalled, f64::INFINITY);
    }

    /// So that what is chosen does not hang on how it was looked at.
    #[test]
    fn columns_are_seen_as_rows_of_the_matrix_turned_over() {
        for (rows, cols) in [(2100, 75), (131, 1100), (64, 64)] {
            let matrix = low_rank(rows, cols);
            let rebased = matrix.transposed();
            let (columns, along) = (Along { matrix: &matrix, columns: true }, Along::rows_of(&rebased));
            for step in [1, 2] {
                let weights = along.energies(step);
                assert_eq!(columns.energies(step), weights);
                let group = |side: Along<'_>| side.weighed(step, &weights, side.cols() - 64, 64);
                assert_eq!(group(columns), group(along));
            }
        }
    }

    #[test]
    fn the_spread_is_that_of_the_axes() {
        let Matrix { values, .. } = low_rank(400, 32);
        let (floor, Axes { variances, .. }) = (0.3, Axes::of(&second_moments(&values, 32), 32));
        let Spread { half_log2_determinant, strong } = Spread::new(second_moments(&values, 32), 32, floor);
        let bits: f64 = variances.iter().map(|v| 0.5 * (v + floor).log2()).sum();
        assert!((bits - half_log2_determinant).abs() < 1e-2, "{bits} {half_log2_determinant}");
        let count: f64 = variances.iter().map(|v| v / (v + floor)).sum();
        assert!((count - strong).abs() < 1e-2, "{count} {strong}");
    }

    #[test]
    fn every_truncated_statement_is_an_error_and_the_whole_comes_back() {
        let signalled = Signalled::fitted(&low_rank(300, 70), 32, 1e-4, 0.0);
        let bytes = signalled.to_bytes();
        assert_eq!(Signalled::from_bytes(&bytes, 70, 32).unwrap(), signalled);
        for length in 0..bytes.len() {
            assert!(Signalled::from_bytes(&bytes[..length], 70, 32).is_err(), "{length}");
        }
        assert!(Signalled::from_bytes(&[&bytes[..], &[0]].concat(), 70, 32).is_err());
    }

    #[test]
    fn nothing_hides_in_the_bits_that_fill_up_the_last_byte() {
        let signalled = Signalled::fitted(&low_rank(300, 66), 32, 1e-4, 0.0);
        let mut written = BitWriter::new();
        signalled.groups.iter().for_each(|own| own.write(&mut written));
        assert!(!written.is_aligned());
        let mut bytes = signalled.to_bytes();
        assert_eq!(Signalled::from_bytes(&bytes, 66, 32).unwrap(), signalled);
        *bytes.last_mut().unwrap() |= 1;
        assert!(Signalled::from_bytes(&bytes, 66, 32).is_err());
    }
}
