//! Tensors that are in memory already, read like those of a file.
//!
//! Whoever owns the memory keeps it as it is while an entry refers to it; slabs
//! are copied out of it one at a time, so a large array is never held twice.

use std::fmt;
use std::sync::Arc;

use super::entry::{Entry, Payload, ValueStream};
use crate::{Dtype, Error};

/// Bytes of somebody else's.
struct Memory(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.0.as_ref().as_ref().len())
    }
}

impl Entry {
    /// A tensor whose little-endian bytes are in memory already, which whoever
    /// owns it keeps as it is.
    pub fn in_memory(
        name: impl Into<String>,
        dtype: Dtype,
        shape: Vec<usize>,
        bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Self, Error> {
        let found = bytes.as_ref().as_ref().len() as u64;
        let entry = Self::new(name.into(), dtype, shape, 0, Arc::new(Memory(bytes)))?;
        let expected = (entry.values * dtype.bytes()) as u64;
        if expected != found {
            let (name, shape, expected) = (entry.name, entry.shape, expected.to_string());
            return Err(Error::SizeMismatch { name, shape, dtype, expected, found });
        }
        Ok(entry)
    }
}

impl Payload for Memory {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        Ok(Box::new(Rest(self.0.as_ref().as_ref())))
    }

    fn open_at(&self, byte: u64) -> Option<Box<dyn ValueStream + '_>> {
        Some(Box::new(Rest(self.0.as_ref().as_ref().get(usize::try_from(byte).ok()?..)?)))
    }
}

/// What was not read yet.
struct Rest<'a>(&'a [u8]);

impl ValueStream for Rest<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let Some((next, rest)) = self.0.split_at_checked(bytes.len()) else {
            let problem = format!("{} bytes are left, {} are asked for", self.0.len(), bytes.len());
            return Err(Error::malformed("memory", 0, problem));
        };
        bytes.copy_from_slice(next);
        self.0 = rest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dtype, Entry, Error, TensorFile};
    use std::sync::Arc;

    #[test]
    fn memory_reads_as_a_file_does_and_its_size_must_fit() {
        let bytes: Arc<Vec<u8>> = Arc::new((0..24).collect());
        let entry = |shape: Vec<usize>| Entry::in_memory("a", Dtype::F32, shape, bytes.clone());
        assert_eq!(entry(vec![2, 3]).unwrap().read().unwrap().data(), bytes.as_slice());
        assert!(matches!(entry(vec![2, 4]), Err(Error::SizeMismatch { found: 24, .. })));
        let twice = vec![entry(vec![6]).unwrap(), entry(vec![3, 2]).unwrap()];
        assert!(matches!(TensorFile::of(twice, Default::default()), Err(Error::DuplicateName { .. })));
    }
}
