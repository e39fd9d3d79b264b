//! The caching allocator's peak: what is alive at once, tensor by tensor.
//!
//! Weights, gradients and both moments are bf16. Counts are those of tensors
//! that autograd saves in a plain implementation: two norms' inputs and
//! outputs, queries, keys, values, the output of attention; gate, up, their
//! activation and product.

use super::network::{Launching, Network, Run};

/// Bytes of a value in bf16 and in fp32.
const HALF: f64 = 2.0;
const SINGLE: f64 = 4.0;
/// Workspaces of cuBLAS and cuBLASLt on Hopper, 32 MiB each.
const WORKSPACES: f64 = 2.0 * 33_554_432.0;
/// Head sizes that fused attention takes as they are.
const ALIGNED: f64 = 8.0;

/// The most bytes allocated at once.
pub fn peak_bytes(network: &Network, run: &Run) -> f64 {
    match *run {
        Run::Training { sequences, tokens, recompute } => training(network, sequences * tokens, recompute),
        Run::Prefill { sequences, tokens } => inference(network, sequences * tokens),
        Run::Decode { sequences, context, launching } => {
            let cache = network.layers * 2.0 * network.kv_width() * sequences * context * HALF;
            // A capture has a stream, and so workspaces, of its own.
            let captured = if launching == Launching::Graph { WORKSPACES } else { 0.0 };
            inference(network, sequences) + cache + captured
        }
    }
}

/// Weights, workspaces, and the widest moment of a layer: the stream, its
/// norm and sum, and three tensors of the feed-forward block.
fn inference(network: &Network, tokens: f64) -> f64 {
    let widest = 3.0 * network.hidden + 3.0 * network.ffn;
    HALF * network.parameters + WORKSPACES + HALF * tokens * widest
}

/// Bytes that a layer keeps of a token for its backward pass.
fn saved_per_token(network: &Network) -> f64 {
    let (hidden, kv) = (network.hidden, network.kv_width());
    let dim = network.head_dim();
    let padded = (dim / ALIGNED).ceil() * ALIGNED / dim;
    // Padded operands are copies, and the cut output is one more beside the padded one.
    let output = if padded > 1.0 { 1.0 + padded } else { 1.0 };
    let attention = padded * (hidden + 2.0 * kv) + output * hidden;
    let log_sum = network.heads * SINGLE;
    HALF * (4.0 * hidden + attention + 4.0 * network.ffn) + log_sum
}

/// The larger of two moments: the loss, with everything saved and no gradient
/// yet, and the first layer's backward pass, with nearly every gradient there.
fn training(network: &Network, tokens: f64, recompute: bool) -> f64 {
    let parameters = network.parameters;
    let embedding = HALF * network.vocab * network.hidden;
    let layer = HALF * network.layer_parameters();
    let input = HALF * network.hidden * tokens;
    let saved = saved_per_token(network) * tokens;
    let kept = network.layers * if recompute { input } else { saved };
    let logits = HALF * network.vocab * tokens;
    // bf16 logits; in fp32 their log-softmax and the gradients on either side of it.
    let loss = logits + 3.0 * SINGLE * network.vocab * tokens;
    let at_loss = 3.0 * HALF * parameters + kept + loss + embedding + 2.0 * input;
    // Three gradients of the feed-forward block, one of the stream.
    let working = saved + HALF * tokens * (3.0 * network.ffn + network.hidden);
    let at_end = 4.0 * HALF * parameters + logits + (working - embedding - layer).max(2.0 * input);
    WORKSPACES + at_loss.max(at_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_of_the_allocator() {
        // One H200, PyTorch 2.11: llama-350m 16 × 2048, and llama-2-7b 4 × 2048 with recomputation.
        let small = Network {
            layers: 24.0,
            hidden: 1024.0,
            heads: 16.0,
            kv_heads: 16.0,
            ffn: 2736.0,
            vocab: 32000.0,
            parameters: 367_969_280.0,
        };
        let run = Run::Training { sequences: 16.0, tokens: 2048.0, recompute: false };
        assert!((peak_bytes(&small, &run) / 47_346_988_032.0 - 1.0).abs() < 0.02);
        let large = Network {
            layers: 32.0,
            hidden: 4096.0,
            heads: 32.0,
            kv_heads: 32.0,
            ffn: 11008.0,
            vocab: 32000.0,
            parameters: 6_738_415_616.0,
        };
        let run = Run::Training { sequences: 4.0, tokens: 2048.0, recompute: true };
        assert!((peak_bytes(&large, &run) / 55_610_478_592.0 - 1.0).abs() < 0.02);
    }
}
