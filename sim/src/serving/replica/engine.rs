//! What an engine adds to its kernels: factors, host time, scheduling.

/// How prompts and decoded tokens share steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every step decodes the batch and takes prompt tokens beside it.
    Mixed,
    /// Waiting prompts run in steps of their own first.
    PromptsFirst,
}

/// Constants of one version family of an engine, on one generation of GPUs,
/// for one class of models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineConstants {
    pub policy: Policy,
    /// Tokens of a step at most.
    pub token_budget: u32,
    /// Sequences in flight at most.
    pub max_batch: u32,
    /// Share of an answer's cache that is reserved at admission.
    pub reserved_answer: f64,
    /// Share of memory that weights, workspace and cache may take.
    pub memory_share: f64,
    /// Memory of activations and graphs.
    pub workspace_bytes: f64,
    /// Factors over the rooflines: products and experts in small steps and in
    /// steps of thousands of tokens.
    pub decode: f64,
    pub prefill: f64,
    pub experts_decode: f64,
    pub experts_prefill: f64,
    pub collective: f64,
    pub collective_floor: f64,
    pub kernel_floor: f64,
    pub attention_decode: f64,
    pub attention_prefill: f64,
    /// Seconds of one small kernel (norms, rotations, quantization).
    pub small_kernel_s: f64,
    /// Host time of a step, of each sequence in it, and of a step with prompts.
    pub step_s: f64,
    pub sequence_s: f64,
    pub prompt_step_s: f64,
    pub prompt_layer_s: f64,
    /// What the client sees on top of the first token's step: a fixed time and
    /// so many decoding steps (polling and streaming intervals).
    pub first_token_s: f64,
    pub first_token_steps: f64,
    /// Tokens that a decoding step yields for a sequence; above 1 where a draft
    /// is accepted.
    pub tokens_per_step: f64,
}
