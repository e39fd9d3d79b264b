//! The kernels of a plain implementation, in the order they are launched.
//!
//! Counted from what the operations of PyTorch do: each linear layer a
//! product, each elementwise operation a pass over its operands, rotary
//! positions in fp32. Nothing is fused but RMSNorm, attention and the
//! optimizer.

use super::curves::Layout::{self, Forward, InputGradient, WeightGradient};
use super::curves::Operation;
use super::network::Network;

/// What a kernel does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    Product {
        m: f64,
        n: f64,
        k: f64,
        layout: Layout,
    },
    Stream {
        operation: Operation,
        bytes: f64,
    },
    /// Causal attention of `sequences` × `tokens`.
    Attention {
        sequences: f64,
        tokens: f64,
        backward: bool,
    },
    /// One query a sequence on a cache of `context` tokens.
    Cache {
        sequences: f64,
        context: f64,
    },
    /// Views: the host's work alone.
    View,
}

/// Which pass launches it: the host's cost differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A forward pass without gradients.
    Inference,
    /// Forward, with gradients recorded.
    Recorded,
    Backward,
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    pub work: Work,
    pub pass: Pass,
}

/// Collects the launches of one pass.
pub(super) struct Launches<'n> {
    pub network: &'n Network,
    pub kernels: Vec<Kernel>,
    pass: Pass,
    /// Tokens that pass through the layers.
    tokens: f64,
}

/// Bytes of a value.
const HALF: f64 = 2.0;
const SINGLE: f64 = 4.0;

impl<'n> Launches<'n> {
    pub fn new(network: &'n Network, tokens: f64) -> Self {
        Self { network, kernels: Vec::new(), pass: Pass::Inference, tokens }
    }

    pub fn pass(&mut self, pass: Pass) {
        self.pass = pass;
    }

    fn push(&mut self, work: Work) {
        self.kernels.push(Kernel { work, pass: self.pass });
    }

    fn product(&mut self, m: f64, n: f64, k: f64, layout: Layout) {
        self.push(Work::Product { m, n, k, layout });
    }

    /// An operation that touches `bytes` for each token.
    fn stream(&mut self, operation: Operation, bytes_per_token: f64) {
        self.push(Work::Stream { operation, bytes: self.tokens * bytes_per_token });
    }

    /// A linear layer and the views around it.
    fn linear(&mut self, n: f64, k: f64) {
        self.product(self.tokens, n, k, Forward);
    }

    /// The gradients of a linear layer's input and weights.
    fn linear_backward(&mut self, n: f64, k: f64) {
        self.product(self.tokens, k, n, InputGradient);
        self.product(n, k, self.tokens, WeightGradient);
    }

    /// Rotary positions of a tensor `width` wide: to fp32, `x·cos + rotate(x)·sin`, and back.
    fn rotary(&mut self, width: f64) {
        self.stream(Operation::ToFloat, width * (HALF + SINGLE));
        self.push(Work::View);
        self.push(Work::View);
        self.stream(Operation::RotateFloat, 2.0 * width * SINGLE);
        self.stream(Operation::MulBroadcastFloat, 2.0 * width * SINGLE);
        self.stream(Operation::MulBroadcastFloat, 2.0 * width * SINGLE);
        self.stream(Operation::Add, 3.0 * width * SINGLE);
        self.stream(Operation::ToHalf, width * (HALF + SINGLE));
    }

    /// Its gradient: each half of the rotation fills a tensor of zeros, and
    /// the three ways to `x` are added up.
    fn rotary_backward(&mut self, width: f64) {
        self.stream(Operation::ToFloat, width * (HALF + SINGLE));
        self.stream(Operation::MulBroadcastFloat, 2.0 * width * SINGLE);
        self.stream(Operation::MulBroadcastFloat, 2.0 * width * SINGLE);
        self.stream(Operation::Add, width * SINGLE);
        for _ in 0..2 {
            self.stream(Operation::Copy, width * SINGLE);
            self.stream(Operation::Copy, width * SINGLE);
            self.stream(Operation::Add, 3.0 * width * SINGLE);
        }
        self.stream(Operation::ToHalf, width * (HALF + SINGLE));
    }

    /// One layer forward. `attend` puts in what attends.
    pub fn layer(&mut self, attend: impl FnOnce(&mut Self)) {
        let Network { hidden, ffn, .. } = *self.network;
        let kv = self.network.kv_width();
        self.stream(Operation::Norm, 2.0 * hidden * HALF);
        for width in [hidden, kv, kv] {
            self.linear(width, hidden);
            self.push(Work::View);
        }
        self.rotary(hidden);
        self.rotary(kv);
        attend(self);
        self.push(Work::View);
        self.linear(hidden, hidden);
        self.stream(Operation::Add, 3.0 * hidden * HALF);
        self.stream(Operation::Norm, 2.0 * hidden * HALF);
        self.linear(ffn, hidden);
        self.stream(Operation::Silu, 2.0 * ffn * HALF);
        self.linear(ffn, hidden);
        self.stream(Operation::Mul, 3.0 * ffn * HALF);
        self.linear(hidden, ffn);
        self.stream(Operation::Add, 3.0 * hidden * HALF);
    }

    /// Attention among the tokens of a prompt.
    pub fn attend(&mut self, sequences: f64, tokens: f64, backward: bool) {
        self.push(Work::Attention { sequences, tokens, backward });
    }

    /// One token's keys and values into the cache, then attention on it.
    pub fn attend_cache(&mut self, sequences: f64, context: f64) {
        let kv = self.network.kv_width();
        for _ in 0..2 {
            self.push(Work::View);
            self.stream(Operation::Copy, 2.0 * kv * HALF);
        }
        self.push(Work::Cache { sequences, context });
    }

    pub fn layer_backward(&mut self, sequences: f64, tokens: f64) {
        let Network { hidden, ffn, .. } = *self.network;
        let kv = self.network.kv_width();
        self.linear_backward(hidden, ffn);
        self.stream(Operation::Mul, 3.0 * ffn * HALF);
        self.stream(Operation::Mul, 3.0 * ffn * HALF);
        self.linear_backward(ffn, hidden);
        self.stream(Operation::SiluBackward, 3.0 * ffn * HALF);
        self.linear_backward(ffn, hidden);
        self.stream(Operation::Add, 3.0 * hidden * HALF);
        self.stream(Operation::NormBackward, 3.0 * hidden * HALF);
        self.stream(Operation::Add, 3.0 * hidden * HALF);
        self.linear_backward(hidden, hidden);
        self.attend(sequences, tokens, true);
        self.rotary_backward(kv);
        self.rotary_backward(hidden);
        for width in [kv, kv, hidden] {
            self.push(Work::View);
            self.linear_backward(width, hidden);
        }
        self.stream(Operation::Add, 3.0 * hidden * HALF);
        self.stream(Operation::Add, 3.0 * hidden * HALF);
        self.stream(Operation::NormBackward, 3.0 * hidden * HALF);
        self.stream(Operation::Add, 3.0 * hidden * HALF);
    }

    /// Token embeddings.
    pub fn embed(&mut self) {
        self.stream(Operation::Copy, 2.0 * self.network.hidden * HALF);
    }

    /// The last norm and the logits of `rows` tokens.
    pub fn head(&mut self, rows: f64) {
        let Network { hidden, vocab, .. } = *self.network;
        self.stream(Operation::Norm, 2.0 * hidden * HALF);
        self.product(rows, vocab, hidden, Forward);
    }

    /// The loss in fp32 and back to the last layer: logits to fp32, their
    /// log-softmax, the gradient of both, and back to bf16.
    pub fn loss(&mut self) {
        let Network { hidden, vocab, .. } = *self.network;
        self.stream(Operation::CrossEntropy, vocab * (2.0 * (HALF + SINGLE) + 6.0 * SINGLE));
        self.linear_backward(vocab, hidden);
        self.stream(Operation::NormBackward, 3.0 * hidden * HALF);
    }

    /// The gradient of the embeddings: zeros, then a row for each token.
    pub fn embed_backward(&mut self) {
        let Network { hidden, vocab, .. } = *self.network;
        self.push(Work::Stream { operation: Operation::Copy, bytes: vocab * hidden * HALF });
        self.stream(Operation::Copy, 2.0 * hidden * HALF);
    }

    /// AdamW with bf16 moments: four values read and three written a parameter.
    pub fn optimizer(&mut self) {
        let bytes = 7.0 * HALF * self.network.parameters;
        self.push(Work::Stream { operation: Operation::Optimizer, bytes });
    }
}
