//! What measured kernels reach of the rates that a GPU states.

use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::Fraction;
use trinity_sim::ByFormat;

settable! {
    SustainedFile { fp16, fp8, fp4, attention }
}

/// What the fastest kernel measured on a GPU reaches of the rates it states.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SustainedFile {
    /// Matrix products in FP16 or BF16, over `fp16`.
    pub fp16: Fraction,
    /// In FP8, over `fp8`.
    pub fp8: Fraction,
    /// In FP4, over `fp4`.
    pub fp4: Option<Fraction>,
    /// The forward pass of causal attention with heads of 128, over `fp16`.
    pub attention: Fraction,
}

impl SustainedFile {
    /// Fractions of peak that products reach.
    pub fn rates(&self) -> ByFormat {
        ByFormat {
            fp16: self.fp16.get(),
            fp8: self.fp8.get(),
            fp4: self.fp4.map_or(1.0, |fraction| fraction.get()),
        }
    }
}
