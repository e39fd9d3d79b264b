//! What a text says of KV caches: what errors in K and V do to attention, and what K and V are like.
//!
//! Errors of tokens are taken to have nothing to do with each other. An error δ in the key of token j then moves what
//! query i is given by a_ij (v_j − o_i) (q_i · δ), where a are attention's weights and o_i is what it is given;
//! behind the output layer O of the head that costs δᵀ (Σ w_ij q_i q_iᵀ) δ with w_ij = a_ij² |O (v_j − o_i)|². One in a
//! value costs Σ a_ij² |O δ|². Tokens at the beginning that a cache keeps as they are cost nothing, though attention
//! mostly lies on them. Knows nothing of codecs.

use crate::{Attended, Error, Hooks, Model, Text, TokenRows};
use nalgebra::{DMatrix, DMatrixView};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Which keys a codec is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// As attention sees them.
    AfterRotary,
    /// As they were before rotary positions.
    BeforeRotary,
}

/// Windows that are looked at: some ten thousand tokens for a few hundred channels.
const WINDOWS: usize = 16;
/// Windows at a time, each with sums of its own.
const TOGETHER: usize = 4;

/// Sums over a text, by layer.
#[derive(Debug, Clone)]
pub struct CacheMoments {
    pub(crate) layers: Vec<LayerMoments>,
}

#[derive(Debug, Clone)]
pub(crate) struct LayerMoments {
    /// What errors in keys and values of each head of the cache cost.
    pub costs: [Vec<DMatrix<f32>>; 2],
    /// Of keys and values.
    pub rows: [Sums; 2],
}

#[derive(Debug, Clone)]
pub(crate) struct Sums {
    rows: f64,
    mean: Vec<f64>,
    products: DMatrix<f64>,
}

impl Sums {
    fn new(cols: usize) -> Self {
        Self { rows: 0.0, mean: vec![0.0; cols], products: DMatrix::zeros(cols, cols) }
    }

    fn add(&mut self, values: &[f32]) {
        let cols = self.mean.len();
        for row in values.chunks_exact(cols) {
            self.mean.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        let columns = DMatrixView::from_slice(values, cols, values.len() / cols);
        self.products += (columns * columns.transpose()).cast::<f64>();
        self.rows += columns.ncols() as f64;
    }

    fn join(&mut self, other: &Self) {
        self.rows += other.rows;
        self.mean.iter_mut().zip(&other.mean).for_each(|(sum, own)| *sum += own);
        self.products += &other.products;
    }

    /// The mean of rows, and their covariance.
    pub(crate) fn law(&self) -> (Vec<f64>, DMatrix<f64>) {
        let (cols, count) = (self.mean.len(), self.rows.max(1.0));
        let mean: Vec<f64> = self.mean.iter().map(|sum| sum / count).collect();
        let covariance =
            DMatrix::from_fn(cols, cols, |i, j| self.products[(i, j)] / count - mean[i] * mean[j]);
        (mean, covariance)
    }
}

impl LayerMoments {
    fn new(kv_heads: usize, head_dim: usize) -> Self {
        let costs = || vec![DMatrix::zeros(head_dim, head_dim); kv_heads];
        let rows = || Sums::new(kv_heads * head_dim);
        Self { costs: [costs(), costs()], rows: [rows(), rows()] }
    }

    fn join(&mut self, other: &Self) {
        let costs = self.costs.iter_mut().flatten().zip(other.costs.iter().flatten());
        costs.for_each(|(sum, own)| *sum += own);
        self.rows.iter_mut().zip(&other.rows).for_each(|(sum, own)| sum.join(own));
    }
}

struct Collector<'m> {
    model: &'m Model,
    frame: Keys,
    sink: usize,
    /// OᵀO by layer and head.
    outputs: &'m [Vec<DMatrix<f32>>],
    layers: Mutex<Vec<LayerMoments>>,
}

impl Collector<'_> {
    /// Tokens up to a query's position whose keys count for it as one: all of them, or, where rotary positions turn
    /// each key otherwise, those about as far before it.
    fn spans(&self, position: usize) -> impl Iterator<Item = Range<usize>> {
        let (sink, seen) = (self.sink, position + 1);
        let reach = match self.frame {
            Keys::AfterRotary => seen,
            Keys::BeforeRotary => 1,
        };
        // 1, 1, 2, 4, 8 … tokens.
        let ends = std::iter::successors(Some((0, reach)), |&(_, to)| Some((to, 2 * to)));
        ends.map(move |(from, to)| seen.saturating_sub(to).max(sink)..seen.saturating_sub(from))
            .take_while(|span| !span.is_empty())
    }

    /// Queries such that their products with themselves sum to what errors in keys cost, one behind the other; and
    /// what errors in values do, for a head of the output layer that adds up any.
    fn weighed(&self, layer: usize, seen: Attended<'_>) -> (Vec<f32>, f32) {
        let output = &self.outputs[layer][seen.head];
        let dim = output.nrows();
        let count = seen.queries.len() / dim;
        let keys = seen.weights.len() / count.max(1);
        let values = DMatrixView::from_slice(seen.values, dim, keys);
        let mixed = DMatrixView::from_slice(seen.mixed, dim, count);
        let behind = output * values;
        let lengths: Vec<f32> =
            behind.column_iter().zip(values.column_iter()).map(|(a, b)| a.dot(&b)).collect();
        // As a product of matrices: nalgebra's `tr_mul` is many times slower.
        let common = behind.transpose() * mixed;
        let own = output * mixed;
        let (mut rows, mut squares) = (Vec::new(), 0.0);
        for (i, query) in seen.queries.chunks_exact(dim).enumerate() {
            let weights = &seen.weights[i * keys..][..keys];
            let size = own.column(i).dot(&mixed.column(i));
            let cost = |key: usize| {
                weights[key] * weights[key] * (lengths[key] - 2.0 * common[(key, i)] + size).max(0.0)
            };
            let position = seen.start + i;
            squares += weights[self.sink.min(keys)..].iter().map(|a| a * a).sum::<f32>();
            for span in self.spans(position) {
                // The key that counts most stands for all of them.
                let (mut sum, mut most) = (0.0, (0.0, span.start));
                for key in span {
                    let cost = cost(key);
                    sum += cost;
                    if cost > most.0 {
                        most = (cost, key);
                    }
                }
                if sum <= 0.0 {
                    continue;
                }
                let from = rows.len();
                rows.extend(query.iter().map(|q| q * sum.sqrt()));
                if self.frame == Keys::BeforeRotary {
                    self.model.undo_rotary(layer, &mut rows[from..], most.1);
                }
            }
        }
        (rows, squares)
    }
}

impl Hooks for Collector<'_> {
    fn wants_attention(&self) -> bool {
        true
    }

    fn attention(&self, layer: usize, seen: Attended<'_>) {
        let (rows, squares) = self.weighed(layer, seen);
        let output = &self.outputs[layer][seen.head];
        let dim = output.nrows();
        let rows = DMatrixView::from_slice(&rows, dim, rows.len() / dim);
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let [keys, values] = &mut layers[layer].costs;
        let head = seen.head * keys.len() / self.outputs[layer].len();
        keys[head].gemm(1.0, &rows, &rows.transpose(), 1.0);
        values[head] += output * squares;
    }

    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        let rows = &matrix.values[self.sink.min(matrix.rows) * matrix.cols..];
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers[layer].rows[of_kind(kind)].add(rows);
        Ok(0)
    }

    fn before_rotary(&self) -> bool {
        self.frame == Keys::BeforeRotary
    }

    fn wants_kv(&self) -> bool {
        true
    }
}

/// Where K (`kind` "k") or V stands among both.
pub(crate) fn of_kind(kind: &str) -> usize {
    usize::from(kind == "v")
}

impl CacheMoments {
    /// Runs the model over windows from all over a text, whose first `sink` tokens are kept as they are.
    pub fn measure(model: &Model, text: &Text, frame: Keys, sink: usize) -> Result<Self, Error> {
        let config = model.config();
        let outputs: Vec<_> = (0..config.num_hidden_layers).map(|n| model.output_moments(n)).collect();
        let none = || vec![LayerMoments::new(config.num_key_value_heads, config.head_dim); outputs.len()];
        let mut layers = none();
        let count = text.windows.len().min(WINDOWS);
        let windows: Vec<_> = (0..count).map(|at| &text.windows[at * text.windows.len() / count]).collect();
        for windows in windows.chunks(TOGETHER) {
            let sums = windows.par_iter().map(|window| {
                let layers = Mutex::new(none());
                let collector = Collector { model, frame, sink, outputs: &outputs, layers };
                model.forward(&window.tokens, &mut model.workspace(window.tokens.len()), &collector)?;
                Ok(collector.layers.into_inner().unwrap_or_else(PoisonError::into_inner))
            });
            for own in sums.collect::<Result<Vec<_>, Error>>()? {
                layers.iter_mut().zip(&own).for_each(|(sum, own)| sum.join(own));
            }
        }
        Ok(Self { layers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::model::Part;
    use trinity_numeric::random::Lcg;

    const SIZE: f32 = 1e-2;
    const SINK: usize = 4;

    /// Adds noise along one channel of a layer's K or V.
    struct Noise {
        kind: &'static str,
        channel: usize,
        frame: Keys,
    }

    impl Hooks for Noise {
        fn kv(&self, _: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
            let mut random = Lcg(11);
            let rows = matrix.values.chunks_exact_mut(matrix.cols).skip(SINK);
            rows.filter(|_| kind == self.kind).for_each(|row| row[self.channel] += SIZE * random.gaussian());
            Ok(0)
        }

        fn before_rotary(&self) -> bool {
            self.frame == Keys::BeforeRotary
        }

        fn wants_kv(&self) -> bool {
            true
        }
    }

    #[test]
    fn small_errors_in_keys_and_values_move_attention_as_far_as_their_costs_say() {
        let (model, text) = builtin::case(1024, 512);
        let (dim, scale) = (model.config().head_dim, f64::from(model.config().attention_scale));
        let mut work = model.workspace(512);
        for frame in [Keys::AfterRotary, Keys::BeforeRotary] {
            let moments = CacheMoments::measure(&model, &text, frame, SINK).unwrap();
            // The first layer, which reads embeddings; keys of some heads and channels, slow and fast under rotation.
            let costs = &moments.layers[0].costs;
            for (kind, channel) in [("k", 2), ("k", dim + 20), ("k", 3 * dim - 1), ("v", 5), ("v", dim + 9)] {
                let own = costs[of_kind(kind)][channel / dim][(channel % dim, channel % dim)];
                let own = f64::from(own) * if kind == "k" { scale * scale } else { 1.0 };
                let noise = Noise { kind, channel, frame };
                let mut moved = 0.0;
                for window in &text.windows {
                    let residual = model.embedded(&window.tokens);
                    let mut behind = |hooks: &dyn Hooks| {
                        let mut behind = residual.clone();
                        model.pass((0, Part::AttentionOut), &mut behind, &mut work, hooks).unwrap();
                        behind
                    };
                    let (now, was) = (behind(&noise), behind(&crate::NoHooks));
                    moved += now.iter().zip(&was).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
                }
                let foretold = own * f64::from(SIZE * SIZE);
                eprintln!("{frame:?} {kind} {channel}: {moved:.3e}, foretold {foretold:.3e}");
                assert!(
                    (0.7..1.4).contains(&(moved / foretold)),
                    "{frame:?} {kind} {channel}: {moved}, {foretold}"
                );
            }
        }
    }
}
