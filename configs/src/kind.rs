//! What kinds of configuration there are, for `config check` and `config schema`.
//!
//! The types belong to their consumers (a GPU to the simulator, a codec's area
//! to the silicon model); here is only how to ask one of them about a document.

use crate::{diagnostic::Diagnostic, document::Document};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;

/// What a type can judge beyond what its fields' types say.
pub trait Checked {
    /// Complains about combinations no single field shows, such as more
    /// pipeline stages than layers; see [`Document::complain`].
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let _ = document;
        Ok(())
    }
}

/// A kind of configuration: the folder its files live in, and the type that reads them.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What the kind is called: its folder under `configs/`, such as `gpus`.
    pub name: &'static str,
    /// What one file describes, in a few words.
    pub describes: &'static str,
    schema: fn() -> serde_json::Value,
    check: fn(&Document) -> Result<(), Diagnostic>,
}

impl Kind {
    /// The kind whose files are read as `T`.
    pub const fn of<T: DeserializeOwned + JsonSchema + Checked>(
        folder: &'static str,
        describes: &'static str,
    ) -> Self {
        Self {
            name: folder,
            describes,
            schema: || schema_for!(T).to_value(),
            check: |document| document.read::<T>()?.check(document),
        }
    }

    /// The JSON schema of the type: with the reserved keys `extends` and
    /// `source` allowed in every table, and nothing required, since a file may
    /// leave to what it extends whatever it does not say itself.
    pub fn schema(&self) -> serde_json::Value {
        let mut schema = (self.schema)();
        loosen(&mut schema);
        schema
    }

    /// Reads the document as this kind and judges it.
    pub fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        (self.check)(document)
    }
}

fn loosen(schema: &mut serde_json::Value) {
    let is_table = schema.get("properties").is_some_and(|members| members.get("value").is_none());
    if let Some(fields) = schema.as_object_mut() {
        if is_table {
            fields.remove("required");
            if let Some(members) = fields.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
                let name = serde_json::json!({ "type": "string" });
                let names = serde_json::json!({ "type": ["string", "array"], "items": name });
                members.insert("extends".into(), names);
                members.insert("source".into(), name);
            }
        }
        fields.values_mut().for_each(loosen);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(loosen);
    }
}
