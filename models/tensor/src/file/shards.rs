//! A sharded set through its `*.safetensors.index.json` (or PyTorch's
//! `*.bin.index.json`), and a model's folder through whatever it holds.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::contents::TensorFile;
use super::entry::Entry;
use super::formats;
use super::origin::Origin;
use super::source::Source;
use crate::Error;

pub(crate) const FORMAT: &str = "safetensors index";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// What a shard's name without its ending says: `model-00001-of-00003` is the first of three of `model`.
pub fn shard_of(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, total) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let number_of = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    Some((stem, number_of(number)?, number_of(total)?))
}

/// The tensors that an index, or a model's configuration with its tensors beside it, stands for.
pub(super) fn open(path: &Path) -> Result<TensorFile, Error> {
    let bytes = read_bytes(path).map_err(|error| error.in_file(path))?;
    let index: Index = match serde_json::from_slice(&bytes) {
        Ok(index) => index,
        Err(error) => {
            return match beside(path)?.as_slice() {
                [] => Err(Error::malformed(FORMAT, 0, error.to_string()).in_file(path)),
                [whole] => formats::open(whole),
                shards => joined(shards),
            };
        }
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shards: BTreeMap<&str, TensorFile> = BTreeMap::new();
    for shard in index.weight_map.values() {
        is_plain(shard).map_err(|error| error.in_file(path))?;
        if !shards.contains_key(shard.as_str()) {
            let file = folder.join(shard);
            let opened = Source::open(&file).and_then(|source| formats::parse(&source, "tensor"));
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
                    return Err(Error::malformed(FORMAT, 0, problem).in_file(path));
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
    let origin = Some(Origin::Index(bytes));
    Ok(TensorFile { format: FORMAT, entries, metadata, lists: None, origin })
}

/// An index names files beside itself; anything else is an attempt to make us open, or write, files elsewhere.
pub(crate) fn is_plain(shard: &str) -> Result<(), Error> {
    let mut parts = Path::new(shard).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(()),
        _ => Err(Error::malformed(FORMAT, 0, format!("shard `{shard}` is not a plain file name"))),
    }
}

/// The files that a configuration `small.json` names: `small.safetensors`, or all of `small-1-of-2.safetensors`.
fn beside(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let whole = path.with_extension("safetensors");
    if whole.exists() {
        return Ok(vec![whole]);
    }
    let stem = path.file_stem().unwrap_or_default();
    let mut shards: Vec<PathBuf> = files_of(path.parent().unwrap_or(Path::new("")))?;
    // Of how many it is one.
    let total = |shard: &PathBuf| {
        let is_one = shard.extension() == Some("safetensors".as_ref());
        let (own, _, total) = shard_of(shard.file_stem()?.to_str()?)?;
        (is_one && stem == own).then_some(total)
    };
    shards.retain(|shard| total(shard).is_some());
    if let Some(total) = shards.first().and_then(total)
        && shards.len() != total as usize
    {
        let problem = format!("{} of its {total} shards are beside it", shards.len());
        return Err(Error::malformed("model of shards", 0, problem).in_file(path));
    }
    Ok(shards)
}

/// What a folder holds, sorted.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut files: Vec<PathBuf> = std::fs::read_dir(read)
        .and_then(|items| items.map(|item| item.map(|item| item.path())).collect())
        .map_err(|error| Error::io("reading the folder")(error).in_file(folder))?;
    files.sort();
    Ok(files)
}

/// The tensors of a folder: through its index where it has one; otherwise
/// `model.safetensors`, every other safetensors file, or PyTorch's files.
pub(super) fn open_folder(folder: &Path) -> Result<TensorFile, Error> {
    let files = files_of(folder)?;
    let ends = |path: &Path, end: &str| path.file_name().is_some_and(|n| n.to_string_lossy().ends_with(end));
    let first = |end: &str| files.iter().find(|path| ends(path, end));
    if let Some(index) = first(".safetensors.index.json").or_else(|| first(".bin.index.json")) {
        return open(index);
    }
    let all = |ends_with: &[&str]| -> Vec<&PathBuf> {
        files.iter().filter(|path| ends_with.iter().any(|end| ends(path, end))).collect()
    };
    let whole =
        first("model.safetensors").filter(|path| path.file_name() == Some("model.safetensors".as_ref()));
    let chosen: Vec<&PathBuf> = match (whole, all(&[".safetensors"])) {
        (Some(whole), _) => vec![whole],
        (None, parts) if !parts.is_empty() => parts,
        _ => all(&[".bin", ".pt", ".pth"]),
    };
    if chosen.is_empty() {
        let why = "a folder with no .safetensors, .bin, .pt or .pth file and no index of such in it";
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, why);
        return Err(Error::io("looking for tensors")(source).in_file(folder));
    }
    joined(&chosen)
}

/// All tensors of these files, each of which has names of its own.
fn joined(files: &[impl AsRef<Path>]) -> Result<TensorFile, Error> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut metadata = BTreeMap::new();
    let mut names = std::collections::HashSet::new();
    for path in files.iter().map(AsRef::as_ref) {
        let file = formats::open(path)?;
        if let Some(twice) = file.entries().iter().find(|entry| !names.insert(entry.name().to_owned())) {
            return Err(Error::DuplicateName { name: twice.name().to_owned() }.in_file(path));
        }
        entries.extend(file.entries);
        metadata.extend(file.metadata);
    }
    Ok(TensorFile { format: "folder", entries, metadata, lists: None, origin: None })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let source = Source::open(path)?;
    source.bytes(FORMAT, 0, source.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shards_name_says_which_of_how_many_it_is() {
        assert_eq!(shard_of("small-1-of-2"), Some(("small", 1, 2)));
        assert_eq!(shard_of("model-00001-of-00030"), Some(("model", 1, 30)));
        for other in ["two-of-a-kind", "model", "model-+1-of-3", "model--of-3", "a-1-of-99999999999"] {
            assert_eq!(shard_of(other), None, "{other}");
        }
    }
}
