//! What a tensor is for: codecs and clusters treat traffic by class.

use serde::{Deserialize, Serialize};

/// The classes of tensor the paper compresses (LLM.265 §4–5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Weight,
    KvCache,
    Activation,
    WeightGradient,
    ActivationGradient,
    Other,
}

impl Class {
    /// Every class, in the order tables show them.
    pub const ALL: [Self; 6] = [
        Self::Weight,
        Self::KvCache,
        Self::Activation,
        Self::WeightGradient,
        Self::ActivationGradient,
        Self::Other,
    ];

    /// The name used in files, tables and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::KvCache => "kv-cache",
            Self::Activation => "activation",
            Self::WeightGradient => "weight-gradient",
            Self::ActivationGradient => "activation-gradient",
            Self::Other => "other",
        }
    }

    /// The class a tensor's name suggests, by the names that common training
    /// and inference code gives; `Other` where nothing matches.
    pub fn from_name(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let names_a_parameter =
            has(&["weight", "bias", "_proj", "embed", "norm", "lm_head", "mlp", "attn", "wte", "wpe"]);
        let caches = ["k_cache", "v_cache", "key_cache", "value_cache", "past_key", "past_value", "kvcache"];
        if has(&["grad"]) {
            if names_a_parameter { Self::WeightGradient } else { Self::ActivationGradient }
        } else if has(&caches) {
            Self::KvCache
        } else if has(&["activation", "hidden_state", "residual_stream", "boundary"]) {
            Self::Activation
        } else if names_a_parameter {
            Self::Weight
        } else {
            Self::Other
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| {
            format!("`{name}` is no tensor class; expected one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_captured_and_public_models_tell_their_class() {
        for (name, class) in [
            ("layers.6.up_proj.weight", Class::Weight),
            ("blk.0.attn_q.weight", Class::Weight),
            ("finetune.layers.6.k_proj.base", Class::Weight),
            ("layers.0.k_cache", Class::KvCache),
            ("past_key_values.3", Class::KvCache),
            ("boundary.2.activation", Class::Activation),
            ("layers.6.k_proj.weight.grad.step100", Class::WeightGradient),
            ("boundary.5.grad.final", Class::ActivationGradient),
            ("x", Class::Other),
        ] {
            assert_eq!(Class::from_name(name), class, "{name}");
        }
    }
}
