//! What ran: a decoder-only network in a plain implementation, and how it was
//! driven.

/// A Llama-shaped network: RMSNorm, rotary positions, SwiGLU, untied vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    pub layers: f64,
    pub hidden: f64,
    pub heads: f64,
    pub kv_heads: f64,
    pub ffn: f64,
    pub vocab: f64,
    pub parameters: f64,
}

impl Network {
    /// Width of one head.
    pub fn head_dim(&self) -> f64 {
        self.hidden / self.heads
    }

    /// Width of keys, and of values.
    pub fn kv_width(&self) -> f64 {
        self.kv_heads * self.head_dim()
    }

    /// Parameters of one layer's matrices.
    pub fn layer_parameters(&self) -> f64 {
        2.0 * self.hidden * (self.hidden + self.kv_width()) + 3.0 * self.hidden * self.ffn
    }
}

/// Who launches kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launching {
    /// The host, one operation after the other.
    Eager,
    /// One captured graph.
    Graph,
}

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Run {
    /// Forward, backward and optimizer; `recompute` keeps only each block's input.
    Training { sequences: f64, tokens: f64, recompute: bool },
    /// A whole prompt, logits of its last token.
    Prefill { sequences: f64, tokens: f64 },
    /// One token a sequence on a cache of `context`.
    Decode { sequences: f64, context: f64, launching: Launching },
}
