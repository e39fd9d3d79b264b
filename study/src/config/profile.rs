//! Codecs in software: what an encoder may choose from.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{Checked, Complaint, Diagnostic, Document};

/// A codec's profile, which says what its encoder may choose from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ProfileFile(pub trinity_codec::Profile);

impl Checked for ProfileFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        match self.0.candidates() {
            Ok(_) => Ok(()),
            Err(error) => Err(document.complain("stages", &Complaint::new(error))),
        }
    }
}
