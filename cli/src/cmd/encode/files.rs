//! The small files of a model's folder, which a container may carry: without its
//! configuration and tokenizer no engine loads a model.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use trinity_tensor::TensorFile;

use crate::failure::Failure;
use crate::shards::unread;
use crate::tensor_files::bad_input;

/// Endings of files that are texts.
const TEXTS: [&str; 3] = ["json", "txt", "jinja"];
/// Bytes of a file that is still small: tokenizers of 260,000 tokens take 35 MB.
const SMALL_BYTES: u64 = 64 << 20;

/// The same tensors, with the texts that lie in their folder.
pub fn carried(file: TensorFile, folder: &Path) -> Result<TensorFile, Failure> {
    if !folder.is_dir() {
        return Err(Failure::input(format_args!(
            "--files carries what lies in a model's folder, and {} is a file",
            folder.display()
        ))
        .help("name the folder"));
    }
    let unread = |error| unread(folder, error);
    let mut files = BTreeMap::new();
    for item in fs::read_dir(folder).map_err(unread)? {
        let path = item.map_err(unread)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let small = fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() <= SMALL_BYTES);
        // The index of shards is kept as such.
        if !TEXTS.contains(&ending) || name.ends_with(".index.json") || !small {
            continue;
        }
        let text = fs::read(&path).map_err(unread)?;
        if let Ok(text) = String::from_utf8(text) {
            files.insert(name.to_owned(), text);
        }
    }
    file.with_files(&files).map_err(|error| bad_input(&folder.display().to_string(), &error))
}
