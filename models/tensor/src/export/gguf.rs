//! GGUF of decoded tensors, under the header of the file that they came from.

use std::io::Write;
use std::path::Path;

use super::{Stored, Written};
use crate::codec::KQuant;
use crate::file::{AtomicFile, GgufHeader, plain_id};
use crate::{Dtype, Error};

const FORMAT: &str = "GGUF";
/// Of block formats; what llama.cpp writes since 2023.
const QUANTIZATION_VERSION: u32 = 2;

/// The number of a format in a tensor's description.
fn kind(stored: Stored) -> Option<u32> {
    match stored {
        Stored::Plain(dtype) => plain_id(dtype),
        Stored::Blocks(format) => Some(format.block().id()),
    }
}

/// What `general.file_type` calls a file most of whose values are in a format.
fn file_type(stored: Stored) -> Option<u32> {
    match stored {
        Stored::Plain(Dtype::F32) => Some(0),
        Stored::Plain(Dtype::F16) => Some(1),
        Stored::Blocks(KQuant::Q8) => Some(7),
        Stored::Blocks(KQuant::Q4) => Some(14),
        Stored::Plain(Dtype::Bf16) => Some(32),
        _ => None,
    }
}

/// The format of most values.
fn main_format(tensors: &[Written<'_>]) -> Option<Stored> {
    let values = |stored: Stored| -> usize {
        tensors.iter().filter(|own| own.stored == stored).map(|own| own.entry.len()).sum()
    };
    Stored::ASKED.into_iter().filter(|&own| values(own) > 0).max_by_key(|&own| values(own))
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Descriptions of tensors, each with the place of its data, and how far data reaches.
fn descriptions(tensors: &[Written<'_>], alignment: u64) -> Result<(Vec<u8>, Vec<u64>), Error> {
    let (mut bytes, mut places, mut offset) = (Vec::new(), Vec::new(), 0u64);
    for Written { entry, stored } in tensors {
        let kind = kind(*stored).filter(|_| entry.carried().is_none()).ok_or_else(|| {
            let what = format!("number format {} of tensor `{}`", entry.stored(), entry.name());
            Error::unsupported(FORMAT, 0, what)
        })?;
        put_text(&mut bytes, entry.name());
        bytes.extend((entry.shape().len() as u32).to_le_bytes());
        // The fastest dimension comes first.
        entry.shape().iter().rev().for_each(|&side| bytes.extend((side as u64).to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        places.push(offset);
        offset = (offset + stored.bytes(entry.len()) as u64).next_multiple_of(alignment);
    }
    Ok((bytes, places))
}

/// Writes tensors as GGUF; `progress` hears of values.
///
/// # Errors
///
/// Where a tensor cannot be read, its format has no place in GGUF, or the file
/// cannot be written.
pub fn write_gguf(
    header: GgufHeader,
    tensors: &[Written<'_>],
    path: &Path,
    progress: &dyn Fn(usize),
) -> Result<(), Error> {
    let alignment = header.alignment();
    let main = main_format(tensors);
    let mut header = match main.and_then(file_type) {
        Some(number) => header.with_number("general.file_type", number),
        None => header,
    };
    if tensors.iter().any(|own| matches!(own.stored, Stored::Blocks(_))) {
        header = header.with_number("general.quantization_version", QUANTIZATION_VERSION);
    }
    let (described, places) = descriptions(tensors, alignment)?;
    let mut start = header.write(tensors.len() as u64);
    start.extend(described);
    start.resize(start.len().next_multiple_of(alignment as usize), 0);
    let mut file = AtomicFile::create(path)?;
    file.write_all(&start).map_err(Error::write("writing the header"))?;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(Error::write("writing values"));
    let mut written = 0u64;
    for (tensor, place) in tensors.iter().zip(places) {
        write(&vec![0; (place - written) as usize])?;
        written = place;
        tensor.each(|bytes, values| {
            write(bytes)?;
            written += bytes.len() as u64;
            progress(values);
            Ok(())
        })?;
    }
    // Readers take data to end on the alignment.
    write(&vec![0; (written.next_multiple_of(alignment) - written) as usize])?;
    file.commit()
}
