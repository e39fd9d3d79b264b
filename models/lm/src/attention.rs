//! Causal grouped-query attention over one window.
//!
//! Queries go in blocks, each against the keys up to its own end: half the
//! products of a full square, and scores that stay in cache.

use crate::hooks::Attended;
use nalgebra::{DMatrixView, DMatrixViewMut};
use trinity_numeric::exp::exp;
use trinity_numeric::simd::{Kernel, Width, with_width};

const BLOCK: usize = 64;

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// What products of queries and keys are multiplied by.
    pub scale: f32,
    /// Positions a query sees, its own included.
    pub window: usize,
}

/// Buffers of one head, reused from head to head.
#[derive(Debug, Clone, Default)]
pub struct Scratch {
    /// Scores of a block of queries, a column each.
    scores: Vec<f32>,
    /// Kᵀ of a head, `tokens × head_dim` in column order.
    k: Vec<f32>,
    /// Q, V and the output of a head, `head_dim × tokens`.
    q: Vec<f32>,
    v: Vec<f32>,
    out: Vec<f32>,
}

impl Scratch {
    pub fn new(tokens: usize, head_dim: usize) -> Self {
        let head = || vec![0.0; tokens * head_dim];
        Self { scores: vec![0.0; tokens * BLOCK], k: head(), q: head(), v: head(), out: head() }
    }
}

/// `out = softmax(q · kᵀ · scale, causal) · v`; all row by row, a row a token. Who wants to `see` what attention does
/// is shown every block of queries.
pub fn attend(
    shape: Shape,
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
    scratch: &mut Scratch,
    see: Option<&dyn Fn(Attended<'_>)>,
) {
    let dim = shape.head_dim;
    let (q_size, kv_size) = (shape.heads * dim, shape.kv_heads * dim);
    let tokens = q.len() / q_size;
    let group = shape.heads / shape.kv_heads;
    for head in 0..shape.heads {
        if head.is_multiple_of(group) {
            gather(k, kv_size, head / group, dim, &mut scratch.v);
            transpose(&scratch.v, dim, &mut scratch.k);
            gather(v, kv_size, head / group, dim, &mut scratch.v);
        }
        gather(q, q_size, head, dim, &mut scratch.q);
        let k_transposed = DMatrixView::from_slice(&scratch.k, tokens, dim);
        for start in (0..tokens).step_by(BLOCK) {
            let (count, keys) = (BLOCK.min(tokens - start), (start + BLOCK).min(tokens));
            let block = start * dim..(start + count) * dim;
            let scores = &mut scratch.scores[..keys * count];
            let q_block = DMatrixView::from_slice(&scratch.q[block.clone()], dim, count);
            DMatrixViewMut::from_slice(scores, keys, count).gemm(
                shape.scale,
                &k_transposed.rows(0, keys),
                &q_block,
                0.0,
            );
            for (i, column) in scores.chunks_exact_mut(keys).enumerate() {
                softmax(column, start + i + 1, shape.window);
            }
            let v_block = DMatrixView::from_slice(&scratch.v[..keys * dim], dim, keys);
            let weights = DMatrixView::from_slice(scores, keys, count);
            DMatrixViewMut::from_slice(&mut scratch.out[block.clone()], dim, count)
                .gemm(1.0, &v_block, &weights, 0.0);
            if let Some(see) = see {
                let (queries, mixed) = (&scratch.q[block.clone()], &scratch.out[block]);
                let (values, weights) = (&scratch.v[..keys * dim], &scratch.scores[..keys * count]);
                see(Attended { head, start, queries, values, weights, mixed });
            }
        }
        for (row, mixed) in out.chunks_exact_mut(q_size).zip(scratch.out.chunks_exact(dim)) {
            row[head * dim..][..dim].copy_from_slice(mixed);
        }
    }
}

/// One head's channels of every token, side by side.
fn gather(x: &[f32], size: usize, head: usize, dim: usize, into: &mut [f32]) {
    for (row, out) in x.chunks_exact(size).zip(into.chunks_exact_mut(dim)) {
        out.copy_from_slice(&row[head * dim..][..dim]);
    }
}

/// `tokens × dim` by rows → the same by columns.
fn transpose(x: &[f32], dim: usize, into: &mut [f32]) {
    let tokens = x.len() / dim;
    for (t, row) in x.chunks_exact(dim).enumerate() {
        for (i, &value) in row.iter().enumerate() {
            into[i * tokens + t] = value;
        }
    }
}

/// Softmax over the last `window` of the first `visible` scores; what lies in
/// the future, or before the window, becomes 0.
fn softmax(scores: &mut [f32], visible: usize, window: usize) {
    let (seen, future) = scores.split_at_mut(visible);
    future.fill(0.0);
    let (forgotten, seen) = seen.split_at_mut(visible.saturating_sub(window));
    forgotten.fill(0.0);
    with_width(Width::widest(), Softmax(seen));
}

/// Softmax over all of some scores.
struct Softmax<'a>(&'a mut [f32]);

/// Sums that grow beside each other, whatever the registers' width.
const SUMS: usize = 16;

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut tops = [f32::NEG_INFINITY; SUMS];
        let (lanes, rest) = self.0.as_chunks::<SUMS>();
        lanes.iter().for_each(|own| tops.iter_mut().zip(own).for_each(|(top, s)| *top = top.max(*s)));
        let top = tops.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sums = [0.0f32; SUMS];
        let (lanes, rest) = self.0.as_chunks_mut::<SUMS>();
        for own in lanes {
            for (sum, s) in sums.iter_mut().zip(own) {
                *s = exp(*s - top);
                *sum += *s;
            }
        }
        for (sum, s) in sums.iter_mut().zip(rest) {
            *s = exp(*s - top);
            *sum += *s;
        }
        let inverse = 1.0 / sums.iter().sum::<f32>();
        self.0.iter_mut().for_each(|s| *s *= inverse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, one query at a time.
    fn plain(shape: Shape, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
        let (qs, ks, d) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.head_dim);
        let tokens = q.len() / qs;
        let mut out = vec![0.0; q.len()];
        for t in 0..tokens {
            for h in 0..shape.heads {
                let g = h / (shape.heads / shape.kv_heads);
                let dot = |s: usize| -> f64 {
                    (0..d).map(|i| f64::from(q[t * qs + h * d + i]) * f64::from(k[s * ks + g * d + i])).sum()
                };
                let sees = |s: usize| f64::from(u8::from(t - s < shape.window));
                let scale = f64::from(shape.scale);
                let weights: Vec<f64> = (0..=t).map(|s| sees(s) * (dot(s) * scale).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for i in 0..d {
                    let mixed: f64 = (0..=t).map(|s| weights[s] * f64::from(v[s * ks + g * d + i])).sum();
                    out[t * qs + h * d + i] = (mixed / sum) as f32;
                }
            }
        }
        out
    }

    #[test]
    fn blocks_equal_the_definition_for_grouped_heads_and_ragged_windows() {
        for (tokens, heads, kv_heads, head_dim, window) in
            [(1, 1, 1, 2, 9), (63, 2, 1, 8, 63), (64, 4, 2, 4, 7), (150, 6, 3, 16, 100)]
        {
            let shape = Shape { heads, kv_heads, head_dim, scale: 0.3, window };
            let wave = |n: usize, f: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * f).sin()).collect() };
            let q = wave(tokens * heads * head_dim, 0.7);
            let k = wave(tokens * kv_heads * head_dim, 1.3);
            let v = wave(tokens * kv_heads * head_dim, 0.31);
            let mut out = vec![0.0; q.len()];
            attend(shape, [&q, &k, &v], &mut out, &mut Scratch::new(tokens, head_dim), None);
            for (a, b) in out.iter().zip(plain(shape, &q, &k, &v)) {
                assert!((a - b).abs() < 1e-5, "{tokens} tokens: {a} against {b}");
            }
        }
    }
}
