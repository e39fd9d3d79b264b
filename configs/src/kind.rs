//! What kinds of configuration there are, for `config check` and `config schema`.
//!
//! The types belong to their consumers (a GPU to the simulator, a codec's area
//! to the silicon model); here is only how to ask one of them about a document.

use crate::{
    diagnostic::{Complaint, Diagnostic},
    document::Document,
};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt;

/// What a type can judge beyond what its fields' types say.
pub trait Checked: Sized {
    /// Complains about combinations no single field shows, such as more
    /// pipeline stages than layers; `at` is the table that was read.
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let _ = at;
        Ok(())
    }

    /// [`Checked::check_at`] of a whole document.
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        self.check_at(&document.whole())
    }

    /// The configuration of that name, read and judged.
    fn load(name: &str) -> Result<Self, Diagnostic>
    where
        Self: DeserializeOwned,
    {
        Document::load(name)?.checked()
    }
}

impl Document {
    /// The outermost table, to be judged.
    pub fn whole(&self) -> At<'_> {
        At { document: self, path: String::new() }
    }

    /// The configuration as a type of the caller's, judged by it.
    pub fn checked<T: DeserializeOwned + Checked>(&self) -> Result<T, Diagnostic> {
        let read: T = self.read()?;
        read.check(self)?;
        Ok(read)
    }
}

/// A table of a document that is being judged; mistakes go by its keys.
#[derive(Debug, Clone)]
pub struct At<'a> {
    pub(crate) document: &'a Document,
    /// The keys that lead to the table, a dot behind each.
    pub(crate) path: String,
}

impl At<'_> {
    /// The table under a key.
    pub fn table(&self, key: impl fmt::Display) -> Self {
        Self { document: self.document, path: format!("{}{key}.", self.path) }
    }

    /// A diagnostic that points at the value under a key, or at the table where
    /// the key is empty; see [`Document::complain`].
    pub fn complain(&self, key: impl fmt::Display, complaint: &Complaint) -> Diagnostic {
        self.document.complain(format!("{}{key}", self.path).trim_end_matches('.'), complaint)
    }

    /// Refuses the value under a key.
    pub fn refuse<T>(
        &self,
        key: impl fmt::Display,
        what: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Result<T, Diagnostic> {
        Err(self.complain(key, &Complaint::new(what).expected(expected)))
    }

    /// Refuses each of `values` that is not a positive number.
    pub fn positive<K: fmt::Display>(&self, values: &[(K, f64)]) -> Result<(), Diagnostic> {
        let wrong = values.iter().filter(|(_, value)| !(*value > 0.0 && value.is_finite()));
        let refused =
            |(key, value): &(K, f64)| self.refuse(key, format_args!("`{key}` is {value}"), "more than zero");
        Diagnostic::gather(wrong.map(refused))
    }
}

/// A kind of configuration: the folder its files live in, and the type that reads them.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What the kind is called: its folder under `configs/`, such as `gpus`.
    pub name: &'static str,
    /// What one file describes, in a few words.
    pub describes: &'static str,
    schema: fn() -> Value,
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
            check: |document| document.checked::<T>().map(drop),
        }
    }

    /// The JSON schema of the type: with the reserved keys `extends` and
    /// `source` allowed in every table, every value also as `{ value = …,
    /// source = "…" }`, and nothing required, since a file may leave to what it
    /// extends whatever it does not say itself.
    pub fn schema(&self) -> Value {
        let mut schema = (self.schema)();
        let shared = schema["$defs"].clone();
        loosen(&mut schema, &shared);
        schema
    }

    /// Reads the document as this kind and judges it.
    pub fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        (self.check)(document)
    }
}

/// `shared` are the definitions that schemas refer to.
fn loosen(schema: &mut Value, shared: &Value) {
    let is_table = schema.get("properties").is_some_and(|members| members.get("value").is_none());
    if let Some(fields) = schema.as_object_mut() {
        fields.values_mut().for_each(|field| loosen(field, shared));
        if is_table {
            fields.remove("required");
            if let Some(members) = fields.get_mut("properties").and_then(Value::as_object_mut) {
                members.values_mut().filter(|member| is_value(member, shared)).for_each(cite);
                let name = json!({ "type": "string" });
                members.insert("extends".into(), json!({ "type": ["string", "array"], "items": name }));
                members.insert("source".into(), name);
            }
        }
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(|item| loosen(item, shared));
    }
}

/// Whether a schema is of a count, a name or a list of them, and not of a table.
fn is_value(schema: &Value, shared: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return is_value(&shared[name], shared);
    }
    if let Some(choices) = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array) {
        return choices.iter().all(|choice| is_value(choice, shared));
    }
    let is = |kind: &str| {
        schema["type"] == kind || schema["type"].as_array().is_some_and(|all| all.contains(&kind.into()))
    };
    if is("object") {
        return schema.get("properties").is_none() && is_value(&schema["additionalProperties"], shared);
    }
    let items = schema.get("items").filter(|_| is("array"));
    schema.get("type").is_some() && items.is_none_or(|items| is_value(items, shared))
}

/// Lets a value be written with its source; the loader has taken the two apart
/// by the time a type sees it.
fn cite(value: &mut Value) {
    let fields = value.as_object_mut().map(std::mem::take).unwrap_or_default();
    let (about, plain): (Map<_, _>, Map<_, _>) =
        fields.into_iter().partition(|(key, _)| ["description", "default"].contains(&key.as_str()));
    *value = with_source(&plain.into());
    value.as_object_mut().into_iter().for_each(|fields| fields.extend(about.clone()));
}

/// The schema of a value that may also be written with its source.
pub(crate) fn with_source(plain: &Value) -> Value {
    json!({ "anyOf": [
        plain,
        {
            "type": "object",
            "properties": { "value": plain, "source": { "type": "string" }, "note": { "type": "string" } },
            "required": ["value"],
            "additionalProperties": false,
        },
    ]})
}
