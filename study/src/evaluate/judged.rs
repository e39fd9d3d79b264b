//! A file that was made of a model, held against the model itself.

use crate::Error;
use std::path::Path;
use trinity_lm::{Checkpoint, Model};
use trinity_tensor::TensorFile;

/// A model's tensors out of another file.
#[derive(Debug)]
pub(super) struct Judged {
    pub model: Model,
    pub name: String,
    /// What it takes on disk, and how many values it holds.
    pub bytes: u64,
    pub values: u64,
    /// A hash of what it holds.
    pub content: u64,
}

impl Judged {
    /// The tensors at `path` in place of `original`'s.
    pub fn open(path: &Path, original: &Checkpoint) -> Result<Self, Error> {
        let subject = path.display().to_string();
        let failed = |error| Error::Tensor { subject: subject.clone(), error };
        let file = TensorFile::open(path).map_err(failed)?;
        let mut tied = std::collections::HashSet::new();
        // A tensor that refers to another begins where that one does.
        let held =
            file.entries().iter().filter(|entry| file.format() != "tri" || tied.insert(entry.offset()));
        let values = held.map(|entry| entry.len() as u64).sum();
        let checkpoint = original.holding(file)?;
        let content = checkpoint.content()?;
        let bytes = bytes_on_disk(path).map_err(|error| Error::unreadable(path, error))?;
        Ok(Self { model: Model::load(&checkpoint)?, name: subject, bytes, values, content })
    }
}

/// Bytes of a file, or of a folder's tensor files.
fn bytes_on_disk(path: &Path) -> std::io::Result<u64> {
    if !path.is_dir() {
        return Ok(std::fs::metadata(path)?.len());
    }
    let mut bytes = 0;
    for item in std::fs::read_dir(path)? {
        let item = item?;
        if item.path().extension().is_some_and(|ending| ending == "safetensors") {
            bytes += item.metadata()?.len();
        }
    }
    Ok(bytes)
}
