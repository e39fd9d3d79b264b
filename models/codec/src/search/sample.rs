//! Samples of a matrix, on which plans are compared, and what they have to offer
//! to transforms and means.
//!
//! A sample is runs of rows by runs of columns, evenly spread over the matrix and
//! the same for both orientations, so that both are judged on the same values. It
//! says what costs of its values and rows are in the whole, and knows nothing of how
//! they are found.

use std::cell::OnceCell;
use std::ops::Range;

use crate::format::trinity::plan::{Plan, Tiling};
use crate::matrix::Matrix;
use crate::search::input::{ERROR_PER_SQUARED_STEP, Input, sum};
use crate::search::profile::Profile;
use crate::search::trial::Slopes;
use crate::stage::means::MeanOf;
use crate::stage::transform::Transform;

/// Rows and columns of a sample come in runs of so many, at multiples of it:
/// as whole groups of learned transforms and whole blocks of fixed ones.
const RUN: usize = 64;
/// Rows that stay together in a part of a sample: those of a block.
const PIECE: usize = 32;
/// Values of a sample, at least and at most: three and four runs of rows by as
/// many of columns.
const SMALL_SAMPLE: usize = 9 * RUN * RUN;
const SAMPLE: usize = 16 * RUN * RUN;
/// One over the share of a large matrix that a sample is.
const SHARE: usize = 24;
/// Neighbours must be alike by these shares of their variance for a fixed
/// transform of rows, or of blocks, to be tried beside learned ones, which find
/// most of it, too.
const ALIKE: (f64, f64) = (0.2, 0.3);
/// What the ends of trellis paths cost in a segment.
const PATH_END_BITS: f64 = 10.0;
/// Bits per value that means of rows or columns must promise to be tried.
const MEANS_PROMISE: f64 = 0.01;

/// Samples of a matrix in both orientations, made when a plan asks for them.
pub struct Samples<'a> {
    pub input: &'a Input<'a>,
    tile_values: usize,
    /// Places of the first and the second sample, rows and columns.
    grids: [Grid; 2],
    /// Samples that were made, by number and orientation.
    made: [[OnceCell<Sample>; 2]; 2],
    energies: OnceCell<Energies>,
}

impl<'a> Samples<'a> {
    pub fn new(input: &'a Input<'a>, profile: &Profile) -> Self {
        let Matrix { rows, cols, .. } = input.matrix;
        let values = (input.count / SHARE).clamp(SMALL_SAMPLE, SAMPLE);
        let grids = [false, true].map(|second| Grid::new(rows, cols, values, second));
        let (made, energies) = Default::default();
        Self { input, tile_values: profile.parallel.tile_values, grids, made, energies }
    }

    /// Variances of rows and of columns, as far as the first sample shows them.
    pub fn variances(&self) -> [Vec<f64>; 2] {
        let Lines { rows, cols } = &self.first(false).lines;
        [rows, cols].map(|lines| lines.iter().map(|&(_, variance)| variance).collect())
    }

    pub fn first(&self, transposed: bool) -> &Sample {
        self.of(0, transposed)
    }

    /// Another sample, of other rows and columns, where the first is a part of the
    /// matrix that leaves enough.
    pub fn second(&self) -> Option<usize> {
        (self.input.count > 3 * self.first(false).matrix.values.len()).then_some(1)
    }

    pub fn of(&self, sample: usize, transposed: bool) -> &Sample {
        let make = || Sample::new(self.input, &self.grids[sample], transposed, self.tile_values);
        self.made[sample][usize::from(transposed)].get_or_init(make)
    }

    /// What energies tell of the whole beyond a sample, at a step.
    pub fn beyond(&self, sample: usize, step: f32) -> Beyond {
        let noise = ERROR_PER_SQUARED_STEP * f64::from(step).powi(2);
        let energies = self.energies.get_or_init(|| Energies::new(self.input));
        let of_squares: Vec<Sums> = energies.of_squares.iter().map(|square| square.sums(noise)).collect();
        let [all, sampled] = [None, Some(&self.grids[sample])].map(|grid| {
            let mut sums = Sums::default();
            energies.within(grid).for_each(|square| sums.join(&of_squares[square]));
            sums
        });
        if all.error <= 0.0 || sampled.error <= 0.0 {
            return Beyond { bits: 0.0, error: 1.0, slopes: Slopes::STEEPEST };
        }
        Beyond {
            bits: all.bits / all.count - sampled.bits / sampled.count,
            error: all.error / all.count / (sampled.error / sampled.count),
            slopes: Slopes { bits: all.kept / all.count, error: all.grown / all.error },
        }
    }
}

/// What the whole takes beyond a sample.
pub struct Beyond {
    /// Bits per value that it takes more.
    pub bits: f64,
    /// Its error over that of the sample.
    pub error: f64,
    pub slopes: Slopes,
}

/// Sums over Gaussians of some energies, coded with some noise.
#[derive(Default)]
struct Sums {
    count: f64,
    bits: f64,
    error: f64,
    /// By how much bits fall, and errors grow, with an octave of step.
    kept: f64,
    grown: f64,
}

impl Sums {
    fn add(&mut self, energy: f64, noise: f64) {
        let kept = energy / (energy + noise);
        self.count += 1.0;
        self.bits += 0.5 * (1.0 + energy / noise).log2();
        self.error += noise * kept;
        self.kept += kept;
        self.grown += noise * kept * kept;
    }

    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.bits += other.bits;
        self.error += other.error;
        self.kept += other.kept;
        self.grown += other.grown;
    }
}

#[derive(Debug)]
struct Grid {
    rows: Vec<Range<usize>>,
    cols: Vec<Range<usize>>,
}

impl Grid {
    /// About so many values: as many rows as columns where there are enough.
    fn new(rows: usize, cols: usize, values: usize, second: bool) -> Self {
        if rows * cols <= values {
            let (rows, cols) = (0..rows, 0..cols);
            return Self { rows: vec![rows], cols: vec![cols] };
        }
        let side = values.isqrt().max(1);
        Self {
            rows: runs(rows, values / cols.clamp(1, side), second),
            cols: runs(cols, values / rows.clamp(1, side), second),
        }
    }

    /// The matrix's values in it as coded rows of an orientation.
    fn matrix(&self, matrix: &Matrix, transposed: bool) -> Matrix {
        let indices = |runs: &[Range<usize>]| runs.iter().cloned().flatten().collect::<Vec<_>>();
        let (rows, cols) = (indices(&self.rows), indices(&self.cols));
        let mut values = Vec::with_capacity(rows.len() * cols.len());
        if transposed {
            let starts: Vec<usize> = rows.iter().map(|row| row * matrix.cols).collect();
            for col in &cols {
                values.extend(starts.iter().map(|start| matrix.values[start + col]));
            }
            return Matrix { rows: cols.len(), cols: rows.len(), values };
        }
        for row in &rows {
            let row = &matrix.values[row * matrix.cols..][..matrix.cols];
            self.cols.iter().for_each(|run| values.extend_from_slice(&row[run.clone()]));
        }
        Matrix { rows: rows.len(), cols: cols.len(), values }
    }
}

/// About `wanted` of `all` indices, in runs from the middle of equal shares, or
/// from their beginning for a second sample.
fn runs(all: usize, wanted: usize, second: bool) -> Vec<Range<usize>> {
    let (blocks, count) = (all / RUN, (wanted / RUN).max(1));
    if wanted >= all || blocks <= count {
        let whole = 0..all;
        return vec![whole];
    }
    let half = usize::from(!second);
    let start = |i: usize| (2 * i + half) * blocks / (2 * count) * RUN;
    (0..count).map(start).map(|start| start..start + RUN).collect()
}

/// Energies per value of a matrix around its offset, by squares of a run's side.
struct Energies {
    /// Squares in a row of them.
    across: usize,
    of_squares: Vec<Square>,
}

/// A square's energies: of its rows and of its columns where it is turned, and these
/// are coefficients; of all of it where not.
#[derive(Clone)]
enum Square {
    Whole(f32),
    Lines(Box<[[f32; RUN]; 2]>),
}

impl Square {
    fn add(&mut self, y: usize, run: &[f32; RUN], offset: f32) {
        let squared = run.map(|value| (value - offset) * (value - offset));
        let mut parts = [0.0f32; 8];
        for chunk in squared.as_chunks::<8>().0 {
            parts.iter_mut().zip(chunk).for_each(|(part, value)| *part += value);
        }
        let energy = parts.iter().sum::<f32>();
        match self {
            Self::Whole(sum) => *sum += energy,
            Self::Lines(lines) => {
                lines[0][y] = energy;
                lines[1].iter_mut().zip(squared).for_each(|(sum, value)| *sum += value);
            }
        }
    }

    /// What its values take where lines are Gaussian: rows or columns, whichever take less.
    fn sums(&self, noise: f64) -> Sums {
        let of = |lines: &[f32]| {
            let values = (RUN * RUN / lines.len()) as f64;
            let mut sums = Sums::default();
            lines.iter().for_each(|&energy| sums.add(f64::from(energy) / values, noise));
            sums
        };
        match self {
            Self::Whole(energy) => of(&[*energy]),
            Self::Lines(lines) => {
                let (rows, cols) = (of(&lines[0]), of(&lines[1]));
                if cols.bits < rows.bits { cols } else { rows }
            }
        }
    }
}

impl Energies {
    fn new(input: &Input<'_>) -> Self {
        let Matrix { cols, ref values, .. } = input.matrix;
        let across = cols / RUN;
        let lines = Square::Lines(Box::new([[0.0; RUN]; 2]));
        let empty = if input.signalled.is_some() { lines } else { Square::Whole(0.0) };
        let mut of_squares = Vec::new();
        for band in values.chunks_exact((RUN * cols).max(1)) {
            let mut squares = vec![empty.clone(); across];
            for (y, row) in band.chunks_exact(cols).enumerate() {
                for (square, run) in squares.iter_mut().zip(row.as_chunks::<RUN>().0) {
                    square.add(y, run, input.offset);
                }
            }
            of_squares.append(&mut squares);
        }
        Self { across, of_squares }
    }

    /// Squares in a grid, or all.
    fn within(&self, grid: Option<&Grid>) -> impl Iterator<Item = usize> {
        let down = self.of_squares.len().checked_div(self.across).unwrap_or(0);
        let squares = |runs: Option<&Vec<Range<usize>>>, all: usize| -> Vec<usize> {
            let of_run = |run: &Range<usize>| run.start / RUN..(run.end / RUN).min(all);
            runs.map_or_else(|| (0..all).collect(), |runs| runs.iter().flat_map(of_run).collect())
        };
        let (across, stride) = (squares(grid.map(|grid| &grid.cols), self.across), self.across);
        let of_row = move |row: usize| across.clone().into_iter().map(move |col| row * stride + col);
        squares(grid.map(|grid| &grid.rows), down).into_iter().flat_map(of_row)
    }
}

/// A sample, and what it has to offer to transforms and means.
pub struct Sample {
    shared_bits: OnceCell<f64>,
    alike: OnceCell<(f64, f64)>,
    /// Bits that means save, of rows and of columns.
    mean_bits: OnceCell<(f64, f64)>,
    lines: Lines,
    pub matrix: Matrix,
    tried: OnceCell<Matrix>,
    /// Rows of a tile, of which those of the sample come first.
    tile_rows: usize,
    /// Values of the whole matrix, and of its coded rows.
    all_values: usize,
    all_cols: usize,
    /// What matrices that the stream states take, where rows or columns are their coefficients.
    signalled_bits_per_value: f64,
    is_rebased: bool,
}

impl Sample {
    fn new(input: &Input<'_>, grid: &Grid, transposed: bool, tile_values: usize) -> Self {
        let matrix = grid.matrix(&input.matrix, transposed);
        let Matrix { mut rows, mut cols, .. } = input.matrix;
        if transposed {
            (rows, cols) = (cols, rows);
        }
        let tile_rows = Tiling::new(rows, cols, tile_values).tile_rows;
        let lines = Lines::new(&matrix);
        let (shared_bits, alike, mean_bits, tried) = Default::default();
        Self {
            shared_bits,
            alike,
            mean_bits,
            lines,
            matrix,
            tried,
            tile_rows,
            all_values: input.count,
            all_cols: cols,
            signalled_bits_per_value: input.signalled_bits_per_value(),
            is_rebased: input.signalled.is_some(),
        }
    }

    /// Bits per value that columns share, about.
    pub fn shared_bits(&self) -> f64 {
        *self.shared_bits.get_or_init(|| shared_bits(&self.matrix))
    }

    fn alike(&self) -> (f64, f64) {
        *self.alike.get_or_init(|| alike(&self.matrix))
    }

    fn mean_bits(&self) -> (f64, f64) {
        *self.mean_bits.get_or_init(|| self.lines.mean_bits())
    }

    /// Whether means that a plan states may pay.
    pub fn has_means(&self, plan: &Plan) -> bool {
        let MeanOf { rows, columns } = plan.prediction.means;
        (!rows || self.mean_bits().0 > MEANS_PROMISE) && (!columns || self.mean_bits().1 > MEANS_PROMISE)
    }

    /// Whether neighbours differ too much for a plan's fixed transform to pay.
    pub fn is_too_rough(&self, plan: &Plan) -> bool {
        let (along, above) = self.alike();
        match plan.transform {
            Transform::Row { .. } => along < ALIKE.0,
            Transform::Block { .. } => along.min(above) < ALIKE.1,
            _ => false,
        }
    }

    /// Bits per value of the whole from those of a sample: of each value, and of
    /// each row, which all of its columns share.
    pub fn bits_per_value(&self, plan: &Plan, of_value: f64, of_row: f64) -> f64 {
        of_value
            + of_row / self.all_cols as f64
            + self.path_bits_per_value(plan)
            + self.signalled_bits_per_value
    }

    /// A sample's bits of means, as bits per value of the whole.
    pub fn mean_bits_per_value(&self, MeanOf { rows, columns }: MeanOf, bits: f64) -> f64 {
        let of_rows = if rows { self.matrix.rows * self.all_cols } else { usize::MAX };
        let of_columns = if columns { self.matrix.cols * self.tile_rows } else { usize::MAX };
        bits / of_rows.min(of_columns) as f64
    }

    /// The share of the whole's columns that the sample has.
    pub fn width(&self) -> f64 {
        self.matrix.cols as f64 / self.all_cols.max(1) as f64
    }

    /// What the ends of trellis paths cost in the whole: paths end with their segment, which costs
    /// short rows more.
    pub fn path_bits_per_value(&self, plan: &Plan) -> f64 {
        end_bits_per_value(plan, self.all_cols)
    }

    /// What they cost in the sample.
    pub fn own_path_bits_per_value(&self, plan: &Plan) -> f64 {
        end_bits_per_value(plan, self.matrix.cols)
    }

    /// What is coded to see what a plan takes: every other piece of a sample that
    /// is a small part of its matrix says enough, unless strong and weak coefficients
    /// are pieces of their own.
    pub fn tried(&self) -> &Matrix {
        let Self { matrix, tried, all_values, .. } = self;
        if self.is_rebased || *all_values <= 4 * matrix.values.len() {
            return matrix;
        }
        tried.get_or_init(|| {
            let pieces = matrix.values.chunks(PIECE * matrix.cols).step_by(2);
            let values: Vec<f32> = pieces.flatten().copied().collect();
            Matrix { rows: values.len() / matrix.cols, cols: matrix.cols, values }
        })
    }

    /// A tile's rows over those of the sample.
    pub fn times(&self) -> f64 {
        (self.tile_rows as f64 / self.matrix.rows.max(1) as f64).max(1.0)
    }

    /// What learning takes in the sample, and in a tile, over what the sample's first
    /// quarter takes less when it is coded again: a row's share of it goes as one
    /// over the rows before.
    pub fn learning(&self) -> (f64, f64) {
        let rows = self.matrix.rows.max(8) as f64;
        let of_quarter = (0.25 * rows).ln() - 0.25;
        (rows.ln() / of_quarter, (rows * self.times()).ln() / of_quarter)
    }

    /// How many times the rows of the sample's second half follow in a tile.
    pub fn later(&self) -> f64 {
        let late = (self.matrix.rows - self.matrix.rows / 2).max(1);
        self.tile_rows.saturating_sub(self.matrix.rows) as f64 / late as f64
    }

    /// By what share of how much it fell from the second quarter to the second
    /// half the cost of learning is lower still in the rows that follow. A basis
    /// is renewed whenever the rows it was learned from have doubled, and what it
    /// costs goes as one over these.
    pub fn still_to_learn(&self) -> f64 {
        let times = self.times();
        if times <= 1.0 { 0.0 } else { 1.0 - 0.5 * times.log2() / (times - 1.0) }
    }
}

fn end_bits_per_value(plan: &Plan, cols: usize) -> f64 {
    PATH_END_BITS / cols.min(plan.path_values()).max(1) as f64
}

/// Mean and variance of each row and each column of a sample.
struct Lines {
    rows: Vec<(f64, f64)>,
    cols: Vec<(f64, f64)>,
}

impl Lines {
    fn new(sample: &Matrix) -> Self {
        let &Matrix { rows, cols, ref values } = sample;
        let moments = |sum: f64, squares: f64, count: usize| {
            let (mean, square) = (sum / count as f64, squares / count as f64);
            (mean, (square - mean * mean).max(1e-6 * square).max(f64::MIN_POSITIVE))
        };
        let (mut sums, mut squares) = (vec![0.0f32; cols], vec![0.0f32; cols]);
        let mut of_rows = Vec::with_capacity(rows);
        for row in values.chunks_exact(cols.max(1)) {
            sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v);
            squares.iter_mut().zip(row).for_each(|(sum, v)| *sum += v * v);
            of_rows.push(moments(sum(row, |v| v), sum(row, |v| v * v), cols));
        }
        let of_cols = sums.iter().zip(squares).map(|(&s, q)| moments(f64::from(s), f64::from(q), rows));
        Self { rows: of_rows, cols: of_cols.collect() }
    }

    /// Bits per value that means of rows and of columns could save, about: what
    /// a Gaussian takes for its mean square more than for its variance.
    fn mean_bits(&self) -> (f64, f64) {
        let saved = |lines: &[(f64, f64)], count: usize| {
            // Means of noise are not zero either.
            let share = |&(mean, variance): &(f64, f64)| {
                0.5 * (1.0 + (mean * mean / variance - 1.0 / count as f64).max(0.0)).log2()
            };
            lines.iter().map(share).sum::<f64>() / lines.len().max(1) as f64
        };
        (saved(&self.rows, self.cols.len()), saved(&self.cols, self.rows.len()))
    }
}

/// Bits per value that columns of a sample share with one another, about: what
/// a transform that knows their correlations could save.
fn shared_bits(sample: &Matrix) -> f64 {
    // Every other row says enough where there are many.
    let every = if sample.rows >= 2 * RUN { 2 } else { 1 };
    let rows = sample.rows.div_ceil(every) as f64;
    let mut bits = 0.0;
    for first in (0..sample.cols).step_by(RUN) {
        let cols = RUN.min(sample.cols - first);
        let mut moments = vec![0.0f32; cols * cols];
        for row in sample.values.chunks_exact(sample.cols).step_by(every).map(|row| &row[first..][..cols]) {
            for (moments, &own) in moments.chunks_exact_mut(cols).zip(row) {
                moments.iter_mut().zip(row).for_each(|(m, &other)| *m += own * other);
            }
        }
        let own: Vec<f64> =
            (0..cols).map(|i| f64::from(moments[i * (cols + 1)]).max(f64::MIN_POSITIVE)).collect();
        let correlation = |i: usize| f64::from(moments[i]).powi(2) / (own[i / cols] * own[i % cols]);
        let above = (0..cols * cols).filter(|i| i / cols < i % cols);
        let sum: f64 = above.map(|i| correlation(i) - 1.0 / rows).sum();
        // The first term of the logarithm of the determinant of correlations.
        bits += sum / (2.0 * std::f64::consts::LN_2);
    }
    bits / sample.cols.max(1) as f64
}

/// Shares of a sample's variance that neighbours along a row, and in a column,
/// have in common.
fn alike(sample: &Matrix) -> (f64, f64) {
    let (cols, count) = (sample.cols.max(1), sample.values.len().max(1) as f64);
    let mean = (sum(&sample.values, |v| v) / count) as f32;
    // Products and squares, in eight interleaved parts each.
    let mut sums = [[[0.0f32; 8]; 2]; 2];
    let add = |[products, squares]: &mut [[f32; 8]; 2], a: &[f32], b: &[f32]| {
        for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
            for i in 0..8 {
                let (a, b) = (a[i] - mean, b[i] - mean);
                products[i] += a * b;
                squares[i] += 0.5 * (a * a + b * b);
            }
        }
    };
    // Every other row says enough.
    let (of_along, of_above) = sums.split_at_mut(1);
    for rows in sample.values.chunks_exact(2 * cols) {
        let (row, below) = rows.split_at(cols);
        add(&mut of_along[0], &row[..cols - 1], &row[1..]);
        add(&mut of_above[0], row, below);
    }
    let [along, above] = sums.map(|[products, squares]| {
        let share = products.iter().sum::<f32>() / squares.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        f64::from(share).max(0.0).powi(2)
    });
    (along, above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orientations_are_judged_on_the_same_values() {
        for (rows, cols) in [(2048, 192), (768, 768), (64, 9000), (1000, 300), (100, 100), (70_000, 2)] {
            let values: Vec<f32> = (0..rows * cols).map(|at| at as f32).collect();
            let matrix = Matrix { rows, cols, values };
            let grid = Grid::new(rows, cols, 1 << 14, false);
            let sorted = |transposed| {
                let mut values = grid.matrix(&matrix, transposed).values;
                values.sort_by(f32::total_cmp);
                values
            };
            let (plain, transposed_plan) = (sorted(false), sorted(true));
            assert_eq!(plain, transposed_plan, "{rows} × {cols}");
            assert!((1 << 12..=1 << 15).contains(&plain.len()), "{rows} × {cols}: {}", plain.len());
        }
    }

    #[test]
    fn a_sample_comes_in_whole_runs_from_all_over_and_a_second_from_others() {
        let found = runs(3000, 256, false);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|run| run.start.is_multiple_of(RUN) && run.len() == RUN));
        assert!(found[0].start < 750 && found[3].start >= 2250, "{found:?}");
        let second = runs(3000, 256, true);
        assert!(found.iter().all(|run| !second.contains(run)), "{found:?} {second:?}");
        // What is a little larger than a sample is taken as it is.
        let whole = 0..300;
        assert_eq!(runs(300, 256, false), [whole]);
    }

    #[test]
    fn energies_tell_what_a_sample_leaves_out() {
        // Every other run of rows is louder by two bits, and those that are sampled are
        // quiet ones.
        let (rows, cols) = (768, 768);
        let values: Vec<f32> = (0..rows * cols)
            .map(|at| if (at / cols / RUN).is_multiple_of(2) { 1.0 } else { 4.0 })
            .zip([1.0, -1.0].into_iter().cycle())
            .map(|(size, sign)| size * sign)
            .collect();
        let input = Input::new(&values, rows, cols).unwrap();
        let profile = Profile::named("trinity").unwrap();
        let samples = Samples::new(&input, &profile);
        assert_eq!(samples.grids[0].rows.iter().map(|run| run.start / RUN).collect::<Vec<_>>(), [2, 6, 10]);
        let Beyond { bits, error, .. } = samples.beyond(0, 1e-3);
        assert!((bits - 1.0).abs() < 1e-3 && (error - 1.0).abs() < 1e-3, "{bits} {error}");
    }
}
