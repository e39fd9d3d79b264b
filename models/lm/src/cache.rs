//! What errors in a KV cache cost: turns of K and V in which errors count alike.
//!
//! An error δ in a key moves a score by q · δ and so costs δᵀ E[q qᵀ] δ; one in a
//! value goes through attention and the output layer and costs E[Σ a²] · |O δ|².
//! With either matrix factored as L Lᵀ, a codec that leaves little squared error
//! in Lᵀ x leaves little of that cost. For V the turn can be put into the weights
//! before and after; for K it is a product of each query with L⁻¹. Knows nothing
//! of codecs.

use crate::calibrate::damped;
use crate::{Error, Hooks, Model, Text, TokenRows};
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};
use std::sync::Mutex;

/// A head's turn, and the way back.
#[derive(Debug, Clone)]
struct Turn {
    forward: DMatrix<f32>,
    inverse: DMatrix<f32>,
}

/// Turns of every layer's K and V, one for each head of the cache.
#[derive(Debug, Clone)]
pub struct CacheTurns {
    keys: Vec<Vec<Turn>>,
    values: Vec<Vec<Turn>>,
    head_dim: usize,
}

/// Which keys a codec is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// As attention sees them.
    AfterRotary,
    /// As they were before rotary positions.
    BeforeRotary,
}

/// How far before a query keys are looked at, where they stand before rotary positions: near ones, which attention
/// mostly sees, and far ones.
const DISTANCES: [usize; 6] = [0, 2, 8, 32, 128, 512];

/// Sums over a text, by layer.
struct Collector<'m> {
    model: &'m Model,
    frame: Keys,
    head_dim: usize,
    heads_per_key: usize,
    layers: Mutex<Vec<Sums>>,
}

#[derive(Clone, Default)]
struct Sums {
    /// Σ q qᵀ for each head of the cache.
    queries: Vec<DMatrix<f32>>,
    /// Σ a² for each head of the queries.
    squares: Vec<f64>,
}

impl Collector<'_> {
    /// Queries as keys of the frame meet them, rows of `width` values.
    fn met(&self, layer: usize, queries: &[f32], width: usize) -> Vec<f32> {
        if self.frame == Keys::AfterRotary {
            return queries.to_vec();
        }
        let rows = queries.chunks_exact(width).enumerate();
        let each = |(position, row): (usize, &[f32])| {
            let keys = DISTANCES.iter().filter_map(move |&distance| position.checked_sub(distance));
            let row = row.to_vec();
            keys.flat_map(move |key| {
                let mut row = row.clone();
                self.model.undo_rotary(layer, &mut row, key);
                row
            })
        };
        rows.flat_map(each).collect()
    }
}

impl Hooks for Collector<'_> {
    fn wants_attention(&self) -> bool {
        true
    }

    fn attention(&self, layer: usize, queries: &[f32], squares: &[f64]) {
        let (dim, heads) = (self.head_dim, squares.len());
        let queries = self.met(layer, queries, heads * dim);
        let mut layers = self.layers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sums = &mut layers[layer];
        sums.queries.resize(heads / self.heads_per_key, DMatrix::zeros(dim, dim));
        sums.squares.resize(heads, 0.0);
        sums.squares.iter_mut().zip(squares).for_each(|(sum, own)| *sum += own);
        for head in 0..heads {
            let own: Vec<f32> = queries
                .chunks_exact(heads * dim)
                .flat_map(|row| &row[head * dim..][..dim])
                .copied()
                .collect();
            let own = DMatrixView::from_slice(&own, dim, own.len() / dim);
            sums.queries[head / self.heads_per_key].gemm(1.0, &own, &own.transpose(), 1.0);
        }
    }
}

impl Turn {
    /// The turn that makes errors weighed by `moments` count alike; none where
    /// they are all zero.
    fn new(moments: &DMatrix<f32>) -> Self {
        let size = moments.nrows();
        let plain =
            || Self { forward: DMatrix::identity(size, size), inverse: DMatrix::identity(size, size) };
        let Some(factor) = damped(moments).cholesky() else { return plain() };
        let forward = factor.l().transpose();
        match forward.clone().try_inverse() {
            Some(inverse) => Self { forward: forward.map(|v| v as f32), inverse: inverse.map(|v| v as f32) },
            None => plain(),
        }
    }
}

impl CacheTurns {
    /// Runs the model over a text, one window after the other.
    pub fn measure(model: &Model, text: &Text, frame: Keys) -> Result<Self, Error> {
        let config = model.config();
        let collector = Collector {
            model,
            frame,
            head_dim: config.head_dim,
            heads_per_key: config.num_attention_heads / config.num_key_value_heads,
            layers: Mutex::new(vec![Sums::default(); config.num_hidden_layers]),
        };
        let longest = text.windows.iter().map(|w| w.tokens.len()).max().unwrap_or(0);
        let mut work = model.workspace(longest);
        for window in &text.windows {
            model.forward(&window.tokens, &mut work, &collector)?;
        }
        let group = collector.heads_per_key;
        let layers = collector.layers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let values = layers.iter().enumerate().map(|(n, sums)| {
            let output = model.output_moments(n);
            let moments = |(head, squares): (usize, &[f64])| {
                let own = (0..group).map(|i| &output[head * group + i] * (squares[i] as f32));
                own.fold(DMatrix::zeros(config.head_dim, config.head_dim), |sum, one| sum + one)
            };
            sums.squares.chunks(group).enumerate().map(moments).collect::<Vec<_>>()
        });
        let turns = |moments: &[DMatrix<f32>]| moments.iter().map(Turn::new).collect();
        Ok(Self {
            values: values.map(|moments| turns(&moments)).collect(),
            keys: layers.iter().map(|sums| turns(&sums.queries)).collect(),
            head_dim: config.head_dim,
        })
    }

    /// Turns rows of a layer's K (`kind` "k") or V in place, or back.
    fn apply(&self, layer: usize, kind: &str, direction: Direction, values: &mut [f32]) {
        let turns = if kind == "k" { &self.keys[layer] } else { &self.values[layer] };
        let dim = self.head_dim;
        let mut head = vec![0.0; values.len() / turns.len().max(1)];
        let mut turned = head.clone();
        for (at, turn) in turns.iter().enumerate() {
            let rows = values.chunks_exact(turns.len() * dim);
            rows.zip(head.chunks_exact_mut(dim))
                .for_each(|(row, to)| to.copy_from_slice(&row[at * dim..][..dim]));
            let matrix = match direction {
                Direction::Forward => &turn.forward,
                Direction::Back => &turn.inverse,
            };
            let tokens = head.len() / dim;
            DMatrixViewMut::from_slice(&mut turned, dim, tokens).gemm(
                1.0,
                matrix,
                &DMatrixView::from_slice(&head, dim, tokens),
                0.0,
            );
            let rows = values.chunks_exact_mut(turns.len() * dim);
            rows.zip(turned.chunks_exact(dim))
                .for_each(|(row, from)| row[at * dim..][..dim].copy_from_slice(from));
        }
    }
}

/// Which way a turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

/// Hooks whose K and V are turned before and back after.
pub struct Turned<'h> {
    pub hooks: &'h dyn Hooks,
    pub turns: &'h CacheTurns,
}

impl std::fmt::Debug for Turned<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turned").finish_non_exhaustive()
    }
}

impl Hooks for Turned<'_> {
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        let TokenRows { rows, cols, values } = matrix;
        self.turns.apply(layer, kind, Direction::Forward, values);
        let bits = self.hooks.kv(layer, kind, TokenRows { rows, cols, values })?;
        self.turns.apply(layer, kind, Direction::Back, values);
        Ok(bits)
    }

    fn activation(&self, stage: usize, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.hooks.activation(stage, matrix)
    }

    fn before_rotary(&self) -> bool {
        self.hooks.before_rotary()
    }

    fn wants_kv(&self) -> bool {
        self.hooks.wants_kv()
    }

    fn stages(&self) -> usize {
        self.hooks.stages()
    }
}
