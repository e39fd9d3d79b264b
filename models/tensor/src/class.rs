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
