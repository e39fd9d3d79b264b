//! A sharded safetensors set through its `*.safetensors.index.json`.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Deserialize;

use super::source::Source;
use super::{TensorFile, safetensors};
use crate::Error;

const FORMAT: &str = "safetensors index";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

pub(super) fn open(path: &Path) -> Result<TensorFile, Error> {
    let index = read_index(path).map_err(|error| error.in_file(path))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shards: BTreeMap<&str, TensorFile> = BTreeMap::new();
    for shard in index.weight_map.values() {
        // An index names files beside itself; anything else is an attempt to
        // make us open files elsewhere.
        let mut components = Path::new(shard).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            let problem = format!("shard `{shard}` is not a plain file name");
            return Err(Error::Malformed { format: FORMAT, offset: 0, problem }.in_file(path));
        }
        if !shards.contains_key(shard.as_str()) {
            let file = folder.join(shard);
            let opened = Source::open(&file).and_then(|source| safetensors::parse(&source));
            shards.insert(shard, opened.map_err(|error| error.in_file(&file))?);
        }
    }
    let mut entries = Vec::with_capacity(index.weight_map.len());
    for (shard, file) in &shards {
        for entry in file.entries() {
            match index.weight_map.get(entry.name()) {
                Some(home) if home == shard => entries.push(entry.clone()),
                _ => {
                    let problem =
                        format!("tensor `{}` of shard `{shard}` is not indexed there", entry.name());
                    return Err(Error::Malformed { format: FORMAT, offset: 0, problem }.in_file(path));
                }
            }
        }
    }
    if entries.len() != index.weight_map.len() {
        let held = |name: &&String| entries.iter().any(|entry| entry.name() == name.as_str());
        let name = index.weight_map.keys().find(|name| !held(name)).cloned().unwrap_or_default();
        return Err(Error::NoSuchTensor { name }.in_file(path));
    }
    let metadata = shards.into_values().flat_map(|file| file.metadata).collect();
    Ok(TensorFile { format: FORMAT, entries, metadata })
}

fn read_index(path: &Path) -> Result<Index, Error> {
    let source = Source::open(path)?;
    let bytes = source.bytes(FORMAT, 0, source.len())?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Malformed {
        format: FORMAT,
        offset: 0,
        problem: error.to_string(),
    })
}
