//! One tensor in a file: what it is, and how its values are had. Every reader
//! makes these; none of them is known here.

use std::fmt::Debug;
use std::sync::Arc;

use crate::blocks::{BlockPlan, SLAB_VALUES};
use crate::codec::Basis;
use crate::memory::ContentHash;
use crate::{Class, Dtype, Error, Tensor};

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
    pub(super) name: String,
    pub(super) class: Class,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) values: usize,
    pub(super) offset: u64,
    pub(super) stored: String,
    pub(super) carried: Option<Carried>,
    pub(super) payload: Arc<dyn Payload>,
}

/// Where a tensor's bytes come from: a place in a file, decoded as needed.
pub(crate) trait Payload: Debug + Send + Sync {
    /// Starts over from the tensor's first value.
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error>;

    /// Starts at a byte of the tensor, in formats that can begin anywhere at no cost.
    fn open_at(&self, _byte: u64) -> Option<Box<dyn ValueStream + '_>> {
        None
    }

    /// The coded bytes of a slab, in formats that have slabs.
    fn coded_slab(&self, _index: usize) -> Result<Vec<u8>, Error> {
        Err(Error::unsupported("tensor file", 0, "reading coded slabs"))
    }

    /// Values of a whole slab and the number of slabs, in formats that have slabs.
    fn slabs(&self) -> Option<(usize, usize)> {
        None
    }

    /// These bytes decoded with a basis, in formats that may need one.
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

    /// Hands the next values, so many bytes of them, to `take`, some at a time: from where they lie, in formats that
    /// have them in memory.
    fn each(&mut self, bytes: usize, take: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut block = crate::memory::zeroed(bytes.min(BLOCK_BYTES))?;
        let mut left = bytes;
        while left > 0 {
            let step = left.min(BLOCK_BYTES);
            self.fill(&mut block[..step])?;
            take(&block[..step])?;
            left -= step;
        }
        Ok(())
    }
}

impl Entry {
    pub(crate) fn new(
        name: String,
        dtype: Dtype,
        shape: Vec<usize>,
        offset: u64,
        payload: Arc<dyn Payload>,
    ) -> Result<Self, Error> {
        let values = count(&shape).filter(|&values| values.checked_mul(dtype.bytes()).is_some());
        let values = values.ok_or_else(|| Error::too_large(&name, &shape, dtype))?;
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

    /// Number of values that are streamed; bytes where the tensor is carried.
    pub fn len(&self) -> usize {
        self.values
    }

    /// Number of values as the file states them: a tensor that is carried as
    /// bytes has those of its own format.
    pub fn stated_values(&self) -> usize {
        self.carried.as_ref().and_then(|carried| count(&carried.shape)).unwrap_or(self.values)
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

    /// The same entry as stored by another codec or in another format.
    pub fn with_stored(mut self, stored: impl Into<String>) -> Self {
        self.stored = stored.into();
        self
    }

    /// Values from the first on.
    pub fn stream(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        self.payload.open()
    }

    /// Values from one on, in formats that can begin anywhere at no cost.
    pub(crate) fn stream_at(&self, value: usize) -> Option<Box<dyn ValueStream + '_>> {
        self.payload.open_at(value as u64 * self.dtype.bytes() as u64)
    }

    /// The coded bytes of a slab, in formats that have slabs.
    pub fn coded_slab(&self, index: usize) -> Result<Vec<u8>, Error> {
        self.payload.coded_slab(index)
    }

    /// Values of a whole slab and the number of slabs, in formats that have slabs.
    pub fn slabs(&self) -> Option<(usize, usize)> {
        self.payload.slabs()
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
        // In blocks of one size, whatever the format: the hash knows where they end.
        while left > 0 {
            let step = left.min(BLOCK_BYTES);
            stream.fill(&mut block[..step])?;
            hash.add(&block[..step]);
            left -= step;
        }
        Ok(hash.finish())
    }

    /// How it is cut into slabs of the size we write.
    pub(crate) fn plan(&self) -> BlockPlan {
        let (rows, cols) = self.matrix();
        BlockPlan::new(rows, cols, SLAB_VALUES)
    }

    /// Some of its values as a slab of it.
    pub(crate) fn as_slab(&self, data: Vec<u8>) -> Result<Tensor, Error> {
        let values = data.len() / self.dtype.bytes();
        let cols = self.matrix().1.min(values).max(1);
        Tensor::new(self.name.clone(), self.class, self.dtype, vec![values / cols, cols], data)
    }

    /// Bytes of the first slab's values, where the format has slabs and they are no larger than ours.
    fn slab_bytes(&self) -> usize {
        let (rows, cols) = self.matrix();
        match self.slabs() {
            Some((values, slabs)) if slabs > 0 && (1..=SLAB_VALUES).contains(&values) => {
                BlockPlan::new(rows, cols, values).values(0).len() * self.dtype.bytes()
            }
            _ => 0,
        }
    }

    /// The whole tensor in memory.
    pub fn read(&self) -> Result<Tensor, Error> {
        let mut stream = self.stream()?;
        let mut data = Vec::new();
        let mut left = self.values * self.dtype.bytes();
        // Grows with what is really there: a compressed member that lies about
        // its size runs dry before it makes us allocate.
        let most = BLOCK_BYTES.max(self.slab_bytes() * rayon::current_num_threads());
        while left > 0 {
            let step = left.min(most);
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

/// Moves indices on to the next value, the last one fastest.
pub(crate) fn advance(index: &mut [usize], shape: &[usize]) {
    for (i, &dim) in index.iter_mut().zip(shape).rev() {
        *i += 1;
        if *i < dim {
            break;
        }
        *i = 0;
    }
}

/// Product of dimensions, unless it overflows.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the product zero, also where the others overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))
}
