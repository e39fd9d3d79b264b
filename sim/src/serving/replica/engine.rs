//! What an engine adds to its kernels: factors, host time, scheduling.

/// How prompts and decoded tokens share steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every step decodes the batch and takes prompt tokens beside it.
    Mixed,
    /// Waiting prompts run in steps of their own first.
    PromptsFirst,
}

/// What becomes of a sequence that is thrown out of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preemption {
    /// Its tokens are read anew.
    Recompute,
    /// Its cache waits in host memory.
    Swap { bytes_per_s: f64 },
}

/// Drafts of a smaller model, which a step verifies together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draft {
    /// Tokens that are drafted for each step.
    pub tokens: f64,
    /// Chance that a drafted token is accepted when those before it were.
    pub acceptance: f64,
    /// Time of drafting one token over that of a plain decoding step.
    pub cost: f64,
}

impl Draft {
    /// Tokens that a step yields in the mean: accepted drafts up to the first
    /// that is refused, and the token that the model itself puts there.
    pub fn tokens_per_step(&self) -> f64 {
        if self.acceptance >= 1.0 {
            return self.tokens + 1.0;
        }
        (1.0 - self.acceptance.powf(self.tokens + 1.0)) / (1.0 - self.acceptance)
    }
}

/// When an engine looks at requests that came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intake {
    /// Decoding steps from one look at the queue to the next.
    pub poll_steps: u32,
    /// Steps that prompts wait for company at most, while others decode.
    pub wait_steps: u32,
    /// Tokens of waiting prompts that are company enough.
    pub wait_tokens: f64,
}

impl Default for Intake {
    /// Every step takes who came.
    fn default() -> Self {
        Self { poll_steps: 1, wait_steps: 0, wait_tokens: 0.0 }
    }
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
    /// Factors over measured kernels: products and experts in small steps and
    /// in steps of thousands of tokens.
    pub decode: f64,
    pub prefill: f64,
    pub experts_decode: f64,
    pub experts_prefill: f64,
    /// Experts that are dealt out wait for the GPU with the most tokens.
    pub dealt_experts: f64,
    pub collective: f64,
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
    /// Seconds of the one process that writes a token to its client.
    pub stream_s: f64,
    pub intake: Intake,
    pub preemption: Preemption,
    /// Speculative decoding, where it is on.
    pub draft: Option<Draft>,
}

impl EngineConstants {
    /// Tokens that a decoding step yields for a sequence.
    pub fn tokens_per_step(&self) -> f64 {
        self.draft.map_or(1.0, |draft| draft.tokens_per_step())
    }
}
