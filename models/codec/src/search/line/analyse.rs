//! Choosing a plan: orientation, transform, prediction, classes and tables for
//! a step, from the values or a sample of them.
//!
//! Runs ahead of the line, in floating point; what it finds travels in the
//! header, so nothing here needs to be repeated bit by bit elsewhere.

use trinity_numeric::reflections::{COARSE, Paying};

use crate::entropy::line::coder::Coder;
use crate::entropy::line::table::Table;
use crate::format::line::plan::{MAX_MEAN, MAX_TILE, Plan, Transform};
use crate::format::line::values::Values;
use crate::search::line::fit::{Fitted, Look, fit, improved};
use crate::search::line::options::{Effort, Family, Options};
use crate::search::line::sums::{
    Analyse, ColumnScales, Energies, InSteps, Means, Moments, Scales, energy, weight,
};
use crate::search::rules::{LineThresholds, Rule, THRESHOLDS};
use crate::stage::line::matrix::{promise, reflections_of};
use crate::stage::line::quantizer::Quantizer;
use trinity_numeric::simd::{Kernel, Width, with_width};

/// How much of a matrix statistics are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Enough to compare plans and for classes of columns.
    Classes,
    /// Enough for matrices of their own, too, which many rows decide.
    Matrices,
}

/// Values that statistics of so many columns are taken from, at most, and rows of a band
/// of them. A class that few values decide costs bits in all of its column.
fn statistics(effort: Effort, extent: Extent, values: usize, cols: usize) -> (usize, usize) {
    match (effort, extent) {
        (Effort::Fast, _) => ((values / 16).clamp(1 << 16, 1 << 20), 32),
        (Effort::Best, Extent::Classes) => ((CLASS_ROWS * cols).clamp(1 << 18, 1 << 20), 64),
        (Effort::Best, Extent::Matrices) => (1 << 20, 64),
    }
}

/// Rows that decide a class of a column as well as it needs.
const CLASS_ROWS: usize = 256;
/// Rows that correlations of columns are taken from, at most.
const CORRELATED_ROWS: usize = 512;
/// Columns that a signalled matrix may have.
const SMALL_GROUP: usize = 32;
const LARGE_GROUP: usize = 64;

/// Rows of which one is looked at to tell whether neighbours are alike.
const SMOOTH_STEP: usize = 8;
/// Squared standard errors that a column's mean or correlation must be away from
/// zero: noise gets there once in two thousand columns.
const SIGNIFICANT: f64 = 12.0;
/// Bits per value that means, or prediction, must save in the whole tensor.
const LEAST_GAIN: f64 = 0.005;
/// The variance, in squared steps, below which nothing is coded.
const FLOOR: f64 = 0.3;

/// The plan with the least bits at equal error among those the options allow.
/// Nothing where there is nothing to code: no values, or a step that is no number.
pub fn choose(values: &[f32], rows: usize, cols: usize, step: f32, options: &Options) -> Option<Plan> {
    let values = Values::Numbers(values);
    let fitted = choose_fitted(values, rows, cols, step, options)?;
    improved(fitted, values, options).map(|fitted| fitted.plan)
}

pub(crate) fn choose_fitted(
    values: Values<'_>,
    rows: usize,
    cols: usize,
    step: f32,
    options: &Options,
) -> Option<Fitted> {
    if rows == 0 || cols == 0 || !step.is_normal() {
        return None;
    }
    let orientations = match options.fixed.transposed {
        Some(fixed) => vec![fixed],
        None if options.effort == Effort::Best => vec![false, true],
        None => vec![false],
    };
    let shape = (rows, cols);
    let mut drafts: Vec<(f64, Plan)> = Vec::new();
    for transposed in orientations {
        let mut sample = Sample::new(values, shape, transposed, step, options.effort, Extent::Classes);
        let sizes = matrix_sizes(&sample, options);
        if !sizes.is_empty() && !sample.has_extent(Extent::Matrices, options.effort) {
            sample = Sample::new(values, shape, transposed, step, options.effort, Extent::Matrices);
        }
        let transforms = transforms(&sample, options, &sizes);
        for transform in transforms {
            for draft in sample.plans(shape, transposed, step, options, transform) {
                if drafts.iter().all(|(_, plan)| *plan != draft.1) {
                    drafts.push(draft);
                }
            }
        }
    }
    drafts.sort_by(|a, b| a.0.total_cmp(&b.0));
    // What statistics cannot tell apart is quantized.
    let LineThresholds { fits, close, .. } = THRESHOLDS.line;
    let most = options.rules.bound(Rule::LineFits, fits, usize::MAX);
    let bound = drafts.first()?.0 + options.rules.bound(Rule::LineClose, close, f64::INFINITY);
    let near = drafts.into_iter().take(most).take_while(|draft| draft.0 <= bound);
    let near: Vec<Plan> = near.map(|(_, plan)| plan).collect();
    let look = Look::ranking(options, values.len(), &near);
    let fitted: Vec<Fitted> = near.into_iter().filter_map(|plan| fit(plan, values, options, look)).collect();
    let least = |like: &dyn Fn(&Fitted) -> bool| {
        fitted.iter().filter(|fitted| like(fitted)).min_by(|a, b| a.score().total_cmp(&b.score()))
    };
    let best = least(&|_| true)?;
    // Encoder and decoder turn a matrix on its side, which takes time where it is large.
    let large = values.len() >= THRESHOLDS.line.upright_values && options.rules.has(Rule::LineUpright);
    let upright = least(&|fitted| !fitted.plan.transposed)
        .filter(|upright| large && upright.score() <= best.score() + THRESHOLDS.line.upright);
    Some(upright.unwrap_or(best).clone())
}

/// Columns of the matrices that may be signalled.
fn matrix_sizes(sample: &Sample, options: &Options) -> Vec<usize> {
    match options.fixed.transform {
        Some(Family::Signalled32) => vec![SMALL_GROUP],
        Some(Family::Signalled64) => vec![LARGE_GROUP],
        None if options.effort == Effort::Best => {
            let sizes = [SMALL_GROUP, LARGE_GROUP];
            if !options.rules.has(Rule::LineCorrelated) {
                return sizes.to_vec();
            }
            let shared = sizes.into_iter().zip(sample.shared_bits());
            shared.filter(|(_, bits)| *bits >= THRESHOLDS.line.correlated).map(|(size, _)| size).collect()
        }
        _ => Vec::new(),
    }
}

/// Transforms that may pay, with matrices of such sizes.
fn transforms(sample: &Sample, options: &Options, sizes: &[usize]) -> Vec<Transform> {
    let signalled = |promise: f64| sizes.iter().filter_map(move |&size| sample.signalled(size, promise));
    match options.fixed.transform {
        Some(Family::None) => vec![Transform::None],
        Some(Family::Hadamard) => vec![Transform::Hadamard],
        Some(Family::Dct) => vec![Transform::Dct],
        Some(Family::Signalled32 | Family::Signalled64) => {
            // The last slab of a tensor may have too few rows for what others share.
            let stated: Vec<Transform> = signalled(f64::NEG_INFINITY).collect();
            if stated.is_empty() { vec![Transform::None] } else { stated }
        }
        None if options.effort == Effort::Best => {
            let rules = options.rules;
            let promise = rules.bound(Rule::LinePromise, THRESHOLDS.line.promise, f64::NEG_INFINITY);
            let smooth = !rules.has(Rule::LineSmooth) || sample.is_smooth();
            let cosines = smooth && !(rules.has(Rule::LineExceptions) && sample.nears_exceptions());
            let cosines = cosines.then_some(Transform::Dct);
            std::iter::once(Transform::None).chain(signalled(promise)).chain(cosines).collect()
        }
        None => vec![Transform::None],
    }
}

/// Bands of coded rows in steps.
struct Sample {
    cols: usize,
    /// Coded rows of the whole matrix.
    all_rows: usize,
    bands: Vec<Vec<f32>>,
    /// Values that were asked for.
    most: usize,
    means: Vec<f64>,
}

impl Sample {
    fn new(
        values: Values<'_>,
        (rows, cols): (usize, usize),
        transposed: bool,
        step: f32,
        effort: Effort,
        extent: Extent,
    ) -> Self {
        let (coded_rows, coded_cols) = if transposed { (cols, rows) } else { (rows, cols) };
        let (most, band_rows) = statistics(effort, extent, rows * cols, coded_cols);
        let wanted = (most / coded_cols).max(1);
        // All rows, or bands spread evenly.
        let count = if coded_rows <= wanted { 1 } else { (wanted / band_rows).max(1) };
        let size = if count == 1 { coded_rows.min(wanted) } else { band_rows };
        let inverse = 1.0 / step;
        let bands = (0..count).map(|band| {
            let first = band * (coded_rows - size) / count.max(2).saturating_sub(1).max(1);
            let mut out = vec![0.0; size * coded_cols];
            if transposed {
                values.transpose_to(first, cols, (rows, size), &mut out, rows);
            } else {
                values.copy_to(first * cols, &mut out);
            }
            with_width(Width::widest(), InSteps { values: &mut out, inverse });
            out
        });
        Self::of(coded_cols, coded_rows, bands.collect(), most)
    }

    fn of(cols: usize, all_rows: usize, bands: Vec<Vec<f32>>, most: usize) -> Self {
        let means = with_width(Width::widest(), Means { bands: &bands, cols });
        Self { cols, all_rows, bands, most, means }
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.bands.iter().flat_map(|band| band.chunks_exact(self.cols))
    }

    fn values(&self) -> usize {
        self.bands.iter().map(Vec::len).sum()
    }

    /// Whether no more values would be taken for that.
    fn has_extent(&self, extent: Extent, effort: Effort) -> bool {
        let all = self.all_rows * self.cols;
        self.values() == all || statistics(effort, extent, all, self.cols).0 == self.most
    }

    /// Bits per value that columns of groups of 32 and of 64 share, of Gaussians that share little: half of the sum
    /// of squared correlations, in bits, less what rows so few show of columns that share nothing.
    fn shared_bits(&self) -> [f64; 2] {
        let size = LARGE_GROUP.min(self.cols / SMALL_GROUP * SMALL_GROUP);
        if size == 0 {
            return [f64::NEG_INFINITY; 2];
        }
        let step = (self.values() / self.cols).div_ceil(CORRELATED_ROWS).max(1);
        let rows: Vec<&[f32]> = self.rows().step_by(step).collect();
        let energies = with_width(Width::widest(), Energies { rows: &rows });
        let weights: Vec<f64> = energies.iter().map(|&energy| weight(energy)).collect();
        // Rows that are nearly nothing say next to nothing.
        let says = energies.iter().zip(&weights).map(|(energy, weight)| energy * weight);
        let (sum, squares) = says.fold((0.0, 0.0), |(sum, squares), own| (sum + own, squares + own * own));
        let mut shared = [0.0; 2];
        for group in tried(self.cols / size) {
            let moments = self.moments(&rows, group, size, &weights);
            for i in 0..size {
                for j in 0..i {
                    let both = moments[i * size + i] * moments[j * size + j];
                    let squared = if both > 0.0 { moments[i * size + j].powi(2) / both } else { 0.0 };
                    let excess = squared - squares / (sum * sum);
                    shared[1] += excess;
                    if i / SMALL_GROUP == j / SMALL_GROUP {
                        shared[0] += excess;
                    }
                }
            }
        }
        shared.map(|shared| 0.5 * std::f64::consts::LOG2_E * shared / (tried(1).len() * size) as f64)
    }

    /// Whether many values would be beyond what a transform takes at a step that is
    /// an octave finer, as the one that meets a target may be.
    fn nears_exceptions(&self) -> bool {
        let near = |row: &[f32]| row.iter().filter(|value| value.abs() >= THRESHOLDS.line.near_steps).count();
        self.rows().map(near).sum::<usize>() * THRESHOLDS.line.few_exceptions > self.values()
    }

    /// Whether neighbours along rows are alike enough for cosines to gather them.
    fn is_smooth(&self) -> bool {
        let (mut products, mut squares) = (0.0f64, 0.0f64);
        let means = &self.means;
        // Some rows of each band say enough.
        for row in self.bands.iter().flat_map(|band| band.chunks_exact(self.cols).step_by(SMOOTH_STEP)) {
            let centred = |at: usize| row[at] - means[at] as f32;
            let (mut product, mut square) = (0.0f32, 0.0f32);
            for at in 1..self.cols {
                product += centred(at - 1) * centred(at);
                square += centred(at) * centred(at);
            }
            products += f64::from(product);
            squares += f64::from(square);
        }
        self.cols >= 32 && products > 0.0 && products * products > THRESHOLDS.line.smooth * squares * squares
    }

    /// Matrices for groups of that size, where columns hold a group and a few of
    /// them promise to save so many bits per value.
    fn signalled(&self, size: usize, least_promise: f64) -> Option<Transform> {
        let groups = self.cols / size;
        if groups == 0 || self.all_rows < 2 * size {
            return None;
        }
        let rows: Vec<&[f32]> = self.rows().collect();
        let weights: Vec<f64> = rows.iter().map(|row| weight(energy(row))).collect();
        let floor = FLOOR * weights.iter().sum::<f64>();
        // A leak grows with its row, noise does not: beside the loudest rows it is the least.
        let energy = weights.iter().map(|weight| 1.0 / weight).sum::<f64>();
        let leaked_beside = FLOOR * (weights.len() as f64).powi(2) / energy;
        let paying = Paying { rows: self.all_rows, floor, leaked_beside, coarse: COARSE };
        let promise_of = |group: usize| {
            let moments = self.moments(&rows, group, size, &weights);
            promise(&moments, size, &paying)
        };
        let tried = tried(groups);
        let promised = || tried.iter().map(|&group| promise_of(group)).sum::<f64>();
        if least_promise.is_finite() && promised() < least_promise * tried.len() as f64 {
            return None;
        }
        let reflections = |group: usize| {
            let moments = self.moments(&rows, group, size, &weights);
            reflections_of(&moments, size, &paying)
        };
        Some(Transform::Signalled { size, groups: crate::format::line::stream::each(groups, reflections) })
    }

    /// Second moments of a group of columns in some rows of such weights.
    fn moments(&self, rows: &[&[f32]], group: usize, size: usize, weights: &[f64]) -> Vec<f64> {
        let own = Moments { rows, means: &self.means, first: group * size, size, weights };
        let mut moments = with_width(Width::widest(), own);
        for i in 0..size {
            for j in 0..i {
                moments[j * size + i] = moments[i * size + j];
            }
        }
        moments
    }

    /// Plans with a transform, with everything but tables, which are a first estimate, and the bits
    /// per value that statistics promise: without prediction and with it, where a column gains by it.
    fn plans(
        &self,
        (rows, cols): (usize, usize),
        transposed: bool,
        step: f32,
        options: &Options,
        transform: Transform,
    ) -> Vec<(f64, Plan)> {
        let (log2_lanes, tile_rows, tile_cols) = geometry(self.all_rows, self.cols, options);
        let bare = Plan {
            rows,
            cols,
            transposed,
            log2_lanes,
            tile_rows,
            tile_cols,
            log2_states: options.log2_states,
            step,
            transform,
            classes: vec![0; self.cols],
            above: vec![0; self.cols],
            means: vec![0; self.cols],
            firsts: vec![0],
            tables: vec![Table::from_counts(&[1; 16]); if options.log2_states == 0 { 1 } else { 2 }],
            row_table: None,
        };
        let transformed = self.transformed(&bare, options);
        let coefficients = transformed.as_ref().unwrap_or(self);
        let sums = with_width(Width::widest(), ColumnSums { sample: coefficients });
        let predicts: &[bool] = match options.fixed.predicts {
            Some(fixed) => &[fixed],
            None => &[false, true],
        };
        let mut plans = Vec::new();
        for &predicts in predicts {
            let mut plan = bare.clone();
            let stages = (options.fixed.means != Some(false), predicts);
            coefficients.columns(self.all_rows as f64, stages, &sums, &mut plan);
            // Where no column is predicted, that is the plan before.
            if !plans.is_empty() && plan.above.iter().all(|&above| above == 0) {
                continue;
            }
            let bits = coefficients.classify(&mut plan) + path_bits(&plan);
            plans.push((bits + 8.0 * plan.written_bytes() as f64 / (rows * cols) as f64, plan));
        }
        plans
    }

    /// The coefficients of a plan's transform, if it has one.
    fn transformed(&self, plan: &Plan, options: &Options) -> Option<Self> {
        let size = plan.transform.size();
        if plan.transform == Transform::None {
            return None;
        }
        let coder = Coder::new(plan.clone()).ok()?;
        let columns = Quantizer::new(&coder, options.lambda, 0)?.by_column;
        if columns.is_empty() {
            return None;
        }
        let mut bands = self.bands.clone();
        let cols = self.cols;
        for band in &mut bands {
            with_width(Width::widest(), Analyse { band, cols, size, columns: &columns });
        }
        Some(Self::of(cols, self.all_rows, bands, self.most))
    }

    /// Means and prediction of columns, those of the two that are asked for, where they save more than they cost.
    fn columns(&self, all_rows: f64, (centres, predicts): (bool, bool), sums: &Sums, plan: &mut Plan) {
        let (means, Sums { energy, product, count }) = (&self.means, sums);
        let count = *count;
        let (mut mean_gain, mut above_gain) = (0.0, 0.0);
        for column in 0..self.cols {
            // Nothing is known of what lies below the error that coding leaves.
            let variance = energy[column] / count.max(1.0);
            let square = means[column] * means[column];
            if centres && square * count > SIGNIFICANT * variance {
                let gain = 0.5 * (1.0 + square / (variance + 0.4)).log2();
                let mean = means[column].round().clamp(f64::from(-MAX_MEAN), f64::from(MAX_MEAN)) as i32;
                let pays = gain * all_rows > 4.0 + 2.0 * f64::from(mean.unsigned_abs() + 1).log2();
                if pays {
                    plan.means[column] = mean;
                    mean_gain += gain;
                }
            }
            if predicts {
                // About nothing, where no mean will be stated.
                let about = if centres { 0.0 } else { count * square };
                let correlation = (product[column] + about) / (energy[column] + about + 0.4 * count);
                let above = (16.0 * correlation).round().clamp(0.0, 16.0);
                let square = correlation * correlation;
                if square * count > SIGNIFICANT && above > 0.0 {
                    let gain = -0.5 * (1.0 - square.min(0.99)).log2();
                    if gain * all_rows > 5.0 {
                        plan.above[column] = above as i32;
                        above_gain += gain;
                    }
                }
            }
        }
        // All or nothing: decoders without either are faster.
        if mean_gain < LEAST_GAIN * self.cols as f64 {
            plan.means.fill(0);
        }
        if above_gain < LEAST_GAIN * self.cols as f64 {
            plan.above.fill(0);
        }
    }

    /// Classes of columns, beside rows that state theirs where that pays, and
    /// the bits per value that follow.
    fn classify(&self, plan: &mut Plan) -> f64 {
        let cols = self.cols;
        let width = Width::widest();
        let mut residuals = RESIDUALS.take();
        residuals.resize(self.values(), 0.0);
        with_width(width, Residuals { sample: self, plan, out: &mut residuals });
        let rows = residuals.len() / cols;
        let (mut row_scales, mut col_scales) = with_width(width, Scales { residuals: &residuals, cols });
        // A class off by so many quarter octaves costs its square in nats.
        let spread = self.row_spread((&row_scales, &col_scales), plan);
        let panel = plan.tile_cols as f64;
        let states_rows = 1.44 * spread * panel > 3.0;
        if states_rows {
            plan.row_table = Some(Table::from_counts(&[8, 8, 8, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1]));
            let (residuals, row_scales, col_scales) = (&residuals[..], &row_scales[..], &mut col_scales[..]);
            with_width(width, ColumnScales { residuals, row_scales, col_scales });
        } else {
            row_scales.fill(1.0);
        }
        if residuals.capacity() <= KEPT_RESIDUALS {
            RESIDUALS.set(residuals);
        }
        for (class, &scale) in plan.classes.iter_mut().zip(&col_scales) {
            *class = (4.0 * scale.log2()).round() as i32;
        }
        self.flatten_classes(plan, rows);
        let cost = predicted_bits(&row_scales, &col_scales);
        cost + if states_rows { 3.0 / panel } else { 0.0 }
    }

    /// Mean square of the logarithms of rows' scales. Where rows are predicted, those that begin a tile are not, and are
    /// large beside the others: they count as often as tiles begin, whatever bands the sample has.
    fn row_spread(&self, (row_scales, col_scales): (&[f64], &[f64]), plan: &Plan) -> f64 {
        let square = |scale: f64| scale.ln().powi(2);
        let mean = |(sum, count): (f64, f64)| sum / f64::max(count, 1.0);
        if plan.above.iter().all(|&above| above == 0) {
            return mean((row_scales.iter().copied().map(square).sum(), row_scales.len() as f64));
        }
        let magnitude = |row: &[f32]| {
            let columns = row.iter().zip(&plan.means).zip(col_scales);
            let each =
                columns.map(|((&value, &mean), scale)| 0.5 * f64::from(value - mean as f32).abs() / scale);
            (each.sum::<f64>() / self.cols as f64).max(1e-3)
        };
        let (mut first, mut others, mut at) = ((0.0, 0.0), (0.0, 0.0), 0);
        for band in &self.bands {
            let rows = band.len() / self.cols;
            for row in band.chunks_exact(self.cols).step_by(plan.tile_rows) {
                first = (first.0 + square(magnitude(row)), first.1 + 1.0);
            }
            let behind = &row_scales[at..at + rows][rows.min(1)..];
            others =
                (others.0 + behind.iter().copied().map(square).sum::<f64>(), others.1 + behind.len() as f64);
            at += rows;
        }
        let share = 1.0 / plan.tile_rows as f64;
        (1.0 - share) * mean(others) + share * mean(first)
    }

    /// One class for all columns where their differences are not worth stating.
    fn flatten_classes(&self, plan: &mut Plan, rows: usize) {
        if rows == 0 {
            return;
        }
        let mean = plan.classes.iter().map(|&c| f64::from(c)).sum::<f64>() / self.cols as f64;
        let nats = |c: i32| ((f64::from(c) - mean) * 0.25 * std::f64::consts::LN_2).powi(2);
        let gain: f64 = plan.classes.iter().map(|&c| nats(c)).sum::<f64>() * 1.44 * self.all_rows as f64;
        if gain < 3.0 * self.cols as f64 {
            plan.classes.fill(mean.round() as i32);
        }
    }
}

/// Groups of columns that stand for all.
fn tried(groups: usize) -> [usize; 3] {
    [0, groups / 2, groups - 1]
}

/// Of each column, about its mean: squares, and products with the row above.
struct Sums {
    energy: Vec<f64>,
    product: Vec<f64>,
    count: f64,
}

struct ColumnSums<'a> {
    sample: &'a Sample,
}

impl Kernel for ColumnSums<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        let Sample { cols, bands, means, .. } = self.sample;
        let (mut energy, mut product) = (vec![0.0f64; *cols], vec![0.0f64; *cols]);
        let mut count = 0.0f64;
        for band in bands {
            let mut before: Option<&[f32]> = None;
            for row in band.chunks_exact(*cols) {
                let columns = energy.iter_mut().zip(row).zip(means);
                for ((energy, &value), &mean) in columns {
                    let here = f64::from(value) - mean;
                    *energy += here * here;
                }
                if let Some(before) = before {
                    let columns = product.iter_mut().zip(row).zip(before).zip(means);
                    for (((product, &value), &before), &mean) in columns {
                        *product += (f64::from(value) - mean) * (f64::from(before) - mean);
                    }
                }
                before = Some(row);
                count += 1.0;
            }
        }
        Sums { energy, product, count }
    }
}

/// Those of matrices with longer rows go back.
const KEPT_RESIDUALS: usize = 1 << 21;

thread_local! {
    /// Room for residuals, which a thread keeps from one plan to the next.
    static RESIDUALS: std::cell::Cell<Vec<f32>> = const { std::cell::Cell::new(Vec::new()) };
}

/// Magnitudes of a plan's residuals in distances of points.
struct Residuals<'a> {
    sample: &'a Sample,
    plan: &'a Plan,
    /// As many as the sample has values.
    out: &'a mut [f32],
}

impl Kernel for Residuals<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { sample, plan, out } = self;
        let mut rows = out.chunks_exact_mut(sample.cols);
        let nothing = vec![0f32; sample.cols];
        let means: Vec<f32> = plan.means.iter().map(|&mean| mean as f32).collect();
        let above_all: Vec<f32> = plan.above.iter().map(|&above| above as f32 / 16.0).collect();
        for band in &sample.bands {
            let mut before = &means[..];
            let mut above = &nothing[..];
            for (row, out) in band.chunks_exact(sample.cols).zip(&mut rows) {
                let columns = out.iter_mut().zip(row).zip(before).zip(means.iter().zip(above));
                for (((out, &value), &before), (&mean, &above)) in columns {
                    *out = (0.5 * (value - mean - above * (before - mean))).abs();
                }
                (before, above) = (row, &above_all[..]);
            }
        }
    }
}

/// Bits per value at equal error of Gaussian values of such mean magnitudes, near enough:
/// what is smaller than the error of a step adds less to it.
fn predicted_bits(row_scales: &[f64], col_scales: &[f64]) -> f64 {
    /// Rows that tell.
    const ROWS: usize = 64;
    /// Columns whose bits are the logarithm of a product, which stays within double precision.
    const TOGETHER: usize = 8;
    let (mut bits, mut error, mut count) = (0.0, 0.0, 0.0f64);
    // Rows that are all alike say one thing.
    let alike = row_scales.windows(2).all(|pair| pair[0] == pair[1]);
    let row_scales = if alike { &row_scales[..row_scales.len().min(1)] } else { row_scales };
    for row in row_scales.iter().step_by(row_scales.len().div_ceil(ROWS).max(1)) {
        for cols in col_scales.chunks(TOGETHER) {
            let mut product = 1.0;
            for col in cols {
                let square = (row * col) * (row * col);
                product *= 1.0 + 5.17 * 5.17 * square;
                // Variances of magnitudes, in squared steps.
                let variance = 2.0 * std::f64::consts::PI * square;
                error += variance / (variance + FLOOR);
            }
            bits += 0.5 * f64::log2(product);
            count += cols.len() as f64;
        }
    }
    let error = (error / count.max(1.0)).max(f64::MIN_POSITIVE);
    bits / count.max(1.0) + 0.5 * error.log2()
}

/// Bits per value that trellis paths cost which end with every row, as those of
/// predicted rows do.
fn path_bits(plan: &Plan) -> f64 {
    /// What an end costs: states that a path may not choose freely.
    const END: f64 = 1.0;
    let predicts = plan.above.iter().any(|&above| above != 0);
    let steps = plan.tile_cols.div_ceil(1 << plan.log2_lanes).max(1);
    if predicts && plan.log2_states > 0 { END / steps as f64 } else { 0.0 }
}

/// The logarithm of lanes, and rows and columns of a tile.
fn geometry(rows: usize, cols: usize, options: &Options) -> (u32, usize, usize) {
    /// Values of a lane for which its state is worth its bits.
    const LANE_VALUES: usize = 256;
    const PANEL: usize = 512;
    /// Steps and rows that survivors and row classes have room for in gates.
    const STEPS: usize = 512;
    const ROWS: usize = 1024;
    let lanes = (rows.saturating_mul(cols) / LANE_VALUES).clamp(1, 32);
    let panels = cols.div_ceil(PANEL);
    let tile_cols = if panels == 1 { cols } else { cols.div_ceil(panels).next_multiple_of(64) };
    let bands = rows.div_ceil((options.tile_values.min(MAX_TILE) / tile_cols).max(1));
    let tile_rows = rows.div_ceil(bands);
    if !options.fixed.gates {
        return (lanes.ilog2(), tile_rows, tile_cols);
    }
    let most = (STEPS / tile_cols.div_ceil(32)).clamp(1, ROWS).min(tile_rows);
    (5, rows.div_ceil(rows.div_ceil(most)), tile_cols)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::line::options::Fixed;
    use trinity_numeric::random::Lcg;

    fn noise(count: usize) -> Vec<f32> {
        let mut lcg = Lcg(3);
        (0..count).map(|_| lcg.gaussian()).collect()
    }

    #[test]
    fn noise_has_neither_means_nor_prediction_and_what_has_them_gets_them() {
        let (rows, cols) = (512, 512);
        for effort in [Effort::Fast, Effort::Best] {
            let options = Options { effort, ..Options::default() };
            let gaussian = noise(rows * cols);
            let plan = choose(&gaussian, rows, cols, 0.25, &options).unwrap();
            assert!(plan.means.iter().chain(&plan.above).all(|&signalled| signalled == 0), "{effort:?}");
            let mut structured = gaussian.clone();
            for at in cols..structured.len() {
                structured[at] += 0.9 * structured[at - cols];
            }
            // Cosines gather the same, so they are held off.
            let fixed = Fixed { transform: Some(Family::None), transposed: Some(false), ..options.fixed };
            let plan = choose(&structured, rows, cols, 0.25, &Options { fixed, ..options }).unwrap();
            assert!(plan.above.iter().filter(|&&above| above > 8).count() > cols / 2, "{effort:?}");
            let shifted: Vec<f32> =
                gaussian.iter().enumerate().map(|(at, value)| value + (at % 4) as f32).collect();
            let plan =
                choose(&shifted, rows, cols, 0.25, &Options { effort: Effort::Fast, ..options }).unwrap();
            assert!(plan.means.iter().filter(|&&mean| mean > 2).count() > cols / 2, "{effort:?}");
            // Held off, the row above says the same.
            let fixed = Fixed { means: Some(false), predicts: Some(true), ..fixed };
            let plan = choose(&shifted, rows, cols, 0.25, &Options { fixed, ..options }).unwrap();
            assert!(plan.means.iter().all(|&mean| mean == 0), "{effort:?}");
            assert!(plan.above.iter().filter(|&&above| above > 8).count() > cols / 4, "{effort:?}");
        }
    }

    #[test]
    fn rows_that_begin_a_tile_of_predicted_ones_may_state_that_they_are_large() {
        let (rows, cols) = (512, 640);
        let mut smooth = noise(rows * cols);
        for at in cols..smooth.len() {
            smooth[at] += 0.95 * smooth[at - cols];
        }
        for at in 1..smooth.len() {
            smooth[at] += if at % cols == 0 { 0.0 } else { 0.95 * smooth[at - 1] };
        }
        // Bands of a sample for matrices are longer than tiles, those of one for classes are not.
        for extent in [Extent::Classes, Extent::Matrices] {
            let (values, options) = (Values::Numbers(&smooth), Options::default());
            let sample = Sample::new(values, (rows, cols), false, 0.3, Effort::Best, extent);
            let plans = sample.plans((rows, cols), false, 0.3, &options, Transform::Dct);
            let predicted = plans.iter().find(|(_, plan)| plan.above.iter().any(|&above| above > 8));
            assert!(predicted.unwrap().1.row_table.is_some(), "{extent:?}");
        }
    }
}
