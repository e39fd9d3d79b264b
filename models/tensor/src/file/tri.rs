//! The `.tri` container: coded tensors with an index for random access.
//!
//! Version 3, little-endian. Its slabs of the line-rate codec's names begin with a tag that says whose stream follows
//! (`codec/tag.rs`); version 2 is the same without tags, and is read. Slabs of `int` and `mx` codecs hold a share and a
//! placement that those of version 1 do not, so that one is refused:
//!
//! ```text
//! 0   4  "TRIN"
//! 4   2  version (3)
//! 6   2  zero
//! 8   8  byte offset of the index
//! 16  8  bytes of the index
//! 24  4  CRC-32 of the index
//! 28  4  CRC-32 of bytes 0 to 28
//! 32     coded slabs, one after the other, in index order
//! …      index:
//!          u32 texts;   each: u32 length, key; u32 length, value (UTF-8)
//!          u32 tensors; each:
//!            u16 length, name (UTF-8)
//!            u8  length, codec (UTF-8)
//!            u8  class (order of `Class::ALL`), u8 dtype (order of `Dtype::ALL`)
//!            u8  dimensions, each u64
//!            u32 most values in a slab
//!            u32 slabs, each: u32 bytes, u32 CRC-32
//! ```
//!
//! A text `tied.NAME` names the tensor whose values the tensor NAME holds, too: it is
//! listed after all others and has no slabs of its own.
//!
//! A slab holds whole rows, or a part of one row, of at most the stated number
//! of values, and is decoded on its own: tensors larger than memory stream,
//! threads share the work, and a flipped bit costs one tensor.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::atomic::AtomicFile;
use super::contents::TensorFile;
use super::entry::{Entry, Payload, ValueStream, count};
use super::safetensors::Spec;
use super::source::Source;
use crate::blocks::{BlockPlan, SLAB_VALUES};
use crate::codec::{Basis, Encoded, TensorCodec, decoder};
use crate::{Class, Dtype, Error};

const FORMAT: &str = "tri";
const HEADER_LEN: u64 = 32;
const VERSION: u16 = 3;
/// The first that is read.
const OLDEST: u16 = 2;
/// What the text of a tensor that refers to another begins with.
pub const TIED_KEY: &str = "tied.";

fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A slab's place in the file.
#[derive(Debug, Clone, Copy)]
struct Slab {
    offset: u64,
    len: u32,
    crc: u32,
}

/// Writes a container front to back; memory holds the index alone.
#[derive(Debug)]
pub struct TriWriter<W = AtomicFile> {
    file: W,
    position: u64,
    texts: BTreeMap<String, String>,
    index: Vec<u8>,
    tensors: u32,
    slabs_at: usize,
    slabs: u32,
}

impl TriWriter {
    /// Starts a file that will appear at `path`.
    pub fn create(path: &Path, texts: &BTreeMap<String, String>) -> Result<Self, Error> {
        Self::over(AtomicFile::create(path)?, texts)
    }

    /// Writes index and header; the file appears. Returns its size.
    pub fn finish(self) -> Result<u64, Error> {
        let (file, size) = self.complete()?;
        file.commit()?;
        Ok(size)
    }

    /// Bytes of a container beside its slabs, known before anything is coded.
    pub fn overhead(
        texts: &BTreeMap<String, String>,
        tensors: impl Iterator<Item = (Spec, String, usize)>,
    ) -> u64 {
        let texts: usize = texts.iter().map(|(key, value)| 8 + key.len() + value.len()).sum();
        let tensors: usize = tensors
            .map(|(spec, codec, slabs)| 14 + spec.name.len() + codec.len() + 8 * spec.shape.len() + 8 * slabs)
            .sum();
        HEADER_LEN + 8 + texts as u64 + tensors as u64
    }
}

impl<W: Write + Seek> TriWriter<W> {
    /// Starts a container at the beginning of anything that can be written to.
    pub fn over(mut file: W, texts: &BTreeMap<String, String>) -> Result<Self, Error> {
        file.write_all(&[0; HEADER_LEN as usize]).map_err(Error::write("writing the header"))?;
        let (position, texts) = (HEADER_LEN, texts.clone());
        Ok(Self { file, position, texts, index: Vec::new(), tensors: 0, slabs_at: 0, slabs: 0 })
    }

    /// Adds a text, or gives one another value.
    pub fn text(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.texts.insert(key.into(), value.into());
    }

    /// Texts, then tensors, as the file has them.
    fn whole_index(&self) -> Vec<u8> {
        let mut index = Vec::new();
        put_u32(&mut index, self.texts.len() as u32);
        for text in self.texts.iter().flat_map(|(key, value)| [key, value]) {
            put_u32(&mut index, text.len() as u32);
            index.extend(text.as_bytes());
        }
        put_u32(&mut index, self.tensors);
        index.extend(&self.index);
        index
    }

    /// Starts a tensor; its slabs follow.
    pub fn begin(&mut self, spec: &Spec, codec: &str, slab_values: usize) -> Result<(), Error> {
        let too_long = |what: String| Error::unsupported(FORMAT, self.position, what);
        let name_len = u16::try_from(spec.name.len())
            .map_err(|_| too_long(format!("a name of {} bytes", spec.name.len())))?;
        let rank = u8::try_from(spec.shape.len())
            .map_err(|_| too_long(format!("{} dimensions", spec.shape.len())))?;
        let codec_len = u8::try_from(codec.len())
            .map_err(|_| too_long(format!("a codec's name of {} bytes", codec.len())))?;
        self.end_tensor();
        self.index.extend(name_len.to_le_bytes());
        self.index.extend(spec.name.as_bytes());
        self.index.push(codec_len);
        self.index.extend(codec.as_bytes());
        self.index.push(Class::ALL.iter().position(|&class| class == spec.class).unwrap_or(5) as u8);
        self.index.push(Dtype::ALL.iter().position(|&dtype| dtype == spec.dtype).unwrap_or(0) as u8);
        self.index.push(rank);
        spec.shape.iter().for_each(|&dim| self.index.extend((dim as u64).to_le_bytes()));
        put_u32(&mut self.index, slab_values as u32);
        self.slabs_at = self.index.len();
        put_u32(&mut self.index, 0);
        self.tensors += 1;
        Ok(())
    }

    /// Appends a slab of the tensor begun last.
    pub fn slab(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let too_long =
            |_| Error::unsupported(FORMAT, self.position, format!("a slab of {} bytes", bytes.len()));
        let len = u32::try_from(bytes.len()).map_err(too_long)?;
        self.file.write_all(bytes).map_err(Error::write("writing a slab"))?;
        self.position += u64::from(len);
        put_u32(&mut self.index, len);
        put_u32(&mut self.index, crc(bytes));
        self.slabs += 1;
        Ok(())
    }

    fn end_tensor(&mut self) {
        if self.tensors > 0 {
            self.index[self.slabs_at..self.slabs_at + 4].copy_from_slice(&self.slabs.to_le_bytes());
            self.slabs = 0;
        }
    }

    /// Writes index and header; gives back what was written to, and how much.
    pub fn complete(mut self) -> Result<(W, u64), Error> {
        self.end_tensor();
        let index = self.whole_index();
        let mut header = b"TRIN".to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([0, 0]);
        header.extend(self.position.to_le_bytes());
        header.extend((index.len() as u64).to_le_bytes());
        header.extend(crc(&index).to_le_bytes());
        header.extend(crc(&header).to_le_bytes());
        let written = self
            .file
            .write_all(&index)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(&header));
        written.map_err(Error::write("writing the index"))?;
        let size = self.position + index.len() as u64;
        Ok((self.file, size))
    }
}

fn put_u32(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend(value.to_le_bytes());
}

pub(super) fn parse(source: &Source) -> Result<TensorFile, Error> {
    let malformed = |offset, problem: &str| Error::malformed(FORMAT, offset, problem);
    let header = source.bytes(FORMAT, 0, HEADER_LEN)?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if crc(&header[..28]) != word(28) {
        return Err(malformed(0, "the header's checksum does not match"));
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(Error::unsupported(FORMAT, 4, format!("version {version}")));
    }
    let (index_at, index_len) = (long(8), long(16));
    let bytes = source.bytes(FORMAT, index_at, index_len)?;
    if crc(&bytes) != word(24) {
        return Err(malformed(index_at, "the index's checksum does not match"));
    }
    Index { source, bytes: &bytes, position: 0, base: index_at }.parse()
}

/// Reads the index.
struct Index<'a> {
    source: &'a Source,
    bytes: &'a [u8],
    position: usize,
    base: u64,
}

impl<'a> Index<'a> {
    fn malformed(&self, problem: String) -> Error {
        Error::malformed(FORMAT, self.base + self.position as u64, problem)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let taken = self.bytes.get(self.position..).and_then(|rest| rest.get(..len));
        let taken = taken.ok_or_else(|| self.malformed("the index ends too early".into()))?;
        self.position += len;
        Ok(taken)
    }

    fn number(&mut self, width: usize) -> Result<u64, Error> {
        Ok(self.take(width)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn text(&mut self, width: usize) -> Result<String, Error> {
        let len = self.number(width)? as usize;
        let bytes = self.take(len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.malformed("a text that is not UTF-8".into()))
    }

    fn parse(mut self) -> Result<TensorFile, Error> {
        let mut texts = BTreeMap::new();
        for _ in 0..self.number(4)? {
            texts.insert(self.text(4)?, self.text(4)?);
        }
        let mut offset = HEADER_LEN;
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..self.number(4)? {
            entries.push(self.tensor(&mut offset)?);
        }
        if offset != self.base || self.position != self.bytes.len() {
            return Err(self.malformed("slabs and index do not fill the file".into()));
        }
        self.add_tied(&mut texts, &mut entries)?;
        let classes: Vec<Class> = entries.iter().map(Entry::class).collect();
        let mut file = TensorFile::new(FORMAT, entries, texts)?;
        // The index knows classes better than names and texts do.
        for (entry, class) in file.entries.iter_mut().zip(classes) {
            entry.class = class;
        }
        Ok(file)
    }

    /// Lists tensors that refer to others, in place of the texts that say so.
    fn add_tied(&self, texts: &mut BTreeMap<String, String>, entries: &mut Vec<Entry>) -> Result<(), Error> {
        let own = entries.len();
        for (name, to) in texts.iter().filter_map(|(key, to)| Some((key.strip_prefix(TIED_KEY)?, to))) {
            let found = entries[..own].iter().find(|entry| entry.name() == to).cloned();
            let found = found.ok_or_else(|| {
                self.malformed(format!("`{name}` is tied to `{to}`, which the file does not hold"))
            })?;
            entries.push(found.with_name(name));
        }
        texts.retain(|key, _| !key.starts_with(TIED_KEY));
        Ok(())
    }

    fn tensor(&mut self, offset: &mut u64) -> Result<Entry, Error> {
        let name = self.text(2)?;
        let codec_name = self.text(1)?;
        let (class, dtype) = (self.number(1)? as usize, self.number(1)? as usize);
        let class = *Class::ALL.get(class).ok_or_else(|| self.malformed(format!("class {class}")))?;
        let dtype = *Dtype::ALL.get(dtype).ok_or_else(|| self.malformed(format!("number format {dtype}")))?;
        let rank = self.number(1)?;
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(self.number(8)? as usize);
        }
        let values = count(&shape).filter(|values| values.checked_mul(8).is_some());
        let values = values.ok_or_else(|| self.malformed(format!("shape {shape:?}")))?;
        let cols = shape.last().copied().unwrap_or(1);
        let slab_values = self.number(4)? as usize;
        let slab_count = self.number(4)? as usize;
        let plan = BlockPlan::new(values.checked_div(cols).unwrap_or(0), cols, slab_values.max(1));
        if slab_values == 0 && values > 0 || plan.len() != slab_count {
            return Err(self.malformed(format!("{slab_count} slabs for shape {shape:?}")));
        }
        let start = *offset;
        let mut slabs = Vec::new();
        for _ in 0..slab_count {
            let (len, crc) = (self.number(4)? as u32, self.number(4)? as u32);
            slabs.push(Slab { offset: *offset, len, crc });
            *offset =
                offset.checked_add(len.into()).ok_or_else(|| self.malformed("slabs overflow".into()))?;
        }
        let payload = TriPayload {
            source: self.source.clone(),
            name: name.clone(),
            codec_name: codec_name.clone(),
            dtype,
            cols,
            slab_values,
            plan,
            slabs,
            basis: None,
        };
        Ok(Entry::new(name, dtype, shape, start, Arc::new(payload))?
            .with_class(class)
            .with_stored(codec_name))
    }
}

#[derive(Debug, Clone)]
struct TriPayload {
    source: Source,
    name: String,
    codec_name: String,
    dtype: Dtype,
    cols: usize,
    slab_values: usize,
    plan: BlockPlan,
    slabs: Vec<Slab>,
    basis: Option<Basis>,
}

impl TriPayload {
    /// A slab's bytes, checked.
    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        let slab = *self.slabs.get(index).ok_or_else(|| Error::corrupt(0, format!("no slab {index}")))?;
        let bytes = self.source.bytes(FORMAT, slab.offset, slab.len.into())?;
        if crc(&bytes) != slab.crc {
            let problem = format!("checksum of slab {index} of tensor `{}` does not match", self.name);
            return Err(Error::malformed(FORMAT, slab.offset, problem));
        }
        Ok(bytes)
    }

    /// Bytes of a slab's values.
    fn decoded_bytes(&self, index: usize) -> usize {
        self.plan.values(index).len() * self.dtype.bytes()
    }

    /// Whether a slab is no larger than those we write: others are decoded before memory is set aside for them, since
    /// a file may lie.
    fn is_plausible(&self, index: usize) -> bool {
        self.plan.values(index).len() <= SLAB_VALUES
    }

    /// Decodes slabs into buffers, which are made to fit.
    fn decode(
        &self,
        codec: &dyn TensorCodec,
        slabs: std::ops::Range<usize>,
        buffers: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        buffers.resize_with(slabs.len().max(buffers.len()), Vec::new);
        let one = |(index, buffer): (usize, &mut Vec<u8>)| {
            let (encoded, bytes) = (self.encoded(index)?, self.decoded_bytes(index));
            if !self.is_plausible(index) {
                *buffer = codec.decode(&encoded)?.into_data();
                return Ok(());
            }
            buffer.truncate(bytes);
            crate::memory::grow(buffer, bytes - buffer.len())?;
            codec.decode_into(&encoded, buffer)
        };
        slabs.into_par_iter().zip(&mut *buffers).try_for_each(one)
    }

    fn encoded(&self, index: usize) -> Result<Encoded, Error> {
        let range = self.plan.values(index);
        let cols = self.cols.min(range.len());
        Ok(Encoded {
            name: self.name.clone(),
            class: Class::Other,
            dtype: self.dtype,
            shape: vec![range.len() / cols.max(1), cols],
            bytes: self.bytes(index)?,
        })
    }
}

impl Payload for TriPayload {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        let codec = decoder(&self.codec_name, self.basis.as_ref())?;
        let (decoded, other) = (Vec::new(), Vec::new());
        let codec = codec.into();
        Ok(Box::new(TriStream { payload: self, codec, next: 0, decoded, other, ahead: 0..0, taken: 0 }))
    }

    fn coded_slab(&self, index: usize) -> Result<Vec<u8>, Error> {
        self.bytes(index)
    }

    fn slabs(&self) -> Option<(usize, usize)> {
        Some((self.slab_values, self.slabs.len()))
    }

    fn with_basis(&self, basis: &Basis) -> Option<Arc<dyn Payload>> {
        Some(Arc::new(Self { basis: Some(basis.clone()), ..self.clone() }))
    }

    fn verify(&self) -> Result<(), Error> {
        (0..self.slabs.len()).try_for_each(|index| self.bytes(index).map(|_| ()))
    }
}

/// Decodes as many slabs at once as there are threads.
struct TriStream<'a> {
    payload: &'a TriPayload,
    codec: Arc<dyn TensorCodec>,
    /// The slab to decode next.
    next: usize,
    /// Buffers of slabs that are decoded together, kept from one batch to the next.
    decoded: Vec<Vec<u8>>,
    /// Buffers of the batch after it.
    other: Vec<Vec<u8>>,
    /// Which of `decoded` are not all taken, and bytes of the first of them that are.
    ahead: std::ops::Range<usize>,
    taken: usize,
}

impl ValueStream for TriStream<'_> {
    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            if self.ahead.is_empty() {
                let direct = self.decode_over(bytes)?;
                bytes = &mut bytes[direct..];
            }
            if !bytes.is_empty() {
                let piece = self.piece(bytes.len())?;
                let step = piece.len();
                bytes[..step].copy_from_slice(piece);
                bytes = &mut bytes[step..];
            }
        }
        Ok(())
    }

    /// What is taken is written, often: meanwhile the next slabs are decoded, where there are threads for it.
    fn each(&mut self, bytes: usize, take: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut left = bytes;
        while left > 0 {
            if self.ahead.is_empty() {
                self.decode_batch()?;
            }
            let (payload, next) = (self.payload, self.batch());
            let ready: usize = self.decoded[self.ahead.clone()].iter().map(Vec::len).sum();
            let ready = (ready - self.taken).min(left);
            if rayon::current_num_threads() == 1 || next.is_empty() || ready == left {
                self.pieces(ready, take)?;
            } else {
                let (codec, mut other) = (self.codec.clone(), std::mem::take(&mut self.other));
                let (mut decoded, mut taken) = (Ok(()), Ok(()));
                rayon::in_place_scope(|scope| {
                    let (decoded, other, next) = (&mut decoded, &mut other, next.clone());
                    scope.spawn(move |_| *decoded = payload.decode(codec.as_ref(), next, other));
                    taken = self.pieces(ready, take);
                });
                taken?;
                decoded?;
                self.ahead = 0..next.len();
                self.next = next.end;
                self.other = std::mem::replace(&mut self.decoded, other);
            }
            left -= ready;
        }
        Ok(())
    }
}

impl TriStream<'_> {
    /// What comes next of one slab, at most so many bytes.
    fn piece(&mut self, most: usize) -> Result<&[u8], Error> {
        if self.ahead.is_empty() {
            self.decode_batch()?;
        }
        let slab = &self.decoded[self.ahead.start];
        let start = self.taken;
        let end = slab.len().min(start.saturating_add(most));
        self.taken = end;
        if end == slab.len() {
            self.ahead.start += 1;
            self.taken = 0;
        }
        Ok(&slab[start..end])
    }

    /// Hands on so many bytes of what is decoded.
    fn pieces(
        &mut self,
        bytes: usize,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut left = bytes;
        while left > 0 {
            let piece = self.piece(left)?;
            left -= piece.len();
            take(piece)?;
        }
        Ok(())
    }

    /// The slabs to decode next, as many as there are threads.
    fn batch(&self) -> std::ops::Range<usize> {
        self.next..(self.next + rayon::current_num_threads()).min(self.payload.slabs.len())
    }

    fn decode_batch(&mut self) -> Result<(), Error> {
        let next = self.batch();
        if next.is_empty() {
            return Err(Error::ended("reading past the end of a tensor"));
        }
        self.payload.decode(self.codec.as_ref(), next.clone(), &mut self.decoded)?;
        self.ahead = 0..next.len();
        self.next = next.end;
        Ok(())
    }

    /// Decodes as many whole slabs as there is room for to where they are wanted; says how many bytes those are.
    fn decode_over(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        let Self { payload, codec, next, .. } = self;
        let (mut rest, mut jobs) = (bytes, Vec::new());
        for index in (*next..payload.slabs.len()).take_while(|&index| payload.is_plausible(index)) {
            match rest.split_at_mut_checked(payload.decoded_bytes(index)) {
                Some((own, after)) => {
                    jobs.push((index, own));
                    rest = after;
                }
                None => break,
            }
        }
        let (count, filled) = (jobs.len(), jobs.iter().map(|(_, own)| own.len()).sum());
        jobs.into_par_iter().try_for_each(|(index, own)| codec.decode_into(&payload.encoded(index)?, own))?;
        *next += count;
        Ok(filled)
    }
}

/// The tensors of a file whose stored bytes fail their checksums, each with
/// what is wrong. Formats without checksums have none.
pub fn damaged(file: &TensorFile) -> Vec<(String, Error)> {
    let check = |entry: &Entry| entry.payload.verify().err().map(|error| (entry.name.clone(), error));
    file.entries().par_iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Rate, codec};
    use crate::file::write_npy_of;
    use crate::{Tensor, TensorFile};
    use std::io::Cursor;
    use trinity_numeric::random::Lcg;

    fn container(write: impl FnOnce(&mut TriWriter<Cursor<Vec<u8>>>)) -> TensorFile {
        let mut writer = TriWriter::over(Cursor::new(Vec::new()), &BTreeMap::new()).unwrap();
        write(&mut writer);
        TensorFile::from_bytes(writer.complete().unwrap().0.into_inner(), "coded").unwrap()
    }

    fn spec(dtype: Dtype, shape: Vec<usize>) -> Spec {
        Spec { name: "t".into(), class: Class::Weight, dtype, shape }
    }

    /// Straight to where they are wanted, out of buffers, from slab to slab: the same bytes.
    #[test]
    fn values_come_the_same_whole_in_pieces_and_to_a_file() {
        let (rows, cols, slab_rows) = (150, 70, 40);
        let mut lcg = Lcg(11);
        let values: Vec<f32> = (0..rows * cols).map(|_| (lcg.uniform() - 0.5) * 3e4).collect();
        for (name, target) in [
            ("trinity-lite", Rate::Bits(4.0)),
            ("trinity", Rate::Bits(4.0)),
            ("uniform+ac", Rate::Bits(3.0)),
            ("zstd", Rate::Lossless),
        ] {
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::I16, Dtype::F64] {
                let codec = codec(name).unwrap();
                let mut expected = Vec::new();
                let file = container(|writer| {
                    writer.begin(&spec(dtype, vec![rows, cols]), name, slab_rows * cols + 3).unwrap();
                    for values in values.chunks(slab_rows * cols) {
                        let mut data = Vec::new();
                        dtype.extend_from_f32(values, &mut data);
                        let shape = vec![values.len() / cols, cols];
                        let slab = Tensor::new("t", Class::Weight, dtype, shape, data).unwrap();
                        let encoded = codec.encode(&slab, target).unwrap();
                        expected.extend(codec.decode(&encoded).unwrap().into_data());
                        let mut small = vec![0; 2];
                        assert!(codec.decode_into(&encoded, &mut small).is_err());
                        writer.slab(&encoded.bytes).unwrap();
                    }
                });
                let entry = &file.entries()[0];
                assert_eq!(entry.read().unwrap().data(), expected, "{name} {dtype}");
                for piece in [8, 1000 * dtype.bytes(), expected.len() - 8] {
                    let (mut stream, mut bytes) = (entry.stream().unwrap(), vec![7; expected.len()]);
                    bytes.chunks_mut(piece).for_each(|piece| stream.fill(piece).unwrap());
                    assert_eq!(bytes, expected, "{name} {dtype} {piece}");
                    assert!(stream.fill(&mut [0; 8]).is_err(), "past the end");
                }
                for (threads, bytes) in [(1, expected.len()), (2, expected.len()), (2, 8 * 1250), (3, 8)] {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let (mut stream, mut back) = (entry.stream().unwrap(), Vec::<u8>::new());
                    while back.len() < expected.len() {
                        let some = bytes.min(expected.len() - back.len());
                        let mut take = |piece: &[u8]| {
                            back.extend(piece);
                            Ok(())
                        };
                        pool.install(|| stream.each(some, &mut take)).unwrap();
                    }
                    assert_eq!(back, expected, "{name} {dtype} {threads}");
                }
                if name == "trinity-lite" {
                    let folder = tempfile::tempdir().unwrap();
                    let path = folder.path().join("t.npy");
                    let heard = std::cell::Cell::new(0);
                    write_npy_of(&path, entry, &|values| heard.set(heard.get() + values)).unwrap();
                    let back = TensorFile::open(&path).unwrap().entries()[0].read().unwrap();
                    assert_eq!((back.data(), heard.get()), (&expected[..], rows * cols), "{dtype}");
                }
            }
        }
    }

    /// Memory is set aside for what decodes, not for what a file says of itself.
    #[test]
    fn a_slab_that_lies_about_its_size_is_damage() {
        let file = container(|writer| {
            writer.begin(&spec(Dtype::F32, vec![1 << 31]), "line-fast", u32::MAX as usize).unwrap();
            writer.slab(&[1, 2, 3]).unwrap();
        });
        let error = file.entries()[0].read().unwrap_err();
        assert!(matches!(error.root(), Error::Corrupt { .. }), "{error}");
    }
}
