//! What an open tensor file holds. Readers fill it in; which reader a file
//! needs is for [`super::formats`] to find out.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::entry::Entry;
use super::origin::{Origin, OriginPart, malformed, packed, unpacked};
use crate::codec::Basis;
use crate::{Class, Dtype, Error};

/// Key of a safetensors metadata entry that gives the class of every tensor in
/// the file; `class.NAME` gives that of one tensor and wins.
pub const CLASS_KEY: &str = "class";

/// Key of a metadata entry that says what a tensor really is, where it is in a
/// number format that no codec knows: its bytes are carried as they are.
pub(super) const CARRIED_KEY: &str = "carried";

/// An open tensor file, or a sharded set of them.
#[derive(Debug, Clone)]
pub struct TensorFile {
    pub(super) format: &'static str,
    pub(super) entries: Vec<Entry>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) lists: Option<Arc<dyn Lists>>,
    pub(super) origin: Option<Origin>,
}

/// A list that a file carries beside its tensors, such as a vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub enum List {
    Texts(Vec<String>),
    Numbers(Vec<f64>),
}

/// Where a file's lists are read from when one is asked for.
pub(super) trait Lists: std::fmt::Debug + Send + Sync {
    /// The list under a key; None where there is none.
    fn get(&self, key: &str) -> Result<Option<List>, Error>;
}

impl TensorFile {
    /// What a file of some format holds; an error where two tensors carry one name.
    pub(crate) fn new(
        format: &'static str,
        mut entries: Vec<Entry>,
        mut metadata: BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let mut names = HashSet::new();
        if let Some(twice) = entries.iter().find(|entry| !names.insert(entry.name.as_str())) {
            return Err(Error::DuplicateName { name: twice.name.clone() });
        }
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
        Ok(Self { format, entries, metadata, lists: None, origin: None })
    }

    /// Tensors that are in no file, as if they were in one.
    ///
    /// # Errors
    ///
    /// Where two of them carry one name.
    pub fn of(entries: Vec<Entry>, metadata: BTreeMap<String, String>) -> Result<Self, Error> {
        Self::new("memory", entries, metadata)
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

    /// Texts for a container of these tensors: those that the file carries, and what
    /// is to be kept of the file itself.
    pub fn texts(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut texts = self.metadata.clone();
        texts.extend(self.origin.as_ref().map(Origin::text).transpose()?);
        Ok(texts)
    }

    /// The same file, whose containers carry these small files as well.
    pub fn with_files(mut self, files: &BTreeMap<String, String>) -> Result<Self, Error> {
        let text = serde_json::to_vec(files).map_err(|error| malformed(error.to_string()))?;
        self.metadata.insert(OriginPart::Files.key(), packed(&text)?);
        Ok(self)
    }

    /// What a container keeps of the file it was made of; `None` where that was no such file.
    pub fn kept(&self, kind: OriginPart) -> Result<Option<Vec<u8>>, Error> {
        self.metadata.get(&kind.key()).map(|text| unpacked(text)).transpose()
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
