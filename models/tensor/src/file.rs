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
mod gguf;
mod npy;
mod npz;
mod pt;
mod safetensors;
mod shards;
mod source;
mod tri;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

pub use atomic::AtomicFile;
pub use npy::write_npy;
pub use safetensors::{SafetensorsWriter, Spec};
pub(crate) use source::Source;
pub use tri::{TriWriter, damaged};

use crate::codec::Basis;
use crate::memory::ContentHash;
use crate::{Class, Dtype, Error, Tensor};

/// Key of a safetensors metadata entry that gives the class of every tensor in
/// the file; `class.NAME` gives that of one tensor and wins.
pub const CLASS_KEY: &str = "class";

/// Key of a metadata entry that says what a tensor really is, where it is in a
/// number format that no codec knows: its bytes are carried as they are.
const CARRIED_KEY: &str = "carried";

/// A tensor in a number format that is carried and not understood: booleans,
/// unsigned integers, complex numbers, formats of the future.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The format, as safetensors names it; `npy:DESCR` where only npy does.
    pub dtype: String,
    pub shape: Vec<usize>,
}

impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}

impl std::str::FromStr for Carried {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        let (dtype, shape) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self { dtype: dtype.to_owned(), shape: serde_json::from_str(shape)? })
    }
}

/// One tensor in a file: what it is, and where its bytes come from.
#[derive(Debug, Clone)]
pub struct Entry {
    name: String,
    class: Class,
    dtype: Dtype,
    shape: Vec<usize>,
    values: usize,
    offset: u64,
    stored: String,
    carried: Option<Carried>,
    payload: Arc<dyn Payload>,
}

/// Where a tensor's bytes come from: a place in a file, decoded as needed.
pub(crate) trait Payload: Debug + Send + Sync {
    /// Starts over from the tensor's first value.
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error>;

    /// The coded bytes of a slab, in formats that have slabs.
    fn coded_slab(&self, _index: usize) -> Result<Vec<u8>, Error> {
        Err(Error::Unsupported { format: "tensor file", offset: 0, what: "reading coded slabs".into() })
    }

    /// The same, decoded with a basis, in formats that may need one.
    fn with_basis(&self, _basis: &Basis) -> Option<Arc<dyn Payload>> {
        None
    }

    /// Checks stored bytes against their checksums, where the format has any.
    fn verify(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A tensor's values in order, as little-endian bytes of its [`Entry::dtype`].
pub trait ValueStream: Send {
    /// Fills `bytes` with the next values; a whole number of values, and in
    /// total no more than the tensor has.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error>;
}

impl Entry {
    pub(crate) fn new(
        name: String,
        dtype: Dtype,
        shape: Vec<usize>,
        offset: u64,
        payload: Arc<dyn Payload>,
    ) -> Result<Self, Error> {
        let values =
            count(&shape).filter(|&values| values.checked_mul(dtype.bytes()).is_some()).ok_or_else(|| {
                Error::SizeMismatch {
                    name: name.clone(),
                    shape: shape.clone(),
                    dtype,
                    expected: "more than 2^64".into(),
                    found: 0,
                }
            })?;
        let class = Class::from_name(&name);
        let stored = dtype.name().to_owned();
        Ok(Self { name, class, dtype, shape, values, offset, stored, carried: None, payload })
    }

    /// A tensor in a format that is not understood: its bytes, in a row.
    pub(crate) fn carried_as(
        name: String,
        carried: Carried,
        bytes: usize,
        offset: u64,
        payload: Arc<dyn Payload>,
    ) -> Result<Self, Error> {
        let stored = carried.dtype.clone();
        let entry = Self::new(name, Dtype::U8, vec![bytes], offset, payload)?;
        Ok(Self { carried: Some(carried), stored, ..entry })
    }

    /// What the tensor really is, where its bytes are carried as they are.
    pub fn carried(&self) -> Option<&Carried> {
        self.carried.as_ref()
    }

    /// The tensor's name in its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the tensor is for: from metadata, else from its name.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The number format of the streamed values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// What the file holds, where that is not [`Entry::dtype`]: a GGUF block
    /// format such as `q8_0`, or the codec of a `.tri` file.
    pub fn stored(&self) -> &str {
        &self.stored
    }

    /// Dimensions, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values
    }

    /// True when a dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// Where in its file the tensor's bytes begin.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Rows and row length, as [`Tensor::matrix`] folds them.
    pub fn matrix(&self) -> (usize, usize) {
        match self.shape.split_last() {
            Some((&0, _)) => (0, 0),
            Some((&cols, _)) => (self.values / cols, cols),
            None => (1, 1),
        }
    }

    /// The same entry under another class.
    pub fn with_class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// The same entry under another name.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    pub(crate) fn with_stored(mut self, stored: impl Into<String>) -> Self {
        self.stored = stored.into();
        self
    }

    /// Values from the first on.
    pub fn stream(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        self.payload.open()
    }

    /// The coded bytes of a slab, in formats that have slabs.
    pub fn coded_slab(&self, index: usize) -> Result<Vec<u8>, Error> {
        self.payload.coded_slab(index)
    }

    /// A hash of what the tensor is and holds: its format, its shape and its
    /// values, whatever it is called and wherever it lies.
    pub fn content(&self) -> Result<u64, Error> {
        let mut hash = ContentHash::default();
        hash.add(self.dtype.name().as_bytes());
        self.shape.iter().for_each(|&dim| hash.add(&(dim as u64).to_le_bytes()));
        let mut stream = self.stream()?;
        let mut left = self.values * self.dtype.bytes();
        let mut block = vec![0; left.min(BLOCK_BYTES)];
        while left > 0 {
            let step = left.min(BLOCK_BYTES);
            stream.fill(&mut block[..step])?;
            hash.add(&block[..step]);
            left -= step;
        }
        Ok(hash.finish())
    }

    /// The whole tensor in memory.
    pub fn read(&self) -> Result<Tensor, Error> {
        let mut stream = self.stream()?;
        let mut data = Vec::new();
        let mut left = self.values * self.dtype.bytes();
        // Grows with what is really there: a compressed member that lies about
        // its size runs dry before it makes us allocate.
        while left > 0 {
            let step = left.min(BLOCK_BYTES);
            let start = data.len();
            crate::memory::grow(&mut data, step)?;
            stream.fill(&mut data[start..])?;
            left -= step;
        }
        drop(stream);
        Tensor::new(self.name.clone(), self.class, self.dtype, self.shape.clone(), data)
    }
}

/// Bytes read in one go; a multiple of every format's value size.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// Product of dimensions, unless it overflows.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the product zero, also where the others overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))
}

/// An open tensor file, or a sharded set of them.
#[derive(Debug, Clone)]
pub struct TensorFile {
    format: &'static str,
    entries: Vec<Entry>,
    metadata: BTreeMap<String, String>,
    lists: Option<Arc<gguf::Lists>>,
}

/// A list that a file carries beside its tensors, such as a vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub enum List {
    Texts(Vec<String>),
    Numbers(Vec<f64>),
}

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
        let stem =
            path.file_stem().map_or_else(|| "tensor".into(), |stem| stem.to_string_lossy().into_owned());
        Source::open(path).and_then(|source| Self::parse(&source, &stem)).map_err(|error| error.in_file(path))
    }

    /// Parses a file already in memory; `stem` names the one tensor of an npy.
    pub fn from_bytes(bytes: Vec<u8>, stem: &str) -> Result<Self, Error> {
        Self::parse(&Source::from_bytes(bytes), stem)
    }

    fn parse(source: &Source, stem: &str) -> Result<Self, Error> {
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

    pub(crate) fn new(
        format: &'static str,
        mut entries: Vec<Entry>,
        mut metadata: BTreeMap<String, String>,
    ) -> Self {
        let whole_file = metadata.get(CLASS_KEY).and_then(|class| class.parse().ok());
        for entry in &mut entries {
            let own =
                metadata.get(&format!("{CLASS_KEY}.{}", entry.name)).and_then(|class| class.parse().ok());
            entry.class = own.or(whole_file).unwrap_or(entry.class);
            let key = format!("{CARRIED_KEY}.{}", entry.name);
            match &entry.carried {
                Some(carried) => drop(metadata.insert(key, carried.to_string())),
                None if entry.dtype == Dtype::U8 => {
                    entry.carried = metadata.get(&key).and_then(|text| text.parse().ok());
                }
                None => {}
            }
        }
        Self { format, entries, metadata, lists: None }
    }

    /// The same file with every tensor under one class.
    pub fn with_class(mut self, class: Class) -> Self {
        self.entries.iter_mut().for_each(|entry| entry.class = class);
        self
    }

    /// The same file, whose tensors may have been coded in this basis.
    pub fn with_basis(mut self, basis: &Basis) -> Self {
        for entry in &mut self.entries {
            if let Some(payload) = entry.payload.with_basis(basis) {
                entry.payload = payload;
            }
        }
        self
    }

    /// The format's name.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Every tensor, in file order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Text the file carries beside its tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The list of that name in the file's metadata; GGUF has such.
    pub fn list(&self, key: &str) -> Result<Option<List>, Error> {
        self.lists.as_ref().map_or(Ok(None), |lists| lists.get(key))
    }

    /// The tensor of that name.
    pub fn entry(&self, name: &str) -> Result<&Entry, Error> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| Error::NoSuchTensor { name: name.to_owned() })
    }
}
