//! Serving engines, the GPUs they run on and the models they serve, in files:
//! what `sim::serving::replica` needs, with where each number came from.
//!
//! Nothing here computes; `resolve()` hands plain data over.

use super::names::{choices, names};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use trinity_config::{At, Checked, Complaint, Diagnostic};
use trinity_sim::serving::replica::{
    Accelerator, EngineConstants, Experts, Format, Formats, Generation, Intake, Latent, Linear, Policy,
    Preemption, Sliding, Transformer,
};

choices! {
    /// How prompts and decoded tokens share steps.
    PolicyName => Policy { Mixed, PromptsFirst }
    /// A generation of GPUs, as launch recipes tell them apart.
    GenerationName => Generation { Hopper, Blackwell }
    /// A number format of weights.
    FormatName => Format { Bf16, Fp8, Nvfp4, Int4, Mxfp4 }
}

names! {
    /// Models by what their steps are made of.
    ClassName { Dense, Experts, Latent }
}

/// An engine: constants of all its versions, and what versions change.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EngineFile {
    pub constants: ConstantsFile,
    /// Mean absolute errors on models that the fit was made without.
    pub unseen: UnseenErrorsFile,
    /// The last one stands for versions that no family names.
    pub families: Vec<FamilyFile>,
}

/// Mean absolute errors, as fractions.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UnseenErrorsFile {
    pub ttft: f64,
    pub tpot: f64,
}

/// Constants that all versions share.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConstantsFile {
    pub policy: PolicyName,
    pub token_budget: u32,
    pub max_batch: u32,
    /// Share of an answer's cache that is reserved at admission.
    pub reserved_answer: f64,
    /// Share of memory that weights, workspace and cache may take.
    pub memory_share: f64,
    pub workspace_gb: f64,
    /// Bytes of a cached value of quantized checkpoints; others have two.
    pub kv_bytes_hopper: f64,
    pub kv_bytes_blackwell: f64,
    /// Factors over measured kernels.
    pub decode: f64,
    pub prefill: f64,
    pub experts_decode: f64,
    pub experts_prefill: f64,
    /// Experts that are dealt out, over as many that are cut: the GPU with the
    /// most tokens decides.
    pub dealt_experts: f64,
    pub collective: f64,
    pub attention_decode: f64,
    pub attention_prefill: f64,
    pub small_kernel_us: f64,
    /// Host time of a step, of each sequence in it, of a step with prompts, and
    /// of each layer of such a step.
    pub step_ms: f64,
    pub sequence_us: f64,
    pub prompt_step_ms: f64,
    pub prompt_layer_us: f64,
    /// What clients see on top of the step that makes the first token, where no
    /// launch recipe says otherwise: a time, and decoding steps.
    pub first_token_ms: f64,
    pub first_token_steps: f64,
    /// Of the process that writes a token to its client.
    pub stream_us: f64,
    /// Chance that a drafted token is accepted when those before it were.
    pub draft_acceptance: f64,
    /// Between workers that read prompts and those that decode: routing and the
    /// start of a transfer.
    pub handoff_ms: f64,
    /// Time of prompts on workers of their own over that on shared ones.
    pub split_prefill: f64,
    /// Time of decoding on workers of its own over that on shared ones.
    pub split_decode: f64,
    /// Whether recipes with separate workers cap the decoding batch at a power of two.
    #[serde(default)]
    pub split_batch_power_of_two: bool,
}

/// Versions that behave alike.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FamilyFile {
    pub versions: Vec<String>,
    /// Measured rows that identify the family's constants.
    pub rows: u32,
    /// Factors over the engine's: decoding steps, and prompts.
    pub decode: f64,
    pub prefill: f64,
    pub policy: Option<PolicyName>,
    pub token_budget: Option<u32>,
    /// What clients see on top of the step that makes the first token.
    #[serde(default)]
    pub first_token: Vec<FirstTokenFile>,
}

/// Delay of the first token under one launch recipe.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FirstTokenFile {
    pub generation: GenerationName,
    pub class: ClassName,
    pub ms: f64,
    /// Decoding steps: polling and streaming intervals.
    pub steps: f64,
    /// Measured rows that identify it.
    pub rows: u32,
}

impl Checked for EngineFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let complain = |key: &str, what: &str| Err(at.complain(key, &Complaint::new(what)));
        if self.families.is_empty() {
            return complain("families", "an engine needs at least one family of versions");
        }
        if self.constants.token_budget == 0 || self.constants.max_batch == 0 {
            return complain("constants", "`token-budget` and `max-batch` are at least 1");
        }
        Ok(())
    }
}

impl EngineFile {
    /// Number of the family that `version` belongs to; the last where none
    /// names it.
    pub fn family(&self, version: &str) -> Option<usize> {
        let named = self.families.iter().position(|family| family.versions.iter().any(|own| own == version));
        named.or(self.families.len().checked_sub(1))
    }

    /// Constants of `version` on GPUs of `generation` for models of `class`.
    pub fn resolve(
        &self,
        version: &str,
        generation: Generation,
        class: ClassName,
    ) -> Option<EngineConstants> {
        let family = self.families.get(self.family(version)?)?;
        let same = |first: &&FirstTokenFile| first.generation.resolve() == generation && first.class == class;
        let first = family.first_token.iter().find(same);
        let c = &self.constants;
        Some(EngineConstants {
            policy: family.policy.unwrap_or(c.policy).resolve(),
            token_budget: family.token_budget.unwrap_or(c.token_budget),
            max_batch: c.max_batch,
            reserved_answer: c.reserved_answer,
            memory_share: c.memory_share,
            workspace_bytes: c.workspace_gb * 1e9,
            decode: c.decode * family.decode,
            prefill: c.prefill * family.prefill,
            experts_decode: c.experts_decode * family.decode,
            experts_prefill: c.experts_prefill * family.prefill,
            dealt_experts: c.dealt_experts,
            collective: c.collective,
            attention_decode: c.attention_decode,
            attention_prefill: c.attention_prefill,
            small_kernel_s: c.small_kernel_us * 1e-6 * family.decode,
            step_s: c.step_ms * 1e-3 * family.decode,
            sequence_s: c.sequence_us * 1e-6 * family.decode,
            prompt_step_s: c.prompt_step_ms * 1e-3,
            prompt_layer_s: c.prompt_layer_us * 1e-6,
            first_token_s: first.map_or(c.first_token_ms, |first| first.ms) * 1e-3,
            first_token_steps: first.map_or(c.first_token_steps, |first| first.steps),
            stream_s: c.stream_us * 1e-6,
            intake: Intake::default(),
            preemption: Preemption::Recompute,
            draft: None,
        })
    }

    /// Bytes of a cached value on GPUs of `generation`.
    pub fn kv_bytes(&self, generation: Generation) -> f64 {
        match generation {
            Generation::Hopper => self.constants.kv_bytes_hopper,
            Generation::Blackwell => self.constants.kv_bytes_blackwell,
        }
    }
}

impl ConstantsFile {
    /// Constants of a worker that reads prompts alone.
    pub fn reading(&self, shared: EngineConstants) -> EngineConstants {
        let factor = self.split_prefill;
        EngineConstants {
            prefill: shared.prefill * factor,
            experts_prefill: shared.experts_prefill * factor,
            attention_prefill: shared.attention_prefill * factor,
            collective: shared.collective * factor,
            ..shared
        }
    }

    /// Constants of a worker that decodes alone, whose ranks see up to
    /// `share` requests at once and take `batch` where a recipe says so. Many
    /// workers write to clients side by side.
    pub fn writing(&self, shared: EngineConstants, share: u32, batch: Option<u32>) -> EngineConstants {
        let factor = self.split_decode;
        let usual = if self.split_batch_power_of_two { 1 << share.max(1).ilog2() } else { u32::MAX };
        let limit = batch.unwrap_or(usual);
        EngineConstants {
            decode: shared.decode * factor,
            experts_decode: shared.experts_decode * factor,
            collective: shared.collective * factor,
            small_kernel_s: shared.small_kernel_s * factor,
            max_batch: shared.max_batch.min(limit),
            stream_s: 0.0,
            ..shared
        }
    }
}

impl From<Generation> for GenerationName {
    fn from(generation: Generation) -> Self {
        match generation {
            Generation::Hopper => Self::Hopper,
            Generation::Blackwell => Self::Blackwell,
        }
    }
}

/// A GPU as serving sees it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcceleratorFile {
    pub generation: GenerationName,
    /// Whose measured kernels answer: a name of `calibrations/kernels`.
    pub kernels: String,
    pub memory_gb: f64,
    /// To workers outside its NVLink domain.
    pub network_gb_per_s: f64,
    /// To host memory, one direction.
    pub host_gb_per_s: f64,
    /// GPUs of an NVLink domain.
    pub domain_gpus: u32,
}

impl Checked for AcceleratorFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        if crate::kernels::GPUS.contains(&self.kernels.as_str()) {
            return Ok(());
        }
        let known = crate::kernels::GPUS.join(", ");
        let what = format!("`{}` has no measured kernels; measured: {known}", self.kernels);
        Err(at.complain("kernels", &Complaint::new(what)))
    }
}

impl AcceleratorFile {
    /// The GPU as plain data. Fails when the built-in curves of its kernels are
    /// damaged.
    pub fn resolve(&self) -> Result<Option<Accelerator>, Diagnostic> {
        let kernels = crate::kernels::of(&self.kernels)?;
        Ok(kernels.map(|kernels| Accelerator {
            name: kernels.gpu(),
            generation: self.generation.resolve(),
            memory_bytes: self.memory_gb * 1e9,
            network_bytes_per_s: self.network_gb_per_s * 1e9,
            host_bytes_per_s: self.host_gb_per_s * 1e9,
            domain_gpus: self.domain_gpus,
            kernels,
        }))
    }
}

/// A served model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TransformerFile {
    /// Names under which measurements know it.
    pub names: Vec<String>,
    pub layers: u32,
    pub hidden: u32,
    pub vocab: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    #[serde(default)]
    pub dense_layers: u32,
    #[serde(default)]
    pub dense_ffn: u32,
    /// Attention gates its output.
    #[serde(default)]
    pub gated: bool,
    pub latent: Option<ServedLatentFile>,
    pub sliding: Option<SlidingFile>,
    pub linear: Option<LinearFile>,
    pub experts: Option<ExpertsFile>,
    /// Formats of each part, by the checkpoint's precision.
    pub formats: BTreeMap<String, FormatsFile>,
}

/// Latent attention.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServedLatentFile {
    pub query_rank: u32,
    pub kv_rank: u32,
    pub nope_dim: u32,
    pub rope_dim: u32,
    pub value_dim: u32,
    /// Tokens that sparse attention picks.
    pub sparse_tokens: Option<u32>,
}

/// Layers that see a window.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlidingFile {
    pub layers: u32,
    pub window: u32,
}

/// Layers of linear attention.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinearFile {
    pub layers: u32,
    pub key_heads: u32,
    pub value_heads: u32,
    pub key_dim: u32,
    pub value_dim: u32,
}

/// Routed experts.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExpertsFile {
    pub count: u32,
    pub top_k: u32,
    pub ffn: u32,
    #[serde(default)]
    pub shared_ffn: u32,
}

/// Formats of a checkpoint's parts.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FormatsFile {
    pub attention: FormatName,
    pub dense: FormatName,
    pub experts: FormatName,
}

impl Checked for TransformerFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        if self.formats.is_empty() {
            return Err(at.complain("formats", &Complaint::new("a model needs a precision")));
        }
        Ok(())
    }
}

impl TransformerFile {
    /// What its steps are made of.
    pub fn class(&self) -> ClassName {
        match (&self.latent, &self.experts) {
            (Some(_), _) => ClassName::Latent,
            (None, Some(_)) => ClassName::Experts,
            (None, None) => ClassName::Dense,
        }
    }

    /// The model as plain data, in one of its precisions.
    pub fn resolve(&self, precision: &str) -> Option<Transformer> {
        let own = self.formats.get(precision)?;
        let f = f64::from;
        Some(Transformer {
            layers: f(self.layers),
            hidden: f(self.hidden),
            vocab: f(self.vocab),
            heads: f(self.heads),
            kv_heads: f(self.kv_heads),
            head_dim: f(self.head_dim),
            dense_layers: f(self.dense_layers),
            dense_ffn: f(self.dense_ffn),
            gated: self.gated,
            latent: self.latent.map(|l| Latent {
                query_rank: f(l.query_rank),
                kv_rank: f(l.kv_rank),
                nope_dim: f(l.nope_dim),
                rope_dim: f(l.rope_dim),
                value_dim: f(l.value_dim),
                sparse_tokens: l.sparse_tokens.map(f),
            }),
            sliding: self.sliding.map(|s| Sliding { layers: f(s.layers), window: f(s.window) }),
            linear: self.linear.map(|l| Linear {
                layers: f(l.layers),
                key_heads: f(l.key_heads),
                value_heads: f(l.value_heads),
                key_dim: f(l.key_dim),
                value_dim: f(l.value_dim),
            }),
            experts: self.experts.map(|e| Experts {
                count: f(e.count),
                top_k: f(e.top_k),
                ffn: f(e.ffn),
                shared_ffn: f(e.shared_ffn),
            }),
            formats: Formats {
                attention: own.attention.resolve(),
                dense: own.dense.resolve(),
                experts: own.experts.resolve(),
            },
        })
    }
}
