//! Serving engines, the GPUs they run on and the models they serve, in files:
//! what `sim::serving::replica` needs, with where each number came from.
//!
//! Nothing here computes; `resolve()` hands plain data over.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use trinity_config::{Checked, Complaint, Diagnostic, Document};
use trinity_sim::serving::replica::{
    Accelerator, AllReduce, AttentionShares, Efficiency, EngineConstants, Experts, Format, Formats,
    Generation, Latent, Linear, Policy, Sliding, Transformer,
};

/// How prompts and decoded tokens share steps.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    Mixed,
    PromptsFirst,
}

/// A generation of GPUs, as launch recipes tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationName {
    Hopper,
    Blackwell,
}

/// Models by what their steps are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    Dense,
    Experts,
    Latent,
}

/// An engine: constants of all its versions, and what versions change.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EngineFile {
    pub constants: ConstantsFile,
    /// The last one stands for versions that no family names.
    pub families: Vec<FamilyFile>,
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
    /// Factors over kernels' rooflines.
    pub decode: f64,
    pub prefill: f64,
    pub experts_decode: f64,
    pub experts_prefill: f64,
    pub collective: f64,
    pub collective_floor: f64,
    pub kernel_floor: f64,
    pub attention_decode: f64,
    pub attention_prefill: f64,
    pub small_kernel_us: f64,
    /// Host time of a step, of each sequence in it, of a step with prompts, and
    /// of each layer of such a step.
    pub step_ms: f64,
    pub sequence_us: f64,
    pub prompt_step_ms: f64,
    pub prompt_layer_us: f64,
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
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let complain = |path: &str, what: &str| Err(document.complain(path, &Complaint::new(what)));
        if self.families.is_empty() {
            return complain("families", "an engine needs at least one family of versions");
        }
        if self.families.iter().any(|family| family.first_token.is_empty()) {
            return complain("families", "a family needs at least one `first-token`");
        }
        if self.constants.token_budget == 0 || self.constants.max_batch == 0 {
            return complain("constants", "`token-budget` and `max-batch` are at least 1");
        }
        Ok(())
    }
}

impl EngineFile {
    /// Constants of `version` on GPUs of `generation` for models of `class`.
    pub fn resolve(
        &self,
        version: &str,
        generation: Generation,
        class: ClassName,
    ) -> Option<EngineConstants> {
        let named = self.families.iter().find(|family| family.versions.iter().any(|own| own == version));
        let family = named.or(self.families.last())?;
        let same = |first: &&FirstTokenFile| first.generation.resolve() == generation && first.class == class;
        let nearly = |first: &&FirstTokenFile| first.generation.resolve() == generation;
        let list = &family.first_token;
        let first = list.iter().find(same).or(list.iter().find(nearly)).or(list.first())?;
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
            experts_decode: c.experts_decode,
            experts_prefill: c.experts_prefill,
            collective: c.collective,
            collective_floor: c.collective_floor * family.decode,
            kernel_floor: c.kernel_floor * family.decode,
            attention_decode: c.attention_decode,
            attention_prefill: c.attention_prefill,
            small_kernel_s: c.small_kernel_us * 1e-6 * family.decode,
            step_s: c.step_ms * 1e-3 * family.decode,
            sequence_s: c.sequence_us * 1e-6 * family.decode,
            prompt_step_s: c.prompt_step_ms * 1e-3,
            prompt_layer_s: c.prompt_layer_us * 1e-6,
            first_token_s: first.ms * 1e-3,
            first_token_steps: first.steps,
            tokens_per_step: 1.0,
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

impl PolicyName {
    fn resolve(self) -> Policy {
        match self {
            Self::Mixed => Policy::Mixed,
            Self::PromptsFirst => Policy::PromptsFirst,
        }
    }
}

impl GenerationName {
    fn resolve(self) -> Generation {
        match self {
            Self::Hopper => Generation::Hopper,
            Self::Blackwell => Generation::Blackwell,
        }
    }
}

/// A GPU as serving sees it: peaks, and the shares that kernels reach.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcceleratorFile {
    pub generation: GenerationName,
    /// Dense BF16.
    pub peak_tflops: f64,
    pub bandwidth_tb_per_s: f64,
    pub memory_gb: f64,
    /// Matrix products by format.
    pub products: BTreeMap<FormatName, EfficiencyFile>,
    /// Routed experts by format.
    pub experts: BTreeMap<FormatName, EfficiencyFile>,
    pub attention: AttentionFile,
    pub all_reduce: Vec<AllReduceFile>,
}

/// A number format of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FormatName {
    Bf16,
    Fp8,
    Nvfp4,
    Int4,
    Mxfp4,
}

impl FormatName {
    fn resolve(self) -> Format {
        match self {
            Self::Bf16 => Format::Bf16,
            Self::Fp8 => Format::Fp8,
            Self::Nvfp4 => Format::Nvfp4,
            Self::Int4 => Format::Int4,
            Self::Mxfp4 => Format::Mxfp4,
        }
    }
}

/// Shares that a kernel reaches.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EfficiencyFile {
    pub compute: f64,
    pub memory: f64,
    pub floor_us: f64,
}

/// Shares that attention reaches.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AttentionFile {
    pub prompt_wide: f64,
    pub prompt_narrow: f64,
    pub decode_16bit: f64,
    pub decode_8bit: f64,
    pub floor_us: f64,
}

/// An all-reduce among GPUs of one node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AllReduceFile {
    pub gpus: u32,
    pub bus_gb_per_s: f64,
    pub floor_us: f64,
}

impl Checked for AcceleratorFile {}

impl AcceleratorFile {
    /// The GPU as plain data.
    pub fn resolve(&self, name: &str) -> Accelerator {
        let by_format = |list: &BTreeMap<FormatName, EfficiencyFile>| {
            let mut out = [None; 5];
            for (format, own) in list {
                let EfficiencyFile { compute, memory, floor_us } = *own;
                out[format.resolve() as usize] =
                    Some(Efficiency { compute, memory, floor_s: floor_us * 1e-6 });
            }
            out
        };
        let a = self.attention;
        Accelerator {
            name: name.to_owned(),
            generation: self.generation.resolve(),
            peak_flops: self.peak_tflops * 1e12,
            bandwidth_bytes_per_s: self.bandwidth_tb_per_s * 1e12,
            memory_bytes: self.memory_gb * 1e9,
            products: by_format(&self.products),
            experts: by_format(&self.experts),
            attention: AttentionShares {
                prompt_wide: a.prompt_wide,
                prompt_narrow: a.prompt_narrow,
                decode_16bit: a.decode_16bit,
                decode_8bit: a.decode_8bit,
                floor_s: a.floor_us * 1e-6,
            },
            all_reduce: self
                .all_reduce
                .iter()
                .map(|l| AllReduce {
                    gpus: l.gpus,
                    bus_bytes_per_s: l.bus_gb_per_s * 1e9,
                    floor_s: l.floor_us * 1e-6,
                })
                .collect(),
        }
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
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        if self.formats.is_empty() {
            return Err(document.complain("formats", &Complaint::new("a model needs a precision")));
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
