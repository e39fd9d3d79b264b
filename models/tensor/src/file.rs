//! Tensor files behind one face: what tensors a file holds, and their bytes.
//!
//! A reader parses headers only; values are streamed on demand through
//! [`ValueStream`], so a file larger than memory is as good as a small one.
//! Files are read with positioned reads, not memory maps: a map counts every
//! touched page as resident, dies with SIGBUS when the file shrinks, and needs
//! `unsafe`; a positioned read of a cached page costs one copy, which is small
//! beside any statistic or codec.
//!
//! Knows formats and bytes; knows nothing of what the values mean.

mod atomic;
mod contents;
mod draft;
mod entry;
mod formats;
mod gguf;
mod memory;
mod npy;
mod npz;
mod origin;
mod pt;
mod safetensors;
mod shards;
mod source;
mod tri;

use std::path::Path;

pub use atomic::{AtomicFile, reserve, settle};
pub use contents::{CLASS_KEY, List, TensorFile};
pub use draft::Draft;
pub(crate) use entry::BLOCK_BYTES;
pub use entry::{Carried, Entry, ValueStream};
pub use gguf::Header as GgufHeader;
pub(crate) use gguf::{Block, plain_id};
pub use npy::{write_npy, write_npy_of};
pub use origin::{ORIGIN_KEY, OriginPart};
pub use safetensors::{SafetensorsWriter, Spec};
pub use shards::shard_of;
pub(crate) use shards::{FORMAT as INDEX, is_plain};
pub(crate) use source::Source;
pub use tri::{TIED_KEY, TriWriter, damaged};

use crate::Error;

impl TensorFile {
    /// Opens a file of any known format, told apart by content; or a folder of
    /// safetensors, such as a Hugging Face model's.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return shards::open_folder(path);
        }
        if path.extension().is_some_and(|extension| extension == "json") {
            return shards::open(path);
        }
        formats::open(path)
    }

    /// Parses a file already in memory; `stem` names the one tensor of an npy.
    pub fn from_bytes(bytes: Vec<u8>, stem: &str) -> Result<Self, Error> {
        formats::parse(&Source::from_bytes(bytes), stem)
    }
}
