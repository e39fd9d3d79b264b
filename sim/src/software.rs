//! What kernels and a framework make of a GPU: the constants that are fitted to
//! measured runs, one set for each framework and kind of GPU.
//!
//! Knows no GPU and no model; [`crate::compute`] and [`crate::schedule`] say
//! what each constant multiplies.

use crate::job::Math;

/// Nodes of a job in which every exchange meets a stalled link.
pub const STALLED_NODES: f64 = 64.0;

/// One value for each narrow number format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ByFormat {
    /// FP16 or BF16, and what is wider.
    pub fp16: f64,
    pub fp8: f64,
    pub fp4: f64,
}

impl ByFormat {
    /// One value for every format.
    pub const fn all(value: f64) -> Self {
        Self { fp16: value, fp8: value, fp4: value }
    }

    /// The value of a format.
    pub fn of(&self, math: Math) -> f64 {
        match math {
            Math::Fp32 | Math::Fp16 => self.fp16,
            Math::Fp8 => self.fp8,
            Math::Fp4 => self.fp4,
        }
    }
}

/// What kernels and framework make of a GPU: the constants that are fitted to
/// measured runs, one set for each GPU type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Software {
    /// What a GEMM takes beyond its arithmetic: launch gap, fill and drain.
    pub gemm_overhead_s: f64,
    /// Times a layer's forward pass reads or writes one copy of its hidden
    /// stream, of its feed-forward width, and of its score matrix.
    pub hidden_passes: f64,
    pub mlp_passes: f64,
    pub score_passes: f64,
    /// Slowdown of attention whose head size is no multiple of eight values,
    /// the alignment tensor cores ask for.
    pub misaligned_attention: f64,
    /// What a layer keeps of its hidden stream and of its feed-forward width
    /// for the backward pass, over what the formulas count.
    pub saved_hidden: f64,
    pub saved_mlp: f64,
    /// Bytes a logit of the loss keeps alive at its widest moment.
    pub logit_bytes: f64,
    /// Fraction of the link that gathering shared parameters layer by layer
    /// reaches (ZeRO-3).
    pub gather_efficiency: f64,
    /// What each tensor-parallel peer adds to a layer's launch floor, as a
    /// fraction of it.
    pub peer_launch: f64,
    /// How much longer a layer's launches take, and each peer's share, when
    /// tensor parallelism runs inside a pipeline that leaves the node.
    pub pipelined_launch: f64,
    pub pipelined_peer_launch: f64,
    /// How fast the share of pipeline exchanges that meet a stalled link grows
    /// with the nodes of a job: (nodes ÷ [`STALLED_NODES`]) to this power, at
    /// most all of them. Zero: every exchange costs the same on any job.
    pub stall_exponent: f64,
    /// Fraction of a format's peak that matrix products reach, beside the
    /// GPU's efficiency curve.
    pub format_efficiency: ByFormat,
    /// Fraction of what measured kernels reach, where the GPU has them.
    pub kernel_share: ByFormat,
    /// Rows, columns and depth that a matrix product loses to the edges of its
    /// tiles: a third of this over each of the three is added to its time.
    pub tile: f64,
    /// Bytes moved for each value of an operand to bring it into the format.
    pub cast_bytes: ByFormat,
    /// How products speed up with the board power a unit of peak rate has, over
    /// that of a B200: the exponent. Zero: clocks never give way.
    pub power_exponent: f64,
    /// Time of attention's backward pass over that of its forward pass, where
    /// the kernel is fused.
    pub attention_backward: f64,
    /// How a fused attention kernel slows down with heads below 128: the exponent.
    pub head_exponent: f64,
    /// Bytes a logit moves in each direction of the loss.
    pub loss_bytes: f64,
    /// Share of the loss that the slowest stage of a pipeline has: stages are
    /// evened out around it.
    pub loss_share: f64,
    /// Fraction of what a product reaches that grouped products of experts do.
    pub expert_efficiency: f64,
    /// Times each forward or backward product of an expert layer moves a routed
    /// token: copies of its width, and of the width its first product makes.
    pub routed_passes: f64,
    pub routed_ffn_passes: f64,
    /// Times a state-space layer's forward pass moves its inner stream.
    pub scan_passes: f64,
    /// What the host needs to launch one expert layer's forward and backward
    /// pass, beside the rest of the layer.
    pub expert_launch_s: f64,
    /// Between two steps: the host, the clipping of gradients, the data.
    pub step_s: f64,
    /// Whether a token that several experts of one node want crosses the
    /// network once.
    pub sends_once_per_node: bool,
    /// Fraction of memory a job can fill.
    pub usable_memory: f64,
}

impl Software {
    /// Kernels that do what the formulas say and no more: hidden streams of
    /// two norms and two residual sums, one activation, an eager softmax.
    pub const PLAIN: Self = Self {
        gemm_overhead_s: 0.0,
        hidden_passes: 10.0,
        mlp_passes: 3.0,
        score_passes: 8.0,
        misaligned_attention: 1.0,
        saved_hidden: 1.0,
        saved_mlp: 1.0,
        logit_bytes: 8.0,
        gather_efficiency: 1.0,
        peer_launch: 0.0,
        pipelined_launch: 1.0,
        pipelined_peer_launch: 0.0,
        stall_exponent: 0.0,
        format_efficiency: ByFormat::all(1.0),
        kernel_share: ByFormat::all(1.0),
        tile: 0.0,
        cast_bytes: ByFormat::all(0.0),
        power_exponent: 0.0,
        attention_backward: 2.5,
        head_exponent: 0.0,
        loss_bytes: 12.0,
        loss_share: 1.0,
        expert_efficiency: 1.0,
        routed_passes: 4.0,
        routed_ffn_passes: 0.0,
        scan_passes: 8.0,
        expert_launch_s: 0.0,
        step_s: 0.0,
        sends_once_per_node: false,
        usable_memory: 1.0,
    };
}
