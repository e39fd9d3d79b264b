//! Decoded tensors in files that engines load: safetensors, whole or in the
//! shards they came in, and GGUF under the header they came with, each in the
//! number format that an engine wants.
//!
//! Streams values slab by slab. Which tensor may be rounded is the caller's to
//! say ([`Written`]); knows nothing of models.

mod gguf;
mod shards;

use std::path::Path;

use rayon::prelude::*;

pub use gguf::write_gguf;
pub use shards::Shards;

use crate::codec::KQuant;
use crate::file::{SafetensorsWriter, Spec};
use crate::pipeline::{SLAB_VALUES, spec};
use crate::{Dtype, Entry, Error, TensorFile};

/// Blocks that one thread rounds at once.
const BLOCKS_AT_ONCE: usize = 64;

/// How values of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Plain(Dtype),
    /// Blocks of GGUF.
    Blocks(KQuant),
}

impl Stored {
    /// What tensors may be asked for in.
    pub const ASKED: [Self; 5] = [
        Self::Plain(Dtype::F32),
        Self::Plain(Dtype::F16),
        Self::Plain(Dtype::Bf16),
        Self::Blocks(KQuant::Q8),
        Self::Blocks(KQuant::Q4),
    ];

    /// Its name in tables and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Blocks(format) => format.name(),
        }
    }

    /// Values and bytes of the smallest piece.
    fn piece(self) -> (usize, usize) {
        match self {
            Self::Plain(dtype) => (1, dtype.bytes()),
            Self::Blocks(format) => (format.block().values(), format.block().bytes()),
        }
    }

    /// Bytes of so many values, which fill whole pieces.
    fn bytes(self, values: usize) -> usize {
        let (own, bytes) = self.piece();
        values / own * bytes
    }

    /// This format where rows of `columns` fill its blocks, else the next finer one that they fill.
    pub fn fitting(self, columns: usize) -> Self {
        let fits = |own: &Self| columns.is_multiple_of(own.piece().0);
        let finer = [self, Self::Blocks(KQuant::Q8), Self::Plain(Dtype::F16)];
        finer.into_iter().find(fits).unwrap_or(Self::Plain(Dtype::F16))
    }
}

impl std::fmt::Display for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Stored {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ASKED.map(Self::name).join(", ");
        let found = Self::ASKED.into_iter().find(|own| own.name() == name);
        found.ok_or_else(|| format!("`{name}`: expected one of {known}"))
    }
}

/// A tensor, and what it is written as.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    pub entry: &'a Entry,
    pub stored: Stored,
}

impl<'a> Written<'a> {
    /// A tensor as it is.
    pub fn plainly(entry: &'a Entry) -> Self {
        Self { entry, stored: Stored::Plain(entry.dtype()) }
    }

    fn spec(&self) -> Spec {
        let own = spec(self.entry);
        match self.stored {
            Stored::Plain(dtype) => Spec { dtype, ..own },
            Stored::Blocks(_) => own,
        }
    }

    /// Hands the values to `take`, some at a time, with how many they are.
    fn each(&self, mut take: impl FnMut(&[u8], usize) -> Result<(), Error>) -> Result<(), Error> {
        let (entry, dtype) = (self.entry, self.entry.dtype());
        let mut stream = entry.stream()?;
        if self.stored == Stored::Plain(dtype) {
            let bytes = entry.len() * dtype.bytes();
            return stream.each(bytes, &mut |values| take(values, values.len() / dtype.bytes()));
        }
        let (mut own, mut converted) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < entry.len() {
            let values = (entry.len() - first).min(SLAB_VALUES);
            own.resize(values * dtype.bytes(), 0);
            stream.fill(&mut own)?;
            converted.clear();
            self.convert(&own, first, &mut converted)?;
            take(&converted, values)?;
            first += values;
        }
        Ok(())
    }

    /// Values in the stored format; the first of them is value `first` of the tensor.
    fn convert(&self, bytes: &[u8], first: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let dtype = self.entry.dtype();
        let mut values = vec![0f32; bytes.len() / dtype.bytes()];
        dtype.to_f32(bytes, &mut values);
        match self.stored {
            Stored::Plain(to) => {
                let largest = to.largest_f32();
                let beyond = |value: &f32| value.is_finite() && value.abs() > largest;
                if let Some(at) = values.iter().position(beyond) {
                    let (index, name, value) = (first + at, self.entry.name(), values[at]);
                    let what =
                        format!("value {index} of tensor `{name}`, {value:e}, which is beyond {largest:e},");
                    return Err(Error::unsupported(to.name(), self.entry.offset(), what));
                }
                to.extend_from_f32(&values, out);
            }
            Stored::Blocks(format) => {
                if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                    let (name, value) = (self.entry.name().to_owned(), f64::from(values[at]));
                    return Err(Error::NonFinite { name, index: first + at, value });
                }
                let several = BLOCKS_AT_ONCE * format.block().values();
                let parts: Vec<Vec<u8>> =
                    values.par_chunks(several).map(|part| format.encode(part)).collect();
                out.extend(parts.iter().flatten());
            }
        }
        Ok(())
    }
}

/// Writes tensors as safetensors, with the texts of the file that they are from.
/// `progress` hears of values.
///
/// # Errors
///
/// Where a tensor cannot be read, a value has no place in its format, or the
/// file cannot be written.
pub fn write_safetensors(
    file: &TensorFile,
    tensors: &[Written<'_>],
    path: &Path,
    progress: &dyn Fn(usize),
) -> Result<(), Error> {
    let specs: Vec<Spec> = tensors.iter().map(Written::spec).collect();
    let mut writer = SafetensorsWriter::create(path, &specs, file.metadata())?;
    for tensor in tensors {
        tensor.each(|bytes, values| {
            writer.write(bytes)?;
            progress(values);
            Ok(())
        })?;
    }
    writer.finish()
}
