//! Codecs in software: what an encoder may choose from.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Complaint, Diagnostic};

/// A codec's profile, which says what its encoder may choose from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ProfileFile(pub trinity_codec::Profile);

impl Checked for ProfileFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        self.0.candidates().map(drop).map_err(|error| at.complain("stages", &Complaint::new(error)))
    }
}
