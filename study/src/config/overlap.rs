//! What hides behind compute, as a job or its framework says.

use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::Fraction;
use trinity_sim::Overlap;

settable! {
    OverlapFile { tensor, pipeline, data, gather, expert, context, storage }
}

/// Share of each communication that may hide behind compute; what the framework,
/// then the GPU's calibration says where it is not said, and none without one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OverlapFile {
    pub tensor: Option<Fraction>,
    pub pipeline: Option<Fraction>,
    /// Reducing gradients.
    pub data: Option<Fraction>,
    /// Gathering weights that data-parallel ranks share out; as `data` where only that is said.
    pub gather: Option<Fraction>,
    pub expert: Option<Fraction>,
    pub context: Option<Fraction>,
    pub storage: Option<Fraction>,
}

impl OverlapFile {
    pub(super) fn resolve(&self, usual: Overlap) -> Overlap {
        let of = |stated: Option<Fraction>, usual: f64| stated.map_or(usual, |share| share.get());
        Overlap {
            tensor: of(self.tensor, usual.tensor),
            pipeline: of(self.pipeline, usual.pipeline),
            data: of(self.data, usual.data),
            gather: of(self.gather.or(self.data), usual.gather),
            expert: of(self.expert, usual.expert),
            context: of(self.context, usual.context),
            storage: of(self.storage, usual.storage),
        }
    }
}
