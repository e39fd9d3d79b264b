//! What each input of a linear layer is worth: second moments of activations
//! over a text, for codecs that weigh their error by them.
//!
//! Knows where linear layers read; how a codec uses the moments is its affair.

use crate::model::Part;
use crate::{Error, Model, NoHooks, Text};
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, Dyn};
use rayon::prelude::*;
use std::collections::BTreeMap;
use trinity_numeric::tiles::{Halves, Side, Sums, Unit, add_products};

/// Second moments of what every linear layer reads.
#[derive(Debug)]
pub struct Moments {
    by_input: BTreeMap<(usize, Part), DMatrix<f32>>,
}

#[derive(Debug, Clone, Copy)]
pub struct InputMoments<'m> {
    matrix: &'m DMatrix<f32>,
}

impl Moments {
    /// Lets all windows of a text through the model, one part of a layer after the other.
    pub fn measure(model: &Model, text: &Text) -> Result<Self, Error> {
        let windows = &text.windows;
        let mut residuals: Vec<Vec<f32>> = windows.par_iter().map(|w| model.embedded(&w.tokens)).collect();
        let (tokens, longest) = (text.tokens(), text.longest());
        let mut by_input = BTreeMap::new();
        for n in 0..model.config().num_hidden_layers {
            for part in Part::ALL {
                let reads = residuals
                    .par_iter()
                    .map_init(
                        || model.workspace(longest),
                        |work, own| model.reads(n, part, own, work, &NoHooks),
                    )
                    .collect::<Result<Vec<_>, _>>()?;
                let inputs = model.part_inputs(n, part);
                let moments = second_moments(&reads, inputs) / tokens.max(1) as f32;
                by_input.insert((n, part), moments);
                residuals.par_iter_mut().zip(&reads).for_each(|(residual, reads)| {
                    model.add_output(n, part, reads, &mut Vec::new(), residual);
                });
            }
        }
        Ok(Self { by_input })
    }

    pub(crate) fn of_part(&self, layer: usize, part: Part) -> Option<&DMatrix<f32>> {
        self.by_input.get(&(layer, part))
    }

    /// Those of the input that a weight such as `layers.3.q_proj.weight` reads.
    pub fn of(&self, weight: &str) -> Option<InputMoments<'_>> {
        let mut parts = weight.split('.').skip(1);
        let (layer, name) = (parts.next()?.parse::<usize>().ok()?, parts.next()?);
        let part = Part::ALL.into_iter().find(|part| part.readers().contains(&name))?;
        Some(InputMoments::new(self.by_input.get(&(layer, part))?))
    }
}

/// Columns of a sum that one thread makes: the same for any number of threads, and so the sum.
const BLOCK: usize = 192;

/// What a layer reads of a window's tokens, one after the other.
pub(crate) trait Window: AsRef<[f32]> + Sync {}

impl<T: AsRef<[f32]> + Sync> Window for T {}

/// Σ x xᵀ over the tokens of all windows, each of `inputs` channels.
pub(crate) fn second_moments(windows: &[impl Window], inputs: usize) -> DMatrix<f32> {
    let mut sum = products(windows, inputs, windows, inputs, |first| first);
    // What lies above a block is below another one.
    for column in 0..inputs {
        for row in 0..column / BLOCK * BLOCK {
            sum[(row, column)] = sum[(column, row)];
        }
    }
    sum
}

/// Σ a bᵀ over the tokens of all windows, of `rows` and `columns` channels.
pub(crate) fn outer_products(
    a: &[impl Window],
    rows: usize,
    b: &[impl Window],
    columns: usize,
) -> DMatrix<f32> {
    products(a, rows, b, columns, |_| 0)
}

/// Σ a bᵀ, where the block from a column on begins with the row that `from` says; zeros above.
fn products(
    a: &[impl Window],
    rows: usize,
    b: &[impl Window],
    columns: usize,
    from: impl Fn(usize) -> usize + Sync,
) -> DMatrix<f32> {
    if let Some(unit) = Unit::get() {
        return tiled_products(unit, (a, rows), (b, columns), from);
    }
    let mut sum = DMatrix::zeros(rows, columns);
    let blocks = sum.as_mut_slice().par_chunks_mut((BLOCK * rows).max(1)).enumerate();
    blocks.for_each(|(block, own)| {
        let (first, width) = (block * BLOCK, own.len() / rows);
        let from = from(first);
        let mut own = DMatrixViewMut::from_slice(own, rows, width);
        for (a, b) in a.iter().map(AsRef::as_ref).zip(b.iter().map(AsRef::as_ref)) {
            let a = DMatrixView::from_slice(a, rows, a.len() / rows);
            // As it lies, rows for columns.
            let right = &b[first..];
            let right: DMatrixView<'_, f32, Dyn, Dyn> =
                DMatrixView::from_slice_with_strides(right, b.len() / columns.max(1), width, columns, 1);
            let left = a.rows(from, rows - from);
            own.rows_mut(from, rows - from).gemm(1.0, &left, &right, 1.0);
        }
    });
    sum
}

/// As [`products`]. Values are bf16 here: what that errs by is less than a hundredth of what is added to a diagonal.
fn tiled_products(
    unit: Unit,
    (a, rows): (&[impl Window], usize),
    (b, columns): (&[impl Window], usize),
    from: impl Fn(usize) -> usize + Sync,
) -> DMatrix<f32> {
    let mut sum = DMatrix::zeros(rows, columns);
    for (a, b) in a.iter().map(AsRef::as_ref).zip(b.iter().map(AsRef::as_ref)) {
        let right: Vec<Side> = (0..rows)
            .into_par_iter()
            .step_by(BLOCK)
            .map(|row| Side::right_of_columns((a, rows), row..rows.min(row + BLOCK), Halves::First))
            .collect();
        let blocks = sum.as_mut_slice().par_chunks_mut((BLOCK * rows).max(1)).enumerate();
        blocks.for_each(|(block, own)| {
            let first = block * BLOCK;
            let left = Side::left_of_columns((b, columns), first..first + own.len() / rows, Halves::First);
            for (at, right) in right.iter().enumerate().skip(from(first) / BLOCK) {
                add_products(unit, &left, right, &mut Sums { values: own, stride: rows, from: at * BLOCK });
            }
        });
    }
    sum
}

/// Tokens that are taken for one sample of what goes together: neighbours in a text are alike.
const SAMPLE_TOKENS: usize = 32;

/// How much of what channels have in common is chance, 0 to 1: what the mean of samples of [`SAMPLE_TOKENS`] tokens
/// errs, over what it is, both off the diagonal of correlations. That share is what shrinking moments toward
/// their diagonal by it errs least with (Ledoit and Wolf 2004; of correlations, Schäfer and Strimmer 2005).
pub(crate) fn chance(windows: &[impl Window], moments: &DMatrix<f32>) -> f32 {
    let inputs = moments.nrows();
    let scale = |i: usize| if moments[(i, i)] > 0.0 { 1.0 / f64::from(moments[(i, i)]).sqrt() } else { 0.0 };
    let scales: Vec<f64> = (0..inputs).map(scale).collect();
    let column = |j: usize| {
        let entry = |i: usize| (f64::from(moments[(i, j)]) * scales[i] * scales[j]).powi(2);
        (0..inputs).filter(|&i| i != j).map(entry).sum::<f64>()
    };
    let common = (0..inputs).into_par_iter().map(column).collect::<Vec<f64>>().iter().sum::<f64>();
    let scales: Vec<f32> = scales.iter().map(|&scale| scale as f32).collect();
    let size = SAMPLE_TOKENS * inputs;
    // Squares of a sample's own correlations: those of tokens with each other, over fewer entries.
    let squares = |tokens: &[f32]| {
        let rows = tokens.chunks_exact(inputs);
        let scaled: Vec<f32> =
            rows.flat_map(|row| row.iter().zip(&scales).map(|(x, scale)| x * scale)).collect();
        let mut each = vec![0.0f32; inputs];
        for row in scaled.chunks_exact(inputs) {
            each.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * x);
        }
        let own: f64 = each.iter().map(|sum| f64::from(*sum).powi(2)).sum();
        let scaled = DMatrixView::from_slice(&scaled, inputs, SAMPLE_TOKENS);
        // As a product of matrices: nalgebra's `tr_mul` is many times slower.
        let all = f64::from((scaled.transpose() * scaled).norm_squared());
        (all - own) / (SAMPLE_TOKENS * SAMPLE_TOKENS) as f64
    };
    let samples: Vec<f64> =
        windows.par_iter().flat_map_iter(|window| window.as_ref().chunks_exact(size).map(squares)).collect();
    let count = samples.len() as f64;
    if samples.len() < 2 || common <= 0.0 {
        return 1.0;
    }
    let errs = (samples.iter().sum::<f64>() / count - common).max(0.0) / (count - 1.0);
    (errs / common).min(1.0) as f32
}

/// Channels that are gone through at once.
const BESIDE: usize = 64;

/// By how much the logarithm of each channel's mean square errs, as a variance: what means of samples of
/// [`SAMPLE_TOKENS`] tokens differ by. Infinite where there are less than two samples.
pub(crate) fn log_variances(windows: &[impl Window], inputs: usize) -> Vec<f64> {
    let size = SAMPLE_TOKENS * inputs;
    let samples: Vec<&[f32]> =
        windows.iter().flat_map(|window| window.as_ref().chunks_exact(size.max(1))).collect();
    let count = samples.len() as f64;
    if samples.len() < 2 {
        return vec![f64::INFINITY; inputs];
    }
    // Some channels at a time, as they lie side by side in a token.
    let some = |first: usize| {
        let width = BESIDE.min(inputs - first);
        let (mut sums, mut squares) = ([0.0; BESIDE], [0.0; BESIDE]);
        for tokens in &samples {
            let mut own = [0.0; BESIDE];
            for row in tokens.chunks_exact(inputs) {
                let each = own.iter_mut().zip(&row[first..first + width]);
                each.for_each(|(own, x)| *own += f64::from(*x).powi(2));
            }
            for ((own, sum), squares) in own.iter().zip(&mut sums).zip(&mut squares) {
                let square = own / SAMPLE_TOKENS as f64;
                *sum += square;
                *squares += square * square;
            }
        }
        let variance = move |i: usize| {
            let mean = sums[i] / count;
            let variance = (squares[i] / count - mean * mean).max(0.0) / (count - 1.0);
            if mean > 0.0 { variance / (mean * mean) } else { 0.0 }
        };
        (0..width).map(variance).collect::<Vec<f64>>()
    };
    (0..inputs).into_par_iter().step_by(BESIDE).flat_map_iter(some).collect()
}

/// Moments of channels whose mean squares are the likely ones, where the logarithm of each errs by a variance: between
/// what was seen and the geometric mean of all, by how much channels differ and how much each errs (James and Stein's
/// shrinkage, of logarithms). Correlations stay, and channels that are always zero.
pub(crate) fn likely(moments: &DMatrix<f32>, log_variances: &[f64]) -> DMatrix<f32> {
    let inputs = moments.nrows();
    let log = |i: usize| f64::from(moments[(i, i)]).ln();
    let alive: Vec<usize> = (0..inputs).filter(|&i| moments[(i, i)] > 0.0).collect();
    let mean =
        |of: &dyn Fn(usize) -> f64| alive.iter().map(|&i| of(i)).sum::<f64>() / alive.len().max(1) as f64;
    let middle = mean(&log);
    let spread = mean(&|i| (log(i) - middle).powi(2));
    let differ = (spread - mean(&|i| log_variances[i])).max(0.0);
    let chance = |errs: f64| match errs {
        0.0 => 0.0,
        f64::INFINITY => 1.0,
        _ => errs / (errs + differ),
    };
    let mut scales = vec![1.0f32; inputs];
    for &i in &alive {
        scales[i] = (0.5 * (middle - log(i)) * chance(log_variances[i])).exp() as f32;
    }
    DMatrix::from_fn(inputs, inputs, |i, j| moments[(i, j)] * scales[i] * scales[j])
}

/// Moments, square or not, with all that is off the diagonal less by a share.
pub(crate) fn shrink(moments: &mut DMatrix<f32>, share: f32) {
    let kept: Vec<f32> = (0..moments.nrows().min(moments.ncols())).map(|i| moments[(i, i)]).collect();
    *moments *= 1.0 - share;
    kept.into_iter().enumerate().for_each(|(i, own)| moments[(i, i)] = own);
}

/// What is added to the diagonal, over its mean (GPTQ, Frantar et al. 2023, §3.3).
const DAMPING: f64 = 0.01;

/// Moments with something on the diagonal: a short text leaves directions that
/// it never saw.
pub(crate) fn damped(moments: &DMatrix<f32>) -> DMatrix<f64> {
    let mut moments = moments.map(f64::from);
    let damping = (DAMPING * moments.diagonal().mean()).max(f64::MIN_POSITIVE);
    (0..moments.nrows()).for_each(|i| moments[(i, i)] += damping);
    moments
}

impl<'m> InputMoments<'m> {
    /// `matrix` is `inputs × inputs`.
    pub(crate) fn new(matrix: &'m DMatrix<f32>) -> Self {
        Self { matrix }
    }

    pub(crate) fn matrix(&self) -> &'m DMatrix<f32> {
        self.matrix
    }

    /// `inputs × inputs`, symmetric.
    pub fn values(&self) -> &'m [f32] {
        self.matrix.as_slice()
    }

    pub fn inputs(&self) -> usize {
        self.matrix.nrows()
    }

    /// tr(E H Eᵀ) of `rows × inputs` errors: the squared error of the output.
    pub fn output_error(&self, errors: &[f32]) -> f64 {
        let n = self.inputs();
        let e = DMatrixView::from_slice(errors, n, errors.len() / n.max(1));
        (self.matrix * e).iter().zip(errors).map(|(a, b)| f64::from(a * b)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two windows of some channels each.
    fn windows(channels: usize, seed: usize) -> Vec<Vec<f32>> {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
        [5, 3].map(|tokens| (0..tokens * channels).map(|i| value(i + tokens)).collect()).to_vec()
    }

    #[test]
    fn chance_falls_with_the_tokens_and_not_below_what_is_there() {
        let mut random = trinity_numeric::random::Lcg(3);
        let mut noise = || random.uniform() - 0.5;
        let channels = 48;
        let mut share = |tokens: usize, common: f32| {
            let rows = (0..tokens).flat_map(|_| {
                let shared = noise();
                let row: Vec<f32> = (0..channels).map(|_| noise() + common * shared).collect();
                row
            });
            let window = vec![rows.collect::<Vec<f32>>()];
            let moments = second_moments(&window, channels) / tokens as f32;
            chance(&window, &moments)
        };
        // Channels that have nothing in common: what they seem to have is chance, however long the text.
        let apart = [256, 2048, 16_384].map(|tokens| share(tokens, 0.0));
        assert!(apart.iter().all(|share| *share > 0.7), "{apart:?}");
        let alike = [256, 2048, 16_384].map(|tokens| share(tokens, 0.5));
        assert!(alike[0] > 4.0 * alike[1] && alike[1] > 4.0 * alike[2], "{alike:?}");
        assert!(alike[0] < 0.3 && alike[2] < 0.005, "{alike:?}");
        assert_eq!(share(SAMPLE_TOKENS, 0.5), 1.0, "one sample says nothing of chance");
    }

    #[test]
    fn mean_squares_are_taken_as_seen_only_as_far_as_the_text_tells() {
        let channels = 24usize;
        let mut random = trinity_numeric::random::Lcg(5);
        // Channels of one size, and of sizes up to 64 times apart.
        let mut seen = |tokens: usize, octaves: f32| {
            let size = |i: usize| (octaves * (i as f32 / (channels - 1) as f32 - 0.5)).exp2();
            let window: Vec<Vec<f32>> =
                vec![(0..tokens * channels).map(|at| size(at % channels) * random.gaussian()).collect()];
            let moments = second_moments(&window, channels) / tokens as f32;
            (likely(&moments, &log_variances(&window, channels)), moments)
        };
        let spread = |moments: &DMatrix<f32>| {
            let own = moments.diagonal();
            own.max() / own.min()
        };
        // Differences that are chance go; those that are there stay, the more so the longer the text.
        let (own, raw) = seen(128, 0.0);
        assert!(spread(&raw) > 1.4 && spread(&own) < 1.2, "{} of {}", spread(&own), spread(&raw));
        let (own, raw) = seen(4096, 6.0);
        assert!((spread(&own) / spread(&raw) - 1.0).abs() < 0.02, "{} of {}", spread(&own), spread(&raw));
        let (own, raw) = seen(64, 6.0);
        assert!(spread(&own) < 0.99 * spread(&raw), "{} of {}", spread(&own), spread(&raw));
        // Correlations stay, and one sample says nothing.
        let of = |moments: &DMatrix<f32>| moments[(3, 7)] / (moments[(3, 3)] * moments[(7, 7)]).sqrt();
        assert!((of(&own) - of(&raw)).abs() < 1e-5);
        let (own, raw) = seen(SAMPLE_TOKENS, 6.0);
        assert!(spread(&own) < 1.0001, "{}", spread(&own));
        // A channel that is always zero stays so, and says nothing of the others.
        let entry = |i: usize, j: usize| if i.max(j) < channels { raw[(i, j)] } else { 0.0 };
        let with_zero = DMatrix::from_fn(channels + 1, channels + 1, entry);
        let zero = likely(&with_zero, &vec![f64::INFINITY; channels + 1]);
        assert_eq!(zero.view((0, 0), (channels, channels)), own);
        assert!(zero.column(channels).iter().all(|own| *own == 0.0));
    }

    #[test]
    fn sums_of_products_are_what_they_say_for_any_number_of_threads() {
        // More than one block, and the last not full.
        let (rows, columns) = (3, 2 * BLOCK + 7);
        let (a, b) = (windows(rows, 1), windows(columns, 2));
        let exact = |a: &[Vec<f32>], rows: usize, i: usize, j: usize| -> f64 {
            let tokens = |w: usize| (0..b[w].len() / columns).map(move |t| (w, t));
            let product = |(w, t): (usize, usize)| a[w][t * rows + i] * b[w][t * columns + j];
            (0..2).flat_map(tokens).map(|at| f64::from(product(at))).sum()
        };
        // Eight products of values below 1, of bf16 where there is a unit for tiles.
        let near = if Unit::get().is_some() { 8.0 / 128.0 } else { 1e-4 };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| (outer_products(&a, rows, &b, columns), second_moments(&b, columns)))
        };
        let (outer, moments) = with(1);
        assert_eq!((outer.clone(), moments.clone()), with(3));
        for j in 0..columns {
            for i in 0..rows {
                assert!((f64::from(outer[(i, j)]) - exact(&a, rows, i, j)).abs() < near, "({i}, {j})");
            }
            for i in 0..columns {
                assert!((f64::from(moments[(i, j)]) - exact(&b, columns, i, j)).abs() < near, "({i}, {j})");
            }
        }
    }
}
