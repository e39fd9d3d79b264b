//! The kinds of reason for which a point is turned away, for counting them.
//!
//! [`Infeasible`](crate::Infeasible) carries the numbers of one point; a sweep
//! of millions counts kinds.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// Why a point does not count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason { $($(#[$doc])* $variant),+ }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name used in tables and columns.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

reasons! {
    NotPositive = "not positive",
    NoFormat = "number format",
    GpuCount = "GPU count",
    Heads = "heads",
    KvHeads = "KV heads",
    Stages = "stages",
    Interleave = "interleave",
    Batch = "batch",
    Experts = "experts",
    Context = "context",
    NoNic = "no NIC",
    NoCodec = "no codec",
    ZeroWithPipeline = "ZeRO-3 with pipeline",
    Reticle = "reticle",
    DieEdge = "die edge",
    Clock = "clock",
    Power = "power limit",
    Memory = "memory",
    /// It runs, but breaks a constraint of the sweep.
    Constraint = "constraint",
}

impl Reason {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Reasons go by name, as tables list them.
impl Ord for Reason {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for Reason {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format_args!("there is no reason `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_by_its_name() {
        for &reason in Reason::ALL {
            assert_eq!(Reason::named(reason.name()), Some(reason));
        }
        assert_eq!(Reason::named("weather"), None);
    }
}
