//! A sharded folder as it was: which file each tensor goes into, and the index.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Stored, Written};
use crate::Error;
use crate::file::{INDEX as FORMAT, is_plain};

/// What an index is called.
const INDEX_NAME: &str = "model.safetensors.index.json";

/// The index of a folder.
#[derive(Debug, Clone)]
pub struct Shards {
    text: Vec<u8>,
    index: Value,
    homes: BTreeMap<String, String>,
}

impl Shards {
    /// The name that the index of a folder has.
    pub const INDEX_NAME: &'static str = INDEX_NAME;

    /// An index out of its bytes.
    ///
    /// # Errors
    ///
    /// Where it is none, or names files elsewhere.
    pub fn parse(text: Vec<u8>) -> Result<Self, Error> {
        let malformed = |problem: String| Error::malformed(FORMAT, 0, problem);
        let index: Value = serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
        let map = index["weight_map"].as_object().ok_or_else(|| malformed("it has no weight_map".into()))?;
        let mut homes = BTreeMap::new();
        for (name, home) in map {
            let home = home.as_str().unwrap_or_default();
            is_plain(home)?;
            // PyTorch's shards become safetensors.
            let stem = home.strip_suffix(".bin").map(|stem| format!("{stem}.safetensors"));
            homes.insert(name.clone(), stem.unwrap_or_else(|| home.to_owned()));
        }
        Ok(Self { text, index, homes })
    }

    /// Tensors by the file that each goes into; one that the index does not name goes into the last.
    pub fn deal<'a>(&self, tensors: &[Written<'a>]) -> BTreeMap<String, Vec<Written<'a>>> {
        let last = self.homes.values().max().cloned().unwrap_or_else(|| "model.safetensors".to_owned());
        let mut dealt: BTreeMap<String, Vec<Written<'a>>> = BTreeMap::new();
        for tensor in tensors {
            let home = self.homes.get(tensor.entry.name()).unwrap_or(&last);
            dealt.entry(home.clone()).or_default().push(*tensor);
        }
        dealt
    }

    /// The index of what was dealt: the very bytes that it had, where it says the same.
    pub fn text(&self, dealt: &BTreeMap<String, Vec<Written<'_>>>) -> Vec<u8> {
        let tensors = dealt.iter().flat_map(|(home, own)| own.iter().map(move |one| (home, one)));
        let map: serde_json::Map<String, Value> =
            tensors.clone().map(|(home, one)| (one.entry.name().to_owned(), home.clone().into())).collect();
        let bytes: usize = tensors.map(|(_, one)| one.stored.bytes(one.entry.len())).sum();
        let size = &self.index["metadata"]["total_size"];
        let same_map = self.index["weight_map"].as_object().is_some_and(|own| {
            own.len() == map.len() && own.iter().all(|(name, home)| map.get(name) == Some(home))
        });
        let is_plain = |one: &Written<'_>| one.stored == Stored::Plain(one.entry.dtype());
        if same_map && dealt.values().flatten().all(is_plain) {
            return self.text.clone();
        }
        let mut index = self.index.clone();
        index["weight_map"] = Value::Object(map);
        if !size.is_null() {
            index["metadata"]["total_size"] = bytes.into();
        }
        let mut text = serde_json::to_vec_pretty(&index).unwrap_or_default();
        text.push(b'\n');
        text
    }
}
