//! Jobs in files: what is not said is the plain choice.

use super::framework::{FrameworkFile, StatesFile};
use super::layout::ParallelismFile;
use super::llm::LlmFile;
use super::names::{
    AttentionName, MathName, PhaseName, PolicyName, RecomputeName, ReductionName, ScopeName, TuningName,
};
use super::overlap::OverlapFile;
use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Diagnostic, Fraction, Ratio};
use trinity_sim::{Compression, Job, Overlap, Phase, Precision, Recompute, Schedule, Search};

settable! {
    JobFile { llm, framework, phase, tuning, sequence, global_batch, replica_batch, microbatch, parallelism, precision, recompute, attention, overlap, compression, expert_imbalance, kv_spill, kv_transfer }
    PrecisionFile { math, attention, vocabulary, weights, activations, gradients, gradient_reduce, kv, optimizer_bytes }
    CompressionFile { weights, weight_gradients, activations, activation_gradients, kv, reduction, scope, policy }
}

/// A job.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobFile {
    pub llm: LlmFile,
    /// The framework that trains (`configs/frameworks`); the one that the GPU's
    /// calibration was fitted on where it is not said.
    pub framework: Option<FrameworkFile>,
    pub phase: PhaseName,
    /// Which weights a training step changes; all where it is not said.
    #[serde(default = "all_weights")]
    pub tuning: TuningName,
    /// Tokens in a sequence; in decoding, tokens already in the cache.
    pub sequence: u32,
    /// Sequences in the whole batch.
    #[serde(default = "one")]
    pub global_batch: u32,
    /// Sequences of each data-parallel rank, instead of the whole batch.
    pub replica_batch: Option<u32>,
    /// Sequences that pass through the pipeline together; one where it is not
    /// said, and in decoding all that a stage has.
    pub microbatch: Option<u32>,
    #[serde(default)]
    pub parallelism: ParallelismFile,
    #[serde(default)]
    pub precision: PrecisionFile,
    /// What activations are computed again; what the framework says where it is
    /// not said, and none without one.
    pub recompute: Option<RecomputeName>,
    #[serde(default = "flash")]
    pub attention: AttentionName,
    #[serde(default)]
    pub overlap: OverlapFile,
    #[serde(default)]
    pub compression: CompressionFile,
    /// Tokens that the busiest rank's experts get, over the mean.
    #[serde(default = "even")]
    pub expert_imbalance: Ratio,
    /// Share of the KV cache kept in host memory.
    #[serde(default)]
    pub kv_spill: Fraction,
    /// Share of a prompt's KV cache that goes over network cards to workers that decode; of prefill alone.
    #[serde(default)]
    pub kv_transfer: Fraction,
}

fn one() -> u32 {
    1
}

fn even() -> Ratio {
    Ratio::new(1.0)
}

fn all_weights() -> TuningName {
    TuningName::All
}

fn flash() -> AttentionName {
    AttentionName::Flash
}

/// Number formats, bits a value; mixed precision where it is not said.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PrecisionFile {
    /// Products of a layer.
    pub math: MathName,
    /// Attention's scores; at least FP16 where it is not said.
    pub attention: Option<MathName>,
    /// The output projection; at least FP16 where it is not said.
    pub vocabulary: Option<MathName>,
    pub weights: f64,
    pub activations: f64,
    /// Gradients in memory; what the framework says where it is not said.
    pub gradients: Option<f64>,
    /// Gradients on the wire; what the framework says where it is not said.
    pub gradient_reduce: Option<f64>,
    pub kv: f64,
    /// Bytes a parameter; what the framework says where it is not said.
    pub optimizer_bytes: Option<f64>,
}

impl Default for PrecisionFile {
    fn default() -> Self {
        let mixed = Precision::MIXED;
        Self {
            math: MathName::Fp16,
            attention: None,
            vocabulary: None,
            weights: mixed.weight_bits,
            activations: mixed.activation_bits,
            gradients: None,
            gradient_reduce: None,
            kv: mixed.kv_bits,
            optimizer_bytes: None,
        }
    }
}

impl PrecisionFile {
    fn resolve(&self, usual: &StatesFile) -> Precision {
        let mixed = Precision::MIXED;
        let of = |stated: Option<f64>, usual: Option<f64>, mixed| stated.or(usual).unwrap_or(mixed);
        Precision {
            math: self.math.resolve(),
            attention: self.attention.map_or(self.math.resolve().at_least_fp16(), |math| math.resolve()),
            vocabulary: self.vocabulary.map_or(self.math.resolve().at_least_fp16(), |math| math.resolve()),
            weight_bits: self.weights,
            activation_bits: self.activations,
            gradient_bits: of(self.gradients, usual.gradients, mixed.gradient_bits),
            gradient_reduce_bits: of(self.gradient_reduce, usual.gradient_reduce, mixed.gradient_reduce_bits),
            kv_bits: self.kv,
            optimizer_bytes_per_parameter: of(
                self.optimizer_bytes,
                usual.optimizer_bytes,
                mixed.optimizer_bytes_per_parameter,
            ),
        }
    }
}

/// Bits a value after compression, by class of traffic; raw where it is not said.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CompressionFile {
    pub weights: Option<f64>,
    pub weight_gradients: Option<f64>,
    pub activations: Option<f64>,
    pub activation_gradients: Option<f64>,
    pub kv: Option<f64>,
    pub reduction: ReductionName,
    pub scope: ScopeName,
    pub policy: PolicyName,
}

impl Default for CompressionFile {
    fn default() -> Self {
        Self {
            weights: None,
            weight_gradients: None,
            activations: None,
            activation_gradients: None,
            kv: None,
            reduction: ReductionName::PerHop,
            scope: ScopeName::BetweenNodes,
            policy: PolicyName::WhenFaster,
        }
    }
}

impl CompressionFile {
    fn resolve(&self) -> Compression {
        Compression {
            weight_bits: self.weights,
            weight_gradient_bits: self.weight_gradients,
            activation_bits: self.activations,
            activation_gradient_bits: self.activation_gradients,
            kv_bits: self.kv,
            reduction: self.reduction.resolve(),
            scope: self.scope.resolve(),
            policy: self.policy.resolve(),
        }
    }

    /// Whether nothing is compressed.
    pub fn is_raw(&self) -> bool {
        self.bits().iter().all(|(_, bits)| bits.is_none())
    }

    /// Each class of traffic by the name of its key, and its bits.
    pub fn bits(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("weights", self.weights),
            ("weight-gradients", self.weight_gradients),
            ("activations", self.activations),
            ("activation-gradients", self.activation_gradients),
            ("kv", self.kv),
        ]
    }
}

impl JobFile {
    /// The model's view; `usual` is the overlap of what the file does not state.
    pub fn resolve(&self, usual: Overlap) -> Job {
        let framework = self.training_framework();
        let mut parallelism = self.parallelism.resolve(framework.and_then(|own| own.zero).unwrap_or(0));
        let both_ways = framework.is_some_and(FrameworkFile::both_ways);
        if both_ways && (parallelism.pipeline > 1 || self.parallelism.search().on) {
            parallelism.schedule = Schedule::DualPipe;
        }
        let usual = framework.map_or(usual, |framework| framework.overlap.resolve(usual));
        let states = framework.map(|framework| framework.precision.clone()).unwrap_or_default();
        let mut job = Job {
            llm: self.llm.resolve(),
            phase: self.phase.resolve(),
            tuning: self.tuning.resolve(),
            sequence: self.sequence,
            global_batch: self
                .replica_batch
                .map_or(self.global_batch, |each| each.saturating_mul(parallelism.data)),
            microbatch: self.microbatch.unwrap_or(1),
            parallelism,
            precision: self.precision.resolve(&states),
            recompute: self.recompute().and_then(RecomputeName::stated).unwrap_or(Recompute::None),
            attention: self.attention.resolve(),
            overlap: self.overlap.resolve(usual),
            compression: self.compression.resolve(),
            expert_imbalance: self.expert_imbalance.get(),
            kv_spill: self.kv_spill.get(),
            kv_transfer: self.kv_transfer.get(),
        };
        if self.microbatch_follows() {
            job.microbatch = job.decoded_together();
        }
        job
    }

    /// Whether the micro-batch is whatever a stage decodes together.
    pub fn microbatch_follows(&self) -> bool {
        self.microbatch.is_none() && self.phase.resolve() == Phase::Decode
    }

    /// The framework, where the job is one that it runs.
    fn training_framework(&self) -> Option<&FrameworkFile> {
        self.framework.as_ref().filter(|_| self.phase.resolve() == Phase::Training)
    }

    /// What is recomputed, as the job or else its framework says.
    fn recompute(&self) -> Option<RecomputeName> {
        self.recompute.or_else(|| self.training_framework()?.recompute)
    }

    /// What of the layout is left to be chosen.
    pub fn search(&self) -> Search {
        let search = self.parallelism.search();
        if !search.on && self.recompute() == Some(RecomputeName::Least) {
            return Search::RECOMPUTE;
        }
        let one_chunk = self.framework.as_ref().is_some_and(FrameworkFile::one_chunk);
        Search {
            microbatch: self.microbatch.unwrap_or(0),
            recompute: self.recompute().and_then(RecomputeName::stated),
            interleave: if one_chunk && search.interleave == 0 { 1 } else { search.interleave },
            ..search
        }
    }

    /// Complains about what the framework cannot do.
    fn check_framework(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let Some(framework) = &self.framework else { return Ok(()) };
        framework.check_at(&at.table("framework"))?;
        let chunks = self.parallelism.interleave().unwrap_or(1);
        if chunks > 1 && framework.one_chunk() {
            let what = format_args!("the framework does not interleave {chunks} chunks on a stage");
            return at.refuse("parallelism.interleave", what, "1, or a framework that does");
        }
        Ok(())
    }

    pub(super) fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let precision = &self.precision;
        let positive = at.positive(&[
            ("sequence", f64::from(self.sequence)),
            ("global-batch", f64::from(self.global_batch)),
            ("replica-batch", f64::from(self.replica_batch.unwrap_or(1))),
            ("microbatch", f64::from(self.microbatch.unwrap_or(1))),
            ("precision.weights", precision.weights),
            ("precision.activations", precision.activations),
            ("precision.gradients", precision.gradients.unwrap_or(1.0)),
            ("precision.gradient-reduce", precision.gradient_reduce.unwrap_or(1.0)),
            ("precision.kv", precision.kv),
        ]);
        let even = self.expert_imbalance.get();
        let imbalance = (!(even >= 1.0 && even.is_finite()))
            .then(|| at.refuse("expert-imbalance", "the busiest rank has less than the mean", "1 or more"));
        let outside = |bits: Option<f64>| bits.is_some_and(|bits| !(bits > 0.0 && bits <= 32.0));
        let compression = at.table("compression");
        let bits = self.compression.bits().into_iter().filter(|(_, bits)| outside(*bits)).map(|(key, _)| {
            compression.refuse(key, "not a number of bits a value", "more than 0 and at most 32")
        });
        let parts = [
            self.llm.check_at(&at.table("llm")),
            positive,
            self.parallelism.check_at(&at.table("parallelism")),
            self.check_framework(at),
        ];
        Diagnostic::gather(parts.into_iter().chain(imbalance).chain(bits))
    }
}
