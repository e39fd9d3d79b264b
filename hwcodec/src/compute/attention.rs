//! Attention as two batched products, scores written out and read again: what
//! a machine without a fused kernel reaches, stated as such. The framework's
//! own kernels are measured through it (`framework`).

use super::blas::Product;
use super::lab::Lab;
use super::points::{AttentionPoint, Compute, Layout, Operand};
use crate::Error;

pub(super) fn run(lab: &Lab, compute: &mut Compute) -> Result<(), Error> {
    for head_dim in [64usize, 80, 96, 128, 256] {
        for tokens in [512usize, 1024, 2048, 4096] {
            let heads = (8 << 20) / (tokens * tokens).max(1 << 18);
            let heads = heads.clamp(2, 32);
            let operand_bytes = heads * tokens * head_dim * 2;
            let score_bytes = heads * tokens * tokens * 2;
            let (q, k) = (lab.at(0, operand_bytes)?, lab.at(operand_bytes, operand_bytes)?);
            let (v, out) = (lab.at(2 * operand_bytes, operand_bytes)?, lab.result_at(0, operand_bytes)?);
            let scores = lab.result_at(operand_bytes, score_bytes)?;
            let (operand, m, batch) = (Operand::Bf16, tokens, heads);
            let product = |layout, n, k, x, w, y| Product { operand, layout, m, n, k, batch, x, w, y };
            let pair = [
                product(Layout::Forward, tokens, head_dim, q, k, scores),
                product(Layout::InputGradient, head_dim, tokens, scores, v, out),
            ];
            let count = 8;
            let seconds = lab.chained_s(2 * count, &mut |i| lab.blas.launch(&pair[i % 2]))?;
            lab.rest(seconds.median * 2.0 * count as f64);
            compute.attention.push(AttentionPoint {
                kernel: "batched products".into(),
                batch: 1,
                heads: heads as u32,
                kv_heads: heads as u32,
                head_dim: head_dim as u32,
                queries: tokens as u32,
                keys: tokens as u32,
                forward_s: 2.0 * seconds.median,
                backward_s: None,
            });
        }
    }
    Ok(())
}
