//! What the compute measurements leave behind: plain data, so that curves are
//! fitted and runs predicted on any machine.

use crate::stats::Spread;
use serde::{Deserialize, Serialize};

/// Everything `trinity measure --compute` found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    pub multiprocessors: u32,
    pub l2_bytes: u64,
    pub power_limit_w: f64,
    pub max_sm_clock_mhz: u32,
    pub products: Vec<ProductPoint>,
    pub streams: Vec<StreamPoint>,
    pub attention: Vec<AttentionPoint>,
    pub launches: Vec<LaunchPoint>,
    pub host_copies: Vec<HostCopyPoint>,
    pub loads: Vec<LoadPoint>,
    pub framework: Option<Framework>,
}

/// Operand types of a matrix product; all accumulate in fp32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operand {
    Bf16,
    Fp16,
    Tf32,
    Fp8,
}

impl Operand {
    pub fn bytes(self) -> usize {
        match self {
            Self::Fp8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::Tf32 => 4,
        }
    }

    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Tf32 => "tf32",
            Self::Fp8 => "fp8",
        }
    }
}

/// Which operand of `y[m×n] = x[m×k] · w` lies transposed in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// `w[n×k]`: a linear layer's forward pass.
    Forward,
    /// `w[k×n]`: the gradient of its input.
    InputGradient,
    /// `x[k×m]`, `w[k×n]`: the gradient of its weights.
    WeightGradient,
}

/// One matrix product: weights from memory, activations where they last were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProductPoint {
    pub operand: Operand,
    pub layout: Layout,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub seconds: Spread,
}

impl ProductPoint {
    pub fn flop(&self) -> f64 {
        2.0 * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
    }
}

/// A streaming kernel of a chain: each reads what the one before wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamPoint {
    /// `copy` (one read, one write) or `triad` (two reads, one write).
    pub kernel: String,
    /// Read and written together.
    pub bytes: u64,
    pub seconds: Spread,
}

/// Attention of `queries` on `keys` tokens, causal where they are equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttentionPoint {
    /// `batched products` (two cuBLAS products, no softmax) or `framework`.
    pub kernel: String,
    pub batch: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub queries: u32,
    pub keys: u32,
    pub forward_s: f64,
    /// None where only the forward pass was timed.
    pub backward_s: Option<f64>,
}

impl AttentionPoint {
    /// Operations of the forward pass that the mask leaves.
    pub fn flop(&self) -> f64 {
        let pairs = f64::from(self.queries) * f64::from(self.keys);
        let kept = if self.queries == self.keys && self.queries > 1 { 0.5 } else { 1.0 };
        4.0 * kept * f64::from(self.batch) * f64::from(self.heads) * pairs * f64::from(self.head_dim)
    }

    /// Keys and values read once, 16-bit.
    pub fn kv_bytes(&self) -> f64 {
        4.0 * f64::from(self.batch)
            * f64::from(self.kv_heads)
            * f64::from(self.keys)
            * f64::from(self.head_dim)
    }
}

/// What starting a kernel costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchPoint {
    /// `eager` (one launch after the other), `graph` (a node of a replayed
    /// graph) or `round trip` (launch and wait).
    pub how: String,
    pub seconds: Spread,
}

/// A copy between host and device, alone or beside a matrix product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCopyPoint {
    pub direction: String,
    pub beside_products: bool,
    pub bytes: u64,
    pub bytes_per_s: Spread,
}

/// A load held for about a second: what it does, and what that draws.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    pub what: String,
    /// Share of the time that kernels run; the rest sleeps.
    pub duty: f64,
    pub seconds: f64,
    pub flop_per_s: f64,
    pub bytes_per_s: f64,
    pub power_w: f64,
    /// Mean of readings while busy.
    pub sm_clock_mhz: f64,
}

/// What a deep-learning framework on this host makes of its operations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Framework {
    pub name: String,
    pub version: String,
    /// Operations on tensors too small to matter: what the host pays.
    pub dispatch: Vec<DispatchPoint>,
    /// Operations on a few tokens, in a graph: what the device pays at least.
    #[serde(default)]
    pub floors: Vec<OperationPoint>,
    /// Operations on large tensors: what the device pays.
    pub operations: Vec<OperationPoint>,
}

/// One operation, launched again and again. `mixture` is a decoder block of
/// them, `mixture parts` the sum of that block's operations one at a time. An
/// operation timed on several hosts appears once for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DispatchPoint {
    pub operation: String,
    /// `forward` (no gradients recorded), `recorded` (forward with gradients)
    /// or `backward`.
    pub pass: String,
    pub seconds: f64,
}

/// One operation over a large tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationPoint {
    pub operation: String,
    /// Read and written, were each operand touched once.
    pub bytes: f64,
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_bytes_are_those_that_the_mask_and_the_group_leave() {
        let seconds = Spread { median: 1.0, low: 1.0, high: 1.0, n: 1 };
        let product =
            ProductPoint { operand: Operand::Fp8, layout: Layout::Forward, m: 3, n: 5, k: 7, seconds };
        assert_eq!(product.flop(), 210.0);
        let of = |queries, keys| AttentionPoint {
            kernel: "framework".into(),
            batch: 2,
            heads: 8,
            kv_heads: 2,
            head_dim: 64,
            queries,
            keys,
            forward_s: 1.0,
            backward_s: None,
        };
        let whole = 4.0 * 2.0 * 8.0 * 64.0;
        // A causal mask leaves half; one query sees all keys, and so do queries on a longer cache.
        assert_eq!(of(128, 128).flop(), 0.5 * whole * 128.0 * 128.0);
        assert_eq!(
            (of(1, 128).flop(), of(1, 1).flop(), of(16, 128).flop()),
            (whole * 128.0, whole, whole * 2048.0)
        );
        // Keys and values of two heads in two bytes each.
        assert_eq!(of(1, 128).kv_bytes(), 2.0 * 2.0 * 2.0 * 2.0 * 128.0 * 64.0);
        let names =
            [Operand::Bf16, Operand::Fp16, Operand::Tf32, Operand::Fp8].map(|one| (one.name(), one.bytes()));
        assert_eq!(names, [("bf16", 2), ("fp16", 2), ("tf32", 4), ("fp8", 1)]);
    }
}
