//! Which codec and which target each tensor of a file gets.
//!
//! Norms, biases and integers stay exact unless told otherwise; a budget in
//! bits is shared out among the rest. Knows nothing of where the result goes.

mod calibrated;

pub use calibrated::Calibration;

use crate::Error;
use std::collections::HashMap;
use trinity_tensor::allocate::{Allocation, allocate, curves};
use trinity_tensor::codec::{Basis, Target, codec};
use trinity_tensor::pipeline::{EXACT_CODEC, SMALL_TENSOR, is_precious};
use trinity_tensor::{Entry, TensorFile};

/// The codec where none is named.
pub fn default_codec(target: Target) -> &'static str {
    if target == Target::Lossless { "zstd" } else { "trinity" }
}

/// What tensors are to be coded with.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub codec: &'a str,
    pub target: Target,
    pub allocation: Allocation,
    /// Whether norms, biases, vectors and integers are coded too.
    pub all: bool,
    pub basis: Option<&'a Basis>,
}

/// A choice for every tensor of a file.
#[derive(Debug)]
pub struct Choices<'a> {
    request: Request<'a>,
    /// Targets of tensors that do not simply take the common one.
    targets: HashMap<String, Target>,
}

impl<'a> Request<'a> {
    /// Decides for every tensor; `file` is what messages call it.
    ///
    /// # Errors
    ///
    /// Where nothing is left to code, or a tensor cannot be read.
    pub fn choices(self, tensors: &TensorFile, file: &str) -> Result<Choices<'a>, Error> {
        let entries = tensors.entries();
        if entries.iter().all(|entry| self.keeps(entry)) && entries.iter().any(|e| e.dtype().is_float()) {
            let what = "every tensor is a norm, a bias or a vector, which stay exact";
            return Err(Error::input(format_args!("{file}: {what}"), "--all codes them too"));
        }
        let targets =
            self.targets(tensors).map_err(|error| Error::Tensor { subject: file.to_owned(), error })?;
        Ok(Choices { request: self, targets })
    }

    /// Whether a tensor is kept to the bit although a loss is asked for.
    fn keeps(&self, entry: &Entry) -> bool {
        let whole = !entry.dtype().is_float();
        self.target != Target::Lossless && !self.all && (is_precious(entry) || whole)
    }

    fn targets(&self, tensors: &TensorFile) -> Result<HashMap<String, Target>, trinity_tensor::Error> {
        let Target::Bits(bits) = self.target else { return Ok(HashMap::new()) };
        if self.allocation == Allocation::Equal {
            return Ok(HashMap::new());
        }
        let coded = |entry: &&Entry| entry.len() >= SMALL_TENSOR && !self.keeps(entry);
        let entries: Vec<Entry> = tensors.entries().iter().filter(coded).cloned().collect();
        let codec = self.basis.map_or_else(|| codec(self.codec), |basis| basis.codec(self.codec))?;
        let curves = curves(&entries, codec.as_ref(), bits, |_| 1.0)?;
        let rates = allocate(&curves, bits, self.allocation);
        let rated = entries.iter().zip(rates);
        Ok(rated.map(|(entry, rate)| (entry.name().to_owned(), Target::Bits(rate))).collect())
    }
}

impl Choices<'_> {
    /// The codec and the target of a tensor.
    pub fn of(&self, entry: &Entry) -> (String, Target) {
        if self.request.keeps(entry) {
            return (EXACT_CODEC.to_owned(), Target::Lossless);
        }
        let own = self.targets.get(entry.name()).copied();
        (self.request.codec.to_owned(), own.unwrap_or(self.request.target))
    }
}
