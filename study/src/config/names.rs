//! The names of choices in configuration files.

use trinity_sim::Recompute;

/// One of a few names.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        $crate::config::setter::values!($name);
    )*};
}
pub(super) use names;

/// One of a few names that a model has too.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident => $model:path { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? })*) => {$(
        $crate::config::names::names! {
            $(#[$doc])*
            $name { $($(#[$vdoc])* $variant),+ }
        }

        impl $name {
            pub fn resolve(self) -> $model {
                match self { $(Self::$variant => <$model>::$variant),+ }
            }
        }
    )*};
}
pub(super) use choices;

choices! {
    /// How ranks are wired.
    TopologyName => trinity_sim::collective::Topology { Ring, Switch, FullyConnected }
    /// How an all-reduce is carried out.
    AlgorithmName => trinity_sim::collective::Algorithm { Ring, HalvingDoubling, DoubleTree, Direct, Best, Hierarchical, InNetwork, Nccl }
    /// Number format of matrix arithmetic.
    MathName => trinity_sim::Math { Fp32, Fp16, Fp8, Fp4 }
    /// Which weights a training step changes.
    TuningName => trinity_sim::Tuning { All, Adapters }
    /// How layers are dealt out to pipeline stages.
    SplitName => trinity_sim::Split { Layers, Work }
    /// How attention is computed.
    AttentionName => trinity_sim::AttentionKernel { Materialized, Flash }
    /// What is done with the model.
    PhaseName => trinity_sim::Phase { Training, Prefill, Decode }
    /// The feed-forward block.
    MlpName => trinity_sim::Mlp { Gelu, SwiGlu }
    /// Whether input and output embeddings are one matrix.
    VocabularyName => trinity_sim::Vocabulary { Tied, Untied }
    /// What compression does to a sum over ranks.
    ReductionName => trinity_sim::Reduction { PerHop, Gather }
    /// Which wires carry compressed traffic.
    ScopeName => trinity_sim::compression::Scope { BetweenNodes, Everywhere }
    /// Whether a message may stay raw.
    PolicyName => trinity_sim::compression::Policy { Always, WhenFaster }
    /// Which of Table 3's two energy columns is used.
    EnergyName => trinity_silicon::EnergyColumn { Printed, PowerOverThroughput }
}

names! {
    /// What activations are computed again in the backward pass.
    RecomputeName {
        None,
        Selective,
        Full,
        /// The least of them with which the job fits in memory.
        Least,
    }
}

impl RecomputeName {
    /// The recomputation, or nothing where it is chosen.
    pub fn stated(self) -> Option<Recompute> {
        match self {
            Self::None => Some(Recompute::None),
            Self::Selective => Some(Recompute::Selective),
            Self::Full => Some(Recompute::Full),
            Self::Least => None,
        }
    }
}
