//! Which format a file is in, by its first bytes.

use std::path::Path;

use super::contents::TensorFile;
use super::source::Source;
use super::{gguf, npy, npz, pt, safetensors, tri};
use crate::Error;

/// Opens a file, whose name says that of the one tensor of an npy.
pub(super) fn open(path: &Path) -> Result<TensorFile, Error> {
    let stem = path.file_stem().map_or_else(|| "tensor".into(), |stem| stem.to_string_lossy());
    let opened = Source::open(path).and_then(|source| parse(&source, &stem));
    opened.map_err(|error| error.in_file(path))
}

/// Reads a file's headers; `stem` names the one tensor of an npy.
pub(super) fn parse(source: &Source, stem: &str) -> Result<TensorFile, Error> {
    let mut magic = [0; 8];
    let known = usize::try_from(source.len()).unwrap_or(8).min(8);
    source.read_at(0, &mut magic[..known])?;
    match magic {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => npy::parse(source, stem),
        [b'P', b'K', 3 | 5, 4 | 6, ..] if pt::plausible(source) => pt::parse(source, stem),
        [b'P', b'K', 3 | 5, 4 | 6, ..] => npz::parse(source),
        // The length of a safetensors header may begin with the same two bytes.
        [0x80, 2..=5, .., a, b, c, d] if [a, b, c, d] != [0; 4] || !safetensors::plausible(source) => {
            Err(pt::bare_pickle(source))
        }
        [b'G', b'G', b'U', b'F', ..] => gguf::parse(source),
        [b'T', b'R', b'I', b'N', ..] => tri::parse(source),
        _ if safetensors::plausible(source) => safetensors::parse(source),
        _ => Err(Error::UnknownFormat),
    }
}
