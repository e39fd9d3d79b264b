//! A basis by reference: a file that encoder and decoder both have.
//!
//! Two kinds, told apart by their first bytes. Principal components of whole
//! rows ([`PcaBasis`]) turn values before any codec; rotations of groups of
//! columns are a stage of the Trinity codec, which takes them only where they
//! pay. Either is named by the hash of its file, in the name of the codec or in
//! the stream.

use std::path::Path;
use std::sync::Arc;

use super::PcaBasis;
use crate::Error;

/// What turns rows on both sides.
#[derive(Debug, Clone)]
pub enum Basis {
    Pca(Arc<PcaBasis>),
    Trinity(Arc<trinity_codec::Basis>),
}

impl Basis {
    /// Reads a file of either kind.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(Error::io("reading the basis"));
        bytes.and_then(|bytes| Self::from_bytes(&bytes)).map_err(|error| error.in_file(path))
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.starts_with(b"TB") {
            let basis = trinity_codec::Basis::from_bytes(bytes);
            return basis
                .map(|basis| Self::Trinity(Arc::new(basis)))
                .map_err(|error| Error::corrupt(0, error.to_string()));
        }
        Ok(Self::Pca(Arc::new(PcaBasis::from_bytes(bytes)?)))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Pca(basis) => basis.to_bytes(),
            Self::Trinity(basis) => basis.to_bytes(),
        }
    }

    /// The name of the file's very bytes.
    pub fn hash(&self) -> u64 {
        trinity_codec::Basis::hash_of(&self.to_bytes())
    }

    /// Length of the rows it turns.
    pub fn cols(&self) -> usize {
        match self {
            Self::Pca(basis) => basis.cols,
            Self::Trinity(basis) => basis.cols(),
        }
    }
}
