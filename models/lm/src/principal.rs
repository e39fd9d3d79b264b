//! Principal components of K and V over all heads of a layer, learned on a text.
//!
//! What KVTC (arXiv 2511.01815) codes caches in: keys before rotary positions, around their mean. The paper joins
//! layers as well; here a layer is coded before the next one reads, so each has its own basis. Knows nothing of codecs.

use crate::cache::{CacheTurns, Turned};
use crate::{Error, Hooks, Model, Text, TokenRows};
use nalgebra::{DMatrix, DMatrixView};
use rayon::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use trinity_tensor::codec::{PcaBasis, Precondition};

/// Windows that a basis is learned from: some ten thousand tokens for a few hundred channels.
const WINDOWS: usize = 16;
/// Windows at a time, each with sums of its own.
const TOGETHER: usize = 4;

/// Bases of every layer's K and V.
#[derive(Debug, Clone)]
pub struct CacheBases {
    keys: Vec<Precondition>,
    values: Vec<Precondition>,
}

/// Sums over rows.
#[derive(Debug, Clone)]
struct Sums {
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

    fn basis(&self) -> Precondition {
        let (cols, count) = (self.mean.len(), self.rows.max(1.0));
        let mean: Vec<f64> = self.mean.iter().map(|sum| sum / count).collect();
        let covariance =
            DMatrix::from_fn(cols, cols, |i, j| self.products[(i, j)] / count - mean[i] * mean[j]);
        Precondition::Pca(Arc::new(PcaBasis::from_covariance(&mean, covariance.as_slice(), cols)))
    }
}

/// Sums of one window's K and V, by layer.
struct Collector {
    sink: usize,
    layers: Mutex<Vec<[Sums; 2]>>,
}

impl Hooks for Collector {
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        let rows = &matrix.values[self.sink.min(matrix.rows) * matrix.cols..];
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers[layer][usize::from(kind == "v")].add(rows);
        Ok(0)
    }

    fn before_rotary(&self) -> bool {
        true
    }

    fn wants_kv(&self) -> bool {
        true
    }
}

impl CacheBases {
    /// Runs the model over the first windows of a text; the first `sink` tokens of each, which are kept as they are
    /// and unlike all others, say nothing. Of K and V as `turns` leave them, where there are any.
    pub fn measure(
        model: &Model,
        text: &Text,
        sink: usize,
        turns: Option<&CacheTurns>,
    ) -> Result<Self, Error> {
        let (layers, cols) = (model.config().num_hidden_layers, model.config().kv_size());
        let mut all = vec![[Sums::new(cols), Sums::new(cols)]; layers];
        for windows in text.windows[..text.windows.len().min(WINDOWS)].chunks(TOGETHER) {
            let sums = windows.par_iter().map(|window| {
                let layers = Mutex::new(vec![[Sums::new(cols), Sums::new(cols)]; layers]);
                let collector = Collector { sink, layers };
                let turned = turns.map(|turns| Turned { hooks: &collector, turns });
                let hooks = turned.as_ref().map_or(&collector as &dyn Hooks, |turned| turned);
                model.forward(&window.tokens, &mut model.workspace(window.tokens.len()), hooks)?;
                Ok(collector.layers.into_inner().unwrap_or_else(PoisonError::into_inner))
            });
            for own in sums.collect::<Result<Vec<_>, Error>>()? {
                let pairs = all.iter_mut().flatten().zip(own.iter().flatten());
                pairs.for_each(|(sum, own)| sum.join(own));
            }
        }
        let bases: Vec<[Precondition; 2]> =
            all.par_iter().map(|[keys, values]| [keys.basis(), values.basis()]).collect();
        let (keys, values) = bases.into_iter().map(|[keys, values]| (keys, values)).unzip();
        Ok(Self { keys, values })
    }
}

/// Hooks whose K and V are turned into components before and back after; where `turns` says so, first so that errors
/// count alike.
#[derive(Clone, Copy)]
pub struct InBasis<'h> {
    pub hooks: &'h dyn Hooks,
    pub turns: Option<&'h CacheTurns>,
    pub bases: &'h CacheBases,
}

impl std::fmt::Debug for InBasis<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InBasis").finish_non_exhaustive()
    }
}

impl Hooks for InBasis<'_> {
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        if let Some(turns) = self.turns {
            let hooks = &Self { turns: None, ..*self };
            return Turned { hooks, turns }.kv(layer, kind, matrix);
        }
        let basis = if kind == "k" { &self.bases.keys[layer] } else { &self.bases.values[layer] };
        let TokenRows { rows, cols, values } = matrix;
        let mut turned = values.to_vec();
        basis.forward(&mut turned, cols).map_err(|error| error.to_string())?;
        let bits = self.hooks.kv(layer, kind, TokenRows { rows, cols, values: &mut turned })?;
        basis.inverse(&mut turned, cols);
        values.copy_from_slice(&turned);
        Ok(bits)
    }

    fn activation(&self, stage: usize, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.hooks.activation(stage, matrix)
    }

    fn before_rotary(&self) -> bool {
        true
    }

    fn wants_kv(&self) -> bool {
        self.hooks.wants_kv()
    }

    fn stages(&self) -> usize {
        self.hooks.stages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::CodedPaths;
    use crate::{NoHooks, builtin, score};

    /// Loss of the built-in model with its cache coded, in a basis or not.
    #[test]
    fn a_basis_across_heads_makes_kvtc_lose_less() {
        let checkpoint = builtin::tiny().unwrap();
        let model = Model::load(&checkpoint).unwrap();
        let text = Text::new(builtin::text(), &checkpoint, 256).unwrap();
        let scored = text.beginnings(2, 256);
        let learned = Text { windows: text.windows[8..20].to_vec() };
        let bases = CacheBases::measure(&model, &learned, 4, None).unwrap();
        let paths = CodedPaths {
            kv: Some("kvtc@2.5".parse().unwrap()),
            activations: None,
            stages: 1,
            block: 256,
            sink: 4,
        };
        let plain = score(&model, &scored, &NoHooks, &|| ()).unwrap().bits_per_byte;
        let lost = |hooks: &dyn Hooks| {
            let scored = score(&model, &scored, hooks, &|| ()).unwrap();
            assert!(scored.kv_bits_per_value.unwrap() < 2.5 + 16.0 * 4.0 / 256.0 + 0.01);
            scored.bits_per_byte - plain
        };
        let (turned, as_it_is) = (lost(&InBasis { hooks: &paths, turns: None, bases: &bases }), lost(&paths));
        assert!(turned < 0.7 * as_it_is, "{turned} against {as_it_is}");
    }
}
